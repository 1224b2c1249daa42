// The dashboard against a running cluster: ORRERY_URL and ORRERY_TOKEN say which
// (by default the fake of this folder). It needs at least one node and one pod.
import axe from 'axe-core'
import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { after, before, describe, test } from 'node:test'
import { gzipSync } from 'node:zlib'
import { act, base, confirm, grid, kube, launch, live, patience, rowNamed, token, unique, until, using, visit } from './browser.js'

let browser
before(async () => {
  browser = await launch()
})
after(() => browser?.close())

const on = using(() => browser)
/**
 * violations is what axe finds in a part of the page. Neither frames nor passes interest
 * us, and each takes it seconds; rules are all of them, unless some are named.
 */
async function violations(page, { part = 'html', rules } = {}) {
  // Text that fades in has less contrast until it is there.
  await page.waitForFunction(() => document.getAnimations().every((a) => a.playState !== 'running' || a.effect.getTiming().iterations === Infinity))
  if (await page.evaluate(() => !window.axe)) await page.evaluate(axe.source)
  const found = await page.evaluate(([part, rules]) => window.axe.run(part, { resultTypes: ['violations'], iframes: false, ...(rules && { runOnly: rules }) }), [part, rules])
  return found.violations.map((v) => `${v.id}: ${v.nodes.length} × ${v.nodes[0].html.slice(0, 160)} ${v.nodes[0].failureSummary?.split('\n')[1] ?? ''}`)
}
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
      const link = await new Promise((found, failed) => {
        let said = ''
        beside.stdout.on('data', (text) => {
          const whole = (said += text).match(/http:\S+(?=\s)/)
          if (whole) found(whole[0])
        })
        beside.on('exit', () => failed(new Error(said)))
      })
      const context = await browser.newContext()
      context.setDefaultTimeout(patience)
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
      // What the first load brings is not counted with the second's.
      await page.getByRole('link', { name: /of \d+ ready/ }).waitFor()
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
      await live(page) // what the overview asks for is not counted
      const asked = []
      page.on('websocket', (s) => s.on('framesent', ({ payload }) => asked.push(JSON.parse(payload).view?.resource)))
      await page.goto(`${base}/ui/k/pods`)
      await rowNamed(page, /./).nth(1).waitFor()
      assert.ok(asked.includes('pods') && !asked.includes('events'), asked.join())
    }))

  test('a table follows the cluster, without a reload', () =>
    on('/', {}, async (page) => {
      const name = unique('live')
      await page.goto(`${base}/ui/k/configmaps?q=${name}`)
      await page.getByText('Nothing matches the filter').waitFor()
      await kube(page, 'POST', configMaps, configMap(name))
      await rowNamed(page, name).waitFor()
      await kube(page, 'DELETE', `${configMaps}/${name}`)
      await rowNamed(page, name).waitFor({ state: 'detached' })
    }))

  test('filter, order and the address', () =>
    on('/k/namespaces', {}, async (page) => {
      await rowNamed(page, 'kube-system').waitFor()
      await page.locator('[data-filter]').fill('^default$')
      await page.locator('[data-count]', { hasText: /^1 of / }).waitFor()
      await page.waitForURL(/[?&]q=/)
      await page.locator('[data-filter]').fill('')
      const age = grid(page).getByRole('columnheader', { name: 'Age' })
      await age.getByRole('button').click()
      await page.waitForURL(/sort=Age/)
      const ascending = grid(page).locator('[aria-sort=ascending]', { hasText: 'Age' })
      await ascending.waitFor()
      await page.reload()
      await ascending.waitFor()
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
      assert.deepEqual(await violations(page, { part: '.inspector' }), [])
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
      await page.goto(`${base}/ui/k/configmaps?q=${name}&o=configmaps/default/${name}`)
      await rowNamed(page, name).waitFor()
      await act(page, 'delete')
      await confirm(page)
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
      await page.getByRole('link', { name: /of \d+ ready/ }).waitFor()
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
      await until('a size', async () => /^\s*[1-9]\d* [1-9]\d+\s*$/m.test(await page.locator('.xterm-rows').innerText()))
    }))
})

