import type { Cell, Column, Row } from '../stream/types'

export interface Order {
  column: string
  down: boolean
}

const collator = new Intl.Collator('en', { numeric: true })

/** What kubectl and the page write when there is nothing to write. */
const nothing = new Set(['', '<none>', '<unknown>', '<unset>', 'n/a'])

/**
 * compareCells orders two cells of a column: numbers as numbers, also where they
 * start a text ("2 (5m ago)", "3/4", "10Gi"), texts with digits by their value,
 * times by time. Nothing comes last in either direction: see sorter.
 */
function compareCells(a: Cell, b: Cell, type: string): number {
  if (type === 'age') return Date.parse(String(b)) - Date.parse(String(a)) // the youngest first
  if (typeof a === 'number' && typeof b === 'number') return a - b
  const x = quantity(a)
  const y = quantity(b)
  if (x !== undefined && y !== undefined && x !== y) return x - y
  return collator.compare(String(a), String(b))
}

const units: Record<string, number> = {
  n: 1e-9, u: 1e-6, m: 1e-3, '': 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, '%': 1,
}

function quantity(c: Cell): number | undefined {
  if (typeof c === 'number') return c
  const m = /^(-?\d+(?:\.\d+)?)([numkMGTP]i?|%)?(?:$|[ /])/.exec(String(c))
  const unit = m ? units[m[2] ?? ''] : undefined
  return m && unit !== undefined ? Number(m[1]) * unit : undefined
}

const isNothing = (c: Cell | undefined): boolean => c === null || c === undefined || (typeof c === 'string' && nothing.has(c))

export const byName = (a: Row, b: Row): number => (a.ns === b.ns ? 0 : collator.compare(a.ns ?? '', b.ns ?? '')) || collator.compare(a.name, b.name)

/** compareRows makes the comparison of an order; ties go by namespace and name. */
export function compareRows(order: Order | null, columns: Column[]): (a: Row, b: Row) => number {
  if (!order) return byName
  const sign = order.down ? -1 : 1
  if (order.column === 'Namespace') return (a, b) => sign * collator.compare(a.ns ?? '', b.ns ?? '') || byName(a, b)
  const i = columns.findIndex((c) => c.name === order.column)
  if (i < 0) return byName
  const type = columns[i]!.type
  return (a, b) => {
    const x = a.cells[i]
    const y = b.cells[i]
    const noX = isNothing(x)
    const noY = isNothing(y)
    if (noX || noY) return Number(noX) - Number(noY) || byName(a, b)
    return sign * compareCells(x!, y!, type) || byName(a, b)
  }
}

/**
 * Sorter keeps the last result as the start of the next: between two flushes
 * little moves, and sorting what is nearly sorted takes little more than one
 * comparison a row. By name nothing moves at all, unless rows are new.
 */
export class Sorter {
  private last: string[] = []
  private by: unknown

  sort(rows: Map<string, Row>, keep: (row: Row) => boolean, compare: (a: Row, b: Row) => number): Row[] {
    const out: Row[] = []
    for (const uid of this.last) {
      const row = rows.get(uid)
      if (row && keep(row)) out.push(row)
    }
    const known = out.length
    if (known < rows.size) {
      const seen = new Set(this.last)
      for (const [uid, row] of rows) if (!seen.has(uid) && keep(row)) out.push(row)
    }
    if (out.length > known || compare !== byName || this.by !== byName) out.sort(compare)
    this.by = compare
    this.last = out.map((row) => row.uid)
    return out
  }
}
