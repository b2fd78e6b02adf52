"""What the ranks say in one file, of any size, in a memory that does not grow with it.

A file is streamed. Only what stands around words of failure is kept, with its head and its end, and is sorted by rank;
the rules of `diagnose` read that. Nothing here knows other files: who failed first is the verdict's.
"""

from __future__ import annotations

import json
import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import Any

from readyonce.data.project import Language
from readyonce.diagnose import engine
from readyonce.triage import flight, stands, transport
from readyonce.triage.layout import Place, small_int
from readyonce.triage.sources import reason

# Words of which one stands on every line that matters or just below it: Python's, NCCL's, torchrun's, HCCL's. Each is looked
# for in every byte, so they are few; what launchers say last stands at a file's end anyway.
TRIGGERS = (b"Error", b"Exception", b"atchdog", b"exitcode", b"EI00")
LAST = (b"Traceback", b"srun: ", b"SIG")
BLOCK = 1 << 20  # what is read at a time
HEAD, END = 16 << 10, 48 << 10  # kept at both ends of a file, in bytes
ABOVE, BELOW = 4 << 10, 8 << 10  # kept around a word of failure
KEPT = 2 << 20  # all that is kept of a file but for its end; a log may say the same a million times
LINE = 4 << 10  # of a line
CROSSED = 5  # lines by which standard output may come behind the error that followed it
MARKS = 40  # moments that ranks share, by which their clocks are compared
ENDED = 1 << 17  # ends of processes that are kept of a file: a launcher names thousands of ranks in a few letters

# An exception whose text has one of these says that somebody else is gone or late; more of them in the rules.
GONE = (
    *(b"Connection closed by peer", b"Connection reset by peer", b"Connection was likely closed", b"Socket closed"),
    *(b"Broken pipe", b"recvValue failed", b"failed to recv", b"DistNetworkError", b"DistStoreError"),
    b"remote process exited",
)
LATE = (
    *(
        b"Timed out waiting",
        b"Timeout waiting",
        b"Socket Timeout",
        b"wait timeout after",
        b"collective operation timeout",
    ),
    *(b"Application timeout caused pair closure", b"Watchdog caught", b"Timeout at NCCL work"),
    *(b"due to a collective timeout", b"EI0002", b"EI0006"),
)

_CRI = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) [FP] ")
_LABEL = re.compile(rb"[ \t]*(?:\[(default|rank)(\d{1,5})\]:? ?|\[\d{1,4},(\d{1,5})\]<std(?:out|err)>:? ?)")
_NUMBERED = re.compile(rb" *(\d{1,4}): ?")  # srun --label
_STAMP = re.compile(
    rb"(\d{4})-(\d\d)-(\d\d)[ T_](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6})\d{0,3})?(?:Z\b|([+-])([01]\d):?([0-5]\d)\b)?"
)
_EXCEPTION = re.compile(
    rb"(?:^|[\s\])])(?:[A-Za-z_]\w{0,60}\.){0,9}[A-Za-z_]\w{0,60}" + engine.ENDINGS + rb"(?::|\s*$)"
)  # not in quote marks: a guide may name one
_NUMBER = re.compile(rb"\d+\.\d+(?:e[+-]?\d+)?|0x[0-9a-f]+")

