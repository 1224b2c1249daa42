import { t } from '../i18n/index.svelte'
import { impersonated } from './as.svelte'

/** How long an answer may take to come as a whole: API servers give up later. */
const patience = 30_000

export interface Cause {
  field?: string
  message?: string
}

/** A failed request, in the API server's words. */
export class ApiError extends Error {
  constructor(
    readonly code: number,
    message: string,
    readonly reason = '',
    /** What it says of single fields. */
    readonly causes: Cause[] = [],
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
    throw o.signal?.aborted ? e : new ApiError(0, t('error.unreachable'))
  }
  if (!answer.ok) throw await failure(answer)
  return answer
}

async function failure(answer: Response): Promise<ApiError> {
  const text = await answer.text()
  try {
    const status = JSON.parse(text)
    if (status.message) return new ApiError(answer.status, status.message, status.reason, status.details?.causes)
  } catch {
    // Not a Status: a few words of text will do, a proxy's page will not.
  }
  const words = text.trim()
  return new ApiError(answer.status, words && words.length < 300 && !words.includes('<') ? words : t('error.status', { code: answer.status }))
}

/** get reads what is at a path, which has to have the list that is named. */
export async function get<T>(path: string, { list, accept }: { list?: keyof T; accept?: string } = {}): Promise<T> {
  const late = new AbortController()
  const timer = setTimeout(() => late.abort(), patience)
  try {
    const read = await (await send(path, { accept, signal: late.signal })).json()
    if (read === null || typeof read !== 'object' || (list && !Array.isArray(read[list]))) throw new TypeError()
    return read
  } catch (e) {
    throw e instanceof ApiError ? e : new ApiError(0, t(late.signal.aborted ? 'error.silent' : 'error.garbled'))
  } finally {
    clearTimeout(timer)
  }
}
