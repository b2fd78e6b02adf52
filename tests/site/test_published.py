"""What search engines, chats, feed readers and programs see of the wiki; and its page for what is not found."""

import re
import struct
from datetime import datetime
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
import yaml

from readyonce.data import articles
from readyonce.publish import site
from support.html import text, tree
from support.project import EPOCH, KNOWN, REPOSITORY, bytes_of

PREFIX = {"en": "", "zh": "zh/"}
ATOM, MAP = "{http://www.w3.org/2005/Atom}", "{http://www.sitemaps.org/schemas/sitemap/0.9}"


class Head:
    """Title, `meta` by name or property, `link` by rel and language."""

    def __init__(self, html):
        head = tree(html.partition("</head>")[0])
        self.title = text(head.find(".//title"))
        self.metas = {
            it.get("name") or it.get("property"): it.get("content")
            for it in head.iter("meta")
            if it.get("content") is not None
        }
        links = head.iter("link")
        self.links = {(it.get("rel").strip(), it.get("hreflang") or it.get("type")): it.get("href") for it in links}


def pages(site):
    for path in sorted(site.rglob("index.html")):
        yield path.relative_to(site).as_posix().removesuffix("index.html"), path


def file_of(address: str, published) -> object:
    base, site = published
    assert address.startswith(base), address
    path = site / unquote(address.removeprefix(base).partition("#")[0])
    return path / "index.html" if path.is_dir() else path


def test_the_same_bytes_in_another_folder(published, copy, monkeypatch):
    """With an address there are a feed and a site map too."""
    address, folder = published
    for name, value in {
        "SITE_URL": address,
        "REPO_URL": REPOSITORY,
        "SOURCE_DATE_EPOCH": EPOCH,
        "TZ": "Asia/Shanghai",
    }.items():
        monkeypatch.setenv(name, value)
    assert site.build(copy, take_along=()) == 0
    assert (folder / "sitemap.xml.gz").is_file() and bytes_of(copy / "site") == bytes_of(folder)


