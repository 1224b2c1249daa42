// The pictures in docs/pictures: the main views in both languages, light and dark.
import { execFileSync } from 'node:child_process'
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { kube, launch, live, until, visit } from './browser.js'

if (!execFileSync('fc-list', [':lang=zh-tw'], { encoding: 'utf8' })) {
  console.error('a font with Chinese letters is missing (apt-get install fonts-wqy-microhei)')
  process.exit(1)
}
const folder = join(import.meta.dirname, '../../docs/pictures')
mkdirSync(folder, { recursive: true })
for (const f of readdirSync(folder)) rmSync(join(folder, f))

const browser = await launch()
const first = await visit(browser)
await until('the shop is open', async () => (await kube(first, 'GET', '/apis/apps/v1/namespaces/shop/deployments/storefront')).status?.availableReplicas === 4)
// A second revision, so that there is something to undo.
await kube(first, 'PATCH', '/apis/apps/v1/namespaces/shop/deployments/cart', { spec: { template: { spec: { containers: [{ name: 'cart', image: 'registry.example/cart:1.5' }] } } } }, 'application/strategic-merge-patch+json')
await first.waitForTimeout(8000)
await first.context().close()

const click = (selector) => (page) => page.locator(selector).first().click()
const views = [
  ['overview', '/'],
  ['map', '/map'],
  ['pods', '/k/pods'],
  ['object', '/k/deployments.apps?o=deployments.apps/shop/storefront'],
  ['logs', '/k/pods?ns=shop&dock=logs:shop:deployments.apps/storefront:*'],
  ['undo', '/k/deployments.apps?o=deployments.apps/shop/cart', (page) => click('[data-action="action.history"]:enabled')(page).then(() => click('[role=option]:last-child')(page)).then(() => page.getByRole('option').last().click())],
]
// The browser itself makes them a third as large as its screenshots are.
const blank = await browser.newPage()
const webp = async (png) => Buffer.from(await blank.evaluate(async (data) => {
  const image = await createImageBitmap(await (await fetch('data:image/png;base64,' + data)).blob())
  const canvas = new OffscreenCanvas(image.width, image.height)
  canvas.getContext('2d').drawImage(image, 0, 0)
  const bytes = new Uint8Array(await (await canvas.convertToBlob({ type: 'image/webp', quality: 0.8 })).arrayBuffer())
  return btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(''))
}, png.toString('base64')), 'base64')

// Nothing is on its way any more, and time has gone by for numbers to come in.
const settled = async (page) => {
  await page.waitForTimeout(2500)
  await until('all is there', async () => (await page.getByText(/Loading…|載入中…/).count()) === 0)
}

let size = 0
for (const [name, path, then] of views) {
  for (const language of ['en', 'zh-TW']) {
    for (const dark of [false, true]) {
      const page = await visit(browser, path, { language, dark })
      await live(page)
      await settled(page)
      if (then) await then(page)
      if (then) await settled(page)
      const picture = await webp(await page.screenshot())
      writeFileSync(join(folder, [name, language === 'en' ? '' : language, dark ? 'dark' : ''].filter(Boolean).join('-') + '.webp'), picture)
      size += picture.length
      await page.context().close()
    }
  }
}
console.log(`${Math.round(size / 1024)} KiB of pictures in docs/pictures`)
await browser.close()
