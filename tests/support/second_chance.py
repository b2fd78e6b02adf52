"""Tests that failed beside others and passed alone: the list of them, and the second time one stands there, a red run.

`make test` names the list in $SECOND_CHANCE when it runs again what failed.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path


def pytest_configure(config):
    if listed := os.environ.pop("SECOND_CHANCE", None):  # not for the tests that run pytest themselves
        config.pluginmanager.register(SecondChance(Path(listed).absolute()))


class SecondChance:
    def __init__(self, path: Path):
        self.path, self.passed, self.listed = path, {}, Counter()

    def pytest_runtest_logreport(self, report):
        self.passed[report.nodeid] = self.passed.get(report.nodeid, True) and report.passed

    def pytest_sessionfinish(self, session):
        names = [name for name, passed in self.passed.items() if passed]
        self.path.parent.mkdir(exist_ok=True)
        with self.path.open("a", encoding="utf-8") as lines:
            lines.writelines(f"{name}\n" for name in names)
        self.listed = Counter(self.path.read_text(encoding="utf-8").splitlines())
        if any(self.listed[name] > 1 for name in names):
            session.exitstatus = session.exitstatus or 1

    def pytest_terminal_summary(self, terminalreporter):
        if self.listed:
            terminalreporter.section(f"passed only alone, and how often ({self.path})")
        for name, times in self.listed.most_common():
            mend = "  <- mend it: the outcome depends on what runs beside it" if times > 1 else ""
            terminalreporter.write_line(f"{times:3}  {name}{mend}")
