import { t } from '../i18n/index.svelte'
import { connection } from '../stream/connection.svelte'
import { prefs } from './prefs.svelte'

interface Session {
  user: string
  groups?: string[]
  ends: string
  renew?: string
  oidc?: boolean
  foreign?: boolean
  language: 'en' | 'zh-TW'
}

/** Who is signed in. The token itself is out of the page's reach. */
class SessionState {
  phase = $state<'checking' | 'in' | 'out'>('checking')
  user = $state('')
  groups = $state.raw<string[]>([])
  /** When the session ends, whatever is done in it. */
  ends = $state(Infinity)
  /** The API server is not orrery's: it can't show its own insides. */
  foreign = $state(false)
  private oidc = false
  /** What went wrong with the link that led here. */
  problem = $state('')
  /** Why it is not known who we are, as long as it is not. */
  unknown = $state('')
  private again: ReturnType<typeof setInterval> | undefined
  private retry: ReturnType<typeof setTimeout> | undefined

  async begin(): Promise<void> {
    connection.onRefused = () => void this.check()
    // "orrery dashboard" opens the page with a code behind the #, which browsers
    // don't send, and which is good once; it must not stay in the history either.
    const code = /^#code=(.+)$/.exec(location.hash)?.[1]
    if (code) {
      history.replaceState(null, '', location.pathname + location.search)
      this.problem = await this.signIn({ code })
      if (this.problem === '') return
    }
    await this.check()
  }

  /** check asks who we are; no answer at all changes nothing. */
  async check(): Promise<void> {
    clearTimeout(this.retry)
    const answer = await fetch('/ui/session', { signal: AbortSignal.timeout(15_000) }).catch(() => null)
    const session = answer?.ok && (await answer.json().catch(() => null))
    if (session?.user) return this.enter(session)
    if (answer?.status === 401) return this.leave()
    if (this.phase !== 'checking') return
    this.unknown = !answer ? t('error.unreachable') : answer.ok ? t('error.garbled') : t('error.status', { code: answer.status })
    this.retry = setTimeout(() => void this.check(), 3000)
  }

  /** signIn returns what went wrong, or "". */
  async signIn(by: { token: string } | { code: string }): Promise<string> {
    const answer = await fetch('/ui/session', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(by),
    }).catch((e: unknown) => String(e))
    if (typeof answer === 'string') return answer
    const body = await answer.json().catch(() => ({}))
    if (!answer.ok) return body.message ?? answer.statusText
    this.enter(body)
    return ''
  }

  async signOut(): Promise<void> {
    if (this.oidc) return location.assign('/ui/oidc/end') // where the issuer is told, too
    await fetch('/ui/session', { method: 'DELETE' }).catch(() => null)
    this.leave()
  }

  /** signInAgain makes the session a new one before it ends. */
  signInAgain(): void {
    if (this.oidc) location.assign('/ui/oidc/start')
    else void this.signOut()
  }

  private enter(s: Session): void {
    this.user = s.user
    this.groups = s.groups ?? []
    if (!localStorage.getItem('orrery.language')) prefs.language = s.language
    this.ends = Date.parse(s.ends)
    this.oidc = s.oidc === true
    this.foreign = s.foreign === true
    this.phase = 'in'
    // The session lives on while it is used, and a websocket is no use of it.
    clearInterval(this.again)
    const renew = s.renew ? Math.max(30_000, Date.parse(s.renew) - Date.now() + 1000) : Infinity
    this.again = setInterval(() => void this.check(), Math.min(10 * 60_000, renew))
    connection.start()
  }

  private leave(): void {
    this.phase = 'out'
    this.user = ''
    clearInterval(this.again)
    connection.stop()
  }
}

export const session = new SessionState()
