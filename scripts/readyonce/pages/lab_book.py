"""An incident's lab book: every run, the figures that prose may need, and what a reader saw of each run."""

from __future__ import annotations

import functools
import itertools
import json
import os
import textwrap
from collections.abc import Iterable, Iterator

from readyonce.data import hashes, links
from readyonce.data.catalog import Variant
from readyonce.data.links import in_environment, run_id
from readyonce.data.markup import cite, code, number, percent, sections, table
from readyonce.data.schema import SILENT, Evidence, Matrix, Run, Text
from readyonce.pages import chart
from readyonce.pages.page import IncidentPage

IN_LINE = 145  # characters of a message's line, where its first two are shown in short


class LabBook(IncidentPage):
    def tables(self) -> Iterator[tuple[str, str]]:
        """(name, text): of each file its variants, of each of its matrices and environments a table, and its chart."""
        for name in dict.fromkeys(entry.file for entry in self.incident.meta.variants.values()):
            yield f"{name}.md", self.command_table(name) if name.endswith(".sh") else self.variant_table(name)
        found: dict[str, list[str]] = {}  # all matrices of a file stand one below the other
        for matrix in self.incident.meta.matrices:
            for environment in self.incident.meta.files.get(matrix.file, []):
                found.setdefault(f"{matrix.file}@{environment}.md", []).append(self.matrix_table(matrix, environment))
                if matrix.chart and environment in self.incident.evidence:
                    drawn = chart.bars(self.incident, matrix, environment, self.language)
                    yield f"{matrix.file}@{environment}.svg", drawn
        for name, parts in found.items():
            yield name, "\n".join(filter(None, parts))

    def variant_table(self, file: str) -> str:
        declared = self.incident.meta.variants
        listed = [
            variant
            for variant in self.incident.variants.values()
            if variant.script == file and variant.name in declared
        ]
        return table([self.head("variant", "what", "outcome"), *map(self._row, listed)])

    def _row(self, variant: Variant) -> list[str]:
        """Name, setting and outcome; where it ran in other environments too, a line for each."""
        lines = []
        for environment in variant.declared:
            sentence = self.sentence(variant, self.incident.run(variant.name, environment))
            lines.append(sentence if environment == "current" else self.after(f"`{environment}`", sentence))
        lines += [self.after(f"`{name}`", self.unusable(variant, name)) for name in variant.unusable]
        anchors = "".join(f'<a id="{run_id(variant.name, environment)}"></a>' for environment in variant.declared)
        return [f"{anchors}`{variant.name}`", variant.text[self.language], "<br>".join(lines)]

    def sentence(self, variant: Variant, run: Run | None) -> str:
        """What a run showed, in words, for a table."""
        if run is None:
            return self.say("not-run")
        word = self.chip(run.outcome)
        if run.outcome == "error":
            return f"{word} {self.family_link(run.error, '../../errors/')}"
        if run.outcome in ("hang", "still"):
            return f"{word} {self.say(f'{run.outcome}-sentence')}"
        key = "match-command-sentence" if variant.is_command and run.outcome == "match" else f"{run.outcome}-sentence"
        return f"{word} {self.say(key, number(run))}"

    def command_table(self, file: str) -> str:
        """A row for each variant of a framework's command, a column for each environment."""
        environments = [name for name in self.incident.meta.files[file] if self.ran(name)]
        rows = [[self.say("what"), *(f"`{name}`" for name in environments)]]
        for variant in self.incident.variants.values():
            if variant.script == file:
                cells = (self._command_cell(variant, name) for name in environments)
                rows.append([variant.text[self.language], *cells])
        return table(rows, "ro-matrix")

    def _command_cell(self, variant: Variant, environment: str) -> str:
        if environment in variant.unusable:
            return self.unusable(variant, environment)
        run = self.incident.run(variant.name, environment)
        cell = self._cell(run, environment)
        if run and run.error and run.error not in self.incident.meta.errors:
            cell += "<br>" + self.family_link(run.error, "../../errors/")
        return cell

    def matrix_table(self, matrix: Matrix, environment: str) -> str:
        """Columns: the last axis, or the last two where that makes no more than four; rows: the others."""
        split = len(matrix.axes) - 1
        if split > 1 and len(matrix.axes[-1]) * len(matrix.axes[-2]) <= 4:
            split -= 1
        left, top = matrix.axes[:split], matrix.axes[split:]
        if turn := turned(matrix):
            left, top = top, left
        columns = list(itertools.product(*top))
        rows = [[self.say("setting"), *(self._words(top, words) for words in columns)]]
        for row in itertools.product(*left):
            names = ["-".join((*words, *row) if turn else (*row, *words)) for words in columns]
            if any(environment in self.incident.variants[name].declared for name in names):
                cells = (self._cell(self.incident.run(name, environment), environment) for name in names)
                rows.append([self._words(left, row), *cells])
        return table(rows, "ro-matrix") if len(rows) > 1 else ""

    def _words(self, axes: list[dict[str, Text]], words: Iterable[str]) -> str:
        return self.joined("comma", (axis[word][self.language] for axis, word in zip(axes, words)))

    def _cell(self, run: Run | None, environment: str) -> str:
        """A run's outcome where rows and columns say what was run; links lead here."""
        if run is None:
            return self.say("not-run")
        word = self.chip(run.outcome, run_id(run.variant, environment))
        return f"{word} {number(run)}" if run.outcome == "diverge" else word

    def evidence(self) -> str:
        """What was run where, and all sources."""
        return self.fill("evidence.md", incident=self.incident)

    def summary(self, evidence: Evidence) -> Iterator[str]:
        """What an environment's evidence holds, a line each."""
        yield self.verified(evidence.environment, "../../")
        if evidence.runs:
            yield from self._made_from(evidence)
        yield from map(self._ended, evidence.unusable)
        commands = [run for run in evidence.runs if self.incident.variants[run.variant].is_command]
        if repros := [run for run in evidence.runs if run not in commands]:
            alone = sum(run.alone for run in repros)
            runs = sum(run.repeats for run in repros) + alone
            yield self.say("summary", variants=len(repros), runs=runs, alone=alone)
        if commands:
            yield self.say("launched", len(commands))
        if not evidence.runs:
            yield self.say("recorded", self.joined("between", (f"`{command}`" for command in evidence.options)))

    def compared(self, evidence: Evidence) -> Iterator[str]:
        """The same of evidence from elsewhere: how many runs came out as in `current`, and of the errors how many."""
        yield self.verified(evidence.environment, "../../")
        yield from self._made_from(evidence)
        pairs = self.incident.beside_current(evidence)
        same = sum(run.outcome == here.outcome for run, here in pairs)
        errors = [run.error == here.error for run, here in pairs if here.error]
        key = "two-hosts" if evidence.environment.hosts > 1 else "one-device"
        yield self.say(key, all=len(evidence.runs), same=same, errors=len(errors), same_errors=sum(errors))

    def _made_from(self, evidence: Evidence) -> Iterator[str]:
        """The files that it was run with, which of them were others then, and whether its figures are of another scale."""
        folder, stored = self.incident.folder, evidence.made_from or {}
        files = [name for name in stored if (folder / name).is_file()]
        older = [name for name in files if hashes.of_file(folder / name) != stored[name]]
        shown = self.joined("between", (f"[`{name}`](files.md#{name.replace('.', '-')})" for name in files))
        if older:
            named = self.joined("between", (self._version(evidence.commit, name) for name in older))
            yield self.say("made-from-older", files=shown, older=named)
        else:
            yield self.say("made-from", shown) if files else self.say("made-from-unknown")
        if any(run.gradient_error and not run.worst for run in evidence.runs):
            yield self.say("older-scale", "../../concepts/right-gradients.md#comparison")

    def _version(self, commit: str | None, name: str) -> str:
        """A file as a commit has it: a link where the repository is known, else the command that shows it."""
        path = f"snippets/{self.incident.id}/{name}"
        if commit and (address := links.version(os.environ.get("REPO_URL", ""), commit, path)):
            return f"[{code(name)}]({address})"
        return f"{code(name)} ({code(f'git show {commit[:10]}:{path}')})" if commit else code(name)

    def cited(self) -> list[str]:
        return [cite(source, self.language) for source in sorted(self.incident.sources, key=lambda source: source.link)]

    def _ended(self, run: Run) -> str:
        """How an unusable run ended: its message's last line, or how far off it was."""
        if run.message:
            ending = code(run.message.strip().splitlines()[-1])
        else:
            ending = f"{self.say(run.outcome)} {number(run) if run.gradient_error else ''}".strip()
        return self.after(f"`{run.variant}`", self.after(self.say("unusable"), ending))

    def numbers(self) -> str:
        """Every figure prose may need, a section each: `numbers.md:VARIANT`, `numbers.md:diverge` ..."""
        figures = {}
        for environment, evidence in self.incident.evidence.items():
            suffix = in_environment(environment)
            for run in evidence.runs:
                if run.gradient_error is not None:
                    figures[f"{run.variant}{suffix}"] = number(run)
                if run.rank_spread:
                    figures[f"{run.variant}-spread{suffix}"] = percent(run.rank_spread)
            if off := wrong(evidence.runs):
                figures[f"diverge-least{suffix}"], figures[f"diverge-most{suffix}"] = percent(off[0]), percent(off[-1])
            figures[f"variants{suffix}"] = str(len(evidence.runs))
            figures[f"runs{suffix}"] = str(sum(run.repeats + run.alone for run in evidence.runs))
        for variant, environment in self._drafted():
            for figure in (variant, f"{variant}-spread"):
                figures[f"{figure}{in_environment(environment)}"] = self.say("not-run-yet")
        return sections(**{name: f"{text}\n" for name, text in figures.items()})

    def seen(self) -> Iterator[tuple[str, str]]:
        """(name, text): of each run its message, also in short, or what it prints where it trains wrong without one."""
        for environment, evidence in self.incident.evidence.items():
            for run in evidence.runs:
                name = _file(run.variant, environment)
                if run.message:
                    yield f"messages/{name}.txt", run.message + "\n"
                    yield f"messages/{name}.short.txt", _shortened(run.message)
                elif run.outcome in SILENT:
                    yield f"results/{name}.txt", _result(run)
        for variant, environment in self._drafted():
            name = _file(variant, environment)
            for shown in (f"messages/{name}.txt", f"messages/{name}.short.txt", f"results/{name}.txt"):
                yield shown, f"{self.say('not-run-yet')}\n"

    def _drafted(self) -> Iterator[tuple[str, str]]:
        """What is declared and was not run yet, with its environment: a draft can be looked at."""
        for variant in self.incident.variants.values():
            for environment in variant.declared:
                if environment not in self.incident.not_run and self.incident.run(variant.name, environment) is None:
                    yield variant.name, environment


