"""Which job a file belongs to, and which rank of it: the layouts that launchers write, by the names of their files.

The folder above a layout may have any name, since people rename and copy it. Whether such folders are the hosts of one
job is told by the ranks that their files name.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Place:
    """What a name says. `job` is a key; `rank` counts over all nodes, `local` on one; None: the name does not say."""

    layout: str
    job: str
    rank: int | None = None
    local: int | None = None
    node: str | None = None
    attempt: int | None = None

    @property
    def by_rank(self) -> bool:
        """Whether the file holds one rank's output and nothing else."""
        return self.rank is not None or self.local is not None


@dataclass
class Job:
    name: str
    layout: str
    files: dict[str, Place] = field(default_factory=dict)


LONGEST = 1024  # letters of a name that is looked into: an archive may hold any, and the patterns take their square

# torchrun --log-dir: LOG_DIR/RUN-ID_RANDOM/attempt_N/LOCAL_RANK/stderr.log
_OF_RANK = r"(?P<local>\d{1,9})/(?:stdout\.log|stderr\.log|error\.json)(?:\.(?:gz|zst))?$"
_TORCHRUN = re.compile(rf"(?:^|/)attempt_(?P<attempt>\d{{1,9}})/{_OF_RANK}")
_COPIED = re.compile(rf"(?P<folder>^|.*/){_OF_RANK}")  # the folder of an attempt under another name
# The random part as tempfile makes it. A word or a date of eight signs is a name that somebody gave.
_RUN = re.compile(r"(?P<run>.+)_(?=[0-9_]*[a-z])(?=[a-z]*[0-9_])[a-z0-9_]{8}$")
_OF_NODE = re.compile(
    r"(?:^|/)(?P<node>(?:node|host|worker|machine)[-_.]?\d+)(?:\.(?:tar|tgz|zip|gz|zst|bz2|xz)){0,2}(?:/.*)?$"
)
# Ascend's logs, as CANN lays them, and its files alone
_ASCEND = re.compile(
    r"(?P<above>^|.*?/)(?:(?:debug|run|security)/(?:plog|device-\d{1,9})/)?(?:plog|device)-\d{1,9}_\d{8,20}\.log(?:\.(?:gz|zst))?$"
)
# Kubernetes: on a node's disk, or saved by name with `kubectl logs`; the roles are those of the training operators.
_ON_DISK = re.compile(
    r"(?:^|/)(?:pods/(?P<space>[^/_]+)_(?P<pod>[^/_]+)_[^/]+/(?P<container>[^/]+)/(?P<restart>\d{1,9})\.log[^/]*"
    r"|containers/(?P<pod2>[^/_]+)_(?P<space2>[^/_]+)_(?P<container2>.+)-[0-9a-f]{12,64}\.log)$"
)
_POD = re.compile(r"(?P<job>.+)-(?P<role>master|worker|launcher|chief)-(?P<index>\d+|[a-z0-9]{5})$")
# Slurm's --output=%j_%t or %x-%j_%t, and the batch script's own slurm-%j.out
_SLURM = re.compile(r"(?P<job>(?:.*[-_.])?(?P<id>\d{2,}))[-_](?P<rank>\d{1,5})$")
_BATCH = re.compile(r"slurm-(?P<id>\d+)$")
_DATE = re.compile(r"(?:^|\D)(?:20\d\d[-_.]?[01]\d(?:[-_.]?[0-3]\d)?)$")
_RANK = re.compile(
    r"(?P<stem>.*?)(?:^|[-_.])(?:log[-_.])?(?:rank|task|proc|gpu)[-_.]?(?P<rank>\d{1,5})(?P<rest>[-_.].*)?$"
)
_SWIFT = re.compile(r"(?P<job>(?:.*/)?v\d+-\d{8}-\d{6})(?:/.*)?$")
_ENDING = re.compile(r"(?:\.(?:log|out|err|txt|jsonl?|std(?:out|err)|gz|zst|[0-9](?=\.|$)))+$")


