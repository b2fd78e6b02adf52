"""Writes what is generated: the includes that pages show, the JSON, front matter and navigation.

Includes go to `build/includes/<language>/`; a page names the same include in both languages.
Front matter, navigation and the lists of tags are committed, since the site's builder reads them; `write` mends
them and `write(only_check=True)` says which are out of date.
"""

from __future__ import annotations

import datetime
import itertools
import json
import os
import posixpath
import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from readyonce import api, articles, chart, counts, decision, feed, frameworks, guard, history, keys, links, news, rules
from readyonce.catalog import Catalog, Incident, Observed, Variant, imports
from readyonce.conditions import in_words, part_in_words, parts
from readyonce.lint import page as lint
from readyonce.project import LANGUAGES, Language
from readyonce.schema import BASELINE, SILENT, Affected, Environment, FamilyFile, Matrix, Run, Source, Text
from readyonce.terminal import printable
from readyonce.verdicts import Judged, Judgement, judge
from readyonce.words import (
    WORDS,
    chip,
    cite,
    cite_all,
    code,
    family_link,
    in_environment,
    number,
    percent,
    run_address,
    run_id,
    say,
    table,
    table_row,
)

Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
STALE_AFTER = 180  # days until a page says that its evidence is old
IN_NAVIGATION = 100  # incidents; with more, the index page lists them by error, and other pages lead there
IN_LINE = 145  # characters of a message's line, where its first two are shown in short
SHOWN = 12  # runs below a claim; of more, those that came out otherwise
IN_CELL = 20  # incidents in a cell of a table; the others are counted
LEXERS = {"py": "python", "sh": "bash", "json": "json"}  # of the files that an incident shows in full
READMES: dict[str, Language] = {"README.md": "en", "README.zh-CN.md": "zh"}
LATELY = 20  # rows on the page of what changed

# ------------------------------------------------------------------------------ all of it


def places(root: Path, language: Language) -> list[Path]:
    """Where a page's includes are looked up, in this order; mkdocs.yml names the same folders."""
    return [root / "snippets", root / "build" / "includes" / language, root / "docs" / "theme" / "figures" / language]


def write(catalog: Catalog, only_check: bool = False) -> list[str]:
    """Write everything; returns the committed files that were out of date."""
    stale = []
    for path, text in committed(catalog).items():
        if not path.is_file() or catalog.text(path) != text:
            stale.append(str(path.relative_to(catalog.root)))
            if not only_check:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
    if not only_check:
        build = catalog.root / "build"
        fresh = {
            f"includes/{lang}/{name}": text for lang in LANGUAGES for name, text in includes(catalog, lang).items()
        }
        fresh |= {f"api/v1/{name}": text for name, text in api.files(catalog).items()}
        fresh |= {f"schema/{name}": text for name, text in keys.schemas().items()}
        fresh |= {f"beside/{name}": text for name, text in feed.files(catalog).items()}
        fresh |= {f"guard/{name}": text for name, text in guard.files(catalog).items()}
        compiled = rules.compile_rules(catalog, os.environ.get("SITE_URL"), os.environ.get("REPO_URL"))
        compiled["launches"] = lint.starts(catalog)
        fresh |= {f"javascripts/{lang}/rules.js": rules.to_script(compiled, lang) for lang in LANGUAGES}
        launches = lint.compiled(catalog)
        fresh |= {f"javascripts/{lang}/lint-rules.js": lint.to_script(launches, lang) for lang in LANGUAGES}
        _replace(build, ("includes", "api", "schema", "beside", "guard", "javascripts"), fresh)
    return stale


def _replace(build: Path, folders: Iterable[str], fresh: dict[str, str]) -> None:
    # Only what differs is written, so that a watcher sees only what changed.
    wanted = {f"{build}{os.sep}{os.path.normpath(name)}": text.encode() for name, text in fresh.items()}
    for path, data in wanted.items():
        try:
            with open(path, "rb", buffering=0) as file:
                same = file.read() == data
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            same = False
        if not same:
            with open(path, "wb") as file:
                file.write(data)
    for folder in folders:
        for place, _, names in os.walk(build / folder):
            for name in names:
                if os.path.join(place, name) not in wanted:
                    os.unlink(os.path.join(place, name))


def includes(catalog: Catalog, language: Language) -> dict[str, str]:
    """Every generated include of one language: name → Markdown or plain text."""
    many = len(catalog.incidents) > IN_NAVIGATION
    silent = [it for it in catalog.incidents.values() if it.silent]
    with_error = [it for it in catalog.incidents.values() if not it.silent]
    files = {
        # The tables stand on pages at two depths, so their links are made for each.
        "cards.md": cards(catalog, language, many),
        "incidents-here.md": incidents_by_error(catalog, language)
        if many
        else incident_table(catalog, language, with_error),
        "incidents-silent.md": incident_table(catalog, language, silent),
        "errors.md": errors(catalog, language),
        "advice.md": advice(catalog, with_error, language),
        "advice-silent.md": advice(catalog, silent, language),
        "silent.md": _sections(count=silent_count(catalog, language), runs=silent_table(catalog, language)),
        "look-alikes.md": look_alikes(catalog, language),
        "changes.md": changes(catalog, language),
        "keys.md": keys.manual(language),
        "diagnose-links.md": diagnose_links(catalog),
        "diagnose-box.md": (catalog.root / "snippets" / "diagnose" / f"{language}.md").read_text(encoding="utf-8"),
        **counts.includes(catalog, language),
        **decision.includes(catalog, language),
    }
    files |= frameworks.includes(catalog, language)
    files |= guard.includes(catalog, language)
    files |= lint.includes(catalog, language)
    for family in listed(catalog, "own"):
        files[f"errors/{family.family}.md"] = family_parts(catalog, family, language)
    for family in listed(catalog, "look-alikes"):
        files[f"errors/{family.source}"] = look_alike(catalog, family, language)
    for name, of_runs in catalog.tables.items():
        files[f"tables/{name}.md"] = runs_table(catalog, catalog.fitting(of_runs.where)[0], language, "../incidents/")
    for incident in catalog.incidents.values():
        files |= incident_includes(catalog, incident, language)
    return files


