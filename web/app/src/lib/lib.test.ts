import { describe, expect, test } from 'vitest'
import type { Column, Row, State } from '../stream/types'
import { ansi } from './ansi'
import { age, humanDuration } from './duration'
import { fuzzyScore, parseFilter } from './filter'
import { Lines } from './lines'
import { compareRows, Sorter } from './sort'
import { bytes, plural, shorten } from './words'
import { toYAML } from './yaml'

const columns: Column[] = [
  { name: 'Name', type: 'string' },
  { name: 'Status', type: 'string' },
  { name: 'Restarts', type: 'string' },
  { name: 'Age', type: 'age' },
  { name: 'Nominated Node', type: 'string' },
]

function row(name: string, status = 'Running', restarts = '0', created = '2026-01-01T00:00:00Z', ns = 'default', state: State = 'ok', labels: Record<string, string> = {}): Row {
  return { uid: `${ns}/${name}`, ns, name, cells: [name, status, restarts, created, '<none>'], state, created, labels }
}

describe('durations are kubectl’s words', () => {
  const second = 1000
  const minute = 60 * second
  const hour = 60 * minute
  const day = 24 * hour
  test.each([
    [-5 * second, '<invalid>'], [-second, '0s'], [0, '0s'], [119 * second, '119s'], [120 * second, '2m'], [200 * second, '3m20s'], [10 * minute + 5 * second, '10m'], [179 * minute, '179m'],
    [3 * hour, '3h'], [3 * hour + 20 * minute, '3h20m'], [9 * hour + 20 * minute, '9h'], [47 * hour, '47h'], [48 * hour, '2d'], [51 * hour, '2d3h'], [8 * day + 3 * hour, '8d'], [729 * day, '729d'], [730 * day, '2y'], [800 * day, '2y70d'], [3000 * day, '8y'],
  ])('%d ms is %s', (ms, want) => expect(humanDuration(ms)).toBe(want))
  test('no time', () => expect(age(null, 0)).toBe('<unknown>'))
  test('words stay', () => expect(age('5m (x3 over 9m)', 0)).toBe('5m (x3 over 9m)'))
})

describe('filter', () => {
  const rows = [
    row('web-1', 'Running', '0', undefined, 'shop', 'ok', { app: 'web', tier: 'front' }),
    row('web-2', 'CrashLoopBackOff', '14 (2m ago)', undefined, 'shop', 'error', { app: 'web' }),
    row('db-0', 'Running', '0', undefined, 'data', 'warning', { app: 'db' }),
  ]
  test.each([
    ['', 'web-1 web-2 db-0'], ['web', 'web-1 web-2'], ['!web', 'db-0'], ['^web-\\d$', 'web-1 web-2'], ['web crash', 'web-2'], ['WEB-1', 'web-1'], ['status:run', 'web-1 db-0'], ['!status:run', 'web-2'],
    ['ns:data', 'db-0'], ['state:error', 'web-2'], ['nominatednode:none', 'web-1 web-2 db-0'], ['-l app=web', 'web-1 web-2'], ['-l app=web,tier', 'web-1'], ['-l app!=web', 'db-0'], ['-l !tier', 'web-2 db-0'], ['-l app==db', 'db-0'],
    ['-f wb2', 'web-2'], ['web[', ''], ['shop', 'web-1 web-2'], ['-l', 'web-1 web-2 db-0'], ['!', 'web-1 web-2 db-0'],
  ])('%s', (text, want) => expect(rows.filter(parseFilter(text, columns)).map((r) => r.name).join(' ')).toBe(want))
  test('closer letters score higher', () => expect(fuzzyScore('po', 'pods')).toBeGreaterThan(fuzzyScore('po', 'priorityclasses-o')))
})

