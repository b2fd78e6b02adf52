"""What the stored runs say of a launch: its facts, the cells of the decision table that they fit, and the outcomes there.

*error*: no run that fits trains right. *warning*: so with some versions, and which are installed is not known. *note*: right
if each module runs once, and else it depends on what a launch cannot show. Nothing: every run that fits trains right.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple

from readyonce.data.facts import Condition, bounds, fits, given, holds, of_command, version
from readyonce.data.project import Language
from readyonce.data.words import say
from readyonce.diagnose import engine
from readyonce.launches.forms import Branch
from readyonce.launches.reader import ONE_RANK, RANKED, SETTINGS, SWITCHED, Launch, Option

WORLDS = 64  # combinations of versions that are tried
OLDEST = "0"
LEVELS = ("error", "warning", "note", "not-covered")
NAMED_STAGE = "deepspeed.stage_by_name"
# Where only the kind of the strategy can be read: the options that tell it.
NAMED = {
    "deepspeed": ("deepspeed", "deepspeed_config", "launch.use_deepspeed"),
    "fsdp": ("fsdp", "fsdp.0", "enable_fsdp", "use_fsdp", "launch.use_fsdp"),
    "megatron": ("megatron", "use_distributed_optimizer", "tensor_model_parallel_size"),
}


class Finding(NamedTuple):
    level: str
    code: str  # the family of the error, `wrong-gradients`, `depends`, `not-covered`
    file: str
    line: int
    option: (
        str | None
    )  # of how it checkpoints, as it stands in the line; None: there is none, and the line is the launch's
    what: str
    versions: str  # for which it is said; empty: for all, or for those that are given
    change: str | None  # what to do with the fix: `add` it and keep the option, or `replace` the option with it
    fix: str | None
    page: str
    runs: int  # it rests on
    wrong: bool = False  # a run that fits trains wrong without an error, and one process would not

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


class Answer(NamedTuple):
    launch: Launch
    does: str  # empty where no launch could be read
    findings: list[Finding]


# A finding; if non-reentrant checkpointing would train right, versions for which it is said; and those that were tried.
Judged = tuple[Finding, dict[str, str] | None, dict[str, list[str]]]


class _Verdict(NamedTuple):
    level: str
    code: str
    what: str
    page: str
    runs: int
    fixed: bool = False  # non-reentrant checkpointing would train right
    wrong: bool = False


def judge(
    rules: Mapping[str, Any],
    launch: Launch,
    versions: Mapping[str, str],
    language: Language = "en",
    answered: dict[Hashable, list[Judged]] | None = None,
) -> list[Finding]:
    """The findings for a launch, the worst first; with no versions given, one for each range that differs.

    `answered` keeps the answers, for launches that tell the same with the same versions and in the same language.
    """
    key = _told(rules, launch)
    answered = {} if answered is None else answered
    if key not in answered:
        answered[key] = _findings(rules, launch, versions, language)
    name = next((name for name in SETTINGS if name in launch.options), None)
    found = []
    for finding, world, asked in answered[key]:
        place: Option | Launch = launch.options[name] if name else launch
        change, fix = None, None
        if world is not None:
            change, fix, place = _change(rules, launch, {**versions, **world}, asked, name)
        option = _written(name, place) if isinstance(place, Option) and name else None
        found.append(finding._replace(file=place.file, line=place.line, option=option, change=change, fix=fix))
    return found


def signs(
    rules: Mapping[str, Any], launch: Launch, versions: Mapping[str, str], language: Language = "en"
) -> list[Finding]:
    """Notes on incidents that the launch may meet: by an option of it, its words, its strategy, and the releases."""
    if launch.processes == 1 or launch.unseen:
        return []  # two ranks showed it
    options = _options(launch)
    words = "\n".join([launch.command, *filter(None, options.values())]).lower()
    own = launch.frameworks[0] if launch.frameworks else ""
    meant = [sign for sign in rules["signs"] if own in sign["frameworks"] or not sign["frameworks"]]
    shown = [(sign, name) for sign in meant if (name := _shown(sign, options, words))]
    if not shown:
        return []
    facts = facts_of(rules, launch, versions) if _is_readable(launch) else {}
    known = {"strategy": _strategy(rules, launch, versions), **versions, **facts}
    found = []
    for sign, name in shown:
        absent = [each for each in sign["where"] if known.get(each) is None]
        fits = (holds(asked, known[each]) for each, asked in sign["where"].items() if each not in absent)
        if not (set(absent) <= set(rules["versions"]) and all(fits)):
            continue
        place = launch.options[name]
        releases = "; ".join(f"{each} {sign['where'][each]}" for each in absent)
        page = _page(rules, f"incidents/{sign['id']}/")
        text, runs = sign["text"][language], sign["runs"]
        note = Finding("note", sign["id"], place.file, place.line, None, text, releases, None, None, page, runs)
        found.append(note._replace(option=_written(name, place)))
    return found


def _shown(sign: Mapping[str, Any], options: Mapping[str, str | None], words: str) -> str | None:
    """The option by which a launch shows a sign; None where it shows none, or something speaks against it."""
    if any(name in options for name in sign["unless"]):
        return None
    if sign["words"] and not any(word in words for word in sign["words"]):
        return None
    return next((name for name in sign["any"] if given({"option": name, "is": sign["is"]}, options)), None)


def answers(
    rules: Mapping[str, Any], launches: Iterable[Launch], versions: Mapping[str, str], language: Language = "en"
) -> list[Answer]:
    """Of each launch what it does, and the findings."""
    answered: dict[tuple[Hashable, ...], dict[Hashable, list[Judged]]] = {}
    found = []
    for launch in launches:
        known = {name: release for name, (release, _) in launch.pins.items() if name in rules["versions"]} | {
            **versions
        }
        same = answered.setdefault(tuple(sorted(known.items())), {})
        findings = judge(rules, launch, known, language, same) + signs(rules, launch, known, language)
        found.append(Answer(launch, does(rules, launch, known, language), findings))
    return found


def look(rules: Mapping[str, Any], code: Iterable[tuple[str, str]], language: Language = "en") -> list[Finding]:
    """Notes on Python, (path, text) each, that can train wrong without an error: where to look, no diagnosis."""
    looks = engine.looks_of(rules["incidents"])
    return [
        Finding(
            "note",
            place["id"],
            name,
            place["line"],
            None,
            say("lint.look", language, place["why"]),
            "",
            None,
            None,
            _page(rules, f"incidents/{place['id']}/#case"),
            0,
        )
        for name, text in code
        for place in engine.look(looks, text.encode(), language)
    ]


def _told(rules: Mapping[str, Any], launch: Launch) -> Hashable:
    """All of a launch that a finding rests on: what each rule makes of it, and what could not be read."""
    options = _options(launch)
    answers = (
        options.get(rule["option"], False) if "option" in rule else rule.get("text", "") in launch.command
        for name in launch.frameworks
        for rule in rules["stacks"][name]["launch"]
    )
    return (
        *launch.frameworks,
        launch.processes == 1,
        launch.launcher in RANKED,
        launch.blind,
        launch.unseen,
        _has_options(launch),
        *_least(rules, launch).items(),
        *launch.unread,
        *answers,
    )


def _findings(
    rules: Mapping[str, Any], launch: Launch, versions: Mapping[str, str], language: Language
) -> list[Judged]:
    judged: dict[_Verdict | None, list[dict[str, str]]] = {}
    own = _rules_of(rules, launch)
    worlds, tried = _worlds(rules, launch, versions, own)
    for world in worlds:
        verdict = _verdict(rules, launch, {**versions, **world}, language, own)
        if launch.processes == 1 and verdict and verdict.code not in (ONE_RANK, "not-covered"):
            verdict = None  # two ranks showed it
        judged.setdefault(verdict, []).append(world)
    found: list[Judged] = []
    for verdict, where in judged.items():
        if verdict is None:
            continue
        # With other versions all is right, and which are installed is not known.
        level = "warning" if verdict.level == "error" and len(judged) > 1 else verdict.level
        within = _ranges(where, worlds, tried) if len(judged) > 1 else ""
        finding = Finding(
            level,
            verdict.code,
            "",
            0,
            None,
            verdict.what,
            within,
            None,
            None,
            verdict.page,
            verdict.runs,
            verdict.wrong,
        )
        found.append((finding, where[-1] if verdict.fixed else None, tried))
    return sorted(found, key=lambda one: LEVELS.index(one[0].level))


def does(rules: Mapping[str, Any], launch: Launch, versions: Mapping[str, str], language: Language = "en") -> str:
    """What the launch will do: `8 processes, DDP, LoRA, reentrant checkpointing`. Empty where no launch could be read."""
    if launch.unseen:
        return ""
    if is_alone(launch):
        return say("lint-does.one", language)
    facts = facts_of(rules, launch, versions) if _is_readable(launch) else {}
    count = {1: say("lint-does.ranked", language), None: say("lint-does.several", language)}
    if launch.is_untold:
        count[None] = say("lint-does.untold", language, launch.launcher)
    parts = [count.get(launch.processes) or say("lint-does.processes", language, launch.processes)]
    if launch.machines is not None:
        parts[0] += say("lint-does.machines" if launch.machines else "lint-does.machine", language, launch.machines)
    if "strategy" not in facts and not launch.frameworks:
        facts = {"strategy": _strategy(rules, launch, versions)}
    if strategy := facts.get("strategy"):
        parts.append(rules["strategies"].get(strategy, {}).get(language, strategy))
        if launch.options.keys() & {NAMED_STAGE, "deepspeed.zero_optimization.stage"} == {NAMED_STAGE}:
            parts[-1] += say("lint-does.named", language)
    else:
        # `TrainingArguments(deepspeed=...)` of a script tells nothing: it may be given none.
        told = {name for name, it in launch.options.items() if it.style != "python" or it.value or it.written}
        named = (key for key, names in NAMED.items() if told.intersection(names))
        parts.append(say(f"lint-does.{next(named, 'strategy')}", language))
    parts += [say(f"lint-does.{facts['tuning']}", language)] if facts.get("tuning") in ("lora", "full") else []
    parts.append(say(f"lint-does.{facts.get('checkpointing', 'unknown')}", language))
    read = any(rule.get("option") == "model.class" for rule in _rules_of(rules, launch))
    if read and "runs" in facts and (model := launch.options.get("model.class")):
        parts.append(str(model.value))
    by_file: dict[str, list[str]] = {}
    for name in sorted(_asked_for(rules, launch) & launch.pins.keys()) if launch.pins else ():
        release, file = launch.pins[name]
        if versions.get(name) == release:
            by_file.setdefault(file, []).append(f"{name} {release}")
    for file, pinned in by_file.items():
        parts.append(say("lint-does.pinned", language, say("lint-report.next", language).join(pinned), file))
    when = say("lint-does.when", language, launch.when) if isinstance(launch, Branch) else ""
    return say("lint-report.next", language).join(parts) + when


def _asked_for(rules: Mapping[str, Any], launch: Launch) -> set[str]:
    """The packages whose release decides something of a launch."""
    named = {name for rule in _rules_of(rules, launch) if isinstance(rule.get("where"), dict) for name in rule["where"]}
    named |= {name for cell in rules["cells"] for part in cell["parts"] for name, _, _ in part["path"]}
    return (named | {name for sign in rules["signs"] for name in sign["where"]}) & {*rules["versions"]}


def _strategy(rules: Mapping[str, Any], launch: Launch, versions: Mapping[str, str]) -> Any:
    """That of a loop of one's own: only what an option says counts, since no default of the Trainer's is its own."""
    told = [
        rule for rule in rules["stacks"]["transformers"]["launch"] if "option" in rule and "strategy" in rule["facts"]
    ]
    told = [rule for rule in told if rule.get("without") != "python.accelerator"]  # its plugin may say otherwise
    told += [
        {"option": "python.ddp", "facts": {"strategy": "ddp"}},
        {"option": "launch.multi_gpu", "facts": {"strategy": "ddp"}},
    ]
    kind = launch.options.get("launch.distributed_type")
    if kind and kind.value and kind.value.upper() == "MULTI_GPU":
        told.append({"facts": {"strategy": "ddp"}})
    return of_command(launch.command, told, versions, _options(launch)).get("strategy")


def is_alone(launch: Launch) -> bool:
    """Whether it starts one process that has no rank."""
    return launch.processes == 1 and launch.launcher not in RANKED


def facts_of(rules: Mapping[str, Any], launch: Launch, versions: Mapping[str, str]) -> dict[str, Any]:
    """What the launch tells of its run. A fact that it does not tell is left out."""
    return _facts(_rules_of(rules, launch), launch, versions)


def _facts(own: Iterable[Mapping[str, Any]], launch: Launch, versions: Mapping[str, str]) -> dict[str, Any]:
    """The same, by the rules that are its own."""
    facts = of_command(launch.command, own, versions, _options(launch))
    if launch.processes == 1 and launch.launcher is None and launch.frameworks == ["transformers"]:
        facts |= {"strategy": "single"} if facts.get("strategy") == "ddp" else {}  # python x.py
    return {name: value for name, value in facts.items() if value is not None}


def _options(launch: Launch) -> dict[str, str | None]:
    return {name: option.value for name, option in launch.options.items()}


def _has_options(launch: Launch) -> bool:
    """Whether any option is its own, and not the launcher's."""
    return any(not name.startswith("launch.") for name in launch.options)


