import { expect, test } from 'vitest'
import type { Column, Row, State } from '../stream/types'
import { buildModel, nodesShown } from './model'

const columns = (...names: string[]): Column[] => names.map((name) => ({ name, type: 'string' }))
const row = (name: string, ns: string, cells: string[], state: State = 'ok'): Row => ({ uid: ns + name, ns, name, cells, state, created: '' })

test('T13: of 5,000 nodes and their pods a few are shown and the rest counted, those in trouble first', () => {
  const names = Array.from({ length: 5000 }, (_, i) => `node-${i}`)
  const model = buildModel({
    nodes: names.map((n) => row(n, '', ['Ready', n === 'node-0' ? 'control-plane' : '<none>'], n === 'node-4711' ? 'error' : 'ok')), nodeColumns: columns('Status', 'Roles'),
    pods: Array.from({ length: 15_000 }, (_, i) => row(`log-${i}`, 'kube-system', [names[i % 5000]!])), podColumns: columns('Node'),
    leases: [], leaseColumns: [], objects: [], map: null, live: true,
  })
  const { shown, rest } = nodesShown(model.nodes)
  expect(shown.map((n) => n.name).slice(0, 3)).toEqual(['node-0', 'node-4711', 'node-1'])
  expect([shown.length, rest]).toEqual([24, [['ok', 4976]]])
  expect(model.nodes.every((n) => n.pods.length === 3)).toBe(true)
})
