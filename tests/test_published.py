"""What search engines, chats, feed readers and programs see of the wiki; and its page for what is not found."""

import os
import re
import shutil
import struct
import subprocess
import unicodedata
from datetime import datetime
from html.parser import HTMLParser
from itertools import islice
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
import yaml
from conftest import EPOCH, KNOWN, REPOSITORY, bytes_of

from readyonce import articles, history, news, site

PREFIX = {"en": "", "zh": "zh/"}
ATOM, MAP = "{http://www.w3.org/2005/Atom}", "{http://www.sitemaps.org/schemas/sitemap/0.9}"


class Head(HTMLParser):
    """Title, `meta` by name or property, `link` by rel and language."""

    def __init__(self, text):
        super().__init__()
        self.title, self.metas, self.links, self._in_title = "", {}, {}, False
        self.feed(text.partition("</head>")[0])

    def handle_starttag(self, tag, attributes):
        it = dict(attributes)
        self._in_title = tag == "title"
        if tag == "meta" and "content" in it:
            self.metas[it.get("name") or it.get("property")] = it["content"]
        if tag == "link":
            self.links[it["rel"].strip(), it.get("hreflang") or it.get("type")] = it["href"]

    def handle_data(self, data):
        if self._in_title:
            self.title += data.strip()


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
    assert site.build(copy, take_along=False) == 0
    assert (folder / "sitemap.xml.gz").is_file() and bytes_of(copy / "site") == bytes_of(folder)


@pytest.mark.parametrize("language", PREFIX)
def test_a_search_result_shows_the_whole_description(root, language):
    """Of what it finds, a search engine shows some 160 columns. A look-alike begins with a sentence to be read whole."""
    for path in sorted((root / "docs" / language).rglob("*.md")):
        text = (yaml.safe_load(articles.read(path).front_matter) or {}).get("description", "")
        wide = sum(1 + (unicodedata.east_asian_width(it) in "WFA") for it in text)
        assert wide <= 160 or path.parent.name == "look-alikes", (path, wide)


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
        told = f"{KNOWN.incidents[source.stem].file.title[language]} · {source.stem}" if source.stem in ids else title
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
        assert KNOWN.incidents[id].file.summary[language] in entry.find(f"{ATOM}summary").text
        # The copy that is published here has no git history, so that the dates are those of the evidence.
        ran = max(evidence.environment.date for evidence in KNOWN.incidents[id].evidence.values())
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
    # Those that only list others are left out, and the files below each article.
    left_out = ["", "errors/", "incidents/", *(f"incidents/{id}/files/" for id in KNOWN.incidents)]
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
            for tag in incident.file.tags.kind(kind, language):
                wanted.setdefault(f"tag:{tag.lower().replace(' ', '-')}", set()).add(incident.id)
        assert listed == wanted
    for id, incident in KNOWN.incidents.items():
        page = (built / PREFIX[language] / f"incidents/{id}/index.html").read_text(encoding="utf-8")
        linked = re.findall(r'<a href="\.\./\.\./tags/#([^"]+)" class="md-tag">', page)
        assert len(linked) == len(incident.file.tags.all(language)) and all(f'id="{tag}"' in text for tag in linked)


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
    titles = {file.file.short["zh" if zh else "en"] for file in KNOWN.incidents.values()}
    assert {it.partition("RO-")[2][7:] for it in page.locator("[data-id] a:visible").all_inner_texts()} >= titles
    assert page.eval_on_selector_all("[data-id]", "all => all.map(it => it.dataset.id)") == list(KNOWN.incidents)
    guess = page.locator("#ro-guess a")
    assert [link.evaluate("link => link.href") for link in guess.all()] == ([address + found] if found else [])
    assert page.evaluate("getComputedStyle(document.querySelector('.md-header')).position") == "sticky"  # styled
    if found:
        guess.click()
        assert page.url == address + found and "RO-" in page.title()
    page.close()


# ------------------------------------------------------------------------------ what changed lately


