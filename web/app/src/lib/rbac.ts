/** Whom bindings name. */
export interface Subject {
  kind: string
  name: string
  namespace?: string
}

/** subjectText is a subject as it is typed: "sa:shop:builder", "user:jane", "group:dev". */
export const subjectText = (s: Subject): string => (s.kind === 'ServiceAccount' ? `sa:${s.namespace}:${s.name}` : `${s.kind.toLowerCase()}:${s.name}`)

/** subjectOf is what was typed as the API server takes it: what has no sort is a user. */
export const subjectOf = (typed: string): string => {
  const text = typed.trim()
  return !text || /^(u|user|g|group|s|sa):/.test(text) || text.startsWith('system:serviceaccount:') ? text : 'user:' + text
}

/** userOf is the name and the groups that a subject has in requests. */
export function userOf(s: Subject): { user: string; groups: string[] } {
  if (s.kind === 'ServiceAccount') return { user: `system:serviceaccount:${s.namespace}:${s.name}`, groups: ['system:serviceaccounts', `system:serviceaccounts:${s.namespace}`, 'system:authenticated'] }
  return s.kind === 'Group' ? { user: 'somebody', groups: [s.name, 'system:authenticated'] } : { user: s.name, groups: ['system:authenticated'] }
}
