// What each view says while the API server fails, in each of the ways in which it
// can; and that it goes on when that is over. As page.test.js, it needs the
// workloads of this folder.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { base, ignoring, kube, launch, patience, rowNamed, unique, until, using, visit } from './browser.js'

let browser
before(async () => {
  browser = await launch()
  // Of what is long ago, a journey may know nothing any more.
  const page = await visit(browser)
  await kube(page, 'PATCH', '/apis/apps/v1/namespaces/shop/deployments/storefront', { metadata: { annotations: { touched: unique('at') } } }, 'application/merge-patch+json')
  await page.context().close()
})
after(() => browser?.close())
const on = using(() => browser)

const status = (code, message) => ({ status: code, json: { apiVersion: 'v1', kind: 'Status', status: 'Failure', code, message } })
// request is a route of playwright's, socket a websocket, stream whether it is the one of rows.
const failures = {
  'fails with 500': {
    request: (r) => r.fulfill(status(500, 'etcdserver: no leader')),
    socket: (s, stream) => (stream ? s.onMessage((m) => s.send(JSON.stringify({ id: JSON.parse(m).id, type: 'error', error: { code: 500, message: 'etcdserver: no leader', retry: true } }))) : s.close()),
    says: /no leader/,
  },
  'is a proxy that has no server': {
    request: (r) => r.fulfill({ status: 503, contentType: 'text/html', body: `<html><body><h1>503</h1>${'no server '.repeat(200)}</body></html>` }),
    socket: (s) => s.close(),
    says: /API server fails: 503|no connection to the API server|No connection could be made/,
  },
  'says nothing': { request: () => {}, socket: () => {}, wait: 31_000, says: /doesn’t answer|no answer yet|No connection could be made|no connection to the API server/ },
  'says what is none of its words': {
    request: (r) => r.fulfill({ contentType: 'application/json', body: '{"hello": "world"}' }),
    socket: (s, stream) => (stream ? s.onMessage(() => s.send('hello, world')) : s.close()),
    says: /can’t be read|no connection to the API server|doesn’t answer|could be made/,
  },
}

const deployment = '/?o=deployments.apps/shop/storefront'
const views = [
  ['overview', '/', 'main', '[data-troubles] li'],
  ['map', '/map', 'main', '.node-name'],
  ['etcd', '/map?view=etcd', 'main', 'svg .part'],
  ['a node’s inside', '/map?view=node:node-1', 'main', '.zone-title'],
  ['table', '/k/pods', 'main', '.body .row'],
  ['kinds', '/kinds', 'main', 'tbody tr'],
  ['timeline', '/timeline', 'main', '.list li'],
  ['summary', deployment, '.inspector', '.facts'],
  ['why', `${deployment}&t=why`, '.inspector', '[data-verdict]'],
  ['journey', `${deployment}&t=journey`, '.inspector', '[role=group] button'],
  ['YAML', `${deployment}&t=yaml`, '.inspector', '.cm-content'],
  ['events', '/?o=pods/default/typo&t=events', '.inspector', 'li'],
  ['related', `${deployment}&t=related`, '.inspector', 'tbody tr'],
  ['logs', '/?dock=logs:shop:store-0:', '.dock', '.logs .line'],
  ['logs of many', '/?dock=logs:shop:deployments.apps/storefront:*', '.dock', '.logs .line'],
  ['shell', '/?dock=shell:shop:store-0:', '.dock', '.xterm-rows'],
]

/** failing is a page whose API server can be made to fail. */
async function failing() {
  const page = await visit(browser, '/kinds')
  await page.clock.install()
  let failure
  const sockets = new Set()
  await page.route('**/ui/k8s/**', (r) => (failure ? failure.request(r) : r.fallback()))
  await page.routeWebSocket(/\/ui\/k8s\//, (s) => {
    sockets.add(s)
    if (failure) return failure.socket(s, s.url().includes('/orrery/v1/stream'))
    s.connectToServer()
  })
  return {
    page,
    /** fail has it fail from now on, or work again, and breaks what is open. */
    async fail(how) {
      failure = failures[how]
      for (const s of sockets) await s.close()
      sockets.clear()
    },
    /** mend leaves what is open as it is: it is for the user to try again. */
    mend: () => (failure = undefined),
    // What the browser itself says of failed requests is not the page's.
    complaints: () => ignoring(page, /Failed to load resource|WebSocket connection/),
  }
}

