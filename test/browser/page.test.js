// What can be done with objects: see, change, delete, follow. As dashboard.test.js,
// but it needs the workloads of this folder and controllers that run.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { after, before, describe, test } from 'node:test'
import { act, base, confirm, grid, ignoring, kube, launch, live, patience, rowNamed, tall, unique, until, using, visit } from './browser.js'

let browser
after(() => browser?.close())
const on = using(() => browser)

const ns = unique('depth')
const core = `/api/v1/namespaces/${ns}`
const apps = `/apis/apps/v1/namespaces/${ns}`
const merge = 'application/merge-patch+json'
const configMap = (name, data = { a: '1', b: '1' }) => ({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name }, data })
const deployment = (name, replicas = 2) => ({
  apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name },
  spec: { replicas, selector: { matchLabels: { app: name } }, template: { metadata: { labels: { app: name }, annotations: { 'simulate.orrery.dev/log-rate': '5' } }, spec: { containers: [{ name: 'web', image: 'registry.example/web:1' }, { name: 'side', image: 'registry.example/side:1' }] } } },
})
const available = (page, name, n) => until(`${name} has ${n}`, async () => (await kube(page, 'GET', `${apps}/deployments/${name}`)).status?.availableReplicas === n)
const running = (page) => until('a pod runs', async () => (await kube(page, 'GET', `${core}/pods?labelSelector=app%3Dweb`)).items.find((p) => p.status.phase === 'Running' && !p.metadata.deletionTimestamp)?.metadata.name)
/** spare is a node without the pod that other tests look at, too, and nobody makes anew. */
async function spare(page) {
  const { nodeName } = (await kube(page, 'GET', '/api/v1/namespaces/default/pods/typo')).spec
  return (await kube(page, 'GET', '/api/v1/nodes')).items.map((n) => n.metadata.name).findLast((n) => n !== nodeName)
}
const edit = (page, find, change) => page.evaluate(([find, change]) => {
  const content = document.querySelector('.cm-content')
  const view = content.cmView?.view ?? content.cmTile?.view
  const text = view.state.doc.toString()
  const from = text.indexOf(find)
  if (from < 0) throw new Error(`${find} is not in ${text}`)
  view.dispatch({ changes: { from, to: from + find.length, insert: change } })
}, [find, change])

before(async () => {
  browser = await launch()
  const page = await visit(browser)
  await kube(page, 'POST', '/api/v1/namespaces', { apiVersion: 'v1', kind: 'Namespace', metadata: { name: ns } })
  await kube(page, 'POST', `${apps}/deployments`, deployment('web'))
  await available(page, 'web', 2)
  await page.context().close()
})

describe('editing', () => {
  const open = (page, name) => page.goto(`${base}/ui/k/configmaps?o=configmaps/${ns}/${name}&t=yaml&edit=1`).then(() => page.locator('.cm-content[contenteditable=true]').waitFor())

  test('T43: a review shows what the server would make of it', () =>
    on('/', {}, async (page) => {
      const name = unique('review')
      await kube(page, 'POST', `${core}/configmaps`, configMap(name))
      await open(page, name)
      await edit(page, '\n  a: "1"', '\n  a: "2"')
      await page.locator('[data-review]').click()
      await page.locator('[data-diff] .minus', { hasText: 'a: "1"' }).waitFor()
      await page.locator('[data-diff] .plus', { hasText: 'a: "2"' }).waitFor()
      assert.equal((await kube(page, 'GET', `${core}/configmaps/${name}`)).data.a, '1', 'a review writes')
      await page.locator('[data-save]').click()
      await until('saved', async () => (await kube(page, 'GET', `${core}/configmaps/${name}`)).data.a === '2')
    }))

  test('T41: a busy object is no conflict: only what the user changed is written', () =>
    on('/', {}, async (page) => {
      const name = unique('busy')
      await kube(page, 'POST', `${core}/configmaps`, configMap(name))
      await open(page, name)
      await edit(page, '\n  a: "1"', '\n  a: "2"')
      await kube(page, 'PATCH', `${core}/configmaps/${name}`, { data: { b: '2', c: '3' } }, merge)
      await page.getByText('It has changed since').waitFor()
      await page.locator('[data-save]').click()
      await until('both changes are there', async () => JSON.stringify((await kube(page, 'GET', `${core}/configmaps/${name}`)).data) === '{"a":"2","b":"2","c":"3"}')
    }))

  test('T41: a true conflict is shown three ways, and the user chooses', () =>
    on('/', {}, async (page) => {
      const name = unique('conflict')
      await kube(page, 'POST', `${core}/configmaps`, configMap(name))
      await open(page, name)
      await edit(page, '\n  a: "1"', '\n  a: "mine"')
      await kube(page, 'PATCH', `${core}/configmaps/${name}`, { data: { a: 'theirs' } }, merge)
      await page.getByText('It has changed since').waitFor()
      await page.locator('[data-save]').click()
      const conflict = page.locator('[data-conflicts] fieldset', { hasText: 'data.a' })
      for (const text of ['mine', 'theirs']) await conflict.locator('pre', { hasText: text }).waitFor()
      assert.equal((await kube(page, 'GET', `${core}/configmaps/${name}`)).data.a, 'theirs')
      await conflict.getByRole('radio').first().check()
      await page.locator('[data-save]').click()
      await until('mine won', async () => (await kube(page, 'GET', `${core}/configmaps/${name}`)).data.a === 'mine')
    }))

  test('what is refused is said at its field, too, until it is mended', () =>
    on(`/k/deployments.apps?o=deployments.apps/${ns}/web&t=yaml&edit=1`, {}, async (page) => {
      await page.locator('.cm-content[contenteditable=true]').waitFor()
      const under = (line) => page.locator('.cm-line', { hasText: line }).locator('xpath=following-sibling::*[1]')
      await edit(page, '\n  replicas: 2', '\n  replicas: -1')
      await page.locator('[data-save]').click()
      await page.getByRole('alert').filter({ hasText: 'spec.replicas' }).waitFor()
      await under('replicas: -1').and(page.locator('.refused', { hasText: 'greater than or equal to 0' })).waitFor()
      await edit(page, '\n  replicas: -1', '\n  replicas: 2\n  replikas: 2')
      await page.locator('[data-review]').click()
      await under('replikas: 2').and(page.locator('.refused', { hasText: 'spec.replikas' })).waitFor()
      await edit(page, '\n  replikas: 2', '')
      await page.locator('[data-save]').click()
      await page.locator('.refused').waitFor({ state: 'detached' })
      await page.locator('.cm-content[contenteditable=false]').waitFor()
      ignoring(page, /400|422/)
    }))

  test('T44: the schema helps: unknown fields are marked, known ones offered', () =>
    on(`/k/deployments.apps?o=deployments.apps/${ns}/web&t=yaml&edit=1`, {}, async (page) => {
      await page.locator('.cm-content[contenteditable=true]').waitFor()
      await page.locator('.cm-gutter-lint').waitFor()
      assert.equal(await page.locator('.cm-lint-marker-error').count(), 0)
      await edit(page, '\n  replicas: 2', '\n  replicas: two\n  replikas: 2')
      await until('two marks', async () => (await page.locator('.cm-lint-marker-error').count()) === 2)
      await edit(page, '\n  replikas: 2', '\n  ')
      await page.locator('.cm-line', { hasText: 'replicas: two' }).click()
      await page.keyboard.press('ArrowDown')
      await page.keyboard.press('End')
      await page.keyboard.type('minRe')
      await page.locator('.cm-tooltip-autocomplete', { hasText: 'minReadySeconds' }).waitFor()
    }))
})

