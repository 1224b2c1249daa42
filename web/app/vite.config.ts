import { svelte } from '@sveltejs/vite-plugin-svelte'
import { brotliCompressSync, constants, gzipSync } from 'node:zlib'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { defineConfig, type Plugin } from 'vite'

const out = '../dist'

// precompress leaves a .br and a .gz beside what gains by it; the Go handler
// serves them as they are.
function precompress(): Plugin {
  return {
    name: 'precompress',
    apply: 'build',
    closeBundle() {
      const dir = join(import.meta.dirname, out, 'assets')
      for (const name of readdirSync(dir)) {
        if (!/\.(js|css|svg)$/.test(name)) continue
        const data = readFileSync(join(dir, name))
        if (data.length < 1024) continue
        writeFileSync(join(dir, name + '.gz'), gzipSync(data, { level: 9 }))
        writeFileSync(join(dir, name + '.br'), brotliCompressSync(data, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }))
      }
      writeFileSync(join(import.meta.dirname, out, '.gitkeep'), '')
    },
  }
}

export default defineConfig({
  base: '/ui/',
  plugins: [svelte(), precompress()],
  build: { outDir: out, emptyOutDir: true, target: 'es2022', modulePreload: { polyfill: false }, assetsInlineLimit: 0, reportCompressedSize: false },
  // npm run dev, against a server that runs elsewhere; sentences are shared with the console.
  server: { fs: { allow: ['.', '../../client/words'] }, proxy: { '/ui/k8s': { target: process.env.ORRERY_URL, ws: true, secure: false }, '/ui/session': { target: process.env.ORRERY_URL, secure: false } } },
})
