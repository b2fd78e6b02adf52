// Comes when somebody turns to the search field. A word that no page has is read as one that some page has and that one
// slip away is typed alike; the line above the hits says so. Chinese typed in another language's pages is led to the
// Chinese ones.
//
// typed: what stands in the field. query: what the theme is asked for a text; asks `mended` for each word.
// search: searches again.
globalThis.readyonceTypos = (typed, query, search) => {
  const zh = document.documentElement.lang.startsWith("zh")
  const other = document.querySelector("a[hreflang=zh]")
  const note = document.createElement("div")
  note.className = "md-search-result__meta ro-read"
  note.setAttribute("role", "status")
  document.querySelector(".md-search-result__meta").after(note)

  const read = new Map() // word → how it is read; of the last query
  let near = () => undefined // until the index has come
  let asked = false
  async function learn() {
    asked = true
    try {
      near = nearest(await documents())
      search()
    } catch {
      asked = false // the index is not there yet
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
      if (!asked && /[a-z_]{6}/i.test(text)) learn()
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

  async function documents() {
    const disk = location.protocol === "file:" // there the theme loads the index as a script
    const { base } = JSON.parse(document.getElementById("__config").textContent)
    return (disk ? await __index : await (await fetch(`${base}/search/search_index.json`)).json()).docs
  }

  // word → the most frequent word of the index that one letter left out, put in, changed or swapped makes of it, or
  // undefined where the index has the word or none so near.
  function nearest(docs) {
    const known = new Map() // word → how often
    for (const { title, text } of docs)
      for (const [word] of `${title} ${text}`.toLowerCase().matchAll(/[a-z_]{5,}/g)) known.set(word, (known.get(word) ?? 0) + 1)
    const words = [...known.keys()]
    const letters = [..."abcdefghijklmnopqrstuvwxyz_"]

    return typed => {
      const word = typed.toLowerCase()
      if (!/^[a-z_]{6,}$/.test(word)) return undefined
      const stem = word.replace(/(e?s|e?d|ing|ly)$/, "") // the index knows a word's other endings
      if (words.some(it => it.startsWith(stem))) return undefined
      const made = [...word, ""].flatMap((letter, at) => {
        const [head, tail] = [word.slice(0, at), word.slice(at + 1)]
        const swapped = head + tail.slice(0, 1) + letter + tail.slice(1)
        return [head + tail, swapped, ...letters.flatMap(it => [head + it + tail, head + it + letter + tail])]
      })
      return made.filter(it => known.has(it)).sort((a, b) => known.get(b) - known.get(a))[0]
    }
  }
}
