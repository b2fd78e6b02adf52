"""LoRA on a vision-language model under DDP: "Expected to mark a variable ready only once".

    torchrun --nproc-per-node 2 repro.py reported
    torchrun --nproc-per-node 2 repro.py non-reentrant

Needs torch >= 2.6 and nothing else. A variant either raises, as it would in training, or trains
three steps and says in its last line how far its parameters are from a single-process run.
"""

import json
import os
import sys
from contextlib import nullcontext
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

# --8<-- [start:variants]
DEFAULTS = dict(
    checkpointing="reentrant",  # or "non-reentrant"
    vit_checkpointing=True,  # False: only the language model is checkpointed
    find_unused_parameters=True,  # what transformers' Trainer picks for a PeftModel
    static_graph=False,
    tower="frozen",  # or "lora", or "full": its own weights, without LoRA; or None: there is none
    aligner="frozen",  # or "full"
    llm="lora",  # or "frozen"
    batches="image",  # or "text", or one of those below
    shared=False,  # the tower's last block and the language model's first layer are one module
    layers=4,  # of the language model; Qwen2-VL has 28
    batch_size=4,  # per device
    accumulation=1,  # micro-batches per step
    no_sync=True,  # while accumulating, as transformers' Trainer does it
    steps=3,
)
REENTRANT_FALSE = dict(checkpointing="non-reentrant")
FIND_FALSE = dict(find_unused_parameters=False)
STATIC = dict(static_graph=True)
AS_DEEP = dict(layers=28)  # 28 layers x 5 LoRA pairs: the last of the 280 has index 279
VIT_OFF = dict(vit_checkpointing=False)
TRAINED = dict(tower="lora")
FULL = dict(tower="full", aligner="full")
MIXED = dict(batches="mixed")  # every second micro-batch has no image: the tower does not run
TEXT_FIRST = dict(batches="mixed-text-first")
ACROSS = dict(batches="mixed-across-ranks")  # an image on every second rank only, by turns
BLANK = dict(batches="mixed-blank")  # mixed, and text comes with a blank image that counts 0
TWICE = dict(batches="image-and-video")  # the tower runs twice: for the images, then the videos
BEFORE_ERROR = dict(steps=2)  # DDP finds in step 3 that step 2 was not reduced
ACCUMULATE = dict(accumulation=4)
SYNC = dict(accumulation=4, no_sync=False)

VARIANTS = {
    "reported": AS_DEEP,
    "batch-1": dict(batch_size=1),
    "batch-1-accumulate-4": dict(ACCUMULATE, batch_size=1),
    "batch-1-accumulate-4-sync": dict(SYNC, batch_size=1),
    "batch-4-accumulate-4": ACCUMULATE,
    "batch-4-accumulate-4-sync": SYNC,
    "aligner-trained": dict(aligner="full"),
    "tower-trained": TRAINED,
    "tower-full": FULL,
    "text-only": dict(tower=None, batches="text"),
    "shared-non-reentrant": dict(REENTRANT_FALSE, shared=True),
    "shared-find-unused-false": dict(FIND_FALSE, shared=True),
    "shared-find-unused-false-tower-trained": dict(FIND_FALSE, **TRAINED, shared=True),
    "vit-checkpointing-off": VIT_OFF,
    "vit-checkpointing-off-tower-trained": dict(VIT_OFF, **TRAINED),
    "vit-checkpointing-off-tower-full": dict(VIT_OFF, **FULL),
    "vit-checkpointing-off-llm-frozen": dict(VIT_OFF, **TRAINED, llm="frozen"),
    "llm-frozen": dict(TRAINED, llm="frozen"),
    "find-unused-true-mixed": MIXED,
    "find-unused-true-mixed-tower-trained": dict(TRAINED, **MIXED),
    "non-reentrant": dict(REENTRANT_FALSE, **AS_DEEP),
    "non-reentrant-tower-trained": dict(REENTRANT_FALSE, **TRAINED),
    "non-reentrant-tower-full": dict(REENTRANT_FALSE, **FULL),
    "non-reentrant-accumulate-4": dict(REENTRANT_FALSE, **ACCUMULATE),
    "non-reentrant-accumulate-4-sync": dict(REENTRANT_FALSE, **SYNC),
    "non-reentrant-mixed": dict(REENTRANT_FALSE, **MIXED),
    "non-reentrant-mixed-tower-trained": dict(REENTRANT_FALSE, **TRAINED, **MIXED),
    "non-reentrant-mixed-accumulate-4": dict(REENTRANT_FALSE, **TRAINED, **MIXED, **ACCUMULATE),
    "non-reentrant-mixed-across-ranks": dict(REENTRANT_FALSE, **TRAINED, **ACROSS),
    "non-reentrant-image-and-video-tower-trained": dict(REENTRANT_FALSE, **TRAINED, **TWICE),
    "static-graph": STATIC,
    "static-graph-tower-trained": dict(STATIC, **TRAINED),
    "static-graph-mixed": dict(STATIC, **MIXED),
    "static-graph-mixed-tower-trained": dict(STATIC, **TRAINED, **MIXED),
    "static-graph-mixed-before-error": dict(STATIC, **TRAINED, **MIXED, **BEFORE_ERROR),
    "static-graph-text-first": dict(STATIC, **TEXT_FIRST),
    "static-graph-text-first-tower-trained": dict(STATIC, **TRAINED, **TEXT_FIRST),
    "static-graph-blank-image-tower-trained": dict(STATIC, **TRAINED, **BLANK),
    "static-graph-image-and-video-tower-trained": dict(STATIC, **TRAINED, **TWICE),
    "static-graph-accumulate-4": dict(STATIC, **ACCUMULATE),
    "static-graph-accumulate-4-sync": dict(STATIC, **SYNC),
    "find-unused-false": FIND_FALSE,
    "find-unused-false-tower-trained": dict(FIND_FALSE, **TRAINED),
    "find-unused-false-accumulate-4": dict(FIND_FALSE, **ACCUMULATE),
    "find-unused-false-accumulate-4-sync": dict(FIND_FALSE, **SYNC),
    "find-unused-false-mixed": dict(FIND_FALSE, **MIXED),
    "find-unused-false-mixed-tower-trained": dict(FIND_FALSE, **TRAINED, **MIXED),
    "find-unused-false-mixed-before-error": dict(FIND_FALSE, **TRAINED, **MIXED, **BEFORE_ERROR),
    "find-unused-false-blank-image-tower-trained": dict(FIND_FALSE, **TRAINED, **BLANK),
    "find-unused-false-image-and-video": dict(FIND_FALSE, **TWICE),
    "find-unused-false-image-and-video-tower-trained": dict(FIND_FALSE, **TRAINED, **TWICE),
    "find-unused-false-image-and-video-tower-full": dict(FIND_FALSE, **FULL, **TWICE),
}
# --8<-- [end:variants]

