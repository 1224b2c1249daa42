export type Language = 'en' | 'zh-TW'
export type Theme = 'system' | 'light' | 'dark'

function stored<T extends string>(key: string, allowed: readonly T[]): T | undefined {
  const v = localStorage.getItem('orrery.' + key) as T | null
  return v && allowed.includes(v) ? v : undefined
}

function parsed(text: string | null): Record<string, string> {
  try {
    return JSON.parse(text ?? '{}')
  } catch {
    return {}
  }
}

/** What a user chose about the page itself, kept in the browser. */
class Prefs {
  language = $state<Language>(stored('language', ['en', 'zh-TW']) ?? (navigator.language.startsWith('zh') ? 'zh-TW' : 'en'))
  theme = $state<Theme>(stored('theme', ['system', 'light', 'dark']) ?? 'system')
  dockHeight = $state(Number(localStorage.getItem('orrery.dock')) || 280)
  usage = $state(localStorage.getItem('orrery.usage') === 'true')
  private chosen = $state.raw<Record<string, string>>(parsed(localStorage.getItem('orrery.columns')))
  inspectorWidth = $state(Number(localStorage.getItem('orrery.inspector')) || 460)

  setLanguage(l: Language): void {
    this.language = l
    localStorage.setItem('orrery.language', l)
  }

  setTheme(t: Theme): void {
    this.theme = t
    localStorage.setItem('orrery.theme', t)
  }

  /** columns are those chosen for a kind, "" if none were. */
  columns(kind: string): string {
    return this.chosen[kind] ?? ''
  }

  setColumns(kind: string, columns: string): void {
    this.chosen = { ...this.chosen, [kind]: columns }
    localStorage.setItem('orrery.columns', JSON.stringify(this.chosen))
  }

  setUsage(on: boolean): void {
    this.usage = on
    localStorage.setItem('orrery.usage', String(on))
  }

  saveSizes(): void {
    localStorage.setItem('orrery.dock', String(this.dockHeight))
    localStorage.setItem('orrery.inspector', String(this.inspectorWidth))
  }
}

export const prefs = new Prefs()