def _is_readable(launch: Launch) -> bool:
    """Whether it is known whose options it takes, and all of them are at hand."""
    return bool(launch.frameworks) and not launch.blind and _has_options(launch)


def _rules_of(rules: Mapping[str, Any], launch: Launch) -> list[Mapping[str, Any]]:
    """Those of its frameworks, without those whose option it does not give."""
    options = _options(launch)
    own = [rule for name in launch.frameworks for rule in rules["stacks"][name]["launch"]]
    own = [rule for rule in own if given(rule, options) is not False]
    return sorted(own, key=lambda rule: "strategy" not in rule["facts"])


def _verdict(
    rules: Mapping[str, Any],
    launch: Launch,
    versions: Mapping[str, str],
    language: Language,
    own: Iterable[Mapping[str, Any]],
) -> _Verdict | None:
    def uncovered(key: str, *values: str) -> _Verdict:
        return _uncovered(rules, say(f"lint.{key}", language, *values), language)

    if is_alone(launch):
        return None
    if launch.unseen:
        return uncovered("unseen", launch.unseen)
    if not launch.frameworks:
        return uncovered("not-trainer" if _has_options(launch) else "no-option")
    if launch.blind:
        return uncovered("elsewhere", ", ".join(launch.unread))
    if not _has_options(launch):
        return uncovered("no-option")
    facts = _facts(own, launch, versions)
    if "strategy" not in facts:
        unread = say("lint.absent", language, ", ".join(launch.unread)) if launch.unread else ""
        return _uncovered(rules, say("lint.strategy", language) + unread, language)
    if "checkpointing" not in facts:
        decides = _deciding(own, launch, {**versions, **facts}, "checkpointing")
        return uncovered("checkpointing-by", decides) if decides else uncovered("checkpointing")
    verdict = _judged(rules, {**versions, **facts}, language)
    if verdict and verdict.level == "error" and "runs" in facts:
        once = _judged(
            rules, {**versions, **{name: value for name, value in facts.items() if name != "runs"}}, language
        )
        if once is None or once.level != "error":  # what the framework's own code repeats decides
            verdict = verdict._replace(level="warning", what=say("lint.repeat", language, verdict.what))
    if verdict and verdict.level != "not-covered" and facts["checkpointing"] == "reentrant":
        better = _judged(rules, {**versions, **facts, "checkpointing": "non-reentrant"}, language)
        if better is None or (LEVELS.index(better.level) > LEVELS.index(verdict.level) and better.level == "note"):
            return verdict._replace(fixed=True)
    return verdict


