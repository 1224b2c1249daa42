// What happens in containers, as the page shows it: logs, terminals, files, ports.
// As page.test.js, it needs controllers and simulated nodes.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { after, before, describe, test } from 'node:test'
import { promisify } from 'node:util'
import { act, base, confirm, grid, kube, launch, live, patience, rowNamed, unique, until, using, visit } from './browser.js'

let browser
after(() => browser?.close())
const on = using(() => browser)

const ns = unique('inside')
const core = `/api/v1/namespaces/${ns}`
const pod = (name, annotations = {}, spec = {}) => ({
  apiVersion: 'v1', kind: 'Pod', metadata: { name, annotations: Object.fromEntries(Object.entries(annotations).map(([k, v]) => [`simulate.orrery.dev/${k}`, v])) },
  spec: { containers: [{ name: 'web', image: 'registry.example/web:1', ports: [{ containerPort: 8080 }] }], terminationGracePeriodSeconds: 0, ...spec },
})
const phase = (page, name, wanted) => until(`${name} is ${wanted}`, async () => (await kube(page, 'GET', `${core}/pods/${name}`)).status?.phase === wanted)
async function make(page, ...pods) {
  for (const p of pods) await kube(page, 'POST', `${core}/pods`, p)
  for (const p of pods) await phase(page, p.metadata.name, 'Running')
}

before(async () => {
  browser = await launch()
  const page = await visit(browser)
  await kube(page, 'POST', '/api/v1/namespaces', { apiVersion: 'v1', kind: 'Namespace', metadata: { name: ns } })
  await make(page, pod('shop', { 'log-rate': '5' }))
  await page.context().close()
})

