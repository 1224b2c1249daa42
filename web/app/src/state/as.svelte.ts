import { route } from './route.svelte'

/**
 * Who the page is seen as, if not as the user: the API server lets only those
 * who may impersonate them. It is in the address, as all that a view is made of.
 */
class As {
  get user(): string {
    return route.get('as')
  }

  get groups(): string[] {
    return route.get('asg').split(',').filter(Boolean)
  }

  /** set loads the page anew: nothing that one user saw is left for the other. */
  set(user: string, groups: string[] = []): void {
    location.assign(route.with({ as: user || null, asg: groups.join(',') || null, o: null, t: null, dock: null }))
  }
}

export const as = new As()

/**
 * impersonated says it to the dashboard, which makes headers of it: a websocket
 * of a browser has none, and fetch would write all groups as one.
 */
export function impersonated(path: string): string {
  if (!as.user) return path
  const query = new URLSearchParams([['impersonate-user', as.user], ...as.groups.map((g) => ['impersonate-group', g])])
  return path + (path.includes('?') ? '&' : '?') + query
}
