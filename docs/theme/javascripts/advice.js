// A box above all advice: only what has all its words stays, with its fold open.
{
  const zh = document.documentElement.lang.startsWith("zh")
  const field = document.createElement("input")
  field.type = "search"
  field.placeholder = field.ariaLabel = zh ? "筛选，例如 ZeRO-3" : "Filter, for example ZeRO-3"
  const status = document.createElement("span")
  status.setAttribute("role", "status")
  document.querySelector(".ro-filter").append(field, status)

  const all = [...document.querySelectorAll("article :is(tbody tr, p[id*='-claim-'])")]
  const texts = new Map(all.map(it => [it, it.textContent.toLowerCase()]))
  const folds = [...document.querySelectorAll("article .ro-said")].map(fold => [fold, all.filter(it => fold.contains(it))])

  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean)
    for (const [claim, text] of texts) claim.hidden = !words.every(word => text.includes(word))
    for (const [fold, inside] of folds) {
      fold.hidden = inside.every(it => it.hidden)
      fold.open = words.length > 0 && !fold.hidden
    }
    const left = all.filter(it => !it.hidden).length
    status.textContent = words.length ? `${left} / ${all.length}` : ""
  })
}
