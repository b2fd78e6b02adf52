"""No test depends on the clock of a busy machine: it waits for an event, and measures by a count."""

import ast

import pytest

from support.project import suite

FORBIDDEN = {
    name + end for name, end in (("wait_for_", "timeout"), ("network", "idle"), ("perf_", "counter"), ("free_", "port"))
}


def clocks(code: str) -> list[str]:
    """Each use of a forbidden name, and each `timeout` that is a number or is computed from one."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        names = {getattr(node, key, None) for key in ("id", "attr", "value")} & FORBIDDEN
        found |= {f"{node.lineno}: {name}" for name in names}
        limits = [node.value] if isinstance(node, ast.keyword) and node.arg == "timeout" else []
        if isinstance(node, ast.arguments):  # a default
            given = [*node.posonlyargs, *node.args][::-1], node.defaults[::-1]
            pairs = [*zip(*given), *zip(node.kwonlyargs, node.kw_defaults)]
            limits += [default for argument, default in pairs if argument.arg == "timeout" and default]
        if isinstance(node, ast.Call) and getattr(node.func, "attr", None) == "wait":  # of a process, of an event
            limits += node.args[:1]
        parts = [it for limit in limits for it in ast.walk(limit) if isinstance(it, ast.Constant)]
        found |= {f"{it.lineno}: timeout={it.value}" for it in parts if isinstance(it.value, int | float)}
    return sorted(found)


def test_no_test_waits_for_a_clock():
    files = [path for path in suite() if path.parent.name != "bench"]
    found = {str(path): clocks(path.read_text(encoding="utf-8")) for path in files}
    assert len(files) > 100 and not any(found.values()), {path: lines for path, lines in found.items() if lines}


@pytest.mark.parametrize(
    "code, found",
    [
        ("page.wait_for_timeout(50)", ["1: wait_for_timeout"]),
        ("page.goto(address, wait_until='network' 'idle')", ["1: networkidle"]),
        ("from time import perf_counter as now\nfrom time import *\nperf_counter()", ["3: perf_counter"]),
        ("port = hosting.free_port()", ["1: free_port"]),
        ("run(command, timeout=60)", ["1: timeout=60"]),
        ("init(\n    timeout=timedelta(seconds=1.5)\n)", ["2: timeout=1.5"]),
        ("def run(command, timeout=60): ...", ["1: timeout=60"]),
        ("def run(command, *, timeout=60): ...", ["1: timeout=60"]),
        ("process.wait(60)", ["1: timeout=60"]),
        ("run(command, timeout=PATIENCE)\ndef run(first=1, timeout=None): ...", []),
    ],
)
def test_the_rule_is_red_where_it_has_to_be(code, found):
    assert clocks(code) == found