def _uncovered(rules: Mapping[str, Any], why: str, language: Language) -> _Verdict:
    return _Verdict("not-covered", "not-covered", say("lint.uncovered", language, why), _page(rules, "decision/"), 0)


def _deciding(own: Iterable[Mapping[str, Any]], launch: Launch, known: Mapping[str, Any], fact: str) -> str | None:
    """The option that decides a fact, with its value, by the first rule that would tell it and does not."""
    for rule in own:
        if fact not in rule["facts"] or rule.get("text", "") not in launch.command:
            continue
        if fits(rule.get("where", {}), known) is not False:
            name = rule.get("option")
            value = launch.options[name].value if name else None
            return f"{name} {value}" if name and value and value != "true" else name
    return None


def _judged(rules: Mapping[str, Any], known: Mapping[str, Any], language: Language) -> _Verdict | None:
    by_use: dict[str, list[tuple[str, int, Mapping[str, Any]]]] = {}
    for cell in rules["cells"]:
        if cell["strategy"] != known["strategy"] or fits(cell["where"], known, ()) is False:
            continue
        if fits(rules["uses"][cell["use"]]["where"], known) is False:
            continue
        for part in cell["parts"]:
            if _possible(part["path"], known):
                by_use.setdefault(cell["use"], []).extend((label, n, part) for label, n in part["outcomes"].items())
    first = next(iter(by_use), None)
    if first is None:
        strategy = rules["strategies"].get(known["strategy"], {}).get(language, known["strategy"])
        return _uncovered(rules, say("lint.no-run", language, strategy), language)
    right = {use: {label for label, _, _ in cells} == {"match"} for use, cells in by_use.items()}
    if all(right.values()):
        return None
    every = [result for cells in by_use.values() for result in cells]
    runs = sum(count for _, count, _ in every)
    if not any(label == "match" for label, _, _ in every):
        return _said(rules, by_use[first], runs, language)
    if not right[first] and not any(label == "match" for label, _, _ in by_use[first]):
        return _said(rules, by_use[first], runs, language)
    bad = {use: [result for result in cells if result[0] != "match"] for use, cells in by_use.items() if not right[use]}
    use, cells = next(iter(bad.items()))
    where = say("lint.next", language).join(
        say("lint.case", language, _use(rules, name, labels, known, language), _kinds(labels, language))
        for name, labels in bad.items()
    )
    page = _page(rules, f"decision/#{known['strategy']}-{use}")
    lead = say("lint.once" if right.get("once") else "lint.mixed", language)
    wrong = any(label == "diverge" for labels in bad.values() for label, _, _ in labels)
    return _Verdict("note", "depends", say("lint.depends", language, lead, where), page, runs, wrong=wrong)


