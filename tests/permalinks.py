"""tests/permalinks.txt: every address and anchor that was published. It only grows: build the site, then
run this file to add what is new.

Runs are promised by rule and not listed: `#run-VARIANT`, with `-in-ENVIRONMENT` where it is not the current one; test_site.py
looks for each stored run there. So a variant may get a better name."""

import re
from pathlib import Path

LIST = Path(__file__).with_suffix(".txt")
ARTICLE = re.compile(r'<article class="md-content__inner.*?</article>', re.DOTALL)


def read() -> list[str]:
    return LIST.read_text(encoding="utf-8").splitlines() if LIST.is_file() else []


def of(site: Path) -> set[str]:
    """Pages, the anchors in their articles, and the files for programs; not what belongs to the theme or a figure."""
    found = {path.relative_to(site).as_posix() for path in (site / "api").rglob("*.json")}
    found |= {path.relative_to(site).as_posix() for path in site.rglob("llms.txt")}
    for path in site.rglob("index.html"):
        page = path.relative_to(site).as_posix().removesuffix("index.html")
        (article,) = ARTICLE.findall(path.read_text(encoding="utf-8"))
        found.add(page)
        found |= {f"{page}#{id}" for id in re.findall(r' id="((?!__|ro-(?!\d)).+?)"', article)}
    return {address or "/" for address in found}


def listed(addresses: set[str]) -> set[str]:
    """All but the runs."""
    return {address for address in addresses if "#run-" not in address}


if __name__ == "__main__":
    known = read()
    if not (there := of(LIST.parent.parent / "site")):
        raise SystemExit("There are no pages in site/. Build the site first: make site")
    added = listed(there) - set(known)
    LIST.write_text("\n".join(sorted({*known, *added})) + "\n", encoding="utf-8")
    print(f"{len(added)} added to {LIST.name}")
