"""Facts, the queries over them, and what separates outcomes: on small examples, and over all that is stored."""

import json
import re

import pytest

from readyonce.data import conditions, facts
from readyonce.data.facts import Index, fits, members, of_command, separate
from readyonce.data.stored_runs import StoredRuns
from readyonce.lab import recording, verify
from readyonce.pages import decision
from readyonce.rules.facts import compile_runs
from support.project import KNOWN, OPTIONAL, ROOT

RUN = {"strategy": "zero-3", "deepspeed": "0.19.2", "static_graph": True, "batch": 2}


@pytest.mark.parametrize(
    "query, answer",
    [
        ({}, True),
        ({"strategy": "zero-3"}, True),
        ({"strategy": ["ddp", "zero-3"]}, True),
        ({"strategy": "ddp"}, False),
        ({"deepspeed": "< 0.19.3"}, True),
        ({"deepspeed": ">= 0.19.10"}, False),
        ({"deepspeed": ">= 0.19, < 0.20"}, True),
        ({"static_graph": True}, True),
        ({"static_graph": "true"}, True),
        ({"batch": ">= 2"}, True),
        ({"offload": "none"}, None),
        ({"offload": "none", "strategy": "ddp"}, False),
        ([{"strategy": "ddp"}, {"deepspeed": "0.19.2"}], True),
        ([{"strategy": "ddp"}, {"offload": "none"}], None),
    ],
)
def test_queries(query, answer):
    assert fits(query, RUN) is answer
    assert Index([{}, RUN, {}]).fitting(query) == Index([{}, RUN, {}]).fitting([query])
    fit, unclear = Index([{}, RUN, {}]).fitting(query)
    assert (1 in members(fit), 1 in members(unclear)) == (answer is True, answer is None)


def test_the_index_says_of_all_runs_what_each_of_them_says():
    claims = [claim for incident in KNOWN.incidents.values() for claim in incident.meta.claims.values()]
    queries = [claim.scope for claim in claims if claim.scope is not None]
    queries += [case.where for claim in claims if isinstance(claim.predicts, list) for case in claim.predicts]
    queries += [KNOWN.decision.rows[row] for row in KNOWN.decision.rows] + [[], {}, [{}]]
    runs = [it.filled for it in KNOWN.observed]
    index = Index(runs, OPTIONAL)
    assert len(queries) > 150 and OPTIONAL
    for query in queries:
        answers = [fits(query, facts, OPTIONAL) for facts in runs]
        fit, unclear = index.fitting(query)
        assert [*members(fit)] == [number for number, it in enumerate(answers) if it], query
        assert [*members(unclear)] == [number for number, it in enumerate(answers) if it is None], query


def test_a_usual_value_is_meant_unless_a_query_asks():
    meant = KNOWN.fitting({})[0]
    usual = {name: fact.usually for name, fact in KNOWN.vocabulary.items() if fact.usually}
    assert usual and all(it.filled[name] == value for it in meant for name, value in usual.items())
    others = [it for it in KNOWN.observed if it not in meant]
    assert others and len(meant) + len(others) == len(KNOWN.observed)
    for it in others:
        asked = {name: it.filled[name] for name, value in usual.items() if it.filled[name] != value}
        assert asked and it in KNOWN.fitting(asked)[0]


def test_what_a_run_does_not_tell_is_no_default_but_where_it_is_optional():
    assert fits({"offload": "none"}, RUN) is None
    assert fits({"offload": "none"}, RUN, {"offload"}) is False


def test_outcomes_are_separated_by_the_fact_that_decides():
    runs = [({"a": a, "b": b, "v": v}, "x" if v >= "0.9" else "y") for a in "12" for b in "12" for v in ("0.8", "0.9")]
    leaves = separate(runs, ["a", "b", "v"])
    assert [(leaf.path, dict(leaf.labels)) for leaf in leaves] == [
        ((("v", ">= 0.9", True),), {"x": 4}),
        ((("v", ">= 0.9", False),), {"y": 4}),
    ]


def test_a_mixture_that_nothing_separates_stays_one():
    (leaf,) = separate([({"a": 1}, "x"), ({"a": 1}, "y")], ["a"])
    assert not leaf.pure


def test_a_command_tells_its_facts_by_the_first_rule_that_fits():
    rules = [
        {"text": "--zero 3", "facts": {"strategy": "zero-3"}},
        {"facts": {"strategy": "ddp"}},
        {"where": {"strategy": "ddp", "tool": "< 2"}, "facts": {"checkpointing": "reentrant"}},
        {"facts": {"checkpointing": "non-reentrant"}},
    ]
    assert of_command("run \\\n    --zero 3\n", rules, {"tool": "1.0"})["strategy"] == "zero-3"
    assert of_command("# --zero 3\nrun", rules, {"tool": "1.0"}) == {"strategy": "ddp", "checkpointing": "reentrant"}
    assert of_command("run", rules, {"tool": "2.1"})["checkpointing"] == "non-reentrant"


