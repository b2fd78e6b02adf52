"""transformers under ZeRO-3: which of its ways to a model with weights starts the training from them?

    torchrun --nproc-per-node 2 pretrained.py from-pretrained
    torchrun --nproc-per-node 2 pretrained.py from-config-skip

Objective: training starts from the checkpoint, a small Llama of random weights that is saved first. A variant either raises, or
trains three steps of plain SGD and is compared with one process that has the same weights and saw all samples.
"""

import gc
import json
import os
import sys
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist

if not torch.accelerator.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported

import deepspeed
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.integrations import HfDeepSpeedConfig

# --8<-- [start:variants]
# config: when HfDeepSpeedConfig(...) is made: "kept": before the model, and held; "dropped": before it, and not held; "late"; "none"
VARIANTS = {
    "from-pretrained": dict(config="kept", by="from-pretrained"),
    "from-pretrained-dropped": dict(config="dropped", by="from-pretrained"),
    "from-pretrained-late": dict(config="late", by="from-pretrained"),
    "from-pretrained-state": dict(config="kept", by="from-pretrained-state"),  # from_pretrained(None, state_dict=...)
    "again": dict(config="kept", by="again"),  # from_pretrained, then load_state_dict of another file
    "again-modifier": dict(config="kept", by="again-modifier"),
    "around": dict(config="none", by="around"),  # with deepspeed.zero.Init(): from_pretrained
    "around-kept": dict(config="kept", by="around"),
    "from-config": dict(config="kept", by="from-config"),  # then load_state_dict
    "from-config-skip": dict(config="kept", by="from-config-skip"),
    "from-config-modifier": dict(config="kept", by="from-config-modifier"),
    "constructor": dict(config="kept", by="constructor"),  # LlamaForCausalLM(config), then load_state_dict
}
# --8<-- [end:variants]

STEPS, BATCH, VOCABULARY = 3, 4, 32
SMALL = dict(
    vocab_size=VOCABULARY,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=2,
    initializer_range=0.2,  # with the usual 0.02 three steps move some weights too little to compare them
)
SETTINGS = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_clipping": 0.0,  # newer releases clip at 1.0 unless told otherwise
    "zero_allow_untested_optimizer": True,  # plain SGD, to compare parameters
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
}
gc.freeze()  # each engine collects garbage, which takes a second with all that was imported


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = VARIANTS[variant]
    made = s["by"].removesuffix("-modifier").removesuffix("-skip")
    by = s["by"].removeprefix(made).removeprefix("-") or "load-state-dict"
    whole = made == "constructor" or (made != "around" and s["config"] != "kept")
    return {
        "strategy": "zero-3",
        "model_by": {"again": "from-pretrained", "around": "from-pretrained-in-init"}.get(made, made),
        "hf_config": s["config"],
        "checkpoint_into": "whole" if whole else "partitioned",
        "checkpoint_by": "from-pretrained" if made in ("around", "from-pretrained", "from-pretrained-state") else by,
        "persistence": "none",
        "gathering": "none",
        "optimizer": "sgd",
        "deepspeed_backward": "engine",
        "buckets": "one",
        "offload": "none",
        "leaf": False,
        "overlap": True,
        "tuning": "full",
        "frozen": "none",
        "checkpointing": "none",
        "runs": "once",
        "runs_vary": False,
        "skips": "never",
        "second_use": "none",
        "backward_calls": "once",
        "accumulation": 1,
        "batch_size": BATCH // 2,
    }


# --8<-- [end:facts]


# --8<-- [start:made]
def made(folder, state, s):
    """The model, and what has to live as long as it."""
    by, kept = s["by"], None
    if s["config"] == "kept":
        # --8<-- [start:kept]
        kept = HfDeepSpeedConfig(SETTINGS)  # before the model, in a variable that lives as long
        # --8<-- [end:kept]
    elif s["config"] == "dropped":
        HfDeepSpeedConfig(SETTINGS)
    if by.startswith("from-config"):
        model = AutoModelForCausalLM.from_config(LlamaConfig(**SMALL))
    elif by == "constructor":
        model = LlamaForCausalLM(LlamaConfig(**SMALL))
    elif by == "from-pretrained-state":
        model = LlamaForCausalLM.from_pretrained(None, config=LlamaConfig(**SMALL), state_dict=dict(state))
    elif by == "around":
        with deepspeed.zero.Init(config_dict_or_path=SETTINGS):
            model = AutoModelForCausalLM.from_pretrained(folder)
    else:
        # --8<-- [start:from-pretrained]
        model = AutoModelForCausalLM.from_pretrained(folder)
        # --8<-- [end:from-pretrained]
    if by in ("from-config", "constructor", "again"):
        model.load_state_dict(state)
    elif by.endswith("modifier"):
        # --8<-- [start:modifier]
        with deepspeed.zero.GatheredParameters(list(model.parameters()), modifier_rank=0):
            model.load_state_dict(state)
        # --8<-- [end:modifier]
    elif by.endswith("skip"):
        own = model.state_dict()
        model.load_state_dict({k: v for k, v in state.items() if v.shape == own[k].shape}, strict=False)
    if s["config"] == "late":
        kept = HfDeepSpeedConfig(SETTINGS)
    return model, kept


