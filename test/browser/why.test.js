// Six Deployments are broken, each in a way of its own (troubles.yaml). Each is
// found on the overview, and its cause and mend are read, in at most three clicks.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { launch, live, visit } from './browser.js'

let browser
before(async () => {
  browser = await launch()
})
after(() => browser?.close())

const walks = [
  { name: 'wrong image', object: 'wrong-image', overview: /Image.*no image registry\.example\/shpo:1\.0/, link: 'image', cause: /no image registry\.example\/shpo:1\.0/, mend: /kubectl set image deployment\/wrong-image -n troubles web=IMAGE/ },
  { name: 'no room', object: 'no-room', overview: /Scheduling.*No node is large enough: 64 of cpu/, link: 'scheduling', cause: /the largest node has \d+ \(most free now: [\d.]+m?, on node-\d\)/, mend: /kubectl set resources deployment\/no-room -n troubles --requests=cpu=\d+/ },
  { name: 'failing probe', object: 'failing-probe', overview: /Probes.*readiness probe fails/, link: 'probes', cause: /readiness probe fails: GET http:\/\/:8081\/healthz.*connection refused/, mend: /The probe asks port 8081, but the container declares http \(8080\)/ },
  { name: 'missing Secret', object: 'missing-secret', overview: /Secret db-pass is not there/, link: 'volumes', cause: /Secret db-pass is not there/, mend: /kubectl create secret generic db-pass -n troubles --from-literal=password=VALUE/ },
  { name: 'quota', object: 'held-back', overview: /Quota few-pods is used up: pods 2 of 2/, link: 'quota', cause: /pods 2 of 2, and one more pod needs 1/, mend: /kubectl patch resourcequota few-pods -n tight/ },
  { name: 'bad selector', object: 'bad-selector', overview: /selector app=bad-selecter of Service bad-selector matches no pod; pods of Deployment bad-selector have app=bad-selector/, link: 'selector', cause: /matches no pod/, mend: /kubectl set selector service bad-selector app=bad-selector -n troubles/ },
]

describe('why is this not running?', () => {
  for (const walk of walks) {
    test(`T52: ${walk.name}`, async () => {
      const page = await visit(browser, '/')
      await live(page)
      let clicks = 0
      const click = (locator) => (clicks++, locator.click())

      const line = page.locator('[data-troubles] li').filter({ hasText: walk.object }).filter({ hasText: walk.overview })
      await line.waitFor()
      assert.equal(await line.count(), 1, 'one line for all of its pods')
      await click(line.getByRole('link'))

      const broken = page.locator(`[data-link=${walk.link}][data-state=broken]`)
      await broken.filter({ hasText: walk.cause }).filter({ hasText: walk.mend }).waitFor()
      assert.equal(await page.locator('[data-verdict]').getAttribute('data-verdict'), 'broken')
      assert.ok(clicks <= 3, `${clicks} clicks`)
      assert.deepEqual(page.problems, [])
      await page.context().close()
    })
  }

  test('evidence leads to the object that it was read in', async () => {
    const page = await visit(browser, '/?o=deployments.apps/tight/held-back&t=why')
    await page.locator('[data-link=quota] .evidence').getByRole('link', { name: 'ResourceQuota/few-pods' }).click()
    await page.locator('[data-object="resourcequotas/tight/few-pods"]').waitFor()
    await page.context().close()
  })

  test('what a quota refuses again and again is one warning', async () => {
    const page = await visit(browser, '/?ns=tight')
    const warning = page.locator('.events li').filter({ hasText: /FailedCreate.*replicaset\/held-back/ })
    await warning.filter({ hasText: /×\d+/ }).waitFor()
    assert.equal(await warning.count(), 1)
    await page.context().close()
  })
})
