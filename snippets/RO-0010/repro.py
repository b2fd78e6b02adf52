"""A checkpoint is loaded into a model that ZeRO-3 has partitioned: which ways start the training from it?

    torchrun --nproc-per-node 2 repro.py reported
    torchrun --nproc-per-node 2 repro.py init-one-by-one

Objective: training starts from the checkpoint. A variant either raises, as it would in training, or trains three steps of plain SGD
and is compared with one process that loaded the same checkpoint and saw all samples. `from_random` is the same
difference to one process that loaded nothing: below 1 where the checkpoint was lost. With bf16 the one process rounds
as two ranks do: it computes in bf16, each rank's samples by themselves, and steps on float32 weights. These are
compared, with the float32 weights of DeepSpeed.
"""

import copy
import gc
import itertools
import json
import os
import sys
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

if not torch.accelerator.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported

import deepspeed
from deepspeed.utils import safe_get_full_fp32_param, safe_set_full_fp32_param

# --8<-- [start:variants]
DEFAULTS = dict(
    stage=3,
    where="init",  # "whole": a plain model, then initialize; "init": made under zero.Init; "engine": after initialize
    by="strict",  # how the checkpoint is loaded, see `load` and `load_into_engine`
    checks=False,  # zero_optimization.enable_sanity_checks
    dtype="float32",  # or "bf16": DeepSpeed then steps on float32 weights of its own, at every stage
    buffers=None,  # the checkpoint has those of a BatchNorm (in eval mode), and this is how they are loaded, see `load_buffers`
    head=None,  # the checkpoint has no head; its weights shall be 0.5, and this is where `nn.init` says so
)
WAYS = ("strict", "strict-false", "assign", "skip", "data", "gathered", "modifier")
ENGINE = (
    "one-by-one modifier-refresh set-fp32 set-fp32-modifier module-state module-state-fetch own own-module-only".split()
)
BF16 = dict(dtype="bf16")
BEFORE_AND_AFTER = {
    "whole-strict": dict(where="whole"),
    "engine-strict": dict(where="engine"),
    "engine-strict-refresh": dict(where="engine", by="strict-refresh"),
}
VARIANTS = (
    {f"{where}-{by}": dict(where=where, by=by) for where in ("init", "engine") for by in WAYS}
    | {f"init-{by}": dict(by=by) for by in ("one-by-one", "modifier-rank-0", "gathered-rank-0", "root-only")}
    | {f"whole-{by}": dict(where="whole", by=by) for by in ("strict", "one-by-one")}
    | {f"engine-{by}": dict(where="engine", by=by) for by in ENGINE}
    | {f"zero{stage}-engine-strict": dict(stage=stage, where="engine") for stage in (0, 1, 2)}
    | {
        "reported": {},  # load_state_dict into a model made under zero.Init
        "init-gathered-checked": dict(by="gathered", checks=True),
        "zero2-whole-strict": dict(stage=2, where="whole"),
        "zero2-engine-strict-refresh": dict(stage=2, where="engine", by="strict-refresh"),
        "head-whole-constructor": dict(where="whole", head="constructor"),
    }
    | {
        f"bf16-zero{stage}-{name}": dict(BF16, stage=stage, **how)
        for stage, (name, how) in itertools.product((0, 1, 2), BEFORE_AND_AFTER.items())
    }
    | {"bf16-init-one-by-one": dict(BF16, by="one-by-one")}
    | {f"bf16-engine-{by}": dict(BF16, where="engine", by=by) for by in ("one-by-one", "modifier-refresh")}
    | {f"buffers-{how}": dict(by="one-by-one", buffers=how) for how in ("apart", "strict-false", "left")}
    | {"buffers-rank-0": dict(by="modifier-rank-0", buffers="rank-0")}
    | {
        f"head-{at}": dict(by="modifier", head=at)
        for at in ("constructor", "own-constructor", "after", "after-modifier")
    }
)
# --8<-- [end:variants]

STEPS, BATCH, WIDTH = 3, 4, 8
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16}
ON_DEVICE = torch.accelerator.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.accelerator.current_accelerator() if ON_DEVICE else torch.device("cpu")
gc.freeze()  # each engine collects garbage, which takes a second with all that was imported


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    told = {}
    if s["stage"] == 3:
        told = {"persistence": "none", "gathering": "none", "gather_checks": "on" if s["checks"] else "off"}
    return told | {
        "strategy": f"zero-{s['stage']}",
        "model_by": "script",
        "new_head": s["head"] or "none",
        "checkpoint_buffers": s["buffers"] or "none",
        "dtype": s["dtype"],
        "checkpoint_into": "partitioned" if s["where"] == "init" else s["where"],
        "checkpoint_by": "load-state-dict" if s["by"] == "strict" else s["by"],
        "optimizer": "sgd",
        "deepspeed_backward": "engine",
        "buckets": "one",
        "offload": "none",
        "leaf": False,
        "overlap": s["stage"] == 3,
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


# --8<-- [start:model]
class OwnHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(WIDTH, 2 * WIDTH))
        nn.init.constant_(self.weight, 0.5)  # zero.Init has not partitioned it yet

    def forward(self, x):
        return x @ self.weight.T


