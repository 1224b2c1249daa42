import type { Journey, JourneyObject, Span } from '../stream/types'

/** A bar is something that a component did by itself, with its parts. */
export interface Bar {
  span: Span
  steps: Span[]
}

/** A lane is one component (of one node) at one object, in the order of time. */
export interface Lane {
  component: string
  node: string
  bars: Bar[]
}

/** A gap is when nobody did anything about an object: it waited. */
export interface Gap {
  start: number
  end: number
}

export interface Track {
  object: JourneyObject
  lanes: Lane[]
  gaps: Gap[]
}

const order = ['kube-apiserver', 'kube-controller-manager', 'kube-scheduler', 'kubelet', 'kube-proxy']
export const endOf = (s: Span): number => s.start + s.duration
export const detail = (s: Span, key: string): string => s.details?.find((d) => d.key === key)?.value ?? ''
/** What users wait for, where a span is the news of it: "ready". */
export const milestone = (s: Span): string => detail(s, 'orrery.milestone')

/** bars are the spans that are no part of another; a delivery comes after what it is of. */
export function bars(spans: Span[]): Bar[] {
  const byId = new Map(spans.map((s) => [s.id, s]))
  const own = new Map<string, Bar>()
  const partOf = (s: Span): Span | undefined => {
    const whole = s.parent ? byId.get(s.parent) : undefined
    return whole && whole.component === s.component && whole.object === s.object && s.name !== 'watch delivery' ? whole : undefined
  }
  for (const s of spans) {
    let top = s
    for (let up = partOf(top); up; up = partOf(up)) top = up
    const bar = own.get(top.id) ?? { span: top, steps: [] }
    own.set(top.id, bar)
    if (top !== s) bar.steps.push(s)
  }
  return [...own.values()].sort((a, b) => a.span.start - b.span.start)
}

/** tracks are the objects of a journey with what happened to each. */
export function tracks(j: Journey, until: number): Track[] {
  const all = bars(j.spans).filter((b) => b.span.start <= until)
  return j.objects.map((object) => {
    const mine = all.filter((b) => b.span.object === object.uid)
    const lanes = new Map<string, Lane>()
    for (const b of mine) {
      const node = b.span.component === 'kube-apiserver' ? '' : (b.span.node ?? '')
      const key = b.span.component + '@' + node
      const lane = lanes.get(key) ?? { component: b.span.component, node, bars: [] }
      lanes.set(key, lane)
      lane.bars.push(b)
    }
    return { object, lanes: [...lanes.values()].sort((a, b) => order.indexOf(a.component) - order.indexOf(b.component)), gaps: gapsOf(mine) }
  })
}

function gapsOf(all: Bar[]): Gap[] {
  const gaps: Gap[] = []
  let end = all[0] ? endOf(all[0].span) : 0
  for (const b of all) {
    if (b.span.start > end) gaps.push({ start: end, end: b.span.start })
    end = Math.max(end, endOf(b.span))
  }
  return gaps
}

/** arrival is when the last thing that users wait for was there; 0: not yet. */
export function arrival(j: Journey): number {
  const news = j.spans.filter((s) => milestone(s) || s.name === 'program routes' || s.name.endsWith(' endpointslices'))
  return Math.max(0, ...news.map(endOf))
}

/** millis says microseconds as people do: "0.4 ms", "23 ms", "1.25 s", "3 min 5 s". */
export function millis(us: number): string {
  const ms = us / 1000
  if (ms < 10) return `${ms.toFixed(1)} ms`
  if (ms < 1000) return `${Math.round(ms)} ms`
  const s = ms / 1000
  if (s < 60) return `${s < 10 ? s.toFixed(2) : s.toFixed(1)} s`
  return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`
}

/** ticks are round times from 0 to a length, about as many as wanted. */
export function ticks(length: number, wanted = 5): number[] {
  if (length <= 0) return [0]
  const rough = length / wanted
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) ?? rough
  return Array.from({ length: Math.floor(length / step) + 1 }, (_, i) => i * step)
}

/** slug is a span's name as a key of the catalogue: "admission: mutating" is admissionMutating. */
export const slug = (name: string): string => name.replace(/[^a-z]+(\w)/g, (_, c: string) => c.toUpperCase())
