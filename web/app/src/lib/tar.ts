/** tar packs files as ustar does: names up to 100 bytes, as a copy to a pod needs. */
export function tar(files: { name: string; data: Uint8Array; modified: number }[]): Uint8Array {
  const padded = (n: number) => Math.ceil(n / 512) * 512
  const out = new Uint8Array(files.reduce((n, f) => n + 512 + padded(f.data.length), 1024))
  const text = new TextEncoder()
  let at = 0
  for (const f of files) {
    const put = (offset: number, s: string) => out.set(text.encode(s), at + offset)
    const octal = (n: number, width: number) => n.toString(8).padStart(width - 1, '0') + '\0'
    const name = text.encode(f.name)
    if (name.length > 100) throw new Error(`${f.name}: the name is too long`)
    out.set(name, at)
    put(100, octal(0o644, 8))
    put(108, octal(0, 8))
    put(116, octal(0, 8))
    put(124, octal(f.data.length, 12))
    put(136, octal(Math.floor(f.modified / 1000), 12))
    put(148, '        ')
    put(156, '0')
    put(257, 'ustar\x0000')
    let sum = 0
    for (let i = 0; i < 512; i++) sum += out[at + i]!
    put(148, octal(sum, 7) + ' ')
    out.set(f.data, at + 512)
    at += 512 + padded(f.data.length)
  }
  return out
}
