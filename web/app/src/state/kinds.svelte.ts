import { plural } from '../lib/words'
import { get } from './api'
import { say } from './mutate'

export interface Kind {
  group: string
  version: string
  resource: string
  singular: string
  short: string[]
  kind: string
  title: string
  namespaced: boolean
  verbs: string[]
}

/** The rail's sections, with the kinds that get a line of their own. */
export const sections: readonly { title: 'workloads' | 'network' | 'storage' | 'config' | 'access' | 'cluster'; kinds: readonly string[] }[] = [
  { title: 'cluster', kinds: ['nodes', 'namespaces', 'events'] },
  { title: 'workloads', kinds: ['pods', 'deployments.apps', 'statefulsets.apps', 'daemonsets.apps', 'replicasets.apps', 'jobs.batch', 'cronjobs.batch'] },
  { title: 'network', kinds: ['services', 'endpointslices.discovery.k8s.io', 'ingresses.networking.k8s.io', 'networkpolicies.networking.k8s.io'] },
  { title: 'storage', kinds: ['persistentvolumeclaims', 'persistentvolumes', 'storageclasses.storage.k8s.io'] },
  { title: 'config', kinds: ['configmaps', 'secrets', 'horizontalpodautoscalers.autoscaling', 'poddisruptionbudgets.policy', 'resourcequotas', 'limitranges'] },
  { title: 'access', kinds: ['serviceaccounts', 'roles.rbac.authorization.k8s.io', 'rolebindings.rbac.authorization.k8s.io', 'clusterroles.rbac.authorization.k8s.io', 'clusterrolebindings.rbac.authorization.k8s.io'] },
]

interface DiscoveryResource {
  resource: string
  responseKind?: { kind: string }
  scope: string
  singularResource?: string
  shortNames?: string[]
  verbs: string[]
}
interface Discovery {
  items: { metadata: { name?: string }; versions: { version: string; resources?: DiscoveryResource[] }[] }[]
}

const aggregated = { list: 'items', accept: 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json' } as const

/** name is how a kind is named in addresses: "pods", "deployments.apps". */
export const nameOf = (k: { group: string; resource: string }): string => (k.group ? `${k.resource}.${k.group}` : k.resource)

/** Groups that come with Kubernetes; kinds of all others are "custom". */
export const builtin = (group: string): boolean => !group.includes('.') || group.endsWith('.k8s.io')

/** Every kind that can be listed and watched, built-in and custom. */
class Kinds {
  all = $state.raw<Kind[]>([])
  error = $state('')
  private at = 0
  private retry: ReturnType<typeof setTimeout> | undefined

  async load(): Promise<void> {
    clearTimeout(this.retry)
    this.at = Date.now()
    try {
      const [core, named] = await Promise.all([get<Discovery>('/api', aggregated), get<Discovery>('/apis', aggregated)])
      this.all = [...core.items, ...named.items].flatMap(read)
      this.error = ''
    } catch (e) {
      this.error = say(e)
      this.retry = setTimeout(() => void this.load(), 5000)
    }
  }

  /** refresh looks again for new custom kinds, but not all the time. */
  refresh(): void {
    if (Date.now() - this.at > 5000) void this.load()
  }

  find(name: string): Kind | undefined {
    return this.all.find((k) => nameOf(k) === name)
  }

  /** byKind finds what an ownerReference or an event means. */
  byKind(apiVersion: string, kind: string): Kind | undefined {
    const group = apiVersion.includes('/') ? apiVersion.split('/')[0] : ''
    return this.all.find((k) => k.kind === kind && k.group === group)
  }

  /** byWord finds what a user types after ":": plural, singular, short name or kind. */
  byWord(word: string): Kind | undefined {
    const w = word.toLowerCase()
    return (
      this.all.find((k) => k.resource === w || k.singular === w || k.short.includes(w) || k.kind.toLowerCase() === w) ?? this.find(w)
    )
  }
}

/** read takes the kinds of the first version that has each, which is the preferred one. */
function read(group: Discovery['items'][number]): Kind[] {
  const seen = new Map<string, Kind>()
  for (const v of group.versions) {
    for (const r of v.resources ?? []) {
      if (seen.has(r.resource) || !r.verbs.includes('list') || !r.verbs.includes('watch')) continue
      const kind = r.responseKind?.kind ?? r.resource
      seen.set(r.resource, {
        group: group.metadata.name ?? '',
        version: v.version,
        resource: r.resource,
        singular: r.singularResource || kind.toLowerCase(),
        short: r.shortNames ?? [],
        kind,
        title: plural(kind, r.resource),
        namespaced: r.scope === 'Namespaced',
        verbs: r.verbs,
      })
    }
  }
  return [...seen.values()]
}

export const kinds = new Kinds()

/** urlOf is the API's path of an object, or of a kind in a namespace. */
export function urlOf(k: Kind, namespace?: string, name?: string, sub?: string): string {
  const parts = [k.group ? `/apis/${k.group}/${k.version}` : `/api/${k.version}`]
  if (k.namespaced && namespace) parts.push('namespaces', encodeURIComponent(namespace))
  parts.push(k.resource)
  if (name) parts.push(encodeURIComponent(name))
  if (sub) parts.push(sub)
  return parts.join('/')
}

/** refOf is an object in an address: "pods/shop/cart-1", "nodes//worker-1". */
export const refOf = (kindName: string, ns: string | undefined, name: string): string => `${kindName}/${ns ?? ''}/${name}`