describe('map', () => {
  test('shows every part, and explains what is chosen', () =>
    on('/map', {}, async (page) => {
      for (const name of ['API server', 'etcd', 'Scheduler', 'Controller manager', 'kubelet', 'kube-proxy']) await page.getByRole('button', { name: new RegExp(`^${name}`) }).first().waitFor()
      await page.getByRole('button', { name: /^Scheduler/ }).first().click()
      await page.getByText('new pods stay Pending').waitFor()
      await page.waitForURL(/focus=scheduler/)
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
    context.setDefaultTimeout(patience)
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
    await page.goto(`${base}/ui/k/configmaps?q=${gone}|${fresh}`)
    await rowNamed(page, gone).waitFor()
    await page.evaluate(() => (window.untouched = true))

    cut = true
    for (const socket of open) await socket.close()
    await page.getByText('reconnecting').waitFor()
    await kube(page, 'DELETE', `${configMaps}/${gone}`)
    await kube(page, 'POST', configMaps, configMap(fresh))
    assert.equal(await rowNamed(page, gone).count(), 1, 'rows stay while it is down')

    cut = false
    await rowNamed(page, fresh).waitFor()
    await rowNamed(page, gone).waitFor({ state: 'detached' })
    assert.ok(await page.evaluate(() => window.untouched), 'the page was loaded again')
    await kube(page, 'DELETE', `${configMaps}/${fresh}`)
    await context.close()
  })

  test('T17: what a server refuses that has just begun is asked for again, and stays until then', () =>
    on('/kinds', {}, async (page) => {
      let refusals = 0
      const open = new Set()
      await page.routeWebSocket(/\/orrery\/v1\/stream$/, (socket) => {
        const server = socket.connectToServer()
        open.add(socket)
        socket.onMessage((text) => {
          const { id, op } = JSON.parse(text)
          if (op === 'open' && refusals-- > 0) socket.send(JSON.stringify({ id, type: 'error', error: { code: 403, message: 'no roles are known yet' } }))
          else server.send(text)
        })
      })
      const name = unique('stays')
      await kube(page, 'POST', configMaps, configMap(name))
      await page.goto(`${base}/ui/k/configmaps?q=${name}`)
      await rowNamed(page, name).waitFor()
      refusals = 50
      for (const socket of open) await socket.close()
      await page.getByText('no roles are known yet').first().waitFor()
      assert.equal(await rowNamed(page, name).count(), 1)
      refusals = 0
      await page.getByText('no roles are known yet').first().waitFor({ state: 'detached' })
      await kube(page, 'DELETE', `${configMaps}/${name}`)
      await rowNamed(page, name).waitFor({ state: 'detached' })
    }))
})

describe('accessibility', () => {
  const press = (name) => (page) => page.getByRole('button', { name, exact: true }).first().click()
  const dialog = (action, then) => async (page) => {
    await act(page, action)
    await page.getByRole('dialog').locator('button').first().waitFor()
    await then?.(page)
  }
  const marked = (bulk) => async (page) => {
    await rowNamed(page, /./).nth(1).waitFor()
    await grid(page).focus()
    await page.keyboard.press('*')
    await page.locator(`[data-bulk=${bulk}]:enabled`).click()
    await page.getByRole('dialog').locator('[data-confirm]').waitFor()
  }
  const key = (key) => async (page) => {
    await live(page)
    await page.keyboard.press(key)
    await page.getByRole('dialog').waitFor()
  }
  const edited = (then) => async (page) => {
    await page.locator('.cm-content[contenteditable=true]').waitFor()
    await page.locator('.cm-line', { hasText: /^\s*currency: TWD/ }).click()
    await page.keyboard.press('End')
    await page.keyboard.type('!')
    await then(page)
  }
  const there = (selector) => (page) => page.locator(selector).first().waitFor()
  const storefront = '/k/deployments.apps?o=deployments.apps/shop/storefront'
  const store = '/k/pods?o=pods/shop/store-0'
  const settings = '/k/configmaps?ns=shop&o=configmaps/shop/settings'
  const views = [
    ['overview', '/', there('[data-troubles] li')],
    ['pods', '/k/pods', there('[data-view=pods] .body .row')],
    ['nothing that matches', '/k/pods?q=nothing-like-that', there('[data-view=pods] .notice')],
    ['a kind that is not there', '/k/nothings', there('.notice')],
    ['an object that is not there', '/k/pods?o=pods/shop/nobody', there('.inspector .notice')],
    ['map', '/map?focus=apiserver', there('svg .part')],
    ['etcd', '/map?view=etcd', there('svg .part')],
    ['a node’s inside', '/map?view=node:node-1', there('svg .part')],
    ['kinds', '/kinds', there('table')],
    ['namespace', '/k/namespaces?o=namespaces//default', there('[data-action]:enabled')],
    ['why', '/?o=deployments.apps/tight/held-back&t=why', there('[data-link=quota]')],
    ['journey', `${storefront}&t=journey`, there('.inspector [role=group] button')],
    ['events of an object', '/k/pods?o=pods/default/typo&t=events', there('.inspector .message')],
    ['related', `${storefront}&t=related`, there('.related table')],
    ['timeline', '/timeline', there('.list strong')],
    ['access', '/access', there('.cell')],
    ['who can', '/access?view=who&ns=shop', there('[data-holder]')],
    ['columns', '/k/pods?cols=Status|Image=.spec.containers[*].image', press(/^(Columns|欄位)$/)],
    ['namespaces', '/k/pods', (page) => page.locator('.picker button').first().click()],
    ['palette', '/k/pods', key(':')],
    ['help', '/k/pods', key('?')],
    ['history', storefront, dialog('history')],
    ['image', storefront, dialog('image')],
    ['scale', storefront, dialog('scale')],
    ['delete', storefront, dialog('delete', there('[data-blast] p'))],
    ['delete a namespace', '/k/namespaces?o=namespaces//shop', dialog('delete', there('[data-blast] p'))],
    ['many to restart', '/k/deployments.apps?ns=shop', marked('restart')],
    ['many to delete', '/k/configmaps?ns=shop', marked('delete')],
    ['debug', store, dialog('debug')],
    ['files', store, dialog('files', async (page) => {
      await page.locator('dialog form button').click()
      await page.locator('dialog li').first().waitFor()
    })],
    ['forward', store, dialog('forward')],
    ['drain', '/k/nodes?o=nodes//node-1', dialog('drain')],
    ['logs', '/?dock=logs:shop:deployments.apps/storefront:*', there('.logs .label')],
    ['a shell', '/?dock=shell:shop:store-0:', there('.xterm-rows')],
    ['YAML', `${storefront}&t=yaml`, there('.cm-content')],
    ['edit', `${settings}&t=yaml&edit=1`, there('.cm-content[contenteditable=true]')],
    ['review', `${settings}&t=yaml&edit=1`, edited(async (page) => {
      await page.locator('[data-review]').click()
      await page.locator('[data-diff] .plus').first().waitFor()
    })],
    // It stays switched on.
    ['usage', '/k/pods', press(/^(Usage|用量)$/)],
  ]
  const check = async (page) => {
    assert.deepEqual(await violations(page), [], 'light')
    await page.emulateMedia({ colorScheme: 'dark' })
    assert.deepEqual(await violations(page, { rules: ['color-contrast'] }), [], 'dark')
  }
  // A view is gone to as by a link, from one that keeps nothing of the last: to load the
  // page for each takes longer than to look at it.
  const show = async (page, path) => {
    await page.emulateMedia({ colorScheme: 'light' })
    for (const to of ['/kinds', path]) {
      await page.evaluate((url) => {
        for (const dialog of document.querySelectorAll('dialog[open]')) dialog.close()
        document.body.click() // what lies over the page goes
        history.pushState(null, '', url)
        dispatchEvent(new PopStateEvent('popstate'))
      }, `/ui${to}`)
    }
  }
  for (const [how, options] of [['', {}], [', in Traditional Chinese and narrow', { language: 'zh-TW', width: 390, height: 844 }]]) {
    describe(`views${how}`, () => {
      let page
      before(async () => {
        page = await visit(browser, '/', options)
      })
      after(() => page.context().close())
      for (const [name, path, then] of views) {
        test(name + how, async () => {
          await show(page, path)
          await then(page)
          await check(page)
        })
      }
    })

    test(`sign-in${how}`, async () => {
      const page = await visit(browser, '/', { ...options, signedIn: false })
      await page.locator('form').waitFor()
      await check(page)
      await page.context().close()
    })
  }
})
