// Pictures of the views, for people to look at: node shots.js [folder] [words of names]
import { mkdirSync } from 'node:fs'
import { base, launch, visit } from './browser.js'

const folder = process.argv[2] ?? 'results/shots'
const only = process.argv.slice(3)
mkdirSync(folder, { recursive: true })
const browser = await launch()

const first = await visit(browser)
const node = (await (await first.request.get(`${base}/ui/k8s/api/v1/nodes`)).json()).items[0].metadata.name
await first.context().close()

const firstPod = async (page) => (await page.locator('[role=gridcell].name span').first().textContent()) ?? ''
const shots = [
  ['signin', '/', { signedIn: false }],
  ['signin-dark', '/', { signedIn: false, dark: true }],
  ['signin-zh', '/', { signedIn: false, language: 'zh-TW' }],
  ['overview', '/'],
  ['overview-dark', '/', { dark: true }],
  ['overview-zh', '/', { language: 'zh-TW' }],
  ['overview-narrow', '/', { width: 390, height: 844 }],
  ...['wrong-image', 'no-room', 'failing-probe', 'missing-secret', 'bad-selector'].map((name) => [`why-${name}`, `/?o=deployments.apps/troubles/${name}&t=why`]),
  ['why-quota', '/?o=deployments.apps/tight/held-back&t=why'],
  ['why-dark', '/?o=deployments.apps/troubles/no-room&t=why', { dark: true }],
  ['why-zh', '/?o=deployments.apps/tight/held-back&t=why', { language: 'zh-TW' }],
  ['why-narrow', '/?o=deployments.apps/troubles/failing-probe&t=why', { width: 390, height: 844 }],
  ['map', '/map'],
  ['map-dark', '/map?focus=apiserver', { dark: true }],
  ['map-zh', '/map?focus=edge:kubelet', { language: 'zh-TW' }],
  ['map-narrow', '/map', { width: 390, height: 844 }],
  ['etcd', '/map?view=etcd'],
  ['etcd-zh', '/map?view=etcd', { language: 'zh-TW', dark: true }],
  ['node', `/map?view=node:${node}`],
  ['node-zh', `/map?view=node:${node}`, { language: 'zh-TW' }],
  ['pods', '/k/pods'],
  ['pods-dark', '/k/pods?wide=1&sort=-Restarts', { dark: true }],
  ['pods-zh', '/k/pods', { language: 'zh-TW' }],
  ['pods-narrow', '/k/pods', { width: 390, height: 844 }],
  ['nodes', '/k/nodes?wide=1'],
  ['detail', '/k/pods?ns=shop&q=cart', {}, async (page) => page.locator('[role=gridcell].name').first().click()],
  ['detail-narrow', '/k/pods?ns=shop&q=cart', { width: 390, height: 844 }, async (page) => page.locator('[role=gridcell].name').first().click()],
  ['yaml', '/k/deployments.apps?o=deployments.apps/shop/cart&t=yaml'],
  ['yaml-dark', '/k/deployments.apps?o=deployments.apps/shop/cart&t=yaml', { dark: true }],
  ['journey', '/k/deployments.apps?o=deployments.apps/shop/cart&t=journey', {}, async (page) => page.locator('.span.kubelet').first().focus()],
  ['journey-zh', '/k/deployments.apps?o=deployments.apps/shop/cart&t=journey', { language: 'zh-TW', dark: true }, async (page) => { await page.getByRole('button', { name: '展開' }).or(page.locator('.inspector .grow')).first().click(); await page.locator('.span.kube-apiserver').first().hover() }],
  ['journey-list', '/k/deployments.apps?o=deployments.apps/shop/cart&t=journey', {}, async (page) => page.getByRole('button', { name: 'As a list' }).click()],
  ['journey-narrow', '/k/deployments.apps?o=deployments.apps/shop/cart&t=journey', { width: 390, height: 844 }],
  ['map-calls', '/map?focus=scheduler'],
  ['related', '/k/deployments.apps?o=deployments.apps/shop/cart&t=related'],
  ['logs', '/k/pods?ns=shop', {}, async (page) => page.evaluate((name) => { location.search = `?ns=shop&dock=logs:shop:${name}:` }, await firstPod(page))],
  ['shell', '/k/pods?ns=shop', { dark: true }, async (page) => page.evaluate((name) => { location.search = `?ns=shop&dock=logs:shop:${name}:,shell:shop:${name}:&d=1` }, await firstPod(page))],
  ['palette', '/k/pods', {}, async (page) => { await page.keyboard.press(':'); await page.keyboard.type('deplo') }],
  ['namespaces', '/k/pods', {}, async (page) => page.locator('.picker button').click()],
  ['delete', '/k/namespaces?o=namespaces//shop', {}, async (page) => page.locator('[data-action="action.delete"]').click()],
  ['deployment', '/k/deployments.apps?o=deployments.apps/shop/storefront'],
  ['history', '/k/deployments.apps?o=deployments.apps/shop/storefront', {}, async (page) => page.locator('[data-action="action.history"]').click()],
  ['blast', '/k/deployments.apps?o=deployments.apps/shop/storefront', {}, async (page) => page.locator('[data-action="action.delete"]').click()],
  ['drain', `/k/nodes?o=nodes//${node}`, {}, async (page) => page.locator('[data-action="action.drain"]').click()],
  ['bulk', '/k/pods?ns=shop,default', {}, async (page) => { await page.getByRole('grid').focus(); await page.keyboard.press('*') }],
  ['columns', '/k/pods?cols=Status|Node|Image=.spec.containers[*].image', {}, async (page) => page.getByRole('button', { name: 'Columns', exact: true }).click()],
  ['usage', '/k/pods', {}, async (page) => page.getByRole('button', { name: 'Usage' }).click()],
  ['edit', '/k/deployments.apps?o=deployments.apps/shop/cart&t=yaml&edit=1', { width: 1440 }],
  ['review', '/k/deployments.apps?o=deployments.apps/shop/cart&t=yaml&edit=1', {}, async (page) => { await page.keyboard.press('Control+End'); await page.locator('.cm-line', { hasText: 'replicas: 3' }).first().click(); await page.keyboard.press('End'); await page.keyboard.type('3'); await page.locator('[data-review]').click() }],
  ['merged', '/k/deployments.apps?dock=logs:shop:deployments.apps/storefront:*'],
  ['merged-zh', '/k/deployments.apps?dock=logs:shop:deployments.apps/storefront:*', { language: 'zh-TW', dark: true }],
  ['timeline', '/timeline'],
  ['timeline-dark', '/timeline', { dark: true, language: 'zh-TW' }],
  ['access', '/access'],
  ['who', '/access?view=who&ns=shop'],
  ['as', '/k/pods?as=jane&asg=system:authenticated'],
  ['custom', '/k/services?o=services/shop/storefront'],
  ['kinds', '/kinds'],
  ['events', '/k/events'],
]
for (const [name, path, options, then] of shots) {
  if (only.length && !only.some((w) => name.startsWith(w))) continue
  const page = await visit(browser, path, options)
  try {
    await page.waitForTimeout(1300)
    await then?.(page)
    if (then) await page.waitForTimeout(1800)
    await page.screenshot({ path: `${folder}/${name}.png` })
    console.log(name, page.problems.join(' | ').slice(0, 300))
  } catch (e) {
    console.log(name, 'FAILED', String(e).split('\n')[0], page.problems.join(' | '))
  }
  await page.context().close()
}
await browser.close()