describe('logs', () => {
  const state = (page) => page.locator('.logs [role=status]')
  const lines = (page) => page.locator('.logs .line:not(.divider)')
  const divider = (page, hasText) => page.locator('.logs .divider', { hasText })
  const stamp = (ago) => new Date(Date.now() - ago).toISOString()

  test('T26, T27: ten thousand lines a second, of which the node keeps only the last second, are all there, byte by byte', { timeout: 10 * patience }, (t) =>
    on('/', {}, async (page) => {
      await live(page)
      await make(page, pod('torrent', { 'log-rate': '10000', 'run-for': '12s' }, { restartPolicy: 'Never' }))
      const kubectl = promisify(execFile)(process.env.ORRERY_BINARY, ['kubectl', 'logs', '-f', '-n', ns, 'torrent'], { maxBuffer: 1 << 30 })
      // Without a reload: it must not be over before a slow page is there.
      await page.evaluate((search) => {
        history.pushState(null, '', search)
        dispatchEvent(new PopStateEvent('popstate'))
      }, `?dock=logs:${ns}:torrent:`)
      await until('lines', async () => parseInt(await state(page).textContent()) > 0)
      const { stdout: all } = await kubectl
      await state(page).filter({ hasText: 'ended' }).waitFor()
      const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Download' }).click()])
      const seen = readFileSync(await download.path(), 'utf8')
      // Whoever came first saw more of the beginning; from then on nothing may differ.
      const both = Math.min(all.length, seen.length)
      t.diagnostic(`${seen.split('\n').length - 1} lines`)
      assert.ok(both > 1_000_000, `${both} bytes`)
      let same = 0
      while (same < both && all.at(-1 - same) === seen.at(-1 - same)) same++
      assert.equal(same, both, `the logs differ: kubectl has ${JSON.stringify(all.slice(-same - 200, -same + 200))}, the page ${JSON.stringify(seen.slice(-same - 200, -same + 200))}`)
      assert.equal(await page.locator('.logs .divider').count(), 0)
    }))

  test('T27: a container that restarts is followed, under a divider', () =>
    on('/', {}, async (page) => {
      await make(page, pod('again', { 'run-for': '3s', 'log-rate': '5' }))
      await page.goto(`${base}/ui/?dock=logs:${ns}:again:`)
      // What is searched for stays in view, however much is written.
      await page.getByPlaceholder('Search (regular expression)').fill('started: nothing runs here')
      await divider(page, 'goes on below').first().waitFor()
      await lines(page).nth(1).waitFor()
      await state(page).filter({ hasText: 'following' }).waitFor()
    }))

  // The log is the test's own: streams that it writes to, and breaks.
  const ownLog = async (page) => {
    await page.addInitScript(() => {
      window.streams = []
      const real = window.fetch
      window.fetch = (url, options) => {
        if (!String(url).includes('/log?')) return real(url, options)
        const body = new ReadableStream({
          start(c) {
            const text = new TextEncoder()
            window.streams.push({ url: String(url), write: (line) => c.enqueue(text.encode(line + '\n')), fail: () => c.error(new TypeError('network error')) })
            options.signal?.addEventListener('abort', () => c.error(options.signal.reason))
          },
        })
        return Promise.resolve(new Response(body))
      }
    })
    await page.goto(`${base}/ui/?dock=logs:${ns}:shop:`)
    const opened = (n) => page.waitForFunction((n) => window.streams.length > n, n)
    const write = async (n, ago, text) => {
      await opened(n)
      await page.evaluate(([n, line]) => window.streams[n].write(line), [n, `${stamp(ago)} ${text}`])
      await lines(page).filter({ hasText: text }).waitFor()
    }
    return { opened, write, fail: (n) => page.evaluate((n) => window.streams[n].fail(), n) }
  }

  test('T26: what is missing after the connection broke is told of in its place', () =>
    on('/', {}, async (page) => {
      const log = await ownLog(page)
      await log.write(0, 60_000, 'first')
      await log.fail(0)
      await log.write(1, 30_000, 'second')
      await divider(page, /what was written between [\d:]+ and [\d:]+ is not here/).waitFor()
      assert.deepEqual((await page.locator('.logs .line').allTextContents()).map((x) => x.split(' ')[0]), ['first', 'what', 'second'])
      assert.match(await page.evaluate(() => window.streams[1].url), /sinceTime=/)
    }))

  test('T28: a log that is behind says how far, and jumps to now', () =>
    on('/', {}, async (page) => {
      const log = await ownLog(page)
      await log.write(0, 300_000, 'old')
      assert.equal(await page.locator('[data-behind]').count(), 0, 'old lines alone are no backlog')
      await page.evaluate(() => {
        const [stream] = window.streams
        const timer = setInterval(() => {
          try {
            stream.write(`${new Date(Date.now() - 300_000).toISOString()} backlog`)
          } catch {
            clearInterval(timer)
          }
        }, 50)
      })
      await page.locator('[data-behind]', { hasText: '5m behind' }).waitFor()
      await page.getByRole('button', { name: 'Jump to now' }).click()
      await log.write(1, 0, 'now')
      await divider(page, 'what was written between').waitFor()
      await page.locator('[data-behind]').waitFor({ state: 'detached' })
      await until('now comes last', async () => (await page.locator('.logs .line').last().textContent()).trim() === 'now')
      assert.match(await page.evaluate(() => window.streams[1].url), /tailLines=/)
    }))

  test('T29: what comes does not scroll back to the left, nor down from where one reads', () =>
    on('/', { width: 500 }, async (page) => {
      const log = await ownLog(page)
      for (let i = 0; i < 80; i++) await page.waitForFunction((line) => (window.streams[0]?.write(line), window.streams.length), `${stamp(90_000 - i)} ${i} ${'wide '.repeat(60)}`)
      await lines(page).filter({ hasText: '79 wide' }).waitFor()
      const scroller = page.getByRole('log')
      await scroller.evaluate((el) => (el.scrollLeft = 200))
      await log.write(0, 0, 'news')
      assert.equal(await scroller.evaluate((el) => el.scrollLeft), 200)
      await scroller.evaluate((el) => (el.scrollTop = 0))
      await page.getByRole('button', { name: /^Newest/ }).waitFor()
      await page.evaluate((line) => window.streams[0].write(line), `${stamp(0)} more`)
      await state(page).filter({ hasText: '82 lines' }).waitFor()
      assert.equal(await scroller.evaluate((el) => el.scrollTop), 0)
    }))

  test('T31: m marks a place', () =>
    on('/', {}, async (page) => {
      const log = await ownLog(page)
      await log.write(0, 0, 'before')
      await page.getByRole('log').press('m')
      await divider(page, 'marked at').waitFor()
    }))
})

