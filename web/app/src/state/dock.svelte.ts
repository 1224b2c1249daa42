import { route } from './route.svelte'

/**
 * A tab of the dock: logs of, or a terminal in, a pod's container. Logs may be
 * of many pods, too: then pod is what selects them ("deployments.apps/cart", or
 * names with "+" between), and container "*" is all of each.
 */
export interface Tab {
  what: (typeof whats)[number]
  ns: string
  pod: string
  container: string
}
const whats = ['logs', 'shell', 'attach'] as const

const write = (t: Tab): string => [t.what, t.ns, t.pod, t.container].join(':')

/** The dock lives in the address, so it survives both navigation and reload. */
class Dock {
  get tabs(): Tab[] {
    return route.get('dock').split(',').filter(Boolean).map((s) => {
      const [what, ns = '', pod = '', container = ''] = s.split(':')
      return { what: whats.find((w) => w === what) ?? 'logs', ns, pod, container }
    })
  }

  get front(): number {
    return Math.min(Number(route.get('d')) || 0, this.tabs.length - 1)
  }

  open(tab: Tab): void {
    const tabs = this.tabs.map(write)
    let i = tabs.indexOf(write(tab))
    if (i < 0) i = tabs.push(write(tab)) - 1
    this.save(tabs, i)
  }

  close(i: number): void {
    const tabs = this.tabs.map(write)
    tabs.splice(i, 1)
    this.save(tabs, this.front >= i ? this.front - 1 : this.front)
  }

  show(i: number): void {
    route.set({ d: i > 0 ? String(i) : null })
  }

  /** key tells tabs apart, so that one keeps running while others come and go. */
  key(t: Tab): string {
    return write(t)
  }

  replace(i: number, tab: Tab): void {
    const tabs = this.tabs.map(write)
    tabs[i] = write(tab)
    this.save(tabs, i)
  }

  private save(tabs: string[], front: number): void {
    route.set({ dock: tabs.join(',') || null, d: front > 0 ? String(front) : null })
  }
}

export const dock = new Dock()
