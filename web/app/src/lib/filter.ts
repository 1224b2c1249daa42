import type { Column, Row } from '../stream/types'

/**
 * A filter is words with spaces between, all of which must match:
 *
 *   text          a regular expression, over every cell (plain text if it is not valid)
 *   !text         the opposite
 *   column:value  over one column ("status:crash"); ns, state, owner and label are columns too
 *   -l a=b,c!=d   labels, as kubectl takes them
 *   -f text       fuzzy: the letters in order, anywhere in the name
 *   -F a.b=c      fields, which the server selects by: see fieldSelector
 */
export type Test = (row: Row) => boolean

export function parseFilter(text: string, columns: Column[]): Test {
  const tests: Test[] = []
  const words = text.trim().split(/\s+/).filter(Boolean)
  for (let i = 0; i < words.length; i++) {
    const word = words[i]!
    if (/^-[lfF]$/.test(word) && i + 1 < words.length) {
      const value = words[++i]!
      if (word !== '-F') tests.push(word === '-l' ? labels(value) : fuzzy(value))
    } else if (!/^-[lfF]$|^!$/.test(word)) {
      tests.push(word.startsWith('!') ? not(one(word.slice(1), columns)) : one(word, columns))
    }
  }
  return (row) => tests.every((test) => test(row))
}

/** fieldSelector is what of a filter is the server's to do. */
export function fieldSelector(text: string): string | undefined {
  const found = [...text.matchAll(/(?:^|\s)-F\s+(\S+=\S*)/g)].map((m) => m[1])
  return found.length ? found.join(',') : undefined
}

const not =
  (test: Test): Test =>
  (row) =>
    !test(row)

function one(word: string, columns: Column[]): Test {
  const colon = word.indexOf(':')
  const read = colon > 0 ? reader(word.slice(0, colon).toLowerCase(), columns) : undefined
  if (read) {
    const matches = matcher(word.slice(colon + 1))
    return (row) => matches(read(row))
  }
  const matches = matcher(word)
  return (row) => matches(row.name) || (row.ns !== undefined && matches(row.ns)) || row.cells.some((c, i) => columns[i]?.type !== 'age' && matches(String(c ?? '')))
}

function reader(name: string, columns: Column[]): ((row: Row) => string) | undefined {
  const plain = (s: string) => s.toLowerCase().replace(/[^a-z0-9]/g, '')
  const i = columns.findIndex((c) => plain(c.name) === plain(name))
  if (i >= 0) return (row) => String(row.cells[i] ?? '')
  switch (name) {
    case 'ns':
    case 'namespace':
      return (row) => row.ns ?? ''
    case 'state':
      return (row) => row.state
    case 'owner':
      return (row) => row.owner ?? ''
    case 'label':
      return (row) => Object.entries(row.labels ?? {}).map(([k, v]) => `${k}=${v}`).join(' ')
  }
  return undefined
}

function matcher(text: string): (s: string) => boolean {
  try {
    const re = new RegExp(text, 'i')
    return (s) => re.test(s)
  } catch {
    const plain = text.toLowerCase()
    return (s) => s.toLowerCase().includes(plain)
  }
}

function labels(selector: string): Test {
  const wants = selector.split(',').filter(Boolean).map((part): Test => {
    const m = /^(!?)([^!=]+)(?:(!=|==?)(.*))?$/.exec(part)
    if (!m) return () => false
    const [, bang, key = '', op, value] = m
    if (bang) return (row) => row.labels?.[key] === undefined
    if (!op) return (row) => row.labels?.[key] !== undefined
    return op === '!=' ? (row) => row.labels?.[key] !== value : (row) => row.labels?.[key] === value
  })
  return (row) => wants.every((want) => want(row))
}

/** fuzzy finds the letters of a pattern in order. */
function fuzzy(pattern: string): Test {
  return (row) => fuzzyScore(pattern, row.name) > 0
}

/**
 * fuzzyScore is above 0 if all letters of pattern are in text in order, and the
 * higher the closer together and the nearer to the start of words they are.
 */
export function fuzzyScore(pattern: string, text: string): number {
  const p = pattern.toLowerCase()
  const t = text.toLowerCase()
  if (p === '') return 1
  let score = 0
  let at = -1
  for (const letter of p) {
    const found = t.indexOf(letter, at + 1)
    if (found < 0) return 0
    score += found === at + 1 ? 3 : found === 0 || /[^a-z0-9]/.test(t[found - 1]!) ? 2 : 1 / (found - at)
    at = found
  }
  return score + p.length / (1 + t.length)
}
