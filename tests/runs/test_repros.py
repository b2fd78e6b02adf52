"""A repro is one file that a reader can copy: it stands alone and names its variants."""

import ast
import importlib.util
import json
import re
import sys
import textwrap
from pathlib import Path

import pytest

from readyonce.data import articles
from readyonce.data.project import LANGUAGES
from readyonce.lab import counts, processes
from support.patience import PATIENCE
from support.project import REPROS


def loaded(incident, path):
    spec = importlib.util.spec_from_file_location(f"{incident}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


@pytest.mark.parametrize("incident, name", REPROS)
def test_variants_are_those_declared(known, incident, name):
    path = known.incidents[incident].folder / name
    declared = [variant.name for variant in known.incidents[incident].variants.values() if variant.script == name]
    try:
        written = loaded(incident, path).VARIANTS
    except ModuleNotFoundError:  # it needs packages that are not here; its table is a plain one
        assert "current" not in known.incidents[incident].meta.files[name]
        assigned = (it for it in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(it, ast.Assign))
        (table,) = (it.value for it in assigned if ast.unparse(it.targets[0]) == "VARIANTS")
        written = [key.value for key in table.keys]
    assert sorted(written) == sorted(declared)


LOADS = """
import os
os.environ.setdefault("DS_ACCELERATOR", "cpu")
import deepspeed, torch, torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
state = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).state_dict()
state["1.running_mean"] += 5
config = {"train_batch_size": 1, "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}}
with deepspeed.zero.Init(config_dict_or_path=config):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
CODE
with deepspeed.zero.GatheredParameters(list(model.parameters())):
    loaded = model.state_dict()
    assert loaded.keys() == state.keys()
    assert all(torch.equal(loaded[name], state[name]) for name in state)
print("all loaded", flush=True)
os._exit(0)
"""


def test_what_the_page_prints_for_zero_init_loads_parameters_and_buffers(known, tmp_path):
    """The fix, and then the code of the tab `zero.Init`, executed as they are printed, on a model with a BatchNorm."""
    incident, printed = known.incidents["RO-0010"], set()
    for language in LANGUAGES:
        page = (known.root / "docs" / language / "incidents" / "RO-0010.md").read_text(encoding="utf-8")
        (tab,) = re.findall(r'^ *=== "DeepSpeed.*?zero\.Init"\n(.*?)^ *===', page, re.MULTILINE | re.DOTALL)
        sections = [incident.meta.fix.code, *re.findall(r'^ +--8<-- "RO-0010/(.+)"$', tab, re.MULTILINE)]
        files = (section.split(":") for section in sections)
        found = (articles.section((incident.folder / file).read_text(encoding="utf-8"), name) for file, name in files)
        printed.add("".join(map(textwrap.dedent, found)))
    (code,) = printed
    script, python = tmp_path / "loads.py", Path(sys.executable)
    script.write_text(LOADS.replace("CODE\n", code), encoding="utf-8")
    with processes.running([*processes.torchrun(python, 1), script], python, str(tmp_path)) as process:
        ended = process.wait(PATIENCE)
    assert ended == 0 and "all loaded" in processes.log_of(tmp_path), processes.log_of(tmp_path)


def test_the_config_on_the_page_is_the_one_that_was_run(known):
    folder = known.incidents["RO-0001"].folder
    module = loaded("RO-0001", folder / "zero.py")
    shown = json.loads((folder / "zero3-small-bucket.json").read_text(encoding="utf-8"))
    assert shown == module.config(module.VARIANTS["zero3-twice-reentrant-small-bucket-accumulate-1"], world_size=2)


@pytest.mark.parametrize("arguments, said, differ", [([], "right", False), (["reentrant"], "WRONG GRADIENTS", True)])
def test_the_checks_for_readers_tell_right_from_wrong(known, tmp_path, arguments, said, differ):
    script, python = known.root / "snippets" / "concepts" / "right-gradients.py", Path(sys.executable)
    with processes.running([*processes.torchrun(python, 2), script, *arguments], python, str(tmp_path)) as process:
        code = process.wait(PATIENCE)
    log = processes.log_of(tmp_path)
    assert code == 0 and re.findall(r": (right|WRONG GRADIENTS)$", log, re.MULTILINE) == [said], log
    assert ("rank 1 is not rank 0: 6 parameters" in log) == differ, log


def test_the_checks_by_symptom_tell_wrong_from_right(known, tmp_path):
    script, python = known.root / "snippets" / "concepts" / "symptoms.py", Path(sys.executable)
    with processes.running([*processes.torchrun(python, 2), script], python, str(tmp_path)) as process:
        code = process.wait(PATIENCE)
    log = processes.log_of(tmp_path)
    told = dict(re.findall(r"^(?:\[.*?\]: ?)?(\w+): right: nothing; wrong: (.*)$", log, re.MULTILINE))
    each = ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert code == 0 and told == {
        "moved": str(each),
        "loaded": str(each),
        "factor": str(dict.fromkeys(each, 4.0)),
        "rate": "3",
    }, log


def peft_model(repro):
    from peft import LoraConfig, get_peft_model

    return get_peft_model(repro.tiny(repro.DEFAULTS), LoraConfig(target_modules=["q_proj"]))


def jet_moe(_):
    """Its coefficient is called `aux_loss_coef`."""
    from transformers import JetMoeConfig, JetMoeForCausalLM

    config = JetMoeConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_key_value_heads=2,
        kv_channels=8,
        num_local_experts=4,
        num_experts_per_tok=2,
        output_router_logits=True,
        aux_loss_coef=0.1,
    )
    return JetMoeForCausalLM(config)


