/** One line of a log, or a divider between two runs of it. */
export interface Line {
  id: number
  time: string
  text: string
  /** Which of the sources it came from; -1 is none. */
  source: number
  divider?: boolean
}

/**
 * Lines holds the last lines of one log or several, in the order of their
 * timestamps, and counts what it had to let go. What comes in waits in feeds
 * until flush, so that a burst is put in order once.
 */
export class Lines {
  list: Line[] = []
  dropped = 0
  private incoming: Line[] = []
  private next = 0

  constructor(private readonly max = 1_000_000) {}

  push(source: number, time: string, text: string, divider = false): void {
    this.incoming.push({ id: this.next++, time, text, source, divider: divider || undefined })
  }

  /**
   * flush puts in what came. It returns the first place that changed, and how
   * many lines went at the front; the place is counted after that.
   */
  flush(): { from: number; gone: number } {
    if (!this.incoming.length) return { from: this.list.length, gone: 0 }
    const lot = this.incoming
    this.incoming = []
    if (lot.some((l, i) => i > 0 && later(lot[i - 1]!, l))) lot.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : a.id - b.id))
    // Several sources are seldom more than a moment apart.
    let from = this.list.length
    while (from > 0 && later(this.list[from - 1]!, lot[0]!)) from--
    const tail = this.list.splice(from)
    let i = 0
    for (const l of lot) {
      while (i < tail.length && !later(tail[i]!, l)) this.list.push(tail[i++]!)
      this.list.push(l)
    }
    while (i < tail.length) this.list.push(tail[i++]!)
    // In lots, since moving an array costs.
    const over = this.list.length - this.max
    if (over <= this.max / 10) return { from, gone: 0 }
    this.list.splice(0, over)
    this.dropped += over
    return { from: Math.max(0, from - over), gone: over }
  }
}

// Timestamps differ in how many digits of the second they have.
const full = (time: string): string => (time.length === 30 ? time : time.slice(0, 19) + (time[19] === '.' ? time.slice(19, -1) : '.').padEnd(10, '0') + 'Z')
const key = (l: Line): string => full(l.time)
const later = (a: Line, b: Line): boolean => a.time !== '' && b.time !== '' && a.time !== b.time && key(a) > key(b)

/**
 * Feed is one source of lines: it splits what arrives, takes the server's
 * timestamp off each line, and can go on where a stream broke off.
 */
export class Feed {
  /** The timestamp of the last line: where to go on after a break. */
  last = ''
  count = 0
  private rest = ''
  private second: string[] = [] // the raw lines of the last second
  private skip = new Map<string, number>()
  private gap = '' // what was written after this may be missing
  private joined = false // it is not

  /** missing words a divider between lines that have others between them. */
  constructor(
    private readonly lines: Lines,
    private readonly source = 0,
    private readonly missing: (from: string, to: string) => string = () => '',
  ) {}

  add(chunk: string): void {
    const parts = (this.rest + chunk).split('\n')
    this.rest = parts.pop()!
    for (const part of parts) this.line(part)
  }

  /** end flushes a last line without a line break. */
  end(): void {
    if (this.rest) this.line(this.rest)
    this.rest = ''
  }

  divide(text: string): void {
    this.lines.push(this.source, this.last, text, true)
  }

  /**
   * resume prepares for a stream that starts again at the second of the last
   * line: the lines of that second that are here already are passed over. If
   * the last stream broke off, or the new one leaps ahead, and it has none of
   * them, then lines are missing between the two, which a divider says.
   */
  resume(broken = false): string {
    if (broken) this.rest = '' // half a line comes again as a whole
    this.end()
    this.gap = broken ? this.last : ''
    this.joined = false
    this.skip = new Map()
    for (const raw of this.second) this.skip.set(raw, (this.skip.get(raw) ?? 0) + 1)
    return this.last && this.last.slice(0, 19) + 'Z'
  }

  private line(text: string): void {
    const raw = text.replace(/\r$/, '')
    const again = this.skip.get(raw)
    if (again) {
      again > 1 ? this.skip.set(raw, again - 1) : this.skip.delete(raw)
      this.joined = true
      return
    }
    const m = /^(\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)) ?(.*)$/s.exec(raw)
    if (m && this.gap) {
      if (full(m[1]!) < full(this.gap)) {
        this.joined = true
        return
      }
      if (!this.joined) this.lines.push(this.source, m[1]!, this.missing(this.gap, m[1]!), true)
      this.gap = ''
    }
    if (m) {
      if (this.last.slice(0, 19) !== m[1]!.slice(0, 19)) this.second = []
      this.second.push(raw)
      this.last = m[1]!
    }
    this.count++
    this.lines.push(this.source, this.last, m ? m[2]! : raw)
  }
}