describe('terminals', () => {
  const rows = (page) => page.locator('.xterm-rows')
  const type = async (page, text) => {
    await page.locator('.xterm-helper-textarea').focus()
    await page.keyboard.type(text)
  }

  test('T33: a shell whose connection is lost keeps what it wrote, and goes on after Enter', () =>
    on('/', {}, async (page) => {
      const open = []
      await page.routeWebSocket(/\/exec\?/, (socket) => {
        socket.connectToServer()
        open.push(socket)
      })
      await page.goto(`${base}/ui/?dock=shell:${ns}:shop:web`)
      await rows(page).filter({ hasText: '#' }).waitFor()
      await type(page, 'echo before\r')
      await rows(page).filter({ hasText: /before[^]*before/ }).waitFor()
      await open[0].close({ code: 4000, reason: 'lost' })
      await page.getByRole('button', { name: 'Reconnect' }).waitFor()
      await type(page, 'x\r')
      await rows(page).filter({ hasText: /before[^]*────[^]*#/ }).waitFor()
      assert.equal(open.length, 2)
      await type(page, 'echo again\r')
      await rows(page).filter({ hasText: /again[\s\S]*again/ }).waitFor()
    }))

  test('what a container writes is attached to, by key', () =>
    on(`/k/pods?ns=${ns}&q=^shop$`, {}, async (page) => {
      await rowNamed(page, 'shop').waitFor()
      await grid(page).focus()
      await page.keyboard.press('a')
      await rows(page).filter({ hasText: 'level=' }).waitFor()
      assert.match(page.url(), /dock=attach:/)
    }))

  test('a debug container joins a running pod, and is attached to', () =>
    on(`/k/pods?o=pods/${ns}/shop`, {}, async (page) => {
      await act(page, 'debug')
      await page.getByRole('textbox', { name: 'Image' }).fill('registry.example/tools:1')
      await confirm(page)
      await rows(page).filter({ hasText: '#' }).waitFor()
      await type(page, 'hostname\r')
      await rows(page).filter({ hasText: /hostname\s*shop/ }).waitFor()
      const [debug] = (await kube(page, 'GET', `${core}/pods/shop`)).spec.ephemeralContainers
      assert.deepEqual([debug.image, debug.targetContainerName, debug.tty, debug.stdin], ['registry.example/tools:1', 'web', true, true])
    }))
})

test('files are copied to a container and back', () =>
  on(`/k/pods?o=pods/${ns}/shop`, {}, async (page) => {
    await act(page, 'files')
    const dialog = page.getByRole('dialog')
    await dialog.getByRole('button', { name: 'List' }).click()
    await dialog.getByRole('button', { name: 'tmp/', exact: true }).click()
    const files = [{ name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('hello\n') }, { name: 'b.bin', mimeType: 'application/octet-stream', buffer: Buffer.from(Array.from({ length: 100_000 }, (_, i) => i % 251)) }]
    await dialog.getByLabel(/^Upload to \/tmp/).setInputFiles(files)
    const download = async (name) => {
      const [d] = await Promise.all([page.waitForEvent('download'), dialog.getByRole('button', { name: `Download ${name}`, exact: true }).click()])
      return { name: d.suggestedFilename(), data: readFileSync(await d.path()) }
    }
    for (const f of files) assert.deepEqual(await download(f.name), { name: f.name, data: f.buffer })
    // A folder comes as an archive.
    await dialog.getByRole('button', { name: '../', exact: true }).click()
    const { name, data } = await download('tmp/')
    assert.equal(name, 'tmp.tar')
    assert.equal(data.subarray(0, 9).toString(), 'tmp/a.txt')
    // What does not work is said in the container's own words.
    await dialog.getByLabel('Path in the container').fill('/nowhere')
    await dialog.getByRole('button', { name: 'List' }).click()
    await dialog.getByRole('alert').filter({ hasText: 'no such file' }).waitFor()
  }))

test('ports are a command away, of pods and of Services', () =>
  on(`/k/pods?o=pods/${ns}/shop`, {}, async (page) => {
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write'])
    await act(page, 'forward')
    const dialog = page.getByRole('dialog')
    await dialog.getByText(`kubectl port-forward -n ${ns} pod/shop 8080:8080`, { exact: true }).waitFor()
    await dialog.getByLabel('Port on your machine').fill('9000')
    await dialog.getByText('http://localhost:9000/', { exact: true }).waitFor()
    await dialog.getByRole('button', { name: 'Copy: kubectl', exact: true }).click()
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), `kubectl port-forward -n ${ns} pod/shop 9000:8080`)
    await page.goto(`${base}/ui/k/services?o=services/shop/storefront`)
    await act(page, 'forward')
    await page.getByText('kubectl port-forward -n shop service/storefront 8080:80', { exact: true }).waitFor()
  }))
