/** Durations in kubectl's words: "5s", "3m20s", "47h", "4d3h", "2y". */
export function humanDuration(ms: number): string {
  const seconds = Math.trunc(ms / 1000)
  if (seconds < -1) return '<invalid>'
  if (seconds < 0) return '0s'
  if (seconds < 120) return `${seconds}s`
  const minutes = Math.trunc(seconds / 60)
  if (minutes < 10) return two(minutes, 'm', seconds % 60, 's')
  if (minutes < 180) return `${minutes}m`
  const hours = Math.trunc(minutes / 60)
  if (hours < 8) return two(hours, 'h', minutes % 60, 'm')
  if (hours < 48) return `${hours}h`
  const days = Math.trunc(hours / 24)
  if (hours < 192) return two(days, 'd', hours % 24, 'h')
  if (days < 730) return `${days}d`
  const years = Math.trunc(days / 365)
  if (days < 2920) return two(years, 'y', days % 365, 'd')
  return `${years}y`
}

function two(a: number, unit: string, b: number, small: string): string {
  return b === 0 ? `${a}${unit}` : `${a}${unit}${b}${small}`
}

/** age is the word for the time since then; nothing is "<unknown>", as in kubectl. */
export function age(then: string | null | undefined, now: number): string {
  if (!then) return '<unknown>'
  const t = Date.parse(then)
  return Number.isNaN(t) ? then : humanDuration(now - t)
}