LENGTH, PATCHES, WIDTH = 8, 4, 16
ON_DEVICE = torch.accelerator.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.accelerator.current_accelerator() if ON_DEVICE else torch.device("cpu")


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    tower = s["tower"] in ("lora", "full")
    full = s["tower"] == "full" or s["aligner"] == "full"
    inside = (s["llm"] == "lora") + (tower and s["vit_checkpointing"])
    all_inside = s["aligner"] != "full" and (not tower or s["vit_checkpointing"])
    # The tower's backward comes last; what is trained in it and not checkpointed waits meanwhile.
    runs = "once"
    if s["shared"]:
        runs = "early" if tower else "last"
    elif s["batches"] == "image-and-video" and tower:
        runs = "early" if full else "last"
    skips = {"mixed": "some-steps", "mixed-text-first": "first-step", "mixed-across-ranks": "some-ranks"}
    trains = tower or s["aligner"] == "full"
    return {
        "strategy": "ddp",
        "tuning": "part" if full else "lora",
        "frozen": "language-model" if s["llm"] == "frozen" else "base" if tower else "tower-and-base",
        "lora_rank": 4,
        "checkpointing": s["checkpointing"],
        "checkpointed": "all" if inside and all_inside else "some" if inside else "none",
        "tower_checkpointed": s["vit_checkpointing"],
        "find_unused": s["find_unused_parameters"],
        "static_graph": s["static_graph"],
        "runs": runs,
        "runs_vary": False,
        "skips": skips.get(s["batches"], "never") if trains else "never",
        "filler": "zeros" if s["batches"] == "mixed-blank" else "none",
        "second_use": "none",
        "backward_calls": "once",
        "accumulation": s["accumulation"],
        "first_backward": "no-sync" if s["accumulation"] > 1 and s["no_sync"] else "synchronises",
        "batch_size": s["batch_size"],
        "steps": s["steps"],
    }


# --8<-- [end:facts]


