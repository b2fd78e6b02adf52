"""Debian's Firefox, over Marionette, its own protocol: a line of JSON over TCP.

Playwright has a build of its own and cannot drive this one (153.7: `emulation.setMediaFeaturesOverride: unknown command`),
and geckodriver is no package of Debian's.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess

from support.patience import PATIENCE, until

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
        port = profile / "MarionetteActivePort"

        def told():
            assert self.process.poll() is None, (profile / "log").read_text()
            return port.is_file() and port.read_text().strip()

        self.wire = socket.create_connection(("127.0.0.1", int(until(told))), timeout=PATIENCE).makefile("rwb")
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
        said = "return document.querySelector('.ro-diagnose').innerText"
        return until(lambda: self.run(script, *values), lambda: self.run(said))

    def close(self):
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.log.close()