def incident_includes(catalog: Catalog, incident: Incident, language: Language) -> dict[str, str]:
    files = {
        "lead.md": lead(catalog, incident, language),
        "header.md": header(catalog, incident, language),
        "claims.md": claims(catalog, incident, language),
        "affected.md": affected(incident, language),
        "strip.md": strip(catalog, incident, language),
        "evidence.md": evidence_list(catalog, incident, language),
        "numbers.md": numbers(incident, language),
    }
    for name in dict.fromkeys(entry.file for entry in incident.file.variants.values()):
        of_file = command_table if name.endswith(".sh") else variant_table
        files[f"{name}.md"] = of_file(catalog, incident, name, language)
    for matrix in incident.file.matrices:
        for environment in incident.file.files.get(matrix.file, []):
            name = f"{matrix.file}@{environment}.md"  # of all matrices of a file, one below the other
            files[name] = "\n".join(
                part for part in (files.get(name), matrix_table(incident, matrix, environment, language)) if part
            )
            if matrix.chart and environment in incident.evidence:
                files[f"{matrix.file}@{environment}.svg"] = chart.bars(incident, matrix, environment, language)
    for environment, evidence in incident.evidence.items():
        suffix = "" if environment == "current" else f"@{environment}"
        for run in evidence.runs:
            if run.message:
                files[f"messages/{run.variant}{suffix}.txt"] = run.message + "\n"
                files[f"messages/{run.variant}{suffix}.short.txt"] = _shortened(run.message)
            elif run.outcome in SILENT:
                files[f"results/{run.variant}{suffix}.txt"] = _result(run)
    for variant, environment in _drafted(incident):
        suffix = "" if environment == "current" else f"@{environment}"
        for name in (
            f"messages/{variant}{suffix}.txt",
            f"messages/{variant}{suffix}.short.txt",
            f"results/{variant}{suffix}.txt",
        ):
            files[name] = f"{say('not-run-yet', language)}\n"
    return {f"{incident.id}/{name}": text for name, text in files.items()}


def _drafted(incident: Incident) -> Iterator[tuple[str, str]]:
    """What is declared and was not run yet, with its environment: a draft can be looked at."""
    for variant in incident.variants.values():
        for environment in variant.declared:
            if environment not in incident.not_run and incident.run(variant.name, environment) is None:
                yield variant.name, environment


def _result(run: Run) -> str:
    """What a repro prints last, without the facts: all that one sees of a run that trains wrong."""
    told = run.model_dump(include={"variant", "outcome", "gradient_error", "rank_spread"}, exclude_none=True)
    return f"RESULT {json.dumps(told)}\n"


def _shortened(message: str) -> str:
    """What identifies an error: the beginning of its first two lines."""
    lines = message.splitlines()
    first = [textwrap.shorten(line, IN_LINE, placeholder=" …") for line in lines[:2]]
    return "\n".join(first) + " …" * (len(lines) > 2) + "\n"


# ------------------------------------------------------------------------------ an incident


def lead(catalog: Catalog, incident: Incident, language: Language) -> str:
    """The id and the error, for the eye and for the search."""
    seen = " · ".join(_you_see(catalog, incident, language))
    return f"{chip(incident.id, 'id')} {seen}\n"


def _you_see(catalog: Catalog, incident: Incident, language: Language) -> list[str]:
    """Its errors; where there is none, how the reported run ends."""
    if not incident.silent:
        return [family_link(catalog, name, language, "../errors/") for name in incident.file.errors]
    outcome = incident.file.variants[BASELINE].outcome if BASELINE in incident.file.variants else "diverge"
    told = WORDS["no-error"][language].format(chip(say(outcome, language), outcome))
    return [f"[{told}](../already-trained.md)"]


def header(catalog: Catalog, incident: Incident, language: Language) -> str:
    """The fix, ready to be copied; which versions it is for, and where it was run."""
    file = incident.file
    lines = []
    if file.status == "withdrawn":
        lines += [say("withdrawn", language), ""]
    lines += [
        file.fix.text[language],
        "",
        *_fix_block(catalog, incident),
        "",
        WORDS["label"][language].format(say("affected", language), _affected_packages(incident, language)),
        "",
    ]
    if "current" in incident.evidence:
        lines += [verified(catalog, incident, incident.evidence["current"].environment, language), ""]
        if _age(incident) > STALE_AFTER:
            lines += [f"**{say('old', language)}**", ""]
    source = Source.model_validate({"link": file.reported.source, "says": file.title})
    lines += [
        WORDS["reported"][language].format(
            hardware=file.reported.hardware[language], link=source.link, url=source.url, date=file.reported.date
        ),
        "",
        WORDS["lab-book-link"][language].format(f"{file.id}/evidence.md"),
    ]
    return "\n".join(['<div class="ro-header" markdown>', "", *lines, "", "</div>"]) + "\n"


def _fix_block(catalog: Catalog, incident: Incident) -> list[str]:
    """The fix, ready to be copied: an option, or a section of a file that is run."""
    fix = incident.file.fix
    if fix.option:
        return ["```bash", fix.option, "```"]
    assert fix.code  # one of the two, says the model
    file, section = fix.code.split(":")
    source = incident.folder / file
    try:
        shown = articles.section(catalog.text(source), section)
    except (OSError, articles.MissingSection):
        shown = ""  # `readyonce check` says so; here it must not hide the other problems
    return ["```python", textwrap.dedent(shown).rstrip(), "```"]


def verified(
    catalog: Catalog, incident: Incident, environment: Environment, language: Language, up: str = "../"
) -> str:
    """Date, versions and device. Of the versions, those that the repros run there import, if any are."""
    files = [name for name, where in incident.file.files.items() if environment.name in where]
    versions = say("between", language).join(
        f"{name} {environment.versions[name]}" for name in _imported(catalog, incident, files, environment)
    )
    figures = environment.model_dump(exclude={"versions"}) | {"device": environment.device.upper()}
    told = WORDS["verified"][language].format(versions=versions, **figures)
    if environment.gloo_threads == 1:
        told += say("next", language) + WORDS["one-gloo-thread"][language].format(f"{up}concepts/zero3-early-gather.md")
    return told


def _imported(catalog: Catalog, incident: Incident, files: list[str], environment: Environment) -> list[str]:
    """The packages that these repros import; all that are recorded, where none is imported: a framework's command."""
    imported = frozenset().union(*(imports(catalog.text(incident.folder / name)) for name in files))
    return [name for name in environment.versions if name in imported] or list(environment.versions)


