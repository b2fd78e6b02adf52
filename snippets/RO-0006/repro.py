"""Ranks that train on their own under DDP: the loss does not go through the wrapper, or DDP never met the parameter.

    torchrun --nproc-per-node 2 repro.py reported
    torchrun --nproc-per-node 2 repro.py wrapper-find-unused-false

Objective: the mean loss over all samples of all ranks, equally many on each. A variant is compared with one process
that saw them all; `own-share-reference` compares each rank with a process that saw this rank's samples only. Needs
torch >= 2.6 and nothing else. A variant either raises, as it would in training, or trains three steps and says in its
last line how far its parameters are from that process, and from each other.
"""

import contextlib
import itertools
import json
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as differentiable
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# --8<-- [start:variants]
DEFAULTS = dict(
    path="wrapper",  # what the loss goes through, see `loss_of`
    averaged=None,  # by hand: "grads", "grads-summed", "grads-each-micro-batch", "loss", "loss-autograd", or "weights"
    find_unused_parameters=False,
    static_graph=False,
    change=None,  # to the model, see `change`
    when="after",  # or "before" wrapping
    again=False,  # wrap once more, after the change
    accumulate=1,
    skip=None,  # the head is not used on "rank-1"
    reference="right",  # or "own-share": compare each rank with a process that saw this rank's samples only
)
DDP = {
    "find-unused-false": {},
    "find-unused-true": dict(find_unused_parameters=True),
    "static-graph": dict(static_graph=True),
}
WHEN = {f"after-{name}": ddp for name, ddp in DDP.items()} | {
    "before": dict(when="before"),
    "after-wrapped-again": dict(again=True),
}
PATHS = "wrapper module method fused hidden redirected loss-module dropped no-grad summed".split()
CHANGES = "unfrozen added replaced assigned converted head-converted tied frozen loaded".split()
INNER = dict(path="module")

VARIANTS = (
    {
        "reported": dict(path="fused"),  # as Liger's losses: hidden states, and the head's weight in the loss
        "by-hand": dict(INNER, averaged="grads"),
        "by-hand-summed": dict(INNER, averaged="grads-summed"),
        "by-hand-accumulate-2": dict(INNER, averaged="grads", accumulate=2),
        "by-hand-each-micro-batch": dict(INNER, averaged="grads-each-micro-batch", accumulate=2),
        "by-hand-rank-skips": dict(INNER, averaged="grads", skip="rank-1"),
        "by-hand-unfrozen": dict(averaged="grads", change="unfrozen"),
        "by-hand-wrapper": dict(averaged="grads"),
        "loss-averaged": dict(INNER, averaged="loss"),
        "loss-averaged-autograd": dict(INNER, averaged="loss-autograd"),
        "weights-averaged": dict(INNER, averaged="weights"),
        "own-share-reference": dict(INNER, reference="own-share"),
        "module-accumulate-2": dict(INNER, accumulate=2),
        "wrapper-accumulate-2": dict(accumulate=2),
    }
    | {f"{path}-{name}": dict(ddp, path=path) for path, (name, ddp) in itertools.product(PATHS, DDP.items())}
    | {f"{what}-{when}": dict(s, change=what) for what, (when, s) in itertools.product(CHANGES, WHEN.items())}
)
# --8<-- [end:variants]

