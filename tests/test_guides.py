"""The pages across incidents: which setting works, advice judged, what trains wrong in silence."""

import json
import re
from html.parser import HTMLParser

import pytest
from conftest import KNOWN
from readyonce import render

PREFIX = {"en": "", "zh": "zh/"}
CHIPS = ("match", "error", "diverge", "hang")


class Cells(HTMLParser):
    """Per table: its rows; of each cell the linked outcomes as (incident, anchor, chip)."""

    def __init__(self, text):
        super().__init__()
        self.tables, self._href = [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr" and self.tables:
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append([])
        elif tag == "a":
            self._href = attributes.get("href", "")
        elif (
            tag == "span"
            and self._href
            and (found := re.search(r"incidents/(RO-\d{4})/evidence/#(run-.*)", self._href))
        ):
            kind = re.search(r"ro-chip ro-(\w+)", attributes.get("class", ""))[1]
            self.tables[-1][-1][-1].append((found[1], found[2], kind))

    def handle_endtag(self, tag):
        if tag == "a":
            self._href = None


def run_of(incident, anchor):
    """The run that an anchor belongs to."""
    for environment, evidence in KNOWN.incidents[incident].evidence.items():
        for run in evidence.runs:
            suffix = "" if environment == "current" else f"-in-{environment.replace('.', '-')}"
            if anchor == f"run-{run.variant}{suffix}":
                return run
    raise AssertionError(f"{incident} has no run for #{anchor}")


@pytest.mark.parametrize("language", PREFIX)
def test_each_outcome_of_the_decision_page_is_that_of_the_run_it_links_to(built, known, language):
    (table,) = Cells((built / PREFIX[language] / "decision/index.html").read_text(encoding="utf-8")).tables
    rows = known.decision.rows
    assert len(table) == len(rows) + 1  # a row that no run fits is a problem of `check`
    for row, cells in zip(rows, table[1:]):
        for column, cell in zip(known.decision.columns, cells[1:]):
            shown = {kind for _, _, kind in cell}
            assert all(run_of(incident, anchor).outcome == kind for incident, anchor, kind in cell)
            # Nothing that a run showed may be left out.
            where = known.decision.columns[column].where
            wanted = {it.run.outcome for it in known.fitting(row.where)[0] if known.fits(where, it)}
            assert shown == wanted, (row.text.en, column)


def test_the_decision_page_covers_every_way_to_train(known):
    texts = " ".join(row.text.en for row in known.decision.rows)
    for way in ("DDP", "FSDP1", "FSDP2", "DeepSpeed stage 0", "ZeRO-1", "ZeRO-2", "ZeRO-3"):
        for often in ("each module once", "a module more often"):
            assert f"{way}, {often}" in texts


def test_the_decision_page_leaves_no_run_of_a_strategy_out(known):
    """Each run that trains on several ranks, with checkpointing or none, stands in a row and a column."""
    for it in known.observed:
        if it.facts["strategy"] != "single" and it.facts.get("reference", "right") == "right":
            rows = [row for row in known.decision.rows if known.fits(row.where, it)]
            columns = [column for column in known.decision.columns.values() if known.fits(column.where, it)]
            assert rows and columns, it.name


@pytest.mark.parametrize("language", PREFIX)
def test_advice_page_has_every_claim_once_where_its_verdict_and_advice_put_it(built, known, language):
    text = (built / PREFIX[language] / "advice/index.html").read_text(encoding="utf-8")
    claims = json.loads((built / "api/v1/claims.json").read_text(encoding="utf-8"))
    parts = re.split(r'<h2 id="(fails|depends|no|open)"', text)
    shown = {kind: re.findall(r'id="(RO-\d{4})-claim-([\w-]+)"', body) for kind, body in zip(parts[1::2], parts[2::2])}
    assert sum(map(len, shown.values())) == len(claims)
    for claim in claims:
        incident, name = claim["id"].split("/")
        verdict = claim["verdict"]
        advice = "" if known.incidents[incident].file.claims[name].explanation else claim["advice"]
        if verdict == "open":
            wanted = "open"
        elif verdict == "fails" or (verdict == "depends" and advice == "no"):
            wanted = "fails"  # never
        elif verdict == "depends" or advice == "only if":
            wanted = "depends"  # only if
        else:
            wanted = "no"  # true
        assert (incident, name) in shown[wanted], (claim["id"], wanted)
        assert f'incidents/{incident}/#claim-{name}"' in text


def test_an_explanation_has_a_verdict_and_no_advice(known):
    for incident in known.incidents.values():
        for name, claim in incident.file.claims.items():
            assert not (claim.explanation and claim.advice)
            groups = re.split(r"\{ #claims-([\w-]+) \}", render.claims(known, incident, "en"))[1:]
            shown = [group for group, body in zip(groups[::2], groups[1::2]) if f"{{ #claim-{name} }}" in body]
            assert shown == [(claim.advice or "said").replace(" ", "-")], (incident.id, name)


@pytest.mark.parametrize("language", PREFIX)
def test_silent_runs_are_all_listed_and_no_others(built, known, language):
    page = (built / PREFIX[language] / "already-trained/index.html").read_text(encoding="utf-8")
    (text,) = re.findall(r"<table>(?:(?!</table>).)*?(?:Off by|参数偏差).*?</table>", page, re.DOTALL)
    shown = set(re.findall(r'incidents/(RO-\d{4})/evidence/#(run-[\w-]+)"', text))
    assert shown and all(run_of(*where).outcome == "diverge" for where in shown)
    wrong = sum(
        run.outcome == "diverge"
        for incident in known.incidents.values()
        for evidence in incident.evidence.values()
        for run in evidence.runs
    )
    assert len(shown) == wrong


def test_what_was_not_measured_is_not_called_equal(known):
    lines = iter(render.silent_table(known, "en").splitlines()[2:])
    for incident in known.incidents.values():
        for _, evidence in sorted(incident.evidence.items()):
            for run in evidence.runs:
                if run.outcome == "diverge":
                    spread = next(lines).split("|")[-2].strip()
                    assert (spread == "not measured") == (run.rank_spread is None), (incident.id, run.variant)
                    assert (spread == "equal") == (run.rank_spread == 0), (incident.id, run.variant)


@pytest.mark.parametrize("language", PREFIX)
def test_charts_say_what_was_measured(built, known, language):
    drawn = 0
    for incident in known.incidents.values():
        for matrix in incident.file.matrices:
            if not matrix.chart:
                continue
            page = (built / PREFIX[language] / f"incidents/{incident.id}/evidence/index.html").read_text(
                encoding="utf-8"
            )
            (svg,) = re.findall(rf"<svg[^>]*ro-chart-{incident.id}-{matrix.file[:-3]}-title.*?</svg>", page, re.DOTALL)
            first, second = matrix.axes
            runs = incident.evidence["current"].by_variant
            for quantity in matrix.chart:
                for a in first:
                    base = getattr(runs[f"{a}-{next(iter(second))}"], quantity)
                    for b in second:
                        ratio = getattr(runs[f"{a}-{b}"], quantity) / base
                        assert f">{ratio:.2f} ×<" in svg, (a, b, quantity)
            drawn += 1
    assert drawn
