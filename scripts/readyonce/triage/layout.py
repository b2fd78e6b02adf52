"""Which job a file belongs to, and which rank of it, by the file's name alone: the layouts that launchers write."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterable
from dataclasses import dataclass, field


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
_TORCHRUN = re.compile(
    r"(?:^|(?P<above>.*)/)(?P<run>[^/]+)_[a-z0-9_]{8}/attempt_(?P<attempt>\d{1,9})/(?P<local>\d{1,9})/(?:stdout\.log|stderr\.log|error\.json)$"
)
_OF_NODE = re.compile(r"(?:^|/)(?P<node>(?:node|host|worker|machine)[-_.]?\d+)(?:/.*)?$")
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
    if found := _TORCHRUN.search(re.sub(r"\.(gz|zst)$", "", name)):
        above = found["above"] or ""
        node = _OF_NODE.search(above)
        if node:
            above = above[: node.start()]
        # Without --rdzv-id all runs are called `none`, and the random part alone tells them apart.
        own = name[: found.start("run")] + name[found.start("run") :].split("/")[0]
        job = f"{above}/{found['run']}" if found["run"] != "none" else above if node else own
        return Place(
            "torchrun", job, local=int(found["local"]), attempt=int(found["attempt"]), node=node and node["node"]
        )
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


def jobs(names: Iterable[str], launchers: Container[str], dumps: Container[str] = ()) -> list[Job]:
    """The jobs that these files belong to, in the order of their names.

    A file that names no rank belongs to a job below its folder, if there is one alone and the file is one of `launchers`:
    that is what the launcher printed. Another one is a job of its own, but for `dumps` of processes: those in one folder are
    of one job.
    """
    places = {name: place(name) for name in names}
    for name, placed in places.items():
        if placed.layout == "file" and name in dumps:
            places[name] = Place("dumps", name.rpartition("/")[0] or name)
    groups: dict[str, dict[str, Place]] = defaultdict(dict)
    for name, placed in places.items():
        groups[placed.job][name] = placed
    for key, group in list(groups.items()):
        # Names that end in numbers are many things; a launcher counts its tasks from zero.
        ranked = {file.rank for file in group.values() if file.layout == "slurm" and file.rank is not None}
        if ranked and (0 not in ranked or len(ranked) < 2):
            del groups[key]
            for name in group:
                groups[name][name] = Place("file", name)
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