_FAILED = re.compile(rb"failed \(exitcode: (-?\d{1,9})\) local_rank: (\d{1,9}) \(pid: (\d{1,9})\)")
_FORCED = re.compile(rb"Unable to shutdown process (\d{1,9}) via")
_FIELD = re.compile(rb"^\s*(host|rank|exitcode)\s+: (\S+)(?: \((?:local_rank|pid): (\d{1,9})\))?")
_QUOTE = re.compile(rb"^\s+traceback : ")
_STOPPED = re.compile(rb"Received (\d{1,9}) death signal, shutting down workers")
_TRACEBACK = b"Traceback (most recent call last)"
_CHAINED = (b"During handling of the above exception", b"The above exception was the direct cause")
_ASIDE = (b"Exception ignored in", b"Exception in thread")  # a traceback that ends no process
_LOGGED = re.compile(rb"(?i)\b(?:warn(?:ing)?|error|critical|exception)\b")
# A line that may be the rest of a process's last words, rather than the first of the next one.
_REST = re.compile(
    rb"\s|$|Traceback |\[[WEIF]\d{4} |During handling of|The above exception|[\w.]+(?:Error|Exception)\b"
)
# What torch_npu prints below an exception: its own line, and the code that says why.
_OF_ASCEND = re.compile(rb"\[ERROR\] \d{4}-|E[IJ]\d{4}: ")
_RULE = re.compile(rb"-{10}|={10}|\[\d+\]:")
_SRUN = re.compile(rb"srun: error: (\S+): tasks? ([\d,-]+): (?:Exited with exit code (\d{1,9})\b|(\w+))")
# Words that launchers alone use: torchrun's and accelerate's modules, Slurm's, MPI's and DeepSpeed's programs.
_LAUNCHER = re.compile(
    rb"torch[./]distributed[./](?:run|launch|elastic)\b|bin/torchrun\b|accelerate[./]commands[./]launch\b|ChildFailedError"
    rb"|^(?:srun|slurmstepd|sbatch|salloc): |\b(?:mpirun|mpiexec|prterun)\b.* (?:noticed|has exited|detected) "
    rb"|\[(?:launch|runner)\.py:\d"
)
_SIGNALS = {b"Killed": -9, b"Terminated": -15, b"Aborted": -6, b"Segmentation": -11}


@dataclass
class Stream:
    """What one rank says in one file, in one attempt; `rank` and `local` None: the launcher, or who gives no name.

    `state`: `own` (an error that follows from nothing else), `follow` (only of others: gone, late), `cut` (a traceback
    without its end), `clean`. `first`, `last` and `at` are seconds on its own clock.
    """

    rank: int | None
    local: int | None
    attempt: int
    state: str = "clean"
    late: bool = False  # waited until a time limit, rather than lost somebody
    family: str | None = None
    answer: dict[str, Any] | None = None
    message: str = ""
    line: int | None = None
    passing: bool = False  # the error stands far from the file's end
    logged: bool = False  # the process wrote it itself, and went on
    at: float | None = None
    exact: float | None = None  # the error's own moment, where torch wrote it down
    first: float | None = None
    last: float | None = None
    marks: dict[str, float] = field(default_factory=dict)
    tail: list[str] = field(default_factory=list)


@dataclass
class Ended:
    """How a launcher says that a process ended. `code`: as Python tells it, a signal is negative."""

    rank: int | None
    local: int | None
    attempt: int
    code: int
    node: str | None = None
    root: bool = False
    stuck: bool = False  # it did not go when it was told to


@dataclass
class Reading:
    file: str
    size: int = 0
    lines: int = 0
    streams: list[Stream] = field(default_factory=list)
    stands: list[stands.Stand] = field(default_factory=list)  # where processes stood that somebody dumped
    dump: bool = False  # it holds dumps, and is no log
    transport: list[transport.Process] = field(default_factory=list)  # what NCCL and HCCL themselves say
    ended: list[Ended] = field(default_factory=list)
    attempts: int = 0  # that a launcher saw fail
    stopped: tuple[int, int, str] | None = None  # (signal, line, words): a launcher was told to end
    launcher: bool = False  # one speaks here, or its labels stand before the lines
    fault: str = ""  # what of the file cannot be read


def read(rules: engine.Rules, blocks: Iterator[bytes], file: str, place: Place, language: Language = "en") -> Reading:
    """Raises nothing: what ends the reading is told in `fault`, and what was read before it is kept."""
    reading = Reading(file)
    try:
        _read(rules, blocks, reading, place, language)
    except Exception as error:  # a text may hold anything, and the other files are to be answered
        reading.fault = f"it cannot be read to its end ({reason(error)})"
    return reading