describe('actions', () => {
  const open = (page, ref, tab = '') => page.goto(`${base}/ui/k/${ref.split('/')[0]}?ns=${ns}&o=${ref}${tab && `&t=${tab}`}`)

  test('set image, history, diff and undo', () =>
    on('/', {}, async (page) => {
      const image = async () => (await kube(page, 'GET', `${apps}/deployments/web`)).spec.template.spec.containers[0].image
      await open(page, `deployments.apps/${ns}/web`)
      await act(page, 'image')
      await page.getByRole('textbox', { name: 'web' }).fill('registry.example/web:2')
      await confirm(page)
      await until('a new image', async () => (await image()) === 'registry.example/web:2')
      await until('a second revision', async () => (await kube(page, 'GET', `${apps}/replicasets`)).items.length === 2)
      await act(page, 'history')
      await page.getByRole('option', { name: /web:1,/ }).click()
      await page.locator('[data-diff] .plus', { hasText: 'registry.example/web:1' }).waitFor()
      await confirm(page)
      await until('the old image', async () => (await image()) === 'registry.example/web:1')
    }))

  test('scale and restart', () =>
    on('/', {}, async (page) => {
      // By the key that k9s has for it.
      await page.goto(`${base}/ui/k/deployments.apps?ns=${ns}&q=^web$`)
      await rowNamed(page, 'web').waitFor()
      await grid(page).focus()
      await page.keyboard.press('s')
      await page.getByLabel('Replicas').fill('3')
      await page.getByRole('dialog').getByRole('button', { name: 'Scale' }).click()
      await available(page, 'web', 3)
      await act(page, 'restart')
      await until('a restart', async () => (await kube(page, 'GET', `${apps}/deployments/web`)).spec.template.metadata.annotations['kubectl.kubernetes.io/restartedAt'])
    }))

  test('a CronJob is suspended, resumed and run now', () =>
    on('/', {}, async (page) => {
      const batch = `/apis/batch/v1/namespaces/${ns}`
      await kube(page, 'POST', `${batch}/cronjobs`, { apiVersion: 'batch/v1', kind: 'CronJob', metadata: { name: 'nightly' }, spec: { schedule: '0 0 29 2 *', jobTemplate: { spec: { template: { spec: { restartPolicy: 'Never', containers: [{ name: 'c', image: 'registry.example/c:1' }] } } } } } })
      await open(page, `cronjobs.batch/${ns}/nightly`)
      await act(page, 'suspend')
      await act(page, 'resume')
      await act(page, 'trigger')
      await page.locator(`[data-object^="jobs.batch/${ns}/nightly-"]`).waitFor()
      const [job] = (await kube(page, 'GET', `${batch}/jobs`)).items
      assert.equal(job.metadata.ownerReferences[0].name, 'nightly')
      assert.equal(job.metadata.annotations['cronjob.kubernetes.io/instantiate'], 'manual')
    }))

  test('a node is drained, with its progress', () =>
    on('/k/nodes', {}, async (page) => {
      const node = await spare(page)
      await page.goto(`${base}/ui/k/nodes?o=nodes//${node}`)
      await act(page, 'drain')
      const accept = page.getByLabel('I accept that')
      await page.getByText(/pods are evicted/).waitFor()
      if (await accept.count()) await accept.check()
      await confirm(page)
      await page.locator('[data-progress]', { hasText: 'is drained' }).waitFor()
      const left = (await kube(page, 'GET', `/api/v1/pods?fieldSelector=spec.nodeName%3D${node}`)).items.filter((p) => p.metadata.ownerReferences?.[0]?.kind !== 'DaemonSet')
      assert.deepEqual(left.map((p) => p.metadata.name), [])
      await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click()
      await act(page, 'uncordon')
      await until('it takes pods again', async () => !(await kube(page, 'GET', `/api/v1/nodes/${node}`)).spec.unschedulable)
    }))

  test('a Secret is decoded when asked for, and says who uses it', () =>
    on('/', {}, async (page) => {
      await kube(page, 'POST', `${core}/secrets`, { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'key' }, stringData: { word: 'open sesame' } })
      await kube(page, 'POST', `${core}/pods`, { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'reader' }, spec: { containers: [{ name: 'c', image: 'registry.example/c:1', env: [{ name: 'W', valueFrom: { secretKeyRef: { name: 'key', key: 'word' } } }] }] } })
      await open(page, `secrets/${ns}/key`)
      await page.locator('[data-decode=word]').waitFor()
      assert.equal(await page.getByText('open sesame').count(), 0)
      await page.locator('[data-decode=word]').click()
      await page.getByText('open sesame').waitFor()
      await open(page, `secrets/${ns}/key`, 'related')
      await page.getByRole('link', { name: 'Pod/reader' }).waitFor()
    }))
})