def _use(
    rules: Mapping[str, Any],
    name: str,
    cells: Iterable[tuple[str, int, Mapping[str, Any]]],
    known: Mapping[str, Any],
    language: Language,
) -> str:
    """A use of modules; with it what the runs that do not train right have in common and the launch does not tell."""
    text = str(rules["uses"][name]["text"][language])
    asked = {part["when"][language] for _, _, part in cells if part["when"]}
    if len(asked) != 1 or all(fact in known for _, _, part in cells for fact, _, _ in part["path"]):
        return text
    return say("lint.use", language, text, *asked)


def _said(
    rules: Mapping[str, Any], cells: list[tuple[str, int, Mapping[str, Any]]], runs: int, language: Language
) -> _Verdict:
    label, _, part = max(cells, key=lambda result: result[1])
    _, _, family = label.partition(":")
    if family:
        page = _page(rules, rules["families"][family]["path"])
    else:
        page = _page(rules, f"incidents/{part['incident']}/evidence/#{part['run']}")
    return _Verdict("error", family or "wrong-gradients", _outcomes(rules, cells, language), page, runs)


def _outcomes(rules: Mapping[str, Any], cells: Iterable[tuple[str, int, Mapping[str, Any]]], language: Language) -> str:
    """`stops: DDP marks a parameter ready twice (64 runs); trains wrong ...`"""
    cells = list(cells)
    counts: Counter[str] = Counter()
    for label, count, _ in cells:
        counts[label] += count
    texts = []
    for label, count in counts.most_common():
        outcome, _, family = label.partition(":")
        runs = _runs_in_words(count, language)
        if family:
            texts.append(say("lint.stops-with", language, rules["families"][family]["title"], runs))
        elif outcome == "diverge":
            wrong = max((part["gradient_error"] or 0 for other, _, part in cells if other == label), default=0)
            texts.append(say("lint.wrong-by", language, wrong, runs))
        else:
            texts.append(say(f"lint.{outcome}", language, runs))
    return say("lint.next", language).join(texts)


