// Kubernetes' protocol for exec and attach on a websocket (v5.channel.k8s.io):
// the first byte of a message is its channel.
import { impersonated } from '../state/as.svelte'

export const stdin = 0
export const stdout = 1
export const stderr = 2
export const failure = 3
export const resize = 4
const close = 255

export function dial(path: string, query: URLSearchParams): WebSocket {
  const socket = new WebSocket(`${location.origin.replace(/^http/, 'ws')}/ui/k8s${impersonated(`${path}?${query}`)}`, 'v5.channel.k8s.io')
  socket.binaryType = 'arraybuffer'
  return socket
}

export function message(channel: number, data: Uint8Array): Uint8Array<ArrayBuffer> {
  const m = new Uint8Array(data.length + 1)
  m[0] = channel
  m.set(data, 1)
  return m
}

/** reason reads what the last message says of the end: "" is a good one. */
export function reason(text: string): string {
  try {
    const status = JSON.parse(text)
    return status.status === 'Success' ? '' : (status.message ?? text)
  } catch {
    return text
  }
}

export interface Where {
  ns: string
  pod: string
  container: string
}

/** run runs a command in a container with some input, and returns what it writes. */
export function run(where: Where, command: string[], input?: Uint8Array, progress?: (bytes: number) => void): Promise<Uint8Array<ArrayBuffer>[]> {
  const query = new URLSearchParams({ stdout: 'true', stderr: 'true' })
  if (input) query.set('stdin', 'true')
  if (where.container) query.set('container', where.container)
  for (const part of command) query.append('command', part)
  const socket = dial(`/api/v1/namespaces/${where.ns}/pods/${where.pod}/exec`, query)
  const out: Uint8Array<ArrayBuffer>[] = []
  let errors = ''
  let end: string | undefined
  let size = 0
  return new Promise((resolve, reject) => {
    socket.onopen = () => {
      if (!input) return
      for (let i = 0; i < input.length; i += 32_768) socket.send(message(stdin, input.subarray(i, i + 32_768)))
      socket.send(new Uint8Array([close, stdin]))
    }
    socket.onmessage = (e) => {
      const data = new Uint8Array(e.data as ArrayBuffer)
      const rest = data.slice(1)
      if (data[0] === stdout) {
        out.push(rest)
        progress?.((size += rest.length))
      } else if (data[0] === stderr) errors += new TextDecoder().decode(rest)
      else if (data[0] === failure) end = reason(new TextDecoder().decode(rest))
    }
    socket.onclose = () => (end === '' ? resolve(out) : reject(new Error(errors.trim() || end || 'the connection broke')))
  })
}
