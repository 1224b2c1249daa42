/** One line of a log, or a divider between two runs of it. */
export interface Line {
  id: number
  time: string
  text: string
  divider?: boolean
}

/**
 * Lines holds the last lines of a log. It splits what arrives into lines, takes
 * the server's timestamp off each, and counts what it had to let go.
 */
export class Lines {
  list: Line[] = []
  dropped = 0
  /** The timestamp of the last line: where to go on after a break. */
  last = ''
  private rest = ''
  private next = 0
  private skip = new Set<string>()

  constructor(private readonly max = 100_000) {}

  add(chunk: string): void {
    const parts = (this.rest + chunk).split('\n')
    this.rest = parts.pop()!
    for (const part of parts) this.line(part)
    this.trim()
  }

  /** end flushes a last line without a line break. */
  end(): void {
    if (this.rest) this.line(this.rest)
    this.rest = ''
  }

  divide(text: string): void {
    this.list.push({ id: this.next++, time: '', text, divider: true })
  }

  /**
   * resume prepares for a stream that starts again at the second of the last
   * line: the lines of that second that are here already are passed over.
   */
  resume(): string {
    this.end()
    const second = this.last.slice(0, 19)
    this.skip = new Set(this.list.slice(-5000).filter((l) => l.time.startsWith(second)).map((l) => l.time + ' ' + l.text))
    return this.last && second + 'Z'
  }

  private line(raw: string): void {
    if (this.skip.size) {
      if (this.skip.delete(raw.replace(/\r$/, ''))) return
    }
    const m = /^(\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)) ?(.*)$/s.exec(raw)
    const time = m ? m[1]! : ''
    if (time) this.last = time
    this.list.push({ id: this.next++, time, text: (m ? m[2]! : raw).replace(/\r$/, '') })
  }

  private trim(): void {
    const over = this.list.length - this.max
    if (over <= this.max / 10) return // in lots, since moving an array costs
    this.list.splice(0, over)
    this.dropped += over
  }
}
