import type { Column, KubeObject, Row, StreamError, Tell } from './types'

/**
 * What a face holds of one view. It is plain data and knows nothing of sockets
 * or of drawing: apply is all that ever changes it.
 */
export class ViewData {
  columns: Column[] = []
  rows = new Map<string, Row>()
  object: KubeObject | null = null
  /** The revision that everything here reflects; where a new connection resumes. */
  revision = ''
  /** A first snapshot has arrived. */
  loaded = false
  /** The server's own view of the data is up to date. */
  live = false
  error: StreamError | null = null

  /** forget makes it as it was before a refusal, to be asked for anew. */
  forget(): void {
    if (!this.error) return
    if (!this.error.retry) this.loaded = false
    this.error = null
  }

  /** apply takes one message, and returns the revision to acknowledge, if any. */
  apply(m: Tell): string | undefined {
    switch (m.type) {
      case 'columns':
        this.columns = m.columns ?? []
        return
      case 'error':
        this.error = m.error ?? { code: 0, message: '' }
        this.live = false
        // What is refused for good, or is no more, may not stay on screen.
        if (!this.error.retry) {
          this.rows.clear()
          this.object = null
          this.revision = ''
        }
        return
      case 'object':
        if (m.object) this.object = m.object
        else if (m.reset || m.gone?.length) this.object = null
        break
      case 'rows':
        if (m.reset) {
          this.rows.clear()
          this.revision = ''
        }
        for (const row of m.rows ?? []) this.rows.set(row.uid, row)
        for (const uid of m.gone ?? []) this.rows.delete(uid)
        break
      default:
        return
    }
    this.error = null
    // A message without a revision is a part of a larger one.
    if (!m.revision) return
    this.revision = m.revision
    this.live = m.live ?? false
    this.loaded = true
    return m.revision
  }
}
