"""Of each job the rank that failed first, and what it failed with; who only followed, who stayed silent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from statistics import median
from typing import Any

from readyonce.triage import layout, stands, transport
from readyonce.triage.layout import Job, Place, small_int
from readyonce.triage.reading import Ended, Reading, Stream

TERM, ABORT = -15, -6


@dataclass
class Rank:
    """One rank in one attempt.

    `how`: `raised` (an error of its own), `killed` (by a signal), `hung` (alive, and others waited for it), `lost` (it
    ended without a message), `cut` (its log ends inside a traceback), `exited` (a launcher saw it fail, and its log does not
    say why), `stopped` (the launcher was told to end), `followed`, `ended` (by the launcher), `silent`, `clean`. Times are
    seconds on the job's clock.
    """

    rank: int | None
    node: str | None = None
    how: str = "clean"
    code: int | None = None
    family: str | None = None
    message: str = ""
    file: str | None = None
    line: int | None = None
    start: float | None = None
    end: float | None = None
    answer: dict[str, Any] | None = None
    tail: list[str] = field(default_factory=list)
    late: bool = False
    exact: float | None = None
    at: float | None = None
    passing: bool = False
    logged: bool = False
    order: tuple[str, int] = ("", 0)
    machine: str | None = None  # what is known of where it ran: ranks of one machine have one clock
    clock: int = 0  # equal for ranks whose clocks can be compared


@dataclass
class Answer:
    """`outcome`: `failed`, `recovered` (an attempt failed, a later one did not), `fine`, `unclear` (errors that nothing
    shows to have ended it), `dumped` (somebody wrote down where its processes stand, and nothing failed), `empty`. `first` is of the last attempt that failed, with the ranks that failed `alike`."""

    job: str
    layout: str
    outcome: str
    attempt: int | None
    restarts: int
    first: Rank | None
    alike: list[int]
    why: str
    ranks: list[Rank]
    nodes: list[str]
    files: int
    size: int
    standing: stands.Standing | None = None
    transport: list[transport.Said] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        first = self.first
        shown = first and {
            key: getattr(first, key) for key in ("rank", "node", "how", "code", "message", "file", "line")
        }
        by = defaultdict(list)
        for rank in self.ranks:
            by[rank.how].append(rank.rank)
        more = (first and first.answer) or {}
        return {
            "job": self.job,
            "layout": self.layout,
            "outcome": self.outcome,
            "first": shown and shown | {"alike": self.alike, "why": self.why},
            "error": first and first.family,
            "incidents": [incident["id"] for incident in more.get("incidents", [])],
            "fix": more.get("fix"),
            "followed": sorted(number for how in ("followed", "ended") for number in by[how] if number is not None),
            "silent": sorted(number for how in ("silent", "hung", "lost") for number in by[how] if number is not None),
            "attempt": self.attempt,
            "restarts": self.restarts,
            "nodes": self.nodes,
            "ranks": [
                {key: getattr(peer, key) for key in ("rank", "node", "how", "code", "start", "end")}
                for peer in self.ranks
            ],
            "stands": _stands(self.standing) if self.standing else None,
            "transport": [_transport(part) for part in self.transport],
            "files": self.files,
            "bytes": self.size,
        }


def _stands(standing: stands.Standing) -> dict[str, Any]:
    rows = [
        {
            "ranks": group.ranks,
            "processes": group.names,
            "in": group.place.call or group.stand.call or None,
            "at": group.place.at or None,
            "begun": group.stand.begun,
            "part": group.parts or None,
            "dumps": group.same,
        }
        for group in standing.groups
    ]
    apart = standing.groups.index(standing.apart) if standing.apart else None
    return {"groups": rows, "apart": apart, "missing": standing.missing}


def _transport(said: transport.Said) -> dict[str, Any]:
    first = said.first
    return {
        "library": said.library,
        "first": first
        and {key: getattr(first, key) for key in ("rank", "host", "pid", "device", "kind", "said", "file", "line")},
        "why": said.why,
        "warned": sorted({process.rank for process in said.warned if process.rank is not None}),
        "processes": len(said.warned),
        "quiet": said.quiet,
        "ranks": said.ranks,
        "unnamed": said.unnamed,
        "mixed": said.mixed,
        "peers": said.peers,
    }


def answers(found: Iterable[Reading]) -> list[Answer]:
    """The answer for each job that these files belong to."""
    by = {reading.file: reading for reading in found if not reading.fault or reading.lines}
    launchers = {name for name, own in by.items() if own.launcher or own.ended or own.stopped or not own.size}
    dumps = {name for name, own in by.items() if own.dump}
    offsets = {
        name: stream.rank - stream.local
        for name, own in by.items()
        for stream in own.streams
        if stream.rank is not None and stream.local is not None
    }
    talks = {name: transport.communicators(own.transport) for name, own in by.items() if own.transport}
    found_jobs = layout.jobs(by, launchers, dumps, offsets, talks)
    return [judge(job, [by[name] for name in job.files]) for job in found_jobs]


def judge(job: Job, readings: Iterable[Reading]) -> Answer:
    """The answer for one job; `readings` are those of its files."""
    readings = [own for own in readings if own.file in job.files]
    by_attempt: dict[int, dict[int | None, Rank]] = defaultdict(dict)
    names = _Names(job, readings)
    launcher = False  # whether one says that the job failed
    for reading in readings:
        place = job.files[reading.file]
        for stream in reading.streams:
            rank = names.rank(place, stream)
            if rank is None and stream.state == "clean":
                if stream.attempt and stream.first is not None:
                    by_attempt[stream.attempt]  # somebody works on, and gives no name
                continue
            _add(by_attempt[stream.attempt].setdefault(rank, Rank(rank)), stream, reading, place)
        for ended in reading.ended:
            launcher = True
            ended.rank = rank = names.rank(place, ended)
            if rank is not None:
                entry = by_attempt[ended.attempt].setdefault(rank, Rank(rank))
                _end(entry, ended, place)
    if stopped := next(((own.file, *own.stopped) for own in readings if own.stopped), None):
        by_attempt = by_attempt or defaultdict(dict, {0: {}})
    _align(by_attempt, readings, names, job)
    attempts = sorted(by_attempt)
    roots: dict[int, int | None] = {}  # attempt → whom a launcher saw fail first
    for ended in (ended for own in readings for ended in own.ended if ended.root):
        roots.setdefault(ended.attempt, ended.rank)
    failed = {number: failure for number in attempts if (failure := _first(by_attempt[number], roots.get(number)))}
    size, files = sum(own.size for own in readings), len(readings)
    if stopped and not failed:
        file, by, line, words = stopped
        failed = {attempts[-1]: (Rank(None, how="stopped", code=-by, message=words, file=file, line=line), [], "told")}
    last = max(failed, default=None)
    ranks = by_attempt[attempts[-1] if last is None else last] if attempts else {}
    shown = sorted(ranks.values(), key=lambda peer: (peer.rank is None, peer.rank))
    nodes = sorted({peer.node for attempt in by_attempt.values() for peer in attempt.values() if peer.node})
    restarts = attempts[-1] if attempts else 0
    first, alike, why = failed[last] if last is not None else (None, [], "")
    found = [(job.files[own.file], stand) for own in readings for stand in own.stands]
    for place, stand in found:
        stand.rank = names.rank(place, stand)
    standing = stands.standing([stand for _, stand in found])
    heard = [process for own in readings for process in _heard(own, job.files[own.file], names)]
    said = transport.said(heard)
    outcome = "empty" if not size else "dumped" if standing else "unclear" if said else "fine"
    if not first and (noticed := _noticed(said)):
        first, why, last = noticed, "unknown", attempts[-1] if attempts else 0
        attempts = attempts or [last]
    if first:
        outcome = "failed" if last == attempts[-1] else "recovered"
        if (first.passing or first.logged) and not launcher and all(peer.how in ("raised", "clean") for peer in shown):
            outcome = "unclear"
    return Answer(
        job.name, job.layout, outcome, last, restarts, first, alike, why, shown, nodes, files, size, standing, said
    )


def _heard(reading: Reading, place: Place, names: _Names) -> Iterable[transport.Process]:
    """The processes of NCCL and HCCL in a file, with what its place says of them."""
    for process in reading.transport:
        process.rank = names.rank(place, process)
        process.host = process.host or place.node
        process.machine = process.host or layout.machine(reading.file)
        yield process


def _noticed(said: list[transport.Said]) -> Rank | None:
    """What HCCL's own errors show where nothing else tells of a failure: it writes them where a call failed. NCCL warns of
    much that a training survives."""
    told = [it for it in said if it.library == "HCCL"]
    if not told:
        return None
    own = [process for it in told for process in it.own]
    one = own[0] if own else next((it.first for it in told if it.first), None)
    if one is None:
        process = told[0].warned[0]
        return Rank(None, how="followed", message=process.said, file=process.file, line=process.line)
    how = "raised" if own else "followed"
    return Rank(one.rank, one.host, how, message=one.said, file=one.file, line=one.line)


class _Names:
    """Ranks over all nodes, where a file counts those of its own node only."""

    def __init__(self, job: Job, readings: list[Reading]):
        self.known: dict[tuple[str | None, int], int] = {}
        locals_: dict[str | None, set[int]] = defaultdict(set)
        for reading in readings:
            place = job.files[reading.file]
            said: list[Stream | Ended | stands.Stand] = [*reading.streams, *reading.ended, *reading.stands]
            for record in said:
                if record.local is not None:
                    locals_[place.node].add(record.local)
                    if record.rank is not None:
                        self.known[place.node, record.local] = record.rank
        # Nodes count alike: where one rank of a node is known, so are the others. The other nodes stand in their order,
        # in the places that are left.
        self.nodes = sorted({placed.node for placed in job.files.values() if placed.node}, key=_natural)
        each = max((max(ranks) + 1 for ranks in locals_.values() if ranks), default=1)
        bases = {node: rank - local for (node, local), rank in self.known.items()}
        taken = set(bases.values())
        free = (base for number in count() if (base := number * each) not in taken)
        nodes: list[str | None] = [*self.nodes] or [None]
        for node in nodes:
            base = bases[node] if node in bases else next(free)
            for local in locals_[node]:
                self.known.setdefault((node, local), base + local)

    def rank(self, place: Place, record: Stream | Ended | stands.Stand | transport.Process) -> int | None:
        if record.rank is not None:
            return record.rank
        if record.local is not None:
            return self.known.get((place.node, record.local), record.local)
        if isinstance(record, Stream) and place.layout == "kubernetes" and place.node and not self.known:
            role, _, index = place.node.rpartition("-")  # one process in each pod
            if index.isdigit() and role in ("master", "worker", "chief"):
                return self.nodes.index(place.node)
        return None


def _natural(text: str) -> tuple[bool, list[tuple[bool, int, str]]]:
    role = not text.startswith(("master", "chief"))
    numbers = [(small_int(part), part) for part in text.split("-")]
    return role, [(number is not None, number or 0, part) for number, part in numbers]


def _without(rank: Rank) -> str:
    """How a rank ended, its logged error aside."""
    return "clean" if not rank.code else "ended" if rank.code == TERM else "killed" if rank.code < 0 else "exited"


_STATES = {"clean": 0, "logged": 1, "cut": 2, "follow": 3, "own": 4}
_HOW = {"clean": "clean", "cut": "cut", "follow": "followed", "own": "raised"}


def _add(rank: Rank, stream: Stream, reading: Reading, place: Place) -> None:
    """A rank may write into several files, and one of them decides."""
    rank.node = rank.node or place.node
    here = place.node or (place.job if place.local is not None else reading.file if stream.local is not None else None)
    rank.machine = rank.machine or here  # who counts its ranks from zero counts those of one machine
    rank.tail = stream.tail or rank.tail
    for moment in filter(None, (stream.first, stream.last)):
        rank.start, rank.end = min(rank.start or moment, moment), max(rank.end or moment, moment)
    rank.exact = rank.exact if rank.exact is not None else stream.exact
    current = next(state for state, how in _HOW.items() if how == rank.how) if rank.how in _HOW.values() else "clean"
    if _STATES["logged" if stream.logged else stream.state] > _STATES["logged" if rank.logged else current]:
        rank.how, rank.family, rank.answer, rank.message = (
            _HOW[stream.state],
            stream.family,
            stream.answer,
            stream.message,
        )
        rank.file, rank.line, rank.at, rank.passing = reading.file, stream.line, stream.at, stream.passing
        rank.logged = stream.logged
        rank.order = (reading.file, stream.line or 0)
    rank.late = rank.late or stream.late


def _end(rank: Rank, ended: Ended, place: Place) -> None:
    rank.node = ended.node or rank.node or place.node
    rank.code = ended.code if rank.code is None or ended.root else rank.code
    if rank.how in ("clean", "ended"):
        if ended.stuck:
            rank.how = "hung"
        elif ended.code == TERM:
            # The launcher ends all others so, but only after the first.
            rank.how = "killed" if ended.root else rank.how if rank.how == "ended" else "ended"
        elif ended.code < 0:
            rank.how = "killed"
        elif ended.code > 0:
            rank.how = "exited"


def _align(by_attempt: dict[int, dict[int | None, Rank]], readings: list[Reading], names: _Names, job: Job) -> None:
    """Set all clocks by the moments that ranks have in common: the same line, which steps in common let them all write at
    about the same time. A rank's clock is off by the median over those lines."""
    marked: dict[int, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for reading in readings:
        for stream in reading.streams:
            rank = names.rank(job.files[reading.file], stream)
            if rank is not None:
                for mark, at in stream.marks.items():
                    marked[stream.attempt][mark].setdefault(rank, at)
    for attempt, marks in marked.items():
        off: dict[int, list[float]] = defaultdict(list)
        for moments in marks.values():
            if len(moments) > 1:
                middle = median(moments.values())
                for rank, at in moments.items():
                    off[rank].append(at - middle)
        _compare(by_attempt[attempt], marks.values())
        for rank, peer in by_attempt[attempt].items():
            by = median(off[rank]) if rank is not None and off.get(rank) else 0.0
            peer.at = peer.at if peer.at is not None else peer.end
            for name in ("at", "start", "end"):
                if (moment := getattr(peer, name)) is not None:
                    setattr(peer, name, round(moment - by, 3))


def _compare(ranks: dict[int | None, Rank], common: Iterable[Iterable[int]]) -> None:
    """Give ranks one `clock` that ran on one machine or, directly or by way of others, wrote a line in common."""
    found = list(range(len(ranks)))  # each points to an earlier one whose clock it shares, the earliest to itself
    number = {rank: index for index, rank in enumerate(ranks)}

    def earliest(index: int) -> int:
        while found[index] != index:
            found[index] = index = found[found[index]]
        return index

    machines: dict[str, list[int]] = defaultdict(list)
    for index, peer in enumerate(ranks.values()):
        if peer.machine:
            machines[peer.machine].append(index)
    for one, *others in [*machines.values(), *([number[rank] for rank in line] for line in common)]:
        for other in others:
            low, high = sorted((earliest(one), earliest(other)))
            found[high] = low
    for index, peer in enumerate(ranks.values()):
        peer.clock = earliest(index)


def _first(ranks: dict[int | None, Rank], root: int | None) -> tuple[Rank, list[int], str] | None:
    """(the rank that failed first, all that failed alike with it, by what it was told); None: nobody failed. `root`: whom
    the launcher saw fail first."""
    of: dict[str, list[Rank]] = defaultdict(list)
    failed = any(not peer.logged and peer.how != "clean" for peer in ranks.values())
    for rank in ranks.values():
        if rank.logged and failed:  # that is not what ended it
            rank.how, rank.family, rank.answer, rank.message, rank.logged = _without(rank), None, None, "", False
        of[rank.how].append(rank)
    if not any(of[how] for how in of if how != "clean"):
        return None
    if of["raised"]:
        first, why = _earliest(of["raised"], root)
        for rank in of["killed"]:
            # It was silent before the other had its error. A process that lost its peers may abort long after its last line.
            if rank.code != ABORT and _earlier(rank, first):
                return rank, [rank.rank] if rank.rank is not None else [], "clock"
        same = [peer for peer in of["raised"] if _alike(peer, first)]
        # The same error may name a number that its family is known by on some ranks only.
        if named := [peer for peer in same if peer.family] if not first.family else []:
            first.family, first.answer = named[0].family, named[0].answer
        if first.rank is None and root is not None:  # it failed before it had a name
            first.rank = root
        return first, sorted(peer.rank for peer in same if peer.rank is not None), why
    waited = any(peer.late for peer in of["followed"])
    if of["cut"] and not of["killed"] and not of["hung"]:
        # Half a traceback is no proof where somebody else explains all the others: they waited for one that says nothing, or
        # the launcher did not see it fail, or saw it fail first, without a word.
        reported = any(peer.code is not None for peer in ranks.values())
        left = [peer for peer in of["clean"] if reported and peer.code is None]
        alone = [peer for peer in of["exited"] if peer.rank == root]
        if not alone and not (of["followed"] and (left or waited and (of["clean"] or of["ended"]))):
            first, by = _earliest(of["cut"], root)
            return first, [first.rank] if first.rank is not None else [], "cut" if len(of["cut"]) == 1 else by
        if alone:
            return alone[0], [peer.rank for peer in alone if peer.rank is not None], "launcher"
    for how, why in (("killed", "signal"), ("hung", "stuck")):
        if of[how]:
            first, by = _earliest(of[how], root)
            return first, [first.rank] if first.rank is not None else [], why if len(of[how]) == 1 else by
    if of["followed"]:
        for rank in of["clean"]:
            rank.how = "silent"
        quiet = of["clean"] or of["ended"] or of["exited"]
        if quiet and not (root is not None and not waited and root in {peer.rank for peer in of["exited"]}):
            known = len(quiet) == 1 or _on_one_clock(quiet, [peer.end for peer in quiet])
            first = min(quiet, key=lambda peer: (known and peer.end or 0, peer.rank is None, peer.rank))
            first.how = "hung" if waited else "lost"
            return first, [first.rank] if first.rank is not None else [], "silent" if known else "unknown"
    rest = of["exited"] or of["followed"]
    if not rest:
        return None
    first, why = _earliest(rest, root)
    return first, [first.rank] if first.rank is not None else [], why


def _earlier(rank: Rank, first: Rank) -> bool:
    """Whether its last line, of several, is older than the other's error."""
    if rank.start is None or rank.end is None or first.at is None or rank.clock != first.clock:
        return False
    return rank.end > rank.start and first.at - rank.end > 0.5


def _on_one_clock(ranks: list[Rank], moments: list[float | None]) -> bool:
    """Whether moments of these ranks can be compared: all are known, and by clocks that can be."""
    return None not in moments and len({rank.clock for rank in ranks}) == 1


def _earliest(among: list[Rank], root: int | None) -> tuple[Rank, str]:
    """By torch's own record, the clocks, the launcher, the place in one file; the first of them that tells."""
    if len(among) == 1:
        return among[0], "alone"
    if len({rank.machine for rank in among}) == 1 and all(rank.exact is not None for rank in among):
        ordered = sorted(among, key=lambda rank: rank.exact or 0)
        if (ordered[1].exact or 0) > (ordered[0].exact or 0):
            return ordered[0], "record"
    if _on_one_clock(among, [rank.at for rank in among]):
        ordered = sorted(among, key=lambda rank: rank.at or 0)
        if (ordered[1].at or 0) - (ordered[0].at or 0) > 0.5:
            return ordered[0], "clock"
    if named := [rank for rank in among if rank.rank == root and root is not None]:
        return named[0], "launcher"
    if len({rank.order[0] for rank in among}) == 1:
        return min(among, key=lambda rank: rank.order), "line"
    return min(among, key=lambda rank: (rank.rank is None, rank.rank)), "unknown"


def _alike(one: Rank, other: Rank) -> bool:
    """Whether both say the same, but for numbers."""
    texts = ["".join(char for char in rank.message if not char.isdigit())[:120] for rank in (one, other)]
    return texts[0] == texts[1] or (one.family is not None and one.family == other.family)
