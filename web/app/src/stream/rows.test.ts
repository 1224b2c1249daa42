import { describe, expect, test } from 'vitest'
import { ViewData } from './rows'
import type { Row, Tell } from './types'

const row = (uid: string, n = 0): Row => ({ uid, name: uid, cells: [uid, n], state: 'ok', created: '' })
const rows = (t: Partial<Tell>): Tell => ({ id: 1, type: 'rows', ...t })

describe('a view', () => {
  test('takes a snapshot and then changes, and acknowledges', () => {
    const v = new ViewData()
    v.apply({ id: 1, type: 'columns', columns: [{ name: 'Name', type: 'string' }] })
    expect(v.apply(rows({ reset: true, rows: [row('a'), row('b')], revision: '5', live: true }))).toBe('5')
    expect(v.apply(rows({ rows: [row('b', 2), row('c')], gone: ['a'], revision: '6', live: true }))).toBe('6')
    expect([...v.rows.keys()]).toEqual(['b', 'c'])
    expect(v.rows.get('b')!.cells[1]).toBe(2)
    expect(v.loaded && v.live).toBe(true)
  })

  test('is not loaded, nor resumable, before the last part of a large snapshot', () => {
    const v = new ViewData()
    expect(v.apply(rows({ reset: true, rows: [row('a')] }))).toBeUndefined()
    expect(v.loaded).toBe(false)
    expect(v.revision).toBe('')
    v.apply(rows({ rows: [row('b')], revision: '9', live: true }))
    expect(v.loaded && v.rows.size === 2 && v.revision === '9').toBe(true)
  })

  test('drops ghosts on a reset', () => {
    const v = new ViewData()
    v.apply(rows({ reset: true, rows: [row('a'), row('b')], revision: '5', live: true }))
    v.apply(rows({ reset: true, rows: [row('b')], revision: '7', live: true }))
    expect([...v.rows.keys()]).toEqual(['b'])
  })

  test('keeps rows while the server is behind', () => {
    const v = new ViewData()
    v.apply(rows({ reset: true, rows: [row('a')], revision: '5', live: true }))
    v.apply(rows({ revision: '5' }))
    expect(v.live).toBe(false)
    expect(v.rows.size).toBe(1)
  })

  test('keeps an error until there is news', () => {
    const v = new ViewData()
    v.apply({ id: 1, type: 'error', error: { code: 403, message: 'no' } })
    expect(v.error?.code).toBe(403)
    v.apply(rows({ reset: true, revision: '5', live: true }))
    expect(v.error).toBeNull()
  })

  test.each([[false, 0], [true, 1]])('T17: keeps rows over an error if asking again makes sense: %s', (retry, left) => {
    const v = new ViewData()
    v.apply(rows({ reset: true, rows: [row('a')], revision: '5', live: true }))
    v.apply({ id: 1, type: 'error', error: { code: retry ? 503 : 404, message: 'no', retry } })
    expect([v.rows.size, v.revision]).toEqual([left, left ? '5' : ''])
  })

  test('of an object ends with it', () => {
    const v = new ViewData()
    v.apply({ id: 1, type: 'object', object: { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'a', uid: 'u', creationTimestamp: '' } }, revision: '5', live: true })
    expect(v.object?.kind).toBe('Pod')
    v.apply({ id: 1, type: 'object', gone: ['u'], revision: '6', live: true })
    expect(v.object).toBeNull()
    expect(v.loaded).toBe(true)
  })
})
