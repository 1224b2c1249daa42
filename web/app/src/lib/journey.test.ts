import { describe, expect, test } from 'vitest'
import type { Journey, Span } from '../stream/types'
import { arrival, bars, millis, slug, ticks, tracks } from './journey'

const span = (id: string, object: string, component: string, name: string, start: number, duration: number, more: Partial<Span> = {}): Span => ({ id, trace: '1', object, component, name, start, duration, ...more })

const journey: Journey = {
  objects: [{ uid: 'd', resource: 'deployments', name: 'web' }, { uid: 'p', resource: 'pods', name: 'web-1', owner: 'd' }],
  changes: [], since: 0,
  spans: [
    span('1', 'd', 'kube-apiserver', 'create deployments', 0, 100),
    span('2', 'd', 'kube-apiserver', 'etcd commit', 50, 40, { parent: '1' }),
    span('3', 'd', 'kube-apiserver', 'watch delivery', 100, 20, { parent: '1' }),
    span('4', 'd', 'kube-controller-manager', 'sync', 130, 50),
    span('5', 'p', 'kube-apiserver', 'create pods', 150, 20, { parent: '4' }),
    span('6', 'p', 'kubelet', 'run container', 400, 100, { node: 'n1' }),
    span('7', 'p', 'kube-apiserver', 'patch pods/status', 520, 20, { details: [{ key: 'orrery.milestone', value: 'ready' }] }),
    span('8', 'p', 'kube-controller-manager', 'sync', 9000, 10),
  ],
}

describe('journey', () => {
  test('parts belong to their whole, what another component did does not', () => {
    expect(bars(journey.spans).map((b) => [b.span.id, b.steps.map((s) => s.id)])).toEqual([['1', ['2']], ['3', []], ['4', []], ['5', []], ['6', []], ['7', []], ['8', []]])
  })
  test('tracks have lanes by component, and gaps', () => {
    const [d, p] = tracks(journey, arrival(journey))
    expect(d!.lanes.map((l) => [l.component, l.bars.length])).toEqual([['kube-apiserver', 2], ['kube-controller-manager', 1]])
    expect(d!.gaps).toEqual([{ start: 120, end: 130 }])
    expect(p!.lanes.map((l) => [l.component, l.node])).toEqual([['kube-apiserver', ''], ['kubelet', 'n1']])
    expect(p!.gaps).toEqual([{ start: 170, end: 400 }, { start: 500, end: 520 }])
  })
  test('what comes after the arrival is another story', () => expect(arrival(journey)).toBe(540))
  test.each([[400, '0.4 ms'], [23_400, '23 ms'], [1_254_000, '1.25 s'], [12_340_000, '12.3 s'], [185_000_000, '3 min 5 s']])('%i µs are %s', (us, text) => expect(millis(us)).toBe(text))
  test('ticks are round', () => expect(ticks(1_234_000)).toEqual([0, 500_000, 1_000_000]))
  test.each([['admission: mutating', 'admissionMutating'], ['sync', 'sync'], ['etcd commit', 'etcdCommit']])('%s', (name, key) => expect(slug(name)).toBe(key))
})
