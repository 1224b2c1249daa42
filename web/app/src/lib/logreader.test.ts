import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { LogReader, type Page, type Wanted } from './logreader'

/** A page whose answers the test writes: each request for a log waits in asked. */
function lab(wanted: Partial<Wanted> = {}, page: Partial<Page> = {}) {
  const asked: { url: string; write: (...lines: string[]) => void; end: () => void; fail: (e: unknown) => void; refuse: (e: unknown) => void; answer: () => void }[] = []
  const reader = new LogReader(
    { many: false, previous: false, since: '', ...wanted },
    {
      open: (s, query, signal) =>
        new Promise((answer, refuse) => {
          let c: ReadableStreamDefaultController<Uint8Array>
          const body = new ReadableStream<Uint8Array>({ start: (own) => void (c = own) })
          signal.addEventListener('abort', () => (refuse(signal.reason), c.error(signal.reason)))
          asked.push({
            url: `${s.pod}/${s.container}?${query}`,
            answer: () => answer(new Response(body)),
            write: (...lines) => c.enqueue(new TextEncoder().encode(lines.map((l) => l + '\n').join(''))),
            end: () => c.close(),
            fail: (e) => c.error(e),
            refuse,
          })
        }),
      containers: async () => ['web'],
      ended: () => false,
      why: (e) => ({ text: String(e), final: String(e).includes('forbidden') }),
      words: { goesOn: (s) => `${s.label} goes on`, gone: (s) => `${s.label} is gone`, missing: () => 'missing' },
      arrived: () => {},
      changed: () => {},
      ...page,
    },
  )
  const settle = () => vi.advanceTimersByTimeAsync(0)
  const request = async (n: number) => {
    await settle()
    asked[n]!.answer()
    await settle()
    return asked[n]!
  }
  const texts = async () => {
    await settle()
    reader.lines.flush()
    return reader.lines.list.map((l) => l.text)
  }
  return { reader, asked, request, settle, texts }
}
const at = (second: number, text: string) => `2026-01-01T00:00:${String(second).padStart(2, '0')}Z ${text}`

describe('a reader of logs', () => {
  beforeEach(() => void vi.useFakeTimers())
  afterEach(() => void vi.useRealTimers())

  test('goes on under a divider when a container restarts, at the second where it was', async () => {
    const { reader, asked, request, texts } = lab()
    reader.read(['pod'])
    const first = await request(0)
    expect(first.url).toBe('pod/web?timestamps=true&follow=true&container=web&tailLines=5000')
    expect(reader.streaming.size).toBe(1)
    first.write(at(1, 'one'))
    first.end()
    await vi.advanceTimersByTimeAsync(500)
    expect(asked[1]!.url).toContain('sinceTime=2026-01-01T00%3A00%3A01Z')
    const second = await request(1)
    second.write(at(1, 'one'), at(2, 'two'))
    expect(await texts()).toEqual(['one', 'pod goes on', 'two'])
    reader.stop()
  })

  test('ends with the pod', async () => {
    const { reader, asked, request } = lab({}, { ended: () => true })
    reader.read(['pod'])
    ;(await request(0)).end()
    await vi.advanceTimersByTimeAsync(60_000)
    expect([asked.length, reader.streaming.size, reader.waiting.size]).toEqual([1, 0, 0])
  })

  test('says what fails, and asks again by itself', async () => {
    const { reader, asked, request, settle } = lab()
    reader.read(['pod'])
    await settle()
    asked[0]!.refuse('no leader')
    await settle()
    expect(reader.problems).toEqual({ 'pod/web': 'no leader' })
    await vi.advanceTimersByTimeAsync(500)
    await request(1)
    expect(reader.problems).toEqual({})
    reader.stop()
  })

  test('asks again for what is forbidden only when told to', async () => {
    const { reader, asked, settle } = lab()
    reader.read(['pod'])
    await settle()
    asked[0]!.refuse('forbidden')
    await vi.advanceTimersByTimeAsync(60_000)
    expect(asked.length).toBe(1)
    reader.again()
    await settle()
    expect(asked.length).toBe(2)
    reader.stop()
  })

  test('asks anew for what is not answered when told to', async () => {
    const { reader, asked, settle } = lab()
    reader.read(['pod'])
    await settle()
    expect(reader.waiting.size).toBe(1)
    reader.again()
    await settle()
    expect(asked.length).toBe(2)
    reader.stop()
  })

  test('leaves out what waits when it jumps to now', async () => {
    const { reader, request, asked, texts, settle } = lab()
    reader.read(['pod'])
    const first = await request(0)
    first.write(at(1, 'old'))
    await settle()
    reader.jump()
    await settle()
    expect(asked[1]!.url).toContain('tailLines=')
    ;(await request(1)).write(at(9, 'new'))
    expect(await texts()).toEqual(['old', 'missing', 'new'])
    reader.stop()
  })

  test('reads each pod once, at most sixty logs, and tells of those that go', async () => {
    const { reader, asked, settle, texts } = lab({ many: true })
    const pods = Array.from({ length: 62 }, (_, i) => `pod-${i}`)
    reader.read(pods)
    reader.read(pods)
    await settle()
    expect([asked.length, reader.sources.length, reader.beyond]).toEqual([60, 60, 2])
    asked[0]!.refuse('pods "pod-0" not found')
    expect(await texts()).toEqual(['pod-0 is gone'])
    expect(reader.problems).toEqual({})
    reader.stop()
  })
})
