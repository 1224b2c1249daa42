// Who may do what, as the API server works it out of roles and bindings.
import type { Subject } from '../lib/rbac'
import { get } from '../state/api'
import type { Finding, ObjectRef } from './model'

export interface Holder {
  subject: Subject
  binding: ObjectRef
  role: ObjectRef
  namespace?: string // where it holds; none: everywhere
  names?: string[] // for objects of these names only
}

export interface WhoCan {
  holders: Holder[]
  remarks?: Finding[]
}

export interface Rule {
  verbs: string[]
  resourceNames?: string[]
  namespace?: string
  through?: Subject // whom the binding names
  binding?: ObjectRef
  role?: ObjectRef
  limited?: boolean // some objects only
}

/** What the rules come to for a kind, a subresource, or a path of the API server. */
export interface KindRights {
  group?: string
  resource: string
  namespaced?: boolean
  all?: string[]
  some?: string[]
  rules?: number[]
}

export interface Rights {
  subject: Subject
  groups?: string[]
  rules: Rule[]
  kinds: KindRights[]
  remarks?: Finding[]
}

const path = (q: Record<string, string>): string => '/orrery/v1/rights?' + new URLSearchParams(Object.entries(q).filter(([, v]) => v))

export const whoCan = (verb: string, kind: { group: string; resource: string }, name: string, namespace: string): Promise<WhoCan> => get(path({ verb, ...kind, name, namespace }))

/** rightsOf tells of a subject, or with none of who asks. */
export const rightsOf = (subject: string, namespace: string): Promise<Rights> => get(path({ of: subject || 'me', namespace }))

export const subjects = (namespace: string): Promise<{ items: { subject: Subject }[] }> => get(path({ namespace }))
