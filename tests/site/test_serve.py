"""`readyonce serve`: serves on loopback, and rebuilds the language whose page was saved."""

import os
import re
import signal
import subprocess
import sys
import urllib.request

from support.patience import PATIENCE, until
from support.project import as_in_a_terminal, command, edit


def read(address: str) -> str:
    with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
        return answer.read().decode()


def wait_for(process, condition):
    """Whether it comes true while the process lives."""
    until(lambda: process.poll() is not None or condition())
    return process.poll() is None


def test_serve_rebuilds_the_language_concerned_and_has_its_port_alone(copy, tmp_path):
    log = tmp_path / "log.txt"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "readyonce.cli.main", "serve", "--port", "0"],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"READYONCE_ROOT": str(copy)},
            preexec_fn=as_in_a_terminal,
        )
    try:
        assert wait_for(process, lambda: "Serving" in log.read_text()), log.read_text()
        address = re.search(r"Serving (http://127\.0\.0\.1:\d+/)", log.read_text())[1]
        assert "ReadyOnce" in read(address)

        said = len(log.read_text())
        edit(copy / "docs/zh/contributing.md", "# 参与", "# 一起参与")
        assert wait_for(process, lambda: "一起参与" in read(address + "zh/contributing/")), log.read_text()
        assert wait_for(process, lambda: "zh: built" in log.read_text()[said:])
        assert "en: built" not in log.read_text()[said:]
        page, _, whole = log.read_text()[said:].partition("docs/zh/contributing.md: shown")
        assert "zh: built" in whole and "zh: built" not in page, "the saved page is shown before the rest is built"

        said = len(log.read_text())
        edit(copy / "snippets/RO-0001/incident.yml", "status: active", "status: actve")
        assert wait_for(process, lambda: "`actve` is no value for `status`" in log.read_text()[said:]), log.read_text()
        edit(copy / "snippets/RO-0001/incident.yml", "status: actve", "status: withdrawn")
        assert wait_for(process, lambda: "This incident is withdrawn." in read(address + "incidents/RO-0001/")), (
            log.read_text()
        )
        assert wait_for(process, lambda: "该案例已撤回。" in read(address + "zh/incidents/RO-0001/"))
        assert wait_for(process, lambda: "site/index.html" in log.read_text()[said:])

        port = address.rstrip("/").rpartition(":")[2]  # which is taken now
        told = command("serve", "--port", port, root=copy, timeout=PATIENCE)
        assert told.returncode == 1 and "Try: readyonce serve --port 0" in told.stderr, told.stderr
        assert "Traceback" not in told.stderr and not told.stdout  # told at once, not after a build
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
