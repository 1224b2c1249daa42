import type { KubeObject } from '../stream/types'
import { get } from './api'
import { nameOf, type Kind } from './kinds.svelte'

export interface User {
  kind: string // as in addresses
  name: string
}

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

/** usersOf finds what in a namespace uses an object: pods by their controllers, and Ingresses. */
export async function usersOf(kind: Kind, namespace: string, name: string): Promise<User[]> {
  const pods = await get<{ items: KubeObject[] }>(`/api/v1/namespaces/${namespace}/pods`)
  const users = new Map<string, User>()
  const add = (u: User) => users.set(`${u.kind}/${u.name}`, u)
  for (const pod of pods.items) {
    if (!usesOf(pod.spec).some((u) => u.kind === nameOf(kind) && u.name === name)) continue
    const owner = pod.metadata.ownerReferences?.find((o) => o.controller)
    add(owner ? { kind: owner.kind, name: owner.name } : { kind: 'Pod', name: pod.metadata.name })
  }
  if (kind.kind === 'Secret') {
    const more = await Promise.allSettled([get<{ items: KubeObject[] }>(`/apis/networking.k8s.io/v1/namespaces/${namespace}/ingresses`), get<{ items: any[] }>(`/api/v1/namespaces/${namespace}/serviceaccounts`)])
    if (more[0].status === 'fulfilled') for (const i of more[0].value.items) if ((i.spec?.tls ?? []).some((t: any) => t.secretName === name)) add({ kind: 'Ingress', name: i.metadata.name })
    if (more[1].status === 'fulfilled') for (const s of more[1].value.items) if ([...(s.secrets ?? []), ...(s.imagePullSecrets ?? [])].some((t: any) => t.name === name)) add({ kind: 'ServiceAccount', name: s.metadata.name })
  }
  return [...users.values()]
}

/** countIn asks how many objects of a kind there are, without reading them all. */
export async function countIn(path: string): Promise<number> {
  const l = await get<{ items: unknown[]; metadata: { remainingItemCount?: number } }>(`${path}?limit=1`, 'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json')
  return l.items.length + (l.metadata.remainingItemCount ?? 0)
}
