"""What NCCL and HCCL themselves write: the lines of `NCCL_DEBUG`, Ascend's plog, and the codes EI and EJ.

A line names its process: a host, a process id and a device, or some of them. The lines of a start say which rank that is,
and in which communicator. A lost connection or a wait that ended is a consequence: it says who noticed, and not who
failed. So all of this explains a failure, and does not decide which rank was first.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

MOST = 1 << 16  # processes that are kept of a file: it may name any
GROUPS, LETTERS = 64, 80  # communicators that are kept of a process, and letters of their names
SAID = 300  # letters of a message
BEFORE, AFTER = 400, 1500  # bytes of a line that are looked at, around the word by which it was found

# Words by which the lines are found: the first is looked for in every byte, the others where it is.
_GATE = b"CCL"
_WORDS = (b"NCCL WARN ", b" nranks ", b" nRanks ", b"[ERROR] HCCL(", b"Entry-HcclCommInit")
_CODED = (b"EI0", b"EJ0", b", RankID:")  # in lines that stand beside an error

_HOST = rb"(?<![A-Za-z0-9_.-])([A-Za-z0-9_.-]{1,255}):([0-9]{1,9}):[0-9]{1,9} \[(-?[0-9]{1,4})?[^\]]{0,20}\] "
_NCCL = re.compile(_HOST + rb"(?:\S{1,200}:[0-9]{1,6} )?NCCL (WARN|INFO) (.*)")
_JOINED = re.compile(
    rb"\bcomm 0x[0-9a-f]{1,16} rank ([0-9]{1,9}) n[rR]anks ([0-9]{1,9})\b(?:.{0,200}? commId 0x([0-9a-f]{1,16}))?"
)
_PLOG = re.compile(
    rb"\[(?:ERROR|INFO)\] HCCL\(([0-9]{1,9}),[^)]{0,200}\):([0-9]{4}-[0-9]{2}-[0-9]{2}[- ][0-9:.]{8,20}) ?"
    rb"(?:\[[^\]]{0,200}:[0-9]{1,6}\] ?)?((?:\[[^\]]{0,60}\])*)(.*)"
)
_ENTRY = re.compile(rb"Entry-HcclCommInit\w{0,60}:ranks\[([0-9]{1,9})\], rank\[([0-9]{1,9})\](.*)")
_FAILED = re.compile(rb"rank(?:Size|Num)\[([0-9]{1,9})\], rank(?:Id)?\[([0-9]{1,9})\]")
_IDENTIFIER = re.compile(rb"(?:identifier|group:) ?\[([^\]]{1,200})\]")
_OWN_NAME = re.compile(r"_[0-9]{13,20}$")
_DEVICE = re.compile(rb"(?:deviceLogicId|device(?:Id)?|Device:) ?\[?([0-9]{1,4})\b")
_NAMED = re.compile(rb"\(PID: ?([0-9]{1,9}), Device: ?([0-9]{1,4}), RankID: ?([0-9]{1,9})\)")
_CODE = re.compile(rb"(?<![A-Za-z0-9])(E[IJ]0[0-9]{3}): (?:\[PID: ?([0-9]{1,9})\] ?)?([0-9-]{10}-[0-9:.]{8,20})? ?(.*)")
_MOMENT = re.compile(
    rb"([0-9]{4})-([0-9]{2})-([0-9]{2})[- ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,3}))?(?:\.([0-9]{1,3}))?"
)
_PEER = re.compile(
    rb"peer ([A-Za-z0-9_.:-]{1,255})<[0-9]{1,9}>|remote(?:User)?[Rr]ank[-:]? ?\[([0-9]{1,9})\]|dst_rank\[([0-9]{1,9})\]"
)
_TASK = re.compile(rb" {0,3}([0-9]{1,4}): ?")

# The kind of what is said, by words in it; the first that fits counts. What fits none is a warning that trainings survive.
KINDS = (
    (
        "own",
        *(b"Cuda failure", b"CUDA calloc", b"out of memory", b"Duplicate GPU", b"check fail"),
        *(b"RanktableCheck", b"check the port status", b"initialize the HCCP", b"Broken NVLink"),
    ),
    (
        "closed",
        *(b"closed by remote peer", b"closed by peer", b"reset by peer", b"remote process exited", b"Broken pipe"),
        b"Socket recv failed",
    ),
    ("net", b"Got completion", b"Connection refused", b"No route to host", b"unreachable", b"Transport init error"),
    ("late", b"imeout", b"imed out", b"imes out", b"time out", b"did not send the data in time"),
)
CODES = {
    b"EI0002": "late",
    b"EI0006": "late",
    b"EI0015": "late",
    b"EI0009": "net",
    b"EI0004": "own",
    b"EI0005": "own",
    b"EI0011": "own",
    b"EI0014": "own",
    b"EI0019": "own",
    b"EJ0001": "own",
}


@dataclass
class Process:
    """One process on one device. `size`, `member` and `group`: of the largest communicator that it is said to be in."""

    library: str
    host: str | None
    pid: int
    device: int | None = None
    machine: str = ""  # what tells processes of different hosts apart that have the same id
    rank: int | None = None  # over all nodes
    local: int | None = None
    size: int = 0
    member: int | None = None
    groups: set[str] = field(default_factory=set)
    kind: str = ""  # of KINDS, of the first that it said; empty: it said nothing of the kind
    said: str = ""
    line: int = 0
    at: float | None = None
    peer: str = ""  # whom it lost or waited for
    file: str = ""

    @property
    def shown(self) -> str:
        """As `host:pid [device]`, the way in which NCCL writes it, or as `process pid`."""
        return f"{self.host or ''}:{self.pid}".lstrip(":") + ("" if self.device is None else f" [{self.device}]")


class Lines:
    """The processes that the lines of one file name. `label` tells (rank, local rank) of what stands before a line."""

    def __init__(
        self, label: Callable[[bytes], tuple[int | None, int | None]], stamp: Callable[[bytes], float | None]
    ) -> None:
        self.found: dict[tuple[str, str | None, int, int | None], Process] = {}
        # The id of a process here → numbers that stand before its lines.
        self.tasks: dict[int, set[int]] = defaultdict(set)
        self.left_out = False
        self._groups = 4 * MOST  # communicators that may still be kept
        self._label, self._stamp = label, stamp

    def take(self, text: bytes, end: int, first: int) -> None:
        """Read the whole lines of `text` up to `end`; `first` is the number of the first one."""
        if text.find(_GATE, 0, end) >= 0:
            for word in _WORDS:
                self._look_for(word, text, end, first)

    def take_codes(self, rows: Iterable[tuple[int, bytes]]) -> None:
        """Read the codes of HCCL, and the ranks that torch_npu names beside them, in lines that were kept."""
        for number, text in rows:
            if any(word in text for word in _CODED):
                self._coded(text, number)

    def _look_for(self, word: bytes, text: bytes, end: int, line: int) -> None:
        passed, at = 0, text.find(word, 0, end)
        while at >= 0:
            line += text.count(b"\n", passed, at)
            stop = text.find(b"\n", at, end)
            passed = stop = end if stop < 0 else stop
            begin = max(text.rfind(b"\n", max(0, at - BEFORE), at) + 1, at - BEFORE, 0)
            self._line(text[begin : min(stop, at + AFTER)].rstrip(b"\r"), line)
            at = text.find(word, passed, end)

    def _line(self, text: bytes, line: int) -> None:
        if found := _NCCL.search(text):
            device = int(found[3]) if found[3] and int(found[3]) >= 0 else None
            process = self._process("NCCL", found[1].decode(), int(found[2]), device, text[: found.start()])
            if process and (joined := _JOINED.search(found[5])):
                self._join(process, int(joined[2]), int(joined[1]), joined[3])
            elif process and found[4] == b"WARN" and _is_news(process, line):
                _say(process, _kind(found[5]), found[5], line, self._stamp(text[: found.start()]))
        elif found := _PLOG.search(text):
            process = self._process("HCCL", None, int(found[1]), None, text[: found.start()])
            if process is None:
                return
            if joined := _ENTRY.search(found[4]) or _FAILED.search(found[4]):
                name = _IDENTIFIER.search(found[4])
                self._join(process, int(joined[1]), int(joined[2]), name and name[1])
            if process.device is None and (number := _DEVICE.search(found[4])):
                process.device = int(number[1])
            if _is_news(process, line) and b"call trace" not in found[4] and found[0].startswith(b"[ERROR]"):
                _say(process, _kind(found[3] + found[4]), found[4], line, _moment(found[2]))

    def _coded(self, text: bytes, line: int) -> None:
        if found := _NAMED.search(text):
            process = self._process("HCCL", None, int(found[1]), int(found[2]), text[: found.start()])
            if process:
                process.rank = int(found[3])
        elif (found := _CODE.search(text)) and found[2]:
            process = self._process("HCCL", None, int(found[2]), None, text[: found.start()])
            if process:
                kind = CODES.get(found[1]) or _kind(found[4])
                _say(process, kind, found[1] + b": " + found[4], line, _moment(found[3] or b""))

    def _join(self, process: Process, size: int, member: int, group: bytes | None) -> None:
        if size > process.size:
            process.size, process.member = size, member
        if group and len(process.groups) < GROUPS and self._groups > 0:
            self._groups -= 1
            process.groups.add(group[-LETTERS:].decode(errors="replace"))

    def _process(self, library: str, host: str | None, pid: int, device: int | None, before: bytes) -> Process | None:
        # A process of HCCL's has one device, which most of its lines do not name.
        key = library, host, pid, device if library == "NCCL" else None
        process = self.found.get(key)
        if process is None:
            if len(self.found) >= MOST:
                self.left_out = True
                return None
            process = self.found[key] = Process(library, host, pid, device, host or "")
        process.device = device if process.device is None else process.device
        if before:
            rank, local = self._label(before)
            process.rank = rank if process.rank is None else process.rank
            process.local = local if process.local is None else process.local
            if (task := _TASK.match(before)) and len(tasks := self.tasks[id(process)]) < 2:
                tasks.add(int(task[1]))
        return process

    def processes(self, file: str, rank: int | None, local: int | None, numbered: bool) -> list[Process]:
        """All of them. `rank` and `local`: whose file it is; `numbered`: each line begins with the number of its task."""
        for process in self.found.values():
            process.file = file
            if rank is not None or local is not None:
                process.rank, process.local = rank if rank is not None else process.rank, local
            elif numbered and process.rank is None and len(tasks := self.tasks[id(process)]) == 1:
                (process.rank,) = tasks
        return sorted(self.found.values(), key=lambda it: (it.library, it.host or "", it.pid, it.device or 0))


def _is_news(process: Process, line: int) -> bool:
    return not process.kind or line < process.line


def _kind(text: bytes) -> str:
    return next((kind for kind, *words in KINDS if any(word in text for word in words)), "")


def _say(process: Process, kind: str, said: bytes, line: int, at: float | None) -> None:
    if kind and _is_news(process, line):
        process.kind, process.line, process.at = kind, line, at
        process.said = " ".join(said.decode("utf-8", "replace").split())[:SAID]
        peer = _PEER.search(said)
        process.peer = next((part.decode() for part in peer.groups() if part), "") if peer else ""


def _moment(text: bytes) -> float | None:
    if not (found := _MOMENT.match(text)):
        return None
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    try:
        at = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC).timestamp()
    except ValueError:
        return None
    return at + int(found[7] or 0) / 1000 + int(found[8] or 0) / 1e6


# ------------------------------------------------------------------------------ of a whole job


@dataclass
class Said:
    """What processes said that can talk to each other, by the communicators that they share.

    `first`: who noticed first; None: that cannot be told. `quiet`: ranks that started and said nothing of the kind; where
    `ranks` is false, their numbers in the communicator. `unnamed`: of the ranks of their communicator, how many no line
    names. `mixed`: how many numbers of the communicator are claimed by more than one process.
    """

    library: str
    warned: list[Process]
    first: Process | None
    why: str
    quiet: list[int]
    unnamed: int
    peers: list[str]
    ranks: bool
    mixed: int

    @property
    def own(self) -> list[Process]:
        """Those that had an error of their own."""
        return [process for process in self.warned if process.kind == "own"]


def said(found: Iterable[Process]) -> list[Said]:
    """For each set of processes that share a communicator, what they said, if they said anything."""
    sets = _sets(_merged(found))
    of = Counter(part[0].library for part in sets)
    result = [_told(part, of[part[0].library] == 1) for part in sets]
    return sorted((it for it in result if it.warned), key=lambda it: (it.warned[0].file, it.warned[0].line))


def communicators(found: list[Process]) -> set[str]:
    """The communicators that these lines name, if they are of one job and nobody else's is called alike: NCCL's are called
    by a number of 64 bits, and HCCL's by a moment, unless the program calls them itself."""
    if len([part for part in _sets(found) if part[0].groups]) != 1:
        return set()
    named = {(process.library, group) for process in found for group in process.groups}
    return {f"{library} {group}" for library, group in named if library == "NCCL" or _OWN_NAME.search(group)}


