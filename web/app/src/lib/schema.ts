// What the API says about the fields of a kind, for the editor: loaded with it.
import { isMap, isPair, isScalar, isSeq, parseDocument, type Node, type ParsedNode, type Tags } from 'yaml'

export interface Schema {
  $ref?: string
  allOf?: Schema[]
  oneOf?: Schema[]
  type?: string
  format?: string
  description?: string
  properties?: Record<string, Schema>
  additionalProperties?: Schema | boolean
  items?: Schema
  required?: string[]
  enum?: unknown[]
  default?: unknown
  'x-kubernetes-preserve-unknown-fields'?: boolean
  'x-kubernetes-int-or-string'?: boolean
  'x-kubernetes-group-version-kind'?: { group: string; version: string; kind: string }[]
}

export interface Problem {
  from: number
  to: number
  text: string
  severity: 'error' | 'warning'
}

// As the server reads YAML: by version 1.1, but without its dates and its clock
// times, which stay texts.
const dialect = {
  version: '1.1',
  customTags: (tags: Tags): Tags => tags.filter((x) => typeof x === 'string' || !(x.tag.endsWith(':timestamp') || ('format' in x && x.format === 'TIME'))),
} as const

/** Schemas are those of one group version; root is that of the kind. */
export class Schemas {
  constructor(
    private readonly all: Record<string, Schema>,
    readonly root: Schema | undefined,
  ) {}

  static of(document: { components?: { schemas?: Record<string, Schema> } }, group: string, version: string, kind: string): Schemas {
    const all = document.components?.schemas ?? {}
    return new Schemas(all, Object.values(all).find((s) => s['x-kubernetes-group-version-kind']?.some((x) => x.group === group && x.version === version && x.kind === kind)))
  }

  /** resolve follows references; what stands beside one, such as a description, wins. */
  resolve(s: Schema | undefined): Schema | undefined {
    for (let i = 0; s && i < 10; i++) {
      const ref: string | undefined = s.$ref ?? (s.allOf?.length === 1 ? s.allOf[0]!.$ref : undefined)
      if (!ref) return s
      const { $ref: _, allOf: __, ...rest } = s
      s = { ...this.all[ref.split('/').pop()!], ...rest }
    }
    return s
  }

  /** at walks down a path, in which "[]" is the item of a list. */
  at(path: string[]): Schema | undefined {
    let s = this.resolve(this.root)
    for (const part of path) {
      if (!s) return undefined
      s = this.resolve(part === '[]' ? s.items : (s.properties?.[part] ?? (typeof s.additionalProperties === 'object' ? s.additionalProperties : undefined)))
    }
    return s
  }

  /** check finds what the server would not take, or not know. */
  check(text: string, words: { unknown: (field: string) => string; type: (want: string) => string; missing: (field: string) => string }): Problem[] {
    const doc = parseDocument(text, dialect)
    const problems: Problem[] = doc.errors.map((e) => ({ from: e.pos[0], to: Math.max(e.pos[1], e.pos[0] + 1), text: e.message.split('\n')[0]!, severity: 'error' }))
    if (!this.root || problems.length) return problems
    const range = (n: Node | null | undefined) => ({ from: n?.range?.[0] ?? 0, to: n?.range?.[1] ?? 0 })
    const visit = (node: ParsedNode | null, raw: Schema | undefined, at: { from: number; to: number }) => {
      const s = this.resolve(raw)
      if (!s || !node || (isScalar(node) && node.value === null)) return
      const want = s.type
      const wrong = (w: string) => problems.push({ ...(isScalar(node) ? range(node) : at), text: words.type(w), severity: 'error' })
      if (isMap(node)) {
        if (want && want !== 'object') return void wrong(want)
        const open = s['x-kubernetes-preserve-unknown-fields'] || !s.properties
        const seen = new Set<string>()
        for (const pair of node.items) {
          if (!isPair(pair) || !isScalar(pair.key)) continue
          const key = String(pair.key.value)
          seen.add(key)
          const child = s.properties?.[key] ?? (typeof s.additionalProperties === 'object' ? s.additionalProperties : undefined)
          const where = range(pair.key as ParsedNode)
          if (!child && !open && s.additionalProperties !== true) problems.push({ ...where, text: words.unknown(key), severity: 'error' })
          else visit(pair.value as ParsedNode | null, child, where)
        }
        for (const field of s.required ?? []) if (!seen.has(field)) problems.push({ ...at, text: words.missing(field), severity: 'warning' })
      } else if (isSeq(node)) {
        if (want && want !== 'array') return void wrong(want)
        for (const item of node.items) visit(item as ParsedNode, s.items, range(item as ParsedNode))
      } else if (isScalar(node) && want && !s['x-kubernetes-int-or-string'] && s.format !== 'int-or-string' && !s.oneOf) {
        const v = node.value
        const fits = want === 'integer' ? Number.isInteger(v) : want === 'number' ? typeof v === 'number' : want === 'boolean' ? typeof v === 'boolean' : want === 'string' ? typeof v === 'string' : false
        if (!fits) wrong(want)
        else if (s.enum?.length && !s.enum.includes(v)) wrong(s.enum.join(' | '))
      }
    }
    visit(doc.contents as ParsedNode | null, this.root, { from: 0, to: Math.min(text.length, text.indexOf('\n') >>> 0) })
    return problems
  }
}

