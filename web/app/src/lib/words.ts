/** shorten keeps both ends of a name: the random suffix is what tells pods apart. */
export function shorten(text: string, max: number): string {
  if (text.length <= max) return text
  const tail = Math.floor((max - 1) * 0.4)
  return text.slice(0, max - 1 - tail) + '…' + text.slice(text.length - tail)
}

/** bytes in binary units, with three digits at most. */
export function bytes(n: number | undefined): string {
  if (n === undefined) return ''
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  let i = 0
  while (n >= 1024 && i < units.length - 1) {
    n /= 1024
    i++
  }
  return `${n >= 100 || i === 0 ? Math.round(n) : n.toFixed(1)} ${units[i]}`
}

/** plural is a kind's name for many of it: NetworkPolicy and networkpolicies give NetworkPolicies. */
export function plural(kind: string, resource: string): string {
  let i = 0
  while (i < kind.length && kind[i]!.toLowerCase() === resource[i]) i++
  return kind.slice(0, i) + resource.slice(i)
}

/** save gives the user a file. */
export function save(data: Blob, name: string): void {
  const a = document.createElement('a')
  a.href = URL.createObjectURL(data)
  a.download = name
  a.click()
  setTimeout(() => URL.revokeObjectURL(a.href), 60_000)
}
