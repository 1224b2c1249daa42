import type { KubeObject } from '../stream/types'

/** A patch that does one thing to objects of some kinds, whatever they hold. */
export interface Change {
  kinds: RegExp
  type: string
  body: () => object
}

const merge = 'application/merge-patch+json'

/** Changes that work on one object as on many. */
export const changes = {
  restart: {
    kinds: /^(Deployment|StatefulSet|DaemonSet)$/,
    type: merge,
    body: () => ({ spec: { template: { metadata: { annotations: { 'kubectl.kubernetes.io/restartedAt': new Date().toISOString() } } } } }),
  },
  cordon: { kinds: /^Node$/, type: merge, body: () => ({ spec: { unschedulable: true } }) },
  uncordon: { kinds: /^Node$/, type: merge, body: () => ({ spec: { unschedulable: null } }) },
  suspend: { kinds: /^(CronJob|Job)$/, type: merge, body: () => ({ spec: { suspend: true } }) },
  resume: { kinds: /^(CronJob|Job)$/, type: merge, body: () => ({ spec: { suspend: false } }) },
} satisfies Record<string, Change>

export type ChangeName = keyof typeof changes
export const changeNames = Object.keys(changes) as ChangeName[]

/** applies says whether a change would change the object at all. */
export function applies(name: ChangeName, kind: string, object: KubeObject): boolean {
  if (!(changes[name] as Change).kinds.test(kind)) return false
  switch (name) {
    case 'cordon':
      return !object.spec?.unschedulable
    case 'uncordon':
      return !!object.spec?.unschedulable
    case 'suspend':
      return !object.spec?.suspend && !(object.status?.conditions ?? []).some((c: { type: string; status: string }) => /^(Complete|Failed)$/.test(c.type) && c.status === 'True')
    case 'resume':
      return !!object.spec?.suspend
  }
  return true
}

/** manualJob is the Job that a CronJob would make now, as kubectl create job --from has it. */
export function manualJob(cron: KubeObject, suffix: string): object {
  const template = cron.spec.jobTemplate
  return {
    apiVersion: 'batch/v1',
    kind: 'Job',
    metadata: {
      name: `${cron.metadata.name.slice(0, 50)}-${suffix}`,
      namespace: cron.metadata.namespace,
      labels: template.metadata?.labels,
      annotations: { ...template.metadata?.annotations, 'cronjob.kubernetes.io/instantiate': 'manual' },
      ownerReferences: [{ apiVersion: 'batch/v1', kind: 'CronJob', name: cron.metadata.name, uid: cron.metadata.uid }],
    },
    spec: template.spec,
  }
}

/** templateAt are the pods' containers of an object, and the patch that would set their images. */
export function podSpecOf(kind: string, object: KubeObject): any {
  if (kind === 'Pod') return object.spec
  return kind === 'CronJob' ? object.spec?.jobTemplate?.spec?.template?.spec : object.spec?.template?.spec
}

/** setImages is a strategic merge patch; it names only containers whose image changes. */
export function setImages(kind: string, images: { field: string; name: string; image: string }[]): object {
  const spec: Record<string, object[]> = {}
  for (const { field, name, image } of images) (spec[field] ??= []).push({ name, image })
  if (kind === 'Pod') return { spec }
  return kind === 'CronJob' ? { spec: { jobTemplate: { spec: { template: { spec } } } } } : { spec: { template: { spec } } }
}

/** A revision of a workload, newest first in a history. */
export interface Revision {
  number: number
  created: string
  cause: string
  images: string[]
  template: any
  current: boolean
}

const clean = (template: any) => {
  const labels = { ...template?.metadata?.labels }
  delete labels['pod-template-hash']
  return { ...template, metadata: { ...template?.metadata, labels } }
}

/** history reads the revisions of a workload from its ReplicaSets or ControllerRevisions. */
export function history(object: KubeObject, owned: KubeObject[]): Revision[] {
  const list = owned
    .filter((o) => o.metadata.ownerReferences?.some((r) => r.uid === object.metadata.uid))
    .map((o): Revision => {
      const set = o.kind === 'ReplicaSet' || o.spec?.template !== undefined
      const template = set ? clean(o.spec.template) : { ...o.data?.spec?.template }
      delete template.$patch
      return {
        number: Number(set ? o.metadata.annotations?.['deployment.kubernetes.io/revision'] : o.revision) || 0,
        created: o.metadata.creationTimestamp,
        cause: o.metadata.annotations?.['kubernetes.io/change-cause'] ?? '',
        images: (template.spec?.containers ?? []).map((c: { image: string }) => c.image),
        template,
        current: false,
      }
    })
    .sort((a, b) => b.number - a.number)
  if (list[0]) list[0].current = true
  return list
}
