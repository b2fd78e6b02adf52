"""LoRA with gradient checkpointing under DDP: "Expected to mark a variable ready only once".

    torchrun --nproc-per-node 2 repro.py reported
    torchrun --nproc-per-node 2 repro.py non-reentrant

Needs torch >= 2.6 and nothing else. A variant either raises, as it would in training, or trains
three steps and says in its last line how far its parameters are from a single-process run.
"""

import contextlib
import itertools
import json
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

# --8<-- [start:variants]
DEFAULTS = dict(
    checkpointing="reentrant",  # or "non-reentrant", or None
    checkpointed=(0, 1, 2, 3),  # which layers
    find_unused_parameters=True,  # what transformers' Trainer picks for a PeftModel
    static_graph=False,
    runs="once",  # or "stack-twice", "layers-twice", "layer-1-twice", "two-forwards"
    every_second_step=None,  # the last layer is left out ("skip") or runs again ("repeat")
    mode="train",  # or "eval", or "generate": eval() for a generation, then train()
    outside=None,  # or "extra": a parameter that the loss uses and forward does not
    second_use=None,  # where layer 1's lora_B is read once more: "input" and "output" of forward, or "loss"
    two_losses=False,  # one more, on the output of layer 1
    backward="summed",  # or "each" loss by itself, or "summed-twice": two calls on one forward
    steps=3,
    rank=4,  # of the LoRA matrices
    accumulate=(1, 1, 1),  # micro-batches in each step, all but the last under no_sync()
)
REENTRANT_FALSE = dict(checkpointing="non-reentrant")
FIND_FALSE = dict(find_unused_parameters=False)
BOTH_FALSE = REENTRANT_FALSE | FIND_FALSE
STATIC = dict(static_graph=True)
AXES = dict(  # a variant's name joins one word of each
    graph={
        "second-use-input": dict(second_use="input"),
        "second-use-output": dict(second_use="output"),
        "second-use-loss": dict(second_use="loss"),
        "two-backwards": dict(two_losses=True, backward="each"),
        "same-loss-twice": dict(two_losses=True, backward="summed-twice"),
        "losses-summed": dict(two_losses=True),
    },
    checkpointing={
        "off": dict(checkpointing=None),
        "reentrant": {},
        "non-reentrant": REENTRANT_FALSE,
    },
    ddp={"find-unused-false": FIND_FALSE, "find-unused-true": {}, "static-graph": STATIC},
)

