import { prefs } from '../state/prefs.svelte'
import { en } from './en'
import { zhTW } from './zhTW'

export type Key = keyof typeof en

/** has tells names that there is a text for. */
export const has = (key: string): key is Key => key in en

/** t is a text in the user's language, with what stands in braces filled in. A newer server may name what there is no text for: that stands for itself. */
export function t(key: Key, values: Record<string, string | number> = {}): string {
  const text: string = (prefs.language === 'zh-TW' ? zhTW : en)[key] ?? key
  return text.replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ''))
}