describe('what a dialog is for can be done again when it failed', () => {
  const name = unique('retry')
  const path = `${apps}/deployments/${name}`
  const get = (page) => kube(page, 'GET', path)
  before(async () => {
    const page = await visit(browser)
    await kube(page, 'POST', `${apps}/deployments`, deployment(name, 1))
    await available(page, name, 1)
    await kube(page, 'PATCH', path, { spec: { template: { metadata: { labels: { round: '2' } } } } }, merge)
    await until('a second revision', async () => (await kube(page, 'GET', `${apps}/replicasets`)).items.filter((r) => r.metadata.name.startsWith(name)).length === 2)
    await page.context().close()
  })

  for (const [action, method, to, prepare, done] of [
    ['scale', 'PATCH', 'scale', (page) => page.getByLabel('Replicas').fill('2'), async (page) => (await get(page)).spec.replicas === 2],
    ['image', 'PATCH', name, (page) => page.getByRole('textbox', { name: 'web' }).fill('registry.example/web:3'), async (page) => (await get(page)).spec.template.spec.containers[0].image.endsWith(':3')],
    ['history', 'PATCH', name, (page) => page.getByRole('option').last().click(), async (page) => !(await get(page)).spec.template.metadata.labels.round],
    ['delete', 'DELETE', name, (page) => page.getByLabel('What it controls').selectOption('Foreground'), async (page) => !(await kube(page, 'GET', `${apps}/deployments`)).items.some((d) => d.metadata.name === name)],
  ]) {
    test(action, () =>
      on(`/k/deployments.apps?ns=${ns}&o=deployments.apps/${ns}/${name}`, {}, async (page) => {
        let times = 1
        await page.route(new RegExp(`/${to}\\?`), (r) => (r.request().method() === method && times-- > 0 ? r.fulfill({ status: 500, json: { kind: 'Status', status: 'Failure', code: 500, message: 'out of order' } }) : r.fallback()))
        await act(page, action)
        await prepare(page)
        await confirm(page)
        await page.getByRole('dialog').getByRole('alert').filter({ hasText: 'out of order' }).waitFor()
        await confirm(page)
        await page.getByRole('dialog').waitFor({ state: 'detached' })
        await until('it is done', () => done(page))
        ignoring(page, /500/)
      }))
  }

  test('many: what was done already is not done again', () =>
    on('/', {}, async (page) => {
      const stem = unique('some')
      for (const n of ['a', 'b']) await kube(page, 'POST', `${core}/configmaps`, configMap(`${stem}-${n}`))
      let times = 1
      const asked = []
      await page.route(new RegExp(`/${stem}-`), (r) => (asked.push(r.request().url().match(/-(a|b)\?/)[1]), asked.at(-1) === 'b' && times-- > 0 ? r.fulfill({ status: 500, body: 'out of order' }) : r.fallback()))
      await page.goto(`${base}/ui/k/configmaps?ns=${ns}&q=${stem}`)
      await rowNamed(page, `${stem}-b`).waitFor()
      await grid(page).focus()
      await page.keyboard.press('*')
      await page.locator('[data-bulk=delete]:enabled').click()
      await confirm(page)
      await page.getByRole('dialog').getByRole('alert').filter({ hasText: `${stem}-b: out of order` }).waitFor()
      await confirm(page)
      await page.getByRole('dialog').waitFor({ state: 'detached' })
      assert.deepEqual(asked.sort(), ['a', 'b', 'b'])
      await rowNamed(page, stem).first().waitFor({ state: 'detached' })
      ignoring(page, /500/)
    }))

  test('drain', () =>
    on('/', {}, async (page) => {
      const failing = { cordon: 1, evict: 1 }
      const once = (what) => (r) => (r.request().method() !== 'GET' && failing[what]-- > 0 ? r.fulfill({ status: 500, body: `no ${what}` }) : r.fallback())
      const node = await spare(page)
      await page.route(new RegExp(`/nodes/${node}\\?`), once('cordon'))
      await page.route(/\/eviction$/, once('evict'))
      await page.goto(`${base}/ui/k/nodes?o=nodes//${node}`)
      await act(page, 'drain')
      await page.getByText(/pods are evicted/).waitFor()
      const accept = page.getByLabel('I accept that')
      if (await accept.count()) await accept.check()
      for (const what of ['cordon', 'evict']) {
        await confirm(page)
        await page.getByRole('dialog').getByRole('alert').filter({ hasText: `no ${what}` }).waitFor()
      }
      await confirm(page)
      await page.locator('[data-progress]', { hasText: 'is drained' }).waitFor()
      await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click()
      await act(page, 'uncordon')
      await until('it takes pods again', async () => !(await kube(page, 'GET', `/api/v1/nodes/${node}`)).spec.unschedulable)
      ignoring(page, /500/)
    }))
})

