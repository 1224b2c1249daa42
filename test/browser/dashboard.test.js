// The dashboard against a running cluster: ORRERY_URL and ORRERY_TOKEN say which
// (by default the fake of this folder). It needs at least one node and one pod.
import AxeBuilder from '@axe-core/playwright'
import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { after, before, describe, test } from 'node:test'
import { gzipSync } from 'node:zlib'
import { base, grid, kube, launch, live, rowNamed, token, unique, using, visit } from './browser.js'

let browser
before(async () => {
  browser = await launch()
})
after(() => browser?.close())

const on = using(() => browser)
const configMaps = '/api/v1/namespaces/default/configmaps'
const configMap = (name) => ({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name }, data: { greeting: 'hello\nworld\n' } })

describe('sign-in', () => {
  test('a wrong token is refused, a right one opens the page', async () => {
    const page = await visit(browser, '/', { signedIn: false })
    await page.getByLabel('Bearer token').fill('wrong')
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.getByRole('alert').waitFor()
    await page.getByLabel('Bearer token').fill(token)
    await page.getByRole('button', { name: 'Sign in' }).click()
    await live(page)
    const cookie = (await page.context().cookies()).find((c) => c.name.includes('orrery'))
    assert.ok(cookie.httpOnly && cookie.secure && cookie.sameSite === 'Strict')
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.getByLabel('Bearer token').waitFor()
    await page.context().close()
  })

  test('a link signs in once, and its code leaves the address', async () => {
    const link = execFileSync(process.env.ORRERY_BINARY, ['dashboard', '--no-browser'], { encoding: 'utf8' }).match(/#code=\S+/)[0]
    const page = await visit(browser, '/' + link, { signedIn: false })
    await live(page)
    assert.ok(!page.url().includes('code'))
    await page.context().close()
    const again = await visit(browser, '/' + link, { signedIn: false })
    await again.getByRole('alert').getByText('used already').waitFor()
    await again.context().close()
  })

  test('beside any cluster, the page shows what it tells, and says what it cannot', async () => {
    const beside = spawn(process.env.ORRERY_BINARY, ['dashboard', '--serve', '--no-browser'])
    try {
      const link = await new Promise((found) => beside.stdout.on('data', (text) => /http:\S+/.test(text) && found(String(text).match(/http:\S+/)[0])))
      const context = await browser.newContext()
      const page = await context.newPage()
      await page.goto(link, { waitUntil: 'commit' }) // the address changes while it loads
      await live(page)
      assert.ok(!page.url().includes('code'))
      await page.goto(new URL('/ui/k/pods', link).href)
      await page.getByRole('row').filter({ hasText: 'Running' }).first().waitFor()
      await page.goto(new URL('/ui/map', link).href)
      await page.getByText('API server is not orrery').waitFor()
      await context.close()
    } finally {
      beside.kill()
    }
  })
})

describe('views', () => {
  test('T12: the overview shows control plane, nodes and workloads', () =>
    on('/', {}, async (page) => {
      await live(page)
      for (const name of ['API server', 'etcd', 'Scheduler', 'Controller manager']) await page.getByRole('link', { name: new RegExp(name) }).first().waitFor()
      await page.getByRole('heading', { name: 'Nodes' }).waitFor()
      await page.getByRole('link', { name: /of \d+ ready/ }).waitFor()
    }))

  test('the first load is at most 120 KB of script', () =>
    on('/', {}, async (page) => {
      const scripts = []
      page.on('response', (r) => /\.js$/.test(new URL(r.url()).pathname) && scripts.push(r.body().then((b) => gzipSync(b, { level: 9 }).length)))
      await page.reload()
      await live(page)
      await page.getByRole('link', { name: /of \d+ ready/ }).waitFor()
      const size = (await Promise.all(scripts)).reduce((a, b) => a + b, 0)
      assert.ok(size > 0 && size <= 120_000, `${size} bytes`)
    }))

  test('T9: events are not asked for where none are shown', () =>
    on('/', {}, async (page) => {
      const asked = []
      page.on('websocket', (s) => s.on('framesent', ({ payload }) => asked.push(JSON.parse(payload).view?.resource)))
      await page.goto(`${base}/ui/k/pods`)
      await rowNamed(page, /./).nth(1).waitFor()
      assert.ok(asked.includes('pods') && !asked.includes('events'), asked.join())
    }))

  test('a table follows the cluster, without a reload', () =>
    on('/k/configmaps', {}, async (page) => {
      const name = unique('live')
      await live(page)
      await kube(page, 'POST', configMaps, configMap(name))
      await rowNamed(page, name).waitFor()
      await kube(page, 'DELETE', `${configMaps}/${name}`)
      await rowNamed(page, name).waitFor({ state: 'detached' })
    }))

  test('filter, order and the address', () =>
    on('/k/namespaces', {}, async (page) => {
      await rowNamed(page, 'kube-system').waitFor()
      await page.locator('[data-filter]').fill('^default$')
      await page.waitForFunction(() => /^1 of /.test(document.querySelector('[data-count]').textContent))
      assert.match(page.url(), /[?&]q=/)
      await page.locator('[data-filter]').fill('')
      const age = grid(page).getByRole('columnheader', { name: 'Age' })
      await age.getByRole('button').click()
      assert.match(page.url(), /sort=Age/)
      assert.equal(await age.getAttribute('aria-sort'), 'ascending')
      await page.reload()
      await age.waitFor()
      assert.equal(await age.getAttribute('aria-sort'), 'ascending')
    }))

  test('pods have kubectl’s columns', () =>
    on('/k/pods', {}, async (page) => {
      await rowNamed(page, /./).nth(1).waitFor()
      for (const name of ['Name', 'Namespace', 'Ready', 'Status', 'Restarts', 'Age']) await grid(page).getByRole('columnheader', { name, exact: true }).waitFor()
      await page.getByRole('button', { name: 'All columns' }).click()
      await grid(page).getByRole('columnheader', { name: 'Node', exact: true }).waitFor()
    }))

  test('keys move through rows and open one', () =>
    on('/k/nodes', {}, async (page) => {
      await rowNamed(page, /./).nth(1).waitFor()
      await grid(page).focus()
      await page.keyboard.press('Enter')
      await page.locator('[data-object^="nodes//"]').waitFor()
      await page.keyboard.press('y')
      await page.waitForURL(/t=yaml/)
      await page.keyboard.press('Escape')
      await page.locator('[data-object]').waitFor({ state: 'detached' })
    }))

  test('the palette goes to any kind', () =>
    on('/', {}, async (page) => {
      await live(page)
      await page.getByRole('link', { name: 'Deployments' }).first().waitFor()
      await page.keyboard.press(':')
      await page.keyboard.type('cm kube-system')
      await page.keyboard.press('Enter')
      await page.waitForURL(/\/k\/configmaps\?.*ns=kube-system/)
    }))
})

describe('an object', () => {
  test('the journey of a change, from kubectl to running', () =>
    on('/k/deployments.apps', {}, async (page) => {
      const name = unique('journey')
      const labels = { app: name }
      await kube(page, 'POST', '/apis/apps/v1/namespaces/default/deployments', {
        apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name },
        spec: { replicas: 1, selector: { matchLabels: labels }, template: { metadata: { labels }, spec: { containers: [{ name: 'web', image: 'registry.example/web:1' }] } } },
      })
      await page.goto(`${base}/ui/k/deployments.apps?o=deployments.apps/default/${name}&t=journey`)
      const chart = page.getByRole('group', { name: 'Journey' })
      for (const stage of [/^create deployments, API server/, /^deployment, controllers/, /^create replicasets, API server/, /^create pods, API server/, /^schedule, scheduler/, /^admit, kubelet node-/, /^run container web, kubelet node-/]) {
        await chart.getByRole('button', { name: stage }).first().waitFor()
      }
      await page.getByText(/^Done after/).waitFor()
      await page.getByText(/ready \+/).first().waitFor()
      // The keyboard goes from bar to bar, and each is explained.
      await chart.getByRole('button', { name: /^create deployments, API server/ }).focus()
      await page.locator('.detail', { hasText: 'etcd commit' }).waitFor()
      await page.keyboard.press('ArrowRight')
      await page.locator('.detail h3', { hasText: 'watch delivery' }).waitFor()
      const { violations } = await new AxeBuilder({ page }).include('.inspector').setLegacyMode().options({ resultTypes: ['violations'] }).analyze()
      assert.deepEqual(violations.map((v) => `${v.id}: ${v.nodes[0].html.slice(0, 160)}`), [])
      await page.getByRole('button', { name: 'As a list' }).click()
      await page.getByRole('row', { name: /scheduler schedule/ }).first().waitFor()
      await kube(page, 'DELETE', `/apis/apps/v1/namespaces/default/deployments/${name}`)
      // The map's parts tell what they did last.
      await page.goto(`${base}/ui/map?focus=scheduler`)
      await page.getByRole('complementary').getByText('schedule', { exact: true }).first().waitFor()
    }))

  test('YAML follows the object', () =>
    on('/k/configmaps', {}, async (page) => {
      const name = unique('yaml')
      await kube(page, 'POST', configMaps, configMap(name))
      await page.goto(`${base}/ui/k/configmaps?o=configmaps/default/${name}&t=yaml`)
      await page.locator('.cm-content', { hasText: 'greeting: |' }).waitFor()
      await page.request.fetch(`${base}/ui/k8s${configMaps}/${name}`, { method: 'PATCH', data: JSON.stringify({ data: { greeting: 'changed' } }), headers: { Origin: base, 'Content-Type': 'application/merge-patch+json' } })
      await page.locator('.cm-content', { hasText: 'greeting: changed' }).waitFor()
      await kube(page, 'DELETE', `${configMaps}/${name}`)
      await page.getByText('does not exist').waitFor()
    }))

  test('T38: is deleted after a question', () =>
    on('/k/configmaps', {}, async (page) => {
      const name = unique('gone')
      await kube(page, 'POST', configMaps, configMap(name))
      await page.goto(`${base}/ui/k/configmaps?o=configmaps/default/${name}`)
      await page.locator('[data-action="action.delete"]:enabled').click()
      await page.locator('[data-confirm]').click()
      await rowNamed(page, name).waitFor({ state: 'detached' })
    }))
})

