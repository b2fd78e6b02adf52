"""Links to pages: the control that copies them, the command that prints them, the addresses that stay."""

import re

import jinja2
import pytest

import permalinks
from readyonce.cli import main
from readyonce.data import articles, links
from support.browser import settled, wait_until
from support.project import KNOWN, REPOSITORY

PREFIX = {"en": "", "zh": "zh/"}
# From an article to its lab book, from all advice to that on silent failures; a script leads there.
MOVED = ((r"^((?:zh/)?incidents/RO-\d{4}/)(?=#)", r"\1evidence/"), (r"^((?:zh/)?advice)-silent/(?=#)", r"\1/"))
FORMS = {"github": 0, "jira": 1, None: 2}  # the place of each in the control
# Where a page has no clipboard to write to, as on a plain http address.
NO_CLIPBOARD = "Object.defineProperty(navigator, 'clipboard', {value: undefined})"
KEEP = "navigator.clipboard.writeText = async text => { (window.kept ??= []).push(text) }"


def copies(browser, address: str) -> list[list[str]]:
    """What each control of a page copies, in its three forms."""
    page = browser.new_page()
    page.add_init_script(KEEP)
    page.goto(address)
    found = page.evaluate(
        """async () => {
            const all = []
            for (const box of document.querySelectorAll(".ro-copy")) {
                window.kept = []
                box.querySelector("button").click() // its choices are made then
                for (const button of box.querySelectorAll("span button")) {
                    button.click()
                    await Promise.resolve()
                }
                all.push(window.kept)
            }
            return all
        }"""
    )
    page.close()
    return found


@pytest.mark.parametrize("language", PREFIX)
@pytest.mark.parametrize("incident", KNOWN.incidents)
def test_command_prints_what_the_control_copies(browser, published, root, capsys, monkeypatch, incident, language):
    address, _ = published
    monkeypatch.setenv("SITE_URL", address)
    shown = copies(browser, f"{address}{PREFIX[language]}incidents/{incident}/")
    headings = articles.read(root / "docs" / language / "incidents" / f"{incident}.md").headings
    wanted = []
    for heading in headings:
        wanted += [heading.id] if heading.level <= 3 else []
    assert wanted and len(shown) == len(wanted)
    for number, (section, forms) in enumerate(zip(wanted, shown)):
        tracker = list(FORMS)[number % len(FORMS)]
        arguments = ["link", incident, "--lang", language]
        arguments += ["--section", section] if section != incident.lower() else []
        arguments += ["--for", tracker] if tracker else []
        assert main.main(arguments) == 0
        assert capsys.readouterr().out.strip() == forms[FORMS[tracker]]


def test_brackets_do_not_end_a_link(browser, published):
    address, _ = published
    markdown, jira, plain = copies(browser, f"{address}errors/zero3-empty-gradient/")[0]
    assert plain == f"{address}errors/zero3-empty-gradient/"
    assert markdown == rf"[got \[0\] but expected shape compatible with]({plain})"
    assert jira == rf"[got \[0\] but expected shape compatible with|{plain}]"


@pytest.mark.parametrize("clipboard", [True, False])
@pytest.mark.parametrize("place", ["http", "file"])
@pytest.mark.parametrize("language, copied", [("en", "Copied · Jira"), ("zh", "已复制 · Jira")])
def test_copying_by_keyboard(browser, address, built, language, copied, place, clipboard):
    name = f"{PREFIX[language]}incidents/RO-0003/"
    target = address + name if place == "http" else f"file://{built}/{name}index.html"
    with browser.new_context() as context:
        page = context.new_page()
        page.add_init_script(KEEP if clipboard else NO_CLIPBOARD)
        page.goto(target)
        page.evaluate("addEventListener('copy', () => (window.kept = [document.activeElement.value]))")
        opener = page.locator("#fix .ro-copy > button")
        opener.focus()
        page.keyboard.press("Enter")
        assert opener.get_attribute("aria-expanded") == "true"
        wait_until(page, "'component$' in window")  # the theme's script comes with the first key, and takes keys too
        page.keyboard.press("Escape")
        assert opener.get_attribute("aria-expanded") == "false"
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        wait_until(page, "document.querySelector('.ro-toast').textContent")
        assert page.inner_text(".ro-toast[role=status]") == copied
        assert opener.evaluate("button => button === document.activeElement")
        heading = {"en": "Fix: make checkpointing non-reentrant", "zh": "解决办法：改用非可重入梯度检查点"}[language]
        assert page.evaluate("window.kept") == [f"[RO-0003 · {heading}|{target}#fix]"]


