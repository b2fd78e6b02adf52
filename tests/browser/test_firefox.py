"""Diagnose in a second browser: Debian's Firefox, hosted under the policy and from a local folder.

It is driven over Marionette, its own protocol: a line of JSON over TCP. Playwright has a build of its own and cannot drive
this one (153.7: `emulation.setMediaFeaturesOverride: unknown command`), and geckodriver is no package of Debian's.
"""

import base64
import gzip
from urllib.parse import unquote

import pytest

from support.firefox import Firefox
from support.logs import LOG
from support.patience import until


@pytest.fixture(scope="session")
def firefox(tmp_path_factory):
    opened = Firefox(tmp_path_factory.mktemp("firefox"))
    yield opened
    opened.close()


FILE = """const data = new DataTransfer();
data.items.add(new File([Uint8Array.from(atob(arguments[0]), (c) => c.charCodeAt(0))], "x.log.gz"));
const field = document.querySelector('[data-ro="file"]');
field.files = data.files;
field.dispatchEvent(new Event("change"));"""
PASTE = """const field = document.querySelector("#ro-log");
field.value = arguments[0];
field.dispatchEvent(new Event("input"));"""
ANSWER = "return document.querySelector('.ro-answer .ro-verdict') && document.querySelector('.ro-answer').innerText"
STATUS = "return document.querySelector('[data-ro=status]').innerText.includes(arguments[0])"


@pytest.fixture(params=["hosted", "offline"])
def diagnose(request, archive, firefox):
    if request.param == "hosted":
        firefox.go(request.getfixturevalue("strict") + "diagnose/")
    else:
        firefox.go(request.getfixturevalue("disk") + "diagnose.html")
    yield firefox
    assert firefox.run("return complaints") == [] and firefox.stopped() == []


@pytest.mark.parametrize(
    "page", ["strict", "strict diagnose/", "disk index.html", "disk diagnose.html", "disk zh/index.html"]
)
def test_the_policy_stops_nothing_of_ours_and_a_script_that_got_in(request, archive, firefox, page):
    start, _, path = page.partition(" ")
    firefox.go(request.getfixturevalue(start) + path)
    firefox.run(PASTE, LOG)
    assert "RO-0003" in firefox.until(ANSWER)
    assert firefox.stopped() == [] and firefox.run("return complaints") == []
    firefox.run("""const it = document.createElement("script");
        it.textContent = "document.title = 'broken'";
        document.body.append(it);
        document.body.insertAdjacentHTML("beforeend", `<img src="x" onerror="document.title = 'broken'">`)""")
    brought = ("script-src-elem", "script-src-attr")
    until(lambda: all(kind in " ".join(firefox.stopped()) for kind in brought), firefox.stopped)
    assert all(any(kind in it for kind in brought) for it in firefox.stopped())
    assert firefox.run("return document.title") != "broken"


def test_paste(diagnose):
    diagnose.run(PASTE, LOG)
    assert "RO-0003" in diagnose.until(ANSWER)


def test_files(diagnose):
    packed = gzip.compress(LOG.encode())
    for content, words in (
        (packed, ""),
        (packed[:-9], "cut or damaged"),
        (packed + b"junk", "cut or damaged"),
        (gzip.compress(b"first\n") + packed, ""),
    ):
        diagnose.run(FILE, base64.b64encode(content).decode())
        text = diagnose.until(ANSWER)
        assert "RO-0003" in text and words in text
    for content, words in ((b"\x1f\x8b no", "cannot be read"), (gzip.compress(bytes(80 << 20)), "Larger than 64 MB")):
        diagnose.run(FILE, base64.b64encode(content).decode())
        diagnose.until(STATUS, words)
        assert not diagnose.run(ANSWER)


def test_bookmarklet(diagnose):
    script = diagnose.run("return document.querySelector('[data-ro=bookmarklet]').href")
    page = diagnose.run("return location.href.split('#')[0]")
    assert unquote(script).startswith(f'javascript:void open("{page}#log="')