describe('logs and shells', () => {
  async function running(page) {
    const list = await kube(page, 'GET', '/api/v1/pods')
    // An old one that never failed is the least likely to go away in the middle of the test;
    // one of several containers has to be opened at its default one.
    const restarts = (p) => p.status.containerStatuses.reduce((n, c) => n + c.restartCount, 0)
    const pod = list.items.filter((p) => p.status.phase === 'Running' && p.status.containerStatuses?.every((c) => c.ready)).sort((a, b) => restarts(a) - restarts(b) || b.spec.containers.length - a.spec.containers.length || a.metadata.creationTimestamp.localeCompare(b.metadata.creationTimestamp))[0]
    assert.ok(pod, 'no pod is running')
    return pod.metadata
  }

  test('T27: a log is followed, and survives navigation', () =>
    on('/k/pods', {}, async (page) => {
      const { namespace, name } = await running(page)
      await page.goto(`${base}/ui/k/pods?dock=logs:${namespace}:${name}:`)
      const log = page.getByRole('log')
      await log.waitFor()
      await page.getByText(/· (following|ended)/).waitFor()
      await page.getByRole('link', { name: 'Overview' }).click()
      await log.waitFor()
      assert.match(page.url(), /dock=logs/)
    }))

  test('a shell opens with the size of its pane', { skip: process.env.ORRERY_NO_SHELL }, () =>
    on('/k/pods', {}, async (page) => {
      const { namespace, name } = await running(page)
      await page.goto(`${base}/ui/k/pods?dock=shell:${namespace}:${name}:`)
      await page.locator('.xterm-rows', { hasText: '#' }).waitFor()
      await page.locator('.xterm-helper-textarea').focus()
      await page.keyboard.type('stty size\r')
      await page.locator('.xterm-rows', { hasText: /Width|\d+ \d+/ }).waitFor()
    }))
})