describe('deleting', () => {
  test('T40: shows what goes with it', () =>
    on('/', {}, async (page) => {
      await kube(page, 'POST', `${apps}/deployments`, deployment('doomed'))
      await kube(page, 'POST', `${core}/services`, { apiVersion: 'v1', kind: 'Service', metadata: { name: 'doomed' }, spec: { selector: { app: 'doomed' }, ports: [{ port: 80 }] } })
      await kube(page, 'POST', `/apis/policy/v1/namespaces/${ns}/poddisruptionbudgets`, { apiVersion: 'policy/v1', kind: 'PodDisruptionBudget', metadata: { name: 'keep' }, spec: { minAvailable: 2, selector: { matchLabels: { app: 'doomed' } } } })
      await available(page, 'doomed', 2)
      await page.goto(`${base}/ui/k/deployments.apps?o=deployments.apps/${ns}/doomed`)
      await act(page, 'delete')
      const blast = page.locator('[data-blast]')
      for (const text of [/^1 ReplicaSet/, /^2 Pod/, /keep allows 0 disruptions now; this is 2/, /Service doomed loses all/]) await blast.locator('p', { hasText: text }).waitFor()
      await page.getByLabel('What it controls').selectOption('Orphan')
      await blast.getByText('Nothing else goes with it').waitFor()
      await page.getByLabel('What it controls').selectOption('Background')
      await confirm(page)
      await until('all gone', async () => !(await kube(page, 'GET', `${core}/pods?labelSelector=app%3Ddoomed`)).items.length)
    }))

  const definition = (plural) => ({
    apiVersion: 'apiextensions.k8s.io/v1', kind: 'CustomResourceDefinition', metadata: { name: `${plural}.depth.example.dev` },
    spec: { group: 'depth.example.dev', scope: 'Namespaced', names: { plural, singular: plural.slice(0, -1), kind: plural[0].toUpperCase() + plural.slice(1, -1) }, versions: [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema: { type: 'object', properties: { spec: { type: 'object', properties: { size: { type: 'integer' } } } } } } }] },
  })
  const definitions = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
  const custom = (plural) => `/apis/depth.example.dev/v1/namespaces/${ns}/${plural}`
  async function define(page, plural) {
    await kube(page, 'POST', definitions, definition(plural))
    await until(`${plural} are served`, async () => (await page.request.get(`${base}/ui/k8s${custom(plural)}`)).ok())
    await kube(page, 'POST', custom(plural), { apiVersion: 'depth.example.dev/v1', kind: definition(plural).spec.names.kind, metadata: { name: 'one' }, spec: { size: 1 } })
  }

  test('T40: so do nodes, definitions and volumes', () =>
    on('/', {}, async (page) => {
      await define(page, 'gauges')
      await kube(page, 'POST', '/api/v1/persistentvolumes', { apiVersion: 'v1', kind: 'PersistentVolume', metadata: { name: 'disk' }, spec: { capacity: { storage: '1Gi' }, accessModes: ['ReadWriteOnce'], hostPath: { path: '/tmp/disk' } } })
      for (const [ref, blast] of [['nodes//node-1', /pods are on it/], ['customresourcedefinitions.apiextensions.k8s.io//gauges.depth.example.dev', /^1 Gauge$/], ['persistentvolumes//disk']]) {
        await page.goto(`${base}/ui/k/${ref.split('/')[0]}?o=${ref}`)
        await act(page, 'delete')
        if (blast) await page.locator('[data-blast] p', { hasText: blast }).waitFor()
        assert.ok(await page.locator('[data-confirm]').isDisabled(), ref)
        await page.locator('[data-typed]').fill(ref.split('/')[2])
        assert.ok(await page.locator('[data-confirm]').isEnabled(), ref)
      }
    }))

  test('T44: an object of a kind of one’s own is edited, with its schema', () =>
    on('/', {}, async (page) => {
      await define(page, 'dials')
      await page.goto(`${base}/ui/k/dials.depth.example.dev?o=dials.depth.example.dev/${ns}/one&t=yaml&edit=1`)
      await page.locator('.cm-content[contenteditable=true]').waitFor()
      await page.locator('.cm-gutter-lint').waitFor()
      await edit(page, 'size: 1', 'size: big')
      await page.locator('.cm-lint-marker-error').waitFor()
      await edit(page, 'size: big', 'size: 2')
      await page.locator('[data-save]').click()
      await until('saved', async () => (await kube(page, 'GET', `${custom('dials')}/one`)).spec.size === 2)
    }))

  test('T17: objects go from the screen with their definition', () =>
    on('/', {}, async (page) => {
      await define(page, 'relics')
      await page.goto(`${base}/ui/k/relics.depth.example.dev?ns=${ns}`)
      await rowNamed(page, 'one').waitFor()
      await kube(page, 'DELETE', `${definitions}/relics.depth.example.dev`)
      await rowNamed(page, 'one').waitFor({ state: 'detached' })
      ignoring(page, /404/)
    }))

  test('T40: a namespace asks for its name, and counts what is in it', () =>
    on('/', {}, async (page) => {
      const name = unique('grave')
      await kube(page, 'POST', '/api/v1/namespaces', { apiVersion: 'v1', kind: 'Namespace', metadata: { name } })
      await kube(page, 'POST', `/api/v1/namespaces/${name}/configmaps`, configMap('one'))
      await page.goto(`${base}/ui/k/namespaces?o=namespaces//${name}`)
      await act(page, 'delete')
      await page.locator('[data-blast] p', { hasText: /^[12] ConfigMap/ }).waitFor()
      assert.ok(await page.locator('[data-confirm]').isDisabled())
      await page.locator('[data-typed]').fill(name.slice(0, -1))
      assert.ok(await page.locator('[data-confirm]').isDisabled())
      await page.locator('[data-typed]').fill(name)
      await confirm(page)
      await until('it goes', async () => (await page.request.get(`${base}/ui/k8s/api/v1/namespaces/${name}`)).status() === 404)
    }))

  test('T39: bulk takes exactly the marked rows that the filter shows', () =>
    on('/', {}, async (page) => {
      const stem = unique('bulk')
      for (const n of ['a1', 'a2', 'b1']) await kube(page, 'POST', `${core}/configmaps`, configMap(`${stem}-${n}`))
      await page.goto(`${base}/ui/k/configmaps?ns=${ns}&q=${stem}`)
      await rowNamed(page, `${stem}-b1`).waitFor()
      await grid(page).focus()
      await page.keyboard.press('*')
      await page.getByText('3 marked').waitFor()
      await page.locator('[data-filter]').fill(`${stem}-a`)
      await page.getByText('2 marked').waitFor()
      await page.locator('[data-bulk=delete]:enabled').click()
      await page.locator('[data-targets]').waitFor()
      assert.deepEqual((await page.locator('[data-targets] li').allTextContents()).map((s) => s.split('/')[1]), [`${stem}-a1`, `${stem}-a2`])
      await confirm(page)
      await until('two are gone', async () => (await kube(page, 'GET', `${core}/configmaps`)).items.filter((c) => c.metadata.name.startsWith(stem)).map((c) => c.metadata.name).join() === `${stem}-b1`)
    }))
})

