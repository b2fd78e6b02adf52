"""The same reranker with transformers and peft: does the rank or the scale of LoRA matter?

    torchrun --nproc-per-node 2 lora.py rank-1-alpha-1
    torchrun --nproc-per-node 2 lora.py kwargs-non-reentrant

Needs torch >= 2.6, transformers and peft; downloads nothing. A variant either raises, as it would
in training, or trains three steps and says in its last line how far its parameters are from a
single-process run.
"""

import itertools
import json
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import transformers
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from transformers import LlamaConfig, LlamaForCausalLM

# --8<-- [start:variants]
REENTRANT = {"use_reentrant": True}  # what transformers 4.38 to 4.57 do unless told otherwise
DEFAULTS = dict(rank=32, alpha=64, kwargs=REENTRANT)  # rank and alpha of upstream's examples

VARIANTS = {
    f"rank-{rank}-alpha-{alpha}": dict(rank=rank, alpha=alpha)
    for rank, alpha in itertools.product((1, 4, 16, 64), (1, 16, 64))
} | {
    "kwargs-none": dict(kwargs=None),  # the default of the installed transformers
    "kwargs-reentrant": {},
    "kwargs-non-reentrant": dict(kwargs={"use_reentrant": False}),
}
# --8<-- [end:variants]

STEPS, BATCH, GROUP, LENGTH, YES = 3, 4, 2, 8, 1  # YES: the token whose logit is the score
ON_DEVICE = torch.accelerator.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.accelerator.current_accelerator() if ON_DEVICE else torch.device("cpu")


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    reentrant = int(transformers.__version__.split(".")[0]) < 5  # where nothing is given
    if s["kwargs"]:
        reentrant = s["kwargs"]["use_reentrant"]
    return {
        "strategy": "ddp",
        "tuning": "lora",
        "frozen": "base",
        "model_wrapper": "peft",
        "lora_rank": s["rank"],
        "lora_alpha": s["alpha"],
        "checkpointing": "reentrant" if reentrant else "non-reentrant",
        "checkpointed": "all",
        "find_unused": True,
        "static_graph": False,
        "runs": "once",
        "runs_vary": False,
        "skips": "never",
        "second_use": "none",
        "backward_calls": "once",
        "accumulation": 1,
        "first_backward": "synchronises",
        "batch_size": BATCH // 2,
    }


# --8<-- [end:facts]


# --8<-- [start:model]
class Wrapper(nn.Module):
    """A plain nn.Module that hands the checkpointing options on, as FlagEmbedding's does."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def gradient_checkpointing_enable(self, **kwargs):
        self.model.gradient_checkpointing_enable(**kwargs)

    def forward(self, pairs):
        scores = self.model(input_ids=pairs.flatten(0, 1)).logits[:, -1, YES]
        right = torch.zeros(len(pairs), dtype=torch.long, device=pairs.device)
        return F.cross_entropy(scores.view(-1, GROUP), right)  # the first passage is the right one


def build(s):
    torch.manual_seed(0)
    sizes = dict(vocab_size=32, hidden_size=16, intermediate_size=32)
    heads = dict(num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2)
    llama = LlamaForCausalLM(LlamaConfig(**sizes, **heads, use_cache=False))
    lora = LoraConfig(
        r=s["rank"],
        lora_alpha=s["alpha"],
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
        init_lora_weights=False,  # neither matrix is zero, so that both get a gradient
    )
    return Wrapper(get_peft_model(llama, lora)).to(DEVICE).train()


# --8<-- [end:model]


# --8<-- [start:train]
def train(s, rank=0, world_size=1, wrap=lambda model: model, checkpointing=True):
    """Three steps of plain SGD on this rank's share of each batch; returns the trained model."""
    model = build(s)
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=s["kwargs"])
        model.model.enable_input_require_grads()
    wrapped = wrap(model)  # keep a reference: DDP's hooks die with its wrapper
    optimizer = torch.optim.SGD(trainable(model), lr=5 / s["alpha"])
    torch.manual_seed(1)
    for batch in torch.randint(32, (STEPS, BATCH, GROUP, LENGTH)):
        wrapped(batch[rank::world_size].to(DEVICE)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


# --8<-- [end:train]


# --8<-- [start:compare]
def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    settings = {**DEFAULTS, **VARIANTS[variant]}
    ddp = dict(find_unused_parameters=True)  # what transformers' Trainer picks for a wrapper
    place = dist.get_rank(), dist.get_world_size()
    model = train(settings, *place, wrap=lambda m: DistributedDataParallel(m, **ddp))
    reference = train(settings, checkpointing=False)
    return compare(variant, *map(named, (model, reference, build(settings))))


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
