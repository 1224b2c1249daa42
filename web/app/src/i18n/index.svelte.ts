import { prefs } from '../state/prefs.svelte'
import { en } from './en'
import { zhTW } from './zhTW'

export type Key = keyof typeof en

/** t is a text in the user's language, with what stands in braces filled in. */
export function t(key: Key, values: Record<string, string | number> = {}): string {
  const text: string = (prefs.language === 'zh-TW' ? zhTW : en)[key]
  return text.replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ''))
}
