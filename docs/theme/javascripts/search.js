// The theme's search extends each word to all that begin with it, so that "a" finds half of the index, and takes
// - + : ^ ~ " for operators, so that `--option` and `Error:` find nothing. That suits single words, not pasted lines.
// The theme asks the field for its value; this one answers in whole words (`word^1`), of which only the last, which
// may still be typed, is extended. What the reader sees stays as typed.
{
  const field = document.querySelector('[data-md-component="search-query"]')
  const value = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value")

  function query(text) {
    const words = text.split(/[^\w.\u0080-\uffff]+|\.+(?=\s|$)/).filter(Boolean)
    return words.map((word, place) => (place === words.length - 1 && word.length > 2 ? word : `${word}^1`)).join(" ")
  }

  Object.defineProperty(field, "value", {
    get: () => query(value.get.call(field)),
    set: text => value.set.call(field, text),
  })
  // The theme searches when a key is released. A paste with the mouse releases none.
  field.addEventListener("input", () => field.dispatchEvent(new KeyboardEvent("keyup")))
}
