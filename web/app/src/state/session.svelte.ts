import { connection } from '../stream/connection.svelte'
import { prefs } from './prefs.svelte'

interface Session {
  user: string
  groups?: string[]
  expires: string
  language: 'en' | 'zh-TW'
}

/** Who is signed in. The token itself is out of the page's reach. */
class SessionState {
  phase = $state<'checking' | 'in' | 'out'>('checking')
  user = $state('')
  groups = $state.raw<string[]>([])

  async begin(): Promise<void> {
    connection.onRefused = () => void this.check()
    // "orrery dashboard" opens the page with a token behind the #, which
    // browsers don't send; it must not stay in the history either.
    const token = /^#token=(.+)$/.exec(location.hash)?.[1]
    if (token) {
      history.replaceState(null, '', location.pathname + location.search)
      if ((await this.signIn(decodeURIComponent(token))) === '') return
    }
    await this.check()
  }

  /** check asks who we are; no answer at all changes nothing. */
  async check(): Promise<void> {
    const answer = await fetch('/ui/session').catch(() => null)
    if (answer?.ok) this.enter(await answer.json())
    else if (answer?.status === 401 || this.phase === 'checking') this.leave()
  }

  /** signIn returns what went wrong, or "". */
  async signIn(token: string): Promise<string> {
    const answer = await fetch('/ui/session', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ token }),
    }).catch((e: unknown) => String(e))
    if (typeof answer === 'string') return answer
    const body = await answer.json().catch(() => ({}))
    if (!answer.ok) return body.message ?? answer.statusText
    this.enter(body)
    return ''
  }

  async signOut(): Promise<void> {
    await fetch('/ui/session', { method: 'DELETE' }).catch(() => null)
    this.leave()
  }

  private enter(s: Session): void {
    this.user = s.user
    this.groups = s.groups ?? []
    if (!localStorage.getItem('orrery.language')) prefs.language = s.language
    this.phase = 'in'
    connection.start()
  }

  private leave(): void {
    this.phase = 'out'
    this.user = ''
    connection.stop()
  }
}

export const session = new SessionState()