def small_int(text: str) -> int | None:
    """A number of at most nine decimal digits, else None: `int` and `isdigit` do not agree, and `int` refuses long ones."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else None


def place(name: str) -> Place:
    """Where a file stands, by a name with `/` between its parts."""
    if len(name) > LONGEST:
        return Place("file", name)
    folder, _, base = name.rpartition("/")
    if found := _TORCHRUN.search(name):
        job, node = _of_torchrun(name[: found.start()])
        return Place("torchrun", job, local=int(found["local"]), attempt=int(found["attempt"]), node=node)
    if found := _COPIED.match(name):
        return Place("torchrun", found["folder"].rstrip("/") or ".", local=int(found["local"]))
    if found := _ASCEND.match(name):
        above = found["above"].rstrip("/")
        host = _OF_NODE.search(above)
        return Place("ascend", (above[: host.start()] if host else above) or ".", node=host and host["node"])
    stem = _ENDING.sub("", base)
    pod, job, attempt = stem, folder, None
    if disk := _ON_DISK.search(name):
        pod = disk["pod"] or disk["pod2"]
        job = disk["space"] or disk["space2"]
        attempt = int(disk["restart"]) if disk["restart"] else None
    if (found := _POD.search(pod)) is not None:
        return Place(
            "kubernetes", f"{job}/{found['job']}".lstrip("/"), node=pod[len(found["job"]) + 1 :], attempt=attempt
        )
    if disk:
        return Place("kubernetes", f"{job}/{pod}", node=pod, attempt=attempt)
    if found := _SWIFT.match(folder):
        return Place("ms-swift", found["job"])
    if (found := _RANK.match(stem)) is not None:
        return Place("ranks", f"{folder}/{found['stem']}".strip("/") or ".", rank=int(found["rank"]))
    if (found := _SLURM.match(stem)) is not None and not _DATE.search(found["job"]):
        return Place("slurm", f"{folder}/{found['id']}".lstrip("/"), rank=int(found["rank"]))
    if found := _BATCH.match(stem):
        return Place("slurm", f"{folder}/{found['id']}".lstrip("/"))
    return Place("file", name)


def machine(name: str) -> str:
    """What tells files of different machines apart: the folder of a file, of CANN's the one above its own."""
    found = _ASCEND.match(name) if len(name) <= LONGEST else None
    return found["above"].rstrip("/") if found else name.rpartition("/")[0]


def _of_torchrun(folder: str) -> tuple[str, str | None]:
    """(job, node) of the folder in which torchrun writes its attempts."""
    above, _, run = folder.rpartition("/")
    named = _RUN.match(run)
    if node := _OF_NODE.search(above if named else folder):
        before = folder[: node.start()]
        if named:  # without --rdzv-id all runs are called `none`
            return before if named["run"] == "none" else f"{before}/{named['run']}", node["node"]
        return (before if node.start() >= len(above) else f"{before}/{run}") or ".", node["node"]
    # The random part alone tells runs apart that are called `none`.
    return (f"{above}/{named['run']}" if named and named["run"] != "none" else folder or "."), None