class Model(nn.Module):
    def __init__(self, head=None, buffers=None):
        super().__init__()
        self.first = nn.Linear(WIDTH, 2 * WIDTH)
        self.norm = nn.BatchNorm1d(2 * WIDTH).eval() if buffers else nn.Identity()  # eval: it uses what was loaded
        self.last = nn.Linear(2 * WIDTH, 2 * WIDTH)
        self.head = OwnHead() if head == "own-constructor" else nn.Linear(2 * WIDTH, WIDTH, bias=False)
        if head == "constructor":
            nn.init.constant_(self.head.weight, 0.5)  # under zero.Init it was partitioned one line above, and is empty

    def forward(self, x):
        return self.head(torch.tanh(self.last(self.norm(torch.tanh(self.first(x))))))


# --8<-- [end:model]


def one_by_one(model, state):
    # --8<-- [start:fix]
    for name, p in model.named_parameters():  # on every rank, before deepspeed.initialize
        with deepspeed.zero.GatheredParameters(p, modifier_rank=0):
            if dist.get_rank() == 0:
                p.data.copy_(state[name])
    # --8<-- [end:fix]


def load_buffers(model, state, how):
    """After the parameters; "left": not at all; "rank-0": together with them, on rank 0 only."""
    if how == "apart":
        # --8<-- [start:buffers]
        buffers = {name: state[name] for name, _ in model.named_buffers() if name in state}
        model.load_state_dict(buffers, strict=False)  # on every rank
        # --8<-- [end:buffers]
    elif how == "strict-false":
        model.load_state_dict(state, strict=False)


# --8<-- [start:load]
def load(model, state, by, strict=True):
    if by in ("strict", "strict-false", "assign"):
        model.load_state_dict(state, strict=strict and by != "strict-false", assign=by == "assign")
    elif by == "skip":
        own = model.state_dict()
        model.load_state_dict({k: v for k, v in state.items() if v.shape == own[k].shape}, strict=False)
    elif by == "data":
        for name, p in model.named_parameters():
            p.data = state[name].clone()
    elif by == "one-by-one":
        one_by_one(model, state)
    else:  # "gathered": without modifier_rank; "root-only": what the model holds itself, not its layers
        parameters = list(model.parameters(recurse=by != "root-only"))
        with deepspeed.zero.GatheredParameters(parameters, modifier_rank=None if by.startswith("gathered") else 0):
            if dist.get_rank() == 0 or not by.endswith("rank-0"):
                model.load_state_dict(state, strict=strict)


def load_into_engine(engine, state, by):
    if by.startswith("module-state"):
        engine.load_module_state_dict({"module": state}, fetch_z3_params=by.endswith("fetch"))
    elif by.startswith("own"):  # a folder that DeepSpeed's save_checkpoint wrote
        engine.load_checkpoint(state, load_module_only=by.endswith("module-only"))
    elif by.startswith("set-fp32"):
        if by.endswith("modifier"):
            load(engine.module, state, "modifier")
        # --8<-- [start:set-fp32]
        for name, p in engine.module.named_parameters():
            safe_set_full_fp32_param(p, state[name])
        # --8<-- [end:set-fp32]
    else:
        load(engine.module, state, by.removesuffix("-refresh"))
        if by.endswith("refresh"):
            # --8<-- [start:refresh]
            engine.optimizer.refresh_fp32_params()
            # --8<-- [end:refresh]


# --8<-- [end:load]


def config(s):
    zero = {"stage": s["stage"]} | ({"stage3_param_persistence_threshold": 0} if s["stage"] == 3 else {})
    if s["checks"]:
        # --8<-- [start:checks]
        zero["enable_sanity_checks"] = True
        # --8<-- [end:checks]
    return {
        "bf16": {"enabled": s["dtype"] == "bf16"},
        "train_micro_batch_size_per_gpu": BATCH // dist.get_world_size(),
        "gradient_clipping": 0.0,  # newer releases clip at 1.0 unless told otherwise
        "zero_allow_untested_optimizer": True,  # plain SGD, to compare parameters
        "zero_optimization": zero,
    }