STEPS, BATCH, WIDTH = 3, 8, 16
ON_DEVICE = torch.accelerator.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.accelerator.current_accelerator() if ON_DEVICE else torch.device("cpu")


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    extra = s["path"] if s["path"] in ("dropped", "no-grad", "summed") else "nothing"
    averaged = {"grads": "hand", "grads-summed": "hand-summed", "grads-each-micro-batch": "hand-each-micro-batch"}
    tied = "forward" if s["change"] == "tied" else "none"
    return {
        "strategy": "ddp",
        "tuning": "part" if s["change"] == "frozen" else "full",
        "frozen": "head" if s["change"] == "frozen" else "none",
        "loss_through": "inner" if extra != "nothing" or s["path"] == "module" else s["path"],
        "also_wrapper": extra,
        "averaged_by": averaged.get(s["averaged"], s["averaged"] or "wrapper"),
        "after_wrapping": s["change"] if s["change"] and s["when"] == "after" else "nothing",
        "wrapped": "again" if s["again"] else "once",
        "find_unused": s["find_unused_parameters"],
        "static_graph": s["static_graph"],
        "checkpointing": "none",
        "runs": "last" if s["path"] == "summed" else "once",
        "runs_vary": False,
        "skips": "some-ranks" if s["skip"] else "never",
        "second_use": "only-loss" if s["path"] in ("fused", "hidden") else tied,
        "second_use_of": "not-checkpointed" if s["path"] in ("fused", "hidden") or tied != "none" else "none",
        "backward_calls": "once",
        "accumulation": s["accumulate"],
        "first_backward": "synchronises" if s["accumulate"] == 1 else "no-sync",
        "batch_size": BATCH // 2,
        "optimizer": "sgd",
        "reference": s["reference"],
    }


# --8<-- [end:facts]


# --8<-- [start:model]
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WIDTH, WIDTH)
        self.body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, tokens, use_head=True):
        return self.logits(tokens, use_head)

    def logits(self, tokens, use_head=True):
        x = self.body(self.embed(tokens))
        return self.head(x) if use_head else x

    def loss(self, tokens, use_head=True):
        """A method beside `forward`: a fused loss, a policy's log-probabilities, an encoder ..."""
        return F.cross_entropy(self.logits(tokens, use_head), tokens.flip(0))