def jobs(
    names: Iterable[str],
    launchers: Container[str],
    dumps: Container[str] = (),
    offsets: Mapping[str, int] | None = None,
    communicators: Mapping[str, Iterable[str]] | None = None,
) -> list[Job]:
    """The jobs that these files belong to, in the order of their names.

    `offsets`: of a file that names its process's rank over all nodes, that rank less the one on its node. `communicators`:
    of a file of one job the communicators that it names, no two of which are called alike.

    A file that names no rank belongs to a job below its folder, if there is one alone and the file is one of `launchers`:
    that is what the launcher printed. Another one is a job of its own, but for `dumps` of processes, of which those in one
    folder are of one job, and for files that name a communicator in common.
    """
    places = {name: place(name) for name in names}
    for name, placed in places.items():
        if placed.layout == "file" and name in dumps:
            places[name] = Place("dumps", name.rpartition("/")[0] or name)
    groups: dict[str, dict[str, Place]] = defaultdict(dict)
    for name, placed in places.items():
        groups[placed.job][name] = placed
    for key, group in list(groups.items()):
        # Names that end in numbers are many things; a launcher counts its tasks from zero, and so do folders of ranks.
        ranked = {file.rank for file in group.values() if file.layout == "slurm" and file.rank is not None}
        copied = [name for name, file in group.items() if file.layout == "torchrun" and file.attempt is None]
        ranks = {group[name].local for name in copied}
        doubtful = list(group) if ranked and (0 not in ranked or len(ranked) < 2) else []
        doubtful += copied if ranks != set(range(len(ranks))) or len(ranks) == 1 else []
        for name in doubtful:
            del group[name]
            groups[name][name] = Place("file", name)
        if not group:
            del groups[key]
    _join_hosts(groups, offsets or {})
    _join_ranks(groups)
    _join_by_communicators(groups, communicators or {})
    below: dict[str, set[str]] = defaultdict(set)  # folder → the jobs in it
    for key, group in groups.items():
        for name, placed in group.items():
            if placed.layout != "file":
                parts = name.split("/")[:-1]
                for end in range(len(parts) + 1):
                    below["/".join(parts[:end])].add(key)
    for key, group in list(groups.items()):
        name, placed = next(iter(group.items()))
        folder = name.rpartition("/")[0]
        if placed.layout == "file" and folder and name in launchers and len(jobs_there := below[folder]) == 1:
            (job,) = jobs_there
            del groups[key]
            groups[job][name] = Place(next(iter(groups[job].values())).layout, job)
    found = []
    for key, group in sorted(groups.items()):
        layouts = [file.layout for file in group.values()]
        found.append(Job(key, max(set(layouts), key=layouts.count), dict(sorted(group.items()))))
    return found


@dataclass
class _Folder:
    """A folder in which torchrun wrote its attempts. `first`: the lowest of its ranks; None: its files do not name it."""

    path: str
    files: dict[str, Place] = field(default_factory=dict)
    size: int = 0  # ranks in it
    first: int | None = None


def _join_hosts(groups: dict[str, dict[str, Place]], offsets: Mapping[str, int]) -> None:
    """Make one job of the folders of torchrun that are its hosts, whatever they are called: the ranks of one go on where
    those of another end. Folders of one run id that name the same ranks are runs of their own."""
    apart: dict[str, _Folder] = {}
    for key, group in list(groups.items()):
        folders = _folders(group, offsets)
        if len(folders) == 1:
            apart[key] = folders[0]
        elif folders and _adjoin(folders):
            groups[key] = {name: placed for folder in folders for name, placed in _on_host(folder, key, 1).items()}
        elif len(told := [it.first for it in folders if it.first is not None]) > len(set(told)):
            del groups[key]
            for folder in folders:
                groups[folder.path].update(
                    {name: replace(placed, job=folder.path) for name, placed in folder.files.items()}
                )
                apart[folder.path] = folder
    # The host's name is the last part of the path, or the one before the folder that torchrun itself named.
    for up in (1, 2):
        beside: dict[tuple[str, str], list[str]] = defaultdict(list)
        for key, folder in apart.items():
            parts = folder.path.split("/")
            if len(parts) >= up:
                named = _RUN.match(parts[-1])
                run = named["run"] if named else parts[-1] if up == 2 else "none"
                beside["/".join(parts[:-up]), "" if run == "none" else run].append(key)
        for (above, run), keys in beside.items():
            if len(keys) > 1 and _adjoin([apart[key] for key in keys]):
                job = "/".join(filter(None, (above, run))) or "."
                for key in keys:
                    del groups[key]
                    groups[job].update(_on_host(apart.pop(key), job, up))