describe('many at once', () => {
  test('T45: workloads are restarted, and nodes cordoned and uncordoned', () =>
    on('/', {}, async (page) => {
      const stem = unique('many')
      for (const n of ['a', 'b']) await kube(page, 'POST', `${apps}/deployments`, deployment(`${stem}-${n}`, 1))
      const bulk = async (what, kind, q, n) => {
        await page.goto(`${base}/ui/k/${kind}?q=${q}`)
        await rowNamed(page, /./).nth(n).waitFor()
        await grid(page).focus()
        await page.keyboard.press('*')
        await page.locator(`[data-bulk=${what}]:enabled`).click()
        await until(`${n} to ${what}`, async () => (await page.getByRole('dialog').locator('li').count()) === n)
        await confirm(page)
      }
      await bulk('restart', 'deployments.apps', stem, 2)
      await until('both restart', async () => (await kube(page, 'GET', `${apps}/deployments`)).items.filter((d) => d.metadata.name.startsWith(stem) && d.spec.template.metadata.annotations['kubectl.kubernetes.io/restartedAt']).length === 2)
      const cordoned = async () => (await kube(page, 'GET', '/api/v1/nodes')).items.filter((n) => n.spec.unschedulable).map((n) => n.metadata.name).join()
      await bulk('cordon', 'nodes', 'node-[12]', 2)
      await until('two are cordoned', async () => (await cordoned()) === 'node-1,node-2')
      await bulk('uncordon', 'nodes', 'node-[12]', 2)
      await until('none is', async () => (await cordoned()) === '')
    }))

  test('T47: actions are reached by name, too', () =>
    on(`/k/deployments.apps?o=deployments.apps/${ns}/web`, {}, async (page) => {
      await page.locator('[data-action="action.scale"]:enabled').waitFor()
      await page.keyboard.press(':')
      await page.keyboard.type('scale')
      await page.keyboard.press('Enter')
      await page.getByLabel('Replicas').waitFor()
    }))

  test('T14: nobody holds a page’s requests back', () =>
    on('/', {}, async (page) => {
      const ask = async (n) => {
        const start = Date.now()
        await Promise.all(Array.from({ length: n }, () => kube(page, 'GET', `${core}/pods?limit=1`)))
        return Date.now() - start
      }
      // client-go lets ten pass at once, and then five a second: as if for those that
      // follow the machine were a hundred times slower.
      const few = await ask(10)
      const many = await ask(300)
      assert.ok(many < Math.max(30_000, 100 * few), `300 requests took ${many} ms, 10 before ${few} ms`)
    }))
})

describe('words', () => {
  test('T19: a pod’s status is kubectl’s word', () =>
    on('/k/pods?cols=Ready|Status', {}, async (page) => {
      await tall(page)
      await rowNamed(page, 'typo').waitFor()
      const kubectl = () => execFileSync(process.env.ORRERY_BINARY, ['kubectl', 'get', 'pods', '-A', '--no-headers'], { encoding: 'utf8' }).trim().split('\n').map((l) => l.split(/\s+/).slice(0, 4))
      const ours = () => grid(page).locator('.body .row').evaluateAll((rows) => rows.map((r) => [...r.querySelectorAll('[role=gridcell]')].map((c) => c.textContent.trim()).slice(1)).map(([name, space, ready, status]) => [space, name, ready, status]))
      const text = (list) => list.map((x) => x.join(' ')).sort().join('\n')
      // What goes on meanwhile may be seen by one only.
      await until('the same words', async () => {
        const before = text(await ours())
        const theirs = text(kubectl())
        return before === theirs || text(await ours()) === theirs
      })
      assert.ok(new Set((await ours()).map((x) => x[3])).size > 3)
    }))

  test('T20: where one of two containers failed, whichever came first, a badge says so', () =>
    on('/', {}, async (page) => {
      const ended = (name, exitCode) => ({ name, ready: false, restartCount: 0, image: 'registry.example/half:1', imageID: 'half', state: { terminated: { exitCode, reason: exitCode ? 'Error' : 'Completed' } } })
      for (const [name, codes] of [['bad-first', [1, 0]], ['bad-last', [0, 1]], ['all-good', [0, 0]]]) {
        await kube(page, 'POST', `${core}/pods`, { apiVersion: 'v1', kind: 'Pod', metadata: { name }, spec: { schedulerName: 'nobody', restartPolicy: 'Never', containers: ['a', 'b'].map((name) => ({ name, image: 'registry.example/half:1' })) } })
        await kube(page, 'PATCH', `${core}/pods/${name}/status`, { status: { phase: codes.some(Boolean) ? 'Failed' : 'Succeeded', containerStatuses: codes.map((code, i) => ended('ab'[i], code)) } }, merge)
      }
      await page.goto(`${base}/ui/k/pods?ns=${ns}&q=-good|bad-`)
      for (const [name, word, badges] of [['bad-first', 'Error', 1], ['bad-last', 'Completed', 1], ['all-good', 'Completed', 0]]) {
        await rowNamed(page, name).getByText(word, { exact: true }).waitFor()
        assert.equal(await rowNamed(page, name).getByText('1 of 2 containers failed').count(), badges, name)
        await kube(page, 'DELETE', `${core}/pods/${name}`)
      }
    }))

  test('T25: a slice of a chart leads to the list of what it counts', () =>
    on('/?ns=default', {}, async (page) => {
      const slice = page.locator('.bars li', { hasText: 'Pods' }).locator('.bar .b-error')
      await slice.waitFor()
      await slice.click()
      await page.waitForURL(/\/k\/pods\?.*q=state:error/)
      // Pods that crash again and again are not always counted as errors: the table's own count is the one of this moment.
      const failed = page.getByRole('button', { name: 'error', pressed: true })
      await until('as many rows', async () => (await page.locator('[data-count]').textContent()).startsWith(`${parseInt(await failed.textContent())} of `))
    }))
})

