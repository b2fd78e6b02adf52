"""Triage on all jobs of the truth set: the rank that failed first, its error, and what the page says of both."""

import json
import re
import shlex
from collections import Counter

import pytest

from readyonce.cli import main
from readyonce.triage import page, report
from readyonce.triage.groups import Group
from support.fleet import HELD_OUT, JOBS, LAYOUTS, TRUTH, faults, figures, other_families, told, truth
from support.logs import ENGINE
from support.project import KNOWN, ROOT


@pytest.mark.parametrize("kind", LAYOUTS)
def test_each_job_of_a_layout_is_found(kind):
    assert told(kind).keys() == {name for name in TRUTH if name.startswith(f"{kind}/")}


def test_the_rank_that_failed_first():
    told_wrong = faults()
    assert len(told_wrong) <= 0.02 * len(TRUTH), "\n".join(": ".join(it) for it in told_wrong)


def test_its_error_is_the_known_one_and_no_other():
    assert not other_families()


def test_a_rank_that_hangs_is_told_from_one_that_was_killed():
    signals = ("killed-", "terminated-", "segfault-", "aborted-", "bus-")
    told_of = {
        name: told(kind)[name].first
        for kind in ("torchrun", "single")
        for name in told(kind)
        if name.split("/")[1].startswith(signals) or TRUTH[name].get("hang")
    }
    assert len(told_of) > 50
    for name, first in told_of.items():
        assert first.how == ("hung" if TRUTH[name].get("hang") else "killed"), name
    codes = {name.split("/")[1].split("-")[0]: it.code for name, it in told_of.items() if it.how == "killed"}
    assert codes == {"killed": -9, "terminated": -15, "segfault": -11, "aborted": -6, "bus": -7}


def test_the_set_holds_what_it_is_said_to_hold():
    made = figures()
    assert made["jobs"] >= 200 and {it["ranks"] for it in JOBS.values()} == set(range(2, 9))
    assert 0.25 < made["held-out-jobs"] / 200 < 0.45
    # But for what no run here ended in, an old DeepSpeed, a warning that no job ends with, and what is newer than the set.
    held = {it.get("family") for it in JOBS.values()} - {None}
    assert held <= ENGINE.families.keys()
    newer = {
        "zero-accumulator-none",
        "zero-nothing-reduced",
        "collectives-differ",
        "rank-lists-disagree",
        "gloo-peer-closed",
    }
    assert not any(
        KNOWN.ended_in(name)
        for name in ENGINE.families.keys() - held - {"inputs-without-grad", "inflight-params"} - newer
    )
    assert Counter(it["outcome"] for it in JOBS.values()).keys() == {"failed", "recovered", "fine"}
    assert set(LAYOUTS) == {
        *("torchrun", "logdir", "single", "slurm", "labels", "kubernetes"),
        *("shared", "shuffled", "cut", "half"),
    }


def test_what_names_the_machine_is_in_no_log():
    assert not [name for name, data in truth().items() if re.search(rb"/work/|/root/|/tmp/|/dev/shm|\.pyenv", data)]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_says_what_the_truth_set_shows_and_its_commands_are_there(language):
    page_text = (ROOT / "docs" / language / "triage.md").read_text(encoding="utf-8")
    made, first = figures(), HELD_OUT
    section = page_text[page_text.index("{#right}") :]
    said = [int(it) for it in re.findall(r"(?<![\d.])\d+(?![\d.]*\d| ?%)", "\n".join(section.split("\n\n")[1:3]))]
    ranks = [2, made["ranks"]]
    late = [first["cases"], first["right"], made["held-out-right"]]
    assert sorted(said) == sorted(
        [made["jobs"], *ranks, made["cases"], made["right"], made["families"], made["held-out-jobs"], *late]
    )
    assert first["cases"] == made["held-out-cases"]
    shares = [
        f"{100 * right / of:.1f}" for right, of in ((made["right"], made["cases"]), (first["right"], first["cases"]))
    ]
    assert re.findall(r"([\d.]+) ?%", section) == shares
    commands = re.findall(r"^readyonce (triage .*)$", page_text, re.M)
    assert len(commands) > 5
    for words in commands:
        assert main.parser().parse_args(shlex.split(words)).paths


@pytest.mark.parametrize("layout_", ["torchrun", "single"])
def test_a_launcher_that_was_told_to_stop_is_no_rank_s_failure(layout_):
    answer = told(layout_)[f"{layout_}/cancelled"]
    assert (answer.outcome, answer.first.how, answer.first.rank, answer.first.code) == ("failed", "stopped", None, -15)
    for language, words in (
        ("en", "the launcher was told to stop, by signal 15"),
        ("zh", "启动器 收到信号 15，被要求停止"),
    ):
        assert words in " ".join(report.told_of(ENGINE, answer, language))


def test_who_only_followed():
    answer = told("torchrun")["torchrun/ready-twice-rank-2"].to_json()
    assert answer["first"]["rank"] == 2 and answer["followed"] == [0, 1] and answer["silent"] == []
    assert answer["incidents"] and answer["fix"]["text"]


def test_skewed_clocks_are_set():
    """One rank's clock is an hour ahead, and it failed two seconds before the other: the clocks alone say the opposite."""
    answer = told("logdir")["logdir/skewed-clocks-ahead"]
    assert answer.first.rank == 1 and answer.why == "clock"


def test_the_timeline_has_a_bar_for_each_rank():
    answer = told("torchrun")["torchrun/disk-full-rank-2"]
    drawn = page.timeline(answer, "en")
    assert drawn.count("<rect") == 4 and drawn.count('class="first"') == 1


def test_json_lines_and_text_say_the_same():
    answers = [*told("torchrun").values()]
    rows = [json.loads(line) for line in report.jsonl(answers, []).splitlines()]
    assert [row["job"] for row in rows] == [it.job for it in answers]
    families = Counter(row["error"] for row in rows if row["error"])
    alike = [Group(name, None, ["job"] * count) for name, count in families.items()]
    text = report.text(ENGINE, answers, alike, "en")
    for name, count in families.items():
        assert re.search(rf"^ +{count}  {name}  ", text, re.M)
    assert f"{len(answers)} jobs" in text
