"""Reranker and embedder under DeepSpeed with gradient checkpointing: which settings train right?

    torchrun --nproc-per-node 2 zero.py zero0-lora-once-reentrant
    torchrun --nproc-per-node 2 zero.py zero2-lora-twice-reentrant

Needs torch >= 2.6, DeepSpeed, and ds_stage0.json beside it. A variant's name joins one word of
each axis below. It either raises, as it would in training, or trains three steps and says in its
last line how far its parameters are from a single-process run.
"""

import itertools
import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

if not torch.accelerator.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
import deepspeed  # noqa: E402

# --8<-- [start:variants]
AXES = dict(
    stage={"zero0": 0, "zero1": 1, "zero2": 2},
    lora={"lora": True, "full": False},
    calls={"once": 1, "twice": 2},  # the reranker; the embedder: queries, then passages
    reentrant={"reentrant": True, "non-reentrant": False},
)
VARIANTS = {
    "-".join(words): {key: AXES[key][word] for key, word in zip(AXES, words)}
    for words in itertools.product(*AXES.values())
}


def config(settings):
    """ds_stage0.json, at another stage where the variant says so."""
    content = json.loads(Path(__file__).with_name("ds_stage0.json").read_text(encoding="utf-8"))
    content["zero_optimization"]["stage"] = settings["stage"]
    return content


# --8<-- [end:variants]


STEPS, BATCH, GROUP, LENGTH, WIDTH, RANK = 3, 4, 2, 8, 16, 4  # GROUP: passages for each query


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = VARIANTS[variant]
    repeated = "last" if s["lora"] else "early"  # the embeddings wait until both calls have ended
    return {
        "strategy": f"zero-{s['stage']}",
        "tuning": "lora" if s["lora"] else "full",
        "frozen": "base" if s["lora"] else "none",
        "checkpointing": "reentrant" if s["reentrant"] else "non-reentrant",
        "checkpointed": "all" if s["lora"] else "some",
        "runs": "once" if s["calls"] == 1 else repeated,
        "runs_vary": False,
        "skips": "never",
        "second_use": "none",
        "backward_calls": "once",
        "accumulation": 1,
        "batch_size": 2,
        "buckets": "one",
        "overlap": False,  # DeepSpeed's own choice up to stage 2
    }


# --8<-- [end:facts]


# --8<-- [start:model]
class Layer(nn.Module):
    def __init__(self, lora):
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH)
        self.base = nn.Linear(WIDTH, WIDTH)
        if lora:
            self.lora_A = nn.Linear(WIDTH, RANK, bias=False)
            self.lora_B = nn.Linear(RANK, WIDTH, bias=False)  # not zero: lora_A needs a gradient

    def forward(self, x):
        normed = self.norm(x)
        update = self.base(normed)
        if hasattr(self, "lora_A"):
            update = update + self.lora_B(self.lora_A(normed))
        return x + torch.tanh(update)


class Wrapper(nn.Module):
    """A plain nn.Module that encodes pairs once, or queries and then passages."""

    def __init__(self, lora, calls, reentrant):
        super().__init__()
        self.calls, self.reentrant = calls, reentrant
        self.embed = nn.Embedding(32, WIDTH)
        self.layers = nn.ModuleList(Layer(lora) for _ in range(4))
        if calls == 1:
            self.head = nn.Linear(WIDTH, 1, bias=False)
        if lora:
            for name, parameter in self.named_parameters():
                parameter.requires_grad_("lora_" in name)

    def encode(self, tokens):
        x = self.embed(tokens).requires_grad_()  # what enable_input_require_grads() does
        for layer in self.layers:
            if self.reentrant is None:
                x = layer(x)
            else:
                x = checkpoint(layer, x, use_reentrant=self.reentrant)
        return x[:, -1]

    def forward(self, batch):
        queries, passages = batch[:, 0], batch[:, 1:]
        if self.calls == 1:
            pairs = torch.cat([queries.repeat_interleave(GROUP, 0), passages.flatten(0, 1)], 1)
            scores = self.head(self.encode(pairs))
        else:
            one, other = self.encode(queries), self.encode(passages.flatten(0, 1))
            scores = (one.repeat_interleave(GROUP, 0) * other).sum(-1)
        right = torch.zeros(len(batch), dtype=torch.long, device=batch.device)
        return F.cross_entropy(scores.view(-1, GROUP), right)  # the first passage is the right one


# --8<-- [end:model]


# --8<-- [start:train]
def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    settings = VARIANTS[variant]
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = seeded(settings, settings["reentrant"])
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.SGD(trainable(model), lr=0.1),
        config=config(settings),
    )
    try:
        torch.manual_seed(1)
        batches = torch.randint(32, (STEPS, BATCH, 1 + GROUP, LENGTH)).to(engine.device)
        for batch in batches:
            loss = engine(batch[rank::world_size])
            engine.backward(loss)
            engine.step()
        trained = {name: p.detach().clone() for name, p in named(model).items()}
    finally:
        engine.destroy()  # or its hooks outlive a failed variant
    reference = train_alone(settings, batches)
    start = seeded(settings, reentrant=None).to(engine.device)
    return compare(variant, trained, named(reference), named(start))


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


def seeded(settings, reentrant):
    torch.manual_seed(0)
    return Wrapper(settings["lora"], settings["calls"], reentrant)


def train_alone(settings, batches):
    model = seeded(settings, reentrant=None).to(batches.device)
    optimizer = torch.optim.SGD(trainable(model), lr=0.1)
    for batch in batches:
        model(batch).backward()
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
