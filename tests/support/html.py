"""A page as a tree: what the tests read of HTML."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from html.parser import HTMLParser
from xml.etree.ElementTree import Element, TreeBuilder

VOID = frozenset(["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"])


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tree, self.open = TreeBuilder(), ["page"]
        self.tree.start("page", {})

    def handle_starttag(self, tag, attributes):
        self.tree.start(tag, {name: value or "" for name, value in attributes})
        self.open.append(tag)
        if tag in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        while tag in self.open:
            self.tree.end(self.open[-1])
            if self.open.pop() == tag:
                break

    def handle_data(self, data):
        self.tree.data(data)


def tree(html: str) -> Element:
    """The page; its elements are below a root of ours."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    while reader.open:
        reader.tree.end(reader.open.pop())
    return reader.tree.close()


def text(element: Element) -> str:
    """With one space where there is any white space."""
    return " ".join("".join(element.itertext()).split())


def classes(element: Element) -> set[str]:
    return set(element.get("class", "").split())


def pieces(element: Element, tags: Collection[str], marks: Collection[str]) -> Iterator[str]:
    """Its texts, as they stand between tags; not what is hidden, in one of these tags, or has one of these classes."""
    if "hidden" not in element.attrib and element.tag not in tags and not classes(element) & set(marks):
        yield element.text or ""
        for below in element:
            yield from pieces(below, tags, marks)
            yield below.tail or ""
