export interface Rule {
  verbs: string[]
  apiGroups?: string[]
  resources?: string[]
  resourceNames?: string[]
}

interface Named {
  metadata: { name: string; namespace?: string }
}
export interface Role extends Named {
  rules?: Rule[] | null
}
export interface Subject {
  kind: string
  name: string
  namespace?: string
}
export interface Binding extends Named {
  roleRef: { kind: string; name: string }
  subjects?: Subject[] | null
}

export interface Question {
  verb: string
  group: string
  resource: string
  namespace: string // "": the whole cluster
  name?: string
}

const has = (list: string[] | undefined, x: string): boolean => !!list?.some((l) => l === '*' || l === x)

/** grants says whether a rule allows it; for some names only is less. */
export function grants(rule: Rule, q: Question): boolean {
  const [resource = '', sub] = q.resource.split('/')
  return (
    has(rule.verbs, q.verb) &&
    has(rule.apiGroups, q.group) &&
    (has(rule.resources, q.resource) || (!!sub && has(rule.resources, `*/${sub}`)) || (!sub && has(rule.resources, resource))) &&
    (!rule.resourceNames?.length || (!!q.name && rule.resourceNames.includes(q.name)))
  )
}

export interface Holder {
  subject: Subject
  binding: string
  role: string
  everywhere: boolean
}

/** whoCan reads the bindings of RBAC, as far as the user could read them. */
export function whoCan(q: Question, roles: Role[], clusterRoles: Role[], bindings: Binding[], clusterBindings: Binding[]): Holder[] {
  const out: Holder[] = []
  const allows = (r: Role | undefined) => !!r?.rules?.some((rule) => grants(rule, q))
  const add = (b: Binding, everywhere: boolean) => {
    for (const subject of b.subjects ?? []) out.push({ subject, binding: b.metadata.name, role: `${b.roleRef.kind}/${b.roleRef.name}`, everywhere })
  }
  for (const b of clusterBindings) if (allows(clusterRoles.find((r) => r.metadata.name === b.roleRef.name))) add(b, true)
  for (const b of bindings) {
    if (!q.namespace || b.metadata.namespace !== q.namespace) continue
    const from = b.roleRef.kind === 'ClusterRole' ? clusterRoles : roles.filter((r) => r.metadata.namespace === q.namespace)
    if (allows(from.find((r) => r.metadata.name === b.roleRef.name))) add(b, false)
  }
  return out
}

/** userOf is the name and the groups that a subject has in requests. */
export function userOf(s: Subject): { user: string; groups: string[] } {
  if (s.kind === 'ServiceAccount') return { user: `system:serviceaccount:${s.namespace}:${s.name}`, groups: ['system:serviceaccounts', `system:serviceaccounts:${s.namespace}`, 'system:authenticated'] }
  return s.kind === 'Group' ? { user: 'somebody', groups: [s.name, 'system:authenticated'] } : { user: s.name, groups: ['system:authenticated'] }
}
