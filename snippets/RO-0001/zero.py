"""LoRA with gradient checkpointing under DeepSpeed ZeRO: which settings train right?

    torchrun --nproc-per-node 2 zero.py zero2-once-reentrant-default-bucket-accumulate-1
    torchrun --nproc-per-node 2 zero.py zero3-twice-reentrant-small-bucket-accumulate-1

Needs torch >= 2.6 and DeepSpeed. Below 0.19.8, ZeRO-3 on a CPU is right only with one gloo thread: see the page
concepts/zero3-early-gather. A variant's name joins one word of each axis below. It either
raises, as it would in training, or trains three steps and says in its last line how far its
parameters are from a single-process run.
"""

import itertools
import json
import os
import statistics
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

if not torch.accelerator.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
import deepspeed  # noqa: E402

# --8<-- [start:variants]
AXES = dict(
    stage={"zero0": 0, "zero1": 1, "zero2": 2, "zero3": 3},
    runs={"once": 1, "twice": 2},  # how often the whole stack runs in each backward
    reentrant={"off": None, "reentrant": True, "non-reentrant": False},  # checkpointing
    bucket={"default-bucket": None, "small-bucket": 100},  # elements; the model trains 512
    accumulation={"accumulate-1": 1, "accumulate-2": 2},  # micro-batches per step
)
DEFAULTS = dict(
    offload=None,  # to the CPU: "optimizer", or "params" too
    second_use=None,  # where layer 1's lora_B is read once more: "input" or "output" of forward, or "loss"
)
MATRIX = {
    "-".join(words): {key: AXES[key][word] for key, word in zip(AXES, words)}
    for words in itertools.product(*AXES.values())
}
REENTRANT = ["reentrant", "non-reentrant"]
MORE = (  # words of the axes but the last, and settings beside them
    (["zero3"], AXES["runs"], REENTRANT, ["small-bucket"], {
        "offload-optimizer": dict(offload="optimizer"),
        "offload-params": dict(offload="params"),
    }),
    (["zero2"], ["once"], REENTRANT, AXES["bucket"], {
        "second-use-input": dict(second_use="input"),
        "second-use-output": dict(second_use="output"),
        "second-use-loss": dict(second_use="loss"),
    }),
    (["zero3"], ["once"], AXES["reentrant"], AXES["bucket"], {
        # Only here is the weight read at the place of its use; later ZeRO-3 has emptied it.
        "second-use-input": dict(second_use="input"),
    }),
)  # fmt: skip
VARIANTS = MATRIX | {
    "-".join([*words, word]): MATRIX["-".join([*words, "accumulate-1"])] | settings[word]
    for *axes, settings in MORE
    for *words, word in itertools.product(*axes, settings)
}


def config(settings, world_size):
    zero, offload = {"stage": settings["stage"]}, settings.get("offload")
    if settings["bucket"]:
        zero["reduce_bucket_size"] = settings["bucket"]
    if offload:
        zero["offload_optimizer"] = {"device": "cpu"}
    if offload == "params":
        zero["offload_param"] = {"device": "cpu"}
    return {
        "train_micro_batch_size_per_gpu": BATCH // world_size,
        "gradient_accumulation_steps": settings["accumulation"],
        "gradient_clipping": 0.0,  # newer releases clip at 1.0 unless told otherwise
        "zero_allow_untested_optimizer": True,  # plain SGD, to compare parameters
        "zero_optimization": zero,
    } | ({"zero_force_ds_cpu_optimizer": False} if offload else {})
# --8<-- [end:variants]


STEPS, BATCH, LENGTH, WIDTH = 3, 4, 8, 16


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    of = "not-checkpointed" if s["reentrant"] is None else "checkpointed"
    return {
        "strategy": f"zero-{s['stage']}",
        "tuning": "lora",
        "frozen": "base",
        "lora_rank": 4,
        "checkpointing": {None: "none", True: "reentrant", False: "non-reentrant"}[s["reentrant"]],
        "checkpointed": "all",
        "runs": "once" if s["runs"] == 1 else "last",
        "runs_vary": False,
        "skips": "never",
        "second_use": s["second_use"] or "none",
        "second_use_of": of if s["second_use"] else "none",
        "backward_calls": "once",
        "accumulation": s["accumulation"],
        "batch_size": BATCH // 2,
        "buckets": "several" if s["bucket"] else "one",
        "overlap": s["stage"] == 3,  # DeepSpeed's own choice
        "offload": s["offload"] or "none",
    }