def _page(rules: Mapping[str, Any], path: str) -> str:
    return f"{rules['site']}/{path}" if rules["site"] else path


def _kinds(cells: Iterable[tuple[str, int, Mapping[str, Any]]], language: Language) -> str:
    """`stops or trains wrong without an error (17 runs)`"""
    cells = list(cells)
    kinds = sorted({"wrong" if result[0] in ("diverge", "still") else "stops" for result in cells})
    text = say("lint.or", language).join(say(f"lint.{kind}", language) for kind in kinds)
    runs = _runs_in_words(sum(result[1] for result in cells), language)
    return f"{text} ({runs})" if language == "en" else f"{text}（{runs}）"


def _runs_in_words(count: int, language: Language) -> str:
    return say("lint.run" if count == 1 else "lint.runs", language, count)


def _possible(path: Iterable[tuple[str, Condition | None, bool]], known: Mapping[str, Any]) -> bool:
    """Whether nothing that is known contradicts the conditions of a part."""
    return all(
        condition is None or name not in known or holds(condition, known[name]) == inside
        for name, condition, inside in path
    )


# ------------------------------------------------------------------------------ versions


def _worlds(
    rules: Mapping[str, Any], launch: Launch, versions: Mapping[str, str], own: Iterable[Mapping[str, Any]]
) -> tuple[list[dict[str, str]], dict[str, list[str]]]:
    """A release on each side of every bound that a rule or a run asks for, of packages whose release is not known."""
    asked: dict[str, set[str]] = {}
    paths = [part["path"] for cell in rules["cells"] for part in cell["parts"]]
    wheres = [rule.get("where", {}) for rule in own]
    conditions = [(name, condition) for where in wheres if isinstance(where, dict) for name, condition in where.items()]
    strategy = _facts(own, launch, versions).get("strategy")
    if str(strategy).startswith("zero"):
        conditions += [(name, condition) for path in paths for name, condition, _ in path]
    for name, condition in conditions:
        if name in rules["versions"] and name not in versions:
            asked.setdefault(name, set()).update(bound for _, bound in bounds(condition))
    least = _least(rules, launch)
    tried = {
        name: [it for it in [OLDEST, *sorted(found, key=version)] if version(it) >= version(least.get(name, OLDEST))]
        or [least[name]]
        for name, found in sorted(asked.items())
        if found
    }
    worlds = [dict(zip(tried, chosen, strict=True)) for chosen in itertools.product(*tried.values())]
    return worlds[:WORLDS], tried