# --8<-- [start:model]
class LoraLinear(nn.Module):
    def __init__(self, rank=4):
        super().__init__()
        down, up = nn.Linear(WIDTH, rank, bias=False), nn.Linear(rank, WIDTH, bias=False)
        self.base_layer = nn.Linear(WIDTH, WIDTH)
        self.lora_A = nn.ModuleDict({"default": down})
        self.lora_B = nn.ModuleDict({"default": up})  # not zero: lora_A needs a gradient

    def forward(self, x):
        return self.base_layer(x) + self.lora_B["default"](self.lora_A["default"](x))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj = LoraLinear(), LoraLinear()
        self.v_proj, self.o_proj = LoraLinear(), LoraLinear()

    def forward(self, x):
        mixed = scaled_dot_product_attention(self.q_proj(x), self.k_proj(x), self.v_proj(x))
        return self.o_proj(mixed)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.down_proj = LoraLinear()

    def forward(self, x):
        return self.down_proj(torch.tanh(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH)
        self.self_attn, self.mlp = Attention(), Mlp()

    def forward(self, x):
        x = x + self.self_attn(self.norm(x))
        return x + self.mlp(x)


class Stack(nn.Module):
    """Layers, checkpointed or not: the vision tower's blocks, or the language model's."""

    def __init__(self, name, layers, checkpointing):
        super().__init__()
        self.name, self.checkpointing = name, checkpointing
        self.add_module(name, nn.ModuleList(layers))

    def forward(self, x):
        for layer in getattr(self, self.name):
            if self.checkpointing:
                x = checkpoint(layer, x, use_reentrant=self.checkpointing == "reentrant")
            else:
                x = layer(x)
        return x


class VisionLanguageModel(nn.Module):
    """Named like Qwen2-VL: `visual.blocks`, `visual.merger` (the aligner), `model.layers`."""

    def __init__(self, settings):
        super().__init__()
        blocks, layers = [Layer() for _ in range(2)], [Layer() for _ in range(settings["layers"])]
        if settings["shared"]:
            blocks[-1] = layers[0]
        how = settings["checkpointing"]
        if settings["tower"]:
            self.visual = Stack("blocks", blocks, how if settings["vit_checkpointing"] else None)
            self.visual.merger = nn.Linear(WIDTH, WIDTH)
        self.model = Stack("layers", layers, how)
        self.embed, self.head = nn.Embedding(32, WIDTH), nn.Linear(WIDTH, 1)
        self.requires_grad_(False)
        for stack, trained in ((blocks, settings["tower"]), (layers, settings["llm"])):
            for name, parameter in nn.ModuleList(stack).named_parameters():
                if trained in ("lora", "full") and ("lora_" in name) == (trained == "lora"):
                    parameter.requires_grad_()
        if settings["aligner"] == "full":
            self.visual.merger.requires_grad_()

    def forward(self, tokens, *pictures):
        # requires_grad_() is what peft's enable_input_require_grads() does to both towers.
        x = self.embed(tokens).requires_grad_()
        for patches, weight in pictures:
            seen = self.visual.merger(self.visual(patches.clone().requires_grad_()))
            x = x + weight * seen.mean(1, keepdim=True)
        return self.head(self.model(x))


class PeftModel(nn.Module):
    """What wraps the model, so that its parameters are called `base_model.model...`."""

    def __init__(self, model):
        super().__init__()
        self.base_model = nn.Module()
        self.base_model.model = model

    def forward(self, *inputs):
        return self.base_model.model(*inputs)


# --8<-- [end:model]


# --8<-- [start:train]
def make(settings):
    torch.manual_seed(0)
    return PeftModel(VisionLanguageModel(settings)).to(DEVICE)


def train(settings, world_size, ranks, wrap=lambda model: model):
    """Steps of plain SGD on what these ranks are given; returns the trained model."""
    model = make(settings)
    wrapped = wrap(model)  # keep a reference: DDP's hooks die with its wrapper
    optimizer = torch.optim.SGD(trainable(model), lr=0.1)
    torch.manual_seed(1)
    accumulation = settings["accumulation"]
    micro_steps = settings["steps"] * accumulation
    shape = micro_steps, world_size, settings["batch_size"]
    tokens = torch.randint(32, (*shape, LENGTH)).to(DEVICE)
    patches = torch.randn(2, *shape, PATCHES, WIDTH).to(DEVICE)
    for micro in range(micro_steps):
        last = micro % accumulation == accumulation - 1
        quiet = settings["no_sync"] and wrapped is not model and not last
        with wrapped.no_sync() if quiet else nullcontext():
            for rank in ranks:
                pictures = pictures_of(settings, micro, rank, patches[:, micro, rank])
                loss = (wrapped(tokens[micro, rank], *pictures) - 1).square().mean()
                (loss / accumulation / len(ranks)).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
    return model


def pictures_of(settings, micro, rank, patches):
    """What the vision tower is called on, a call each: (patches, the weight of what it says)."""
    image, video = patches
    match settings["batches"]:
        case "image":
            has_image = True
        case "text":
            has_image = False
        case "image-and-video":
            return [(image, 1), (video, 1)]
        case "mixed" | "mixed-blank":
            has_image = micro % 2 == 0
        case "mixed-text-first":
            has_image = micro % 2 == 1
        case "mixed-across-ranks":
            has_image = (micro + rank) % 2 == 0
    if has_image:
        return [(image, 1)]
    return [(torch.zeros_like(image), 0)] if settings["batches"] == "mixed-blank" else []


# --8<-- [end:train]


# --8<-- [start:compare]
def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    settings = {**DEFAULTS, **VARIANTS[variant]}
    ddp = {key: settings[key] for key in ("find_unused_parameters", "static_graph")}
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = train(settings, world_size, [rank], lambda m: DistributedDataParallel(m, **ddp))
    reference = train({**settings, "checkpointing": None}, world_size, range(world_size))
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
    if DEVICE.type != "cpu":
        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
    backend = dist.get_default_backend_for_device(DEVICE)
    dist.init_process_group(backend, timeout=timedelta(seconds=60))
    result = run(sys.argv[1]) | {"facts": facts(sys.argv[1])}
    if dist.get_rank() == 0:
        print("RESULT", json.dumps(result), flush=True)
    dist.barrier()  # without it a rank that is done can take the store away from the other
    os._exit(0)  # else gloo's threads may abort, or block the end: seen with torch 2.6, pytorch/pytorch#154976
