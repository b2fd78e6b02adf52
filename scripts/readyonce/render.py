"""Writes what is generated: the includes that pages show, the JSON, front matter and navigation.

Includes go to `build/includes/<language>/`; a page names the same include in both languages.
Front matter and navigation are committed, since the site's builder reads them; `write` mends
them and `write(only_check=True)` says which are out of date.
"""

from __future__ import annotations

import datetime
import itertools
import json
import os
import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

from readyonce import articles
from readyonce.catalog import (
    LANGUAGES,
    Affected,
    Catalog,
    Claim,
    Environment,
    FamilyFile,
    Incident,
    Language,
    Matrix,
    Run,
    Source,
    Variant,
)
from readyonce.verdicts import Judged, Judgement, judge

STALE_AFTER = 180  # days until a page says that its evidence is old
NO_BREAK_SPACE, NO_BREAK_HYPHEN = "\N{NO-BREAK SPACE}", "\N{NON-BREAKING HYPHEN}"

WORDS: dict[str, dict[Language, str]] = {
    "match": {"en": "trains right", "zh": "训练正确"},
    "diverge": {"en": "wrong gradients", "zh": "梯度错误"},
    "error": {"en": "fails", "zh": "报错"},
    "hang": {"en": "hangs", "zh": "挂起"},
    "match-sentence": {
        "en": "Parameters equal those of one process ({}).",
        "zh": "参数与单进程一致（{}）。",
    },
    "diverge-sentence": {
        "en": "It finishes, and the parameters are off by {}.",
        "zh": "训练能跑完，但参数偏了 {}。",
    },
    "hang-sentence": {"en": "Ended at its time limit.", "zh": "到时限后被终止。"},
    "holds": {"en": "holds", "zh": "成立"},
    "fails": {"en": "does not hold", "zh": "不成立"},
    "depends": {"en": "depends", "zh": "看情况"},
    "open": {"en": "open", "zh": "未定"},
    "yes": {"en": "do it", "zh": "推荐"},
    "no": {"en": "do not", "zh": "不推荐"},
    "only if": {"en": "only if it fits", "zh": "符合条件再用"},
    "run": {"en": "run here", "zh": "已实测"},
    "source": {"en": "source only", "zh": "只有来源"},
    "inferred": {"en": "inferred", "zh": "推断"},
    "variant": {"en": "Variant", "zh": "变体"},
    "what": {"en": "What is set", "zh": "设置"},
    "outcome": {"en": "Outcome", "zh": "结果"},
    "package": {"en": "Package", "zh": "包"},
    "affected": {"en": "Affected", "zh": "受影响"},
    "fixed": {"en": "Fixed in", "zh": "修复于"},
    "note": {"en": "What holds there", "zh": "说明"},
    "basis": {"en": "Basis", "zh": "依据"},
    "not-fixed": {"en": "not fixed", "zh": "未修复"},
    "incident": {"en": "Incident", "zh": "事故"},
    "you-see": {"en": "You see", "zh": "报错"},
    "fix": {"en": "Fix", "zh": "解决"},
    "wording": {"en": "Text", "zh": "报错原文"},
    "where": {"en": "When", "zh": "说明"},
    "seen-in": {"en": "Seen in", "zh": "见于"},
    "sources": {"en": "Sources", "zh": "来源"},
    "proof": {"en": "{0} of {1} runs came out as this predicts.", "zh": "{1} 次运行中有 {0} 次符合这条说法的预测。"},
    "predicted": {"en": "Predicted", "zh": "预测"},
    "seen": {"en": "Seen", "zh": "实际"},
    "environment": {"en": "Environment", "zh": "环境"},
    "not-run": {"en": "not run", "zh": "未运行"},
    "others": {"en": "The other {} came out as predicted.", "zh": "其余 {} 次都符合预测。"},
    "ratio": {
        "en": "On {device}, a step of `{variant}` takes {ratio} times that of `{against}`.",
        "zh": "在 {device} 上，`{variant}` 每步耗时是 `{against}` 的 {ratio} 倍。",
    },
    "verified": {
        "en": "Verified on {date} with {versions} on {device} ({backend}, {world_size} ranks).",
        "zh": "验证于 {date}：{versions}，{device}（{backend}，{world_size} 个进程）。",
    },
    "reported": {
        "en": "Reported on {hardware}: [{link}]({url}), {date}. Not run on this hardware.",
        "zh": "报告环境：{hardware}，[{link}]({url})，{date}。未在该硬件上运行。",
    },
    "old": {
        "en": "This evidence is more than 180 days old. Newer versions may behave otherwise.",
        "zh": "这些证据已超过 180 天，更新的版本可能表现不同。",
    },
    "withdrawn": {"en": "This incident is withdrawn.", "zh": "该事故已撤回。"},
    "summary": {
        "en": "{variants} variants, {runs} runs in this environment; each variant also alone, as a reader starts it.",
        "zh": "共 {variants} 个变体，在此环境运行 {runs} 次；每个变体还单独启动跑过一次，和读者的用法一样。",
    },
    "recorded": {
        "en": "Only the options of {} were read here; nothing was trained.",
        "zh": "这里只读取了 {} 的选项，没有训练。",
    },
    # Punctuation, which differs as much as words do.
    "colon": {"en": ": ", "zh": "："},
    "semicolon": {"en": "; ", "zh": "；"},
    "comma": {"en": ", ", "zh": "，"},
    "between": {"en": ", ", "zh": "、"},
    "next": {"en": " ", "zh": ""},
    "label": {"en": "**{}.** {}", "zh": "**{}：**{}"},
    "aside": {"en": "{} ({})", "zh": "{}（{}）"},
}


