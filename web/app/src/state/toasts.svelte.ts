/** What was done, or could not be, said once and for a few seconds. */
class Toasts {
  list = $state.raw<{ id: number; text: string; bad: boolean }[]>([])
  private next = 0

  say(text: string, bad = false): void {
    const id = this.next++
    this.list = [...this.list, { id, text, bad }]
    setTimeout(() => this.drop(id), bad ? 12_000 : 4_000)
  }

  drop(id: number): void {
    this.list = this.list.filter((x) => x.id !== id)
  }
}

export const toasts = new Toasts()