def _least(rules: Mapping[str, Any], launch: Launch) -> dict[str, str]:
    """The releases that brought an option that the launch is given, by package."""
    stacks = [rules["stacks"][name] for name in launch.frameworks]
    return {
        it["package"]: since for it in stacks for name, since in it["options_since"].items() if name in launch.options
    }


def _ranges(where: list[dict[str, str]], worlds: list[dict[str, str]], tried: Mapping[str, list[str]]) -> str:
    """`transformers < 5.0.0`: the releases of these worlds, of packages that tell them from the others."""
    texts = []
    for name, releases in tried.items():
        here = sorted({world[name] for world in where}, key=version)
        if len(here) == len(releases):
            continue
        for first, last in _runs(here, releases):
            after = releases[releases.index(last) + 1 :]
            parts = [f">= {first}"] * (first != OLDEST) + [f"< {release}" for release in after[:1]]
            texts.append(f"{name} {', '.join(parts)}")
    return "; ".join(texts)


def _runs(here: list[str], releases: list[str]) -> list[tuple[str, str]]:
    """Neighbours among the releases, as (first, last)."""
    found: list[tuple[str, str]] = []
    for release in here:
        at = releases.index(release)
        if found and at and found[-1][1] == releases[at - 1]:
            found[-1] = (found[-1][0], release)
        else:
            found.append((release, release))
    return found


