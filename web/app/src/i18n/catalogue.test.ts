import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { en } from './en'
import { zhTW } from './zhTW'

const src = join(import.meta.dirname, '..')
const sources = readdirSync(src, { recursive: true, encoding: 'utf8' })
  .filter((f) => /\.(svelte|ts)$/.test(f) && !f.startsWith('i18n') && !f.endsWith('.test.ts'))
  .map((f) => readFileSync(join(src, f), 'utf8'))
  .join('\n')

const keys = Object.keys(en) as (keyof typeof en)[]
const holes = (s: string) => [...s.matchAll(/\{(\w+)\}/g)].map((m) => m[1]).sort()

describe('catalogue', () => {
  test('both languages have the same keys', () => expect(Object.keys(zhTW).sort()).toEqual([...keys].sort()))
  test.each(keys)('%s has the same holes in both', (k) => expect(holes(zhTW[k])).toEqual(holes(en[k])))
  test('every key is used', () => {
    // A key with a part that is filled in (`state.${s}`) uses all of that family.
    const families = [...sources.matchAll(/t\(`([\w.]+)\$\{/g)].map((m) => m[1]!)
    const unused = keys.filter((k) => !sources.includes(`'${k}'`) && !families.some((f) => k.startsWith(f)))
    expect(unused).toEqual([])
  })
  test('Traditional Chinese has no simplified forms and no mainland terms', () => {
    const wrong = Object.entries(zhTW).filter(([, text]) => /[节点显务网络]|默認|信息|軟件|網絡|服務器|用户/.test(text))
    expect(wrong).toEqual([])
  })
})