def _age(incident: Incident) -> int:
    """Days between the evidence and the build (SOURCE_DATE_EPOCH, where set)."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    today = datetime.datetime.fromtimestamp(int(epoch), datetime.UTC).date() if epoch else datetime.date.today()
    return (today - datetime.date.fromisoformat(incident.evidence["current"].environment.date)).days


def variant_table(catalog: Catalog, incident: Incident, file: str, language: Language) -> str:
    head = [say(key, language) for key in ("variant", "what", "outcome")]
    listed = [v for v in incident.variants.values() if v.file == file and v.name in incident.file.variants]
    return table([head, *(_row(catalog, incident, variant, language) for variant in listed)])


def _row(catalog: Catalog, incident: Incident, variant: Variant, language: Language) -> list[str]:
    """Name, setting and outcome; where it ran in other environments too, a line for each."""
    colon, lines = say("colon", language), []
    for environment in variant.declared:
        told = sentence(catalog, variant, incident.run(variant.name, environment), language)
        lines.append(told if environment == "current" else f"`{environment}`{colon}{told}")
    lines += [f"`{name}`{colon}{_unusable(variant, name, language)}" for name in variant.unusable]
    anchors = "".join(f'<a id="{run_id(variant.name, environment)}"></a>' for environment in variant.declared)
    return [f"{anchors}`{variant.name}`", variant.text[language], "<br>".join(lines)]


def sentence(catalog: Catalog, variant: Variant, run: Run | None, language: Language) -> str:
    """What a run showed, in words, for a table."""
    if run is None:
        return say("not-run", language)
    word = chip(say(run.outcome, language), run.outcome)
    if run.outcome == "error":
        return f"{word} {family_link(catalog, run.error, language, '../../errors/')}"
    if run.outcome in ("hang", "still"):
        return f"{word} {say(f'{run.outcome}-sentence', language)}"
    key = "match-command-sentence" if variant.is_command and run.outcome == "match" else f"{run.outcome}-sentence"
    return f"{word} " + WORDS[key][language].format(number(run))


def command_table(catalog: Catalog, incident: Incident, file: str, language: Language) -> str:
    """A row for each variant of a framework's command, a column for each environment."""
    environments = [name for name in incident.file.files[file] if _ran(incident, name)]
    head = [say("what", language), *(f"`{name}`" for name in environments)]
    rows = [head]
    for variant in incident.variants.values():
        if variant.file == file:
            cells = (_command_cell(catalog, incident, variant, name, language) for name in environments)
            rows.append([variant.text[language], *cells])
    return table(rows, "ro-matrix")


def _ran(incident: Incident, environment: str) -> bool:
    return environment in incident.evidence and environment not in incident.not_run


def _unusable(variant: Variant, environment: str, language: Language) -> str:
    why = variant.unusable[environment][language]
    return say("unusable", language) + say("colon", language) + why


def _command_cell(catalog: Catalog, incident: Incident, variant: Variant, environment: str, language: Language) -> str:
    if environment in variant.unusable:
        return _unusable(variant, environment, language)
    run = incident.run(variant.name, environment)
    cell = _cell(run, environment, language)
    if run and run.error and run.error not in incident.file.errors:
        cell += "<br>" + family_link(catalog, run.error, language, "../../errors/")
    return cell


def strip(catalog: Catalog, incident: Incident, language: Language) -> str:
    """Which versions fail and which recover: as reported and with the fix, in each environment; what was not run."""
    rows = [[say(key, language) for key in ("versions", "ran", "before", "after")]]
    for environment in incident.environments:
        for file, before, after in _pairs(incident):
            if environment not in incident.file.files[file]:
                continue
            versions = _main_versions(catalog, incident, file, environment, language)
            if _ran(incident, environment):
                cells = (_strip_cell(incident, name, environment, language) for name in (before, after))
                rows.append([versions, f"`{file}`", *cells])
            elif (recorded := incident.evidence.get(environment)) and recorded.not_run:
                rows.append([versions, f"`{file}`", say("not-run", language), code(_reason(recorded.not_run))])
    hardware = incident.file.reported.hardware[language]
    rows.append([hardware, "", *[say("not-run", language)] * 2])
    return table(rows, "ro-matrix")


def _reason(not_run: str) -> str:
    return not_run.strip().splitlines()[-1]


def _pairs(incident: Incident) -> Iterator[tuple[str, str, str]]:
    """(file, variant as reported, variant with the fix) for the repro and for each framework's command."""
    fixed = incident.file.fix.variant
    if incident.variants[fixed].file == incident.variants[BASELINE].file:
        yield incident.variants[fixed].file, BASELINE, fixed
    for file in incident.file.files:
        commands = [variant for variant in incident.variants.values() if variant.file == file and variant.is_command]
        before = [variant.name for variant in commands if variant.name.endswith(f"-{BASELINE}")]
        after = [variant.name for variant in commands if not variant.lines]
        if before and after:
            yield file, before[0], after[0]


def _main_versions(catalog: Catalog, incident: Incident, file: str, environment: str, language: Language) -> str:
    if environment not in incident.evidence:
        return f"`{environment}`"
    recorded = incident.evidence[environment].environment
    named = [
        name for name in _imported(catalog, incident, [file], recorded) if name not in ("peft", "trl", "accelerate")
    ]
    return say("between", language).join(f"{name} {recorded.versions[name]}" for name in named)


def _strip_cell(incident: Incident, variant: str, environment: str, language: Language) -> str:
    if environment in incident.variants[variant].unusable:
        return _unusable(incident.variants[variant], environment, language)
    run = incident.run(variant, environment)
    if run is None:
        return say("not-run", language)
    word = chip(say(run.outcome, language), run.outcome)
    cell = f"[{word}](#{run_id(run.variant, environment)})"
    return f"{cell} {number(run)}" if run.outcome == "diverge" else cell


def matrix_table(incident: Incident, matrix: Matrix, environment: str, language: Language) -> str:
    """Columns: the last axis, or the last two where that makes no more than four; rows: the others."""
    split = len(matrix.axes) - 1
    if split > 1 and len(matrix.axes[-1]) * len(matrix.axes[-2]) <= 4:
        split -= 1
    left, top = matrix.axes[:split], matrix.axes[split:]
    if turn := turned(matrix):
        left, top = top, left
    columns, comma = list(itertools.product(*top)), say("comma", language)
    rows = [[say("setting", language), *(comma.join(_words(top, words, language)) for words in columns)]]
    for row in itertools.product(*left):
        names = ["-".join((*words, *row) if turn else (*row, *words)) for words in columns]
        if any(environment in incident.variants[name].declared for name in names):
            cells = (_cell(incident.run(name, environment), environment, language) for name in names)
            rows.append([comma.join(_words(left, row, language)), *cells])
    return table(rows, "ro-matrix") if len(rows) > 1 else ""


def turned(matrix: Matrix) -> bool:
    """Of two axes the longer makes the rows where it has more than six words: more columns do not fit a page."""
    return len(matrix.axes) == 2 and len(matrix.axes[1]) > max(6, len(matrix.axes[0]))


def _words(axes: list[dict[str, Text]], words: Iterable[str], language: Language) -> Iterator[str]:
    return (axis[word][language] for axis, word in zip(axes, words))


def _cell(run: Run | None, environment: str, language: Language) -> str:
    if run is None:
        return say("not-run", language)
    word = chip(say(run.outcome, language), run.outcome, run_id(run.variant, environment))
    return f"{word} {number(run)}" if run.outcome == "diverge" else word