# --8<-- [end:facts]


# --8<-- [start:model]
class LoraLayer(nn.Module):
    def __init__(self, rank=4):
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH).requires_grad_(False)
        self.base = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.lora_A = nn.Linear(WIDTH, rank, bias=False)
        self.lora_B = nn.Linear(rank, WIDTH, bias=False)  # not zero: lora_A needs a gradient

    def forward(self, x):
        normed = self.norm(x)
        return x + torch.tanh(self.base(normed) + self.lora_B(self.lora_A(normed)))


class Model(nn.Module):
    def __init__(self, runs, reentrant, second_use):
        super().__init__()
        self.runs, self.reentrant, self.second_use = runs, reentrant, second_use
        self.embed = nn.Embedding(32, WIDTH).requires_grad_(False)
        self.layers = nn.ModuleList(LoraLayer() for _ in range(4))
        self.head = nn.Linear(WIDTH, 1).requires_grad_(False)

    def forward(self, tokens):
        shared = self.layers[1].lora_B.weight
        x = self.embed(tokens).requires_grad_()  # what peft's enable_input_require_grads() does
        if self.second_use == "input":
            x = x + x @ shared @ shared.T
        for _ in range(self.runs):
            for layer in self.layers:
                if self.reentrant is None:
                    x = layer(x)
                else:
                    x = checkpoint(layer, x, use_reentrant=self.reentrant)
        if self.second_use == "output":
            x = x + x @ shared @ shared.T
        loss = (self.head(x) - 1).square().mean()
        return loss + shared.square().sum() if self.second_use == "loss" else loss
# --8<-- [end:model]


# --8<-- [start:train]
def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    settings = {**DEFAULTS, **VARIANTS[variant]}
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = seeded(settings)
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.SGD(trainable(model), lr=0.1),
        config=config(settings, world_size),
    )
    try:
        batches = torch.randint(32, (STEPS, settings["accumulation"], BATCH, LENGTH))
        seconds = []
        for step in batches:
            started = time.perf_counter()
            for micro in step:
                engine.backward(engine(micro[rank::world_size].to(engine.device)))
                engine.step()
            seconds.append(time.perf_counter() - started)
        with deepspeed.zero.GatheredParameters(trainable(model), enabled=settings["stage"] == 3):
            trained = {name: p.detach().clone() for name, p in named(model).items()}
    finally:
        engine.destroy()  # or its hooks outlive a failed variant
    reference = train_alone(settings, batches.to(engine.device))
    start = seeded(settings).to(engine.device)
    seconds_per_step = {"seconds_per_step": statistics.median(seconds)}
    return compare(variant, trained, named(reference), named(start)) | seconds_per_step
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


def seeded(settings):
    torch.manual_seed(0)
    return Model(settings["runs"], settings["reentrant"], settings["second_use"])


def train_alone(settings, batches):
    model = seeded({**settings, "reentrant": None}).to(batches.device)
    optimizer = torch.optim.SGD(trainable(model), lr=0.1)
    for step in batches:
        for micro in step:
            (model(micro) / len(step)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def trainable(model):
    return [p for p in model.parameters() if p.requires_grad]


def named(model):
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


if __name__ == "__main__":
    torch.set_num_threads(1)
    deepspeed.init_distributed(timeout=timedelta(seconds=60), verbose=False)
    result = run(sys.argv[1]) | {"facts": facts(sys.argv[1])}
    if dist.get_rank() == 0:
        print("RESULT", json.dumps(result), flush=True)
    dist.barrier()  # without it a rank that is done can take the store away from the other
    os._exit(0)  # else gloo's threads may abort, or block the end: seen with torch 2.6, pytorch/pytorch#154976