describe('tables', () => {
  test('T5, T10: one websocket, whatever is shown, and of lists only rows travel', () =>
    on('/', {}, async (page) => {
      await live(page) // what the first load opens is not counted
      let sockets = 0
      const wrong = []
      page.on('websocket', (s) => {
        sockets++
        s.on('framereceived', ({ payload }) => /managedFields|last-applied-configuration|greeting-of-a-secret/.test(payload) && wrong.push(String(payload).slice(0, 200)))
      })
      await kube(page, 'POST', `${core}/configmaps`, configMap(unique('data'), { a: 'greeting-of-a-secret' }))
      await page.reload()
      for (const name of ['Architecture map', 'Pods', 'ConfigMaps', 'Nodes', 'Overview']) {
        await page.getByRole('link', { name, exact: true }).first().click()
        if (name.endsWith('s')) await rowNamed(page, /./).nth(1).waitFor()
      }
      assert.deepEqual([sockets, wrong], [1, []])
    }))

  test('T46: several namespaces at once, by picker and address', () =>
    on(`/k/pods?ns=shop,${ns}`, {}, async (page) => {
      await tall(page)
      for (const name of ['store-0', 'web-']) await rowNamed(page, name).first().waitFor()
      assert.equal(await rowNamed(page, 'log-shipper').count(), 0)
      await page.locator('.picker button').first().click()
      await page.getByLabel('kube-system', { exact: true }).check()
      await rowNamed(page, 'log-shipper').first().waitFor()
      await page.waitForURL(/ns=.*kube-system/)
    }))

  test('columns are chosen, and any field can be one', () =>
    on(`/k/pods?ns=${ns}`, {}, async (page) => {
      await rowNamed(page, 'web-').first().waitFor()
      await page.getByRole('button', { name: 'Columns', exact: true }).click()
      const picker = page.getByRole('dialog', { name: 'Columns' })
      await picker.getByLabel('Restarts').uncheck()
      await picker.getByPlaceholder('Title').fill('Image')
      await picker.getByLabel('JSONPath of an own column').fill('.spec.containers[*].image')
      await picker.getByRole('button', { name: 'Add' }).click()
      await grid(page).getByRole('gridcell', { name: 'registry.example/web:1,registry.example/side:1' }).first().waitFor()
      assert.equal(await grid(page).getByRole('columnheader', { name: 'Restarts' }).count(), 0)
      await page.reload()
      await grid(page).getByRole('columnheader', { name: 'Image' }).waitFor()
    }))

  test('fields are selected by the server', () =>
    on(`/k/pods?ns=${ns}&q=-F status.phase=Failed`, {}, async (page) => {
      await page.getByText('There are none').waitFor()
      await page.locator('[data-filter]').fill('-F status.phase=Running web')
      await rowNamed(page, 'web-').first().waitFor()
    }))

  test('T22, T23, T25: usage stands beside requests and limits under headers that name its base, and n/a comes last', () =>
    on('/k/pods', {}, async (page) => {
      await tall(page)
      await page.getByRole('button', { name: 'Usage' }).click()
      const header = grid(page).getByRole('columnheader', { name: '%CPU/R' })
      await header.getByRole('button').click()
      const cells = () => grid(page).evaluate((g) => {
        const at = [...g.querySelectorAll('[role=columnheader]')].findIndex((h) => h.textContent.startsWith('%CPU/R'))
        return [...g.querySelectorAll('.body .row')].sort((a, b) => a.ariaRowIndex - b.ariaRowIndex).map((r) => r.querySelectorAll('[role=gridcell]')[at]?.textContent.trim() ?? '')
      })
      for (const down of [false, true]) {
        if (down) await header.getByRole('button').click()
        await until('numbers in order, n/a last', async () => {
          const list = await cells()
          const numbers = list.filter((c) => c !== 'n/a').map(parseFloat)
          return numbers.length > 3 && list.indexOf('n/a') === numbers.length && numbers.every((n, i) => i === 0 || (down ? n <= numbers[i - 1] : n >= numbers[i - 1]))
        })
      }
    }))
})

