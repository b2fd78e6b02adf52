"""InfoNCE with embeddings gathered from all ranks: which design has the right gradient, and with which factor?

    torchrun --nproc-per-node 2 repro.py reported
    torchrun --nproc-per-node 2 repro.py own-grad-plain-fixed

The stated objective is the mean InfoNCE over all pairs of the global batch: each query against the passages of all ranks, as one
process computes it on the same data. Negatives of one's own rank only are another objective; variants that are compared with that,
or with another one, say so under `reference`.

Three steps of plain SGD. The last line tells how far the parameters are from the single process, and what the first gradient of the
encoders is to that process's: `factor` times as long, with `cosine` 1 where it has the same direction; the temperature's apart.
"""

import contextlib
import copy
import itertools
import json
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

# --8<-- [start:variants]
DEFAULTS = dict(
    contrast="all",  # whose queries a rank's loss has: "all" or "own", against the passages of all; "local": against its own
    # "none": no negatives
    gather="slot",  # all_gather, then gathered[rank] = own; "bare": all_gather alone; "grad": one that autograd knows
    times="one",  # the loss, or "ranks": times the world size; "slot": only the gradient of the own slot
    # "cross": only the term that crosses ranks
    second="none",  # "local": a second term of the loss, over the rank's own pairs only, as in distillation
    learned=False,  # the temperature, a parameter
    symmetric=False,  # passages against queries too, as in CLIP
    towers=1,  # 1: the same encoder for both sides
    strategy="ddp",
    optimizer="sgd",
    pairs=(4, 4),  # of each rank
    accumulation=1,  # micro-batches in a step
    reference="right",  # or "local": own negatives only; "micro": each micro-batch by itself; "scaled": right / ranks
)
DESIGNS = {
    "local": dict(contrast="local", gather="none"),
    "own-bare": dict(contrast="own", gather="bare"),
    "own-slot": dict(contrast="own", gather="slot"),
    "own-grad": dict(contrast="own", gather="grad"),
    "all-slot": dict(contrast="all", gather="slot"),
    "all-grad": dict(contrast="all", gather="grad"),
}
TIMES = {"plain": dict(times="one"), "ranks": dict(times="ranks")}
TEMPERATURES = {"fixed": dict(learned=False), "learned": dict(learned=True)}
CLIP = dict(symmetric=True, learned=True, towers=2)
FIX, REPORTED, WITH_FACTOR = DESIGNS["own-grad"], DESIGNS["all-slot"], dict(DESIGNS["all-slot"], times="ranks")

VARIANTS = {
    **{
        f"{design}-{factor}-{temperature}": DESIGNS[design] | TIMES[factor] | TEMPERATURES[temperature]
        for design, factor, temperature in itertools.product(DESIGNS, TIMES, TEMPERATURES)
    },
    **{
        f"clip-{design}-{factor}": CLIP | DESIGNS[design] | TIMES[factor]
        for design, factor in itertools.product(("own-bare", "own-grad", "all-slot", "all-grad"), TIMES)
    },
    "reported": {},
    "reported-half": dict(reference="scaled"),
    "reported-two-towers": dict(towers=2),
    "own-single": dict(FIX, gather="single"),  # what torch 2.13 names instead of the deprecated function
    "all-slot-slot-fixed": dict(times="slot"),
    "all-slot-slot-learned": dict(times="slot", learned=True),
    "clip-all-slot-slot": dict(CLIP, times="slot"),
    # a second term beside it that crosses no ranks
    **{
        f"second-{name}": dict(settings, second="local")
        for name, settings in {
            "all-slot": REPORTED,
            "all-slot-ranks": WITH_FACTOR,
            "all-slot-cross": dict(REPORTED, times="cross"),
            "own-grad": FIX,
        }.items()
    },
    # other objectives
    "local-own-objective": dict(DESIGNS["local"], reference="local"),
    "own-slot-local-objective": dict(DESIGNS["own-slot"], reference="local"),
    "accumulate": dict(FIX, accumulation=2),
    "accumulate-no-negatives": dict(
        contrast="none", gather="none", accumulation=2, reference="micro"
    ),  # each pair alone
    "accumulate-micro-objective": dict(FIX, accumulation=2, reference="micro"),
    # AdamW divides by the length of the gradient
    "adamw-all-slot": dict(REPORTED, optimizer="adamw"),
    "adamw-all-slot-learned": dict(REPORTED, optimizer="adamw", learned=True),
    "adamw-own-slot": dict(DESIGNS["own-slot"], optimizer="adamw"),
    "adamw-own-grad": dict(FIX, optimizer="adamw"),
    # a last batch that is not the same on all ranks
    "uneven-own-grad": dict(FIX, pairs=(5, 2)),
    "uneven-own-grad-share": dict(
        FIX, pairs=(5, 2), times="share"
    ),  # the sum over its own, times the ranks, by all pairs
    "uneven-all-slot-ranks": dict(WITH_FACTOR, pairs=(5, 2)),
    **{
        f"fsdp2-{name}": dict(settings, strategy="fsdp2")
        for name, settings in {"own-grad": FIX, "all-slot": REPORTED, "all-slot-ranks": WITH_FACTOR}.items()
    },
    **{f"single-{design}": DESIGNS[design] for design in ("own-grad", "all-slot")},  # one process
}
# --8<-- [end:variants]

