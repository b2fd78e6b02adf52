// A box above all advice: only what has all its words stays, and the headings above that.
{
  const zh = document.documentElement.lang.startsWith("zh")
  const field = document.createElement("input")
  field.type = "search"
  field.placeholder = field.ariaLabel = zh ? "筛选，例如 ZeRO-3" : "Filter, for example ZeRO-3"
  const status = document.createElement("span")
  status.setAttribute("role", "status")
  document.querySelector(".ro-filter").append(field, status)

  const all = [...document.querySelectorAll("article :is(tbody tr, .ro-claim, p[id*='-claim-'])")]
  const texts = new Map(all.map(it => [it, it.textContent.toLowerCase()]))
  const heads = [...document.querySelectorAll("article h3")].map(head => {
    const below = []
    for (let it = head.nextElementSibling; it && !/^H[23]$/.test(it.tagName); it = it.nextElementSibling) if (texts.has(it)) below.push(it)
    return [head, below]
  })

  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean)
    for (const [claim, text] of texts) claim.hidden = !words.every(word => text.includes(word))
    for (const [head, below] of heads) head.hidden = below.every(it => it.hidden)
    const left = all.filter(it => !it.hidden).length
    status.textContent = words.length ? `${left} / ${all.length}` : ""
  })
}
