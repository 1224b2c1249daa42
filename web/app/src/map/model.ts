import type { ClusterMap, Column, EtcdMember, KubeObject, Row, State } from '../stream/types'

/** What the map knows of one part of the cluster. */
export interface Part {
  id: string
  what: 'apiserver' | 'etcd' | 'scheduler' | 'controllers' | 'kubelet' | 'proxy' | 'runtime'
  state: State
  version: string
  /** For parts of which one leads: who does. */
  leader: string
  /** The pods that it runs in; none when it runs outside of any. */
  pods: Row[]
  message: string
}

export interface NodeBox {
  row: Row
  name: string
  roles: string
  controlPlane: boolean
  /** Nothing runs there, least of all a kube-proxy. */
  simulated: boolean
  kubelet: Part
  proxy: Part
  runtime: Part
  pods: Row[]
}

export interface Model {
  apiserver: Part
  etcd: Part
  scheduler: Part
  controllers: Part
  nodes: NodeBox[]
  members: EtcdMember[]
}

/** What the model is made of: rows of the stream, and the map's own facts. */
export interface Facts {
  nodes: Row[] // in the order in which they are shown
  nodeColumns: Column[]
  pods: Row[]
  podColumns: Column[]
  leases: Row[]
  leaseColumns: Column[]
  objects: KubeObject[] // the control plane's pods
  map: ClusterMap | null
  live: boolean
}

const badness: State[] = ['error', 'unknown', 'warning', 'terminating', 'progressing', 'ok', 'done']

/** worst is the state of a whole made of these. */
export function worst(states: State[]): State {
  return badness.find((s) => states.includes(s)) ?? 'unknown'
}

/** reader finds a column once, for all the rows. */
function reader(columns: Column[], name: string): (row: Row) => string {
  const i = columns.findIndex((c) => c.name.toLowerCase() === name)
  return (row) => {
    const v = row.cells[i]
    return v === null || v === undefined || v === '<none>' ? '' : String(v)
  }
}

function groupBy<T, K>(list: T[], key: (item: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>()
  for (const item of list) {
    const group = groups.get(key(item))
    group ? group.push(item) : groups.set(key(item), [item])
  }
  return groups
}

export function buildModel(f: Facts): Model {
  const system = f.pods.filter((p) => p.ns === 'kube-system')
  const podsOf = (component: string) =>
    system.filter((p) => p.labels?.component === component || p.labels?.['k8s-app'] === component || p.name.startsWith(component + '-'))

  function part(id: Part['what'], component: string, check: string): Part {
    const pods = podsOf(component)
    const health = f.map?.components.filter((c) => c.name === check || c.name.startsWith(check + '-')) ?? []
    const said: State[] = health.map((c) => (c.healthy ? 'ok' : 'error'))
    const state = worst([...pods.map((p) => p.state), ...said])
    return {
      id,
      what: id,
      state: f.live ? state : 'unknown',
      version: health.find((c) => c.version)?.version || version(component) || f.map?.version || '',
      leader: holder(component),
      pods,
      message: health.find((c) => !c.healthy)?.message ?? '',
    }
  }

  function version(component: string): string {
    const image: string = f.objects.find((o) => o.metadata.labels?.component === component)?.spec?.containers?.[0]?.image ?? ''
    return /:([^:/@]+)(?:@.*)?$/.exec(image)?.[1] ?? ''
  }

  function holder(component: string): string {
    const lease = f.leases.find((l) => l.name === component)
    return lease ? reader(f.leaseColumns, 'holder')(lease).replace(/_[0-9a-f-]+$/, '') : ''
  }

  const members = f.map?.etcd ?? []
  const apiserver = part('apiserver', 'kube-apiserver', 'apiserver')
  // That it answers is the best news about an API server.
  if (f.live && (apiserver.state === 'unknown' || apiserver.state === 'ok')) apiserver.state = 'ok'
  apiserver.version = f.map?.version ?? apiserver.version
  const etcd = part('etcd', 'etcd', 'etcd')
  if (members.length) {
    etcd.version = members.find((m) => m.version)?.version ?? ''
    etcd.leader = members.find((m) => m.leader)?.name ?? ''
    if (f.live) etcd.state = members.some((m) => m.error) ? 'warning' : worst([etcd.state === 'unknown' ? 'ok' : etcd.state])
  }

  const podsOn = groupBy(f.pods, reader(f.podColumns, 'node'))
  const [statusOf, rolesOf] = [reader(f.nodeColumns, 'status'), reader(f.nodeColumns, 'roles')]
  const [versionOf, runtimeOf] = [reader(f.nodeColumns, 'version'), reader(f.nodeColumns, 'container-runtime')]
  const nodes = f.nodes.map((row): NodeBox => {
    const pods = podsOn.get(row.name) ?? []
    const on = (id: 'kubelet' | 'proxy' | 'runtime', state: State, v: string, its: Row[] = []): Part => ({
      id: `${id}:${row.name}`, what: id, state: f.live ? state : 'unknown', version: v, leader: '', pods: its, message: '',
    })
    const proxies = pods.filter((p) => p.labels?.['k8s-app'] === 'kube-proxy' || p.name.startsWith('kube-proxy'))
    const status = statusOf(row)
    const up: State = status.startsWith('Ready') ? 'ok' : status.includes('NotReady') ? 'error' : row.state
    const roles = rolesOf(row)
    const runtime = runtimeOf(row)
    const simulated = runtime.startsWith('simulated:')
    return {
      row, name: row.name, roles, pods, simulated,
      controlPlane: roles.includes('control-plane'),
      kubelet: on('kubelet', up, versionOf(row)),
      proxy: on('proxy', proxies.length ? worst(proxies.map((p) => p.state)) : up === 'ok' && !simulated ? 'ok' : 'unknown', versionOf(row), proxies),
      runtime: on('runtime', up === 'ok' ? 'ok' : 'unknown', runtime),
    }
  })
  nodes.sort((a, b) => Number(b.controlPlane) - Number(a.controlPlane))

  return {
    apiserver, etcd, members, nodes,
    scheduler: part('scheduler', 'kube-scheduler', 'scheduler'),
    controllers: part('controllers', 'kube-controller-manager', 'controller-manager'),
  }
}

/** nodesShown are those that a map has boxes for, the ones in trouble above all; the rest it counts, by state. */
export function nodesShown(nodes: NodeBox[], most = 24): { shown: NodeBox[]; rest: [State, number][] } {
  if (nodes.length <= most) return { shown: nodes, rest: [] }
  const urgency = (n: NodeBox) => (n.controlPlane ? -1 : badness.indexOf(n.row.state))
  const sorted = [...nodes].sort((a, b) => urgency(a) - urgency(b))
  const rest = groupBy(sorted.slice(most), (n) => n.row.state)
  return { shown: sorted.slice(0, most), rest: [...rest].map(([state, list]) => [state, list.length]) }
}

/** The connections of a cluster: who calls whom. Texts are map.edge.* messages. */
export const edges = ['users', 'etcd', 'scheduler', 'controllers', 'kubelet', 'proxy', 'cri', 'run', 'traffic'] as const
export type Edge = (typeof edges)[number]