describe('map', () => {
  test('shows every part, and explains what is chosen', () =>
    on('/map', {}, async (page) => {
      for (const name of ['API server', 'etcd', 'Scheduler', 'Controller manager', 'kubelet', 'kube-proxy']) await page.getByRole('button', { name: new RegExp(`^${name}`) }).first().waitFor()
      await page.getByRole('button', { name: /^Scheduler/ }).first().click()
      await page.getByText('new pods stay Pending').waitFor()
      assert.match(page.url(), /focus=scheduler/)
    }))

  test('goes into etcd and into a node, and speaks Traditional Chinese', () =>
    on('/map?view=etcd', { language: 'zh-TW' }, async (page) => {
      await page.locator('svg text', { hasText: '主節點' }).first().waitFor()
      const nodes = await kube(page, 'GET', '/api/v1/nodes')
      await page.goto(`${base}/ui/map?view=node:${nodes.items[0].metadata.name}`)
      await page.locator('svg text', { hasText: '網路流量' }).first().waitFor()
      await page.locator('svg text', { hasText: '容器執行' }).last().waitFor()
    }))

  test('the language can be switched, and stays', () =>
    on('/', {}, async (page) => {
      await page.locator('[data-language=en]').click()
      await page.getByRole('link', { name: '架構圖' }).first().waitFor()
      await page.reload()
      await page.getByRole('link', { name: '架構圖' }).first().waitFor()
      assert.equal(await page.locator('html').getAttribute('lang'), 'zh-TW')
    }))
})

