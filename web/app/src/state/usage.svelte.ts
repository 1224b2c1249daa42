import { namespaceCells, namespaceColumns, nodeCells, nodeColumns, podCells, podColumns, total, Widened, type Measure } from '../lib/usage'
import type { Subscription } from '../stream/connection.svelte'
import type { Column, Row } from '../stream/types'
import { get } from './api'
import type { Kind } from './kinds.svelte'
import { say } from './mutate'

const usagePath = '/orrery/v1/usage'
const every = 15_000

export const canMeasure = (kind: Kind): boolean => kind.group === '' && /^(pods|nodes|namespaces)$/.test(kind.resource)

interface Answer {
  pods?: (Measure & { namespace: string; name: string })[]
  nodes?: (Measure & { name: string })[]
  error?: string
}

/** Usage asks as long as somebody looks, and no more often than kubelets measure. */
class Usage {
  pods = $state.raw(new Map<string, Measure>())
  nodes = $state.raw(new Map<string, Measure>())
  namespaces = $state.raw(new Map<string, Measure>())
  error = $state('')
  private users = 0
  private timer: ReturnType<typeof setTimeout> | undefined

  /** watch is for an effect: it returns what ends it. */
  watch(): () => void {
    if (this.users++ === 0) void this.ask()
    return () => {
      if (--this.users === 0) clearTimeout(this.timer)
    }
  }

  again(): void {
    clearTimeout(this.timer)
    void this.ask()
  }

  private async ask(): Promise<void> {
    if (!document.hidden) {
      try {
        this.take(await get<Answer>(usagePath))
      } catch (e) {
        this.error = say(e)
      }
    }
    if (this.users) this.timer = setTimeout(() => this.ask(), every)
  }

  private take(a: Answer): void {
    this.error = a.error ?? ''
    this.pods = new Map((a.pods ?? []).map((p) => [`${p.namespace}/${p.name}`, p]))
    this.nodes = new Map((a.nodes ?? []).map((n) => [n.name, n]))
    const spaces = new Map<string, Measure[]>()
    for (const p of a.pods ?? []) (spaces.get(p.namespace) ?? spaces.set(p.namespace, []).get(p.namespace)!).push(p)
    this.namespaces = new Map([...spaces].map(([ns, list]) => [ns, total(list)]))
  }
}

export const usage = new Usage()

/** measured is a view with the columns of usage behind its own. */
export function measured(sub: Subscription, kind: Kind) {
  const of = { pods: usage.pods, nodes: usage.nodes, namespaces: usage.namespaces }[kind.resource as 'pods' | 'nodes' | 'namespaces']
  const [extra, cells]: [Column[], (m: Measure | undefined) => ReturnType<typeof podCells>] =
    kind.resource === 'pods' ? [podColumns, podCells] : kind.resource === 'nodes' ? [nodeColumns, nodeCells] : [namespaceColumns, namespaceCells]
  const widened = new Widened(extra, (row: Row) => cells(of.get(row.ns !== undefined ? `${row.ns}/${row.name}` : row.name)))
  return {
    get rows() {
      return widened.rows(sub.rows)
    },
    get columns() {
      return sub.columns.length ? [...sub.columns, ...extra] : sub.columns
    },
    get loaded() {
      return sub.loaded
    },
    get error() {
      return sub.error
    },
  }
}
