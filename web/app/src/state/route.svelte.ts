/**
 * Where the page is: a path below /ui, and parameters. All that a reload or a
 * link should bring back is here:
 *
 *   ns     namespaces, with commas; none: all
 *   q sort the table's filter and order ("Age", "-Age" downwards)
 *   cols   the table's columns (see lib/columns.ts)
 *   o t    the object in the inspector (pods/shop/cart-1, deployments.apps/shop/cart) and its tab
 *   as asg the user and groups that the page is seen as, if not as who is signed in
 *   act    an action to begin with the object
 *   dock   the tabs of the dock; d is the one in front, from 0
 */
const base = '/ui'

class Route {
  path = $state('/')
  params = $state.raw(new URLSearchParams())

  constructor() {
    this.read()
    addEventListener('popstate', () => this.read())
  }

  private read(): void {
    this.path = location.pathname.slice(base.length) || '/'
    this.params = new URLSearchParams(location.search)
  }

  get(name: string): string {
    return this.params.get(name) ?? ''
  }

  get namespaces(): string[] {
    return this.get('ns').split(',').filter(Boolean)
  }

  /** with is the address of this place with some parameters changed. */
  with(changes: Record<string, string | null>, path = this.path): string {
    const p = new URLSearchParams(this.params)
    for (const [k, v] of Object.entries(changes)) v ? p.set(k, v) : p.delete(k)
    const query = p.toString().replaceAll('%2F', '/').replaceAll('%2C', ',').replaceAll('%3A', ':')
    return base + path + (query ? '?' + query : '')
  }

  /** to is the address of another view, with what spans views kept. */
  to(path: string, extra: Record<string, string> = {}): string {
    return this.with({ q: null, sort: null, cols: null, o: null, t: null, edit: null, act: null, wide: null, focus: null, view: null, ...extra }, path)
  }

  go(url: string, replace = false): void {
    if (url === location.pathname + location.search) return
    history[replace ? 'replaceState' : 'pushState'](null, '', url)
    this.read()
  }

  set(changes: Record<string, string | null>, replace = true): void {
    this.go(this.with(changes), replace)
  }
}

export const route = new Route()

/** follow makes ordinary links change the view instead of loading a page. */
export function follow(e: MouseEvent): void {
  if (e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey) return
  const a = (e.target as Element).closest('a')
  if (!a || a.target || !a.pathname.startsWith(base) || a.origin !== location.origin || a.hasAttribute('download')) return
  e.preventDefault()
  route.go(a.pathname + a.search)
}