describe('logs', () => {
  const state = (page) => page.locator('.logs [role=status]')
  test('of all pods and containers of a workload, merged by time', () =>
    on(`/?dock=logs:${ns}:deployments.apps/web:*`, {}, async (page) => {
      await until('six logs or more', async () => parseInt(await state(page).textContent()) >= 6)
      await page.locator('.logs .label').first().waitFor()
      await page.getByRole('button', { name: 'Timestamps' }).click()
      await page.locator('.logs .time').first().waitFor()
      const times = await page.locator('.logs .line:not(.divider) .time').allTextContents()
      assert.deepEqual(times, [...times].sort())
    }))

  test('T29: search, wrapping and timestamps don’t undo each other', () =>
    on(`/?dock=logs:shop:deployments.apps/storefront:`, {}, async (page) => {
      await page.locator('.logs .line').first().waitFor()
      await page.getByPlaceholder('Search (regular expression)').fill('request')
      for (const name of ['Wrap', 'Timestamps', 'Wrap']) {
        await page.getByRole('button', { name }).click()
        assert.equal(await page.getByPlaceholder('Search (regular expression)').inputValue(), 'request')
        await until('what is searched for, and nothing else', async () => {
          const texts = await page.locator('.logs .line:not(.divider)').allTextContents()
          return texts.length > 0 && texts.every((x) => x.includes('request'))
        })
      }
      await page.getByRole('button', { name: 'Timestamps', pressed: true }).waitFor()
      await page.getByLabel('Since').selectOption('60')
      await state(page).filter({ hasText: 'following' }).waitFor()
    }))

  test('T27: a pod that replaces another is followed, under a divider', () =>
    on(`/?dock=logs:${ns}:deployments.apps/web:web`, {}, async (page) => {
      const pod = await running(page)
      await page.locator('.logs .label').and(page.getByTitle(pod)).first().waitFor()
      await page.getByPlaceholder('Search (regular expression)').fill('only dividers stay in view')
      await kube(page, 'DELETE', `${core}/pods/${pod}?gracePeriodSeconds=0`)
      await page.locator('.logs .divider', { hasText: pod }).first().waitFor()
      // That the pod is gone, the browser itself complains of, too.
      ignoring(page, /404|400/)
    }))

  test('T15: a million lines stay scrollable', () =>
    on('/', {}, async (page) => {
      await page.addInitScript(() => {
        const lines = Number(new URLSearchParams(location.search).get('lines'))
        const real = window.fetch
        window.fetch = (url, options) => {
          if (!String(url).includes('/log?')) return real(url, options)
          let n = 0
          const pull = (stream) => {
            let text = ''
            for (const end = Math.min(lines, n + 10_000); n < end; n++) text += `2026-01-01T00:00:00.${String(n).padStart(9, '0')}Z line ${n} of a long log\n`
            if (text) stream.enqueue(new TextEncoder().encode(text))
          }
          return Promise.resolve(new Response(new ReadableStream({ pull })))
        }
      })
      // A step of scrolling, as most of them are.
      const step = async (lines) => {
        await page.goto(`${base}/ui/?dock=logs:shop:store-0:&lines=${lines}`)
        await state(page).filter({ hasText: new RegExp(`^\\s*${lines} lines`) }).waitFor({ timeout: 3 * patience })
        await page.locator('.logs .line', { hasText: `line ${lines - 1} ` }).waitFor()
        const took = await page.getByRole('log').evaluate(async (el) => {
          const steps = []
          for (let i = 0; i < 40; i++) {
            const start = performance.now()
            el.scrollTop = (el.scrollHeight * i) / 40
            await new Promise((done) => requestAnimationFrame(() => setTimeout(done)))
            steps.push(performance.now() - start)
          }
          el.scrollTop = 0
          return steps.sort((a, b) => a - b)[20]
        })
        await page.locator('.logs .line', { hasText: /line 0 / }).waitFor()
        return took
      }
      const short = await step(1_000)
      const long = await step(1_000_000)
      assert.ok(long < Math.max(100, 5 * short), `a step of scrolling takes ${long} ms, in a short log ${short} ms`)
    }))
})

