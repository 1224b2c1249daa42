import type { Kind } from '../state/kinds.svelte'

/** Kinds whose users can be told. */
export const hasUsers = (kind: Kind): boolean => /^(Secret|ConfigMap|PersistentVolumeClaim|ServiceAccount)$/.test(kind.kind)

/** usesOf are the objects of its namespace that a pod's spec names, by kind. */
export function usesOf(spec: any): { kind: string; name: string }[] {
  const found = new Map<string, { kind: string; name: string }>()
  const add = (kind: string, name: string | undefined) => name && found.set(`${kind}/${name}`, { kind, name })
  const volumes = (spec?.volumes ?? []).flatMap((v: any) => [v, ...(v.projected?.sources ?? [])])
  for (const v of volumes) {
    add('configmaps', v.configMap?.name)
    add('secrets', v.secret?.secretName ?? v.secret?.name)
    add('persistentvolumeclaims', v.persistentVolumeClaim?.claimName)
  }
  for (const c of [...(spec?.containers ?? []), ...(spec?.initContainers ?? [])]) {
    for (const e of [...(c.envFrom ?? []), ...(c.env ?? []).map((e: any) => ({ configMapRef: e.valueFrom?.configMapKeyRef, secretRef: e.valueFrom?.secretKeyRef }))]) {
      add('configmaps', e.configMapRef?.name)
      add('secrets', e.secretRef?.name)
    }
  }
  for (const s of spec?.imagePullSecrets ?? []) add('secrets', s.name)
  add('serviceaccounts', spec?.serviceAccountName)
  return [...found.values()]
}

/** selects applies a LabelSelector; none selects nothing. */
export function selects(selector: { matchLabels?: Record<string, string>; matchExpressions?: { key: string; operator: string; values?: string[] }[] } | undefined, labels: Record<string, string>): boolean {
  if (!selector) return false
  return (
    Object.entries(selector.matchLabels ?? {}).every(([k, v]) => labels[k] === v) &&
    (selector.matchExpressions ?? []).every(({ key, operator, values = [] }) => {
      const has = labels[key] !== undefined
      if (operator === 'Exists') return has
      if (operator === 'DoesNotExist') return !has
      return operator === 'In' ? has && values.includes(labels[key]!) : !has || !values.includes(labels[key]!)
    })
  )
}
