import type { Cell, Column, Row } from '../stream/types'

/** CPU in thousandths of a core, memory in bytes, as in api/usage.go. */
export interface Amounts {
  cpu: number
  memory: number
}

/** What something uses, and what it may. used is missing where nobody measured. */
export interface Measure {
  used?: Amounts
  requests: Amounts
  limits: Amounts
  /** Of nodes: what pods can have. */
  allocatable?: Amounts
}

const cores = (milli: number): string => (milli >= 10_000 ? String(Math.round(milli / 1000)) : milli >= 1000 ? (milli / 1000).toFixed(1).replace(/\.0$/, '') : `${Math.round(milli)}m`)
export const memory = (bytes: number): string => (bytes >= 10 * 2 ** 30 ? `${Math.round(bytes / 2 ** 30)}Gi` : bytes >= 2 ** 30 ? `${(bytes / 2 ** 30).toFixed(1)}Gi` : `${Math.round(bytes / 2 ** 20)}Mi`)

const column = (name: string, description: string): Column => ({ name, type: 'string', description })

/** Column headers name what a percentage is of: R requests, L limits, A allocatable. */
export const podColumns: Column[] = [
  column('CPU', 'CPU in use'), column('%CPU/R', 'CPU in use, of requests'), column('%CPU/L', 'CPU in use, of limits'),
  column('Mem', 'Memory in use'), column('%Mem/R', 'Memory in use, of requests'), column('%Mem/L', 'Memory in use, of limits'),
]
export const nodeColumns: Column[] = [
  column('CPU', 'CPU in use'), column('%CPU/A', 'CPU in use, of allocatable'), column('CPU/R', 'CPU requests of pods, of allocatable'),
  column('Mem', 'Memory in use'), column('%Mem/A', 'Memory in use, of allocatable'), column('Mem/R', 'Memory requests of pods, of allocatable'),
]
export const namespaceColumns: Column[] = [
  column('CPU', 'CPU in use'), column('CPU/R', 'CPU requests of its pods'), column('CPU/L', 'CPU limits of its pods'),
  column('Mem', 'Memory in use'), column('Mem/R', 'Memory requests of its pods'), column('Mem/L', 'Memory limits of its pods'),
]

const none = 'n/a'
const percent = (part: number | undefined, whole: number | undefined): string => (part === undefined || !whole ? none : `${Math.round((100 * part) / whole)}%`)
const amount = (write: (n: number) => string, n: number | undefined): string => (n === undefined ? none : write(n))

export function podCells(m: Measure | undefined): Cell[] {
  const u = m?.used
  return [amount(cores, u?.cpu), percent(u?.cpu, m?.requests.cpu), percent(u?.cpu, m?.limits.cpu), amount(memory, u?.memory), percent(u?.memory, m?.requests.memory), percent(u?.memory, m?.limits.memory)]
}

export function nodeCells(m: Measure | undefined): Cell[] {
  const u = m?.used
  const a = m?.allocatable
  return [amount(cores, u?.cpu), percent(u?.cpu, a?.cpu), percent(m?.requests.cpu, a?.cpu), amount(memory, u?.memory), percent(u?.memory, a?.memory), percent(m?.requests.memory, a?.memory)]
}

export function namespaceCells(m: Measure | undefined): Cell[] {
  const some = (n: number | undefined) => n || undefined
  return [
    amount(cores, m?.used?.cpu), amount(cores, some(m?.requests.cpu)), amount(cores, some(m?.limits.cpu)),
    amount(memory, m?.used?.memory), amount(memory, some(m?.requests.memory)), amount(memory, some(m?.limits.memory)),
  ]
}

/** total adds up what pods use and may use. */
export function total(list: Measure[]): Measure {
  const sum = { used: { cpu: 0, memory: 0 }, requests: { cpu: 0, memory: 0 }, limits: { cpu: 0, memory: 0 } }
  let known = false
  for (const m of list) {
    known ||= !!m.used
    for (const what of ['used', 'requests', 'limits'] as const) {
      sum[what].cpu += m[what]?.cpu ?? 0
      sum[what].memory += m[what]?.memory ?? 0
    }
  }
  return { ...sum, used: known ? sum.used : undefined }
}

/** Widened remembers rows with more cells, so that what did not change stays as it is. */
export class Widened {
  private cache = new WeakMap<Row, Row>()

  constructor(
    readonly extra: Column[],
    private readonly cells: (row: Row) => Cell[],
  ) {}

  rows(rows: Map<string, Row>): Map<string, Row> {
    const out = new Map<string, Row>()
    for (const [uid, row] of rows) {
      let wide = this.cache.get(row)
      if (!wide) {
        wide = { ...row, cells: [...row.cells, ...this.cells(row)] }
        this.cache.set(row, wide)
      }
      out.set(uid, wide)
    }
    return out
  }
}