def claims(catalog: Catalog, incident: Incident, language: Language) -> str:
    """All claims of an incident: what to do first, then what has conditions, what not to do, and what is only said."""
    groups: dict[str, list[str]] = {"yes": [], "only if": [], "no": [], "said": []}
    for name, it in incident.file.claims.items():
        judgement = judge(catalog, incident, name)
        groups[it.advice or "said"].append("\n".join(claim(catalog, incident, judgement, f"claim-{name}", language)))
    lines = []
    for kind, rows in groups.items():
        if rows:
            lines += [f"### {say(f'claims-{kind}', language)} {{ #claims-{kind.replace(' ', '-')} }}", "", *rows]
    return "\n".join(lines)


def claim(catalog: Catalog, incident: Incident, judgement: Judgement, id: str, language: Language) -> list[str]:
    """A claim as a row that opens: its words and verdict, then why, and its proof."""
    it = judgement.claim
    lines = [
        '<details class="ro-claim" markdown>',
        '<summary markdown="block">',
        "",
        f"#### {it.text[language]} {{ #{id} }}",
        "",
        _told(judgement, language),
        "",
        "</summary>",
        "",
    ]
    when = it.when.text if it.when else None
    body = [part[language] for part in (when, it.why, it.note) if part]
    lines += [say("next", language).join(body), "", *proof(catalog, incident, judgement, language)]
    if it.sources:
        lines += [
            say("sources", language) + say("colon", language) + cite_all(it.sources, language),
            "{ .ro-small }",
            "",
        ]
    return [*lines, "</details>", ""]


def _told(judgement: Judgement, language: Language, proof: str | None = None) -> str:
    """The verdict and the runs that fit; with `proof`, they lead there."""
    count = WORDS["count"][language].format(len(judgement.right), len(judgement.runs)) if judgement.runs else ""
    if proof:
        count = f"[{count or say('its-proof', language)}]({proof})"
    return f"{chip(say(judgement.verdict, language), judgement.verdict)} {count}".rstrip()


def proof(catalog: Catalog, incident: Incident, judgement: Judgement, language: Language) -> Iterator[str]:
    """The runs behind a verdict: what they have in common, what tells them apart, and those that differ."""
    for measured in judgement.claim.measured:
        runs = [incident.run(name, "current") for name in (measured.variant, measured.against)]
        one, other = (getattr(run, measured.quantity, None) for run in runs)
        if one and other:
            device = incident.evidence["current"].environment.device.upper()
            ratio = f"{one / other:.2g}"
            yield WORDS[f"ratio-{measured.quantity}"][language].format(
                device=device, variant=measured.variant, against=measured.against, ratio=ratio
            )
            yield ""
    if judgement.runs:
        # Runs would outweigh the claims' own words in the search.
        folded = _judged_on(catalog, incident, judgement, language)
        yield from ("<div markdown data-search-exclude>", "", *folded, "", "</div>", "")


def _judged_on(catalog: Catalog, incident: Incident, judgement: Judgement, language: Language) -> Iterator[str]:
    judged = judgement.runs
    scope = in_words(catalog, judgement.claim.scope or {}, language) or say("every-run", language)
    count = WORDS["deciding-runs" if judgement.claim.explanation else "runs-of"][language].format(len(judged))
    yield WORDS["proof"][language].format(len(judgement.right), len(judged))
    yield WORDS["judged-on"][language].format(runs=count, scope=scope)
    if judgement.undecided:
        yield WORDS["untold"][language].format(judgement.undecided)
    yield ""
    if judgement.verdict == "depends":
        yield runs_table(catalog, [it.observed for it in judged], language)
        return
    shown = judged if len(judged) <= SHOWN else [it for it in judged if not it.came_true][:SHOWN]
    if shown:
        head = [say(key, language) for key in ("variant", "environment", "predicted", "seen")]
        yield table([head, *(_judged_row(it, language, incident) for it in shown)])
    if shown and len(shown) < len(judged):
        others = [it for it in judged if it not in shown]
        yield WORDS["others"][language].format(len(others), sum(it.came_true for it in others))
        yield ""


def runs_table(catalog: Catalog, runs: list[Observed], language: Language, to: str = "") -> str:
    """How runs ended, and what tells the outcomes apart; `to` leads to the incidents' folder."""
    rows = [[say(key, language) for key in ("seen", "apart", "runs-count")]]
    for part in parts(catalog, runs):
        told = part_in_words(catalog, part, language)
        rows.append([_label(catalog, part.label, language), told, f"[{len(part.runs)}]({to}{_address(part.runs[0])})"])
    return table(rows)


def _address(observed: Observed) -> str:
    """Of a run, as seen from an article."""
    return run_address(observed.incident.id, observed.run.variant, observed.environment)


def _label(catalog: Catalog, label: str, language: Language) -> str:
    """An outcome in words; of an error, which."""
    outcome, _, family = label.partition(":")
    word = chip(say(outcome, language), outcome)
    return f"{word} {catalog.families[family].title[language]}" if family in catalog.families else word


def _judged_row(judged: Judged, language: Language, incident: Incident) -> list[str]:
    it = judged.observed
    name = it.run.variant if it.incident is incident else f"{it.incident.id} {it.run.variant}"
    return [
        f"[`{name}`]({_address(it)})",
        it.environment,
        say(judged.predicted.partition(":")[0], language) if judged.predicted else "–",
        chip(say(it.run.outcome, language), it.run.outcome),
    ]


def _affected_packages(incident: Incident, language: Language) -> str:
    return say("semicolon", language).join(f"{a.package} {_range(a, language)}" for a in incident.file.affected)


def affected(incident: Incident, language: Language) -> str:
    """The versions of each package, what holds there, and how that is known."""
    lines = []
    for entry in incident.file.affected:
        fixed = f"{say('fixed', language)} {entry.fixed}" if entry.fixed else say("not-fixed", language)
        basis = say(entry.basis, language)
        if entry.sources:
            basis += say("colon", language) + cite_all(entry.sources, language)
        lines += [f"**`{entry.package}`** {_range(entry, language)} · {fixed}", ""]
        lines[-1:] = [f":   {entry.text[language]}", "", f"    {basis}", "    { .ro-small }", ""]
    return "\n".join(lines) + "\n"


def _range(entry: Affected, language: Language) -> str:
    bounds = [f"{sign} {at}" for sign, at in (("≥", entry.introduced), ("<", entry.fixed)) if at]
    return say("bounds", language).join(bounds) or say("no-bounds", language)