# ------------------------------------------------------------------------------ what is stored


def test_every_run_tells_what_most_queries_ask_for():
    for observed in KNOWN.observed:
        missing = {"strategy", "checkpointing", "runs", "skips", "second_use", "tuning"} - observed.facts.keys()
        assert not missing, f"{observed.name} does not tell {missing}"
        if observed.facts["strategy"] == "ddp":
            assert {"find_unused", "static_graph"} <= observed.facts.keys(), observed.name


def test_equal_facts_ended_alike():
    alike = {}
    for observed in KNOWN.observed:
        other = alike.setdefault(json.dumps(observed.facts, sort_keys=True), observed)
        assert other.label == observed.label, f"{other.name} and {observed.name}"


def test_each_value_of_the_vocabulary_is_told_by_a_run():
    told = {(name, str(value).lower()) for it in KNOWN.observed for name, value in it.facts.items()}
    for name, fact in KNOWN.vocabulary.items():
        for value in fact.values:
            assert (name, value) in told, f"no run is `{name}: {value}`: take it out of snippets/facts.yml"


def test_a_cell_shows_every_run_that_fits_it():
    usual = {name: fact.usually for name, fact in KNOWN.vocabulary.items() if fact.usually}
    cells = decision.cells(KNOWN)
    for row, where in KNOWN.decision.rows.items():
        for name, column in KNOWN.decision.columns.items():
            wanted = [
                it for it in KNOWN.observed if fits(where, it.filled, OPTIONAL) and fits(column.where, it.filled, OPTIONAL)
                and all(it.facts.get(name, value) == value for name, value in usual.items() if name not in where)
            ]  # fmt: skip
            runs = cells.get(row, {}).get(name, [])
            shown = decision.outcomes(KNOWN, runs, "en")
            counts = [int(count) for count in re.findall(r"\) (\d+)", shown)]
            assert sum(counts) == len(wanted), (row, name)
            for outcome in {it.run.outcome for it in wanted}:
                assert f"ro-{outcome}" in shown


def test_conditions_read_as_words():
    query = {"strategy": ["zero-2", "zero-3"], "deepspeed": "< 0.19.3"}
    assert conditions.in_words(KNOWN, query, "en") == "ZeRO-2 or ZeRO-3, DeepSpeed < 0.19.3"
    assert conditions.in_words(KNOWN, query, "zh") == "ZeRO-2 或 ZeRO-3，DeepSpeed < 0.19.3"


# ------------------------------------------------------------------------------ nobody can pick


def test_facts_tells_what_separates(monkeypatch, capsys):
    from readyonce.cli import main

    monkeypatch.chdir(ROOT)
    assert main.main(["facts", "strategy=zero-3", "checkpointing=non-reentrant", "frozen=base"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^match \d+   where deepspeed >= 0\.19\.3$", said, re.MULTILINE)
    with pytest.raises(SystemExit):
        main.main(["facts", "no-such-fact=1"])
    assert "is no FACT=VALUE" in capsys.readouterr().err


def test_the_compiled_runs_answer_as_the_catalogue_does():
    compiled = StoredRuns(json.dumps(compile_runs(KNOWN)))
    claims = [claim for incident in KNOWN.incidents.values() for claim in incident.meta.claims.values()]
    scopes = [claim.scope for claim in claims if claim.scope is not None]
    for query in ({}, {"strategy": "zero-3"}, {"device": "cuda"}, *scopes):
        found, undecided = compiled.fitting(query)
        fit, unclear = KNOWN.fitting(query)
        assert ([compiled.names[number] for number in found], undecided) == ([it.name for it in fit], unclear)
    parts = [(leaf, [it.name for it in runs]) for leaf, runs in KNOWN.parted(fit)]
    assert compiled.separate(found) == parts


def test_versions_compare_by_number():
    assert facts.version("0.19.10+cpu") > facts.version("0.19.9")


@pytest.mark.parametrize("incident", KNOWN.incidents)
def test_evidence_is_complete(known, incident):
    for environment, evidence in known.incidents[incident].evidence.items():
        variants = [known.incidents[incident].variants[run.variant] for run in evidence.runs]
        of_kinds = {variant.name for variant in verify.of_each_kind(known.incidents[incident], variants, environment)}
        for run in evidence.runs:
            is_command = known.incidents[incident].variants[run.variant].is_command
            assert run.alone or not (is_command or run.variant in of_kinds), (
                f"{run.variant} in {environment}: never alone"
            )
            if not known.incidents[incident].variants[run.variant].is_command:
                assert run.repeats >= recording.REPEATS[run.outcome], (
                    f"{run.variant} in {environment}: {run.repeats} repeats"
                )
