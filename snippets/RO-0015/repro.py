"""Ranks that do not run the same trained modules in the same order: a vision tower that text batches skip, under DeepSpeed.

    torchrun --nproc-per-node 2 repro.py reported
    torchrun --nproc-per-node 2 repro.py zero2-zeros

Three steps. In each, one rank has images for the tower and the other has text only; in the next step it is the other way round.
`others` is two towers, of which each rank runs one. A variant is compared, on every rank, with one process that saw all the data.
Needs DeepSpeed.
"""

import itertools
import json
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

if not torch.accelerator.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
import deepspeed

if not torch.accelerator.is_available():
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo does; nothing to compile
dist.set_debug_level(dist.DebugLevel.DETAIL)  # ranks whose collectives differ raise; without it gloo aborts the process
LINEAR = nn.functional.linear  # ZeRO-3 replaces it for the rest of the process

# --8<-- [start:variants]
DEFAULTS = dict(
    stage=2,  # of DeepSpeed
    towers="one-rank",  # which rank has data for which tower; see `seen`
    way="skip",  # what a tower does on a rank that has nothing for it; see AXES
    overlap=False,  # overlap_comm
    bucket=500_000_000,  # reduce_bucket_size, DeepSpeed's own; a tower has 544 elements
)
AXES = dict(
    stage={"zero1": 1, "zero2": 2},
    way={
        "skip": "skip",  # it does not run
        "zeros": "zeros",  # it runs on zeros, at its place in the forward, and its output counts 0
        "no-grad": "no-grad",  # the same under torch.no_grad()
        "sum-in-place": "sum-in-place",  # 0.0 * sum(p.sum() for p in tower.parameters()) stands in for its output
        "sum-in-loss": "sum-in-loss",  # the same sum is added to the loss
    },
)
OTHERS = dict(towers="other-modules")
VARIANTS = {
    "-".join(words): {key: AXES[key][word] for key, word in zip(AXES, words)}
    for words in itertools.product(*AXES.values())
} | {
    "reported": dict(towers="other-order"),
    "zero1-other-order": dict(stage=1, towers="other-order"),
    "zero1-sum-in-loss-overlap": dict(stage=1, way="sum-in-loss", overlap=True),
    "zero0-skip": dict(stage=0),
    "zero3-skip": dict(stage=3),
    "zero3-zeros": dict(stage=3, way="zeros"),
    "zero3-others": dict(OTHERS, stage=3),
    "zero2-both-skip": dict(towers="both-ranks"),
    "zero1-others-overlap": dict(OTHERS, stage=1, overlap=True),
    "zero2-others-overlap": dict(OTHERS, overlap=True),
    "zero1-others-buckets": dict(OTHERS, stage=1, bucket=300),
    "zero2-others-buckets": dict(OTHERS, bucket=300),
    "zero2-others-overlap-buckets": dict(OTHERS, overlap=True, bucket=300),
    "zero2-others-zeros-buckets": dict(OTHERS, way="zeros", bucket=300),
}
# --8<-- [end:variants]

STEPS, SAMPLES, WIDTH = 3, 4, 16
ON_DEVICE = torch.accelerator.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.accelerator.current_accelerator() if ON_DEVICE else torch.device("cpu")


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    way, one = s["way"], s["towers"] == "one-rank"
    dummy = way in ("sum-in-place", "sum-in-loss")
    order = {"both-ranks": "same", "one-rank": "other-modules"}.get(s["towers"], s["towers"])
    if way in ("zeros", "sum-in-place"):
        order = "same"
    elif way == "sum-in-loss":
        order = "other-order"
    skips = {"other-order": "never", "both-ranks": "some-steps"}.get(s["towers"], "some-ranks")
    return {
        "strategy": f"zero-{s['stage']}",
        "gradient_order": order,
        "rank_sizes": "unequal" if one and way in ("skip", "no-grad") else "equal",
        "skips": "never" if way == "zeros" else skips,
        "filler": {"zeros": "zeros", "no-grad": "zeros-no-grad"}.get(way, "none"),
        "second_use": {"sum-in-place": "forward", "sum-in-loss": "loss"}.get(way, "none"),
        "term": "sum" if dummy else "none",
        **({"second_use_in": "skipped-steps", "second_use_of": "not-checkpointed"} if dummy else {}),
        "buckets": "one" if s["bucket"] > 10_000 else "several",
        "overlap": s["overlap"] or s["stage"] == 3,  # with stage 3, DeepSpeed's own choice
        "offload": "none",
        "leaf": False,
        "persistence": "none",
        "gathering": "none",
        "optimizer": "sgd",
        "tuning": "full",
        "frozen": "none",
        "checkpointing": "none",
        "runs": "once",
        "runs_vary": False,
        "backward_calls": "once",
        "accumulation": 1,
        "batch_size": SAMPLES,
    }


