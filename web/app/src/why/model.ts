import { t, type Key } from '../i18n/index.svelte'
import { get, send } from '../state/api'
import { kinds, nameOf, refOf } from '../state/kinds.svelte'
import { route } from '../state/route.svelte'
import type { State } from '../stream/types'

// The answers of package why, as in api/why.go.

const whyPath = '/orrery/v1/why'

export type WhyState = 'ok' | 'waiting' | 'broken' | 'notReached' | 'unknown'

export interface ObjectRef {
  group?: string
  resource?: string
  kind: string
  namespace?: string
  name: string
}

export interface Evidence {
  object: ObjectRef
  from: string
  words?: string
  time?: string
}

export interface Mend {
  code: string
  params?: Record<string, string>
  command?: string
}

export interface Finding {
  state: WhyState
  code: string
  params?: Record<string, string>
  evidence?: Evidence[]
  mends?: Mend[]
  pods?: ObjectRef[]
  podCount?: number
}

export interface WhyLink {
  name: string
  state: WhyState
  findings?: Finding[]
}

export interface Why {
  object: ObjectRef
  state: WhyState
  links: WhyLink[]
}

export interface Trouble {
  object: ObjectRef
  state: WhyState
  link: string
  finding: Finding
  since: string
}

export interface Troubles {
  items: Trouble[]
  more?: number
  unread?: Finding[]
}

/** What goes with objects that are deleted, or leaves a node that is drained. */
export interface Blast {
  findings?: Finding[]
  evicted?: ObjectRef[]
  users?: ObjectRef[]
}

const explained = new Set([
  'pods', 'services', 'persistentvolumeclaims', 'replicationcontrollers', 'deployments.apps', 'replicasets.apps', 'statefulsets.apps', 'daemonsets.apps', 'jobs.batch', 'cronjobs.batch',
])

/** hasWhy tells whether there is a chain for a kind ("deployments.apps"). */
export const hasWhy = (kindName: string): boolean => explained.has(kindName)

export const explain = (kind: { group: string; resource: string }, namespace: string, name: string): Promise<Why> =>
  get(`${whyPath}?${new URLSearchParams({ group: kind.group, resource: kind.resource, namespace, name })}`, { list: 'links' })

export const findTroubles = (namespaces: string[]): Promise<Troubles> => get(whyPath + (namespaces.length ? '?' + new URLSearchParams(namespaces.map((ns) => ['namespace', ns])) : ''), { list: 'items' })

export async function blastOf(kind: { group: string; resource: string; kind: string }, targets: { ns?: string; name: string }[], how: { orphan?: boolean; drain?: boolean } = {}): Promise<Blast> {
  const objects = targets.map((x) => ({ group: kind.group, resource: kind.resource, kind: kind.kind, namespace: x.ns, name: x.name }))
  return (await send('/orrery/v1/blast', { method: 'POST', body: { objects, ...how } })).json()
}

/** What a finding says, and what a mend does. */
export const sentence = (f: Finding): string => t(`why.f.${f.code}` as Key, f.params)
export const advice = (m: Mend): string => t(`why.mend.${m.code}` as Key, m.params)
export const linkName = (name: string): string => t(`why.link.${name}` as Key)

/** The state in which the page shows a link of the chain. */
export const glyphOf = (s: WhyState): State => (s === 'broken' ? 'error' : s === 'waiting' ? 'progressing' : s === 'notReached' ? 'unknown' : s)

/** hrefOf opens an object, at its own chain if it has one. */
export function hrefOf(o: ObjectRef): string | undefined {
  const kind = o.resource ? kinds.find(nameOf({ group: o.group ?? '', resource: o.resource })) : undefined
  return kind && route.with({ o: refOf(nameOf(kind), o.namespace, o.name), t: hasWhy(nameOf(kind)) ? 'why' : null })
}
