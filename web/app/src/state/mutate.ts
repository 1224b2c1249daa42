import { t } from '../i18n/index.svelte'
import { changes, type ChangeName } from '../lib/change'
import { can, needs, type Permission } from './access'
import { send } from './api'
import { urlOf, type Kind } from './kinds.svelte'
import { toasts } from './toasts.svelte'

export const manager = 'fieldManager=orrery-dashboard'

/** say words a failure. What is no failed request came of an answer that is not what it should be. */
export const say = (e: unknown): string => (e instanceof TypeError ? t('error.garbled') : e instanceof Error ? e.message : String(e))

/** complain tells of a failure where there is no other place for it. */
export const complain = (e: unknown): void => toasts.say(say(e), true)

/** some is the first lines of many, and how many more there are. */
export const some = (lines: string[]): string => [...lines.slice(0, 3), ...(lines.length > 3 ? [t('more', { count: lines.length - 3 })] : [])].join('\n')

/** patch changes one object, and says so. */
export async function patch(url: string, body: object, type: string, done: string): Promise<void> {
  await send(`${url}?${manager}`, { method: 'PATCH', body, type })
  toasts.say(done)
}

export interface Target {
  ns?: string
  name: string
}

/** Undone is what each could not do, and why. */
export class Undone extends Error {
  constructor(
    readonly targets: Target[],
    whys: string[],
  ) {
    super(some(whys))
  }
}

/** each does something to every target, a few at a time, and says so once. */
export async function each(targets: Target[], act: (x: Target) => Promise<unknown>, done: (x: Target) => string, many: string): Promise<void> {
  const failed: [Target, string][] = []
  const queue = [...targets]
  const worker = async () => {
    for (let x = queue.shift(); x; x = queue.shift()) await act(x).catch((e: unknown) => failed.push([x, `${x.name}: ${say(e)}`]))
  }
  await Promise.all(Array.from({ length: 6 }, worker))
  if (failed.length) throw new Undone(failed.map(([x]) => x), failed.map(([, why]) => why))
  toasts.say(targets.length === 1 ? done(targets[0]!) : many)
}

/** change does one of the changes to many objects. */
export function change(kind: Kind, name: ChangeName, targets: Target[]): Promise<void> {
  const { type, body } = changes[name]
  return each(
    targets,
    (x) => send(`${urlOf(kind, x.ns, x.name)}?${manager}`, { method: 'PATCH', body: body(), type }),
    (x) => t(`done.${name}`, { name: x.name }),
    t('done.many', { count: targets.length }),
  )
}

/** missing asks for all namespaces of the targets, and returns what is missing, or "". */
export async function missing(p: Permission, targets: { ns?: string }[]): Promise<string> {
  for (const namespace of new Set(targets.map((x) => x.ns))) {
    const asked = { ...p, namespace }
    if (!(await can(asked))) return needs(asked)
  }
  return ''
}
