// What a view of logs reads: each container is followed by itself, and what all
// of them write comes together in Lines.
import { Lag } from './lag'
import { Feed, Lines } from './lines'

const mostSources = 60

/** One log: of a container of a pod. */
export interface Source {
  pod: string
  container: string
  label: string
}

export interface Wanted {
  /** Pods come and go; of one pod alone it is known which one. */
  many: boolean
  previous: boolean
  /** Lines of the last so many seconds; "" is the latest lines. */
  since: string
}

/** What a reader needs of the page. */
export interface Page {
  open(s: Source, query: URLSearchParams, signal: AbortSignal): Promise<Response>
  /** containers are those of a pod whose logs are wanted. */
  containers(pod: string): Promise<string[]>
  /** ended tells that a pod's containers write nothing any more. */
  ended(pod: string): boolean
  /** why says what went wrong; final: asking again would not help. */
  why(e: unknown): { text: string; final: boolean }
  words: { goesOn(s: Source): string; gone(s: Source): string; missing(from: string, to: string): string }
  /** arrived is called when there are lines, changed when anything else is new. */
  arrived(): void
  changed(): void
}

export class LogReader {
  readonly lines = new Lines()
  sources: Source[] = []
  /** Logs beyond those that are read at once. */
  beyond = 0
  /** What went wrong, by source or pod. */
  problems: Record<string, string> = {}
  readonly streaming = new Set<string>()
  /** Since when an answer is waited for, by source. */
  readonly waiting = new Map<string, number>()
  private begun = new Set<string>()
  private lags = new Map<string, Lag>()
  private over = new AbortController()
  private leap = new AbortController()
  private nudges = new Set<() => void>()

  constructor(
    private readonly wanted: Wanted,
    private readonly page: Page,
  ) {}

  /** read follows the pods that it does not yet; the followers of those that go end by themselves. */
  read(pods: string[]): void {
    for (const pod of pods) if (!this.begun.has(pod)) void this.begin(pod)
  }

  stop(): void {
    this.over.abort()
  }

  /** behind is how far a reader is behind what is written, in ms. */
  behind(now: number): number {
    return Math.max(0, ...[...this.lags.values()].map((l) => l.at(now)))
  }

  /** jump leaves out what waits to be read, and goes on with now. */
  jump(): void {
    this.leap.abort()
    this.leap = new AbortController()
  }

  /** again asks at once for what failed, or is not answered. */
  again(): void {
    for (const nudge of this.nudges) nudge()
    if (this.waiting.size) this.jump()
    for (const pod of this.begun) {
      if (!this.problems[pod]) continue
      delete this.problems[pod]
      void this.begin(pod)
    }
  }

  mark(text: string): void {
    this.lines.push(-1, new Date().toISOString(), text, true)
    this.page.arrived()
  }

  private async begin(pod: string): Promise<void> {
    this.begun.add(pod)
    let containers: string[]
    try {
      containers = await this.page.containers(pod)
    } catch (e) {
      this.problems[pod] = this.page.why(e).text
      return this.page.changed()
    }
    if (this.over.signal.aborted) return
    for (const container of containers) {
      if (this.sources.length >= mostSources) {
        this.beyond++
        continue
      }
      const s = { pod, container, label: containers.length > 1 ? `${pod}/${container}` : pod }
      this.sources = [...this.sources, s]
      void this.follow(s, new Feed(this.lines, this.sources.length - 1, this.page.words.missing))
    }
    this.page.changed()
  }

  /** follow reads until the log ends, and again as long as the pod is there: a container that restarts goes on under a divider. */
  private async follow(s: Source, feed: Feed): Promise<void> {
    const { signal } = this.over
    const id = `${s.pod}/${s.container}`
    const lag = new Lag()
    this.lags.set(id, lag)
    let resume = ''
    for (let pause = 500; ; pause = Math.min(pause * 2, 5000)) {
      let open = false
      let failed = false
      let final = false
      const leaping = this.leap.signal
      this.waiting.set(id, Date.now())
      this.page.changed()
      try {
        const answer = await this.page.open(s, this.query(s, resume), AbortSignal.any([signal, leaping]))
        // The server's clock is the one that lines are stamped by.
        const skew = Date.parse(answer.headers.get('Date') ?? '') - Date.now() || 0
        open = true
        delete this.problems[id]
        this.waiting.delete(id)
        this.streaming.add(id)
        this.page.changed()
        const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader()
        for (let r = await reader.read(); !r.done; r = await reader.read()) {
          feed.add(r.value)
          lag.hear(Date.parse(feed.last) - skew, Date.now())
          this.page.arrived()
          pause = 500
        }
      } catch (e) {
        if (signal.aborted) return
        if (leaping.aborted) {
          feed.resume(true)
          resume = ''
          continue
        }
        failed = true
        const why = this.page.why(e)
        this.problems[id] = why.text
        final = why.final
      } finally {
        this.streaming.delete(id)
        this.waiting.delete(id)
        this.page.changed()
      }
      if (open) resume = feed.resume(failed)
      this.page.arrived()
      if (this.wanted.many && this.problems[id]?.includes('not found')) {
        delete this.problems[id]
        feed.divide(this.page.words.gone(s))
        return this.page.arrived()
      }
      if (this.wanted.previous && !failed) return
      await this.rest(final || this.wanted.previous ? Infinity : pause)
      if (signal.aborted || (!failed && this.page.ended(s.pod))) return
      if (!failed && feed.count) {
        feed.divide(this.page.words.goesOn(s))
        this.page.arrived()
      }
    }
  }

  private query(s: Source, resume: string): URLSearchParams {
    const query = new URLSearchParams({ timestamps: 'true', [this.wanted.previous ? 'previous' : 'follow']: 'true' })
    if (s.container) query.set('container', s.container)
    if (resume) query.set('sinceTime', resume)
    else if (this.wanted.since) query.set('sinceSeconds', this.wanted.since)
    else query.set('tailLines', this.wanted.many ? '500' : '5000')
    return query
  }

  /** rest waits so long, but not when the reader stops or is told to ask again. */
  private rest(ms: number): Promise<void> {
    return new Promise((done) => {
      const timer = ms === Infinity ? undefined : setTimeout(() => end(), ms)
      const end = () => {
        clearTimeout(timer)
        this.nudges.delete(end)
        this.over.signal.removeEventListener('abort', end)
        done()
      }
      this.nudges.add(end)
      this.over.signal.addEventListener('abort', end)
    })
  }
}
