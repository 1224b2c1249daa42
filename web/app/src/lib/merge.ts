/** A field that both sides changed, differently. undefined: it is not there. */
export interface Conflict {
  path: string
  base: unknown
  mine: unknown
  theirs: unknown
}

type Fields = Record<string, unknown>
const isFields = (v: unknown): v is Fields => typeof v === 'object' && v !== null && !Array.isArray(v)

export function same(a: unknown, b: unknown): boolean {
  if (a === b) return true
  if (Array.isArray(a)) return Array.isArray(b) && a.length === b.length && a.every((x, i) => same(x, b[i]))
  if (!isFields(a) || !isFields(b)) return false
  const keys = Object.keys(a).filter((k) => a[k] !== undefined)
  return keys.length === Object.keys(b).filter((k) => b[k] !== undefined).length && keys.every((k) => same(a[k], b[k]))
}

// What tells the items of a list apart, where they have it: as the API's own
// list-map-keys are, for nearly all kinds.
const keys = ['name', 'mountPath', 'containerPort', 'type', 'key', 'uid', 'ip', 'topologyKey'] as const

/** keyOf finds the field by which all the lists are keyed, without doubles. */
function keyOf(...lists: unknown[][]): string | undefined {
  return keys.find((k) =>
    lists.every((list) => list.every((x) => isFields(x) && typeof x[k] !== 'object' && x[k] !== undefined) && new Set(list.map((x) => (x as Fields)[k])).size === list.length),
  )
}

/**
 * merge does to theirs what was done from base to mine, field by field; lists
 * whose items have names go by the names. A field that both changed is a
 * conflict, and stays theirs unless the choice for its path is "mine".
 */
export function merge(base: unknown, mine: unknown, theirs: unknown, choices: Record<string, 'mine' | 'theirs'> = {}): { merged: unknown; conflicts: Conflict[] } {
  const conflicts: Conflict[] = []
  const three = (path: string, b: unknown, m: unknown, t: unknown): unknown => {
    if (same(b, m)) return t
    if (same(b, t) || same(m, t)) return m
    if (isFields(m) && isFields(t)) return fields(path, isFields(b) ? b : {}, m, t)
    if (Array.isArray(m) && Array.isArray(t)) {
      const was = Array.isArray(b) ? b : []
      const key = keyOf(was, m, t)
      if (key) return list(path, key, was, m, t)
    }
    conflicts.push({ path, base: b, mine: m, theirs: t })
    return choices[path] === 'mine' ? m : t
  }
  const fields = (path: string, b: Fields, m: Fields, t: Fields): Fields => {
    const out: Fields = {}
    for (const k of new Set([...Object.keys(t), ...Object.keys(m)])) {
      const v = three(path ? `${path}.${k}` : k, b[k], m[k], t[k])
      if (v !== undefined) out[k] = v
    }
    return out
  }
  const list = (path: string, key: string, b: unknown[], m: unknown[], t: unknown[]): unknown[] => {
    const find = (l: unknown[], k: unknown) => l.find((x) => (x as Fields)[key] === k)
    const order = [...new Set([...m, ...t].map((x) => (x as Fields)[key]))]
    return order.map((k) => three(`${path}[${key}=${k}]`, find(b, k), find(m, k), find(t, k))).filter((x) => x !== undefined)
  }
  return { merged: three('', base, mine, theirs), conflicts }
}
