/** One clock for every age on the page. */
class Clock {
  now = $state(Date.now())

  constructor() {
    setInterval(() => {
      if (!document.hidden) this.now = Date.now()
    }, 1000)
  }
}

export const clock = new Clock()