def evidence_list(catalog: Catalog, incident: Incident, language: Language) -> str:
    lines = []
    for name, evidence in sorted(incident.evidence.items()):
        lines.append(f"`snippets/{incident.id}/evidence/{name}.json`")
        if evidence.not_run:
            lines += [f":   {say('not-run', language)}{say('colon', language)}{code(_reason(evidence.not_run))}", ""]
            continue
        lines.append(f":   {verified(catalog, incident, evidence.environment, language, '../../')}")
        lines += [f"    {_ended(run, language)}" for run in evidence.unusable]
        commands = [run for run in evidence.runs if incident.variants[run.variant].is_command]
        if repros := [run for run in evidence.runs if run not in commands]:
            count = sum(run.repeats + run.alone for run in repros)
            lines.append("    " + WORDS["summary"][language].format(variants=len(repros), runs=count))
        if commands:
            lines.append("    " + WORDS["launched"][language].format(len(commands)))
        if not evidence.runs:
            options = say("between", language).join(f"`{command}`" for command in evidence.options)
            lines.append("    " + WORDS["recorded"][language].format(options))
        lines.append("")
    for name, evidence in sorted(incident.one_device.items()):
        same = [
            run for run in evidence.runs if (cpu := incident.run(run.variant, "current")) and cpu.outcome == run.outcome
        ]
        lines += [
            f"`snippets/{incident.id}/evidence/{name}.json`",
            f":   {verified(catalog, incident, evidence.environment, language, '../../')}",
            "    " + WORDS["one-device"][language].format(same=len(same), all=len(evidence.runs)),
            "",
        ]
    lines += [f"- {cite(source, language)}" for source in sorted(incident.sources, key=lambda it: it.link)]
    return "\n".join(lines) + "\n"


def _ended(run: Run, language: Language) -> str:
    """How an unusable run ended: its message's last line, or how far off it was."""
    ending = (
        code(run.message.strip().splitlines()[-1])
        if run.message
        else f"{say(run.outcome, language)} {number(run) if run.gradient_error else ''}".strip()
    )
    return f"`{run.variant}`{say('colon', language)}{say('unusable', language)}{say('colon', language)}{ending}"


def _wrong(runs: Iterable[Run]) -> list[float]:
    """How far off those are that finished on wrong gradients, the least first."""
    return sorted(run.gradient_error for run in runs if run.outcome == "diverge" and run.gradient_error is not None)


def numbers(incident: Incident, language: Language) -> str:
    """Every figure prose may need, a section each: `numbers.md:VARIANT`, `numbers.md:diverge` ..."""
    figures = {}
    for environment, evidence in incident.evidence.items():
        suffix = in_environment(environment)
        for run in evidence.runs:
            if run.gradient_error is not None:
                figures[f"{run.variant}{suffix}"] = number(run)
            if run.rank_spread:
                figures[f"{run.variant}-spread{suffix}"] = percent(run.rank_spread)
        wrong = _wrong(evidence.runs)
        if wrong:
            figures[f"diverge-least{suffix}"], figures[f"diverge-most{suffix}"] = percent(wrong[0]), percent(wrong[-1])
        figures[f"variants{suffix}"] = str(len(evidence.runs))
        figures[f"runs{suffix}"] = str(sum(run.repeats + run.alone for run in evidence.runs))
    for variant, environment in _drafted(incident):
        for figure in (variant, f"{variant}-spread"):
            figures[f"{figure}{in_environment(environment)}"] = say("not-run-yet", language)
    return _sections(**{name: f"{text}\n" for name, text in figures.items()})


# ------------------------------------------------------------------------------ tables of all


def incident_table(catalog: Catalog, language: Language, incidents: Iterable[Incident]) -> str:
    """A row for those that show the same and have the same fix; nothing where there is none."""
    groups: dict[tuple[str, str], list[str]] = {}
    for incident in incidents:
        file = incident.file
        seen = "<br>".join(_you_see(catalog, incident, language))
        fix = f"`{file.fix.option}`" if file.fix.option else file.fix.text[language]
        link = f"[{file.id}]({file.id}.md) {file.short[language]}"
        groups.setdefault((seen, fix), []).append(f"{link}<br>{_affected_packages(incident, language)}")
    head = [say(key, language) for key in ("you-see", "incident-affects", "fix")]
    rows = [[seen, "<br>".join(links), fix] for (seen, fix), links in groups.items()]
    return table([head, *rows], "ro-stack") if rows else ""


def about(catalog: Catalog, error: str) -> list[Incident]:
    return [incident for incident in catalog.incidents.values() if error in incident.file.errors]


def incidents_by_error(catalog: Catalog, language: Language) -> str:
    """A section for each error, with its incidents: one with two errors stands in both."""
    return "\n".join(
        f"## {family.title[language]} {{ #{name} }}\n\n{incident_table(catalog, language, found)}"
        for name, family in catalog.families.items()
        if (found := about(catalog, name))
    )


def cards(catalog: Catalog, language: Language, many: bool) -> str:
    """The errors for the home page: text, strategy, fix, and the incidents, or where there are many their number.

    The last card is for what fails without an error.
    """
    lines = ['<div class="ro-cards" markdown>', ""]

    def card(head: str, told: str, incidents: list[Incident], anchor: str) -> None:
        found = [
            f"[{it.id}](incidents/{it.id}.md){{ .ro-id }} {it.file.short[language].partition(' · ')[0]}"
            for it in incidents
        ]
        if many:
            found = [f"[{WORDS['all'][language].format(len(found))}](incidents/index.md#{anchor})"]
        lines.extend([f"-   {head}", "", f"    {told}", "", f"    {'<br>'.join(found)}", ""])

    for name, family in catalog.families.items():
        if family.card:
            fix = f"**{say('fix', language)}**{say('colon', language)}{family.card.fix[language]}"
            head = family_link(catalog, name, language, "errors/")
            card(head, f"{family.card.strategy[language]}<br>{fix}", about(catalog, name), name)
    if silent := [it for it in catalog.incidents.values() if it.silent]:
        card(f"[{say('silent', language)}](symptoms.md)", say("by-symptom", language), silent, "silent")
    return "\n".join([*lines, "</div>", ""])


def errors(catalog: Catalog, language: Language) -> str:
    """Two sections of links: errors with their meaning and incidents, and their look-alikes."""
    own = [
        f"- **{family_link(catalog, family.family, language, '')}**\n\n"
        f"    {family.text[language]}{say('next', language)}{say('seen-in', language)}{say('colon', language)}"
        f"{_seen_in(catalog, family, language, '../') or '–'}\n\n"
        for family in listed(catalog, "own")
    ]
    others = [f"- {family_link(catalog, it.family, language, '')}\n" for it in listed(catalog, "look-alikes")]
    return _sections(**{"own": "".join(own), "look-alikes": "".join(others)})


def _seen_in(catalog: Catalog, family: FamilyFile, language: Language, up: str) -> str:
    found = []
    for incident in catalog.incidents.values():
        if family.family in incident.shows:
            found.append(f"[{incident.id}]({up}incidents/{incident.id}.md)")
    more = WORDS["more"][language].format(len(found) - IN_CELL) if len(found) > IN_CELL else ""
    return say("between", language).join(found[:IN_CELL]) + more


