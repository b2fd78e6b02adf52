"""The built wiki: its sentences against the evidence, its ids, its links and anchors."""

import html
import json
import re
from urllib.parse import unquote, urldefrag

import pytest

from readyonce.data.markup import NOT_A_NUMBER
from readyonce.pages import lab_book
from support.html import text, tree
from support.project import KNOWN, RUNS

LANGUAGES = {"en": "", "zh": "zh/"}
# Written out here once more, on purpose: the sentence a reader sees must not be judged by the code that made it.
SENTENCES = {
    ("en", "match"): "trains right Parameters equal those of one process.",
    ("en", "diverge"): "wrong gradients It finishes, and the parameters are off by ",
    ("en", "still"): "nothing moves It finishes, and the trained parameters equal their start.",
    ("en", "error"): "fails {title}",
    ("zh", "match"): "训练正确 参数与单进程一致。",
    ("zh", "diverge"): "梯度错误 训练能跑完，但参数偏了 ",
    ("zh", "still"): "参数没有变化 训练能跑完，但可训练参数与开始时相同。",
    ("zh", "error"): "报错 {title}",
}
CELLS = {
    ("en", "match"): "trains right",
    ("en", "diverge"): "wrong gradients {error}",
    ("en", "still"): "nothing moves",
    ("en", "error"): "fails",
    ("zh", "match"): "训练正确",
    ("zh", "diverge"): "梯度错误 {error}",
    ("zh", "still"): "参数没有变化",
    ("zh", "error"): "报错",
}


class Page:
    """What the tests read of a page: ids, links, and the rows of its tables as text."""

    def __init__(self, html):
        page = tree(html)
        self.ids = {it.get("id") for it in page.iter() if it.get("id")}
        self.links = [it.get(name) for it in page.iter() for name in ("href", "src") if it.get(name) is not None]
        self.rows = []
        self.cells = {}  # id -> (first cell of its row, head of its column, its own text)
        for table in page.iter("table"):
            rows = [[cell for cell in row if cell.tag in ("td", "th")] for row in table.iter("tr")]
            told = [[text(cell) for cell in row] for row in rows]
            self.rows += told
            for row, words in zip(rows, told):
                for column, cell in enumerate(row):
                    ids = [it.get("id") for it in cell.iter() if it.get("id") and it is not cell]
                    self.cells |= dict.fromkeys(ids, (words[0], told[0][column], words[column]))


@pytest.fixture(scope="session")
def pages(built):
    return {
        path.relative_to(built).as_posix(): Page(path.read_text(encoding="utf-8")) for path in built.rglob("*.html")
    }


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("incident, variant, environment", RUNS)
def test_sentence_says_what_the_run_showed(pages, known, incident, variant, environment, language):
    page = pages[f"{LANGUAGES[language]}incidents/{incident}/evidence/index.html"]
    it = known.incidents[incident]
    run = it.run(variant, environment)
    if variant in it.meta.variants:
        wanted = SENTENCES[language, run.outcome].format(title=run.error and known.families[run.error].title[language])
        rows = [row for row in page.rows if row[0] == variant and len(row) == 3]
        assert rows and page.cells[anchor(variant, environment)][0] == variant
        for row in rows:
            colon = {"en": ": ", "zh": "："}[language]
            told = row[2] if environment == "current" else row[2].partition(f"{environment}{colon}")[2]
            assert told.startswith(wanted), row
            if run.outcome == "diverge":
                if run.gradient_error > NOT_A_NUMBER:
                    assert "nan" in told
                    continue
                number, unit = re.search(r"([\d.]+)([%×])", told).groups()
                share = float(number) / {"%": 100, "×": 1}[unit]
                assert share == pytest.approx(run.gradient_error, rel=0.06)
                assert (unit == "×") == (run.gradient_error > 10)
    else:
        left, top, cell = page.cells[anchor(variant, environment)]
        assert cell == CELLS[language, run.outcome].format(error=share_of(run.gradient_error or 0))
        comma = {"en": ", ", "zh": "，"}[language]
        assert f"{left}{comma}{top}" == comma.join(words_of(it, variant, language))


def share_of(error):
    """To two digits: in percent, above ten times as a factor."""
    if error > NOT_A_NUMBER:
        return "nan"
    return f"{float(f'{error:.2g}'):g}×" if error > 10 else f"{float(f'{100 * error:.2g}'):g}%"


