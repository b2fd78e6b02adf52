// A control at each heading, and at a run of a lab book, that copies a link to it, in the forms that trackers take.
// `readyonce link` prints the same.

// Of an address; as it is where it was cut.
globalThis.readyonceDecoded = text => {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

{
  const zh = document.documentElement.lang.startsWith("zh")
  const words = zh
    ? { copy: "复制链接", plain: "地址", copied: "已复制", failed: "复制失败，请手动复制：" }
    : { copy: "Copy link", plain: "Address", copied: "Copied", failed: "Could not copy. The link is: " }
  const escaped = (text, marks) => text.replace(marks, "\\$&")
  const forms = {
    Markdown: (label, address) => `[${escaped(label, /[\\[\]]/g)}](${address})`,
    Jira: (label, address) => `[${escaped(label, /[\\[\]{}|]/g)}|${address}]`,
    [words.plain]: (_, address) => address,
  }

  const icon = '<svg viewBox="0 0 24 24" aria-hidden="true"><path d="M10 7H7a5 5 0 0 0 0 10h3m4-10h3a5 5 0 0 1 0 10h-3m-6-5h8"/></svg>'

  const title = document.querySelector('meta[property="og:title"]').content
  const id = /^[A-Z][A-Z0-9]*-\d{4}/.exec(title)?.[0] ?? title

  // The public address where it is known, also in a copy that was opened from a folder: there pages are files.
  const canonical = document.querySelector("link[rel=canonical]")?.href.replace(/index\.html$/, "").replace(/\.html$/, "/")
  const page = canonical ?? location.href.replace(/[?#].*/, "")

  const status = document.createElement("div")
  status.className = "ro-toast"
  status.setAttribute("role", "status")
  document.body.append(status)

  async function copy(text) {
    try {
      // There is none on a plain http address.
      await navigator.clipboard.writeText(text)
      return true
    } catch {
      const field = document.createElement("textarea")
      field.value = text
      field.setAttribute("readonly", "")
      document.body.append(field)
      field.select()
      const done = document.execCommand("copy")
      field.remove()
      return done
    }
  }

  function show(box, open) {
    const [opener, choices] = box.children
    opener.setAttribute("aria-expanded", open)
    choices.hidden = !open
    // Into sight.
    if (open) choices.style.translate = `${Math.max(0, 8 - choices.getBoundingClientRect().left)}px`
  }

  function offer(label, address, box) {
    const [opener, choices] = box.children
    for (const [name, form] of Object.entries(forms)) {
      const choice = document.createElement("button")
      choice.type = "button"
      choice.textContent = name
      choice.addEventListener("click", async () => {
        const link = form(label, address)
        const done = await copy(link)
        show(box, false)
        opener.focus()
        status.textContent = done ? `${words.copied} · ${name}` : words.failed + link
        if (done) setTimeout(() => (status.textContent = ""), 2500)
      })
      choices.append(choice)
    }
  }

  function copies(label, address) {
    const box = document.createElement("span")
    box.className = "ro-copy"
    box.innerHTML = `<button type="button" title="${words.copy}" aria-label="${words.copy}" aria-expanded="false">${icon}</button><span hidden></span>`
    const [opener, choices] = box.children
    opener.addEventListener("click", () => {
      if (!choices.firstChild) offer(label, address, box)
      show(box, choices.hidden)
    })
    return box
  }

  function control(heading) {
    const text = heading.cloneNode(true)
    text.querySelectorAll(".headerlink").forEach(mark => mark.remove())
    const top = heading.tagName === "H1"
    const box = top ? copies(title, page) : copies(`${id} · ${text.textContent.trim()}`, `${page}#${heading.id}`)
    // A button in a button would be none.
    const row = heading.closest("summary")
    if (row) row.nextElementSibling.append(" ", box)
    // Whose place it takes.
    else heading.insertBefore(box, heading.querySelector(".headerlink"))
  }

  document.querySelectorAll(".md-content :is(h1, h2, h3)[id]").forEach(control)

  // A lab book has hundreds of runs, so it has one control for them: at the run to which the pointer or the address came.
  let atRun
  function reach(run) {
    if (!run || atRun?.matches(':has([aria-expanded="true"])')) return
    const box = copies(`${id} · ${run.id.slice(4)}`, `${page}#${run.id}`)
    box.classList.add("ro-at-run")
    atRun?.remove()
    run.closest("td").append((atRun = box))
  }
  const runs = document.querySelector('td [id^="run-"]')?.closest("article")
  runs?.addEventListener("pointerover", ({ target }) => {
    const cell = target.closest("td")
    if (cell && !cell.querySelector(".ro-copy")) reach(cell.querySelector('[id^="run-"]'))
  })

  const addressed = () => location.hash && document.getElementById(readyonceDecoded(location.hash.slice(1)))

  // What moved from a page to another, as from an article to its lab book, is still found under its old address.
  const other = document.querySelector("a[data-ro-moved]")
  function follow() {
    const target = readyonceDecoded(location.hash.slice(1))
    if (other && target && !target.startsWith("__") && !document.getElementById(target)) {
      location.replace(`${other.href}#${target}`)
    }
    // Not yet `:target` while the page comes in.
    reach(document.getElementById(target)?.closest('td [id^="run-"]'))
  }
  follow()
  addEventListener("hashchange", follow)

  // The other language has the same ids: its switch leads to the target of the address while that is in sight, else to
  // the heading passed last; from the top of a page, to the top.
  function place() {
    const top = it => it.getBoundingClientRect().top
    const target = addressed()
    if (target && top(target) >= 0 && top(target) < innerHeight) return location.hash
    const passed = [...document.querySelectorAll(".md-content :is(h2, h3, h4)[id]")]
      .filter(it => it.getClientRects().length && top(it) < innerHeight / 3)
    return scrollY && passed.length ? `#${passed.at(-1).id}` : ""
  }
  const language = document.querySelector(".ro-language")
  for (const press of ["click", "auxclick"]) language.addEventListener(press, () => (language.hash = place()))

  // The theme opens the fold that a target stands in, but not one around it.
  function reveal() {
    const target = addressed()
    const closed = target ? [...document.querySelectorAll("details:not([open])")].filter(it => it.contains(target)) : []
    for (const it of closed) it.open = true
    if (closed.length > 1) target.scrollIntoView()
  }
  addEventListener("hashchange", reveal)
  reveal()

  const others = box => [...document.querySelectorAll('.ro-copy:has([aria-expanded="true"])')].filter(it => it !== box)
  document.addEventListener("click", event => others(event.target.closest(".ro-copy")).forEach(box => show(box, false)))
  document.addEventListener("keydown", event => {
    if (event.key !== "Escape") return
    for (const box of others()) {
      show(box, false)
      box.firstChild.focus()
    }
  })
}