/** read turns what was edited into an object; it throws what is wrong with it. */
export function read(text: string): unknown {
  const doc = parseDocument(text, dialect)
  if (doc.errors[0]) throw new Error(doc.errors[0].message.split('\n')[0])
  return doc.toJS()
}

/**
 * pathAt is where in the object a line is, by indentation, so that it works
 * while what is typed is not YAML yet. column is that of its key.
 */
export function pathAt(lines: string[], line: number, column: number): string[] {
  const path: string[] = []
  let limit = column
  const shape = (l: string) => /^(\s*)((?:- +)*)(?:([^\s:#'"][^:]*|"[^"]*"|'[^']*')\s*:(?:\s|$))?/.exec(l)!
  // A dash on its own line belongs to the path of what stands behind it.
  const enter = (m: RegExpExecArray, below: number): number => {
    let at = m[1]!.length
    for (const dash of m[2]!.match(/- +/g) ?? []) {
      if (at < below) path.unshift('[]')
      at += dash.length
    }
    return m[1]!.length
  }
  limit = Math.min(limit, column)
  const own = shape(lines[line] ?? '')
  if (own[2]) limit = enter(own, column)
  for (let i = line - 1; i >= 0 && limit >= 0; i--) {
    const text = lines[i]!
    if (!text.trim() || /^\s*#/.test(text)) continue
    const m = shape(text)
    const key = m[1]!.length + m[2]!.length
    const dashes = m[2]!.length > 0
    if (m[3] && (key < limit || (key === limit && path[0] === '[]' && !dashes))) {
      path.unshift(m[3].replace(/^["']|["']$/g, '').trim())
      limit = key
      if (dashes) limit = enter(m, key)
    } else if (dashes && m[1]!.length < limit) limit = enter(m, limit)
    if (limit === 0 && path[0] !== '[]') break
  }
  return path
}

/** Reason is something that speaks against an edit, and where in its text. */
export interface Reason {
  at: number
  text: string
}

/**
 * reasons are what a refusal says of fields, each at its field in the text that was
 * refused, or at what is nearest above it: the causes of an invalid object, fields that
 * the server does not know, one of another type.
 */
export function reasons(message: string, causes: { field?: string; message?: string }[], text: string, unknown: (field: string) => string): Reason[] {
  const found = causes.map((c) => ({ field: c.field ?? '', text: c.message ?? '' }))
  for (const [, field] of found.length ? [] : message.matchAll(/unknown field "([^"]+)"/g)) found.push({ field: field!, text: unknown(field!) })
  const mistyped = /cannot unmarshal .* into Go struct field \w+\.(\S+) of type/.exec(message)
  if (!found.length && mistyped) found.push({ field: mistyped[1]!, text: message })
  const root = parseDocument(text, dialect).contents
  return found.flatMap((f) => {
    const at = placeOf(root, (f.field.match(/\[[^\]]*\]|[^.[\]]+/g) ?? []).map((part) => part.replace(/[[\]]/g, '')))
    return at === undefined ? [] : [{ at, text: f.text }]
  })
}

function placeOf(node: ParsedNode | null, [part, ...rest]: string[]): number | undefined {
  if (part === undefined) return undefined
  if (isSeq(node)) {
    const item = node.items[Number(part)] as ParsedNode | undefined
    return item && (placeOf(item, rest) ?? item.range[0])
  }
  const pair = isMap(node) ? node.items.find((p) => isScalar(p.key) && String(p.key.value) === part) : undefined
  return pair && (placeOf(pair.value as ParsedNode | null, rest) ?? (pair.key as ParsedNode).range[0])
}
