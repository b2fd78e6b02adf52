// The theme's search extends each word to all that begin with it, so that "a" finds half of the index, and takes
// - + : ^ ~ " for operators, so that `--option` and `Error:` find nothing. That suits single words, not pasted lines.
// The theme asks the field for its value; this one answers in whole words (`word^1`), of which only the last, which
// may still be typed, is extended. What the reader sees stays as typed.
//
// The theme cuts Chinese into words of the index, but never sees the one at the end of a run of characters, and leaves
// out all that stands behind a character that the index has not, as the stop words. So runs end before a stop word, and
// in a character that is in no page. A word that holds such a character, such as 超时, is a run of its own.
//
// Readers count the devices, pages do not: `8卡` is asked as 多卡, and `8xH20` as `8 H20`. A name of letters and digits is
// often typed without its end, so that one is extended wherever it stands: `910B` is 910B4.
{
  const field = document.querySelector('[data-md-component="search-query"]')
  const value = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value")
  const cut = /(超时|耗时|同时|就绪|参与|求和|平方和|存在)|[被的了和在是与及或时后就都怎么吗]+/
  const runs = text => text.split(cut).filter(Boolean).map(run => `${run}〇`).join(" ")
  const devices = text => text.replace(/(?:\d+|[两双四八])\s?张?卡(?![住死])/g, " 多卡 ").replace(/\b([1-9]\d*)[x×*](?=[a-z]+\d)/gi, "$1 ")
  const named = /^(?=.*\d)(?=.*[a-z])[a-z\d]{4,}$/i
  const id = (_, digits) => `RO-${digits.padStart(4, "0")}`
  let help = { mended: word => word, say() {} } // until typos.js has come

  function query(text) {
    const words = devices(text).replace(/\bRO-?0*(\d{1,4})\b/gi, id).split(/[^\w.\u0080-\uffff]+|\.+(?=\s|$)/).filter(Boolean)
    return words
      .map((word, place) => {
        if (/\p{sc=Han}/u.test(word)) return word.replace(/\p{sc=Han}+/gu, runs)
        const read = help.mended(word)
        return (place === words.length - 1 && word.length > 2) || named.test(read) ? read : read.replace(/(?= |$)/g, "^1")
      })
      .join(" ")
  }

  const typed = () => value.get.call(field)
  Object.defineProperty(field, "value", { get: () => query(typed()), set: text => value.set.call(field, text) })
  // The theme searches when a key is released. A paste with the mouse releases none.
  function search() {
    help.say()
    field.dispatchEvent(new KeyboardEvent("keyup"))
  }
  field.addEventListener("input", search)

  const script = document.createElement("script")
  script.src = new URL("typos.js", document.currentScript.src)
  script.onload = () => {
    help = readyonceTypos(typed, query, search)
    help.say()
  }
  field.addEventListener("focus", () => document.head.append(script), { once: true })
  if (document.activeElement === field) document.head.append(script) // on a slow line somebody types already
}