# ------------------------------------------------------------------------------ all of it


def places(root: Path, language: Language) -> list[Path]:
    """Where a page's includes are looked up, in this order; mkdocs.yml names the same folders."""
    return [root / "snippets", root / "build" / "includes" / language, root / "docs" / "theme" / "figures" / language]


def write(catalog: Catalog, only_check: bool = False) -> list[str]:
    """Write everything; returns the committed files that were out of date."""
    stale = []
    for path, text in committed(catalog).items():
        if path.read_text(encoding="utf-8") != text:
            stale.append(str(path.relative_to(catalog.root)))
            if not only_check:
                path.write_text(text, encoding="utf-8")
    if not only_check:
        build = catalog.root / "build"
        fresh = {
            f"includes/{lang}/{name}": text for lang in LANGUAGES for name, text in includes(catalog, lang).items()
        }
        fresh |= {f"api/v1/{name}": to_json(value) for name, value in api(catalog).items()}
        _replace(build, ("includes", "api"), fresh)
    return stale


def _replace(build: Path, folders: Iterable[str], fresh: dict[str, str]) -> None:
    # Only what differs is written, so that a watcher sees only what changed.
    for name, text in fresh.items():
        path = build / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for folder in folders:
        for path in (build / folder).rglob("*"):
            if path.is_file() and path.relative_to(build).as_posix() not in fresh:
                path.unlink()


def includes(catalog: Catalog, language: Language) -> dict[str, str]:
    """Every generated include of one language: name → Markdown or plain text."""
    files = {
        # The tables stand on pages at two depths, so their links are made for each.
        "incidents.md": incident_table(catalog, language, "incidents/"),
        "incidents-here.md": incident_table(catalog, language, ""),
        "errors.md": error_table(catalog, language),
        "look-alikes.md": "\n".join(look_alike(catalog, family, language) for family in listed(catalog, "look-alikes")),
    }
    for family in listed(catalog, "own"):
        files[f"errors/{family.family}.md"] = family_parts(catalog, family, language)
    for incident in catalog.incidents.values():
        files |= incident_includes(catalog, incident, language)
    return files