VARIANTS = {
    "reported": {},
    "no-checkpointing": dict(checkpointing=None),
    "non-reentrant": REENTRANT_FALSE,
    "non-reentrant-stack-twice": dict(REENTRANT_FALSE, runs="stack-twice"),
    "non-reentrant-layers-twice": dict(REENTRANT_FALSE, runs="layers-twice"),
    "non-reentrant-layer-1-twice": dict(REENTRANT_FALSE, runs="layer-1-twice"),
    "non-reentrant-two-forwards": dict(REENTRANT_FALSE, runs="two-forwards"),
    "find-unused-true-stack-twice": dict(runs="stack-twice"),
    "find-unused-true-layers-twice": dict(runs="layers-twice"),
    "find-unused-true-two-forwards": dict(runs="two-forwards"),
    "find-unused-false": FIND_FALSE,
    "find-unused-false-stack-twice": dict(FIND_FALSE, runs="stack-twice"),
    "find-unused-false-layers-twice": dict(FIND_FALSE, runs="layers-twice"),
    "find-unused-false-layer-1-twice": dict(FIND_FALSE, runs="layer-1-twice"),
    "find-unused-false-two-forwards": dict(FIND_FALSE, runs="two-forwards"),
    "static-graph": STATIC,
    "static-graph-stack-twice": dict(STATIC, runs="stack-twice"),
    "static-graph-layers-twice": dict(STATIC, runs="layers-twice"),
    "static-graph-two-forwards": dict(STATIC, runs="two-forwards"),
    "static-graph-skip": dict(STATIC, every_second_step="skip"),
    "static-graph-repeat": dict(STATIC, every_second_step="repeat"),
    "static-graph-accumulate-2": dict(STATIC, accumulate=(2, 2, 2)),
    "static-graph-accumulate-later": dict(STATIC, accumulate=(1, 2, 2)),
    "non-reentrant-accumulate-2": dict(REENTRANT_FALSE, accumulate=(2, 2, 2)),
    "non-reentrant-find-unused-false": BOTH_FALSE,
    "non-reentrant-find-unused-false-stack-twice": dict(BOTH_FALSE, runs="stack-twice"),
    "non-reentrant-find-unused-false-layers-twice": dict(BOTH_FALSE, runs="layers-twice"),
    "non-reentrant-find-unused-false-two-forwards": dict(BOTH_FALSE, runs="two-forwards"),
    "non-reentrant-find-unused-false-accumulate-2": dict(BOTH_FALSE, accumulate=(2, 2, 2)),
    "non-reentrant-find-unused-false-skip": dict(BOTH_FALSE, every_second_step="skip"),
    "no-checkpointing-find-unused-false-skip": dict(FIND_FALSE, checkpointing=None, every_second_step="skip"),
    "no-checkpointing-find-unused-true-skip": dict(checkpointing=None, every_second_step="skip"),
    "non-reentrant-static-graph": dict(REENTRANT_FALSE, **STATIC),
    "non-reentrant-static-graph-skip": dict(REENTRANT_FALSE, **STATIC, every_second_step="skip"),
    "non-reentrant-static-graph-accumulate-2": dict(REENTRANT_FALSE, **STATIC, accumulate=(2, 2, 2)),
    "changing-graph-skip": dict(REENTRANT_FALSE, every_second_step="skip"),
    "changing-graph-repeat": dict(REENTRANT_FALSE, every_second_step="repeat"),
    "find-unused-false-skip": dict(FIND_FALSE, every_second_step="skip"),
    "find-unused-false-skip-before-error": dict(FIND_FALSE, every_second_step="skip", steps=2),
    "static-graph-skip-before-error": dict(STATIC, every_second_step="skip", steps=2),
    "one-layer-checkpointed": dict(checkpointed=(1,)),
    "outside-forward-shared": dict(checkpointing=None, second_use="loss"),
    "outside-forward-extra": dict(checkpointing=None, outside="extra"),
    "eval-mode": dict(mode="eval"),
    "generate-then-train": dict(mode="generate"),
    "lora-rank-1": dict(rank=1),
    "single-process": {},  # python repro.py single-process
    "single-process-torchrun": {},  # torchrun --nproc-per-node 1 repro.py single-process-torchrun
} | {
    "-".join(words): {k: v for axis, word in zip(AXES, words) for k, v in AXES[axis][word].items()}
    for words in itertools.product(*AXES.values())
}
# --8<-- [end:variants]

BATCH, LENGTH, WIDTH = 4, 8, 16
ON_DEVICE = torch.accelerator.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.accelerator.current_accelerator() if ON_DEVICE else torch.device("cpu")


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    repeats = {"stack-twice": "last", "two-forwards": "last", "once": "once"}
    again = s["every_second_step"] == "repeat"
    calls = {"each": "each-loss", "summed": "once", "summed-twice": "same-loss-twice"}
    checkpointing = s["checkpointing"] if s["checkpointing"] and s["mode"] != "eval" else "none"
    second = "only-loss" if s["outside"] == "extra" else s["second_use"] or "none"  # of layer 1, or of no layer
    of = "checkpointed" if s["second_use"] and checkpointing != "none" else "not-checkpointed"
    return {
        "strategy": "single" if variant == "single-process" else "ddp",
        "tuning": "lora",
        "frozen": "base",
        "lora_rank": s["rank"],
        "mode": s["mode"],
        "checkpointing": checkpointing,
        "checkpointed": "all" if len(s["checkpointed"]) == 4 and s["outside"] != "extra" else "some",
        "find_unused": s["find_unused_parameters"],
        "static_graph": s["static_graph"],
        "runs": "early" if again else repeats.get(s["runs"], "early"),
        "runs_vary": again,
        "skips": "some-steps" if s["every_second_step"] == "skip" else "never",
        "second_use": second,
        "second_use_of": "none" if second == "none" else of,
        "backward_calls": calls[s["backward"]],
        "accumulation": max(s["accumulate"]),
        "first_backward": "no-sync" if s["accumulate"][0] > 1 else "synchronises",
        "batch_size": BATCH // 2 // max(s["accumulate"]),
        "steps": s["steps"],
    }


# --8<-- [end:facts]


# --8<-- [start:model]
class LoraLayer(nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH).requires_grad_(False)
        self.base = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.lora_A = nn.Linear(WIDTH, rank, bias=False)
        self.lora_B = nn.Linear(rank, WIDTH, bias=False)  # not zero: lora_A needs a gradient

    def forward(self, x):
        normed = self.norm(x)
        return x + torch.tanh(self.base(normed) + self.lora_B(self.lora_A(normed)))