def _read(rules: engine.Rules, blocks: Iterator[bytes], reading: Reading, place: Place, language: Language) -> None:
    lines = transport.Lines(_labels, _stamp)
    file, kept, data = reading.file, _Kept(lines), b""
    for block in blocks:
        if data or not kept.size and flight.is_one(block):
            data += block
            reading.size = len(data)
            if len(data) > flight.MOST:
                break
            continue
        kept.take(block)
        if kept.binary:
            reading.fault = "it is binary, not a log"
            return
    if data:
        _add_stands(reading, flight.stands(data), place.rank, place.local)
        reading.lines, reading.dump = data.count(b"\n") + 1, True
        return
    rows = kept.rows()
    reading.size, reading.lines = kept.size, kept.line
    if file.rpartition("/")[2].startswith("error.json"):
        reading.streams += _recorded(rules, b"\n".join(text for _, text in rows), file, place, language)
        return
    reading.dump = stands.begins(next((text for _, text in rows if text.strip()), b""))
    numbered = not place.by_rank and _numbered(rows)
    lines.take_codes(rows)
    reading.transport = lines.processes(file, place.rank, place.local, numbered)
    if lines.left_out:
        reading.fault = f"NCCL or HCCL names more than {transport.MOST} processes in it: the others are left out"
    sorting = _Sorting(place, numbered, reading)
    for number, text in rows:
        sorting.take(number, text)
    whole = b"".join(text for _, text in rows)
    # What is printed without a rank's label, such as a report of what was loaded, is a clue for every rank.
    squeezed = engine.squeeze(whole) if any(word in whole for word in TRIGGERS + LAST) else b""
    clues = rules.seen(squeezed) if squeezed else set()
    for stream, own_rows in sorting.streams():
        reading.launcher = reading.launcher or stream.rank is not None or stream.local is not None
        _add_stands(reading, stands.stands(text for _, text in own_rows), stream.rank, stream.local)
        reading.streams.append(_said(rules, stream, own_rows, file, language, kept.end_from, clues))


def _add_stands(reading: Reading, found: list[stands.Stand], rank: int | None, local: int | None) -> None:
    """What a dump does not say of a process, the name of its file says, or the label before its lines."""
    base = reading.file.rpartition("/")[2]
    for stand in found:
        if stand.rank is None:
            stand.rank, stand.local = rank, local
        stand.process = base if len(found) == 1 else f"{base}, {stand.process}"
    reading.stands += found


class _Kept:
    """The lines of a stream of bytes that are worth reading: line number → its bytes, numbers from 1."""

    def __init__(self, transport: transport.Lines) -> None:
        self._transport = transport
        self.size, self.line, self.binary = 0, 0, False
        self.end_from = 1  # the first line of the file's end
        self._lines: dict[int, bytes] = {}
        self._room = KEPT
        self._owed = HEAD  # bytes still to be kept, whatever they are
        self._rest = b""  # what is not yet passed: an unfinished line, and what may stand above a word of failure
        self._done = 0  # lines before it
        self._end = b""

    def take(self, block: bytes) -> None:
        if not self.size and b"\0" in block[:8192]:
            self.binary = True
            return
        self.size += len(block)
        region = self._rest + block
        windows = [(0, self._owed)] if self._owed else []
        if self._room > 0:
            for trigger in (*TRIGGERS, *stands.WORDS):
                at = region.find(trigger)
                while at >= 0:
                    windows.append((max(0, at - ABOVE), at + BELOW))
                    at = region.find(trigger, at + BELOW)
            self._keep(region, sorted(windows))
        # What stands above the next word of failure is not passed yet; nor is half a line, unless lines are endless.
        cut = region.rfind(b"\n", 0, max(0, len(region) - ABOVE)) + 1
        if not cut and len(region) > 2 * BLOCK:
            cut = len(region) - ABOVE
        last = max((high for _, high in windows), default=0)
        self._owed = max(0, last - cut) if last > len(region) else 0
        self._transport.take(region, cut, self._done + 1)
        self._done += region.count(b"\n", 0, cut)
        self._end = (self._end + region[max(0, cut - END) : cut])[-END:]
        self._rest = region[cut:]

    def _keep(self, region: bytes, windows: list[tuple[int, int]]) -> None:
        passed, number = 0, self._done + 1
        for low, high in windows:
            low = max(passed, region.rfind(b"\n", 0, low) + 1)
            end = region.find(b"\n", max(low, min(high, len(region))))
            end = len(region) if end < 0 else end
            if low >= end or self._room <= 0:
                continue
            number += region.count(b"\n", passed, low)
            for text in region[low:end].split(b"\n"):
                if number not in self._lines or len(self._lines[number]) < LINE:
                    self._room -= len(text[:LINE])
                    self._lines[number] = _short(text)
                number += 1
            passed = end + 1

    def rows(self) -> list[tuple[int, bytes]]:
        """All that was kept, in order; ends the reading."""
        self._transport.take(self._rest, len(self._rest), self._done + 1)
        end = (self._end + self._rest)[-END:]
        self.line = self._done + self._rest.count(b"\n") + bool(self._rest and not self._rest.endswith(b"\n"))
        texts = end.split(b"\n")
        if not texts[-1]:
            texts.pop()
        self.end_from = self.line - len(texts) + 1
        whole = len(end) == self.size
        for number, text in enumerate(texts if whole else texts[1:], self.end_from + (not whole)):
            self._lines[number] = _short(text)
        return sorted(self._lines.items())