# --8<-- [end:facts]


def seen(towers, step, rank):
    """Which towers a rank has data for in a step, in the order in which it runs them."""
    turn = (step + rank) % 2
    return {
        "one-rank": [0][turn:],
        "both-ranks": [0][step % 2 :],
        "other-modules": [turn],
        "other-order": [turn, 1 - turn],
    }[towers]


# --8<-- [start:model]
class Model(nn.Module):
    def __init__(self, towers):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.towers = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)) for _ in range(towers)
        )

    def forward(self, x, seen, way):
        x = torch.tanh(self.first(x))
        out = x
        if way == "zeros":
            # --8<-- [start:fix]
            for number, tower in enumerate(self.towers):  # the same order on every rank
                out = out + (tower(x) if number in seen else 0.0 * tower(torch.zeros_like(x)))
            # --8<-- [end:fix]
            return self.loss(out)
        for number in seen:
            out = out + self.towers[number](x)
        rest = [tower for number, tower in enumerate(self.towers) if number not in seen]
        if way == "sum-in-loss":
            return self.loss(out) + 0.0 * sum(p.sum() for tower in rest for p in tower.parameters())
        for tower in rest:
            if way == "no-grad":
                with torch.no_grad():
                    blank = tower(torch.zeros_like(x))
                out = out + 0.0 * blank
            elif way == "sum-in-place":
                out = out + 0.0 * sum(p.sum() for p in tower.parameters())
        return self.loss(out)

    def loss(self, out):
        return (self.last(out) - 1).square().mean()


# --8<-- [end:model]


# --8<-- [start:train]
def make(s):
    torch.manual_seed(0)
    return Model(1 if s["towers"] in ("one-rank", "both-ranks") else 2).to(DEVICE)


def train(model, data, s):
    """Three steps; the trained parameters."""
    rank = dist.get_rank()
    zero = {"stage": s["stage"], "reduce_bucket_size": s["bucket"]}
    if s["stage"] == 3:
        zero["stage3_param_persistence_threshold"] = 0
    else:
        zero["overlap_comm"] = s["overlap"]
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        config={
            "train_micro_batch_size_per_gpu": SAMPLES,
            "gradient_clipping": 0.0,  # newer releases clip at 1.0 unless told otherwise
            "zero_allow_untested_optimizer": True,  # plain SGD, to compare parameters
            "zero_optimization": zero,
        },
    )
    try:
        for step in range(STEPS):
            engine.backward(engine(data[step, rank], seen(s["towers"], step, rank), s["way"]))
            engine.step()
        trained = {}
        for name, p in model.named_parameters():
            with deepspeed.zero.GatheredParameters(p, enabled=s["stage"] == 3):
                trained[name] = p.detach().clone()
        return trained
    finally:
        engine.destroy()  # or its hooks outlive a failed variant


def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    nn.functional.linear = LINEAR
    world_size = dist.get_world_size()
    shape = STEPS, world_size, SAMPLES, WIDTH
    data = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    alone = make(s)
    trained = train(make(s), data, s)
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for step in range(STEPS):
        for rank in range(world_size):
            (alone(data[step, rank], seen(s["towers"], step, rank), "skip") / world_size).backward()
        optimizer.step()
        optimizer.zero_grad()
    return compare(variant, trained, *(dict(it.named_parameters()) for it in (alone, make(s))))


# --8<-- [end:train]


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


if __name__ == "__main__":
    torch.set_num_threads(1)
    deepspeed.init_distributed(timeout=timedelta(seconds=60), verbose=False)
    result = run(sys.argv[1]) | {"facts": facts(sys.argv[1])}
    if dist.get_rank() == 0:
        print("RESULT", json.dumps(result), flush=True)
    dist.barrier()  # without it a rank that is done can take the store away from the other
    os._exit(0)  # else gloo's threads may abort, or block the end: seen with torch 2.6, pytorch/pytorch#154976
