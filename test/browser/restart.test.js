// An API server that is killed and started again, in a cluster of this test's own.
import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'

const dir = mkdtempSync(join(tmpdir(), 'restart-'))
const port = await new Promise((found) => {
  const s = createServer().listen(0, '127.0.0.1', () => {
    const { port } = s.address()
    s.close(() => found(port))
  })
})
process.env.ORRERY_URL = `https://127.0.0.1:${port}`
process.env.KUBECONFIG = join(dir, 'kubeconfig/admin.conf')

let cluster
async function start() {
  cluster = spawn(process.env.ORRERY_BINARY, ['up', '--simulate', '--nodes', '1', '--data-dir', dir, '--address', `127.0.0.1:${port}`])
  await new Promise((up, failed) => {
    let said = ''
    const hear = (text) => (said += text).includes('cluster is up') && up()
    cluster.stdout.on('data', hear)
    cluster.stderr.on('data', hear)
    cluster.on('exit', () => failed(new Error(said)))
  })
}
const kill = (signal) => new Promise((gone) => cluster.on('exit', gone) && cluster.kill(signal))

await start()
process.env.ORRERY_TOKEN = execFileSync(process.env.ORRERY_BINARY, ['dashboard', '--token'], { encoding: 'utf8' }).trim()
const { base, kube, launch, live, rowNamed, until, visit } = await import('./browser.js')
const browser = await launch()
after(async () => {
  await browser.close()
  await kill('SIGTERM')
})

test('T16: an API server that is killed and comes back: the page says so, is live again without a reload, and misses nothing', { timeout: 300_000 }, async (t) => {
  const configMaps = '/api/v1/namespaces/default/configmaps'
  const create = (name) => kube(page, 'POST', configMaps, { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name } })
  const page = await visit(browser, '/k/configmaps?ns=default')
  page.setDefaultTimeout(60_000)
  await live(page)
  for (const name of ['stays', 'goes']) await create(name)
  await rowNamed(page, 'goes').waitFor()
  await page.evaluate(() => {
    window.untouched = true
    window.health = []
    const badge = document.querySelector('[data-revision]').closest('[role=status]')
    new MutationObserver(() => window.health.push([Date.now(), !badge.classList.contains('off')])).observe(badge, { attributes: true, attributeFilter: ['class'] })
  })
  const turned = (to) => page.waitForFunction((to) => window.health.find(([, live]) => live === to)?.[0], to).then((h) => h.jsonValue())

  const killed = Date.now()
  await kill('SIGKILL')
  const lost = (await turned(false)) - killed
  assert.ok(lost < 2000, `the badge took ${lost} ms`)
  await rowNamed(page, 'stays').waitFor()

  const starting = start()
  await until('it answers', () => page.request.get(`${base}/readyz`).then((a) => a.ok(), () => false), 120_000, 50)
  const back = Date.now()
  await kube(page, 'DELETE', `${configMaps}/goes`)
  await create('new')
  const again = (await turned(true)) - back
  assert.ok(again < 5000, `live ${again} ms after it answers`)
  await rowNamed(page, 'new').waitFor()
  await rowNamed(page, 'goes').waitFor({ state: 'detached' })
  await rowNamed(page, 'stays').waitFor()
  assert.ok(await page.evaluate(() => window.untouched), 'the page was loaded again')
  await starting
  t.diagnostic(`badge after ${lost} ms, live ${again} ms after it answers`)
})
