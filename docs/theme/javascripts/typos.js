// Comes when somebody turns to the search field. A word that no page has is read as one that pages have and that one slip
// away is typed alike, and a dotted name that no page has as its parts; the line above the hits says so. Chinese typed in
// another language's pages is led to the Chinese ones. Where nothing is found, it says where else to look.
//
// typed: what stands in the field. query: what the theme is asked for a text; asks `mended` for each word.
// search: searches again.
globalThis.readyonceTypos = (typed, query, search) => {
  const zh = document.documentElement.lang.startsWith("zh")
  const other = document.querySelector("a[hreflang=zh]")
  const note = document.createElement("div")
  note.className = "md-search-result__meta ro-read"
  note.setAttribute("role", "status")
  const none = document.createElement("div")
  none.className = "md-search-result__meta"
  none.hidden = true
  const ways = [zh ? "可以看：" : "Look into: ", ...elsewhere().flatMap((link, place) => (place ? [" · ", link] : [link]))]
  const list = document.querySelector(".md-search-result__list")
  document.querySelector(".md-search-result__meta").after(note, none)
  new MutationObserver(() => {
    const found = !typed().trim() || list.childElementCount > 0
    if (found === none.hidden) return
    none.hidden = found
    none.replaceChildren(...(found ? [] : ways)) // the arrow keys go through all links, also through what is hidden
  }).observe(none.parentNode, { childList: true, subtree: true })

  const read = new Map() // word → how it is read; of the last query
  let near = () => undefined // until the index has come
  let asked = false
  async function learn() {
    asked = true
    try {
      near = nearest(await documents())
      search()
    } catch {
      asked = false // the index could not be fetched: the next key tries again
    }
  }

  return {
    mended(word) {
      const found = near(word)
      if (found) read.set(word, found)
      return found ?? word
    },
    say() {
      const text = typed()
      if (!asked && /[a-z_]{5}/i.test(text)) learn()
      read.clear()
      query(text)
      note.replaceChildren()
      if (!zh && other && /\p{sc=Han}/u.test(text)) {
        const link = document.createElement("a")
        link.href = new URL(`?q=${encodeURIComponent(text)}`, other.href)
        link.lang = "zh"
        link.textContent = `在中文页面里搜索“${text}”`
        note.append(link)
      } else if (read.size) {
        note.textContent = `${zh ? "按此搜索：" : "Read as: "}${[...new Set(read.values())].join(" ")}`
      }
      note.hidden = !note.childNodes.length
    },
  }

  // The pages for who has an error, who looks for one, who sees none, and who has none yet.
  function elsewhere() {
    const home = document.querySelector(".md-logo").href // in the offline copy pages are files
    const file = home.endsWith("/index.html")
    const pages = [["diagnose", zh ? "诊断" : "Diagnose"], ["errors", zh ? "报错" : "Errors"], ["symptoms", zh ? "没有报错" : "No error"], ["decision", zh ? "哪种设置可用" : "Which setting works"]]
    return pages.map(([page, title]) => {
      const link = document.createElement("a")
      link.href = new URL(file ? (page === "errors" ? "errors/index.html" : `${page}.html`) : `${page}/`, home).href
      link.textContent = title
      return link
    })
  }

  async function documents() {
    const disk = location.protocol === "file:" // there the theme loads the index as a script
    const { base } = JSON.parse(document.getElementById("__config").textContent)
    const index = new URL("search/search_index.json", new URL(base, location.href)) // `/` and `/search` would be a host
    // Its script may come after what is typed.
    while (disk && typeof __index === "undefined") await new Promise(done => setTimeout(done, 100))
    return (disk ? await __index : await (await fetch(index)).json()).docs
  }

  // word → the most frequent word of the index that one letter left out, put in, changed or swapped makes of it, or
  // undefined where the index has the word or none so near. The first letter is taken as meant, and in a short word only
  // a letter that was left out, typed twice or swapped for a slip: too many words differ by one.
  function nearest(docs) {
    const known = new Map() // word → how often
    for (const { title, text } of docs)
      for (const [word] of `${title} ${text}`.toLowerCase().matchAll(/[a-z_]{4,}/g)) known.set(word, (known.get(word) ?? 0) + 1)
    const dotted = new Set(docs.flatMap(({ title, text }) => `${title} ${text}`.toLowerCase().match(/[a-z_]+(?:\.[a-z_]+)+/g) ?? []))
    const words = [...known.keys()]
    const letters = [..."abcdefghijklmnopqrstuvwxyz_"]
    const often = word => known.get(word) > 3

    function right(word) { // also with another ending
      const endings = /(.)\1\1/.test(word) ? [] : [/e?[sd]$/, /[sd]$/, /ing$/, /ly$/, /ers?$/] // `losss` is no plural
      const stems = endings.filter(it => it.test(word)).map(it => word.replace(it, ""))
      return words.some(it => it.startsWith(word))
        || stems.some(it => known.has(it) || known.has(`${it}e`) || known.has(it.replace(/(.)\1$/, "$1")))
    }

    return typed => {
      const word = typed.toLowerCase()
      if (/^[a-z_]+(\.[a-z_]+)+$/.test(word)) return dotted.has(word) ? undefined : word.replaceAll(".", " ")
      if (!/^[a-z_]{5,}$/.test(word) || right(word)) return undefined
      const long = word.length > 6
      const made = [...word, ""].flatMap((letter, at) => {
        if (!at) return []
        const [head, tail] = [word.slice(0, at), word.slice(at + 1)]
        const swapped = head + tail.slice(0, 1) + letter + tail.slice(1)
        const out = long || letter === word[at - 1] ? [head + tail] : []
        return [...out, swapped, ...letters.flatMap(it => [head + it + letter + tail, ...(long ? [head + it + tail] : [])])]
      })
      return made.filter(often).sort((a, b) => known.get(b) - known.get(a))[0]
    }
  }
}
