// What users of other faces complained of most has a number, and each that concerns
// the page has a test that bears it.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'

const numbers = (folder, ending) =>
  readdirSync(join(import.meta.dirname, folder), { recursive: true, encoding: 'utf8' })
    .filter((f) => f.endsWith(ending) && !f.includes('node_modules'))
    .flatMap((f) => [...readFileSync(join(import.meta.dirname, folder, f), 'utf8').matchAll(/test(?:\.each\(.*?\))?\([`'](T\d+(?:, T\d+)*)|describe\('(T\d+(?:, T\d+)*)/g)].flatMap((m) => (m[1] ?? m[2]).split(', ')))

test('each complaint that concerns the page has a test', () => {
  const found = new Set([...numbers('.', '.test.js'), ...numbers('../../web/app/src', '.test.ts')])
  const wanted = [1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 19, 20, 22, 23, 25, 26, 27, 28, 29, 31, 32, 33, 35, 36, 37, 38, 39, 40, 41, 43, 44, 45, 46, 47, 52]
  assert.deepEqual(wanted.map((n) => `T${n}`).filter((t) => !found.has(t)), [])
})
