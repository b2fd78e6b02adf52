// What the theme leaves out for a reader without a mouse or without sight. It builds parts of the page when the page is
// ready, so they are mended as they come.
{
  const words = document.documentElement.lang.startsWith("zh")
    ? { __drawer: "菜单", __search: "搜索", table: "表格，可左右滚动" }
    : { __drawer: "Menu", __search: "Search", table: "Table, scrolls sideways" }

  document.querySelector(".md-search").setAttribute("aria-label", words.__search)
  // On a narrow screen these two open the menu and the search; a label cannot have the focus.
  for (const name of ["__drawer", "__search"]) {
    const label = document.querySelector(`.md-header__button[for=${name}]`)
    const button = document.createElement("button")
    button.type = "button"
    button.setAttribute("aria-label", words[name])
    button.append(...label.childNodes)
    button.addEventListener("click", () => document.getElementById(name).click())
    label.append(button)
  }
  document.querySelector(".ro-scheme").addEventListener("click", () => {
    const shown = document.documentElement.dataset
    shown.mdColorScheme = shown.mdColorScheme === "slate" ? "default" : "slate"
    __md_set("__palette", { color: { scheme: shown.mdColorScheme } })
  })
  // The label that names a section with a page of its own holds an icon only.
  for (const section of document.querySelectorAll(".md-nav[aria-labelledby]")) {
    const title = section.querySelector(":scope > .md-nav__title")
    if (!title) continue
    section.removeAttribute("aria-labelledby")
    section.setAttribute("aria-label", title.textContent.trim())
  }

  // A table in a box of its own: where it is wider than the screen, the arrow keys scroll it once it has the focus.
  const sized = new ResizeObserver(boxes => {
    // All are measured before one is changed: after a change the next one would have the page laid out again.
    const measured = boxes.map(({ target }) => [target, target.scrollWidth > target.clientWidth])
    for (const [target, wide] of measured) {
      for (const [name, value] of [["tabindex", 0], ["role", "group"], ["aria-label", words.table]]) {
        if (wide) target.setAttribute(name, value)
        else target.removeAttribute(name)
      }
    }
  })
  const mend = () => {
    for (const box of document.querySelectorAll(".md-typeset__scrollwrap")) sized.observe(box)
    // Around each copy button and each list of tags the theme puts a landmark, without a name.
    for (const landmark of document.querySelectorAll(":is(.md-code__nav, .md-tags):not([role])")) landmark.setAttribute("role", "none")
  }
  new MutationObserver(mend).observe(document.body, { childList: true, subtree: true })
  mend()
}