def incident_includes(catalog: Catalog, incident: Incident, language: Language) -> dict[str, str]:
    files = {
        "header.md": header(catalog, incident, language),
        "claims.md": "\n".join(claim(catalog, incident, name, language) for name in incident.file.claims),
        "affected.md": affected_table(incident, language),
        "evidence.md": evidence_list(incident, language),
        "numbers.md": numbers(incident),
        "rows.md": rows(catalog, incident, language),
    }
    for name in dict.fromkeys(entry.file for entry in incident.file.variants.values()):
        files[f"{name}.md"] = variant_table(catalog, incident, name, language)
    for matrix in incident.file.matrices:
        for environment in incident.file.files.get(matrix.file, []):
            files[f"{matrix.file}@{environment}.md"] = matrix_table(incident, matrix, environment, language)
    for environment, evidence in incident.evidence.items():
        for run in evidence.runs:
            if run.message:
                suffix = "" if environment == "current" else f"@{environment}"
                files[f"messages/{run.variant}{suffix}.txt"] = run.message + "\n"
    return {f"{incident.id}/{name}": text for name, text in files.items()}


# ------------------------------------------------------------------------------ an incident


def header(catalog: Catalog, incident: Incident, language: Language) -> str:
    file = incident.file
    seen = " · ".join(family_link(catalog, name, language, "../errors/") for name in file.errors)
    lines = [f"{chip(file.id, 'id')} {seen}", ""]
    if file.status == "withdrawn":
        lines += [say("withdrawn", language), ""]
    lines += [
        WORDS["label"][language].format(say("fix", language), file.fix.text[language]),
        "",
        "```bash",
        file.fix.option,
        "```",
        "",
        WORDS["label"][language].format(
            say("affected", language),
            say("semicolon", language).join(f"{a.package} {_range(a)}" for a in file.affected),
        ),
        "",
    ]
    if "current" in incident.evidence:
        lines += [verified(incident, incident.evidence["current"].environment, language), ""]
        if _age(incident) > STALE_AFTER:
            lines += [f"**{say('old', language)}**", ""]
    source = Source.model_validate({"link": file.reported.source, "says": file.title})
    lines += [
        WORDS["reported"][language].format(
            hardware=file.reported.hardware[language], link=source.link, url=source.url, date=file.reported.date
        )
    ]
    return "\n".join(['<div class="ro-header" markdown>', "", *lines, "", "</div>"]) + "\n"


def verified(incident: Incident, environment: Environment, language: Language) -> str:
    """Date, versions and device. Of the versions, those that the repros run there import, if any are."""
    files = [name for name, where in incident.file.files.items() if environment.name in where]
    source = "\n".join((incident.folder / name).read_text(encoding="utf-8") for name in files)
    used = [name for name in environment.versions if re.search(rf"^(import|from) {name}\b", source, re.MULTILINE)]
    versions = say("between", language).join(
        f"{name} {environment.versions[name]}" for name in used or environment.versions
    )
    figures = environment.model_dump(exclude={"versions"}) | {"device": environment.device.upper()}
    return WORDS["verified"][language].format(versions=versions, **figures)


