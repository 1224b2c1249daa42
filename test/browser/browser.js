// What the tests share: a browser, pages that are signed in, and waiting.
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

/** visit opens a page of its own; what it does wrong is collected in page.problems. */
export async function visit(browser, path = '/', { width = 1280, height = 800, dark = false, language = 'en-US', signedIn = true } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: dark ? 'dark' : 'light', locale: language, reducedMotion: 'reduce', ignoreHTTPSErrors: true })
  const page = await context.newPage()
  page.problems = []
  page.on('pageerror', (e) => page.problems.push(String(e)))
  page.on('console', (m) => m.type() === 'error' && page.problems.push(m.text()))
  if (signedIn) {
    const answer = await context.request.post(`${base}/ui/session`, { data: { token }, headers: { Origin: base } })
    if (!answer.ok()) throw new Error(`sign in: ${answer.status()} ${await answer.text()}`)
  }
  await page.goto(`${base}/ui${path}`)
  return page
}
