// The row protocol and the map, as in api/stream.go and api/map.go.

export const streamPath = '/orrery/v1/stream'
export const streamProtocol = 'v1.rows.orrery.dev'
export const mapPath = '/orrery/v1/map'
export const journeyPath = '/orrery/v1/journey'
export const namespacesPath = '/orrery/v1/namespaces'

export type State = 'ok' | 'progressing' | 'warning' | 'error' | 'terminating' | 'done' | 'unknown'

/** States, worst first: the order in which a face lists what needs attention. */
export const states: readonly State[] = ['error', 'warning', 'unknown', 'progressing', 'terminating', 'ok', 'done']

export interface View {
  group?: string
  version?: string
  resource: string
  namespaces?: string[]
  name?: string
  labelSelector?: string
  fieldSelector?: string
  columns?: ViewColumn[]
}

/** A column beyond the kind's own: what a JSONPath finds. */
export interface ViewColumn {
  name: string
  path: string
}

export interface Ask {
  id: number
  op: 'open' | 'close' | 'ack'
  view?: View
  revision?: string
}

export interface StreamError {
  code: number
  message: string
  retry?: boolean
}

export interface Column {
  name: string
  type: string
  priority?: number
  description?: string
}

export type Cell = string | number | boolean | null

export interface Row {
  uid: string
  ns?: string
  name: string
  cells: Cell[]
  state: State
  created: string
  labels?: Record<string, string>
  owner?: string
  /** Of a pod: how many containers failed, if others did not ("1/2"). */
  failed?: string
}

export interface Tell {
  id: number
  type: 'columns' | 'rows' | 'object' | 'error' | 'ping'
  revision?: string
  columns?: Column[]
  reset?: boolean
  rows?: Row[]
  gone?: string[]
  object?: KubeObject
  live?: boolean
  error?: StreamError
}

export interface KubeObject {
  apiVersion: string
  kind: string
  metadata: {
    name: string
    namespace?: string
    uid: string
    creationTimestamp: string
    deletionTimestamp?: string
    labels?: Record<string, string>
    annotations?: Record<string, string>
    ownerReferences?: { apiVersion: string; kind: string; name: string; uid: string; controller?: boolean }[]
    [more: string]: unknown
  }
  // What a kind holds beyond metadata is read defensively where it is used.
  spec?: any
  status?: any
  [more: string]: any
}

export interface Component {
  name: string
  healthy: boolean
  version?: string
  message?: string
}

export interface EtcdMember {
  id: string
  name: string
  peerURL: string
  clientURL: string
  version?: string
  leader?: boolean
  learner?: boolean
  term?: number
  index?: number
  applied?: number
  revision?: number
  size?: number
  inUse?: number
  quota?: number
  error?: string
}

export interface ClusterMap {
  version: string
  components: Component[]
  etcd: EtcdMember[] | null
  etcdError?: string
}

// Journeys, as in api/journey.go; times are microseconds.
export interface Journey {
  objects: JourneyObject[]
  changes: { span: string; start: number; name: string; user?: string }[]
  change?: string
  spans: Span[]
  since: number
  hidden?: number
  more?: number
}

export interface JourneyObject {
  uid: string
  group?: string
  resource: string
  namespace?: string
  name: string
  owner?: string
}

export interface Span {
  id: string
  parent?: string
  trace: string
  object?: string
  component: string
  node?: string
  name: string
  start: number
  duration: number
  failed?: boolean
  error?: string
  details?: { key: string; value: string }[]
}