def _short(text: bytes) -> bytes:
    """A line without what a progress bar has painted over, and of bounded length."""
    text = text.rstrip(b"\r")
    if b"\r" in text:
        label = _LABEL.match(text)
        text = (label[0] if label else b"") + text.rpartition(b"\r")[2]
    return text if len(text) <= LINE else text[: LINE // 2] + text[-LINE // 2 :]


def _numbered(rows: list[tuple[int, bytes]]) -> bool:
    """Whether each line begins with the number of its task."""
    head = [text for _, text in rows[:40] if text.strip()]
    return len(head) > 1 and all(_NUMBERED.match(text) for text in head if not text.startswith(b"srun: "))


def _labels(before: bytes) -> tuple[int | None, int | None]:
    """(rank, local rank) by the labels that launchers put before a line."""
    rank, local = None, None
    for found in _LABEL.finditer(before):
        if found[1] == b"default":
            local = int(found[2])
        else:
            rank = int(found[2] or found[3])
    return rank, local


class _Sorting:
    """Lines by who wrote them; and what a launcher says of its processes."""

    def __init__(self, place: Place, numbered: bool, reading: Reading):
        self.place, self.numbered, self.reading = place, numbered, reading
        self.rows: dict[tuple[str, int, int], list[tuple[int, bytes]]] = {}  # (kind of number, number, attempt) → lines
        self.ranks: dict[int, int] = {}  # local → over all nodes
        self.forced: set[int] = set()
        self.report: dict[str, Any] = {}
        self.final = False  # the launcher has given up: no attempt follows
        self.died: set[tuple[str, int]] = set()  # whose last line of a traceback was seen
        self.fresh: set[tuple[str, int]] = set()  # who has begun the attempt that is counted

    def take(self, number: int, text: bytes) -> None:
        text = engine.uncoloured(text)
        if found := _CRI.match(text):
            text = text[found.end() :]
        kind, of = "", -1
        if self.numbered and (found := _NUMBERED.match(text)):
            kind, of, text = "rank", int(found[1]), text[found.end() :]
        while found := _LABEL.match(text):
            label, index = (found[1] or b"rank").decode(), int(found[2] or found[3])
            if label == "rank" and kind == "default":
                self.ranks[of] = index
            elif label == "rank" and self.place.local is not None:
                self.ranks[self.place.local] = index
            elif not kind:
                kind, of = label, index
            text = text[found.end() :]
        if self.place.by_rank:
            kind, of = "", -1
        elif not kind and self._quoted(text):
            # The launcher's report repeats what a rank recorded of its own error.
            of, at = self.report["rank"], max(0, self.count - 1)
            text = _QUOTE.sub(b"", text)
            self.rows.setdefault(("rank", of, at), []).append((number, text))
            return
        attempt = self.count if self.place.by_rank else self._attempt(kind, of, text)
        self.rows.setdefault((kind, of, attempt), []).append((number, text))
        if not kind:
            self._launcher(number, text)

    @property
    def count(self) -> int:
        """The attempt: a container that was begun anew, or what a launcher in it did so."""
        return (self.place.attempt or 0) + self.reading.attempts

    def _attempt(self, kind: str, of: int, text: bytes) -> int:
        """A rank's last words may stand below the launcher's that it failed: they are of the attempt before."""
        count, key = self.count, (kind, of)
        if kind and self.reading.attempts and key not in self.fresh:
            again = text.startswith(b"Traceback ") and key in self.died
            if _REST.match(text) and not again:
                count -= 1
            else:
                self.fresh.add(key)
                self.died.discard(key)
        if _EXCEPTION.search(text):
            self.died.add(key)
        elif text.startswith(_CHAINED):
            self.died.discard(key)
        return count

    def _quoted(self, text: bytes) -> bool:
        if _QUOTE.match(text) and "rank" in self.report:
            self.report["quoting"] = b"Traceback (most" in text
        elif _RULE.match(text):
            self.report.pop("quoting", None)
        return bool(self.report.get("quoting"))

    def _launcher(self, number: int, text: bytes) -> None:
        if self.place.layout == "file" and not self.reading.launcher:
            self.reading.launcher = bool(_LAUNCHER.search(text))
        if found := _FORCED.search(text):
            self.forced.add(int(found[1]))
        elif found := _STOPPED.search(text):
            self.reading.stopped = int(found[1]), number, found[0].decode()
        elif found := _FAILED.search(text):
            self._ended(None, int(found[2]), int(found[1]), int(found[3]), None, root=True)
            self.reading.attempts += 1
            self.fresh.clear()
        elif b"ChildFailedError" in text:
            self.final = True
        elif b"(first observed failure)" in text:
            self.report = {"root": True}
        elif b"Failures:" in text:
            self.report = {"root": False}
        elif self.report and (found := _FIELD.match(text)):
            name, value = found[1].decode(), found[2].decode(errors="replace")
            number_said = small_int(value)
            if name == "host":
                self.report["node"] = value
            elif number_said is None or not found[3]:
                pass
            elif name == "rank" and number_said >= 0:
                self.report |= {"rank": number_said, "local": int(found[3])}
                self.ranks[int(found[3])] = number_said
            elif name == "exitcode" and "rank" in self.report:
                report = self.report
                self._ended(
                    report["rank"], report["local"], number_said, int(found[3]), report.get("node"), report["root"]
                )
        elif found := _SRUN.search(text):
            code = int(found[3]) if found[3] else _SIGNALS.get(found[4], 1)
            for ranks in _ranges(found[2].decode()):
                room = max(0, ENDED - len(self.reading.ended))
                if len(ranks) > room:
                    self.reading.fault = f"it names more than {ENDED} ends of processes: the others are left out"
                for rank in ranks[:room]:
                    self._ended(rank, None, code, 0, found[1].decode(errors="replace"))

    def _ended(
        self, rank: int | None, local: int | None, code: int, pid: int, node: str | None, root: bool = False
    ) -> None:
        # The report follows the line by which an attempt ends.
        attempt = self.count if rank is None or self.place.by_rank or not self.reading.attempts else self.count - 1
        stuck = pid in self.forced and code == -9
        self.reading.ended.append(Ended(rank, local, attempt, code, node, root, stuck))

    def streams(self) -> Iterator[tuple[Stream, list[tuple[int, bytes]]]]:
        if self.final and self.reading.attempts:
            # What stands below the last failure belongs to it: a collector keeps no order among those who write.
            count = self.count
            for kind, of, attempt in [key for key in self.rows if key[2] == count]:
                whole = self.rows.pop((kind, of, attempt)) + self.rows.get((kind, of, count - 1), [])
                self.rows[kind, of, count - 1] = sorted(whole)
        for (kind, of, attempt), rows in self.rows.items():
            local = of if kind == "default" else self.place.local
            rank = of if kind == "rank" else self.place.rank
            if rank is None and local is not None:
                rank = self.ranks.get(local)
            yield Stream(rank, local, attempt), rows
        for ended in self.reading.ended:
            if ended.rank is None and ended.local is not None:
                ended.rank = self.ranks.get(ended.local)


def _ranges(text: str) -> Iterator[range]:
    """Slurm's `0,2-4`."""
    for part in text.split(","):
        low, _, high = part.partition("-")
        first, last = small_int(low), small_int(high or low)
        if first is not None and last is not None:
            yield range(first, last + 1)


# ------------------------------------------------------------------------------ what one rank says


def _said(
    rules: engine.Rules,
    stream: Stream,
    rows: list[tuple[int, bytes]],
    file: str,
    language: Language,
    end_from: int,
    clues: set[bytes],
) -> Stream:
    stamps = [(index, at) for index, (_, text) in enumerate(rows) if (at := _stamp(text)) is not None]
    if stamps:
        stream.first, stream.last = stamps[0][1], stamps[-1][1]
    for row, at in stamps[:MARKS]:
        stream.marks.setdefault(_mark(rows[row][1]), at)
    words = islice((text for _, text in reversed(rows) if text.strip()), 2)
    stream.tail = [text.decode("utf-8", "replace")[:200] for text in words][::-1]
    whole = b"\n".join(text for _, text in rows)
    if not any(trigger in whole for trigger in TRIGGERS + LAST):
        squeezed = engine.squeeze(whole)
        if not any(text in squeezed for text in rules.longest):
            return stream
    found = engine.Findings(clues=set(clues))
    found.read(rules, whole)
    tracebacks = _Tracebacks(rows, stamps[-1][0] if stamps else -1)
    index = _judge(rules, stream, found, rows, tracebacks, file, language)
    if index is None:
        return stream
    stream.line = rows[index][0]
    stream.message = stream.message or " ".join(rows[index][1].decode("utf-8", "replace").split())[:300]
    stream.passing = stream.line < end_from
    stream.logged = stream.state == "own" and tracebacks.logged(index)
    # What one process writes to its two streams may arrive crossed.
    stream.at = max((at for i, at in stamps if i <= index + CROSSED), default=stream.first)
    return stream


def _judge(
    rules: engine.Rules,
    stream: Stream,
    found: engine.Findings,
    rows: list[tuple[int, bytes]],
    tracebacks: _Tracebacks,
    file: str,
    language: Language,
) -> int | None:
    """Sets the stream's state; returns the index of the line that decides."""
    answer = engine.answer(rules, found, file, language).json
    if answer["error"] and answer["line"] and (hit := found.first(None)):
        stream.state, stream.family = "own", answer["error"]
        stream.answer = {key: answer[key] for key in ("kind", "incidents", "fix")}
        return hit[0] - 1
    late = found.first("consequence")
    own: list[int] = []
    follows: list[int] = []
    for line in sorted(found.errors - found.explained):
        goes_on = line < len(rows) and line + 1 not in found.explained
        text = rows[line - 1][1] + b" " + (rows[line][1] if goes_on else b"")
        text += b" ".join(takewhile(_OF_ASCEND.match, (below for _, below in rows[line : line + 3])))
        gone = any(word in text for word in (*GONE, *LATE))
        (own if line in found.causes and not gone else follows).append(line - 1)
        stream.late = stream.late or any(word in text for word in LATE)
    # An error that arose while another was handled follows from that one.
    tried = {i for i in own if follows and tracebacks.chained(follows[0], i)}
    follows = sorted({*follows, *tried})
    own = [i for i in own if i not in tried]
    survived = {i for i in own if tracebacks.survived(i, follows)}
    if survived and (follows or late or len(survived) < len(own)):
        own = [i for i in own if i not in survived]
    if own and not (late and late[0] - 1 < own[0]):
        stream.state = "own"
        stream.message = found.said[own[0] + 1][0]
        return own[0]
    if late or follows:
        stream.family = late[1] if late else None
        stream.message = "" if late else found.said[follows[0] + 1][0]
        # Not each consequence tells of a wait: most tell of a connection that is gone, or of an exit code.
        stream.late = stream.late or bool(late and any(word in rows[late[0] - 1][1] for word in LATE))
        stream.state = "follow"
        return late[0] - 1 if late else follows[0]
    begun = tracebacks.begun
    if begun and not any(_EXCEPTION.search(text) for _, text in rows[begun[-1] :]):
        stream.state = "cut"
        return begun[-1]
    return None


class _Tracebacks:
    """Where in a stream tracebacks begin and how they are joined. A question about two errors is answered by bisection,
    since a loop that tries again may log thousands of them."""

    def __init__(self, rows: list[tuple[int, bytes]], last_stamp: int):
        self.begun = [index for index, (_, text) in enumerate(rows) if _TRACEBACK in text]
        self._chained = [index for index, (_, text) in enumerate(rows) if any(words in text for words in _CHAINED)]
        aside = [index for index, (_, text) in enumerate(rows) if any(words in text for words in _ASIDE)]
        self._joined = sorted([*self._chained, *aside])
        # Those that a logger wrote, in a line with a time and a level: it puts none before the lines of the traceback.
        heads = ((index, rows[index - 1][1]) for index in self.begun if index and _stamp(rows[index][1]) is None)
        self._by_logger = {index for index, head in heads if _stamp(head) is not None and _LOGGED.search(head)}
        self._last_stamp, self._count = last_stamp, len(rows)

    def chained(self, first: int, second: int) -> bool:
        """Whether the lines between two errors say that the second arose while one from the first on was handled."""
        return first <= _before(self._chained, _before(self.begun, second))

    def survived(self, index: int, follows: list[int]) -> bool:
        """Whether the process went on after this error: it was logged, or another one, with a traceback of its own, came later."""
        later = _behind(follows, _behind(self.begun, index))
        return self.logged(index) or later <= min(_behind(self._joined, index), self._count)

    def logged(self, index: int) -> bool:
        """Whether a logger wrote the traceback that ends here, and the process wrote more."""
        return _before(self.begun, index + 1) in self._by_logger and index < self._last_stamp


def _before(places: list[int], index: int) -> int:
    """The last of the places before this one, else -1."""
    at = bisect_left(places, index)
    return places[at - 1] if at else -1


def _behind(places: list[int], index: int) -> int:
    """The first of the places behind this one, else a number that is greater than all."""
    at = bisect_right(places, index)
    return places[at] if at < len(places) else sys.maxsize


def _recorded(rules: engine.Rules, text: bytes, file: str, place: Place, language: Language) -> Iterator[Stream]:
    """What torch's own `error.json` says: the exception, and its second."""
    try:
        message = json.loads(text)["message"]
        if isinstance(message, str):
            message = {"message": message}
        more = message.get("extraInfo") or {}
        stack = str(more.get("py_callstack") or message["message"]).encode(errors="replace")
        exact = float(more["timestamp"]) if "timestamp" in more else None
    except (ValueError, OverflowError, KeyError, TypeError, AttributeError):
        return  # half a file: the log beside it has the same
    stream = Stream(place.rank, place.local, place.attempt or 0)
    rows = list(enumerate(stack.split(b"\n"), 1))
    stream = _said(rules, stream, rows, file, language, 1, set())
    stream.exact, stream.marks, stream.first, stream.last, stream.tail = exact, {}, None, None, []
    yield stream


def _stamp(text: bytes) -> float | None:
    found = _STAMP.search(text, 0, 80)
    if not found:
        return None
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    try:
        at = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC).timestamp()
    except ValueError:
        return None
    if found[8]:  # the zone: so much ahead of UTC
        ahead = 3600 * int(found[9]) + 60 * int(found[10])
        at -= ahead if found[8] == b"+" else -ahead
    return at + float(b"0." + (found[7] or b"0"))


def _mark(text: bytes) -> str:
    found = _STAMP.search(text)
    return _NUMBER.sub(b"#", text[found.end() if found else 0 :])[:60].decode("utf-8", "replace")
