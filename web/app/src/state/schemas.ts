import type { Schemas } from '../lib/schema'
import { get } from './api'
import type { Kind } from './kinds.svelte'

const known = new Map<string, Promise<object>>()

/** schemasOf loads what the API server says of a kind's group version, once. */
export async function schemasOf(kind: Kind): Promise<Schemas> {
  const path = kind.group ? `apis/${kind.group}/${kind.version}` : `api/${kind.version}`
  let document = known.get(path)
  if (!document) {
    document = get<{ paths: Record<string, { serverRelativeURL: string }> }>('/openapi/v3').then((index) => get<object>(index.paths[path]!.serverRelativeURL))
    known.set(path, document)
    document.catch(() => known.delete(path))
  }
  const { Schemas } = await import('../lib/schema')
  return Schemas.of(await document, kind.group, kind.version, kind.kind)
}
