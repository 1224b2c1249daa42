import type { Row } from '../stream/types'

/** What is deleted: objects of one kind. */
export interface Target {
  kind: string
  ns?: string
  name: string
}

export interface Budget {
  ns: string
  name: string
  allowed: number
  hits: number
}

export interface Service {
  ns: string
  name: string
  lost: number
  left: number
}

/** What deleting takes along, beyond the targets themselves. */
export interface Blast {
  dependents: { kind: string; rows: Row[] }[]
  pods: Row[]
  budgets: Budget[]
  services: Service[]
}

interface Selecting {
  metadata: { name: string; namespace?: string }
  spec?: { selector?: any }
  status?: { disruptionsAllowed?: number }
}

/**
 * blast follows the controllers of rows down from the targets, and asks which
 * disruption budgets and Services the pods among them count for. With orphan,
 * dependents stay. nodeOf is needed for nodes only: their pods go with them.
 */
export function blast(targets: Target[], all: Record<string, Iterable<Row>>, budgets: Selecting[], services: Selecting[], orphan = false, nodeOf: (pod: Row) => string = () => ''): Blast {
  const doomed = new Set(targets.map((x) => `${x.ns ?? ''}/${x.kind}/${x.name}`))
  const on = new Set(targets.filter((x) => x.kind === 'Node').map((x) => x.name))
  const found = new Map<string, Row[]>()
  const pods: Row[] = []
  const rows = Object.fromEntries(Object.entries(all).map(([kind, list]) => [kind, [...list]]))
  const everyPod = rows.Pod ?? []
  if (!orphan) {
    for (let grew = true; grew; ) {
      grew = false
      for (const [kind, list] of Object.entries(rows)) {
        for (const row of list) {
          const id = `${row.ns ?? ''}/${kind}/${row.name}`
          if (doomed.has(id) || !row.owner || !doomed.has(`${row.ns ?? ''}/${row.owner}`)) continue
          doomed.add(id)
          found.set(kind, [...(found.get(kind) ?? []), row])
          grew = true
        }
      }
    }
  }
  for (const row of everyPod) if (doomed.has(`${row.ns ?? ''}/Pod/${row.name}`) || on.has(nodeOf(row))) pods.push(row)
  const ready = (r: Row) => r.state === 'ok'
  return {
    dependents: [...found].map(([kind, list]) => ({ kind, rows: list })),
    pods,
    budgets: budgets
      .map((b) => ({ ns: b.metadata.namespace ?? '', name: b.metadata.name, allowed: b.status?.disruptionsAllowed ?? 0, hits: pods.filter((p) => p.ns === b.metadata.namespace && selects(b.spec?.selector, p)).length }))
      .filter((b) => b.hits),
    services: services
      .map((s) => {
        const picked = s.spec?.selector && Object.keys(s.spec.selector).length ? everyPod.filter((p) => p.ns === s.metadata.namespace && ready(p) && selects({ matchLabels: s.spec!.selector }, p)) : []
        const lost = picked.filter((p) => pods.includes(p)).length
        return { ns: s.metadata.namespace ?? '', name: s.metadata.name, lost, left: picked.length - lost }
      })
      .filter((s) => s.lost),
  }
}

/** selects applies a LabelSelector; none selects nothing. */
export function selects(selector: { matchLabels?: Record<string, string>; matchExpressions?: { key: string; operator: string; values?: string[] }[] } | undefined, row: Row): boolean {
  if (!selector) return false
  const labels = row.labels ?? {}
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
