"""The fix in the reader's own stack: every form that runs here is run again, and shown wherever the fix is."""

import json
import re
import textwrap

import pytest

from readyonce.data import articles, frameworks
from readyonce.data.project import LANGUAGES
from readyonce.diagnose import engine, report
from readyonce.pages import terminal
from readyonce.rules import diagnose as rules
from support.logs import error
from support.project import KNOWN, ROOT, apart_at_most, command

FORMS = [
    pytest.param(name, form, id=f"{name}-{number}")
    for name, framework in KNOWN.frameworks.items()
    for number, form in enumerate(framework.forms)
]
ENGINE = engine.Rules(rules.compile_rules(KNOWN))
OPTION = "swift rlhf"


# ------------------------------------------------------------------------------ the forms


@pytest.mark.parametrize("name, form", FORMS)
def test_every_form_is_shown_and_says_on_what_it_rests(name, form):
    for language in LANGUAGES:
        made = frameworks.tabs(KNOWN, [form.setting], language, "../")
        title = KNOWN.frameworks[name].title[language]
        tab = made.split(f'=== "{title}"\n', 1)[1].split("\n=== ", 1)[0]
        for line in frameworks.shown(KNOWN, form).splitlines():
            assert line.strip() in tab
        assert frameworks.proof(KNOWN, form, language, "../") in tab
        assert frameworks.proof(KNOWN, form, language, "../").startswith("*")


def test_runs_that_words_name_are_stored():
    for framework in KNOWN.frameworks.values():
        for form in framework.forms:
            for language in LANGUAGES:
                named = re.findall(r"`(\w+\.py [\w -]+)`", form.text[language] if form.text else "")
                assert set(named) <= set(KNOWN.stack_runs), (framework.framework, language)


def test_gradients_are_as_near_as_the_page_says():
    """`concepts/right-gradients#frameworks` gives the largest distance."""
    for name, seen in KNOWN.stack_runs.items():
        if seen.gradient and seen.gradient.alike:
            assert seen.gradient.distance <= apart_at_most(name), name


def test_a_gradient_that_is_a_mean_of_means_is_told_with_its_distance():
    (seen,) = (seen for name, seen in KNOWN.stack_runs.items() if "unequal" in name)
    assert not seen.gradient.alike
    for language in LANGUAGES:
        text = KNOWN.frameworks["axolotl"].forms[0].text[language]
        assert "average_tokens_across_devices" in text and f"{seen.gradient.distance:g}" in text


def test_python_is_whole():
    """What is shown compiles as it stands."""
    for framework in KNOWN.frameworks.values():
        for form in framework.forms:
            if form.code:
                compile(frameworks.shown(KNOWN, form), form.code, "exec")


@pytest.mark.parametrize("language", LANGUAGES)
def test_pages_with_the_fix_have_the_tabs(language):
    pages = [
        "decision.md",
        *(f"errors/{name}.md" for name, it in KNOWN.families.items() if it.settings),
    ]
    for page in pages:
        assert '--8<-- "frameworks/' in (ROOT / "docs" / language / page).read_text(encoding="utf-8"), page
    text = terminal.for_terminal(KNOWN, "RO-0001", language, colour=False)
    for title in ("TRL", "LLaMA-Factory", "Axolotl", "Lightning"):
        assert f"\n{title}\n" in text
    assert "SFTConfig(" in text and "use_reentrant_gc: false" in text and "===" not in text


def test_where_the_fix_is_another_no_switch_is_shown():
    for language in LANGUAGES:
        made = frameworks.includes(KNOWN, language)["frameworks/zero3-empty-gradient.md"]
        assert "use_reentrant" not in made and "find_unused" not in made and "audio_loss" in made


# ------------------------------------------------------------------------------ diagnose


def log(*places):
    """A traceback through these files, of the error that three incidents share."""
    files = "".join(f'  File "/env/lib/python3.11/site-packages/{place}", line 10, in step\n' for place in places)
    error = "RuntimeError: Expected to mark a variable ready only once. This error is caused by one of the following"
    return f"Traceback (most recent call last):\n{files}{error}\n"


