"""Diagnose in a second browser: Debian's Firefox, hosted under the policy and from a local folder.

It is driven over Marionette, its own protocol: a line of JSON over TCP. Playwright has a build of its own and cannot drive
this one (153.7: `emulation.setMediaFeaturesOverride: unknown command`), and geckodriver is no package of Debian's.
"""

import base64
import gzip
import json
import shutil
import socket
import subprocess
import time
from urllib.parse import unquote

import pytest
from test_diagnose_page import LOG

PREFERENCES = {
    "marionette.port": 0,  # a free one
    "datareporting.policy.dataSubmissionEnabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "app.update.enabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "services.settings.server": "data:,",
}


class Firefox:
    def __init__(self, profile):
        program = shutil.which("firefox-esr") or shutil.which("firefox")
        assert program, "no Firefox: scripts/system-packages firefox-esr"
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in PREFERENCES.items()]
        (profile / "user.js").write_text("".join(lines), encoding="utf-8")
        self.log = (profile / "log").open("w")
        options = ["--headless", "--marionette", "--remote-allow-system-access", "--no-remote", "--profile", profile]
        self.process = subprocess.Popen([program, *options], stdout=self.log, stderr=self.log)
        port, end = profile / "MarionetteActivePort", time.monotonic() + 120
        while not (port.is_file() and port.read_text().strip()):
            assert self.process.poll() is None and time.monotonic() < end, (profile / "log").read_text()
            time.sleep(0.1)
        self.wire = socket.create_connection(("127.0.0.1", int(port.read_text())), timeout=120).makefile("rwb")
        self._read()  # its greeting
        self.number = 0
        self.ask("WebDriver:NewSession", {})

    def _read(self):
        length = b""
        while (letter := self.wire.read(1)) != b":":
            assert letter, "Firefox is gone"
            length += letter
        return json.loads(self.wire.read(int(length)))

    def ask(self, name, values):
        self.number += 1
        message = json.dumps([0, self.number, name, values]).encode()
        self.wire.write(b"%d:%s" % (len(message), message))
        self.wire.flush()
        _, _, fault, result = self._read()
        assert not fault, fault
        return result.get("value") if isinstance(result, dict) else result

    def go(self, address):
        self.of_the_browser("Services.console.reset()")
        self.ask("WebDriver:Navigate", {"url": address})
        self.run("window.complaints = []; addEventListener('error', (e) => complaints.push(e.message))")

    def of_the_browser(self, script):
        self.ask("Marionette:SetContext", {"value": "chrome"})
        try:
            return self.run(script)
        finally:
            self.ask("Marionette:SetContext", {"value": "content"})

    def stopped(self):
        """What the policy has stopped since the page was asked for."""
        return self.of_the_browser(
            "return Services.console.getMessageArray().map(String).filter((it) => it.includes('Content-Security-Policy:'))"
        )

    def run(self, script, *values):
        return self.ask("WebDriver:ExecuteScript", {"script": script, "args": list(values), "sandbox": None})

    def until(self, script, *values):
        end = time.monotonic() + 60
        while not (seen := self.run(script, *values)):
            assert time.monotonic() < end, self.run("return document.querySelector('.ro-diagnose').innerText")
            time.sleep(0.1)
        return seen

    def close(self):
        self.process.terminate()
        self.process.wait(30)
        self.log.close()


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
    brought, end = ("script-src-elem", "script-src-attr"), time.monotonic() + 20
    while not all(kind in " ".join(stopped := firefox.stopped()) for kind in brought):
        assert time.monotonic() < end, stopped
        time.sleep(0.1)
    assert (
        all(any(kind in it for kind in brought) for it in stopped) and firefox.run("return document.title") != "broken"
    )


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