class Model(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.settings = settings
        self.embed = nn.Embedding(32, WIDTH).requires_grad_(False)
        self.layers = nn.ModuleList(LoraLayer(settings["rank"]) for _ in range(4))
        self.head = nn.Linear(WIDTH, 1).requires_grad_(False)
        if settings["outside"] == "extra":
            self.extra = nn.Parameter(torch.ones(1))

    def forward(self, tokens, step):
        s = self.settings
        order = [0, 1, 2, 3]
        if s["every_second_step"] and step % 2:
            order = [0, 1, 2] if s["every_second_step"] == "skip" else [0, 1, 2, 3, 3]
        if s["runs"] == "stack-twice":
            order = order + order
        if s["runs"] in ("layers-twice", "layer-1-twice"):
            order = sorted(order + (order if s["runs"] == "layers-twice" else [1]))
        shared = self.layers[1].lora_B.weight
        x = self.embed(tokens).requires_grad_()  # what peft's enable_input_require_grads() does
        if s["second_use"] == "input":
            x = x + x @ shared @ shared.T
        for i in order:
            if s["checkpointing"] and self.training and i in s["checkpointed"]:
                x = checkpoint(self.layers[i], x, use_reentrant=s["checkpointing"] == "reentrant")
            else:
                x = self.layers[i](x)
            if i == 1:
                middle = x
        if s["second_use"] == "output":
            x = x + x @ shared @ shared.T
        return [self.head(middle), self.head(x)] if s["two_losses"] else [self.head(x)]


# --8<-- [end:model]


# --8<-- [start:train]
def make(settings):
    torch.manual_seed(0)
    return Model(settings).to(DEVICE)


def train(settings, rank=0, world_size=1, wrap=lambda model: model):
    """Steps of plain SGD on this rank's share of each batch; returns the trained model."""
    model = make(settings)
    wrapped = wrap(model)  # keep a reference: DDP's hooks die with its wrapper
    no_sync = getattr(wrapped, "no_sync", contextlib.nullcontext)
    optimizer = torch.optim.SGD(trainable(model), lr=0.1)
    for step, batch in enumerate(torch.randint(32, (settings["steps"], BATCH, LENGTH))):
        tokens = batch[rank::world_size].to(DEVICE)
        if settings["mode"] != "train":
            model.eval()
            with torch.no_grad():
                model(tokens, step)  # the generation
            model.train(settings["mode"] == "generate")
        micro_batches = tokens.chunk(settings["accumulate"][step])
        for micro in micro_batches:
            with contextlib.nullcontext() if micro is micro_batches[-1] else no_sync():
                forwards = micro.chunk(2) if settings["runs"] == "two-forwards" else [micro]
                outputs = zip(*[wrapped(part, step) for part in forwards])  # a group for each loss
                losses = [sum((out - 1).square().mean() for out in group) for group in outputs]
                if settings["second_use"] == "loss":
                    losses[-1] += model.layers[1].lora_B.weight.square().sum()
                if settings["outside"] == "extra":
                    losses[-1] *= model.extra.square().sum()
                if settings["backward"] != "each":
                    losses = [sum(losses)] * (2 if settings["backward"] == "summed-twice" else 1)
                for loss in losses:
                    (loss / len(micro_batches)).backward(retain_graph=len(losses) > 1)
        optimizer.step()
        optimizer.zero_grad()
    return model


# --8<-- [end:train]


# --8<-- [start:compare]
def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    settings = {**DEFAULTS, **VARIANTS[variant]}
    if dist.is_initialized():
        ddp = {key: settings[key] for key in ("find_unused_parameters", "static_graph")}
        place = dist.get_rank(), dist.get_world_size()
        model = train(settings, *place, wrap=lambda m: DistributedDataParallel(m, **ddp))
    else:
        model = train(settings)
    alone = {**settings, "checkpointing": None}
    if settings["backward"] == "summed":
        alone["backward"] = "each"  # which one process does right
    reference = train(alone)
    return compare(variant, *map(named, (model, reference, make(settings))))


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
    if "RANK" in os.environ:  # set by torchrun
        if DEVICE.type != "cpu":
            torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
        backend = dist.get_default_backend_for_device(DEVICE)
        dist.init_process_group(backend, timeout=timedelta(seconds=60))
    result = run(sys.argv[1]) | {"facts": facts(sys.argv[1])}
    if not dist.is_initialized() or dist.get_rank() == 0:
        print("RESULT", json.dumps(result), flush=True)
    if dist.is_initialized():
        dist.barrier()  # without it a rank that is done can take the store away from the other
        os._exit(0)  # else gloo's threads may abort, or block the end: seen with torch 2.6, pytorch/pytorch#154976
