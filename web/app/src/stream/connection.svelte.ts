import { impersonated } from '../state/as.svelte'
import { ViewData } from './rows'
import { streamPath, streamProtocol, type Ask, type Column, type Row, type Tell, type View } from './types'

export type Health = 'connecting' | 'live' | 'reconnecting'

/** A server that says nothing for this long, pings included, is gone. */
const silence = 25_000
/** A server that has just been started may refuse so long what it will allow once it has read all roles. */
const settling = 30_000
/** How long a view nobody looks at stays open, so that going back is instant. */
const linger = 10_000

/** Subscription is one view, shared by all parts of the page that show it. */
export class Subscription {
  readonly data = new ViewData()
  /** Grows with every change, at most once a frame; readers depend on it. */
  version = $state(0)
  users = 0
  closing: ReturnType<typeof setTimeout> | undefined
  private scheduled = false

  constructor(
    readonly id: number,
    readonly view: View,
  ) {}

  changed(): void {
    if (this.scheduled) return
    this.scheduled = true
    // A hidden tab has no frames, and must not pile up work for later.
    const later = document.hidden ? (f: () => void) => setTimeout(f, 500) : requestAnimationFrame
    later(() => {
      this.scheduled = false
      this.version++
    })
  }

  get rows(): Map<string, Row> {
    void this.version
    return this.data.rows
  }
  get columns(): Column[] {
    void this.version
    return this.data.columns
  }
  get object() {
    void this.version
    return this.data.object
  }
  get loaded(): boolean {
    void this.version
    return this.data.loaded
  }
  get error() {
    void this.version
    return this.data.error
  }
}

/** Connection is the one websocket of the page. */
class Connection {
  health = $state<Health>('connecting')
  /** The newest revision that any view has reached. */
  revision = $state('')
  /** When the connection was lost, while it is. */
  lostAt = $state(0)
  /** Called when the server may no longer know us. */
  onRefused: () => void = () => {}

  private socket: WebSocket | null = null
  private subs = new Map<number, Subscription>()
  private shared = new Map<string, Subscription>()
  private nextID = 1
  private attempt = 0
  private openedAt = 0
  private retry: ReturnType<typeof setTimeout> | undefined
  private watchdog: ReturnType<typeof setTimeout> | undefined
  private wanted = false

  start(): void {
    if (this.wanted) return
    this.wanted = true
    this.connect()
    addEventListener('online', this.now)
    addEventListener('offline', this.offline)
    document.addEventListener('visibilitychange', this.now)
  }

  stop(): void {
    this.wanted = false
    removeEventListener('online', this.now)
    removeEventListener('offline', this.offline)
    document.removeEventListener('visibilitychange', this.now)
    clearTimeout(this.retry)
    clearTimeout(this.watchdog)
    this.socket?.close()
    this.socket = null
    this.subs.clear()
    this.shared.clear()
  }

  /** open shares the subscription of a view; release gives it back. */
  open(view: View): Subscription {
    const key = JSON.stringify([view.group ?? '', view.resource, view.namespaces ?? [], view.name ?? '', view.labelSelector ?? '', view.fieldSelector ?? '', view.columns ?? []])
    let sub = this.shared.get(key)
    if (!sub || sub.data.error) {
      sub = new Subscription(this.nextID++, view)
      this.shared.set(key, sub)
      this.subs.set(sub.id, sub)
      this.ask({ id: sub.id, op: 'open', view })
    }
    clearTimeout(sub.closing)
    sub.users++
    return sub
  }

  release(sub: Subscription): void {
    if (--sub.users > 0) return
    sub.closing = setTimeout(() => {
      this.subs.delete(sub.id)
      for (const [key, other] of this.shared) if (other === sub) this.shared.delete(key)
      this.ask({ id: sub.id, op: 'close' })
    }, linger)
  }

  /** again drops the connection, if there is one, and asks for all views anew. */
  again(): void {
    this.attempt = 0
    for (const sub of this.subs.values()) {
      sub.data.forget()
      sub.changed()
    }
    if (this.health === 'live') this.broken()
    this.connect()
  }

  private ask(a: Ask): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(a))
  }

  private now = (): void => {
    if (this.health === 'live' || !this.wanted || document.hidden) return
    this.attempt = 0
    this.connect()
  }

  private offline = (): void => this.socket?.close()

  private connect(): void {
    clearTimeout(this.retry)
    const old = this.socket
    this.socket = null
    old?.close()
    const socket = new WebSocket(`${location.origin.replace(/^http/, 'ws')}/ui/k8s${impersonated(streamPath)}`, streamProtocol)
    this.socket = socket
    this.alive()
    let opened = false
    socket.onopen = () => {
      opened = true
      this.openedAt = Date.now()
      this.health = 'live'
      this.lostAt = 0
      this.alive()
      for (const sub of this.subs.values()) {
        if (sub.data.error && !sub.data.error.retry) continue
        this.ask({ id: sub.id, op: 'open', view: sub.view, revision: sub.data.revision || undefined })
      }
    }
    socket.onmessage = (e) => {
      if (this.socket !== socket) return
      try {
        this.hear(JSON.parse(e.data))
      } catch {
        socket.close() // what is said there is not ours
      }
    }
    socket.onclose = () => {
      if (this.socket !== socket) return
      this.socket = null
      this.lost(opened)
    }
  }

  private lost(wasOpen: boolean): void {
    clearTimeout(this.watchdog)
    if (!this.wanted) return
    this.broken()
    for (const sub of this.subs.values()) sub.changed()
    if (!wasOpen) this.onRefused()
    const pause = Math.min(3000, 200 * 2 ** this.attempt++)
    this.retry = setTimeout(() => this.connect(), pause * (0.75 + Math.random() / 2))
  }

  private broken(): void {
    if (this.health === 'live') this.lostAt = Date.now()
    this.health = this.lostAt ? 'reconnecting' : 'connecting'
  }

  private alive(): void {
    clearTimeout(this.watchdog)
    this.watchdog = setTimeout(() => this.socket?.close(), silence)
  }

  private hear(m: Tell): void {
    this.alive()
    const sub = this.subs.get(m.id)
    if (!sub) return
    if (m.error && sub.data.loaded && Date.now() - this.openedAt < settling) m.error.retry = true
    const revision = sub.data.apply(m)
    this.attempt = 0
    if (revision) {
      this.ask({ id: m.id, op: 'ack', revision })
      if (newer(revision, this.revision)) this.revision = revision
    }
    sub.changed()
    if (m.error?.retry) setTimeout(() => this.subs.has(sub.id) && this.ask({ id: sub.id, op: 'open', view: sub.view }), 2000)
  }
}

/** Revisions are numbers too long to trust to a double. */
function newer(a: string, b: string): boolean {
  return a.length > b.length || (a.length === b.length && a > b)
}

export const connection = new Connection()

/**
 * use opens a view for as long as the component that asks lives; with a
 * function, the view follows what the function reads.
 */
export function use(view: () => View | null): { readonly sub: Subscription | null } {
  let sub = $state.raw<Subscription | null>(null)
  const key = $derived(JSON.stringify(view()))
  $effect(() => {
    const wanted: View | null = JSON.parse(key)
    if (!wanted) {
      sub = null
      return
    }
    const mine = connection.open(wanted)
    sub = mine
    return () => connection.release(mine)
  })
  return {
    get sub() {
      return sub
    },
  }
}