def _merged(found: Iterable[Process]) -> list[Process]:
    """A process may write into several files."""
    by: dict[tuple[object, ...], Process] = {}
    for process in found:
        key: tuple[object, ...] = _key(process)
        one = by.setdefault(key, process)
        # Two ranks of one id are on two hosts, even if nothing else shows it.
        if one.rank is not None and process.rank is not None and one.rank != process.rank:
            one = by.setdefault((*key, process.rank), process)
        if one is process:
            continue
        one.rank = process.rank if one.rank is None else one.rank
        one.device = process.device if one.device is None else one.device
        one.groups |= process.groups
        if process.size > one.size:
            one.size, one.member = process.size, process.member
        if process.kind and (not one.kind or _before(process, one)):
            one.kind, one.said, one.line, one.at = process.kind, process.said, process.line, process.at
            one.peer, one.file = process.peer, process.file
    return list(by.values())


def _key(process: Process) -> tuple[object, ...]:
    # A process of HCCL's has one device, which most of its lines do not name.
    return process.library, process.machine, process.pid, process.device if process.library == "NCCL" else None


def _before(one: Process, other: Process) -> bool:
    return one.at is not None and other.at is not None and one.at < other.at


def _sets(processes: list[Process]) -> list[list[Process]]:
    """The processes that share a communicator, directly or by way of others; those that name none are a set."""
    found = list(range(len(processes)))  # each points to an earlier one of its set, the earliest to itself

    def earliest(index: int) -> int:
        while found[index] != index:
            found[index] = index = found[found[index]]
        return index

    of: dict[tuple[str, str], int] = {}
    for index, process in enumerate(processes):
        for group in process.groups:
            low, high = sorted((earliest(of.setdefault((process.library, group), index)), earliest(index)))
            found[high] = low
    sets: dict[int, list[Process]] = defaultdict(list)
    rest: dict[str, list[Process]] = defaultdict(list)
    for index, process in enumerate(processes):
        if process.groups:
            sets[earliest(index)].append(process)
        else:
            rest[process.library].append(process)
    result = list(sets.values())
    for library, without in rest.items():
        alike = [part for part in result if part[0].library == library]
        # Who names no communicator belongs to the only one there is.
        if len(alike) == 1:
            alike[0].extend(without)
        else:
            result.append(without)
    return result