def test_a_link_unfolds_well(published, root):
    base, site = published
    titles = {}
    for name, path in pages(site):
        head = Head(path.read_text(encoding="utf-8"))
        language, page = ("zh", name[3:]) if name.startswith("zh/") else ("en", name)
        source = root / "docs" / language / (page.rstrip("/") + ".md")
        source = source if source.is_file() else root / "docs" / language / page / "index.md"
        matter = yaml.safe_load(articles.read(source).front_matter)
        ids = KNOWN.incidents.keys() & {source.stem, source.parent.name}
        title = " · ".join([*ids, matter["title"]])
        told = f"{KNOWN.incidents[source.stem].meta.title[language]} · {source.stem}" if source.stem in ids else title
        assert head.metas["og:title"] == title and head.title.startswith(told), name
        assert head.metas["description"] == head.metas["og:description"] == matter["description"], name
        assert head.metas["og:url"] == head.links["canonical", None] == base + name
        assert head.links["alternate", "en"] == base + page and head.links["alternate", "zh-Hans"] == f"{base}zh/{page}"
        image = file_of(head.metas["og:image"], published).read_bytes()
        assert image[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", image[16:24]) == (1200, 630)
        assert len(image) < 300_000
        assert titles.setdefault((language, head.title), name) == name, "two pages have one title"


def test_without_an_address_nothing_invents_one(built):
    for name, path in pages(built):
        head = Head(path.read_text(encoding="utf-8"))
        assert head.metas["og:title"] and head.metas["description"]
        assert not {"og:url", "og:image"} & set(head.metas) and ("canonical", None) not in head.links, name
    assert not [*built.rglob("feed.xml"), *built.rglob("sitemap.xml*")]


@pytest.mark.parametrize("language", PREFIX)
def test_feed_has_every_incident(published, language):
    base, site = published
    home = base + PREFIX[language]
    feed = ElementTree.parse(site / PREFIX[language] / "feed.xml").getroot()
    assert feed.find(f"{ATOM}id").text == home
    assert feed.find(f"{ATOM}link[@rel='self']").get("href") == f"{home}feed.xml"
    entries = feed.findall(f"{ATOM}entry")
    assert {entry.find(f"{ATOM}id").text for entry in entries} == {f"{home}incidents/{id}/" for id in KNOWN.incidents}
    changed = []
    for entry in entries:
        assert file_of(entry.find(f"{ATOM}link").get("href"), published).is_file()
        published_on, updated = (
            datetime.fromisoformat(entry.find(ATOM + name).text) for name in ("published", "updated")
        )
        assert published_on <= updated
        changed.append(updated)
        id = entry.find(f"{ATOM}id").text.rstrip("/")[-7:]
        assert KNOWN.incidents[id].meta.summary[language] in entry.find(f"{ATOM}summary").text
        # The copy that is published here has no git history, so that the dates are those of the evidence.
        incident = KNOWN.incidents[id]
        environments = [evidence.environment for evidence in incident.evidence.values()] or [incident.ran_in]
        ran = max(environment.date for environment in environments)
        assert updated.date().isoformat() == ran
    assert changed == sorted(changed, reverse=True)
    assert datetime.fromisoformat(feed.find(f"{ATOM}updated").text) == changed[0]
    named = {
        Head(path.read_text(encoding="utf-8")).links["alternate", "application/atom+xml"] for _, path in pages(site)
    }
    assert named == {"../" * depth + "feed.xml" for depth in range(4)}


def test_sitemap_has_every_page_in_both_languages(published):
    base, site = published
    listed = [loc.text for loc in ElementTree.parse(site / "sitemap.xml").getroot().iter(f"{MAP}loc")]
    assert sorted(listed) == sorted(base + name for name, _ in pages(site))


@pytest.mark.parametrize("language", PREFIX)
def test_llms_lists_every_page(published, built, language):
    base, site = published
    text = (site / PREFIX[language] / "llms.txt").read_text(encoding="utf-8")
    links = re.findall(r"^- \[.*\]\((\S+)\)", text, re.M)
    assert all(file_of(link, published).is_file() for link in links)
    wanted = {base + name for name, path in pages(site) if name.startswith("zh/") == (language == "zh")}
    # Those that only list others are left out, and the generated pages below each article.
    below = {f"incidents/{id}/{page}/" for id in KNOWN.incidents for page in ("files", "claims")}
    left_out = ["", "errors/", "incidents/", *(name for name in below if base + PREFIX[language] + name in wanted)]
    assert all(f"incidents/{id}/files/" in left_out for id in KNOWN.incidents)
    assert wanted - set(links) == {f"{base}{PREFIX[language]}{name}" for name in left_out}
    relative = (built / PREFIX[language] / "llms.txt").read_text(encoding="utf-8")
    for link in re.findall(r"^- \[.*\]\((\S+)\)", relative, re.M):
        assert (built / PREFIX[language] / link).exists(), link


@pytest.mark.parametrize("language", PREFIX)
def test_tags_lead_to_the_incidents_that_have_them(built, language):
    text = (built / PREFIX[language] / "tags/index.html").read_text(encoding="utf-8").partition("</article>")[0]
    kinds = re.split(r'<h2 id="(\w+)"', text)
    for kind, body in zip(kinds[1::2], kinds[2::2]):
        listed = {
            unquote(tag): set(re.findall(r'href="\.\./incidents/(RO-\d{4})/"', part))
            for tag, part in zip(*[iter(re.split(r'<h3 id="([^"]+)"', body)[1:])] * 2)
        }
        wanted: dict[str, set[str]] = {}
        for incident in KNOWN.incidents.values():
            for tag in incident.meta.tags.kind(kind, language):
                words = re.sub(r"[^\w\s-]", "", tag.lower()).strip()  # as the theme makes an address of it
                wanted.setdefault("tag:" + re.sub(r"[-\s]+", "-", words), set()).add(incident.id)
        assert listed == wanted
    for id, incident in KNOWN.incidents.items():
        page = (built / PREFIX[language] / f"incidents/{id}/index.html").read_text(encoding="utf-8")
        linked = re.findall(r'<a href="\.\./\.\./tags/#([^"]+)" class="md-tag">', page)
        assert len(linked) == len(incident.meta.tags.all(language)) and all(f'id="{tag}"' in text for tag in linked)


@pytest.mark.parametrize(
    "asked, found",
    [
        ("RO-0003", "incidents/RO-0003/"),
        ("incidents/ro_3.html", "incidents/RO-0003/"),
        ("zh/errors/RO-0005/", "zh/incidents/RO-0005/"),
        ("issues/RO-0002/deep/down#fix", "incidents/RO-0002/#fix"),
        ("incidents/RO-9999/", None),
        ("zero-0003/", None),
    ],
)
def test_not_found_recognises_an_id(browser, published, asked, found):
    address, _ = published
    page = browser.new_page()
    page.goto(address + asked)
    zh = asked.startswith("zh/")
    assert page.locator("h1").inner_text().startswith("找不到页面" if zh else "Page not found")
    assert page.locator(".md-tabs").count() == (not zh)
    assert page.locator("[data-language]:visible[lang=zh] ~ [data-language=en]").count() == (0 if zh else 1)
    shown = page.locator("[data-language=zh]" if zh else "[data-language=en]").first
    to = [link.get_attribute("href") for link in shown.locator("a").all()]
    assert [link.removesuffix("/").rpartition("/")[2] for link in to[:2]] == ["diagnose", "errors"]
    titles = {file.meta.short["zh" if zh else "en"] for file in KNOWN.incidents.values()}
    assert {it.partition("RO-")[2][7:] for it in page.locator("[data-id] a:visible").all_inner_texts()} >= titles
    assert page.eval_on_selector_all("[data-id]", "all => all.map(it => it.dataset.id)") == list(KNOWN.incidents)
    listed = page.locator("[data-id]").all_inner_texts()
    assert all(len(re.findall(r"\bRO-\d{4}", it)) == 1 for it in listed), listed  # in one language
    guess = page.locator("#ro-guess a")
    assert [link.evaluate("link => link.href") for link in guess.all()] == ([address + found] if found else [])
    assert page.evaluate("getComputedStyle(document.querySelector('.md-header')).position") == "sticky"  # styled
    if found:
        guess.click()
        page.wait_for_load_state()
        assert page.url == address + found and "RO-" in page.title()
    page.close()


# ------------------------------------------------------------------------------ what changed lately


@pytest.mark.parametrize("language", PREFIX)
def test_the_page_needs_no_git_history(built, published, known, language):
    name = f"{PREFIX[language]}changes/index.html"
    listed = [
        re.findall(r"<time>([\d-]+)</time></td>\s*<td><a[^>]*>(RO-\d{4})", (site / name).read_text(encoding="utf-8"))
        for site in (built, published[1])
    ]
    days = {(it.date, id) for id, lines in known.changes.items() for it in lines}
    assert listed[0] == listed[1] and len(listed[0]) == 20 and set(listed[0]) <= days
    assert min(day for day, _ in listed[0]) >= max(day for day, id in days - set(listed[0]))