# ------------------------------------------------------------------------------ the fix


def _change(
    rules: Mapping[str, Any],
    launch: Launch,
    versions: Mapping[str, str],
    tried: Mapping[str, list[str]],
    name: str | None,
) -> tuple[str | None, str | None, Option | Launch]:
    """What to do, the text for it, and where. It is offered only if the launch, read with it, is non-reentrant."""
    option = launch.options[name] if name else None

    def reaches(settings: Mapping[str, str]) -> bool:
        changed = copy.copy(launch)
        changed.options = launch.options | {key: Option(value, "", 0) for key, value in settings.items()}
        return _facts(_rules_of(rules, changed), changed, versions).get("checkpointing") == "non-reentrant"

    if name and option and name.endswith(("use_reentrant", "use_reentrant_gc")) and reaches({name: "false"}):
        return "replace", _switched_off(name, option), option
    tops = {key.partition(".")[0] for key in launch.options}
    for form in (form for framework in launch.frameworks for form in rules["forms"][framework]):
        settings = {key: value for key, value in form["settings"].items() if key not in launch.options}
        if any("." in key and key.partition(".")[0] in tops for key in settings):
            continue  # it would take the place of what stands there
        if not (settings and _asked(form, versions, tried) and reaches(settings)):
            continue
        place: Option | Launch = launch if option is None or option.inside else option
        if option is None and form["in_file"]:  # beside its other keys
            place = next((it for key, it in launch.options.items() if "." not in key and it.style != "bash"), launch)
        text = _as_options(settings, place.style if isinstance(place, Option) else "bash")
        if not (option and option.written.endswith(")") and option.style == "python"):
            return "add", text, place
        if option.written.endswith("()"):
            return "replace", f"{option.written[:-1]}{text})", place
    return None, None, option or launch


def _asked(form: Mapping[str, Any], versions: Mapping[str, str], tried: Mapping[str, list[str]]) -> bool:
    """Whether a form is that of this version."""
    package = form["package"] or ""
    release = versions.get(package)
    if release == OLDEST:  # whatever is older than the first bound
        return form["since"] is None or version(form["since"]) < version(tried[package][1])
    wanted = {">=": form["since"], "<": form["before"]}
    return release is None or all(holds(f"{sign} {bound}", release) for sign, bound in wanted.items() if bound)


def _written(name: str, option: Option) -> str:
    """As it stands there; as it would, where that is not known, long, or in a variable."""
    return option.written or _as_options({name: option.value or "..."}, option.style)


def _switched_off(name: str, option: Option) -> str:
    """The same text with the other value."""
    key = name.rpartition(".")[2].replace("_", "[-_]")
    match = re.search(rf"{key}\W+(?=(\w+))", option.written, re.ASCII)
    if match and match[1] == option.value and match[1] in SWITCHED:
        return option.written[: match.end(0)] + SWITCHED[match[1]] + option.written[match.end(1) :]
    return _as_options({name: "false"}, option.style)


def _as_options(settings: Mapping[str, str], style: str) -> str:
    """`{"a": "true", "b.c": "false"}` as the options of a command, or as keys and values."""
    made = []
    for name, value in settings.items():
        key, _, inner = name.partition(".")
        if style == "bash":
            made.append(f"--{key} " + (f"'{{\"{inner}\": {value}}}'" if inner else value))
        elif style == "yaml":
            made.append(f"{key}:" + (f"\n  {inner}: {value}" if inner else f" {value}"))
        elif style == "json":
            made.append(f'"{key}": ' + (f'{{"{inner}": {value}}}' if inner else value))
        else:
            value = value.capitalize()
            made.append(f"{key}=" + (f'{{"{inner}": {value}}}' if inner else value))
    return {"bash": " ", "yaml": "\n"}.get(style, ", ").join(made)