STEPS, WIDTH = 3, 8
ON_DEVICE = torch.accelerator.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.accelerator.current_accelerator() if ON_DEVICE else torch.device("cpu")


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    single = variant.startswith("single")
    first_backward = "synchronises" if s["accumulation"] == 1 else "no-sync"
    of_ddp = {"find_unused": False, "static_graph": False, "first_backward": first_backward}
    return {
        "strategy": "single" if single else s["strategy"],
        "tuning": "full",
        "frozen": "none",
        "checkpointing": "none",
        "runs": "last" if s["towers"] == 1 else "once",
        "runs_vary": False,
        "skips": "never",
        "second_use": "none",
        "backward_calls": "once",
        **(of_ddp if s["strategy"] == "ddp" and not single else {}),
        "accumulation": s["accumulation"],
        "batch_size": s["pairs"][0] // s["accumulation"],
        "optimizer": s["optimizer"],
        "contrast": {"own": "own-queries", "all": "all-queries"}.get(s["contrast"], s["contrast"]),
        **({} if s["gather"] == "none" else {"gather": s["gather"]}),
        **({} if s["contrast"] == "none" else of_contrast(s)),
        "reference": {"local": "local-negatives", "micro": "micro-batches"}.get(s["reference"], s["reference"]),
    }


def of_contrast(s):
    return {
        "loss_times": s["times"],
        "temperature": "learned" if s["learned"] else "fixed",
        "directions": "both" if s["symmetric"] else "one",
        "second_term": s["second"],
        "rank_pairs": "equal" if len(set(s["pairs"])) == 1 else "unequal",
    }


# --8<-- [end:facts]


