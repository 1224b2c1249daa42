/** A run of text in one look. Colours are the names of classes in logs.css. */
export interface Span {
  text: string
  look: string
}

const names = ['black', 'red', 'green', 'yellow', 'blue', 'magenta', 'cyan', 'white']

/**
 * ansi splits a line into runs by its colour sequences, and drops all other
 * control sequences. Only the sixteen colours and the weights are shown.
 */
export function ansi(line: string): Span[] {
  if (!line.includes('\x1b')) return [{ text: line, look: '' }]
  const out: Span[] = []
  let colour = ''
  let weight = ''
  let at = 0
  const sequence = /\x1b(?:\[([0-9;:?]*)([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])/g
  for (let m = sequence.exec(line); m; m = sequence.exec(line)) {
    push(out, line.slice(at, m.index), colour, weight)
    at = m.index + m[0].length
    if (m[2] !== 'm') continue
    const codes = (m[1] || '0').split(/[;:]/).map(Number)
    for (let i = 0; i < codes.length; i++) {
      const c = codes[i]!
      if (c === 0) colour = weight = ''
      else if (c === 1) weight = 'bold'
      else if (c === 2) weight = 'dim'
      else if (c === 22) weight = ''
      else if (c === 39) colour = ''
      else if (c >= 30 && c <= 37) colour = names[c - 30]!
      else if (c >= 90 && c <= 97) colour = names[c - 90]!
      else if (c === 38 || c === 48) i += codes[i + 1] === 5 ? 2 : 4 // palettes that we don't show
    }
  }
  push(out, line.slice(at), colour, weight)
  return out
}

function push(out: Span[], text: string, colour: string, weight: string): void {
  if (text) out.push({ text, look: [colour && `ansi-${colour}`, weight && `ansi-${weight}`].filter(Boolean).join(' ') })
}