def turned(matrix: Matrix) -> bool:
    """Of two axes the longer makes the rows where it has more than six words: more columns do not fit a page."""
    return len(matrix.axes) == 2 and len(matrix.axes[1]) > max(6, len(matrix.axes[0]))


def wrong(runs: Iterable[Run]) -> list[float]:
    """How far off those are that finished on wrong gradients, the least first."""
    return sorted(run.gradient_error for run in runs if run.outcome == "diverge" and run.gradient_error is not None)


def _file(variant: str, environment: str) -> str:
    return variant if environment == "current" else f"{variant}@{environment}"


def _result(run: Run) -> str:
    """What a repro prints last, without the facts: all that one sees of a run that trains wrong."""
    shown = {"variant", "outcome", "gradient_error", "rank_spread", "worst", "unmoved", "unjudged"}
    result = run.model_dump(include=shown, exclude_none=True)
    result = {key: value for key, value in result.items() if value not in ([], {})}
    return f"RESULT {json.dumps(result)}\n"


@functools.lru_cache(1024)  # runs end alike
def _shortened(message: str) -> str:
    """What identifies an error: the beginning of its first two lines."""
    lines = message.splitlines()
    first = [textwrap.shorten(line, IN_LINE, placeholder=" …") for line in lines[:2]]
    return "\n".join(first) + " …" * (len(lines) > 2) + "\n"
