import { describe, expect, test } from 'vitest'
import type { Column, Row, State } from '../stream/types'
import { ansi } from './ansi'
import { pick, readChoice, writeChoice } from './columns'
import { diffLines, hunks } from './diff'
import { age, humanDuration } from './duration'
import { fuzzyScore, parseFilter } from './filter'
import { Lag } from './lag'
import { Feed, Lines } from './lines'
import { LogView } from './logview'
import { pathAt, read, reasons, Schemas } from './schema'
import { compareRows, Sorter } from './sort'
import { tar } from './tar'
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
  const log = (max?: number) => {
    const lines = new Lines(max)
    return { lines, feed: new Feed(lines), texts: () => (lines.flush(), lines.list.map((l) => l.text).join(' ')) }
  }
  test('stamps come off, halves join, carriage returns go', () => {
    const { feed, texts } = log()
    feed.add('2026-01-01T00:00:01.5Z hel')
    feed.add('lo\r\n2026-01-01T00:00:02Z two\nno stamp\n')
    expect(texts()).toBe('hello two no stamp')
    expect(feed.last).toBe('2026-01-01T00:00:02Z')
  })
  test('what is let go is counted', () => {
    const { lines, feed, texts } = log(100)
    for (let i = 0; i < 250; i++) feed.add(`line ${i}\n`)
    expect(texts().endsWith('line 249')).toBe(true)
    expect(lines.dropped + lines.list.length).toBe(250)
  })
  test('a stream that starts again repeats nothing and loses nothing, also of a burst', () => {
    const { feed, texts } = log()
    const burst = Array.from({ length: 12_000 }, (_, i) => `2026-01-01T00:00:02.1Z ${i % 7}`).join('\n') + '\n'
    feed.add('2026-01-01T00:00:01.1Z a\n' + burst)
    expect(feed.resume()).toBe('2026-01-01T00:00:02Z')
    feed.add(burst + '2026-01-01T00:00:02.3Z d\n')
    expect(texts().split(' ').length).toBe(12_002)
  })
  const second = (n: number) => `2026-01-01T00:00:0${n}.5Z ${n}\n`
  test.each<[string, string, string]>([
    ['goes on where it was', second(2) + second(3), '1 2 3'],
    ['goes on, what it had not been told first', second(1) + second(2) + second(3), '1 2 3'],
    ['has lost lines', second(5), '1 2 <00:00:02 to 00:00:05> 5'],
  ])('a stream that broke %s', (_, then, want) => {
    const lines = new Lines()
    const feed = new Feed(lines, 0, (from, to) => `<${from.slice(11, 19)} to ${to.slice(11, 19)}>`)
    feed.add(second(1) + second(2) + '2026-01-01T00:00:03.5Z half a li')
    feed.resume(true)
    feed.add(then)
    lines.flush()
    expect(lines.list.map((l) => l.text).join(' ')).toBe(want)
  })
  test('several sources are one, by time', () => {
    const { lines, feed, texts } = log()
    const other = new Feed(lines, 1)
    feed.add('2026-01-01T00:00:01Z a\n2026-01-01T00:00:03.25Z c\n')
    expect(texts()).toBe('a c')
    other.add('2026-01-01T00:00:02Z b\n2026-01-01T00:00:03.5Z d\n')
    const changed = lines.flush()
    expect(changed).toEqual({ from: 1, gone: 0 })
    expect(texts()).toBe('a b c d')
  })
  const numbered = (n: number, max?: number) => {
    const { lines, feed } = log(max)
    for (let i = 0; i < n; i++) feed.add(`line ${i}\n`)
    return { lines, feed, first: lines.flush() }
  }
  test('the view shows what matches, and follows', () => {
    const { lines, feed } = numbered(100)
    const view = new LogView(lines, /7$/)
    expect([view.length, view.at(1).text, view.rows]).toEqual([10, 'line 17', 10])
    feed.add('line 107\nline 108\n')
    const { from, gone } = lines.flush()
    view.changed(from, gone)
    expect([view.length, view.at(10).text]).toEqual([11, 'line 107'])
  })
  test('long lines wrap, and wide letters take two columns', () => {
    const { lines, feed } = log()
    feed.add('0123456789\n節點節點節點\nx\n\n')
    lines.flush()
    const view = new LogView(lines, null, 5)
    expect([view.rows, view.top(1), view.top(2), view.find(0), view.find(2), view.find(4), view.find(5)]).toEqual([7, 2, 5, 0, 1, 1, 2])
  })
  test('lines that go at the front go from the view', () => {
    const { lines, feed } = numbered(100, 100)
    const view = new LogView(lines, /line/, 80)
    for (let i = 100; i < 150; i++) feed.add(`line ${i}\n`)
    const { from, gone } = lines.flush()
    view.changed(from, gone)
    expect([view.length, view.at(0).text, view.rows]).toEqual([100, 'line 50', 100])
  })
})

