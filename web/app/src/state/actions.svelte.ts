import type { Key } from '../i18n/index.svelte'

/** An action that the open object offers: "scale" by its name, with what it does. */
export interface Offer {
  name: string
  text: Key
  run: () => void
}

/** What the palette can offer beside views, while an object is open. */
class Offered {
  list = $state.raw<Offer[]>([])
}

export const offered = new Offered()

// k9s's keys for what can be done with a row, by the kind they are for; of
// several names the first that the object offers is meant.
const keys: [string, RegExp, string][] = [
  ['s', /^(Deployment|StatefulSet|ReplicaSet|ReplicationController)$/, 'scale'],
  ['s', /^CronJob$/, 'suspend,resume'],
  ['r', /^(Deployment|StatefulSet|DaemonSet)$/, 'restart'],
  ['r', /^Node$/, 'drain'],
  ['c', /^Node$/, 'cordon'],
  ['u', /^Node$/, 'uncordon'],
  ['i', /^(Pod|Deployment|StatefulSet|DaemonSet|CronJob)$/, 'image'],
  ['h', /^(Deployment|StatefulSet|DaemonSet)$/, 'history'],
  ['t', /^CronJob$/, 'trigger'],
  ['t', /^Pod$/, 'files'],
  ['f', /^(Pod|Service)$/, 'forward'],
  ['Delete', /./, 'delete'],
]

export const actionOf = (key: string, kind: string): string | undefined => keys.find(([k, kinds]) => k === key && kinds.test(kind))?.[2]