@pytest.fixture
def repository(tmp_path):
    """An empty one, and a function that commits what lies in it."""

    def git(*arguments, day="2026-01-01"):
        when = f"{day}T12:00:00Z"
        dates = os.environ | {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
        name = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", "-C", str(tmp_path), *name, *arguments], check=True, env=dates)

    def commit(day="2026-01-01"):
        git("add", "-A", day=day)
        git("commit", "-q", "-m", "words", day=day)

    assert history.changes(tmp_path) is None and history.dates(tmp_path) == {} and not list(news.news(tmp_path))
    git("init", "-q")
    assert history.changes(tmp_path) is None
    return tmp_path, commit


def test_dates_come_from_git(repository):
    folder, commit = repository

    def write(*paths):
        for path in paths:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            with open(folder / path, "a") as file:
                file.write("a")

    write("snippets/RO-0001/incident.yml", "README.md")
    commit("2026-01-01")
    write("docs/en/index.md", "snippets/errors/a.yml")
    commit("2026-01-02")
    write("snippets/RO-0002/evidence/current.json", "docs/zh/incidents/RO-0001.md")
    commit("2026-01-03")
    seen = history.changes(folder)
    assert [(c.when[:10], c.new, c.changed) for c in seen] == [
        ("2026-01-03", ("RO-0002",), ("RO-0001",)),
        ("2026-01-01", ("RO-0001",), ()),
    ]
    assert history.dates(folder)["RO-0001"] == (seen[1].when, seen[0].when)
    shallow = folder / "shallow"
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{folder}", str(shallow)], check=True)
    assert history.changes(shallow) is None and not list(news.news(shallow))


def test_news_are_what_readers_rely_on(repository, root, known):
    folder, commit = repository
    snippets = folder / "snippets"
    left_out = shutil.ignore_patterns("RO-000[2-5]", "__pycache__")
    shutil.copytree(root / "snippets", snippets, ignore=left_out)
    path, ran = snippets / "RO-0001" / "incident.yml", snippets / "RO-0001" / "evidence" / "ms-swift-3.5.3.json"
    text, evidence = path.read_text(encoding="utf-8"), ran.read_text(encoding="utf-8")
    ran.unlink()
    commit("2026-01-01")
    ran.write_text(evidence, encoding="utf-8")
    commit("2026-01-02")
    (snippets / "RO-0001" / "repro.py").write_text("# other words, which no reader relies on\n", encoding="utf-8")
    commit("2026-01-03")
    assert "basis: source\n    supports: holds" in text and text.count(known.incidents["RO-0001"].file.fix.option) == 1
    text = text.replace("basis: source\n    supports: holds", "basis: source\n    supports: fails", 1)
    path.write_text(text.replace(known.incidents["RO-0001"].file.fix.option, "--another true"), encoding="utf-8")
    commit("2026-01-04")
    third, second, first = news.news(folder)
    assert (third.day, second.day, first.day) == ("2026-01-04", "2026-01-02", "2026-01-01")
    assert first.before is None and len(first.verdicts) == len(known.incidents["RO-0001"].file.claims)
    assert set(second.runs) == {"ms-swift-3.5.3"} and not (second.fixed or second.affected or second.turned)
    assert second.runs["ms-swift-3.5.3"].total() == len(known.incidents["RO-0001"].evidence["ms-swift-3.5.3"].runs)
    assert third.fixed and list(third.verdicts.values()) == [("holds", "fails")] and not third.runs
    path.write_text("id: what nobody can read", encoding="utf-8")
    commit("2026-01-05")
    assert not list(news.news(folder))


@pytest.mark.parametrize("language", PREFIX)
def test_the_page_lists_what_git_says_or_that_it_cannot(built, published, root, language):
    name = f"{PREFIX[language]}changes/index.html"
    no_git = {"en": "without the project's full git history", "zh": "没有完整的 git 历史"}[language]
    assert no_git in (published[1] / name).read_text(encoding="utf-8")
    text = (built / name).read_text(encoding="utf-8")
    if history.changes(root) is None:
        assert no_git in text
    else:
        told = [(it.day, it.incident) for it in islice(news.news(root), 20)]
        assert re.findall(r"<time>([\d-]+)</time></td>\s*<td><a[^>]*>(RO-\d{4})", text) == told
