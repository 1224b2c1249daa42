// Completion, checks and explanations of fields while YAML is edited.
import { autocompletion, completionKeymap, type Completion, type CompletionContext } from '@codemirror/autocomplete'
import { linter, lintGutter } from '@codemirror/lint'
import type { Extension } from '@codemirror/state'
import { hoverTooltip, keymap, type EditorView } from '@codemirror/view'
import { t } from '../i18n/index.svelte'
import { pathAt, type Schema, type Schemas } from './schema'

const kindOf = (s: Schema | undefined): string => (s?.type === 'array' ? '[]' : (s?.type ?? (s?.['x-kubernetes-int-or-string'] ? 'integer | string' : '')))

function place(view: { state: EditorView['state'] }, pos: number, column?: number) {
  const line = view.state.doc.lineAt(pos)
  const lines = view.state.doc.toString().split('\n')
  return { line, path: pathAt(lines, line.number - 1, column ?? line.text.search(/[^\s-]|$/)) }
}

/** schemaHelp is what the editor gains once the schemas are there. */
export function schemaHelp(schemas: Schemas): Extension {
  const words = {
    unknown: (name: string) => t('schema.unknown', { name }),
    type: (want: string) => t('schema.type', { want }),
    missing: (name: string) => t('schema.missing', { name }),
  }

  function complete(c: CompletionContext) {
    const { line } = place(c, c.pos)
    const before = line.text.slice(0, c.pos - line.from)
    const value = /^([\s-]*)([\w.-]+|"[^"]*"):\s+(\S*)$/.exec(before)
    if (value) {
      const { path } = place(c, c.pos, value[1]!.length)
      const s = schemas.resolve(schemas.at([...path, value[2]!.replaceAll('"', '')]))
      const options = s?.type === 'boolean' ? ['true', 'false'] : (s?.enum ?? (s?.default !== undefined && typeof s.default !== 'object' ? [s.default] : [])).map(String)
      return options.length ? { from: c.pos - value[3]!.length, options: options.map((label) => ({ label })) } : null
    }
    const key = /^([\s-]*)([\w-]*)$/.exec(before)
    if (!key || (!c.explicit && !key[2])) return null
    const { path } = place(c, c.pos, key[1]!.length)
    const s = schemas.at(path)
    if (!s?.properties) return null
    const options = Object.entries(s.properties).map(([label, raw]): Completion => {
      const child = schemas.resolve(raw)
      return {
        label, type: 'property', detail: kindOf(child) + (s.required?.includes(label) ? ' *' : ''), info: child?.description, boost: s.required?.includes(label) ? 1 : 0,
        apply: label + (child?.type === 'object' || child?.type === 'array' ? ':' : ': '),
      }
    })
    return { from: c.pos - key[2]!.length, options, validFor: /^[\w-]*$/ }
  }

  const explain = hoverTooltip((view, pos) => {
    const line = view.state.doc.lineAt(pos)
    const m = /^([\s-]*)([\w.-]+):/.exec(line.text)
    if (!m || pos < line.from + m[1]!.length || pos > line.from + m[0].length) return null
    const { path } = place(view, pos, m[1]!.length)
    const s = schemas.resolve(schemas.at([...path, m[2]!]))
    if (!s?.description) return null
    return {
      pos: line.from + m[1]!.length,
      create: () => {
        const dom = document.createElement('div')
        dom.className = 'field-help'
        dom.textContent = `${m[2]} (${kindOf(s)}) ${s.description}`
        return { dom }
      },
    }
  })

  return [
    autocompletion({ override: [complete], icons: false }),
    keymap.of(completionKeymap),
    linter((view) => schemas.check(view.state.doc.toString(), words).map(({ text: message, ...p }) => ({ ...p, message })), { delay: 300 }),
    lintGutter(),
    explain,
  ]
}