# --8<-- [start:loss-module]
class Loss(nn.Module):
    """The loss as a module of its own: DDP wraps this one."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model.loss(tokens)


# --8<-- [end:loss-module]
# --8<-- [end:model]


# --8<-- [start:paths]
def loss_of(path, ddp, model, tokens, use_head):
    """The same loss; what differs is who computes it."""
    target = tokens.flip(0)
    if path == "wrapper":
        return F.cross_entropy(ddp(tokens, use_head), target)
    if path == "loss-module":  # ddp = DistributedDataParallel(Loss(model))
        return ddp(tokens)
    if path == "redirected":
        return redirected(ddp, model, model.loss, tokens)
    if path == "method":
        return model.loss(tokens, use_head)
    if path in ("fused", "hidden"):  # hidden states, and the head's weight without its forward
        x = ddp(tokens, False) if path == "hidden" else model.body(model.embed(tokens))
        return F.cross_entropy(F.linear(x, model.head.weight), target)
    if path == "summed":  # two forwards in one loss, one of them through the wrapper
        return F.cross_entropy(ddp(tokens), target) + F.cross_entropy(model(tokens), target)
    if path == "dropped":  # the wrapper runs too, and nobody uses what it returns
        ddp(tokens)
    if path == "no-grad":  # the wrapper runs too, as for a generation or an evaluation
        with torch.no_grad():
            ddp(tokens)
    return F.cross_entropy(model(tokens, use_head), target)


# --8<-- [start:fix]
def redirected(wrapper, model, method, *args):
    """Call the wrapper; its forward runs `method`."""
    forward = model.forward

    def once(*args):
        model.forward = forward
        return method(*args)

    model.forward = once
    return wrapper(*args)


# --8<-- [end:fix]
# --8<-- [end:paths]


# --8<-- [start:change]
def change(model, what):
    """What a training script does to a model it has; the optimizer is made later."""
    if what == "unfrozen":
        model.head.requires_grad_(True)
    elif what == "frozen":
        model.head.requires_grad_(False)
    elif what == "added":  # as an adapter is
        model.body.append(nn.Linear(WIDTH, WIDTH, device=DEVICE))
    elif what == "replaced":  # as a head for another number of classes is
        model.head = nn.Linear(WIDTH, WIDTH, bias=False, device=DEVICE)
    elif what == "tied":
        model.head.weight = model.embed.weight
    elif what == "converted":  # there and back: each Parameter is the same object, and DDP's hooks are gone
        model.double().float()
    elif what == "head-converted":
        model.head.double().float()
    elif what in ("loaded", "assigned"):
        state = {name: value.clone() for name, value in model.state_dict().items()}
        model.load_state_dict(state, assign=what == "assigned")


# --8<-- [end:change]


# --8<-- [start:train]
def make(settings, wrap=None):
    """The model that is trained, and its wrapper, if any."""
    torch.manual_seed(0)
    model = Model().to(DEVICE)
    if settings["change"] == "unfrozen":
        model.head.requires_grad_(False)
    ddp = None
    if settings["when"] == "before" or not wrap:
        change(model, settings["change"])
    if wrap:
        ddp = wrap(Loss(model) if settings["path"] == "loss-module" else model)
        if settings["when"] == "after":
            change(model, settings["change"])
        if settings["again"]:
            ddp = wrap(model)
    return model, ddp


def train(settings, rank, world_size, wrap=None):
    """Three steps of plain SGD on this rank's share of each batch; returns the trained parameters."""
    model, ddp = make(settings, wrap)
    trained = trainable(model)
    optimizer = torch.optim.SGD(trained.values(), lr=0.1)
    tokens = torch.randint(WIDTH, (STEPS * settings["accumulate"], BATCH)).to(DEVICE)
    for micro_step, batch in enumerate(tokens):
        last = (micro_step + 1) % settings["accumulate"] == 0
        alone = wrap or settings["reference"] == "own-share"
        shares = [batch[rank::world_size]] if alone else [batch[r::world_size] for r in range(world_size)]
        with contextlib.nullcontext() if last or not wrap else ddp.no_sync():
            for r, share in enumerate(shares):
                use_head = settings["skip"] != "rank-1" or (rank if wrap else r) != 1
                path = settings["path"] if wrap else "summed" if settings["path"] == "summed" else "module"
                loss = loss_of(path, ddp or model, model, share, use_head) / settings["accumulate"] / len(shares)
                averaged_loss(loss, settings["averaged"] if wrap else None).backward()
        if wrap:
            average(trained.values(), settings["averaged"], last)
        if last:
            optimizer.step()
            optimizer.zero_grad()
            if wrap and settings["averaged"] == "weights":
                all_reduce([p.data for p in trained.values()], mean=True)
    return trained


# --8<-- [end:train]


# --8<-- [start:average]
def averaged_loss(loss, how):
    if how == "loss":
        dist.all_reduce(loss.data)
        loss.data /= dist.get_world_size()
    elif how == "loss-autograd":
        loss = differentiable.all_reduce(loss) / dist.get_world_size()
    return loss


def average(trained, how, last):
    """By hand, between the backward and the step; each rank must reduce the same parameters in the same order."""
    if how not in ("grads", "grads-summed", "grads-each-micro-batch") or not (last or how.endswith("batch")):
        return
    for p in trained:
        if p.grad is None:  # a rank that leaves one out would wait, or add up what does not belong together
            p.grad = torch.zeros_like(p)
    all_reduce([p.grad for p in trained], mean=how != "grads-summed")


def all_reduce(tensors, mean):
    for tensor in tensors:
        dist.all_reduce(tensor)
        if mean:
            tensor /= dist.get_world_size()


# --8<-- [end:average]


# --8<-- [start:compare]
def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    settings = {**DEFAULTS, **VARIANTS[variant]}
    options = {key: settings[key] for key in ("find_unused_parameters", "static_graph")}
    wrappers = []

    def wrap(model):
        wrappers.append(DistributedDataParallel(model, **options))
        return wrappers[-1]

    place = dist.get_rank(), dist.get_world_size()
    start, _ = make(settings)
    return compare(variant, train(settings, *place, wrap), train(settings, *place), trainable(start))


def trainable(model):
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


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