def changes(catalog: Catalog, language: Language) -> str:
    """What changed lately for readers, a row for each day and incident."""
    if history.changes(catalog.root) is None:
        return f"{say('no-history', language)}\n"
    rows = [
        [
            f"<time>{it.day}</time>",
            f"[{it.incident}](incidents/{it.incident}.md)",
            "<br>".join(_told_news(catalog, it, language)),
        ]
        for it in itertools.islice(news.news(catalog.root), LATELY)
        if it.incident in catalog.incidents
    ]
    if not rows:
        return f"{say('no-news', language)}\n"
    return table([[say(key, language) for key in ("date", "incident", "change")], *rows])


def _told_news(catalog: Catalog, it: news.News, language: Language) -> Iterator[str]:
    incident = catalog.incidents[it.incident]
    if it.before is None:
        yield say("news-incident", language).format(incident.file.title[language])
    if it.fixed:
        yield say("news-fix", language).format(code(it.after.fix.option or it.after.fix.code or ""))
    if it.affected and it.before:
        ranges = say("semicolon", language).join(f"{code(a.package or '')} {_range(a, language)}" for a in it.affected)
        yield say("news-affected", language).format(ranges)
    judged = {name: pair for name, pair in it.verdicts.items() if name in incident.file.claims}
    for name, (before, after) in judged.items():
        if before:
            text = f"[{incident.file.claims[name].text[language]}](incidents/{it.incident}.md#claim-{name})"
            yield say("news-verdict", language).format(text, say(before, language), say(after, language))
    if count := sum(before is None for before, _ in judged.values()):
        yield say("news-claims", language).format(count)
    for environment, outcomes in it.runs.items():
        ended = say("between", language).join(f"{say(o, language)} {n}" for o, n in sorted(outcomes.items()))
        yield say("news-runs", language).format(outcomes.total(), code(environment), ended)
    for (environment, variant), (was, is_now) in it.turned.items():
        run = f"[{code(variant)}](incidents/{run_address(it.incident, variant, environment)})"
        yield say("news-turned", language).format(run, code(environment), say(was, language), say(is_now, language))


def advice(catalog: Catalog, incidents: Iterable[Incident], language: Language) -> str:
    """Every claim of these incidents, a section each: never follow it, follow it only if, it is true, or nothing settles it.

    A row says under which condition or at what cost, or why nothing settles it; the reasons and the runs are its incident's.
    """
    sections: dict[str, list[str]] = {"fails": [], "depends": [], "no": [], "open": []}
    for incident in incidents:
        page, headed = f"incidents/{incident.id}.md", set()
        for name, it in incident.file.claims.items():
            judgement = judge(catalog, incident, name)
            kind: str = judgement.verdict
            if kind == "depends" and it.advice == "no":
                kind = "fails"
            if kind == "holds":
                kind = "depends" if it.advice == "only if" else "no"
            if kind not in headed:
                headed.add(kind)
                title = f"[{incident.id}]({page}) · {incident.file.short[language]}"
                sections[kind].append(f"### {title} {{ #{kind}-{incident.id} }}\n")
            id = f"{incident.id}-claim-{name}"
            told = _told(judgement, language, f"{page}#claim-{name}")
            if kind == "no":
                lines = [f"{it.text[language]} {told}", f"{{ #{id} }}\n"]
            else:
                cost = it.note if kind == "depends" else None
                given = it.when.text if it.when else it.why or cost
                text = given[language] if given else ""
                under = text and f"<br>{_first_sentence(text) if kind == 'open' else text}"
                head = f"#### {it.text[language]} {{ #{id} }}"
                lines = ['<div class="ro-claim" markdown>', "", head, "", told + under, "", "</div>", ""]
            sections[kind].append(_from_root("\n".join(lines), page))
    return _sections(**{kind: "\n".join(parts) for kind, parts in sections.items()})


def silent_count(catalog: Catalog, language: Language) -> str:
    """How many runs trained wrong without a word, how far off the least and the worst of them was, in how many nothing moved."""
    off = _wrong(it.run for it in catalog.observed)
    told = [WORDS["silent-count"][language].format(len(off), percent(off[0]), percent(off[-1]))] if off else []
    if still := sum(it.run.outcome == "still" for it in catalog.observed):
        told.append(WORDS["still-count"][language].format(still))
    return say("next", language).join(told) + "\n" if told else ""


def silent_table(catalog: Catalog, language: Language) -> str:
    """Every run that finished and trained wrong, for a page at the top."""
    rows = [[say(key, language) for key in ("variant", "what", "off", "ranks")]]
    for incident in catalog.incidents.values():
        for environment, evidence in sorted(incident.evidence.items()):
            for run in evidence.runs:
                if run.outcome in SILENT:
                    name = run.variant + ("" if environment == "current" else f"@{environment}")
                    target = "incidents/" + run_address(incident.id, run.variant, environment)
                    text = incident.variants[run.variant].text[language]
                    if run.rank_spread is None:
                        spread = say("not-measured", language)
                    else:
                        spread = percent(run.rank_spread) if run.rank_spread else say("equal", language)
                    off = say("still", language) if run.outcome == "still" else number(run)
                    rows.append([f"{incident.id}<br>[`{name}`]({target})", text, off, spread])
    return table(rows)


def _from_root(text: str, page: str) -> str:
    """Text of an incident's page, for a page at the top: its links lead from here to where they led."""

    def target(found: re.Match[str]) -> str:
        link = found[1]
        if link.startswith("#"):
            return f"]({page}{link})"
        if re.match(r"[a-z]+:|incidents/", link):
            return found[0]
        return f"]({posixpath.normpath(posixpath.join('incidents', link))})"

    return re.sub(r"\]\(([^)]+)\)", target, text)


def listed(catalog: Catalog, page: str) -> list[FamilyFile]:
    return [family for family in catalog.families.values() if family.page == page]


def family_parts(catalog: Catalog, family: FamilyFile, language: Language) -> str:
    """Two sections for a family's page: `wordings` and `incidents`."""
    rows = [[say("wording", language), say("where", language)]]
    for wording in family.wordings:
        rows.append(["<br>".join(map(code, wording.all)), wording.text[language]])
    incidents = about(catalog, family.family)
    if len(incidents) > IN_NAVIGATION:
        found = f"[{WORDS['all'][language].format(len(incidents))}](../incidents/index.md#{family.family})\n"
    else:
        rows_of = (
            [
                say("between", language).join(it.file.tags.framework),
                f"[{it.id}](../incidents/{it.id}.md) {it.file.title[language]}",
            ]
            for it in incidents
        )
        found = table([[say("framework", language), say("incident", language)], *rows_of])
    return _sections(
        wordings=table(rows),
        incidents=found,
        questions=_flowchart(family, language),
        cases=_cases(catalog, family, language),
    )