def _age(incident: Incident) -> int:
    """Days between the evidence and the build (SOURCE_DATE_EPOCH, where set)."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    today = datetime.datetime.fromtimestamp(int(epoch), datetime.UTC).date() if epoch else datetime.date.today()
    return (today - datetime.date.fromisoformat(incident.evidence["current"].environment.date)).days


def variant_table(catalog: Catalog, incident: Incident, file: str, language: Language) -> str:
    head = [say(key, language) for key in ("variant", "what", "outcome")]
    listed = [v for v in incident.variants.values() if v.file == file and v.name in incident.file.variants]
    return table([head, *(_row(catalog, incident, variant, language) for variant in listed)])


def rows(catalog: Catalog, incident: Incident, language: Language) -> str:
    """A section for each variant, its row alone: pages put their own tables together from these."""
    lines = {v.name: table_row(_row(catalog, incident, v, language)) for v in incident.variants.values()}
    return _sections(**lines)


def _row(catalog: Catalog, incident: Incident, variant: Variant, language: Language) -> list[str]:
    run = incident.run(variant.name, "current")
    return [f"`{variant.name}`", variant.text[language], sentence(catalog, run, language)]


def sentence(catalog: Catalog, run: Run | None, language: Language, errors: str = "../errors/") -> str:
    """What a run showed, in words, for a table."""
    if run is None:
        return say("not-run", language)
    word = chip(say(run.outcome, language), run.outcome)
    if run.outcome == "error":
        return f"{word} {family_link(catalog, run.error, language, errors)}"
    if run.outcome == "hang":
        return f"{word} {say('hang-sentence', language)}"
    return f"{word} " + WORDS[f"{run.outcome}-sentence"][language].format(number(run))


def matrix_table(incident: Incident, matrix: Matrix, environment: str, language: Language) -> str:
    """Rows: all axes but the last two (the last, where there are only two); columns: those."""
    split = len(matrix.axes) - (2 if len(matrix.axes) > 2 else 1)
    top = list(itertools.product(*matrix.axes[split:]))
    comma = say("comma", language)
    rows = [["", *(comma.join(axis[w][language] for axis, w in zip(matrix.axes[split:], words)) for words in top)]]
    for left in itertools.product(*matrix.axes[:split]):
        if not any(environment in incident.variants["-".join((*left, *words))].declared for words in top):
            continue  # nothing of this row runs there
        row = [comma.join(axis[w][language] for axis, w in zip(matrix.axes, left))]
        for words in top:
            run = incident.run("-".join((*left, *words)), environment)
            row.append(_cell(run, language))
        rows.append(row)
    return table(rows, "ro-matrix")


def _cell(run: Run | None, language: Language) -> str:
    if run is None:
        return say("not-run", language)
    word = chip(say(run.outcome, language), run.outcome)
    return f"{word} {number(run)}" if run.outcome == "diverge" else word


def claim(catalog: Catalog, incident: Incident, name: str, language: Language) -> str:
    judgement = judge(incident, name)
    it = judgement.claim
    lines = [
        f"**{it.text[language]}**",
        f"{chip(say(judgement.verdict, language), judgement.verdict)} {chip(say(it.advice, language), 'advice')}",
        f"{{ #claim-{name} .ro-claim }}",
        "",
    ]
    lines += [say("next", language).join(part[language] for part in (it.when, it.why, it.note) if part)]
    lines += ["", *proof(incident, judgement, language)]
    if it.sources:
        lines += [
            say("sources", language) + say("colon", language) + cite_all(it.sources, language),
            "{ .ro-small }",
            "",
        ]
    return "\n".join(lines)


def proof(incident: Incident, judgement: Judgement, language: Language) -> Iterator[str]:
    """The runs behind a verdict, collapsed; of a long list only those that came out otherwise."""
    for measured in judgement.claim.measured:
        runs = [incident.run(name, "current") for name in (measured.variant, measured.against)]
        if all(runs):
            one, other = (getattr(run, measured.quantity) for run in runs)
            device = incident.evidence["current"].environment.device.upper()
            yield WORDS["ratio"][language].format(
                device=device, variant=measured.variant, against=measured.against, ratio=f"{one / other:.1f}"
            )
            yield ""
    predictions = judgement.predictions
    if not predictions:
        return
    good = [judged for judged in predictions if judged.came_true]
    shown = predictions if len(predictions) <= 12 else [judged for judged in predictions if not judged.came_true]
    title = WORDS["proof"][language].format(len(good), len(predictions))
    yield f'??? quote "{title}"'
    yield ""
    if shown:
        head = [say(key, language) for key in ("variant", "environment", "predicted", "seen")]
        rows = [head, *(_prediction_row(judged, language) for judged in shown)]
        yield textwrap.indent(table(rows), "    ")
    if shown and len(shown) < len(predictions):
        yield "    " + WORDS["others"][language].format(len(predictions) - len(shown))
        yield ""


def _prediction_row(judged: Judged, language: Language) -> list[str]:
    predicted = judged.predicted.partition(":")[0]
    seen = (
        chip(say(judged.observed.outcome, language), judged.observed.outcome)
        if judged.observed
        else say("not-run", language)
    )
    return [f"`{judged.variant}`", judged.environment, say(predicted, language), seen]


def affected_table(incident: Incident, language: Language) -> str:
    rows = [[say(key, language) for key in ("package", "affected", "fixed", "note", "basis")]]
    for entry in incident.file.affected:
        rows.append(
            [
                f"`{entry.package}`",
                _range(entry),
                entry.fixed or say("not-fixed", language),
                entry.text[language],
                say(entry.basis, language)
                + (say("colon", language) + cite_all(entry.sources, language) if entry.sources else ""),
            ]
        )
    return table(rows)


def _range(entry: Affected) -> str:
    return f"≥ {entry.introduced}" + (f", < {entry.fixed}" if entry.fixed else "")


def evidence_list(incident: Incident, language: Language) -> str:
    lines = []
    for name, evidence in sorted(incident.evidence.items()):
        lines.append(f"`snippets/{incident.id}/evidence/{name}.json`")
        lines.append(f":   {verified(incident, evidence.environment, language)}")
        if evidence.runs:
            count = sum(run.repeats + run.alone for run in evidence.runs)
            lines.append("    " + WORDS["summary"][language].format(variants=len(evidence.runs), runs=count))
        else:
            commands = say("between", language).join(f"`{command}`" for command in evidence.options)
            lines.append("    " + WORDS["recorded"][language].format(commands))
        lines.append("")
    sources = {source.link: source for c in incident.file.claims.values() for source in c.sources}
    sources |= {source.link: source for a in incident.file.affected for source in a.sources}
    lines += [f"- {cite(source, language)}" for _, source in sorted(sources.items())]
    return "\n".join(lines) + "\n"


def numbers(incident: Incident) -> str:
    """Every figure prose may need, a section each: `numbers.md:VARIANT`, `numbers.md:diverge` ..."""
    figures = {}
    for environment, evidence in incident.evidence.items():
        suffix = "" if environment == "current" else f"-in-{environment.replace('.', '-')}"
        for run in evidence.runs:
            if run.gradient_error is not None:
                figures[f"{run.variant}{suffix}"] = number(run)
            if run.rank_spread:
                figures[f"{run.variant}-spread{suffix}"] = percent(run.rank_spread)
        wrong = sorted(run.gradient_error for run in evidence.runs if run.outcome == "diverge")
        if wrong:
            figures[f"diverge-least{suffix}"], figures[f"diverge-most{suffix}"] = percent(wrong[0]), percent(wrong[-1])
        figures[f"variants{suffix}"] = str(len(evidence.runs))
        figures[f"runs{suffix}"] = str(sum(run.repeats + run.alone for run in evidence.runs))
    return _sections(**{name: f"{text}\n" for name, text in figures.items()})


# ------------------------------------------------------------------------------ tables of all


def incident_table(catalog: Catalog, language: Language, to: str) -> str:
    rows = [[say(key, language) for key in ("incident", "you-see", "fix")]]
    up = "" if to else "../"
    for incident in catalog.incidents.values():
        file = incident.file
        seen = "<br>".join(family_link(catalog, name, language, f"{up}errors/") for name in file.errors)
        rows.append([f"[{file.id}]({to}{file.id}.md)<br>{file.short[language]}", seen, f"`{file.fix.option}`"])
    return table(rows, "ro-stack")


def error_table(catalog: Catalog, language: Language) -> str:
    rows = [[say("you-see", language), "", say("seen-in", language)]]
    for family in catalog.families.values():
        rows.append(
            [
                family_link(catalog, family.family, language, ""),
                family.text[language],
                _seen_in(catalog, family, language) or "–",
            ]
        )
    return table(rows)


def _seen_in(catalog: Catalog, family: FamilyFile, language: Language) -> str:
    found = []
    for incident in catalog.incidents.values():
        runs = [run for evidence in incident.evidence.values() for run in evidence.runs]
        if family.family in incident.file.errors or any(run.error == family.family for run in runs):
            found.append(f"[{incident.id}](../incidents/{incident.id}.md)")
    return say("between", language).join(found)


def listed(catalog: Catalog, page: str) -> list[FamilyFile]:
    return [family for family in catalog.families.values() if family.page == page]


def family_parts(catalog: Catalog, family: FamilyFile, language: Language) -> str:
    """Two sections for a family's page: `wordings` and `incidents`."""
    rows = [[say("wording", language), say("where", language)]]
    for wording in family.wordings:
        rows.append(["<br>".join(f"`{literal}`" for literal in wording.all), wording.text[language]])
    found = [["", say("incident", language)]]
    for incident in catalog.incidents.values():
        if family.family in incident.file.errors:
            found.append([f"[{incident.id}](../incidents/{incident.id}.md)", incident.file.title[language]])
    return _sections(wordings=table(rows), incidents=table(found))