def test_a_run_can_be_linked_and_is_marked_on_arrival(browser, address):
    """In a lab book: a run of a table of variants, and one of a matrix."""
    book = f"{address}incidents/RO-0001/evidence/"
    page = browser.new_page()
    page.add_init_script(KEEP)
    page.goto(book)
    assert not page.locator("td .ro-copy").count()
    for run in ("run-reported", "run-zero2-twice-reentrant-default-bucket-accumulate-1"):
        page.locator(f"td:has(> [id='{run}'])").hover()
        page.click("td .ro-copy > button")
        page.locator("td .ro-copy > span > button").last.click()
        wait_until(page, "document.querySelector('.ro-toast').textContent")
        assert page.evaluate("window.kept").pop() == f"{book}#{run}"
        page.evaluate("document.querySelector('.ro-toast').textContent = ''")
    seen = "getComputedStyle(document.querySelector(':target').closest('tr')).backgroundColor"
    plain = page.evaluate("getComputedStyle(document.querySelector('td').parentElement).backgroundColor")
    page.mouse.move(0, 0)  # the control would go to what lies below the pointer
    page.goto("about:blank")
    page.goto(f"{book}#{run}")
    wait_until(page, "document.querySelector('td:has(:target) > .ro-copy')")  # for who has no pointer
    assert page.evaluate(seen) != plain
    page.close()


# ------------------------------------------------------------------------------ addresses that stay


def test_every_address_ever_published_still_resolves(built):
    there = permalinks.of(built)
    gone = set(permalinks.read()) - there
    gone = sorted(old for old in gone if not any(re.sub(*moved, old) in there for moved in MOVED))
    assert not gone, "published, and no longer there:\n" + "\n".join(gone)


@pytest.mark.parametrize("language", PREFIX)
def test_what_moved_is_found_under_its_old_address(browser, address, language):
    page = browser.new_page()
    article = f"{address}{PREFIX[language]}incidents/RO-0001/"
    for target in ("run-reported", "reproduce", "run-static-graph-accumulate-2"):
        page.goto("about:blank")
        page.goto(f"{article}#{target}")
        page.wait_for_url(f"{article}evidence/#{target}")
        assert page.evaluate("document.querySelector(':target') !== null")
    claim = "#RO-0007-claim-times-ranks"
    page.goto(f"{address}{PREFIX[language]}advice-silent/{claim}")
    page.wait_for_url(f"{address}{PREFIX[language]}advice/{claim}")
    asked = []
    page.on("request", lambda request: asked.append(request.url) if request.is_navigation_request() else None)
    page.goto(f"{article}#claims")
    settled(page)  # it has fetched and run scripts after the one that could lead elsewhere
    assert page.url == f"{article}#claims" and len(asked) == 1
    page.evaluate("location.hash = 'evidence'")
    page.wait_for_url(f"{article}evidence/#evidence")
    page.close()


def test_every_address_is_in_the_list(built):
    new = sorted(permalinks.listed(permalinks.of(built)) - set(permalinks.read()))
    assert not new, "`python tests/permalinks.py` adds:\n" + "\n".join(new)


@pytest.mark.parametrize("language", PREFIX)
def test_edit_and_report_where_the_repository_is_known(published, built, language):
    address, site = published
    name = f"{PREFIX[language]}incidents/RO-0003/index.html"
    page = (site / name).read_text(encoding="utf-8")
    assert f'href="{REPOSITORY}/edit/main/docs/{language}/incidents/RO-0003.md"' in page
    assert f'href="{REPOSITORY}/issues/new?title=RO-0003%20%C2%B7%20' in page
    assert "/issues/new?" not in (built / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "repository, new, fields",
    [
        ("https://github.com/a/b", "/issues/new?", ("title", "body")),
        ("https://gitlab.com/a/b", "/-/issues/new?", ("issue%5Btitle%5D", "issue%5Bdescription%5D")),
        ("https://gitee.com/a/b", "/issues/new?", ("title", "description")),
        ("https://gitcode.com/a/b", "/issues/create?", ("title", "body")),
        ("https://atomgit.com/a/b", "/issues/create?", ("title", "body")),
    ],
)
def test_each_forge_is_asked_in_its_own_way(root, repository, new, fields):
    """Not tried on the forges: the forms are from what others link to."""
    source = (root / "docs/theme/main.html").read_text(encoding="utf-8")
    block = source[source.index("    {# Forges") :].partition("  {% endif %}\n{% endblock %}")[0]
    known = {
        "page": {},
        "file": {"src_uri": "x.md"},
        "config": {"theme": {"language": "en"}},
        "title": "T",
        "zh": False,
    }
    html = jinja2.Environment(autoescape=True).from_string(block).render(known, repository=repository + "/")
    forge = repository + new[: new.index("/issues")]
    assert f'href="{forge}/edit/main/docs/en/x.md"' in html
    assert f'href="{repository}{new}{fields[0]}=T&amp;{fields[1]}=Page' in html
    assert links.new_issue(repository + "/").startswith(repository + new) and not links.new_issue("")