describe('when the connection breaks', () => {
  test('T17, T35: the page says so, and is live again without a reload, with no row lost and no ghost left', async () => {
    const context = await browser.newContext({ ignoreHTTPSErrors: true })
    const page = await context.newPage()
    let cut = false
    const open = new Set()
    await page.routeWebSocket(/\/orrery\/v1\/stream$/, (socket) => {
      if (cut) return socket.close()
      socket.connectToServer()
      open.add(socket)
    })
    await page.request.post(`${base}/ui/session`, { data: { token }, headers: { Origin: base } })
    const gone = unique('gone')
    const fresh = unique('fresh')
    await kube(page, 'POST', configMaps, configMap(gone))
    await page.goto(`${base}/ui/k/configmaps`)
    await rowNamed(page, gone).waitFor()
    await page.evaluate(() => (window.untouched = true))

    cut = true
    for (const socket of open) await socket.close()
    await page.getByText('reconnecting').waitFor({ timeout: 10_000 })
    await kube(page, 'DELETE', `${configMaps}/${gone}`)
    await kube(page, 'POST', configMaps, configMap(fresh))
    assert.equal(await rowNamed(page, gone).count(), 1, 'rows stay while it is down')

    cut = false
    await rowNamed(page, fresh).waitFor({ timeout: 15_000 })
    await rowNamed(page, gone).waitFor({ state: 'detached' })
    assert.ok(await page.evaluate(() => window.untouched), 'the page was loaded again')
    await kube(page, 'DELETE', `${configMaps}/${fresh}`)
    await context.close()
  })
})

describe('accessibility', () => {
  const button = (name) => (page) => page.getByRole('button', { name, exact: true }).click()
  const dialog = (action) => async (page) => {
    await page.locator(`[data-action="action.${action}"]:enabled`).click()
    await page.getByRole('dialog').locator('button').first().waitFor()
  }
  const storefront = '/k/deployments.apps?o=deployments.apps/shop/storefront'
  const both = (name, path, then) => [[name, path, {}, then], [`${name}, dark and narrow`, path, { dark: true, width: 390, height: 844 }, then]]
  for (const [name, path, options, then] of [
    ['sign-in', '/', { signedIn: false }],
    ['overview', '/'],
    ['overview, dark', '/', { dark: true }],
    ['pods', '/k/pods'],
    ['pods, narrow', '/k/pods', { width: 390, height: 844 }],
    ['pods, dark', '/k/pods', { dark: true }],
    ['map', '/map?focus=apiserver'],
    ['map, dark', '/map?view=etcd', { dark: true }],
    ['kinds', '/kinds'],
    ['namespace', '/k/namespaces?o=namespaces//default'],
    ...both('why', '/?o=deployments.apps/tight/held-back&t=why', (page) => page.locator('[data-link=quota]').waitFor()),
    ...both('journey', `${storefront}&t=journey`, (page) => page.getByRole('group', { name: 'Journey' }).waitFor()),
    ...both('timeline', '/timeline', (page) => page.locator('.list strong').first().waitFor()),
    ...both('access', '/access', (page) => page.locator('.cell').first().waitFor()),
    ...both('who can', '/access?view=who&ns=shop', async (page) => {
      await button('Who can')(page)
      await page.locator('[data-holder]').first().waitFor()
    }),
    ...both('usage', '/k/pods', button('Usage')),
    ...both('columns', '/k/pods', button('Columns')),
    ...both('history', storefront, dialog('history')),
    ...both('image', storefront, dialog('image')),
    ...both('scale', storefront, dialog('scale')),
    ...both('delete', storefront, dialog('delete')),
    ...both('debug', '/k/pods?o=pods/shop/store-0', dialog('debug')),
    ...both('files', '/k/pods?o=pods/shop/store-0', dialog('files')),
    ...both('forward', '/k/pods?o=pods/shop/store-0', dialog('forward')),
    ...both('drain', '/k/nodes?o=nodes//node-1', dialog('drain')),
    ...both('merged logs', '/?dock=logs:shop:deployments.apps/storefront:*', (page) => page.locator('.logs .label').first().waitFor()),
    ...both('edit', `${storefront}&t=yaml&edit=1`, (page) => page.locator('.cm-content[contenteditable=true]').waitFor()),
  ]) {
    test(name, async () => {
      const page = await visit(browser, path, options)
      await page.locator('main').first().waitFor()
      await then?.(page)
      // Text that fades in has less contrast until it is there.
      await page.waitForFunction(() => document.getAnimations().every((a) => a.playState !== 'running' || a.effect.getTiming().iterations === Infinity))
      // Neither frames nor passes interest us, and each takes axe seconds.
      const { violations } = await new AxeBuilder({ page }).setLegacyMode().options({ resultTypes: ['violations'] }).analyze()
      assert.deepEqual(violations.map((v) => `${v.id}: ${v.nodes.length} × ${v.nodes[0].html.slice(0, 160)} ${v.nodes[0].failureSummary?.split('\n')[1] ?? ''}`), [])
      await page.context().close()
    })
  }
})