class Encoders(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.query = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
        self.passage = copy.deepcopy(self.query) if s["towers"] == 2 else self.query
        self.log_scale = nn.Parameter(torch.tensor([1.5]), requires_grad=s["learned"])  # 1 / temperature is its exp

    def forward(self, queries, passages):
        queries, passages = self.query(queries), self.passage(passages)
        return F.normalize(queries, dim=-1), F.normalize(passages, dim=-1), self.log_scale.exp()


# --8<-- [start:fix]
def info_nce(queries, passages, scale):
    parts = torch.distributed.nn.functional.all_gather(passages)  # has gradients
    own = torch.arange(len(queries), device=queries.device)
    targets = own + dist.get_rank() * len(queries)
    return F.cross_entropy(scale * queries @ torch.cat(parts).T, targets)


# --8<-- [end:fix]


# --8<-- [start:designs]
def gathered(own, s):
    """The embeddings of all ranks."""
    rank, pairs = dist.get_rank(), s["pairs"]
    filled = F.pad(own, (0, 0, 0, max(pairs) - len(own)))  # the ranks must bring equally many
    if s["gather"] == "grad":
        found = torch.distributed.nn.functional.all_gather(filled)
    elif s["gather"] == "single":
        found = torch.distributed._functional_collectives.all_gather_single(filled, 0, dist.group.WORLD).split(
            len(filled)
        )
    else:
        found = [torch.empty_like(filled) for _ in range(dist.get_world_size())]
        dist.all_gather(found, filled.detach())
    found = [it[:count] for it, count in zip(found, pairs)]
    if s["gather"] == "slot":
        found[rank] = own
        if s["times"] == "slot":
            # --8<-- [start:slot]
            found[rank] = own.detach() + dist.get_world_size() * (own - own.detach())  # the same value
            # --8<-- [end:slot]
    return torch.cat(found)


def one_direction(queries, passages, scale, s):
    if s["contrast"] == "none":
        return distance(queries, passages)
    if s["contrast"] == "own" and s["gather"] == "grad" and len(set(s["pairs"])) == 1:
        return info_nce(queries, passages, scale) * (dist.get_world_size() if s["times"] == "ranks" else 1)
    first = 0
    if s["contrast"] != "local":
        passages = gathered(passages, s)
        first = sum(s["pairs"][: dist.get_rank()])
    if s["contrast"] == "all":
        queries, first = gathered(queries, s), 0
    targets = torch.arange(first, first + len(queries), device=queries.device)
    losses = F.cross_entropy(scale * queries @ passages.T, targets, reduction="none")
    if s["times"] == "share":
        return losses.sum() * dist.get_world_size() / sum(s["pairs"])
    return losses.mean() * (dist.get_world_size() if s["times"] == "ranks" else 1)


def loss_of(queries, passages, scale, s):
    loss = one_direction(queries, passages, scale, s)
    if s["symmetric"]:
        loss = (loss + one_direction(passages, queries, scale, s)) / 2
    if s["second"] == "none":
        return loss
    second = distance(queries, passages)
    if s["times"] == "cross":
        # --8<-- [start:cross]
        loss = dist.get_world_size() * loss + second  # `second` is over the rank's own pairs
        # --8<-- [end:cross]
        return loss
    return loss + second * (dist.get_world_size() if s["times"] == "ranks" else 1)


# --8<-- [end:designs]


# --8<-- [start:train]
def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the pairs."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    rank, world_size, parts = dist.get_rank(), dist.get_world_size(), s["accumulation"]
    s["pairs"] = tuple(count // parts for count in s["pairs"][:world_size])  # of a micro-batch
    data = torch.randn(STEPS, parts, 2, sum(s["pairs"]), WIDTH, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    torch.manual_seed(0)
    model = Encoders(s).to(DEVICE)
    reference, start, first = copy.deepcopy(model), copy.deepcopy(model), None
    if s["strategy"] == "fsdp2":
        wrapped = fully_shard(model, mesh=init_device_mesh(DEVICE.type, (world_size,)))
    else:
        wrapped = DistributedDataParallel(model)
    optimizer = made(s, model)
    mine = slice(sum(s["pairs"][:rank]), sum(s["pairs"][: rank + 1]))
    for step in data:
        for number, (queries, passages) in enumerate(step):
            with wrapped.no_sync() if number < parts - 1 else contextlib.nullcontext():
                (loss_of(*wrapped(queries[mine], passages[mine]), s) / parts).backward()
        first = first or [whole(p.grad).clone() for p in trainable(model)]
        optimizer.step()
        optimizer.zero_grad()
    expected = train_alone(reference, data, s)
    return compare(variant, *map(named, (model, reference, start))) | figures(first, expected, s)


def train_alone(model, data, s):
    """The same steps in one process. Returns the first gradient of the stated objective."""
    optimizer, first = made(s, model), None
    for step in data:
        losses = []
        for queries, passages in step if s["reference"] == "micro" else [torch.cat(list(step), dim=1)]:
            pieces = zip(*(it.split(s["pairs"]) if s["reference"] == "local" else [it] for it in (queries, passages)))
            losses += [in_one_process(*model(*piece), s) for piece in pieces]
        (sum(losses) / len(losses) / (dist.get_world_size() if s["reference"] == "scaled" else 1)).backward()
        first = first or [p.grad.clone() for p in trainable(model)]
        optimizer.step()
        optimizer.zero_grad()
    return first


def in_one_process(queries, passages, scale, s):
    if s["contrast"] == "none":
        return distance(queries, passages)
    scores, targets = scale * queries @ passages.T, torch.arange(len(queries), device=queries.device)
    loss = F.cross_entropy(scores, targets)
    if s["symmetric"]:
        loss = (loss + F.cross_entropy(scores.T, targets)) / 2
    return loss if s["second"] == "none" else loss + distance(queries, passages)


def distance(queries, passages):
    return (1 - (queries * passages).sum(dim=-1)).mean()


# --8<-- [end:train]


def made(s, model):
    if s["optimizer"] == "adamw":
        return torch.optim.AdamW(trainable(model), lr=0.01, eps=1e-12)
    return torch.optim.SGD(trainable(model), lr=0.1)


def trainable(model):
    return [p for p in model.parameters() if p.requires_grad]


def named(model):
    return {name: whole(p.detach()) for name, p in model.named_parameters() if p.requires_grad}


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


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


def figures(gradient, expected, s):
    """What the first gradient is to that of one process."""
    told = {}
    if s["learned"]:  # it stands first
        told["temperature_factor"] = round((gradient.pop(0) / expected.pop(0)).item(), 3)
    ours, right = (torch.cat([g.flatten() for g in gradients]) for gradients in (gradient, expected))
    told["factor"] = round((ours @ right / (right @ right)).item(), 3)
    told["cosine"] = round(F.cosine_similarity(ours, right, dim=0).item(), 4)
    return told


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