def look_alike(catalog: Catalog, family: FamilyFile, language: Language) -> str:
    lines = [f"## {family.title[language]} {{ #{family.family} }}", "", family.text[language], ""]
    lines += [
        f"- `{' … '.join(wording.all)}`{say('colon', language)}{wording.text[language]}" for wording in family.wordings
    ]
    colon = say("colon", language)
    lines += ["", say("seen-in", language) + colon + (_seen_in(catalog, family, language) or "–"), ""]
    if family.sources:
        lines += [say("sources", language) + colon + cite_all(family.sources, language), ""]
    return "\n".join(lines)


def _sections(**parts: str) -> str:
    return "".join(f"--8<-- [start:{name}]\n{text}--8<-- [end:{name}]\n" for name, text in parts.items())


# ------------------------------------------------------------------------------ small pieces


def say(key: str, language: Language) -> str:
    return WORDS[key][language]


def chip(text: str, kind: str) -> str:
    return f'<span class="ro-chip ro-{kind}">{text}</span>'


def cite(source: Source, language: Language) -> str:
    return WORDS["aside"][language].format(f"[{source.link}]({source.url})", source.says[language])


def cite_all(sources: Iterable[Source], language: Language) -> str:
    return say("semicolon", language).join(cite(source, language) for source in sources)