describe('order', () => {
  const names = (rows: Row[]) => rows.map((r) => r.name).join(' ')
  const sort = (rows: Row[], column: string, down = false) => names([...rows].sort(compareRows({ column, down }, columns)))
  test('digits count by value', () => expect(names([row('w-10'), row('w-9'), row('w-1')].sort(compareRows(null, columns)))).toBe('w-1 w-9 w-10'))
  test('numbers at the start of a text', () => expect(sort([row('a', '', '14 (2m ago)'), row('b', '', '3'), row('c', '', '0')], 'Restarts')).toBe('c b a'))
  test('ages by time, the youngest first', () => expect(sort([row('old', '', '', '2020-01-01T00:00:00Z'), row('new', '', '', '2026-01-01T00:00:00Z'), row('mid', '', '', '2024-05-01T00:00:00Z')], 'Age')).toBe('new mid old'))
  test('nothing is last both ways', () => {
    const rows = [row('a', '<none>'), row('b', 'x'), row('c', 'y')]
    expect(sort(rows, 'Status')).toBe('b c a')
    expect(sort(rows, 'Status', true)).toBe('c b a')
  })
  test('ties go by namespace and name', () => expect(sort([row('b', 'x', '', '', 'z'), row('c', 'x', '', '', 'a'), row('a', 'x', '', '', 'z')], 'Status')).toBe('c a b'))
  test('quantities', () => expect(sort([row('a', '10Gi'), row('b', '512Mi'), row('c', '1Gi')], 'Status')).toBe('b c a'))
  test('a sorter follows changes', () => {
    const rows = new Map([row('b'), row('a')].map((r) => [r.uid, r]))
    const s = new Sorter()
    expect(names(s.sort(rows, () => true, compareRows(null, columns)))).toBe('a b')
    rows.set('default/c', row('c'))
    rows.delete('default/a')
    expect(names(s.sort(rows, () => true, compareRows(null, columns)))).toBe('b c')
  })
  test('a filter that is taken off brings its rows back', () => {
    const rows = new Map([row('b'), row('a')].map((r) => [r.uid, r]))
    const s = new Sorter()
    s.sort(rows, (r) => r.name === 'a', compareRows(null, columns))
    expect(names(s.sort(rows, () => true, compareRows(null, columns)))).toBe('a b')
  })
})

describe('yaml', () => {
  test('objects, lists, literals', () =>
    expect(toYAML({ kind: 'Pod', spec: { containers: [{ name: 'a', args: ['-v', 'x: y'] }], empty: [], none: {} }, text: 'one\ntwo\n', count: 3, on: false, nil: null })).toBe(
      'kind: Pod\nspec:\n  containers:\n  - name: a\n    args:\n    - -v\n    - "x: y"\n  empty: []\n  none: {}\ntext: |\n  one\n  two\ncount: 3\n"on": false\nnil: null\n',
    ))
  test.each([['yes'], ['null'], ['1.5'], ['0x1F'], ['12:30'], [''], ['# no'], ['- a'], ['---'], ['a: b'], ['a #b'], ['end '], ['*x'], ['~'], ['true'], ['@x'], ['1e3'], ['a:']])('%j is quoted', (s) => expect(toYAML({ v: s })).toBe(`v: ${JSON.stringify(s)}\n`))
  test.each([['v1'], ['--flag=x'], ['-v'], ['registry.example/a:1.2'], ['資料'], ['a-b_c.d/e'], ['node-role.kubernetes.io/x']])('%j is plain', (s) => expect(toYAML({ v: s })).toBe(`v: ${s}\n`))
  test('lists in lists', () => expect(toYAML([[1, 2], { a: [{ b: 1 }] }])).toBe('- - 1\n  - 2\n- a:\n  - b: 1\n'))
})

describe('log lines', () => {
  test('stamps come off, halves join, carriage returns go', () => {
    const l = new Lines()
    l.add('2026-01-01T00:00:01.5Z hel')
    l.add('lo\r\n2026-01-01T00:00:02Z two\nno stamp\n')
    expect(l.list.map((x) => x.text)).toEqual(['hello', 'two', 'no stamp'])
    expect(l.last).toBe('2026-01-01T00:00:02Z')
  })
  test('what is let go is counted', () => {
    const l = new Lines(100)
    for (let i = 0; i < 250; i++) l.add(`line ${i}\n`)
    expect(l.dropped + l.list.length).toBe(250)
    expect(l.list.at(-1)!.text).toBe('line 249')
  })
  test('a stream that starts again repeats nothing and loses nothing', () => {
    const l = new Lines()
    l.add('2026-01-01T00:00:01.1Z a\n2026-01-01T00:00:02.1Z b\n2026-01-01T00:00:02.2Z c\n')
    expect(l.resume()).toBe('2026-01-01T00:00:02Z')
    l.add('2026-01-01T00:00:02.1Z b\n2026-01-01T00:00:02.2Z c\n2026-01-01T00:00:02.3Z d\n')
    expect(l.list.map((x) => x.text).join('')).toBe('abcd')
  })
})

test('ansi colours become looks, other sequences go', () => {
  expect(ansi('\x1b[1;31mERR\x1b[0m ok\x1b[2K \x1b[38;5;200mx\x1b[39m')).toEqual([{ text: 'ERR', look: 'ansi-red ansi-bold' }, { text: ' ok', look: '' }, { text: ' ', look: '' }, { text: 'x', look: '' }])
  expect(ansi('[red] stays')).toEqual([{ text: '[red] stays', look: '' }])
})

test('words', () => {
  expect(shorten('coredns-6d4b75cb6d-x7x2k', 14)).toBe('coredns-…x7x2k')
  expect(bytes(18 * 2 ** 20)).toBe('18.0 MiB')
  expect(plural('NetworkPolicy', 'networkpolicies')).toBe('NetworkPolicies')
  expect(plural('Pod', 'pods')).toBe('Pods')
})