LOGS = {  # the reader's stack in the log -> its own words in the fix
    None: (log("torch/autograd/graph.py"), "checkpoint(layer, x, use_reentrant=False)"),
    "trl": (log("trl/trainer/sft_trainer.py", "transformers/trainer.py"), "SFTConfig("),
    "ms-swift": (log("swift/trainers/mixin.py", "transformers/trainer.py"), "--gradient_checkpointing_kwargs"),
}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("stack", LOGS)
def test_without_an_incidents_own_words_the_familys_fix_is_shown(stack, language):
    text, wanted = LOGS[stack]
    told = engine.diagnose(ENGINE, text.encode(), "log", language)
    fix, family = told.json["fix"], KNOWN.families["ddp-ready-twice"]
    assert fix["incident"] is None and fix["stack"] == stack
    assert fix["text"] == family.fix[language]
    assert wanted in fix["forms"][0]["code"] and fix["forms"][0]["stack"] == (stack or "pytorch")
    assert len(fix["questions"]) == len(family.questions) + bool(family.otherwise)
    assert {form["stack"] for form in fix["forms"]} >= {"pytorch", "transformers", "trl", "axolotl", "llamafactory"}
    for shown in (report.text(ENGINE, told, language), report.markdown(ENGINE, told, language)):
        after = shown[shown.index(family.fix[language].replace("`", "")) :]
        assert OPTION not in after and KNOWN.incidents["RO-0001"].meta.fix.text[language].replace("`", "") not in shown
        assert wanted in after and family.questions[0].ask[language].replace("`", "") in after.replace("`", "")
        if stack:  # the log's own comes first
            assert after.index(wanted) < after.index("TrainingArguments(")


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_incidents_own_fix_needs_its_framework_in_the_log(language):
    grpo = log("trl/trainer/grpo_trainer.py")
    other = engine.diagnose(ENGINE, grpo.encode(), "log", language)
    assert other.json["incidents"][0]["id"] == "RO-0001"  # the log names GRPO
    assert other.json["fix"]["incident"] is None and other.json["fix"]["stack"] == "trl"
    own = engine.diagnose(ENGINE, (grpo + "swift rlhf --rlhf_type grpo\n").encode(), "log", language)
    assert own.json["fix"]["incident"] == "RO-0001" and own.json["fix"]["questions"] == []
    assert KNOWN.incidents["RO-0001"].meta.fix.option in report.text(ENGINE, own, language)


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_incidents_own_fix_is_shown_as_code_where_it_has_no_option(language):
    data = (ROOT / "tests/logs/RO-0005-reported.log").read_bytes()
    told = engine.diagnose(ENGINE, data, "log", language)
    fix, code = told.json["fix"], articles.fix_of(KNOWN, KNOWN.incidents["RO-0005"])
    assert fix["incident"] == "RO-0005" and code.startswith("def ")
    assert [form["code"] for form in fix["forms"]] == [code]
    assert f"```python\n{code}\n```" in report.markdown(ENGINE, told, language)
    assert textwrap.indent(code, "      ") in report.text(ENGINE, told, language)


EMPTIED = (
    '  File "deepspeed/runtime/zero/stage3.py", line 9, in backward\n    self.loss_scaler.backward(loss.float())\n'
    "RuntimeError: The size of tensor a (0) must match the size of tensor b (4096) at non-singleton dimension 1\n"
)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_strategy_alone_brings_no_incidents_own_fix(language):
    told = engine.diagnose(ENGINE, EMPTIED.encode(), "log", language)
    own = KNOWN.incidents["RO-0005"].meta.fix.text[language].replace("`", "")
    assert told.json["error"] == "zero3-empty-gradient" and told.json["incidents"][0]["id"] == "RO-0005"
    assert told.json["fix"]["incident"] is None
    for shown in (report.text(ENGINE, told, language), report.markdown(ENGINE, told, language)):
        assert own not in shown.replace("`", "") and ENGINE.data["words"]["first"][language] not in shown
        assert {"en": "the cause is unknown", "zh": "原因不明"}[language] in shown


def has_a_page_of_its_own(incident):
    """Whether its error has: of a look-alike Diagnose says what the error is, and names the incidents below."""
    return incident.meta.errors and KNOWN.families[incident.meta.errors[0]].page == "own"


HINTS = [
    pytest.param(id, hint, id=f"{id}-{number}")
    for id, incident in KNOWN.incidents.items()
    for number, hint in enumerate(incident.meta.hints if has_a_page_of_its_own(incident) else ())
]


@pytest.mark.parametrize("id, hint", HINTS)
def test_an_incidents_own_fix_needs_a_hint_at_its_cause(id, hint):
    incident = next(it for it in ENGINE.data["incidents"] if it["id"] == id)
    family = incident["errors"][0]
    stack = next((it["logs"][0] for it in ENGINE.data["frameworks"] if it["name"] == incident["stack"]), "")
    for text in hint.any:
        told = engine.diagnose(ENGINE, f"{stack}\n{text}\n{error(family)}\n".encode(), "log")
        assert told.json["error"] == family
        assert told.json["fix"]["incident"] == (id if hint.cause else None), text


def test_a_family_of_one_incident_says_its_own_fix():
    text = "RuntimeError: Function MulBackward0 returned an invalid gradient at index 0 - got [0] but expected shape compatible with [7]\n"
    told = engine.diagnose(ENGINE, text.encode(), "log")
    assert told.json["fix"]["incident"] is None
    assert {form["setting"] for form in told.json["fix"]["forms"]} == {"zero-input"}


def test_json_on_the_command_line(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(LOGS["trl"][0])
    told = json.loads(command("diagnose", path, "--format", "json").stdout)
    assert told["fix"]["stack"] == "trl" and told["fix"]["forms"][0]["stack"] == "trl"
    look_alike = engine.diagnose(ENGINE, b"RuntimeError: 'weight' must be 2-D\n")
    assert look_alike.json["fix"] is None


def test_links_are_no_part_of_a_question():
    for family in ENGINE.data["families"]:
        for question in family["questions"]:
            assert not re.search(r"\]\(|\*\*", question["en"] + question["zh"])
