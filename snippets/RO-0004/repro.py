"""A vision tower called in chunks, under DeepSpeed ZeRO: "The parameter has already been reduced".

    torchrun --nproc-per-node 2 repro.py reported
    torchrun --nproc-per-node 2 repro.py non-reentrant

Needs torch >= 2.6 and DeepSpeed. Below 0.19.8, ZeRO-3 on a CPU is right only with one gloo thread: see the page
concepts/zero3-early-gather. A variant either raises, as it would in training, or trains three
steps and says in its last line how far its parameters are from a single-process run.
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
from torch.nn.functional import logsigmoid
from torch.utils.checkpoint import checkpoint

if not torch.accelerator.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
    # Without it, older releases call the program numactl to count processors.
    os.environ.setdefault("LOCAL_SIZE", os.environ.get("LOCAL_WORLD_SIZE", "1"))
import deepspeed  # noqa: E402

# --8<-- [start:variants]
DEFAULTS = dict(
    stage=2,
    overlap=True,  # overlap_comm; true in MiniCPM-V's own configs
    bucket=300,  # reduce_bucket_size: less than the 2193 elements trained. None: the default, 5e8
    checkpointing="reentrant",  # or "non-reentrant", or None
    tower="same",  # None: the vision tower is not checkpointed, the language model is
    tune_vision=True,
    chunk=16,  # vision_batch_size. None: all slices in one call, as version 2.5 did
    batch=2,  # samples per rank
    images=1,  # per sample
    slices=10,  # per image: at most nine and the thumbnail
    dpo=False,  # each sample is a pair, chosen and rejected, in one forward
    accumulation=1,  # micro-batches per step
    lr=0.1,
)
WAYS_OUT = {
    "non-reentrant": dict(checkpointing="non-reentrant"),
    "no-checkpointing": dict(checkpointing=None),
    "tower-not-checkpointed": dict(tower=None),
    "frozen-tower": dict(tune_vision=False),
    "larger-chunk": dict(chunk=32),
    "fewer-slices": dict(slices=8),
    "batch-1": dict(batch=1),
    "one-call": dict(chunk=None),
}
NON_REENTRANT, ZERO3 = WAYS_OUT["non-reentrant"], dict(stage=3)
DPO = dict(dpo=True, batch=1, bucket=None, lr=0.5)  # LoRA trains so little that it fits into one bucket

VARIANTS = {
    "reported": {},
    **WAYS_OUT,
    **{f"zero3-{name}": ZERO3 | settings for name, settings in WAYS_OUT.items()},
    "zero3-frozen-tower-non-reentrant": ZERO3 | NON_REENTRANT | dict(tune_vision=False),
    "batch-1-two-images": dict(batch=1, images=2),
    "batch-4-four-slices": dict(batch=4, slices=4),
    "dpo-batch-1": DPO,
    "dpo-batch-1-non-reentrant": DPO | NON_REENTRANT,
    "reported-accumulate-2": dict(accumulation=2),
    "zero1-accumulate-2": dict(stage=1, accumulation=2),
    "zero1-no-overlap-accumulate-2": dict(stage=1, accumulation=2, overlap=False),
    "zero3-accumulate-2": ZERO3 | dict(accumulation=2),
    "zero3-non-reentrant-accumulate-2": ZERO3 | NON_REENTRANT | dict(accumulation=2),
}
AXES = dict(
    stage={"zero0": 0, "zero1": 1, "zero2": 2, "zero3": 3},
    slices={"below": 8, "above": 10},  # of two images: 16 make one chunk, 20 make two
    checkpointing={"off": None, "reentrant": "reentrant", "non-reentrant": "non-reentrant"},
    overlap={"no-overlap": False, "overlap": True},
    bucket={"default-bucket": None, "small-bucket": 300},
)
for words in itertools.product(*AXES.values()):
    VARIANTS["-".join(words)] = {key: AXES[key][word] for key, word in zip(AXES, words)}


def config(settings):
    zero = {"stage": settings["stage"], "overlap_comm": settings["overlap"]}
    if settings["bucket"]:
        zero["reduce_bucket_size"] = settings["bucket"]
    return {
        "train_micro_batch_size_per_gpu": settings["batch"],
        "gradient_accumulation_steps": settings["accumulation"],
        "gradient_clipping": 0.0,  # newer releases clip at 1.0 unless told otherwise
        "zero_allow_untested_optimizer": True,  # plain SGD, to compare parameters
        "zero_optimization": zero,
    }


# --8<-- [end:variants]


STEPS, PATCHES, PIXELS, LENGTH, WIDTH = 3, 4, 12, 6, 16


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    slices = s["batch"] * s["images"] * s["slices"] * (2 if s["dpo"] else 1)
    chunked = s["chunk"] is not None and slices > s["chunk"]
    checkpointed = s["tower"] == "same" or s["checkpointing"] is None  # else its runs do not count
    return {
        "strategy": f"zero-{s['stage']}",
        "tuning": "full" if s["tune_vision"] else "part",
        "frozen": "none" if s["tune_vision"] else "tower",
        "checkpointing": s["checkpointing"] or "none",
        "checkpointed": "some",
        "tower_checkpointed": s["tower"] == "same",
        "slices": slices,
        "chunk": s["chunk"] or slices,
        "runs": "early" if chunked and s["tune_vision"] and checkpointed else "once",
        "runs_vary": False,
        "skips": "never",
        "second_use": "none",
        "backward_calls": "once",
        "accumulation": s["accumulation"],
        "batch_size": s["batch"],
        "buckets": "several" if s["bucket"] else "one",
        "overlap": s["overlap"],
    }


# --8<-- [end:facts]


# --8<-- [start:model]
def call(module, x, how):
    if how is None:
        return module(x)
    return checkpoint(module, x, use_reentrant=how == "reentrant")


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH)
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + torch.tanh(self.linear(self.norm(x)))


class Tower(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how
        self.patches = nn.Linear(PIXELS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))

    def forward(self, slices):
        x = self.patches(slices).requires_grad_()  # what enable_input_require_grads() does
        for layer in self.layers:
            x = call(layer, x, self.how)
        return x


class Resampler(nn.Module):
    """The aligner: a few queries read the patches of each slice."""

    def __init__(self):
        super().__init__()
        self.queries = nn.Parameter(torch.randn(2, WIDTH))
        self.project = nn.Linear(WIDTH, WIDTH)

    def forward(self, seen):
        seen = self.project(seen)
        return (self.queries @ seen.mT).softmax(-1) @ seen


class Model(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.how, self.chunk = settings["checkpointing"], settings["chunk"]
        tower = self.how if settings["tower"] == "same" else settings["tower"]
        self.tower = Tower(tower).requires_grad_(settings["tune_vision"])
        self.resampler = Resampler()
        self.embed = nn.Embedding(32, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, slices, tokens):
        together = slices.flatten(0, 1)  # all slices of the micro-batch
        parts = together.split(self.chunk or len(together))
        seen = torch.cat([self.tower(part) for part in parts])
        seen = self.resampler(seen).unflatten(0, slices.shape[:2]).flatten(1, 2)
        x = self.embed(tokens) + seen.mean(1, keepdim=True)  # each token reads the images
        for layer in self.layers:
            x = call(layer, x, self.how)
        return self.head(x).mean((1, 2))


# --8<-- [end:model]


# --8<-- [start:train]
def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    settings = {**DEFAULTS, **VARIANTS[variant]}
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = seeded(settings)
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.SGD(trainable(model), lr=settings["lr"]),
        config=config(settings),
    )
    try:
        batches = data(settings, world_size, engine.device)
        seconds = []
        for step in batches:
            started = time.perf_counter()
            for micro in step:
                loss = loss_of(engine, [part[rank::world_size] for part in micro], settings)
                engine.backward(loss)
                engine.step()
            seconds.append(time.perf_counter() - started)
        with deepspeed.zero.GatheredParameters(trainable(model), enabled=settings["stage"] == 3):
            trained = {name: p.detach().clone() for name, p in named(model).items()}
    finally:
        engine.destroy()  # or its hooks outlive a failed variant
    reference = train_alone(settings, batches)
    start = seeded(settings).to(engine.device)
    seconds_per_step = {"seconds_per_step": statistics.median(seconds)}
    return compare(variant, trained, named(reference), named(start)) | seconds_per_step


def loss_of(model, micro, settings):
    slices, tokens = micro
    scores = model(slices.flatten(0, 1), tokens.flatten(0, 1))
    if settings["dpo"]:
        chosen, rejected = scores.unflatten(0, (-1, 2)).unbind(1)
        return -logsigmoid(chosen - rejected).mean()
    return (scores - 1).square().mean()


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
    return Model(settings)


def data(settings, world_size, device):
    """For each step its micro-batches: the slices and the tokens of all ranks' samples."""
    torch.manual_seed(1)
    samples, texts = settings["batch"] * world_size, 2 if settings["dpo"] else 1
    pixels = (samples, 1, settings["images"] * settings["slices"], PATCHES, PIXELS)

    def micro():
        slices = torch.randn(pixels).expand(-1, texts, -1, -1, -1)  # a pair shares its image
        return slices.to(device), torch.randint(32, (samples, texts, LENGTH)).to(device)

    return [[micro() for _ in range(settings["accumulation"])] for _ in range(STEPS)]


def train_alone(settings, batches):
    settings = {**settings, "checkpointing": None, "tower": None, "chunk": None}
    model = seeded(settings).to(batches[0][0][0].device)
    optimizer = torch.optim.SGD(trainable(model), lr=settings["lr"])
    for step in batches:
        for micro in step:
            (loss_of(model, micro, settings) / len(step)).backward()
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
