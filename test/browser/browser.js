// What the tests share: a browser, pages that are signed in, and waiting.
import assert from 'node:assert/strict'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { chromium } from 'playwright-core'

/** Where the dashboard is, and a token to sign in with. */
export const base = (process.env.ORRERY_URL ?? 'http://localhost:8099').replace(/\/$/, '')
export const token = process.env.ORRERY_TOKEN ?? 'admin'

// The flags keep Chromium from calling home, which a closed network refuses.
const args = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync']

export function launch() {
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args, timeout: 90_000, env: { ...process.env, HOME: mkdtempSync(join(tmpdir(), 'orrery-browser-')) } })
}

/** How long anything may take: a machine may be slow, and busy with other things. */
export const patience = 60_000

/** visit opens a page of its own; what it does wrong is collected in page.problems. */
export async function visit(browser, path = '/', { width = 1280, height = 800, dark = false, language = 'en-US', signedIn = true, bearer = token } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: dark ? 'dark' : 'light', locale: language, reducedMotion: 'reduce', ignoreHTTPSErrors: true })
  context.setDefaultTimeout(patience)
  const page = await context.newPage()
  page.problems = []
  page.on('pageerror', (e) => page.problems.push(String(e)))
  page.on('console', (m) => m.type() === 'error' && page.problems.push(m.text()))
  if (signedIn) {
    const answer = await context.request.post(`${base}/ui/session`, { data: { token: bearer }, headers: { Origin: base } })
    if (!answer.ok()) throw new Error(`sign in: ${answer.status()} ${await answer.text()}`)
  }
  await page.goto(`${base}/ui${path}`)
  return page
}

/** using makes on(): a page for a test, which fails if the page complained about anything. */
export function using(browser) {
  return async function on(path, options, body) {
    const page = await visit(browser(), path, options)
    try {
      await body(page)
      assert.deepEqual(page.problems, [], 'the page complained')
    } finally {
      await page.context().close()
    }
  }
}

/** kube asks the API server as the page would. */
export async function kube(page, method, path, data, type = 'application/json') {
  const answer = await page.request.fetch(`${base}/ui/k8s${path}`, { method, data: data && JSON.stringify(data), headers: { Origin: base, 'Content-Type': type } })
  assert.ok(answer.ok(), `${method} ${path}: ${answer.status()} ${await answer.text()}`)
  return answer.json()
}

export const unique = (what) => `${what}-${Date.now().toString(36)}`
export const grid = (page) => page.getByRole('grid')
export const rowNamed = (page, name) => grid(page).getByRole('row').filter({ hasText: name })
/** tall makes room for all rows of a table, which draws only those in view. */
export const tall = (page) => page.setViewportSize({ width: 1280, height: 4000 })
/** live waits until the page's first load is over: what is counted from then on is counted once. */
export const live = (page) => page.locator('[data-revision]').waitFor({ state: 'attached' })
/** act presses one of an object's actions, confirm what its dialog ends with. */
export const act = (page, name) => page.locator(`[data-action="action.${name}"]:enabled`).click()
export const confirm = (page) => page.locator('[data-confirm]:enabled').click()
/** ignoring leaves out what the browser itself says of requests that failed, as a test has them do. */
export const ignoring = (page, codes) => (page.problems = page.problems.filter((p) => !codes.test(p)))

/** until asks again and again, until what it gets is right. */
export async function until(what, ask, timeout = patience, pause = 150) {
  for (const end = Date.now() + timeout; ; ) {
    const got = await ask()
    if (got) return got
    assert.ok(Date.now() < end, `not in time: ${what}`)
    await new Promise((done) => setTimeout(done, pause))
  }
}
