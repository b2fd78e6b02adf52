// The theme's script makes what answers a reader: search, tabs that move together, copy buttons, the mark in the table of
// contents. On a phone it costs more than all else on a page, and nobody needs it to read. So it comes with the first
// thing that a reader does, or at once where the address asks for it.
//
// `data-ready` at the root: the scripts of the page have run and, once it is called, the theme's has come and has answered.
{
  const { dataset, classList } = document.documentElement
  const { search, theme } = document.currentScript.dataset
  const signs = ["pointerdown", "pointermove", "touchstart", "wheel", "scroll", "keydown", "focusin", "change"]
  // What the theme will answer when it is here.
  const meanwhile = []
  // What is typed there the theme reads when it comes.
  const field = document.querySelector(".md-search__input")
  // The theme does so too: it shows what needs a script.
  classList.replace("no-js", "js")

  let called = false

  function load() {
    called = true
    delete dataset.ready
    for (const sign of signs) removeEventListener(sign, noted, true)
    for (const sign of ["keydown", "change"]) addEventListener(sign, keep, true)
    for (const src of [search, theme]) document.body.append(Object.assign(document.createElement("script"), { src, async: false }))
    document.body.lastChild.onload = () => {
      for (const sign of ["keydown", "change"]) removeEventListener(sign, keep, true)
      // It waits for an event that is over, and makes tabs a moment later.
      document$.next(document)
      setTimeout(() => {
        // A key that led to the search field would close it there: the theme takes Tab for leaving, and Enter for the first hit.
        for (const [target, event] of meanwhile) if (event.type === "change" || document.activeElement !== field) target.dispatchEvent(event)
        dataset.ready = ""
      }, 20)
    }
  }
  function noted(event) {
    load()
    keep(event)
  }
  function keep(event) {
    const { target, type, key } = event
    if (type === "change") {
      if (target.matches(".tabbed-set > input")) meanwhile.push([target, new Event(type)])
      else if (target.id === "__search" && target.checked) field.focus()
    } else if (type === "keydown" && !target.matches("input, textarea, select") && !event.ctrlKey && !event.metaKey && !event.altKey) {
      if (key === "/" || key === "f" || key === "s") {
        field.focus()
        event.preventDefault()
      } else meanwhile.push([target, new KeyboardEvent(type, event)])
    }
  }

  document.addEventListener("DOMContentLoaded", () => {
    if (location.hash || location.search || document.activeElement !== document.body) load()
    else for (const sign of signs) addEventListener(sign, noted, { capture: true, passive: sign !== "keydown" })
  })
  addEventListener("load", () => {
    if (!called) dataset.ready = ""
  })
}