def engine_of(model, s):
    return deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), config=config(s))[0]


# --8<-- [start:train]
def run(variant):
    """Load and train; compare, on every rank, with one process that loaded the checkpoint, and with one that loaded nothing."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    rank, world_size, dtype = dist.get_rank(), dist.get_world_size(), DTYPES[s["dtype"]]
    data = torch.randn(STEPS, BATCH, WIDTH, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    torch.manual_seed(7)
    before = Model(buffers=s["buffers"]).to(DEVICE)
    if s["buffers"]:
        before.norm.running_mean.normal_()
        before.norm.running_var.uniform_(1, 2)
    state = {k: v.clone() for k, v in before.state_dict().items() if not (s["head"] and k.startswith("head"))}
    source = saved(before, s) if s["by"].startswith("own") else state
    torch.manual_seed(0)
    with deepspeed.zero.Init(config_dict_or_path=config(s), enabled=s["where"] == "init"):
        model = Model(s["head"], s["buffers"])
    model.to(DEVICE)
    if s["where"] == "engine":
        engine = engine_of(model, s)
        load_into_engine(engine, source, s["by"])
    else:
        load(model, state, s["by"], strict=not s["head"])
        load_buffers(model, state, s["buffers"])
        initialise_head(model, s["head"])
        engine = engine_of(model, s)
    try:
        for batch in data:
            engine.backward((engine(batch[rank::world_size].to(dtype)) - 1).square().mean())
            engine.step()
        trained = weights(engine, s)
    finally:
        engine.destroy()
    torch.manual_seed(0)
    alone = Model(buffers=s["buffers"]).to(DEVICE)
    from_random = compare(variant, trained, *train_alone(alone, data, dtype))["gradient_error"]
    alone.load_state_dict(state, strict=not s["head"])
    if s["head"]:
        nn.init.constant_(alone.head.weight, 0.5)
    return compare(variant, trained, *train_alone(alone, data, dtype)) | {"from_random": from_random}


def weights(engine, s):
    """Whole, by name. With bf16 the optimizer's float32 ones: the model's own round away much of what a step moves."""
    if hasattr(engine.optimizer, "fp32_groups"):  # bf16 at stage 0, where `safe_get_full_fp32_param` finds none
        return dict(zip(dict(engine.module.named_parameters()), engine.optimizer.fp32_groups[0], strict=True))
    found = {}
    for name, p in engine.module.named_parameters():
        with deepspeed.zero.GatheredParameters(p, enabled=s["stage"] == 3):
            found[name] = safe_get_full_fp32_param(p) if s["dtype"] == "bf16" else p.detach().clone()
    return found


def initialise_head(model, at):
    if at == "after":
        nn.init.constant_(model.head.weight, 0.5)
    if at == "after-modifier":
        # --8<-- [start:head]
        with deepspeed.zero.GatheredParameters(model.head.weight, modifier_rank=0):
            nn.init.constant_(model.head.weight, 0.5)
        # --8<-- [end:head]


def saved(model, s):
    """DeepSpeed's own checkpoint of a model, a folder."""
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    engine = engine_of(model, s)
    engine.save_checkpoint(folder[0])
    engine.destroy()
    return folder[0]


def train_alone(model, data, dtype):
    """The same steps in one process, each rank's samples by themselves: the weights after and before; `model` stays."""
    start = copy.deepcopy(model).to(dtype).float()  # the float32 weights begin as what bf16 keeps of the checkpoint
    model = copy.deepcopy(start)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in data:
        working, ranks = copy.deepcopy(model).to(dtype), dist.get_world_size()
        for rank in range(ranks):
            ((working(batch[rank::ranks].to(dtype)) - 1).square().mean() / ranks).backward()
        for p, q in zip(model.parameters(), working.parameters(), strict=True):
            p.grad = q.grad.float()
        optimizer.step()
    return dict(model.named_parameters()), dict(start.named_parameters())


# --8<-- [end:train]


# --8<-- [start:compare]
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


# --8<-- [end:compare]


if __name__ == "__main__":
    torch.set_num_threads(1)
    if DEVICE.type != "cpu":
        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(dist.get_default_backend_for_device(DEVICE), timeout=timedelta(seconds=60))
    result = run(sys.argv[1]) | {"facts": facts(sys.argv[1])}
    if dist.get_rank() == 0:
        print("RESULT", json.dumps(result), flush=True)
    dist.barrier()  # without it a rank that is done can take the store away from the other
    os._exit(0)  # else gloo's threads may abort, or block the end: seen with torch 2.6, pytorch/pytorch#154976