def _told(processes: list[Process], alone: bool) -> Said:
    """`alone`: there is no other set. Of several, none is known to be the whole job, so its numbers may be no ranks."""
    size = max(process.size for process in processes)
    members = [process for process in processes if process.size == size and process.member is not None]
    claimed = Counter(process.member for process in members)
    mixed = sum(times > 1 for times in claimed.values())
    if alone and not mixed and not any(it.rank is not None and it.rank != it.member for it in members):
        for process in members:
            process.rank = process.member
    warned = sorted((process for process in processes if process.kind), key=lambda it: (it.file, it.line))
    first, why = _earliest(warned)
    ranks = all(process.rank is not None for process in members)
    quiet = {it.rank if ranks else it.member for it in (processes if ranks else members) if not it.kind}
    named = {it.rank for it in processes if it.rank is not None} if ranks else set(claimed)
    peers = [peer for peer, _ in Counter(it.peer for it in warned if it.peer).most_common(20)]
    return Said(
        processes[0].library,
        warned,
        first,
        why,
        [] if mixed else sorted(number for number in quiet if number is not None),
        0 if mixed else max(0, size - len(named)),
        peers,
        ranks,
        mixed,
    )


def _earliest(warned: list[Process]) -> tuple[Process | None, str]:
    """By the clock of the host that all of them are on, else by the lines of the file that all of them are in."""
    if len(warned) < 2:
        return (warned[0], "alone") if warned else (None, "")
    if len({process.machine for process in warned}) == 1 and all(process.at is not None for process in warned):
        ordered = sorted(warned, key=lambda it: it.at or 0)
        if (ordered[1].at or 0) > (ordered[0].at or 0):
            return ordered[0], "clock"
    if len({process.file for process in warned}) == 1:
        return warned[0], "line"
    return None, "unknown"