# --8<-- [end:made]


# --8<-- [start:train]
def run(variant):
    """Load and train; compare, on every rank, with one process that loaded the same weights."""
    s = VARIANTS[variant]
    rank, world_size = dist.get_rank(), dist.get_world_size()
    data = torch.randint(VOCABULARY, (STEPS, BATCH, 6), generator=torch.Generator().manual_seed(1))
    torch.manual_seed(7)
    alone = LlamaForCausalLM(LlamaConfig(**SMALL))
    state = {k: v.clone() for k, v in alone.state_dict().items()}
    start = {name: p.detach().clone() for name, p in alone.named_parameters()}
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)
    first = LlamaForCausalLM(LlamaConfig(**SMALL)) if s["by"].startswith("again") else alone
    first.save_pretrained(folder[0])  # which rank 0 alone does
    dist.barrier()
    torch.manual_seed(0)
    model, kept = made(folder[0], state, s)
    engine = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), config=SETTINGS)[
        0
    ]
    try:
        for batch in data:
            mine = batch[rank::world_size]
            engine.backward(engine(input_ids=mine, labels=mine).loss)
            engine.step()
        trained = {}
        for name, p in model.named_parameters():
            with deepspeed.zero.GatheredParameters(p):
                trained[name] = p.detach().clone()
    finally:
        engine.destroy()
        del kept
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for batch in data:
        optimizer.zero_grad()
        alone(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
    return compare(variant, trained, dict(alone.named_parameters()), start)


# --8<-- [end:train]


# Copied from scripts/readyonce/compare.py, which `readyonce render` writes here.
LIMIT = 1e-3  # the largest gradient error of a match


def compare(variant, trained, reference, start):
    """How a run ended. The tensors are {name: whole tensor}: of this rank, of one process, and of both before training.

    A gradient error is a tensor's distance to one process's, as a share of how far that one moved it from `start`; a
    rank spread is its distance to rank 0's. What moved by less than rounding can show is named, and not judged.
    """
    assert trained.keys() == reference.keys() == start.keys(), "not the same tensors"
    errors, spreads, unmoved, unjudged = {}, {}, [], {}
    for name, q in reference.items():
        p, q, first = trained[name].detach(), q.detach(), trained[name].detach().clone()
        assert p.shape == q.shape == start[name].shape, f"{name}: {p.shape}, {q.shape}, {start[name].shape}"
        if dist.is_initialized():
            dist.broadcast(first, src=0)
        moved = (q - start[name].detach()).abs().max().item()
        rounding = 2 * torch.finfo(q.dtype).eps * q.abs().max().item() + torch.finfo(q.dtype).tiny
        if moved < rounding:
            unmoved.append(name)
        elif moved < rounding / LIMIT:
            unjudged[name] = rounding / moved  # the smallest error that it can show
        off, apart = ((p - other).abs().max().nan_to_num(nan=3e38).item() for other in (q, first))
        errors[name], spreads[name] = (part / max(moved, rounding / LIMIT) for part in (off, apart))
    assert len(unjudged) <= len(errors) / 20, f"these moved too little to be judged: {unjudged}"
    worst = max(errors, key=errors.get)
    ranks = [(errors[worst], worst, max(spreads.values()))]
    if dist.is_initialized():
        ranks = dist.get_world_size() * ranks
        dist.all_gather_object(ranks, ranks[0])
    error, worst, _ = max(ranks)
    told = {"variant": variant, "outcome": "match" if error <= LIMIT else "diverge", "gradient_error": error}
    told |= {"rank_spread": max(spread for *_, spread in ranks), "worst": worst}
    return told | {key: value for key, value in (("unmoved", unmoved), ("unjudged", unjudged)) if value}


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    result = run(sys.argv[1]) | {"facts": facts(sys.argv[1])}
    if dist.get_rank() == 0:
        print("RESULT", json.dumps(result), flush=True)
    dist.barrier()  # without it a rank that is done can take the store away from the other
    os._exit(0)  # else gloo's threads may abort, or block the end: seen with torch 2.6, pytorch/pytorch#154976