/** retry has what is offered clicked once it would help; the page may be faster, as it tries by itself, too. */
async function retry(part, mend) {
  const button = part.locator('[data-retry]').first()
  await button.waitFor()
  await mend()
  await button.click({ timeout: 3000 }).catch(() => {})
}

describe('T17: while the API server fails, the page says what fails, and goes on when it is asked again', () => {
  for (const [name, path, area, there] of views) {
    test(name, { timeout: 10 * patience }, async (t) => {
      const { page, fail, mend, complaints } = await failing()
      const part = page.locator(area).first()
      for (const [how, { says, wait }] of Object.entries(failures)) {
        await t.test(how, async () => {
          await fail(how)
          await page.goto(`${base}/ui${path}`)
          if (wait) {
            // What is asked for only later has its own time to run out of.
            await until('it says so', () => page.clock.fastForward(wait).then(() => part.getByText(says).first().waitFor({ timeout: 2000 })).then(() => true, () => false))
          }
          await part.getByText(says).first().waitFor()
          await until('nothing waits without a word', async () => (await part.getByText('Loading…').count()) === 0)
          await retry(part, mend)
          await part.locator(there).first().waitFor()
          await until('the failure is no longer told of', async () => (await part.locator('[data-retry]').count()) === 0)
        })
      }
      await t.test('what was there stays', async () => {
        await fail('fails with 500')
        await page.getByText(/reconnecting|etcdserver: no leader/).first().waitFor()
        await part.locator(there).first().waitFor()
        await fail()
        await until('the failure is no longer told of', async () => (await page.getByText(/reconnecting|etcdserver: no leader/).count()) === 0)
      })
      assert.deepEqual(complaints(), [])
      await page.context().close()
    })
  }

  test('usage', () =>
    on('/k/pods', {}, async (page) => {
      await page.route('**/orrery/v1/usage', (r) => r.fulfill(status(500, 'no kubelet answers')))
      await page.getByRole('button', { name: 'Usage' }).click()
      await page.getByText('no kubelet answers').waitFor()
      await rowNamed(page, /./).nth(1).waitFor()
      await page.unroute('**/orrery/v1/usage')
      await page.locator('[data-retry]').click()
      await page.getByText('no kubelet answers').waitFor({ state: 'detached' })
      ignoring(page, /500/)
    }))

  test('before it is known who asks', async () => {
    for (const [answer, says] of [[{ status: 502 }, /API server fails: 502/], [{ body: 'hello, world' }, /can’t be read/]]) {
      const page = await visit(browser, '/kinds')
      await page.route('**/ui/session', (r) => r.fulfill(answer))
      await page.reload()
      await page.getByText(says).waitFor()
      assert.equal(await page.getByLabel('Bearer token').count(), 0, 'who is signed in is not asked to do it again')
      await retry(page, () => page.unroute('**/ui/session'))
      await page.locator('tbody tr').first().waitFor()
      await page.context().close()
    }
  })
})

describe('where there is nothing', () => {
  const empty = unique('empty')
  before(async () => {
    const page = await visit(browser)
    await kube(page, 'POST', '/api/v1/namespaces', { apiVersion: 'v1', kind: 'Namespace', metadata: { name: empty } })
    await until('it has its ConfigMap', async () => (await kube(page, 'GET', `/api/v1/namespaces/${empty}/configmaps`)).items.length)
    await page.context().close()
  })
  for (const [name, path, words] of [
    ['overview', '/', ['Nothing is wrong right now', 'No warnings in the last hour']],
    ['table', '/k/pods', ['There are none']],
    ['a filter that nothing matches', '/k/configmaps?q=nothing-like-that', ['Nothing matches the filter']],
    ['timeline', '/timeline', ['No events in the last hour']],
    ['events of an object', `/?o=configmaps/${empty}/kube-root-ca.crt&t=events`, ['No events in the last hour']],
    ['related', `/?o=configmaps/${empty}/kube-root-ca.crt&t=related`, ['Nothing is known to be related']],
    ['an object that is not there', '/?o=pods/shop/nobody', ['This object does not exist']],
    ['a kind that is not there', '/k/nothings', ['The cluster has no kind “nothings”']],
    ['logs of a workload that is not there', '/?dock=logs:shop:deployments.apps/nobody:', ['This object does not exist']],
  ]) {
    test(name, () =>
      on(`${path}${path.includes('?') ? '&' : '?'}ns=${empty}`, {}, async (page) => {
        for (const text of words) await page.getByText(text).first().waitFor()
      }))
  }
})
