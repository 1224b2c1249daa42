// An API server that is killed and started again, in a cluster of this test's own.
import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'

const dir = mkdtempSync(join(tmpdir(), 'restart-'))
const port = await new Promise((found) => {
  const s = createServer().listen(0, '127.0.0.1', () => {
    const { port } = s.address()
    s.close(() => found(port))
  })
})
process.env.ORRERY_URL = `https://127.0.0.1:${port}`
process.env.KUBECONFIG = join(dir, 'kubeconfig/admin.conf')

const running = new Set()
function run(...args) {
  const program = spawn(process.env.ORRERY_BINARY, args)
  running.add(program)
  program.on('exit', () => running.delete(program))
  return program
}
const kill = (program, signal) => new Promise((gone) => program.on('exit', gone) && program.kill(signal))

let cluster
async function start() {
  cluster = run('up', '--simulate', '--nodes', '1', '--data-dir', dir, '--address', `127.0.0.1:${port}`)
  await new Promise((up, failed) => {
    let said = ''
    const hear = (text) => (said += text).includes('cluster is up') && up()
    cluster.stdout.on('data', hear)
    cluster.stderr.on('data', hear)
    cluster.on('exit', () => failed(new Error(said)))
  })
}

// The same cluster's state, kept by an etcd that lives on, and an API server over it.
const socket = (name) => `unix://${join(dir, name)}`
const pki = (name) => join(dir, 'pki', name)
const startEtcd = () => run('etcd', '--name=simulated', `--data-dir=${join(dir, 'etcd')}`, `--listen-client-urls=${socket('etcd.sock')}`, `--listen-peer-urls=${socket('etcd-peer.sock')}`, '--client-cert-auth=false', '--peer-client-cert-auth=false')
let server
function startServer() {
  server = run(
    'kube-apiserver', `--etcd-servers=${socket('etcd.sock')}`, '--bind-address=127.0.0.1', '--advertise-address=127.0.0.1', `--secure-port=${port}`,
    `--tls-cert-file=${pki('apiserver.crt')}`, `--tls-private-key-file=${pki('apiserver.key')}`, `--client-ca-file=${pki('ca.crt')}`,
    `--service-account-signing-key-file=${pki('sa.key')}`, `--service-account-key-file=${pki('sa.pub')}`,
  )
}

await start()
process.env.ORRERY_TOKEN = execFileSync(process.env.ORRERY_BINARY, ['dashboard', '--token'], { encoding: 'utf8' }).trim()
const { base, kube, launch, live, patience, rowNamed, until, visit } = await import('./browser.js')
const browser = await launch()
after(async () => {
  await browser.close()
  await Promise.all([...running].map((program) => kill(program, 'SIGTERM')))
})

// survives kills what serves the page, and starts it again.
async function survives(t, program, start) {
  const configMaps = '/api/v1/namespaces/default/configmaps'
  const create = (name) => kube(page, 'POST', configMaps, { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name } })
  const opened = Date.now()
  const page = await visit(browser, '/k/configmaps?ns=default')
  await live(page)
  // Two seconds, and five, of a machine on which the page is there in one.
  const second = Math.max(1000, Date.now() - opened)
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
  await kill(program(), 'SIGKILL')
  const lost = (await turned(false)) - killed
  assert.ok(lost < 2 * second, `the badge took ${lost} ms`)
  await rowNamed(page, 'stays').waitFor()

  const starting = start()
  await ready(page.request)
  const back = Date.now()
  await kube(page, 'DELETE', `${configMaps}/goes`)
  await create('new')
  const again = (await turned(true)) - back
  assert.ok(again < 5 * second, `live ${again} ms after it answers`)
  await rowNamed(page, 'new').waitFor()
  await rowNamed(page, 'goes').waitFor({ state: 'detached' })
  await rowNamed(page, 'stays').waitFor()
  assert.ok(await page.evaluate(() => window.untouched), 'the page was loaded again')
  await starting
  t.diagnostic(`badge after ${lost} ms, live ${again} ms after it answers`)
  for (const name of ['stays', 'new']) await kube(page, 'DELETE', `${configMaps}/${name}`)
  await page.context().close()
}
const ready = (request) => until('it answers', () => request.get(`${base}/readyz`).then((a) => a.ok(), () => false), 3 * patience, 50)

describe('T16: the page says so, is live again without a reload, and misses nothing', () => {
  test('when the whole control plane is killed and started again', { timeout: 20 * patience }, (t) => survives(t, () => cluster, start))

  test('when an API server is killed and started again beside a living etcd', { timeout: 20 * patience }, async (t) => {
    await kill(cluster, 'SIGTERM')
    startEtcd()
    startServer()
    const context = await browser.newContext({ ignoreHTTPSErrors: true })
    await ready(context.request)
    await context.close()
    await survives(t, () => server, startServer)
  })
})
