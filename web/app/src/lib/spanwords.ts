import { has, t, type Key } from '../i18n/index.svelte'
import type { Span } from '../stream/types'
import { detail, milestone, slug } from './journey'

const short: Record<string, string> = { 'kube-apiserver': 'API server', 'kube-controller-manager': 'controllers', 'kube-scheduler': 'scheduler' }

/** shortOf is a component's name where there is little room. */
export const shortOf = (component: string): string => short[component] ?? component

/** what says what a span is, in the user's language; requests are said in kubectl's words. */
export function what(s: Span): string {
  const key = slug(s.name)
  const words = has(`journey.span.${key}`) ? t(`journey.span.${key}` as Key) : s.name
  if (s.name === 'sync') return detail(s, 'controller').replace(/-controller$/, '') || words
  if (s.name === 'watch delivery') return `${words} → ${shortOf(detail(s, 'to'))}`
  if (s.name === 'webhook') return `${words} ${detail(s, 'webhook')}`
  const container = detail(s, 'container')
  return container ? `${words} ${container}` : words
}

/** news is what users wait for that a span tells of: "ready". */
export function news(s: Span): string {
  const mark = milestone(s)
  return has(`journey.milestone.${mark}`) ? t(`journey.milestone.${mark}` as Key) : mark
}

/** who did it: a component, of a node if it is one of many. */
export const who = (s: Span): string => shortOf(s.component) + (s.node && s.component !== 'kube-apiserver' ? ` ${s.node}` : '')
