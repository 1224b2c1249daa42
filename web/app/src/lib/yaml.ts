/**
 * toYAML writes a JSON value as kubectl would: keys in the order given, block
 * style, texts of several lines as literals. The page only ever writes YAML; what
 * a user edits goes to the server, which reads it.
 */
export function toYAML(value: unknown): string {
  return isLeaf(value) ? leaf(value, 0) + '\n' : block(value, 0)
}

function block(value: unknown, depth: number): string {
  const pad = '  '.repeat(depth)
  if (Array.isArray(value)) {
    return value
      .map((item) => {
        if (isLeaf(item)) return `${pad}- ${leaf(item, depth + 1)}\n`
        // The first line of a nested block moves up behind the dash.
        return `${pad}- ${block(item, depth + 1).slice(pad.length + 2)}`
      })
      .join('')
  }
  return Object.entries(value as Record<string, unknown>)
    .filter(([, v]) => v !== undefined)
    .map(([k, v]) => {
      if (isLeaf(v)) return `${pad}${scalar(k)}: ${leaf(v, depth + 1)}\n`
      return `${pad}${scalar(k)}:\n${block(v, Array.isArray(v) ? depth : depth + 1)}`
    })
    .join('')
}

function isLeaf(v: unknown): boolean {
  return v === null || typeof v !== 'object' || (Array.isArray(v) ? v.length === 0 : Object.keys(v).length === 0)
}

function leaf(v: unknown, depth: number): string {
  if (Array.isArray(v)) return '[]'
  if (v !== null && typeof v === 'object') return '{}'
  if (typeof v === 'string') return v.includes('\n') ? literal(v, depth) : scalar(v)
  return String(v)
}

/** literal keeps line breaks readable, where YAML's literal style can hold the text. */
function literal(v: string, depth: number): string {
  if (/[^\n\t\x20-\uFFFD]/.test(v) || /^\s/.test(v) || /[ \t]\n|[ \t]$/.test(v)) return JSON.stringify(v)
  const keep = v.endsWith('\n\n') ? '+' : v.endsWith('\n') ? '' : '-'
  const pad = '  '.repeat(depth)
  const lines = v.replace(/\n$/, '').split('\n')
  return `|${keep}\n` + lines.map((l) => (l === '' ? '' : pad + l)).join('\n')
}

// What YAML would take for something else than a text.
const special = /^(?:true|false|yes|no|on|off|y|n|null|~|[-+.]?\d[\d_,.eExXoOa-fA-F:+-]*|\.inf|\.nan|[-+]?\.(?:inf|nan))$/i

function scalar(v: string): string {
  const plain = /^[^\s\-?:,[\]{}#&*!|>'"%@`][^\x00-\x1f\x7f]*$/.test(v) || /^-(?!--)[^\s\x00-\x1f][^\x00-\x1f\x7f]*$/.test(v)
  if (!plain || special.test(v) || /: |:$| #|\s$/.test(v)) return JSON.stringify(v)
  return v
}