def family_link(catalog: Catalog, name: str, language: Language, to: str) -> str:
    family = catalog.families.get(name)
    if family is None:
        return f"`{name}`"  # `readyonce check` says so; here it must not hide the other problems
    page = f"{name}.md" if family.page == "own" else f"look-alikes.md#{name}"
    return f"[{family.title[language]}]({to}{page})"


def number(run: Run) -> str:
    """A gradient error for reading: `13 %` where it is wrong, `6e-08` where it is rounding."""
    if run.outcome == "diverge":
        return percent(run.gradient_error)
    return f"{run.gradient_error:.0e}".replace("-", NO_BREAK_HYPHEN)


def percent(value: float) -> str:
    return f"{100 * value:.2g}{NO_BREAK_SPACE}%"


def table_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |\n"


def table(rows: Iterable[Iterable[str]], kind: str = "") -> str:
    head, *body = map(list, rows)
    text = "".join(map(table_row, [head, ["---"] * len(head), *body]))
    return f'<div class="{kind}" markdown>\n\n{text}\n</div>\n' if kind else text


# ------------------------------------------------------------------------------ JSON


def api(catalog: Catalog) -> dict[str, object]:
    return {"incidents.json": incidents_json(catalog), "claims.json": claims_json(catalog)}


def incidents_json(catalog: Catalog) -> list[dict]:
    return [
        {
            "id": incident.id,
            "status": incident.file.status,
            "title": incident.file.title.model_dump(),
            "errors": incident.file.errors,
            "tags": incident.file.tags.model_dump(),
            "fix": incident.file.fix.option,
            "affected": [
                entry.model_dump(include={"package", "introduced", "fixed", "basis"})
                for entry in incident.file.affected
            ],
            "environments": sorted(incident.evidence),
        }
        for incident in catalog.incidents.values()
    ]


