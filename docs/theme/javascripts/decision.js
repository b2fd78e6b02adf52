// The picker: of the answers that stand in the page, each made from the runs, the one for what is chosen, and its option.
// The choice stands in the address, so that it can be sent to somebody.
{
  const box = document.querySelector(".ro-pick")
  const [strategy, use, tuning, version] = box.querySelectorAll("select")
  const shown = box.querySelector("[role=status]")
  const options = box.querySelectorAll("div[data-option]")
  const answers = new Map()
  for (const answer of box.querySelectorAll("li")) for (const key of answer.dataset.for.split(" ")) answers.set(key, answer)
  const keys = [...answers.keys()]

  // Only what was run with the choices before it can be chosen, but for what is trained: that answer may be "not run".
  function offer(select, fits) {
    for (const option of select.options) option.hidden = option.disabled = !fits(option.value)
    if (select.selectedOptions[0]?.disabled ?? true) select.value = [...select.options].find(it => !it.disabled).value
  }

  function show() {
    offer(use, value => keys.some(key => key.startsWith(`${strategy.value}/${value}/`)))
    const row = `${strategy.value}/${use.value}/`
    offer(version, value => keys.some(key => key.startsWith(row) && key.endsWith(`/${value}`)))
    version.parentElement.hidden = [...version.options].filter(it => !it.disabled).length < 2
    const answer = answers.get(`${row}${tuning.value}/${version.value}`) ?? answers.get("")
    for (const option of options) option.hidden = option.dataset.option !== answer.dataset.option
    if (shown.innerHTML !== answer.innerHTML) shown.replaceChildren(...answer.cloneNode(true).childNodes)
  }

  const chosen = () => `pick=${[strategy, use, tuning, version].map(it => it.value).join("/")}`
  function read() {
    const values = /^#pick=(.+)$/.exec(readyonceDecoded(location.hash))?.[1].split("/") ?? []
    for (const [select, value] of [[strategy, values[0]], [use, values[1]], [tuning, values[2]], [version, values[3]]]) {
      if ([...select.options].some(it => it.value === value)) select.value = value
    }
    show()
  }

  box.hidden = false
  read()
  addEventListener("hashchange", read)
  box.addEventListener("change", () => {
    show()
    history.replaceState(null, "", `#${chosen()}`)
  })
}
