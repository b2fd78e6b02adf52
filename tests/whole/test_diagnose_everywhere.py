"""What must hold of every known error, and of every text that is none."""

import json

import pytest

from readyonce.diagnose import engine as diagnose
from support.logs import (
    BEFORE,
    CHANGES,
    CONFUSERS,
    ENGINE,
    GUIDES,
    LOGS,
    MESSAGES,
    REPORTS,
    TITLES,
    UNCOVERED,
    apart,
    before_each,
    error,
    pasted_in_pieces,
    read,
    told,
)
from support.project import KNOWN, ROOT, command, edit, suite


@pytest.mark.parametrize("before", BEFORE)
def test_what_stands_before_an_error_changes_no_answer(before):
    """For known errors and for others: launchers, loggers, bars, sentences."""
    for text in UNCOVERED:
        bare, answer = told(text).json, told(before + text).json
        assert bare["exception"]["text"] == text and bare["line"] == 1
        answer["exception"]["rank"] = None
        assert answer == bare, (before + text, answer)
        later = f"{before}{text}\n{before}{error('nccl-watchdog')}"
        assert told(later).json["exception"]["text"] == text, later
        launched = f"{before}{text}\n{before}torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        assert told(launched).json["exception"]["text"] == text, launched
    for entry in MESSAGES:
        bare, answer = told(entry["message"]).json, told(before_each(entry["message"], before)).json
        assert answer["error"] == bare["error"], (before, entry["message"], answer)


def test_ordinary_text_holds_no_part_of_an_error():
    """Source, notes and logs of other failures, in pieces as people paste; of the libraries: runs/test_libraries.py."""
    paths = [*(ROOT / "scripts").rglob("*.py"), *suite(), ROOT / "README.md", ROOT / "LICENSE"]
    paths = [path for path in paths if path.name != "test_diagnose.py"]  # the texts above
    paths += [path for path in LOGS if read(path)[0]["kind"] in ("unknown", "wrapper-only")]
    assert pasted_in_pieces(paths) >= 2000


@pytest.mark.parametrize("family", KNOWN.families)
def test_a_line_cut_at_the_edge_belongs_to_its_error(family):
    """From the first 30 letters of a message on, wherever it is cut; some texts begin as others do."""
    for wording in KNOWN.families[family].wordings:
        line = wording.all[0]
        if wording.needs or wording.strategy or (wording.frame and not wording.bare) or line.startswith("assert"):
            continue
        for end in range(30, len(line)):
            answer = told("Traceback (most recent call last):\n  ...\n[rank0]: RuntimeError: " + line[:end]).json
            if line[:end].strip() not in sum(TITLES.values(), []):  # the whole title of another, maybe
                assert answer["error"] == family or family in answer["words_of"], (line[:end], answer)
            assert answer["kind"] != "fragment" or answer["line"] == 3


@pytest.mark.parametrize("change", ["in HTML", "in HTML, escaped twice"])
def test_html_entities_change_no_answer(change):
    texts = [read(path)[1] for path in LOGS] + [entry["message"] for entry in MESSAGES] + UNCOVERED + GUIDES + REPORTS
    texts += [text for groups in CONFUSERS.values() for group in groups.values() for text in group]
    for text in texts:
        assert told(CHANGES[change](text)).json == told(text).json, text
    for text in ("&lt", "&;", "&#0;", "&#x1b;", "&amp;" * 2000, "&" * 20_000):
        assert told(text).json["kind"] == "unknown"


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "scripts" / "readyonce" / "rules" / "diagnose.py").touch(),
        lambda root: edit(root / "snippets" / "errors" / "no-grad-fn.yml", "no-grad-fn", "no-grad-fn"),
        lambda root: (root / "snippets" / "errors" / "fsdp-dtype.yml").unlink(),
    ],
    ids=["code", "signature", "deletion"],
)
def test_what_is_older_than_its_sources_is_compiled_again(copy, change):
    compiled, package = copy / "build" / "rules.json", {"PYTHONPATH": str(copy / "scripts")}
    assert command("diagnose", "-", root=copy, environment=package, input="fine\n").returncode == 1
    compiled.write_text('{"families": []}', encoding="utf-8")
    change(copy)
    done = command("diagnose", "-", root=copy, environment=package, input="fine\n")
    assert done.returncode == 1, done.stderr
    assert "path" in json.loads(compiled.read_text(encoding="utf-8"))["families"][0]


def test_letters_lost_at_the_wrap():
    """Rare and hopeless now and then, as where a wording's first letters are lost: few may be missed, none be another."""
    widths, logs = (68, 72, 80, 100, 132, 136), [read(path) for path in LOGS]
    wanted = [expected.get("error") for expected, _ in logs for _ in widths]
    found = [told(apart(log, width)).json["error"] for _, log in logs for width in widths]
    assert all(error in (None, name) for error, name in zip(found, wanted))
    assert sum(error == name for error, name in zip(found, wanted)) >= 0.85 * len(found)


PAGES = sorted((ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("folder", sorted({path.parent for path in PAGES}), ids=lambda path: path.as_posix()[-40:])
def test_our_own_pages_are_no_hit(folder):
    """But for a look-alike's page, whose title is the error's text: that is of its own family, or of none."""
    for path in (path for path in PAGES if path.parent == folder):
        answer = diagnose.diagnose(ENGINE, path.read_bytes())
        own = {path.stem} if KNOWN.is_generated(path) else set()
        assert answer.json["error"] in {None, *own}, (path, answer.json, answer.around)
        if answer.json["words_of"] and answer.note != "mention":  # a page on an error, whose title that is
            assert {*answer.json["words_of"]} & {path.stem, *_errors_of(path)}, (path, answer.json, answer.around)


def _errors_of(path):
    return next((it.meta.errors for id, it in KNOWN.incidents.items() if id in path.as_posix()), ())
