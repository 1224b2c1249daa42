/** A line of a comparison: in both, only before, or only after. */
export interface DiffLine {
  sign: ' ' | '-' | '+'
  text: string
}

/**
 * diffLines compares two texts line by line. What both begin and end with is
 * set aside; the middle goes by the longest common subsequence, or, where that
 * would take too long, whole.
 */
export function diffLines(before: string, after: string): DiffLine[] {
  const a = before.split('\n')
  const b = after.split('\n')
  let start = 0
  while (start < a.length && start < b.length && a[start] === b[start]) start++
  let end = 0
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++
  const same = (lines: string[]): DiffLine[] => lines.map((text) => ({ sign: ' ', text }))
  return [...same(a.slice(0, start)), ...middle(a.slice(start, a.length - end), b.slice(start, b.length - end)), ...same(a.slice(a.length - end))]
}

function middle(a: string[], b: string[]): DiffLine[] {
  const out: DiffLine[] = []
  const gone = (text: string) => out.push({ sign: '-', text })
  const come = (text: string) => out.push({ sign: '+', text })
  if (a.length * b.length > 4_000_000) {
    a.forEach(gone)
    b.forEach(come)
    return out
  }
  // common[i][j] is how much a from i and b from j have in common.
  const width = b.length + 1
  const common = new Uint16Array((a.length + 1) * width)
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i * width + j] = a[i] === b[j] ? common[(i + 1) * width + j + 1]! + 1 : Math.max(common[(i + 1) * width + j]!, common[i * width + j + 1]!)
    }
  }
  let i = 0
  let j = 0
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      out.push({ sign: ' ', text: a[i]! })
      i++
      j++
    } else if (j >= b.length || (i < a.length && common[(i + 1) * width + j]! >= common[i * width + j + 1]!)) gone(a[i++]!)
    else come(b[j++]!)
  }
  return out
}

/** changed counts the lines that differ. */
export const changed = (lines: DiffLine[]): number => lines.filter((l) => l.sign !== ' ').length

/** hunks keeps what changed, with some lines around; null is what was left out. */
export function hunks(lines: DiffLine[], around = 3): (DiffLine | null)[] {
  const keep = new Uint8Array(lines.length)
  lines.forEach((l, i) => {
    if (l.sign !== ' ') keep.fill(1, Math.max(0, i - around), i + around + 1)
  })
  const out: (DiffLine | null)[] = []
  lines.forEach((l, i) => {
    if (keep[i]) out.push(l)
    else if (out.at(-1) !== null) out.push(null)
  })
  return out
}