MOE_MODELS = {
    "plain": lambda repro: repro.tiny(repro.DEFAULTS),
    "peft": peft_model,
    "vision-language": lambda repro: repro.tiny(repro.DEFAULTS | repro.VL),
    "another-name": jet_moe,
    "no-loss-kwargs": lambda repro: repro.tiny(repro.DEFAULTS | repro.VARIANTS["equal-qwen3-vl"]),
}


@pytest.mark.parametrize("kind", MOE_MODELS)
def test_the_fix_for_moe_counts_the_auxiliary_loss_once_or_stops(known, tmp_path, kind):
    import torch
    from huggingface_hub.errors import StrictDataclassError
    from transformers import TrainingArguments

    repro = loaded("RO-0013", known.incidents["RO-0013"].folder / "repro.py")
    model = MOE_MODELS[kind](repro)
    model.router_aux_loss_coef = 0.0  # as the page said before: that reaches the plain model only
    trainer = repro.MoeTrainer(model, TrainingArguments(str(tmp_path), use_cpu=True, report_to=[]))
    trainer.coefficient, trainer.current_gradient_accumulation_steps = 0.1, 1
    tokens = torch.arange(24).reshape(2, 12)
    batch = {"input_ids": tokens, "labels": tokens}
    if kind == "no-loss-kwargs":
        with pytest.raises(ValueError, match="the Trainer divides this loss itself"):
            trainer.compute_loss(model.train(), batch)
        return
    loss = trainer.compute_loss(model.train(), batch)
    out = model.eval()(**batch)
    main = torch.nn.functional.cross_entropy(out.logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    assert ((loss - main) / out.aux_loss).item() == pytest.approx(0.1, rel=1e-4)
    coefficient = {"plain": 0.0, "peft": 0.1, "vision-language": 0.1, "another-name": 0.1}  # which the assignment left
    assert repro.used_coefficient(model, batch) == pytest.approx(coefficient[kind])
    with pytest.raises(StrictDataclassError, match="expected float"):
        repro.tiny(repro.DEFAULTS).config.router_aux_loss_coef = 0


def test_which_published_errors_two_ranks_show(known, tmp_path):
    """As docs/*/published.md says: a loss in transfer by every comparison, the others only against the loop as meant."""
    script, python = known.root / "snippets" / "concepts" / "published.py", Path(sys.executable)
    with processes.running([*processes.torchrun(python, 2), script], python, str(tmp_path)) as process:
        code = process.wait(PATIENCE)
    log = processes.log_of(tmp_path)
    told = dict(re.findall(r"^(?:\[.*?\]: ?)?([\w-]+): (ranks .*)$", log, re.MULTILINE))
    same = "ranks equal; same code equal; as meant differs"
    shown = "ranks differs; same code differs; as meant differs"
    assert code == 0, log
    assert told == dict.fromkeys(("no-zero-grad", "frozen-by-name", "not-frozen"), same) | {"lost-in-transfer": shown}


def test_what_concept_pages_count_is_counted_again(known):
    for name, file in counts.files(known).items():
        for seen in counts.measure(known, name, file, "current", Path(sys.executable)):
            stored = counts.evidence(known)["current"].count(name, seen.setting)
            assert (seen.count > 0, seen.of) == (stored.count > 0, stored.of), f"{name}, {seen.setting}"
