"""Gradient checkpointing under FSDP: which settings train right?

    torchrun --nproc-per-node 2 fsdp.py fsdp1-lora-once-reentrant-inside
    torchrun --nproc-per-node 2 fsdp.py fsdp2-full-twice-reentrant-around

Needs torch >= 2.6 and nothing else. A variant's name joins one word of each axis below. It either
raises, as it would in training, or trains three steps and says in its last line how far its
parameters are from a single-process run.
"""

import itertools
import json
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.utils.checkpoint import checkpoint

# --8<-- [start:variants]
DEFAULTS = dict(
    fsdp=1,  # FullyShardedDataParallel, or 2: fully_shard
    lora=True,  # False: every parameter is trained
    runs="once",  # or "twice": how often the whole stack runs in each backward
    checkpointing=None,  # or "reentrant", or "non-reentrant"
    place="around",  # checkpoint(layer, x), the layer being an FSDP unit; or "inside" its forward
)
AXES = (
    dict(fsdp1={}, fsdp2=dict(fsdp=2)),
    dict(lora={}, full=dict(lora=False)),
    dict(once={}, twice=dict(runs="twice")),
    {"off": {}}
    | {
        f"{checkpointing}-{place}": dict(checkpointing=checkpointing, place=place)
        for checkpointing in ("reentrant", "non-reentrant")
        for place in ("around", "inside")
    },
)
VARIANTS = {
    "-".join(words): {key: axis[word][key] for axis, word in zip(AXES, words) for key in axis[word]}
    for words in itertools.product(*AXES)
}
# --8<-- [end:variants]

STEPS, BATCH, LENGTH, WIDTH = 3, 4, 8, 16
ON_DEVICE = torch.accelerator.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.accelerator.current_accelerator() if ON_DEVICE else torch.device("cpu")


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    return {
        "strategy": f"fsdp{s['fsdp']}",
        "tuning": "lora" if s["lora"] else "full",
        "frozen": "base" if s["lora"] else "none",
        "checkpointing": s["checkpointing"] or "none",
        "checkpointed": "all" if s["lora"] else "some",
        "checkpoint_place": s["place"],
        "runs": "once" if s["runs"] == "once" else "last",
        "runs_vary": False,
        "skips": "never",
        "second_use": "none",
        "backward_calls": "once",
        "accumulation": 1,
        "batch_size": BATCH // 2,
    }


# --8<-- [end:facts]


# --8<-- [start:model]
class LoraLayer(nn.Module):
    def __init__(self, settings, rank=4):
        super().__init__()
        self.settings = settings
        self.norm = nn.RMSNorm(WIDTH, elementwise_affine=False)
        self.base = nn.Linear(WIDTH, WIDTH)
        self.lora_A = nn.Linear(WIDTH, rank, bias=False)
        self.lora_B = nn.Linear(rank, WIDTH, bias=False)  # not zero: lora_A needs a gradient

    def forward(self, x):
        return checkpointed(self.compute, x, self.settings, "inside")

    def compute(self, x):
        normed = self.norm(x)
        return x + torch.tanh(self.base(normed) + self.lora_B(self.lora_A(normed)))


def checkpointed(function, x, settings, place):
    if settings["checkpointing"] is None or settings["place"] != place:
        return function(x)
    return checkpoint(function, x, use_reentrant=settings["checkpointing"] == "reentrant")


class Model(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.settings = settings
        self.embed = nn.Embedding(32, WIDTH)
        self.layers = nn.ModuleList(LoraLayer(settings) for _ in range(4))
        self.head = nn.Linear(WIDTH, 1)
        if settings["lora"]:
            for name, parameter in self.named_parameters():
                parameter.requires_grad_("lora_" in name)

    def forward(self, tokens):
        x = self.embed(tokens)
        if not x.requires_grad:
            x.requires_grad_()  # what peft's enable_input_require_grads() does
        for _ in range(2 if self.settings["runs"] == "twice" else 1):
            for layer in self.layers:
                x = checkpointed(layer, x, self.settings, "around")
        return self.head(x)


# --8<-- [end:model]


# --8<-- [start:train]
def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    settings = {**DEFAULTS, **VARIANTS[variant]}
    model = train(settings, dist.get_rank(), dist.get_world_size(), shard)
    reference = train({**settings, "checkpointing": None})
    return compare(variant, whole(model), named(reference), named(make(settings)))


def shard(model, settings):
    """Each layer is a unit of its own, and the rest is one."""
    if settings["fsdp"] == 1:
        return FullyShardedDataParallel(
            model,
            auto_wrap_policy=ModuleWrapPolicy({LoraLayer}),
            use_orig_params=True,  # a unit may hold frozen and trained parameters
            device_id=DEVICE,  # or it refuses to run without an accelerator
        )
    for layer in model.layers:
        fully_shard(layer)
    return fully_shard(model)


def make(settings):
    torch.manual_seed(0)
    return Model(settings).to(DEVICE)


def train(settings, rank=0, world_size=1, wrap=lambda model, settings: model):
    """Three steps of plain SGD on this rank's share of each batch; returns the trained model."""
    model = wrap(make(settings), settings)
    optimizer = torch.optim.SGD(trainable(model), lr=0.1)
    for batch in torch.randint(32, (STEPS, BATCH, LENGTH)):
        (model(batch[rank::world_size].to(DEVICE)) - 1).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def whole(model):
    """The trained parameters, gathered from the ranks."""
    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(model):
            return {name: p.detach().clone() for name, p in named(model).items()}
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()  # a failed run can leave units whole, with old values
    return {name: p.full_tensor() for name, p in named(model).items()}


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


def trainable(model):
    return [p for p in model.parameters() if p.requires_grad]


def named(model):
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


# --8<-- [end:compare]


if __name__ == "__main__":
    torch.set_num_threads(1)
    if DEVICE.type != "cpu":
        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
    backend = dist.get_default_backend_for_device(DEVICE)
    dist.init_process_group(backend, timeout=timedelta(seconds=60))
    result = run(sys.argv[1]) | {"facts": facts(sys.argv[1])}
    if dist.get_rank() == 0:
        print("RESULT", json.dumps(result), flush=True)
    dist.barrier()  # without it a rank that is done can take the store away from the other
    os._exit(0)  # else gloo's threads may abort, or block the end: seen with torch 2.6, pytorch/pytorch#154976