def claims_json(catalog: Catalog) -> list[dict]:
    return [
        _claim_json(incident, name, claim)
        for incident in catalog.incidents.values()
        for name, claim in incident.file.claims.items()
    ]


def _claim_json(incident: Incident, name: str, claim: Claim) -> dict:
    judgement = judge(incident, name)
    labelled = {f"{judged.variant}@{judged.environment}": judged for judged in judgement.predictions}
    return {
        "id": f"{incident.id}/{name}",
        "incident": incident.id,
        "text": claim.text.model_dump(),
        "verdict": judgement.verdict,
        "basis": claim.basis,
        "advice": claim.advice,
        "when": claim.when.model_dump() if claim.when else None,
        "predicted": {label: judged.predicted for label, judged in labelled.items()},
        "observed": {label: judged.observed.outcome if judged.observed else None for label, judged in labelled.items()},
        "sources": [source.url for source in claim.sources],
    }


def to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"


# ------------------------------------------------------------------------------ what is committed


def committed(catalog: Catalog) -> dict[Path, str]:
    """Files in git that are generated in part, with the text they should have."""
    files = {}
    for language in LANGUAGES:
        for incident in catalog.incidents.values():
            path = catalog.root / "docs" / language / "incidents" / f"{incident.id}.md"
            if path.is_file():
                files[path] = _with_front_matter(path.read_text(encoding="utf-8"), incident, language)
    for name in ("mkdocs.yml", "mkdocs.zh.yml"):
        path = catalog.root / name
        if path.is_file():
            files[path] = _with_navigation(path.read_text(encoding="utf-8"), catalog)
    return files


def _with_front_matter(text: str, incident: Incident, language: Language) -> str:
    file = incident.file
    matter = {"title": file.short[language], "description": file.summary[language], "tags": file.tags.all(language)}
    dumped = yaml.safe_dump(matter, allow_unicode=True, sort_keys=False, width=10_000)
    body = re.sub(r"\A---\n.*?\n---\n+", "", text, flags=re.DOTALL)
    return f"---\n{dumped}---\n\n{body}"


_NAVIGATION = re.compile(r"( *)# incidents: written by `readyonce render`\n(?: *- incidents/RO-\d{4}\.md\n)*")


def _with_navigation(text: str, catalog: Catalog) -> str:
    def lines(found: re.Match) -> str:
        indent = found[1]
        entries = "".join(f"{indent}- incidents/{id}.md\n" for id in catalog.incidents)
        return f"{indent}# incidents: written by `readyonce render`\n{entries}"

    return _NAVIGATION.sub(lines, text)


# ------------------------------------------------------------------------------ the terminal


def for_terminal(catalog: Catalog, id: str, language: Language, colour: bool) -> str:
    """An article as text for a terminal: includes filled in, page markup taken out."""
    path = catalog.root / "docs" / language / "incidents" / f"{id}.md"
    made = incident_includes(catalog, catalog.incidents[id], language)
    text = re.sub(r"\A---\n.*?\n---\n+", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return _plain(_filled(catalog, text, made, language), colour)


def _filled(catalog: Catalog, text: str, made: dict[str, str], language: Language) -> str:
    def content(found: re.Match) -> str:
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
        if re.match(r" *</?(div|figure|figcaption)\b", line) or re.match(r" *\{[^}]*\} *$", line):
            continue
        line = re.sub(r"<span[^>]*>([^<]*)</span>", r"[\1]", line)
        line = re.sub(r" *\{ ?[#.][^}]*\}", "", line)
        line = re.sub(r'^( *)(\?\?\?\+?|!!!) \w+ "(.*)"', r"\1\3", line)
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
