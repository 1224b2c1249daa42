/** Lines that come less than this after each other come without a break. */
const pause = 1500

/**
 * Lag is how far behind a log its reader is. That lines are old is not enough:
 * each log begins with old ones, and a quiet one has no others. But lines that
 * are old, keep coming, and have been coming for a while, are a backlog.
 */
export class Lag {
  private began = 0
  private last = 0
  private behind = 0

  /** hear is told when the newest line that came was written; all times are in ms. */
  hear(written: number, now: number): void {
    if (now - this.last > pause) this.began = now
    this.last = now
    this.behind = now - written
  }

  at(now: number): number {
    return now - this.last < pause && this.last - this.began > 2000 && this.behind > 3000 ? this.behind : 0
  }
}