describe('T28: how far behind a log is', () => {
  // Every 100 ms until the end comes a line of so many ms before.
  const after = (end: number, old: number, silent = 0) => {
    const lag = new Lag()
    for (let now = 100_000; now <= 100_000 + end; now += 100) lag.hear(now - old, now)
    return lag.at(100_000 + end + silent)
  }
  test.each([
    ['a backlog', after(5000, 60_000), 60_000],
    ['old lines, as a log begins with', after(1000, 60_000), 0],
    ['lines that are new', after(5000, 500), 0],
    ['a backlog that is through', after(5000, 60_000, 2000), 0],
  ])('%s', (_, got, want) => expect(got).toBe(want))
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

describe('where in an object a line is', () => {
  const text = `spec:
  template:
    spec:
      containers:
      - name: web
        ports:
        - containerPort: 80
          x
        y
      - image: z
      q
  r
s
metadata:
  labels:
    app: web`.split('\n')
  test.each([
    ['      - name: web', 'spec.template.spec.containers.[]'], ['        - containerPort: 80', 'spec.template.spec.containers.[].ports.[]'], ['          x', 'spec.template.spec.containers.[].ports.[]'],
    ['        y', 'spec.template.spec.containers.[]'], ['      - image: z', 'spec.template.spec.containers.[]'], ['      q', 'spec.template.spec'], ['  r', 'spec'], ['s', ''], ['    app: web', 'metadata.labels'], ['  template:', 'spec'],
  ])('%s', (line, want) => {
    const column = line.search(/[^\s-]/)
    expect(pathAt(text, text.indexOf(line), column).join('.')).toBe(want)
  })
})

describe('a schema', () => {
  const s = new Schemas(
    { Meta: { type: 'object', properties: { name: { type: 'string' } } }, Port: { type: 'object', required: ['port'], properties: { port: { type: 'integer' }, target: { 'x-kubernetes-int-or-string': true } } } },
    { type: 'object', properties: { metadata: { allOf: [{ $ref: '#/components/schemas/Meta' }] }, flag: { type: 'boolean' }, ports: { type: 'array', items: { $ref: '#/components/schemas/Port' } }, data: { type: 'object', additionalProperties: { type: 'string' } }, mode: { type: 'string', enum: ['A', 'B'] } } },
  )
  const words = { unknown: (f: string) => `unknown ${f}`, type: (w: string) => `want ${w}`, missing: (f: string) => `missing ${f}` }
  test.each([
    ['metadata: {name: x}\nflag: true\nports:\n- port: 80\n  target: http\ndata: {a: b}', ''],
    ['metadata: {nam: x}', 'unknown nam'], ['flag: "true"', 'want boolean'], ['ports: {}', 'want array'], ['ports:\n- target: 1', 'missing port'], ['data: {a: 1}', 'want string'], ['mode: C', 'want A | B'], ['metadata:', ''],
  ])('%s', (text, want) => expect(s.check(text, words).map((p) => p.text).join()).toBe(want))
  test('dates and clock times are texts', () => expect(read('at: 2026-01-01T00:00:00Z\nfor: 10:30\nflag: yes')).toEqual({ at: '2026-01-01T00:00:00Z', for: '10:30', flag: true }))
  test('broken YAML is said to be', () => expect(s.check('a: [', words)[0]?.severity).toBe('error'))
  test('fields are found along a path', () => expect(s.at(['ports', '[]', 'port'])?.type).toBe('integer'))
})

describe('what a refusal says', () => {
  const text = 'metadata:\n  name: x\nspec:\n  replicas: -1\n  containers:\n  - name: a\n  - name: b\n    image: ""\n'
  const lines = (message: string, causes: { field?: string; message?: string }[] = []) => reasons(message, causes, text, (f) => `unknown ${f}`).map((r) => `${text.slice(0, r.at).split('\n').length} ${r.text}`)
  test.each([
    ['spec.replicas', '4'], ['spec.containers[1].image', '8'], ['spec.containers[0].image', '6'], ['spec.containers[0]', '6'], ['metadata.labels[a.b/c]', '1'], ['spec', '3'], ['status.phase', ''], ['', ''],
  ])('of %s', (field, line) => expect(lines('invalid', [{ field, message: 'wrong' }])).toEqual(line ? [`${line} wrong`] : []))
  test('of fields that are not known', () => expect(lines('strict decoding error: unknown field "spec.size", unknown field "spec.containers[1].tty"')).toEqual(['3 unknown spec.size', '7 unknown spec.containers[1].tty']))
  test('of one of another type', () => expect(lines('json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32')[0]).toMatch(/^4 json/))
})

describe('comparing', () => {
  test('lines', () => expect(diffLines('a\nb\nc\nd', 'a\nx\nc\nd\ne').map((l) => l.sign + l.text).join('')).toBe(' a-b+x c d+e'))
  test('hunks leave out what is far from a change', () => expect(hunks(diffLines('1\n2\n3\n4\n5', '1\n2\n3\n4\n6'), 1).map((l) => (l ? l.sign + l.text : '…')).join('')).toBe('… 4-5+6'))
  test('nothing', () => expect(hunks(diffLines('a', 'a'))).toEqual([null]))
})

describe('columns', () => {
  const names = (text: string, wide = false) => pick([...columns.map((c, i) => ({ ...c, priority: i === 4 ? 1 : 0 })), { name: 'Zone', type: 'string' }], readChoice(text), wide, true).map((c) => c.column.name).join()
  test.each([['', 'Status,Restarts,Age,Zone'], ['Age|Status', 'Age,Status'], ['Zone=.metadata.labels.zone|Age', 'Zone,Age'], ['Gone', '']])('%s', (text, want) => expect(names(text)).toBe(want))
  test('wide', () => expect(names('', true)).toBe('Status,Restarts,Age,Nominated Node,Zone'))
  test('written as read', () => expect(writeChoice(readChoice('Age|Zone=.a[?(@.b=="c")]'))).toBe('Age|Zone=.a[?(@.b=="c")]'))
})

test('tar has a header and blocks of 512 bytes', () => {
  const out = tar([{ name: 'a.txt', data: new TextEncoder().encode('hello'), modified: 0 }])
  expect(out.length).toBe(512 + 512 + 1024)
  expect(new TextDecoder().decode(out.subarray(257, 262))).toBe('ustar')
  const sum = [...out.subarray(0, 512)].reduce((n, b, i) => n + (i >= 148 && i < 156 ? 32 : b), 0)
  expect(parseInt(new TextDecoder().decode(out.subarray(148, 154)), 8)).toBe(sum)
})
