// The address that was not found may name an incident, in any spelling: /RO-3, /wiki/ro_0003.html, /zh/RO-0003/fix.
{
  const asked = readyonceDecoded(location.pathname)
  const number = /(?:^|[^a-z])ro[-_ ]?0*(\d{1,4})(?!\d)/i.exec(asked)?.[1]
  const language = asked.includes("/zh/") ? "zh" : "en"
  const link = number && document.querySelector(`[data-id="RO-${number.padStart(4, "0")}"] [hreflang="${language}"]`)
  if (link) {
    const guess = link.cloneNode(true)
    guess.href += location.hash
    guess.removeAttribute("data-language")
    const said = language === "zh" ? "你要找的可能是：" : "You may be looking for "
    document.querySelector("#ro-guess").append(said, guess)
  }

  // The page is English with Chinese below; one who asked for a Chinese page reads that alone, without the English tabs.
  if (language === "zh") {
    document.documentElement.lang = "zh-Hans"
    document.title = "找不到页面"
    document.querySelector("h1").firstChild.data = "找不到页面"
    document.querySelectorAll('[data-language="en"], .md-tabs').forEach(it => it.remove())
    const home = document.querySelector('[data-language="zh"] a:last-child').href
    document.querySelectorAll(".md-logo").forEach(logo => (logo.href = home))
  } else {
    document.querySelectorAll('li [data-title="zh"]').forEach(it => it.remove()) // the English title is beside it
  }
}
