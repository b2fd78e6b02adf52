"""Where processes stand: the stacks that faulthandler, py-spy and the guard write, and how those of one job part.

A dump shows one moment. It does not tell a rank that hangs from one that is slow, so nothing here says that a job hangs.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile

WORDS = (b"(most recent call first)", b'"MainThread"')  # of which each thread of a dump has one
FRAMES = 100  # that are kept of a stack
MOST = 1 << 17  # ranks of a job: a file may name any
SHOWN = 200  # letters of a file's or function's name

_FAULTHANDLER = re.compile(
    rb"(?:Current thread|Thread) (0x[0-9a-f]{1,16})(?: \[.{0,64}\])? \(most recent call first\):"
)
_ITS_FRAME = re.compile(rb'  File "(.{1,1024})", line (\d{1,9}) in (.{1,1024})$')
_PROCESS = re.compile(rb"Process (\d{1,9}): ")
_PY_SPY = re.compile(rb'Thread (?:0x)?([0-9A-Fa-f]{1,16}) \([a-z+ ]{1,30}\)(?:: "(.{0,64})")?$')
_SHORT_FRAME = re.compile(rb"    (\S.{0,1023}) \((.{1,1024}?)(?::(\d{1,9}))?\)$")
_GUARD = re.compile(rb"rank (\d{1,9}) on \S{1,255}, process (\d{1,9}), ")
_BEGUN = re.compile(rb'\{"rank": .{0,2000}?"collectives": (\d{1,9})\b')
_COLLECTIVES = ("distributed_c10d.py", "_functional_collectives.py")


@dataclass(frozen=True)
class Frame:
    file: str
    line: int
    name: str

    @property
    def shown(self) -> str:
        """As `package/file.py:12 in name`."""
        return f"{_path(self.file)[1]}:{self.line}" + ("" if self.name == "<module>" else f" in {self.name}")


@dataclass
class Stand:
    """Where one process stood at its last dump. `frames`: of the thread that trains, the innermost first."""

    frames: tuple[Frame, ...]
    process: str = ""  # what tells it from others where no rank is known
    rank: int | None = None
    local: int | None = None
    call: str = ""  # the collective, by the Flight Recorder
    group: str = ""  # the ranks that it is of, by their name
    sizes: str = ""  # of its tensors
    begun: int | None = None  # how many collectives, of that group
    over: bool = False  # whether that one is done
    same: int = 1  # dumps in a row at this place
    ranks: int = 0  # in the whole job, if that is known


@dataclass
class Group:
    """Processes at one place, by `ranks`, or by `names` where their ranks are not known."""

    place: Place
    stand: Stand
    ranks: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    same: int = 1
    parts: str = ""  # the outermost frame that other groups do not share

    @property
    def size(self) -> int:
        return len(self.ranks) + len(self.names)


@dataclass(frozen=True)
class Place:
    """`call`: what is called there, `waits`: whether that is a collective; `at` the innermost frame outside of torch and of
    Python's library, `within` the innermost of the training's own, where that is another one."""

    call: str
    waits: bool
    at: str
    within: str
    inside: bool  # whether anything of torch is called


@dataclass
class Standing:
    """How the processes of a job part. `apart`: the group to look at first; None where that cannot be told."""

    groups: list[Group]
    apart: Group | None
    missing: list[int]  # ranks of which there is no dump


def begins(line: bytes) -> bool:
    """Whether this is the first line of a dump."""
    return any(head.match(line) for head in (_GUARD, _PROCESS, _FAULTHANDLER, _PY_SPY))


def stands(lines: Iterable[bytes]) -> list[Stand]:
    """Of each process that was dumped in these lines the last stack."""
    last: dict[str, Stand] = {}
    for stand in _dumps(lines):
        if (earlier := last.pop(stand.process, None)) and earlier.frames == stand.frames:
            stand.same = earlier.same + 1
        last[stand.process] = stand
    return list(last.values())


@dataclass
class _Dump:
    process: str = ""
    rank: int | None = None
    threads: dict[str, tuple[str, list[Frame]]] = field(default_factory=dict)  # id → (name, frames), in their order

    def stand(self) -> Stand | None:
        threads = [(name, frames) for name, frames in self.threads.values() if frames]
        if not threads:
            return None
        # faulthandler begins with the newest thread, and gives most no name.
        of = next((frames for name, frames in threads if name == "MainThread"), threads[-1][1])
        return Stand(tuple(of), self.process or f"thread {next(reversed(self.threads))}", self.rank)


def _dumps(lines: Iterable[bytes]) -> Iterator[Stand]:
    dump, frames = _Dump(), list[Frame]()
    for text in map(bytes.rstrip, lines):
        if found := _GUARD.match(text):
            yield from _ended(dump)
            dump = _Dump(f"process {found[2].decode()}", int(found[1]))
        elif found := _PROCESS.match(text):
            yield from _ended(dump)
            dump = _Dump(f"process {found[1].decode()}")
        elif found := _FAULTHANDLER.match(text) or _PY_SPY.match(text):
            if (thread := found[1].decode()) in dump.threads:  # the same process, once more
                yield from _ended(dump)
                dump = _Dump(dump.process, dump.rank)
            name = found[2] or b"" if found.re is _PY_SPY else b""
            frames = []
            dump.threads[thread] = name.decode(errors="replace"), frames
        elif dump.threads and (frame := _frame(text)):
            if len(frames) < FRAMES:
                frames.append(frame)
        elif found := _BEGUN.match(text):
            for stand in _ended(dump):
                stand.begun = int(found[1])
                yield stand
            dump = _Dump()
        elif text and not text.startswith((b"  ", b"Python v")):  # of a dump its lines are indented
            yield from _ended(dump)
            dump = _Dump()
    yield from _ended(dump)


def _ended(dump: _Dump) -> Iterator[Stand]:
    if stand := dump.stand():
        yield stand


def _frame(text: bytes) -> Frame | None:
    if found := _ITS_FRAME.match(text):
        file, line, name = found[1], found[2], found[3]
    elif (found := _SHORT_FRAME.match(text)) and found[3]:
        name, file, line = found[1], found[2], found[3]
    else:
        return None
    return Frame(file.decode(errors="replace")[-SHOWN:], int(line), name.decode(errors="replace")[:SHOWN])


# ------------------------------------------------------------------------------ where that is


def _path(file: str) -> tuple[str, str]:
    """(whose code a file is: "torch", "python", "guard", of another "package", or the training's "own"; its name as shown)"""
    path = file.replace("\\", "/")
    if path.endswith("readyonce_guard.py"):
        return "guard", path
    for folder in ("site-packages/", "dist-packages/"):
        if folder in path:
            path = path.rpartition(folder)[2]
            return ("torch" if path.startswith("torch/") else "package"), path
    if path.startswith("<") or re.search(r"/lib(?:64)?/python3\.\d+/", path):
        return "python", path
    first = path.partition("/")[0].removesuffix(".py")  # py-spy leaves out the folder of packages
    if first == "torch" or first in sys.stdlib_module_names:
        return ("torch" if first == "torch" else "python"), path
    return "own", path


def place(frames: Iterable[Frame]) -> Place:
    whose = [(frame, _path(frame.file)[0]) for frame in frames]
    ours = [(frame, of) for frame, of in whose if of in ("own", "package")]
    inside = list(takewhile(lambda it: it[1] not in ("own", "package"), whose))
    # What is called there, the outermost first: the name that the training knows it by.
    called = [frame for frame, of in reversed(inside) if of != "guard" and frame.name != "wrapper"]
    public = [frame for frame in called if not re.search(r"(^|\.)_(?!_)[^.]*$", frame.name)]
    collective = next((frame for frame in public if frame.file.rpartition("/")[2] in _COLLECTIVES), None)
    inner = collective or next(iter(public or called), None)
    at = ours[0][0] if ours else None
    own = next((frame for frame, of in ours if of == "own"), None)
    return Place(
        inner.name if inner else "",
        collective is not None,
        at.shown if at else "",
        own.shown if own and own is not at else "",
        any(of == "torch" for _, of in inside),
    )


def standing(found: list[Stand]) -> Standing | None:
    """How these processes part; None where there are none."""
    if not found:
        return None
    by: dict[tuple[Place, str, str, str, int | None, bool], Group] = {}
    for stand in sorted(found, key=lambda it: (it.rank is None, it.rank or 0, it.process)):
        where = place(stand.frames)
        key = where, stand.call, stand.group, stand.sizes, stand.begun, stand.over
        group = by.setdefault(key, Group(where, stand, same=stand.same))
        group.same = min(group.same, stand.same)
        if stand.rank is None:
            group.names.append(stand.process)
        else:
            group.ranks.append(stand.rank)
    groups = sorted(by.values(), key=lambda it: (-it.size, it.ranks, it.names))
    _part(groups)
    ranks = {stand.rank for stand in found if stand.rank is not None}
    last = max([max(ranks) + 1 if len(ranks) > 1 else 0, *(stand.ranks for stand in found)])
    named = last <= MOST and all(stand.rank is not None for stand in found)
    return Standing(groups, _apart(groups), sorted(set(range(last)) - ranks) if named else [])


def _part(groups: list[Group]) -> None:
    depth = 0  # of the frames that all have in common, the outermost first
    stacks = [group.stand.frames[::-1] for group in groups]
    for level in zip(*stacks):
        if any(frame != level[0] for frame in level):
            break
        depth += 1
    for group, stack in zip(groups, stacks):
        if len(groups) > 1 and stack[depth:]:
            group.parts = stack[depth].shown


def _apart(groups: list[Group]) -> Group | None:
    """The group that the others wait for, as far as the dumps show it."""
    if len(groups) < 2:
        return None
    # Counts of one group of ranks can be compared.
    counted: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        if group.stand.begun is not None:
            counted[group.stand.group].append(group)
    if len(counted) == 1 and len(of := next(iter(counted.values()))) == len(groups):
        done = [(group.stand.begun or 0, not group.stand.over) for group in of]
        if done.count(min(done)) == 1:
            return of[done.index(min(done))]
    # Who is in no call of torch, while the others are in a collective or in a backward that may run one.
    free = [group for group in groups if not group.place.inside and not group.stand.call]
    if len(free) == 1 and any(group.place.waits or group.place.call.endswith("backward") for group in groups):
        return free[0]
    smallest = [group for group in groups if group.size == groups[-1].size]
    return smallest[0] if len(smallest) == 1 else None