def anchor(variant, environment):
    return f"run-{variant}" + ("" if environment == "current" else f"-in-{environment.replace('.', '-')}")


def words_of(incident, variant, language):
    """The words of a matrix variant's axes: those left of its cell, then those above it."""
    for matrix in incident.meta.matrices:
        for words in matrix.names():
            if "-".join(words) == variant:
                told = [axis[word][language].replace("`", "") for axis, word in zip(matrix.axes, words)]
                return told[::-1] if lab_book.turned(matrix) else told
    raise AssertionError(variant)


@pytest.mark.parametrize("language", LANGUAGES)
def test_ids_are_the_same_everywhere(pages, built, root, language):
    snippets = {path.name for path in (root / "snippets").glob("RO-*")}
    articles = {path.stem for path in (root / "docs" / language / "incidents").glob("RO-*.md")}
    index = {
        id
        for row in pages[f"{LANGUAGES[language]}incidents/index.html"].rows
        if len(row) == 3  # what one sees, whose it is, the fix
        for id in re.findall(r"RO-\d{4}", row[1])
    }
    listed = {entry["id"] for entry in json.loads((built / "api/v1/incidents.json").read_text(encoding="utf-8"))}
    assert snippets == articles == listed == index == set(KNOWN.incidents)


def test_every_internal_link_and_anchor_goes_somewhere(pages, built):
    dead = []
    for name, page in pages.items():
        if name.endswith("404.html"):
            continue  # its addresses are absolute: it is served from anywhere
        for link in page.links:
            if re.match(r"[a-z]+:|//", link) and not link.startswith("data:"):
                continue
            if link.startswith("data:") or not link:
                continue
            target, anchor = urldefrag(unquote(link))
            path = (built / name).parent / target.partition("?")[0] if target else built / name
            path = path / "index.html" if path.is_dir() else path
            resolved = path.resolve()
            if not resolved.is_file():
                dead.append(f"{name}: {link}")
            elif anchor and not anchor.startswith("__") and resolved.suffix == ".html":
                other = pages[resolved.relative_to(built.resolve()).as_posix()]
                if anchor not in other.ids:
                    dead.append(f"{name}: {link}")
    assert not dead, "\n".join(dead)


def test_links_to_github_have_the_form_of_its_addresses(pages):
    form = re.compile(
        r"https://github\.com/[\w.-]+/[\w.-]+"
        r"(/(issues|pull)/\d+(#[\w-]+)?|/(blob|tree|commit|compare|releases/tag)/[^@#]+(#L\d+(-L\d+)?)?)?/?"
    )
    links = {link for page in pages.values() for link in page.links if link.startswith("https://github.com/")}
    assert links
    assert not [link for link in sorted(links) if not form.fullmatch(link)]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("family", KNOWN.families)
def test_every_wording_stands_on_its_page_as_code(built, known, family, language):
    where = built / LANGUAGES[language] / known.families[family].path / "index.html"
    text = where.read_text(encoding="utf-8").replace("<wbr>", "")
    codes = [html.unescape(code) for code in re.findall("<code>(.*?)</code>", text)]
    for wording in known.families[family].wordings:
        assert all(any(literal in code for code in codes) for literal in wording.all), wording.all


def test_each_page_leads_to_itself_in_the_other_language(pages, built):
    for name in pages:
        if not name.endswith("404.html"):
            other = name[3:] if name.startswith("zh/") else f"zh/{name}"
            (link,) = re.findall(r'ro-language"[^>]* href="([^"]*)"', (built / name).read_text(encoding="utf-8"))
            assert ((built / name).parent / link / "index.html").resolve() == built.resolve() / other, name


def test_claims_json_follows_from_the_evidence(built, known):
    for entry in json.loads((built / "api/v1/claims.json").read_text(encoding="utf-8")):
        assert set(entry["text"]) == {"en", "zh"} and all(entry["text"].values())
        truths = []
        for label, predicted in entry["predicted"].items():
            run = known.run_named(label).run
            assert entry["observed"][label] == run.outcome
            truths.append(predicted.split(":")[0] == run.outcome and predicted.split(":")[1:] in ([], [run.error]))
        if entry["basis"] == "run":
            share = sum(truths) / len(truths)
            assert entry["verdict"] == ("holds" if share == 1 else "fails" if share < 1 / 8 else "depends")