describe('terminals', () => {
  const rows = (page) => page.locator('.xterm-rows')

  test('T32: a shell knows its size before its first line, and after a resize', () =>
    on('/', {}, async (page) => {
      await page.goto(`${base}/ui/?dock=shell:${ns}:${await running(page)}:web`)
      await rows(page).filter({ hasText: '#' }).waitFor()
      const size = async () => {
        await page.locator('.xterm-helper-textarea').focus()
        await page.keyboard.type('stty size\r')
        return until('a size', async () => [...(await rows(page).innerText()).matchAll(/^\s*(\d+) (\d+)\s*$/gm)].at(-1)?.[2])
      }
      const first = Number(await size())
      assert.ok(first > 90, `the shell has ${first} columns`)
      await page.setViewportSize({ width: 900, height: 800 })
      await until('fewer columns', async () => Number(await size()) < first - 20)
    }))

  test('T33: a session that ends keeps what it wrote, and goes on after one key press', () =>
    on('/', {}, async (page) => {
      await page.goto(`${base}/ui/?dock=shell:${ns}:${await running(page)}:web`)
      await rows(page).filter({ hasText: '#' }).waitFor()
      await page.locator('.xterm-helper-textarea').focus()
      await page.keyboard.type('echo before\rexit\r')
      await page.getByRole('button', { name: 'Reconnect' }).click()
      await rows(page).filter({ hasText: '────' }).waitFor()
      await rows(page).filter({ hasText: /before[^]*────[^]*#/ }).waitFor()
      await page.locator('.xterm-helper-textarea').focus()
      await page.keyboard.type('echo again\r')
      await rows(page).filter({ hasText: /again[\s\S]*again/ }).waitFor()
    }))
})

describe('rights', () => {
  let bearer
  before(async () => {
    const page = await visit(browser)
    const rbac = `/apis/rbac.authorization.k8s.io/v1/namespaces/${ns}`
    await kube(page, 'POST', `${core}/serviceaccounts`, { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'reader' } })
    await kube(page, 'POST', `${rbac}/rolebindings`, { apiVersion: 'rbac.authorization.k8s.io/v1', kind: 'RoleBinding', metadata: { name: 'readers' }, roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'view' }, subjects: [{ kind: 'ServiceAccount', name: 'reader', namespace: ns }] })
    bearer = (await kube(page, 'POST', `${core}/serviceaccounts/reader/token`, { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: {} })).status.token
    await page.context().close()
  })

  test('T36, T37: who may list no namespaces lands in the one where there is something to see', async () => {
    const pods = () => kube(page, 'GET', `${core}/pods`).then((l) => l.items.length)
    const page = await visit(browser, '/', { bearer })
    await page.waitForURL(new RegExp(`[?&]ns=${ns}(&|$)`))
    const link = page.locator('.bars a', { hasText: /^Pods/ })
    await until('the overview counts the pods', async () => (await link.textContent()) === `Pods${await pods()}`)
    await link.click()
    await rowNamed(page, 'web-').first().waitFor()
    await until('the table counts the pods', async () => (await page.locator('[data-count]').textContent()) === String(await pods()))
    await rowNamed(page, 'web-').first().locator('.name').click()
    const remove = page.locator('[data-action="action.delete"][aria-disabled=true]')
    await remove.waitFor()
    assert.match(await remove.getAttribute('title'), new RegExp(`delete pods \\(${ns}\\)`))
    await page.context().close()
  })

  test('T37: who may see nothing is told so, and neither left waiting nor told that all is well', async () => {
    const admin = await visit(browser)
    await kube(admin, 'POST', `${core}/serviceaccounts`, { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'nobody' } })
    const { token } = (await kube(admin, 'POST', `${core}/serviceaccounts/nobody/token`, { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: {} })).status
    await admin.context().close()
    const page = await visit(browser, '/', { bearer: token })
    const main = page.getByRole('main')
    await until('each card says so', async () => (await main.getByText(/is forbidden/).count()) === 4)
    await until('nothing waits', async () => !/Loading/.test(await main.innerText()))
    assert.doesNotMatch(await main.innerText(), /No warnings|Nothing is wrong|0 of 0/)
    for (const path of ['/map', '/timeline', '/k/pods']) {
      await page.goto(`${base}/ui${path}`)
      await main.getByText(/is forbidden/).first().waitFor()
    }
    await page.context().close()
  })

  test('who can', () =>
    on(`/access?view=who&ns=${ns}`, {}, async (page) => {
      await page.getByLabel('Verb').fill('list')
      await page.getByRole('button', { name: 'Who can', exact: true }).click()
      await page.locator('[data-holder]', { hasText: 'reader' }).getByRole('link', { name: 'readers' }).waitFor()
      await page.locator('[data-holder]', { hasText: 'system:masters' }).waitFor()
    }))

  test('who can: that it loads is said, what may not be read, what failed, and that there is nobody', () =>
    on('/kinds', {}, async (page) => {
      const answer = { then: undefined }
      await page.route(/orrery\/v1\/rights/, (route) => (answer.then = (code, body) => route.fulfill({ status: code, contentType: 'application/json', body: JSON.stringify(body) })))
      const next = async (code, body) => {
        await until('it is asked', () => answer.then)
        await page.getByText('Loading').first().waitFor()
        const reply = answer.then
        answer.then = undefined
        await reply(code, body)
      }
      const status = (code, reason, message) => ({ kind: 'Status', apiVersion: 'v1', status: 'Failure', code, reason, message })
      await page.goto(`${base}/ui/access?view=who&ns=${ns}`)
      await next(403, status(403, 'Forbidden', 'User "ada" cannot list resource "clusterroles"'))
      await page.getByText('You may not read all that it takes to know: User "ada" cannot list resource "clusterroles"').waitFor()
      await page.getByRole('button', { name: 'Try again' }).click()
      await next(500, status(500, 'InternalError', 'out of order'))
      await page.getByText('out of order').waitFor()
      await page.getByRole('button', { name: 'Try again' }).click()
      await next(200, { holders: [] })
      await page.getByText('No binding gives that right').waitFor()
      ignoring(page, /403|500/)
    }))

  test('who can leads to what a holder can do, and that to the binding that says it', () =>
    on(`/access?view=who&ns=${ns}&q=list pods`, {}, async (page) => {
      await page.locator('[data-holder]', { hasText: 'reader' }).getByRole('link', { name: `${ns}/reader` }).click()
      await page.getByText(`Rights of sa:${ns}:reader`).waitFor()
      await page.getByRole('button', { name: 'deployments.apps', exact: true }).click()
      await page.locator('[data-rule]').getByRole('link', { name: 'RoleBinding/readers' }).waitFor()
      await page.locator('[data-rights="deployments.apps"]').getByRole('img', { name: 'not allowed' }).first().waitFor()
      await page.goto(`${base}/ui/access?ns=${ns}&as=system:serviceaccount:${ns}:reader`)
      await page.getByText('Where these rights come from is not told').waitFor()
      await page.locator('[data-rights="deployments.apps"]').getByRole('img', { name: 'allowed', exact: true }).first().waitFor()
      await page.getByRole('tab', { name: 'Who can' }).click()
      await page.getByText(/cannot list resource "clusterroles"/).waitFor()
      ignoring(page, /403/)
    }))

  test('T36, T37: a user of one namespace sees it, with right counts, and reads what is missing', () =>
    on(`/k/serviceaccounts?o=serviceaccounts/${ns}/reader`, {}, async (page) => {
      await act(page, 'viewAs')
      await page.locator('[data-as]').waitFor()
      await page.waitForURL(/[?&]as=/)
      await page.goto(page.url().replace('/k/serviceaccounts', '/k/pods'))
      await rowNamed(page, 'web-').first().waitFor()
      assert.equal(await rowNamed(page, 'store-0').count(), 0)
      await until('the table counts the pods', async () => (await page.locator('[data-count]').textContent()) === String((await kube(page, 'GET', `${core}/pods`)).items.length))
      await rowNamed(page, 'web-').first().locator('.name').click()
      const remove = page.locator('[data-action="action.delete"]')
      await page.locator('[data-action="action.delete"][aria-disabled=true]').waitFor()
      assert.match(await remove.getAttribute('title'), new RegExp(`delete pods \\(${ns}\\)`))
      await remove.dispatchEvent('click')
      await page.getByText(/You lack the permission: delete pods/).waitFor()
      await page.getByRole('button', { name: 'Stop' }).click()
      await page.locator('[data-as]').waitFor({ state: 'detached' })
    }))
})

test('the timeline of events picks a minute and a reason', () =>
  on(`/timeline?ns=${ns}`, {}, async (page) => {
    await page.getByRole('button', { name: /^Pulled/ }).click()
    await until('one reason only', async () => [...new Set(await page.locator('.list strong').allTextContents())].join() === 'Pulled')
  }))
