// A terminal in a container: a new shell, or what the container runs itself.
import type { FitAddon } from '@xterm/addon-fit'
import type { Terminal } from '@xterm/xterm'
import { dial, failure, message, reason, resize, stderr, stdin, stdout, type Where } from './channels'
import { t } from '../i18n/index.svelte'
import { nonce } from './nonce'

export interface Shell {
  connect(): void
  fit(): void
  theme(): void
  dispose(): void
}

// The best shell that the image has.
const command = ['sh', '-c', 'TERM=xterm-256color; export TERM; command -v bash >/dev/null 2>&1 && exec bash || exec sh']

export function openShell(host: HTMLElement, where: Where, attach: boolean, onend: (why: string) => void, onagain: () => void): Shell {
  let term: Terminal | undefined
  let fitter: FitAddon | undefined
  let socket: WebSocket | undefined
  let gone = false
  const encoder = new TextEncoder()

  function send(channel: number, text: string): void {
    if (socket?.readyState !== WebSocket.OPEN) return
    socket.send(message(channel, encoder.encode(text)))
  }

  const size = () => term && send(resize, JSON.stringify({ Width: term.cols, Height: term.rows }))

  function connect(): void {
    if (!term) return
    const query = new URLSearchParams({ stdin: 'true', stdout: 'true', tty: 'true' })
    if (where.container) query.set('container', where.container)
    if (!attach) for (const part of command) query.append('command', part)
    const mine = dial(`/api/v1/namespaces/${where.ns}/pods/${where.pod}/${attach ? 'attach' : 'exec'}`, query)
    socket = mine
    let why = ''
    let refused = t('shell.refused')
    const late = setTimeout(() => mine.close(), 15_000)
    // The size goes first, so that the shell's first line knows its width.
    mine.onopen = () => {
      refused = ''
      clearTimeout(late)
      size()
    }
    mine.onmessage = (e) => {
      const data = new Uint8Array(e.data as ArrayBuffer)
      if (data[0] === stdout || data[0] === stderr) term?.write(data.subarray(1))
      else if (data[0] === failure) why = reason(new TextDecoder().decode(data.subarray(1)))
    }
    mine.onclose = () => {
      clearTimeout(late)
      if (gone || socket !== mine) return
      term?.write('\r\n\x1b[2m' + '─'.repeat(Math.min(40, term.cols)) + '\x1b[0m\r\n')
      onend(why || refused)
    }
  }

  function theme(): void {
    if (!term) return
    const style = getComputedStyle(host)
    const value = (name: string) => style.getPropertyValue(name).trim()
    term.options.theme = {
      background: value('--sunken'), foreground: value('--text'), cursor: value('--accent'), selectionBackground: value('--line-strong'),
      red: value('--error'), green: value('--progressing'), yellow: value('--warning'), blue: value('--ok'), magenta: value('--terminating'), cyan: value('--progressing'),
    }
  }

  const fit = () => host.clientWidth > 0 && fitter?.fit()
  const resized = new ResizeObserver(fit)

  async function begin(): Promise<void> {
    const [xterm, fitAddon, unicode] = await Promise.all([import('@xterm/xterm'), import('@xterm/addon-fit'), import('@xterm/addon-unicode11'), import('@xterm/xterm/css/xterm.css')])
    if (gone) return
    term = new xterm.Terminal({ allowProposedApi: true, fontSize: 13, fontFamily: getComputedStyle(host).getPropertyValue('--mono'), scrollback: 20_000, documentOverride: withNonce(document) })
    fitter = new fitAddon.FitAddon()
    term.loadAddon(fitter)
    term.loadAddon(new unicode.Unicode11Addon())
    term.unicode.activeVersion = '11'
    theme()
    // The scrollbar's style is made with the page's own document.
    document.createElement = withNonce(document).createElement
    try {
      term.open(host)
    } finally {
      Reflect.deleteProperty(document, 'createElement') // the prototype's again
    }
    fit()
    // After the end there is nobody to type to: Enter begins anew.
    term.onData((text) => (socket?.readyState === WebSocket.CLOSED ? text === '\r' && onagain() : send(stdin, text)))
    term.onResize(size)
    resized.observe(host)
    connect()
    term.focus()
  }
  begin().catch((e: unknown) => onend(String(e)))

  return {
    connect,
    fit,
    theme,
    dispose() {
      gone = true
      resized.disconnect()
      socket?.close()
      term?.dispose()
    },
  }
}

/**
 * withNonce is the document, but what it makes can be styled under the page's
 * policy: style elements carry the nonce, and a style attribute, which the policy
 * forbids to write as text, is set through the element's style instead.
 */
function withNonce(doc: Document): Document {
  return new Proxy(doc, {
    get(target, property) {
      if (property === 'createElement') {
        return (tag: string, options?: ElementCreationOptions) => {
          const element = Document.prototype.createElement.call(target, tag, options)
          if (tag === 'style') element.nonce = nonce()
          element.setAttribute = function (this: HTMLElement, name: string, value: string) {
            if (name === 'style') this.style.cssText = value
            else Element.prototype.setAttribute.call(this, name, value)
          }
          return element
        }
      }
      const value = Reflect.get(target, property)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}