def _flowchart(family: FamilyFile, language: Language) -> str:
    """The questions in their order, which readyonce.css draws as a flowchart: a yes leads to the right, a no down."""
    asked = [f"{n}. **{it.ask[language]}**\n\n    {it.then[language]}\n\n" for n, it in enumerate(family.questions, 1)]
    last = f"{family.otherwise[language]}\n\n" if family.otherwise else ""
    return f'<div class="ro-flow" markdown>\n\n{"".join(asked)}{last}</div>\n'


def _cases(catalog: Catalog, family: FamilyFile, language: Language) -> str:
    """How many of the runs that ended in an error are of each of its cases."""
    ended = [it for it in catalog.observed if it.run.error == family.family]
    fit = {
        case.text[language]: [it for it in ended if catalog.fits(case.where, it)]
        for case in family.cases
        if case.where is not None
    }
    counted = [say("of-case", language).format(text, len(runs)) for text, runs in fit.items()]
    sentences = [say("cases", language).format(count=len(ended), cases=say("semicolon", language).join(counted))]
    if sum(map(len, fit.values())) > len(ended):
        sentences.append(say("cases-overlap", language))
    if not_run := [case.text[language] for case in family.cases if case.where is None]:
        sentences.append(say("cases-not-run", language).format(say("between", language).join(not_run)))
    return say("next", language).join(sentences) + "\n" if family.cases else ""


def look_alikes(catalog: Catalog, language: Language) -> str:
    """Two sections of links: errors that runs here ended in, and those known from sources only.

    Each has the anchor that it had when the page held all of them.
    """
    parts: dict[str, list[str]] = {"run": [], "source": []}
    for family in listed(catalog, "look-alikes"):
        kind = "run" if _seen_in(catalog, family, language, "") else "source"
        parts[kind].append(f"- [{family.title[language]}]({family.source}){{ #{family.family} }}\n")
    return _sections(**{kind: "".join(links) for kind, links in parts.items()})


def look_alike(catalog: Catalog, family: FamilyFile, language: Language) -> str:
    colon = say("colon", language)
    lines = [family.text[language], ""]
    runs = [(it.run.message, it) for it in catalog.observed if it.run.error == family.family and it.run.message]
    if runs:
        message, it = min(runs, key=lambda one: (len(one[0]), one[1].incident.id, one[1].run.variant))
        target = run_address(it.incident.id, it.run.variant, it.environment)
        said_by = f"[{it.incident.id} · `{it.run.variant}`](../../incidents/{target})"
        # The search keeps the message, not the run's name.
        lines += [said_by + colon, "{ data-search-exclude }", "", "```text", message, "```", ""]
    lines += [f"- {code(' … '.join(wording.all))}{colon}{wording.text[language]}" for wording in family.wordings]
    seen = _seen_in(catalog, family, language, "../../")
    # A search for an id wants the incident.
    lines += ["", say("seen-in", language) + colon + seen if seen else say("not-run-here", language)]
    lines += ["{ data-search-exclude }", ""]
    if family.sources:
        lines += [say("sources", language) + colon + cite_all(family.sources, language)]
    return "\n".join(lines) + "\n"


def diagnose_links(catalog: Catalog) -> str:
    """Every page that a diagnosis may lead to; the script takes the addresses from here, as this build has them."""
    targets = {id: f"incidents/{id}.md" for id in catalog.incidents}
    targets |= {name: f"errors/{family.source}" for name, family in catalog.families.items()}
    targets |= {"errors": "errors/index.md", "decision": "decision.md"}
    if guard.files(catalog):
        targets["guard"] = "guard.md"
    return "".join(f'- [{name}]({target}){{ data-ro-to="{name}" }}\n' for name, target in targets.items())


def _sections(**parts: str) -> str:
    return "".join(f"--8<-- [start:{name}]\n{text}--8<-- [end:{name}]\n" for name, text in parts.items())


# ------------------------------------------------------------------------------ what is committed


def committed(catalog: Catalog) -> dict[Path, str]:
    """Files in git that are generated, in part or in full, with the text they should have."""
    files = {}
    for language in LANGUAGES:
        for incident in catalog.incidents.values():
            path = catalog.root / "docs" / language / "incidents" / f"{incident.id}.md"
            if path.is_file():
                files[path] = _with_front_matter(catalog.text(path), incident, language)
                files[path.with_suffix("") / "files.md"] = files_page(incident, language)
            book = path.with_suffix("") / "evidence.md"
            if book.is_file():
                files[book] = _with_front_matter(catalog.text(book), incident, language, lab_book=True)
        errors = catalog.root / "docs" / language / "errors"
        if (errors / "look-alikes.md").is_file():
            files |= {errors / it.source: look_alike_page(it, language) for it in listed(catalog, "look-alikes")}
        path = catalog.root / "docs" / language / "tags.md"
        if path.is_file():
            files[path] = _with_listings(catalog.text(path), catalog, language)
    for name, language in READMES.items():
        path = catalog.root / name
        if path.is_file():
            files[path] = _with_incidents(catalog.text(path), catalog, language)
    for name in ("mkdocs.yml", "mkdocs.zh.yml"):
        path = catalog.root / name
        if path.is_file():
            files[path] = _with_navigation(catalog.text(path), catalog, "zh" if ".zh." in name else "en")
    return files


def files_page(incident: Incident, language: Language) -> str:
    """All files of an incident in full. In the article they would outweigh the rest."""
    listed = (name for name in os.listdir(incident.folder) if name[0] != ".")
    names = sorted(name for name in listed if name.rpartition(".")[2] in LEXERS)
    title = links.label(incident.id, say("files", language))
    description = json.dumps(f"{title}{say('colon', language)}{', '.join(names)}", ensure_ascii=False)
    # Who searches wants the article.
    lines = ["---", f"title: {say('files', language)}", f"description: {description}", "search:", "  exclude: true"]
    lines += ["---", "", f"# {title} {{#files}}", "", f"[{incident.file.title[language]}](../{incident.id}.md)"]
    for name in names:
        head, include = f"## {name} {{#{name.replace('.', '-')}}}", f'--8<-- "{incident.id}/{name}"'
        lines += ["", head, "", f"```{LEXERS[name.rpartition('.')[2]]}", include, "```"]
    return "\n".join(lines) + "\n"


def look_alike_page(family: FamilyFile, language: Language) -> str:
    """A page for each error, so that a search for its text leads to it alone."""
    title, description = (
        json.dumps(text, ensure_ascii=False)
        for text in (family.title[language].replace("`", ""), _first_sentence(family.text[language].replace("`", "")))
    )
    return (
        f"---\ntitle: {title}\ndescription: {description}\n---\n\n"
        f'# {family.title[language]} {{#{family.family}}}\n\n--8<-- "errors/{family.source}"\n'
    )


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.!?])\s|(?<=[。！？])", text, maxsplit=1)[0]


