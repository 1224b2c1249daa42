import type { Line, Lines } from './lines'

/**
 * LogView is what of a log is shown: the lines that match, and, when they wrap,
 * how many rows each takes. It follows the log, and looks at each line once.
 */
export class LogView {
  /** Places of the shown lines in the log; null: all. */
  private hits: number[] | null = null
  /** The row after each shown line; null: every line is one row. */
  private ends: number[] | null = null
  private seen = 0

  constructor(
    private readonly lines: Lines,
    private readonly wanted: RegExp | null,
    /** How many characters fit beside each other; 0: lines don't wrap. */
    private readonly columns = 0,
    private readonly prefix: (l: Line) => number = () => 0,
  ) {
    if (wanted) this.hits = []
    if (columns) this.ends = []
    this.changed(0, 0)
  }

  /** changed takes in what flush said. */
  changed(from: number, gone: number): void {
    if (gone) {
      // The rows of what went are taken from all that stay: begin anew.
      if (this.hits) this.hits = []
      if (this.ends) this.ends = []
      from = 0
    }
    from = Math.min(from, this.seen)
    if (this.hits) while (this.hits.length && this.hits.at(-1)! >= from) this.hits.pop()
    if (this.ends) this.ends.length = this.hits ? this.hits.length : from
    const { list } = this.lines
    for (let i = from; i < list.length; i++) {
      const line = list[i]!
      if (this.hits) {
        if (!line.divider && !this.wanted!.test(line.text)) continue
        this.hits.push(i)
      }
      this.ends?.push((this.ends.at(-1) ?? 0) + this.height(line))
    }
    this.seen = list.length
  }

  get length(): number {
    return this.hits ? this.hits.length : this.lines.list.length
  }

  get rows(): number {
    return this.ends ? (this.ends.at(-1) ?? 0) : this.length
  }

  at(i: number): Line {
    return this.lines.list[this.hits ? this.hits[i]! : i]!
  }

  /** top is the row at which a shown line begins. */
  top(i: number): number {
    return this.ends ? (i ? this.ends[i - 1]! : 0) : i
  }

  /** find is the shown line on a row. */
  find(row: number): number {
    if (!this.ends) return Math.min(this.length, Math.max(0, row))
    let low = 0
    let high = this.ends.length
    while (low < high) {
      const middle = (low + high) >> 1
      if (this.ends[middle]! > row) high = middle
      else low = middle + 1
    }
    return low
  }

  private height(l: Line): number {
    return l.divider ? 1 : Math.max(1, Math.ceil((this.prefix(l) + width(l.text)) / this.columns))
  }
}

const wide = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]/g

/** width of a text in columns: letters of East Asia take two, colours none. */
export function width(text: string): number {
  let n = text.length
  for (let i = text.indexOf('\t'); i >= 0; i = text.indexOf('\t', i + 1)) n += 7
  if (text.includes('\x1b')) n -= text.length - text.replace(/\x1b\[[0-9;:?]*[@-~]/g, '').length
  // eslint-disable-next-line no-control-regex
  if (/[^\x00-\xff]/.test(text)) n += (text.match(wide) ?? []).length
  return n
}
