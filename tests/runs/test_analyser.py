"""What torch's own analyser of Flight Recorder files says of jobs that were really stopped, beside what triage says."""

import json
import re
import subprocess
import sys

from support.project import ROOT
from support.stacks import answers, cases, dumps, judged

ANSWERS = answers()

# torch's own analyser in a process of its own, since it is made for a command: job → the rank that it misses, and all it says.
ANALYSER = """
import io, json, logging, pickle, sys
from pathlib import Path
from torch.distributed.flight_recorder import fr_trace
told = {}
for job in sys.argv[1:]:
    ranks = len(list(Path(job).iterdir()))
    for filled in (False, True):
        for path in Path(job).iterdir() if filled else ():
            trace = pickle.loads(path.read_bytes())
            groups = {entry["process_group"][0] for entry in trace["entries"]}
            trace["pg_config"] = {it: {"name": it, "desc": "", "ranks": str([*range(ranks)])} for it in groups}
            path.write_bytes(pickle.dumps(trace, 2))
        sys.argv = ["torchfrtrace", job, "-p", "nccl_trace_rank_"]
        said = io.StringIO()
        logging.getLogger("Flight Recorder").handlers = [logging.StreamHandler(said)]
        try:
            fr_trace.main()
        except KeyError as error:
            said.write(f"KeyError: {error}")
        told.setdefault(job, []).append(said.getvalue())
print(json.dumps(told))
"""


def test_torchs_own_analyser_on_the_same_files(tmp_path):
    """It cannot read gloo's, which tell no groups. With the groups filled in it always names the right rank, often beside
    others: what it says of each group of ranks is not put together."""
    jobs = sorted(job for job, form in cases() if form == "pickle")
    for name, data in dumps().items():
        if name.split("/")[1] == "pickle":
            path = tmp_path / name.replace("/pickle/", "/")
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
    done = subprocess.run([sys.executable, "-c", ANALYSER, *jobs], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    unread = [job for job, (as_it_is, _) in told.items() if as_it_is.endswith("KeyError: ('0', 0)")]
    missed = {job: re.findall(r"missing ranks: (.*)", filled) for job, (_, filled) in told.items()}
    named = {job: {int(rank) for ranks in said for rank in re.findall(r"\d+", ranks)} for job, said in missed.items()}
    right = [job for job in jobs if named[job] == {ANSWERS[job]["bad"]}]
    ours = [job for job in jobs if judged(job, "pickle") == "right"]
    assert unread == jobs and all(ANSWERS[job]["bad"] in ranks for job, ranks in named.items()), missed
    for language in ("en", "zh"):
        text = (ROOT / "docs" / language / "triage.md").read_text(encoding="utf-8")
        section = text[text.index("{#stands}") :].partition("\n## ")[0]
        numbers = [len(jobs), len(right), len(jobs) - len(right), len(ours), len(jobs) - len(ours)]
        assert [
            *map(int, re.findall(r"\d+", section.partition("[`torchfrtrace`]")[2].partition(")")[2].splitlines()[0]))
        ] == numbers
