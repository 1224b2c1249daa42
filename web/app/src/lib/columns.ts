import type { Column, ViewColumn } from '../stream/types'

/**
 * A choice of columns is a text: names with "|" between, in the order in which
 * they are shown. "Name=.path" is a column of its own, by JSONPath. The name
 * and the namespace of an object are always there.
 */
export interface Choice {
  name: string
  path?: string
}

export function readChoice(text: string): Choice[] {
  return text.split('|').filter(Boolean).map((part) => {
    const at = part.indexOf('=')
    return at > 0 ? { name: part.slice(0, at), path: part.slice(at + 1) } : { name: part }
  })
}

export const writeChoice = (choice: Choice[]): string => choice.map((c) => (c.path ? `${c.name}=${c.path}` : c.name)).join('|')

/** extra are the columns that the server has to be asked for. */
export const extra = (choice: Choice[]): ViewColumn[] => choice.filter((c) => c.path).map((c) => ({ name: c.name, path: c.path! }))

/** pick finds which of a view's columns are shown, in order: by index. */
export function pick(columns: Column[], choice: Choice[], wide: boolean, named: boolean): { column: Column; i: number }[] {
  const all = columns.map((column, i) => ({ column, i })).filter(({ i }) => !(named && i === 0))
  if (!choice.length) return all.filter(({ column }) => wide || !column.priority)
  return choice.map((c) => all.findLast(({ column }) => column.name === c.name)).filter((x) => x !== undefined)
}
