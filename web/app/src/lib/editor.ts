// The YAML editor, in a chunk of its own.
import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands'
import { yaml } from '@codemirror/lang-yaml'
import { bracketMatching, foldGutter, foldKeymap, HighlightStyle, indentOnInput, syntaxHighlighting } from '@codemirror/language'
import { highlightSelectionMatches, search, searchKeymap } from '@codemirror/search'
import { Compartment, EditorState, StateEffect, StateField, type Extension } from '@codemirror/state'
import { Decoration, type DecorationSet, drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers, WidgetType } from '@codemirror/view'
import { tags } from '@lezer/highlight'
import { nonce } from './nonce'
import type { Reason } from './schema'

export interface Editor {
  text(): string
  show(text: string): void
  editable(yes: boolean): void
  /** help adds what is known of the kind's fields. */
  help(more: Extension): void
  /** refuse shows what speaks against what stands in lines, under each; none: what was shown goes. */
  refuse(reasons: Reason[]): void
  focus(): void
  dispose(): void
}

const look = EditorView.theme({
  '&': { height: '100%', fontSize: '12px', backgroundColor: 'transparent', color: 'var(--text)' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.55' },
  '.cm-gutters': { backgroundColor: 'var(--panel)', color: 'var(--text-3)', border: 'none' },
  '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'var(--hover)' },
  '&.cm-focused': { outline: 'none' },
  '.cm-cursor': { borderLeftColor: 'var(--text)' },
  '&.cm-focused .cm-selectionBackground, .cm-selectionBackground': { backgroundColor: 'var(--accent-soft) !important' },
  '.cm-searchMatch': { backgroundColor: 'color-mix(in srgb, var(--warning) 30%, transparent)' },
  '.cm-panels': { backgroundColor: 'var(--sunken)', color: 'var(--text)' },
  '.cm-tooltip': { backgroundColor: 'var(--panel)', color: 'var(--text)', border: '1px solid var(--line-strong)', borderRadius: '6px', boxShadow: 'var(--shadow)' },
  '.cm-tooltip.cm-tooltip-autocomplete > ul': { fontFamily: 'var(--mono)' },
  '.cm-tooltip-autocomplete ul li[aria-selected]': { backgroundColor: 'var(--accent-soft) !important', color: 'var(--text) !important' },
  '.cm-completionDetail': { color: 'var(--text-3)', fontStyle: 'normal' },
  '.cm-completionInfo, .field-help': { maxWidth: '420px', padding: '6px 10px', whiteSpace: 'pre-wrap' },
  '.refused': { padding: '0 14px', color: 'var(--error)', whiteSpace: 'pre-wrap' },
  '.cm-diagnosticText': { whiteSpace: 'pre-wrap' },
  '.cm-foldPlaceholder': { backgroundColor: 'var(--sunken)', border: '1px solid var(--line)', color: 'var(--text-3)' },
})

const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: 'var(--ok)' },
  { tag: [tags.string, tags.content], color: 'var(--text)' },
  { tag: [tags.number, tags.bool, tags.null, tags.keyword], color: 'var(--warning)' },
  { tag: tags.comment, color: 'var(--text-3)' },
  { tag: tags.punctuation, color: 'var(--text-3)' },
])

class Refusal extends WidgetType {
  constructor(private readonly text: string) {
    super()
  }
  toDOM(): HTMLElement {
    const dom = document.createElement('div')
    dom.className = 'refused'
    dom.textContent = this.text
    return dom
  }
}

const refuse = StateEffect.define<Reason[]>()
const refusals = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(shown, tr) {
    shown = shown.map(tr.changes)
    for (const e of tr.effects) {
      if (e.is(refuse)) shown = Decoration.set(e.value.map((r) => Decoration.widget({ widget: new Refusal(r.text), block: true, side: 1 }).range(tr.state.doc.lineAt(r.at).to)), true)
    }
    return shown
  },
  provide: (field) => EditorView.decorations.from(field),
})

export function createEditor(parent: HTMLElement, text: string, label: string): Editor {
  const mode = new Compartment()
  const helping = new Compartment()
  const frozen = (yes: boolean) => [EditorState.readOnly.of(yes), EditorView.editable.of(!yes), EditorView.contentAttributes.of({ 'aria-label': label, tabindex: '0' })]
  const view = new EditorView({
    parent,
    doc: text,
    extensions: [
      EditorView.cspNonce.of(nonce()), lineNumbers(), foldGutter(), history(), drawSelection(), indentOnInput(), bracketMatching(), highlightActiveLine(), highlightSelectionMatches(), search({ top: true }), yaml(),
      syntaxHighlighting(colours), look, refusals, mode.of(frozen(true)), helping.of([]), keymap.of([...defaultKeymap, ...searchKeymap, ...historyKeymap, ...foldKeymap, indentWithTab]),
    ],
  })
  return {
    text: () => view.state.doc.toString(),
    show(next) {
      if (next === view.state.doc.toString()) return
      const top = view.scrollDOM.scrollTop
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: next } })
      view.scrollDOM.scrollTop = top
    },
    editable: (yes) => view.dispatch({ effects: mode.reconfigure(frozen(!yes)) }),
    help: (more) => view.dispatch({ effects: helping.reconfigure(more) }),
    refuse: (reasons) => view.dispatch({ effects: [refuse.of(reasons), ...(reasons[0] ? [EditorView.scrollIntoView(reasons[0].at, { y: 'center' })] : [])] }),
    focus: () => view.focus(),
    dispose: () => view.destroy(),
  }
}