def _with_front_matter(text: str, incident: Incident, language: Language, lab_book: bool = False) -> str:
    file = incident.file
    matter: dict[str, Any] = {
        "title": file.short[language],
        "headline": file.title[language],
        "description": file.summary[language],
    }
    matter["titles"] = file.short.model_dump()  # 404.html is one page for both languages
    matter["tags"] = file.tags.all(language)
    matter["search"] = {"boost": incident.file.boost}
    if lab_book:  # who searches wants the article
        title = say("lab-book", language)
        description = links.label(incident.id, title) + say("colon", language) + file.title[language]
        matter = {"title": title, "description": description, "search": {"boost": 0.05}}
    dumped = yaml.dump(matter, Dumper=Dumper, allow_unicode=True, sort_keys=False, width=10_000)
    return f"---\n{dumped}---\n\n{_without_front_matter(text)}"


def _without_front_matter(text: str) -> str:
    return re.sub(r"\A---\n.*?\n---\n+", "", text, flags=re.DOTALL)


def _with_listings(text: str, catalog: Catalog, language: Language) -> str:
    """Each directive below a heading `{#framework}` and so on lists the tags of that kind."""

    def directive(found: re.Match[str]) -> str:
        names = {
            name for incident in catalog.incidents.values() for name in incident.file.tags.kind(found[2], language)
        }
        return f"{found[1]}<!-- material/tags {{ include: {json.dumps(sorted(names), ensure_ascii=False)} }} -->"

    return re.sub(
        r"(\{#(framework|strategy|hardware|symptom)\}\n\n(?:[^#<].*\n\n)*)<!-- material/tags\b.*?-->", directive, text
    )


def _with_incidents(text: str, catalog: Catalog, language: Language) -> str:
    """A README's table of incidents: below its head a row for each, with the error as a text or how it ends without one."""
    rows = []
    for it in catalog.incidents.values():
        seen = [code(catalog.families[name].title[language]) for name in it.file.errors if name in catalog.families]
        seen = seen or [WORDS["no-error"][language].format(say(it.file.variants[BASELINE].outcome, language))]
        rows.append([f"[{it.id}](docs/{language}/incidents/{it.id}.md)", it.file.short[language], "<br>".join(seen)])
    made = "".join(map(table_row, rows))
    return re.sub(
        r"(^\| --- \| --- \| --- \|\n)(?:\| \[RO-.*\n)*", lambda found: found[1] + made, text, flags=re.MULTILINE
    )


_NAVIGATION = re.compile(
    r"( *)# (incidents|errors): written by `readyonce render`\n(?: *- (?:\".*\": )?(?:incidents|errors)/(?!look).*\.md\n)*"
)


def _with_navigation(text: str, catalog: Catalog, language: Language) -> str:
    incidents = [
        # A break comes after a dot in the middle, so that no line begins with one.
        f'"{json.dumps(links.label(it.id, it.file.short[language]), ensure_ascii=False)[1:-1]}": incidents/{it.id}.md'.replace(
            " ·", r"\u00a0·"
        )
        for it in catalog.incidents.values()
    ]
    entries = {
        # Every page carries the navigation: beyond this it would outweigh the page.
        "incidents": incidents if len(incidents) <= IN_NAVIGATION else [],
        "errors": [f"errors/{family.family}.md" for family in listed(catalog, "own")],
    }

    def lines(found: re.Match[str]) -> str:
        indent, kind = found[1], found[2]
        pages = "".join(f"{indent}- {entry}\n" for entry in entries[kind])
        return f"{indent}# {kind}: written by `readyonce render`\n{pages}"

    return _NAVIGATION.sub(lines, text)


# ------------------------------------------------------------------------------ the terminal


def for_terminal(catalog: Catalog, id: str, language: Language, colour: bool) -> str:
    """An article, its lab book and its files as text for a terminal: includes filled in, page markup taken out."""
    incident, path = catalog.incidents[id], catalog.root / "docs" / language / "incidents" / f"{id}.md"
    lab_book = path.with_suffix("") / "evidence.md"
    stacks = frameworks.includes(catalog, language)
    # A terminal has room: all forms, where the page has the first.
    stacks |= {name: stacks[name.replace("-first.md", ".md")] for name in stacks if name.endswith("-first.md")}
    made = incident_includes(catalog, incident, language) | stacks
    parts = (path.read_text(encoding="utf-8"), lab_book.read_text(encoding="utf-8"), files_page(incident, language))
    text = "\n".join(map(_without_front_matter, parts))
    return _plain(printable(_filled(catalog, text, made, language)), colour)


def _filled(catalog: Catalog, text: str, made: dict[str, str], language: Language) -> str:
    def content(found: re.Match[str]) -> str:
        include = articles.Include(0, found[2], found[3])
        if include.path in made:
            whole = made[include.path]
        elif path := articles.find(include, places(catalog.root, language)):
            whole = path.read_text(encoding="utf-8") if path.suffix != ".svg" else ""
        else:
            whole = ""  # an include of a whole-catalog table: `readyonce check` sees to missing ones
        part = articles.section(whole, include.section) if whole else ""
        return textwrap.indent(part.rstrip("\n"), found[1])

    return re.sub(r'^( *)--8<-- "([^":]+)(?::([\w-]+))?" *$', content, text, flags=re.MULTILINE)


def _plain(text: str, colour: bool) -> str:
    bold, faint, off = ("\033[1m", "\033[2m", "\033[0m") if colour else ("", "", "")
    lines, fenced = [], False
    for line in text.splitlines():
        if re.match(r" *```", line):
            fenced = not fenced
            continue
        if fenced:
            lines.append(f"    {line}")
            continue
        if re.match(r" *</?(div|figure|figcaption|details|summary)\b", line) or re.match(r" *\{[^}]*\} *$", line):
            continue
        line = re.sub(r"<a id[^>]*></a>", "", line)
        line = re.sub(r"<span[^>]*>([^<]*)</span>", r"[\1]", line)
        line = re.sub(r" *\{ ?(?:[#.]|data-)[^}]*\}", "", line)
        line = re.sub(r'^( *)(?:(?:\?\?\?\+?|!!!) \w+|===) "(.*)"', r"\1\2", line)
        line = re.sub(r"\[([^\]]+)\]\((https?://[^)]+)\)", r"\1 <\2>", line)
        line = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", line)
        line = line.replace("<br>", " ").replace("**", "")
        if heading := re.match(r"#+ +(.*)", line):
            line = f"{bold}{heading[1]}{off}"
        if re.match(r" *\| *-+", line):
            continue
        if line or (lines and lines[-1]):
            lines.append(line)
    return "\n".join(lines)
