import { impersonated } from './as.svelte'

/** A failed request, in the API server's words. */
export class ApiError extends Error {
  constructor(
    readonly code: number,
    message: string,
    readonly reason = '',
  ) {
    super(message)
  }
}

export interface Options {
  method?: string
  body?: string | object
  type?: string
  accept?: string
  signal?: AbortSignal
}

/** send asks the API server as the signed-in user; path is the API's own. */
export async function send(path: string, o: Options = {}): Promise<Response> {
  const headers: Record<string, string> = { Accept: o.accept ?? 'application/json' }
  if (o.body !== undefined) headers['Content-Type'] = o.type ?? 'application/json'
  let answer: Response
  try {
    answer = await fetch('/ui/k8s' + impersonated(path), {
      method: o.method ?? 'GET',
      headers,
      body: o.body === undefined || typeof o.body === 'string' ? o.body : JSON.stringify(o.body),
      signal: o.signal,
    })
  } catch (e) {
    throw o.signal?.aborted ? e : new ApiError(0, String(e))
  }
  if (!answer.ok) throw await failure(answer)
  return answer
}

async function failure(answer: Response): Promise<ApiError> {
  const text = await answer.text()
  try {
    const status = JSON.parse(text)
    if (status.message) return new ApiError(answer.status, status.message, status.reason)
  } catch {
    // Not a Status: the text will do.
  }
  return new ApiError(answer.status, text.trim() || answer.statusText)
}

export async function get<T>(path: string, accept?: string): Promise<T> {
  return (await send(path, { accept })).json()
}
