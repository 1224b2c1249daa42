import { t } from '../i18n/index.svelte'
import { changes, type ChangeName } from '../lib/change'
import { can, needs, type Permission } from './access'
import { send } from './api'
import { urlOf, type Kind } from './kinds.svelte'
import { toasts } from './toasts.svelte'

export const manager = 'fieldManager=orrery-dashboard'

/** say words a failure. What is no failed request came of an answer that is not what it should be. */
export const say = (e: unknown): string => (e instanceof TypeError ? t('error.garbled') : e instanceof Error ? e.message : String(e))

/** patch changes one object, and says how it went. */
export async function patch(url: string, body: object, type: string, done: string): Promise<boolean> {
  try {
    await send(`${url}?${manager}`, { method: 'PATCH', body, type })
    toasts.say(done)
    return true
  } catch (e) {
    toasts.say(say(e), true)
    return false
  }
}

/** each does something to every target, a few at a time, and says how it went once. */
export async function each<T extends { ns?: string; name: string }>(targets: T[], act: (x: T) => Promise<unknown>, done: (x: T) => string, many: string): Promise<void> {
  const failed: string[] = []
  const queue = [...targets]
  const worker = async () => {
    for (let x = queue.shift(); x; x = queue.shift()) await act(x).catch((e: unknown) => failed.push(`${x.name}: ${say(e)}`))
  }
  await Promise.all(Array.from({ length: 6 }, worker))
  if (failed.length) toasts.say([...failed.slice(0, 3), ...(failed.length > 3 ? [t('more', { count: failed.length - 3 })] : [])].join('\n'), true)
  else toasts.say(targets.length === 1 ? done(targets[0]!) : many)
}

/** change does one of the changes to many objects. */
export function change(kind: Kind, name: ChangeName, targets: { ns?: string; name: string }[]): Promise<void> {
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
