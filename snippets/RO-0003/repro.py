"""A reranker in a plain nn.Module, LoRA and gradient checkpointing under DDP.

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
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

# --8<-- [start:variants]
DEFAULTS = dict(
    checkpointing="reentrant",  # or "non-reentrant", or None
    checkpointed=None,  # which layers, if not all
    find_unused_parameters=True,  # what transformers' Trainer picks for a wrapper
    static_graph=False,
    lora=True,  # False: every parameter is trained
    calls="once",  # "twice": the embedder, which encodes queries and then passages
    layers=4,
    lora_layers=40,  # how many of them carry LoRA, counted from the first
    targets=("q_proj", "k_proj", "v_proj", "o_proj"),
    head=None,  # beside LoRA: the head is "trained"; or a second one is, which is "unused"
    embeddings=True,  # trained, where LoRA is off
    sub_batch=None,  # the embedder encodes so many sequences at a time
    batches=(4, 4, 4),  # queries in each step, over all ranks
    accumulate=1,  # micro-batches per step
    lr=0.1,
)
REENTRANT_FALSE = dict(checkpointing="non-reentrant")
AXES = (
    dict(lora={}, full=dict(lora=False)),
    dict(once={}, twice=dict(calls="twice")),
    {
        "off": dict(checkpointing=None),
        "reentrant-find-unused-true": {},
        "reentrant-find-unused-false": dict(find_unused_parameters=False),
        "reentrant-static-graph": dict(static_graph=True),
        "non-reentrant": REENTRANT_FALSE,
    },
)
MATRIX = {
    "-".join(words): {key: axis[word][key] for axis, word in zip(AXES, words) for key in axis[word]}
    for words in itertools.product(*AXES)
}
REPORTED = dict(layers=40, lr=0.5)  # MiniCPM's depth: 40 layers x 4 targets x 2 matrices = 320 parameters
# The last batch of an epoch is smaller, and the embedder calls its encoder less often.
SMALLER_LAST = dict(calls="twice", sub_batch=2, batches=(4, 2, 4))

VARIANTS = MATRIX | {
    "reported": REPORTED,
    "non-reentrant": dict(REPORTED, **REENTRANT_FALSE),
    "four-layers": {},
    "last-layer-without-lora": dict(REPORTED, lora_layers=39),
    "o-proj-without-lora": dict(REPORTED, targets=("q_proj", "k_proj", "v_proj")),
    "head-trained": dict(REPORTED, head="trained"),
    "one-layer-checkpointed": dict(REPORTED, checkpointed=(0,)),
    "smaller-batch": dict(batches=(2, 2, 2)),
    "accumulation": dict(accumulate=2),
    "unused-head-find-unused-false": dict(head="unused", find_unused_parameters=False),
    "unused-head-before-error": dict(head="unused", find_unused_parameters=False, batches=(4,)),
    "unused-head-find-unused-true": dict(head="unused"),
    "unused-head-non-reentrant": dict(head="unused", **REENTRANT_FALSE),
    "frozen-embeddings-find-unused-false": dict(MATRIX["full-twice-reentrant-find-unused-false"], embeddings=False),
    "smaller-last-batch-static-graph": dict(SMALLER_LAST, static_graph=True),
    "smaller-last-batch-non-reentrant": dict(SMALLER_LAST, **REENTRANT_FALSE),
    "single-process": {},  # python repro.py single-process
    "single-process-torchrun": {},  # torchrun --nproc-per-node 1 repro.py single-process-torchrun
}
# --8<-- [end:variants]

GROUP, LENGTH, WIDTH, RANK = 2, 8, 16, 4  # GROUP: passages for each query, the first one is right
ON_DEVICE = torch.accelerator.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.accelerator.current_accelerator() if ON_DEVICE else torch.device("cpu")


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    # Full fine-tuning: the embeddings wait for their gradient until both calls have ended.
    waits = not s["lora"] and s["embeddings"]
    away = s["lora_layers"] == 39 or "o_proj" not in s["targets"] or s["checkpointed"] == (0,)
    all_inside = s["lora"] and s["checkpointed"] is None and s["head"] is None
    return {
        "strategy": "single" if variant == "single-process" else "ddp",
        "tuning": "lora" if s["lora"] and not s["head"] else "full" if waits else "part",
        "frozen": "base" if s["lora"] else "none" if s["embeddings"] else "embeddings",
        "lora_rank": RANK,
        "checkpointing": s["checkpointing"] or "none",
        "checkpointed": "all" if all_inside else "some",
        "named_parameter": "taken-away" if away else "present",
        "find_unused": s["find_unused_parameters"],
        "static_graph": s["static_graph"],
        "runs": "once" if s["calls"] == "once" else "early" if waits else "last",
        "runs_vary": len(set(s["batches"])) > 1,
        "skips": "always" if s["head"] == "unused" else "never",
        "second_use": "none",
        "backward_calls": "once",
        "accumulation": s["accumulate"],
        "first_backward": "no-sync" if s["accumulate"] > 1 else "synchronises",
        "batch_size": s["batches"][0] // s["accumulate"] // 2,
        "steps": len(s["batches"]),
    }


# --8<-- [end:facts]


# --8<-- [start:model]
class LoraLinear(nn.Module):
    def __init__(self, base_layer):
        super().__init__()
        self.base_layer = base_layer
        self.lora_A = nn.ModuleDict({"default": nn.Linear(WIDTH, RANK, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(RANK, WIDTH, bias=False)})  # not zero

    def forward(self, x):
        return self.base_layer(x) + self.lora_B["default"](self.lora_A["default"](x))


class Layer(nn.Module):
    def __init__(self, targets):
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH)
        self.self_attn = nn.ModuleDict()
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            plain = nn.Linear(WIDTH, WIDTH, bias=False)
            self.self_attn[name] = LoraLinear(plain) if name in targets else plain

    def forward(self, x):
        normed = self.norm(x)
        q, k, v = (self.self_attn[name](normed) for name in ("q_proj", "k_proj", "v_proj"))
        return x + self.self_attn["o_proj"](F.scaled_dot_product_attention(q, k, v, is_causal=True))


class Decoder(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.embed_tokens = nn.Embedding(32, WIDTH)
        with_lora = s["lora_layers"] if s["lora"] else 0
        targets = [s["targets"] if i < with_lora else () for i in range(s["layers"])]
        self.layers = nn.ModuleList(map(Layer, targets))

    def forward(self, tokens):
        x = self.embed_tokens(tokens).requires_grad_()  # what enable_input_require_grads() does
        for i, layer in enumerate(self.layers):
            if self.s["checkpointing"] and i in (self.s["checkpointed"] or range(self.s["layers"])):
                x = checkpoint(layer, x, use_reentrant=self.s["checkpointing"] == "reentrant")
            else:
                x = layer(x)
        return x[:, -1]


class LanguageModel(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.model = Decoder(s)
        if s["calls"] == "once":
            self.lm_head = nn.Linear(WIDTH, 1, bias=False)
        if s["head"] == "unused":
            self.second_head = nn.Linear(WIDTH, 1, bias=False)


class Wrapper(nn.Module):
    """A plain nn.Module around the language model, as FlagEmbedding's AbsRerankerModel is."""

    def __init__(self, s):
        super().__init__()
        self.s, lm = s, LanguageModel(s)
        if s["lora"]:  # peft puts two shells around a model; every parameter's name shows them
            self.model = nn.ModuleDict({"base_model": nn.ModuleDict({"model": lm})})
        else:
            self.model = lm
        for name, parameter in self.named_parameters():
            if s["lora"]:
                parameter.requires_grad_("lora_" in name or s["head"] is not None and "head" in name)
            else:
                parameter.requires_grad_(s["embeddings"] or "embed" not in name)

    def forward(self, queries, passages):
        lm = self.model["base_model"]["model"] if self.s["lora"] else self.model
        if self.s["calls"] == "once":  # the reranker reads each passage together with its query
            pairs = torch.cat([queries.repeat_interleave(GROUP, 0), passages.flatten(0, 1)], 1)
            scores = lm.lm_head(lm.model(pairs))
        else:  # the embedder: one encoder, called for the queries and called for the passages
            one, other = self.encode(lm, queries), self.encode(lm, passages.flatten(0, 1))
            scores = (one.repeat_interleave(GROUP, 0) * other).sum(-1)
        right = torch.zeros(len(queries), dtype=torch.long, device=DEVICE)
        return F.cross_entropy(scores.view(-1, GROUP), right)

    def encode(self, lm, tokens):
        parts = tokens.split(self.s["sub_batch"] or len(tokens))
        return torch.cat([lm.model(part) for part in parts])


# --8<-- [end:model]


# --8<-- [start:train]
def make(settings):
    torch.manual_seed(0)
    return Wrapper(settings).to(DEVICE)


def train(settings, rank=0, world_size=1, wrap=lambda model: model):
    """Three steps of plain SGD on this rank's share of each batch; returns the trained model."""
    model = make(settings)
    wrapped = wrap(model)  # keep a reference: DDP's hooks die with its wrapper
    no_sync = getattr(wrapped, "no_sync", contextlib.nullcontext)
    optimizer = torch.optim.SGD(trainable(model), lr=settings["lr"])
    torch.manual_seed(1)
    for size in settings["batches"]:
        batch = torch.randint(32, (size, 1 + GROUP, LENGTH))  # a query and its passages
        parts = batch[rank::world_size].to(DEVICE).chunk(settings["accumulate"])
        for part in parts:
            with contextlib.nullcontext() if part is parts[-1] else no_sync():
                (wrapped(part[:, 0], part[:, 1:]) / len(parts)).backward()
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
    reference = train({**settings, "checkpointing": None})
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