def _folders(group: Mapping[str, Place], offsets: Mapping[str, int]) -> list[_Folder]:
    """The folders of torchrun in a group; none where a name says which node it is of, or a file is of another layout."""
    found: dict[str, _Folder] = {}
    for name, placed in group.items():
        if placed.layout != "torchrun" or placed.node or placed.local is None:
            return []
        above = 2 if placed.attempt is None else 3  # a folder of an attempt that was renamed is the job's own
        path = name.rsplit("/", above)[0] if name.count("/") >= above else ""
        folder = found.setdefault(path, _Folder(path))
        folder.files[name] = placed
        folder.size = max(folder.size, placed.local + 1)
        if folder.first is None:
            folder.first = offsets.get(name)
    return list(found.values())


def _adjoin(folders: list[_Folder]) -> bool:
    """Whether the ranks of these folders follow each other from rank 0 on; one that names no rank may fill a gap."""
    told = sorted((it for it in folders if it.first is not None), key=lambda it: it.first or 0)
    unknown = [it for it in folders if it.first is None]
    expected = 0
    for folder in told:
        if folder.first != expected and unknown and folder.first == expected + unknown[0].size:
            expected += unknown.pop().size
        if folder.first != expected:
            return False
        expected += folder.size
    return not unknown


def _on_host(folder: _Folder, job: str, up: int) -> dict[str, Place]:
    node = folder.path.split("/")[-up]
    return {name: replace(placed, job=job, node=node) for name, placed in folder.files.items()}


def _join_ranks(groups: dict[str, dict[str, Place]]) -> None:
    """Make one job of folders that differ in one part of their path, and whose files name the ranks of one job: each a row
    of ranks, the next of which is in another folder."""
    beside: dict[tuple[str, str], list[str]] = defaultdict(list)
    for key, group in groups.items():
        if "/" in key and all(placed.layout == "ranks" and not placed.node for placed in group.values()):
            parts = key.split("/")
            for at in range(len(parts)):
                beside["/".join(parts[:at]), "/".join(parts[at + 1 :])].append(key)
    for (above, under), keys in beside.items():
        if len(keys := [key for key in keys if key in groups]) < 2:
            continue
        rows = sorted(
            sorted({placed.rank for placed in groups[key].values() if placed.rank is not None}) for key in keys
        )
        if [rank for row in rows for rank in row] != [*range(sum(map(len, rows)))]:
            continue
        job = "/".join(filter(None, (above, under))) or "."
        for key in keys:
            node = key.split("/")[above.count("/") + 1 if above else 0]
            groups[job].update({name: replace(it, job=job, node=node) for name, it in groups.pop(key).items()})


def _join_by_communicators(groups: dict[str, dict[str, Place]], communicators: Mapping[str, Iterable[str]]) -> None:
    """Make one job of files, and of folders of Ascend's logs, whose processes are in one communicator."""
    first: dict[str, str] = {}  # communicator → the first job that names it
    into: dict[str, str] = {}  # job → an earlier one that it is a part of

    def whole(key: str) -> str:
        while key in into:
            key = into[key]
        return key

    for key, group in groups.items():
        if not any(placed.node or placed.layout not in ("file", "ascend") for placed in group.values()):
            for communicator in {it for name in group for it in communicators.get(name, ())}:
                if (other := whole(first.setdefault(communicator, key))) != (own := whole(key)):
                    into[own] = other
    parts: dict[str, list[str]] = defaultdict(list)
    for key in into:
        parts[whole(key)].append(key)
    for key, more in parts.items():
        files = {name: placed for part in (key, *more) for name, placed in groups.pop(part).items()}
        folders = {name: machine(name).split("/") for name in files}
        shared = len(posixpath.commonprefix([*folders.values()]))
        job = (
            key
            if all(placed.layout == "file" for placed in files.values())
            else "/".join([*folders.values()][0][:shared]) or "."
        )
        for name, placed in files.items():
            host = folders[name][shared] if placed.layout == "ascend" and len(folders[name]) > shared else None
            layout = "communicator" if placed.layout == "file" else placed.layout
            groups[job][name] = replace(placed, job=job, layout=layout, node=host)
