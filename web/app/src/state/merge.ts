import type { KubeObject } from '../stream/types'
import { send } from './api'

export type Side = 'mine' | 'theirs'
export type Choices = Record<string, Side>

/** A field that both sides changed, differently. undefined: it is not there. */
export interface Conflict {
  path: string
  base?: unknown
  mine?: unknown
  theirs?: unknown
}

/**
 * merge does to theirs what was done from base to mine, field by field. A field that
 * both changed is a conflict, and stays theirs unless the choice for its path is "mine".
 */
export async function merge(base: KubeObject, mine: unknown, theirs: KubeObject, choices: Choices): Promise<{ object: KubeObject; conflicts: Conflict[] }> {
  return (await send('/orrery/v1/merge', { method: 'POST', body: { base, mine, theirs, choices } })).json()
}
