"""What is shipped and what builds it: licences, the bill of materials."""

import json
import re
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

from support.hosting import HOSTING
from support.project import ROOT

SHIPPED = (HOSTING / "shipped.md").read_text(encoding="utf-8")
GENERATED = (
    "*.html",
    "_headers",
    "headers.nginx.conf",
    "llms.txt",
    "SKILL.md",
    "feed.xml",
    "sitemap.xml*",
    "search/*",
    "javascripts/rules.js",
    "javascripts/lint-rules.js",
    "api/v1/*",
    "schema/*",
)
TAKEN_ALONG = ("book/*.pdf", "offline/*.zip")


def fits(name: str, patterns) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def test_every_file_is_ours_or_named(published):
    theirs = [
        glob
        for line in SHIPPED.splitlines()
        if "↳" not in line
        for glob in re.findall(r"`([^`]+)`", line.split("|")[1])
    ]
    theme = ROOT / "docs" / "theme"
    ours = {path.relative_to(theme).as_posix() for path in theme.rglob("*") if path.is_file()}
    scripts = [path.name for path in (ROOT / "packages" / "guard").glob("*.py")]
    ours |= {f"{page}/{name}" for page in ("guard", "guard-compare") for name in scripts}
    ours = {name for name in ours if not fits(name, theirs)}
    shipped = {
        path.relative_to(published[1]).as_posix().removeprefix("zh/")
        for path in published[1].rglob("*")
        if path.is_file()
    }
    unknown = {name for name in shipped - ours if not fits(name, (*theirs, *GENERATED, *TAKEN_ALONG))}
    assert not unknown, f"snippets/hosting/shipped.md names no licence of {sorted(unknown)}"
    assert all(any(fnmatchcase(name, glob) for name in shipped) for glob in theirs), "a part is named and not shipped"


def test_every_package_in_the_themes_files_is_named(published):
    inside = set()
    for path in published[1].glob("assets/**/*.map"):
        for source in json.loads(path.read_text(encoding="utf-8"))["sources"]:
            inside |= set(re.findall(r"node_modules/((?:@[^/]+/)?[^/]+)", source)[-1:])
    named = set(re.findall(r"\) `([^`]+)` \|", SHIPPED))
    assert inside == named


SAYS = {
    "MIT": "Permission is hereby granted, free of charge",
    "0BSD": "Permission to use, copy, modify, and/or distribute this software",
    "Apache-2.0": "END OF TERMS AND CONDITIONS",
    "MPL-1.1": "MOZILLA PUBLIC LICENSE Version 1.1",
    "W3C": "W3C Software and Document License",
}


def test_the_licences_of_others_are_shipped_in_full(published):
    """Each part in a file has its licence's text beside it, under its name; fonts in a PDF and icons need a notice only."""
    named = dict(re.findall(r"\[([^]]+)\]\([^)]*\)[^|]*\| ([\w.-]+) \|", re.sub(r".*`\.(svg|pdf)`.*", "", SHIPPED)))
    for folder in ("", "zh/"):
        text = (published[1] / folder / "licences.txt").read_text(encoding="utf-8")
        shown = re.split(r"(?m)^==== (.+): (.+)\n", text)[1:]
        assert dict(zip(shown[::3], shown[1::3])) == named
        for name, licence, body in zip(shown[::3], shown[1::3], shown[2::3]):
            assert SAYS[licence] in " ".join(body.split()), name
        assert 'licences.txt"' in (published[1] / folder / "index.html").read_text(encoding="utf-8")


def test_no_script_is_shipped_that_no_page_asks_for(published):
    """The theme brings search in 30 languages: ours are English, which needs nothing, and Chinese."""
    lunr = {path.relative_to(published[1]).as_posix() for path in published[1].rglob("lunr/**/*.js")}
    names = ("multi", "stemmer.support", "zh")
    assert lunr == {f"zh/assets/javascripts/lunr/min/lunr.{name}.min.js" for name in names}


def test_bill_of_materials_is_the_lock(tmp_path):
    """The command of `make sbom`, twice: the same bytes, and every locked package with its hashes."""
    (recipe,) = re.findall(r"cyclonedx-py (.+)", (ROOT / "Makefile").read_text(encoding="utf-8"))
    texts = []
    for name in ("one.json", "two.json"):
        arguments = recipe.replace("build/sbom.cdx.json", str(tmp_path / name)).split()
        program = Path(sys.executable).with_name("cyclonedx-py")
        subprocess.run([program, *arguments], cwd=ROOT, check=True, capture_output=True)
        texts.append((tmp_path / name).read_text(encoding="utf-8"))
    assert texts[0] == texts[1]
    bill = json.loads(texts[0])
    locked = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    wanted = dict(re.findall(r"^([\w.-]+)==([\w.]+)", locked, re.MULTILINE))
    assert bill["bomFormat"] == "CycloneDX" and {c["name"]: c["version"] for c in bill["components"]} == wanted
    hashes = [h["content"] for c in bill["components"] for r in c["externalReferences"] for h in r["hashes"]]
    assert sorted(hashes) == sorted(re.findall(r"--hash=sha256:(\w+)", locked))
