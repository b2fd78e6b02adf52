"""One bad sample on one rank, in one step: what becomes of the weights under DDP, FSDP2 and DeepSpeed, and what people do.

    torchrun --nproc-per-node 2 repro.py reported
    torchrun --nproc-per-node 2 repro.py ddp-fixed

The stated objective is, for each optimizer step, the mean error of the target tokens of all ranks, without the bad sample.
Where a step is to be left out, it is that of all other steps. Weights, inputs and learning rate are such that bf16 and
float16 hold every gradient exactly. A variant is compared, on every rank, with one process. `zero…` needs DeepSpeed.
"""

import json
import os
import sys
from contextlib import nullcontext
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

if not torch.accelerator.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported

# --8<-- [start:variants]
# bad: "no-target" (a mean over no token), "input" (a nan in an input), "log" (of a probability that is 0: nan in the
# gradients of one output only), "overflow" (a gradient that float16 cannot hold once it is scaled)
CHECKED, UNCHECKED = ({"bf16": {"check_grad_overflow": on}} for on in (True, False))
ONE_BUCKET = {"zero": {"overlap_comm": False, "use_multi_rank_bucket_allreduce": False}}
VARIANTS = {
    "reported": dict(strategy="ddp"),
    "fsdp2-plain": dict(strategy="fsdp2"),
    **{f"{s}-fixed": dict(strategy=s, way="tokens-of-all") for s in ("ddp", "fsdp2", "zero1", "zero2", "zero3")},
    **{f"zero{i}-{d}": dict(strategy=f"zero{i}", dtype=d) for i in range(4) for d in ("float32", "bf16")},
    "zero2-bf16-checked": dict(strategy="zero2", dtype="bf16", config=CHECKED),
    "zero2-bf16-unchecked": dict(strategy="zero2", dtype="bf16", config=UNCHECKED),
    "zero2-bf16-overlap": dict(strategy="zero2", dtype="bf16", config={"zero": {"overlap_comm": True}}),
    "zero2-bf16-one-bucket": dict(strategy="zero2", dtype="bf16", config=ONE_BUCKET),
    "zero2-log": dict(strategy="zero2", bad="log"),
    "zero2-bf16-log": dict(strategy="zero2", dtype="bf16", bad="log"),
    "zero3-together": dict(strategy="zero3", way="together"),
    "ddp-together": dict(strategy="ddp", way="together"),  # all ranks learn of it, and leave the step out
    "ddp-continue": dict(strategy="ddp", way="continue"),  # the rank that sees it goes on to its next batch
    "ddp-filtered": dict(strategy="ddp", way="filtered"),  # the sample is taken out of the dataset
    "ddp-nan-to-num": dict(strategy="ddp", way="nan-to-num"),
    "ddp-where": dict(strategy="ddp", way="where"),
    "ddp-clamp": dict(strategy="ddp", way="clamp"),  # divides by the rank's own tokens, and never by 0
    "ddp-input-nan-to-num": dict(strategy="ddp", bad="input", way="nan-to-num"),
    "ddp-log": dict(strategy="ddp", bad="log"),
    "ddp-clip": dict(strategy="ddp", clip="clip"),
    "ddp-norm-check": dict(strategy="ddp", clip="check"),  # no step where the norm that clipping returns is not finite
    "fsdp2-norm-check": dict(strategy="fsdp2", clip="check"),
    "ddp-bf16": dict(strategy="ddp", dtype="autocast-bf16"),
    "ddp-scaler": dict(strategy="ddp", dtype="autocast-fp16"),  # with a GradScaler
    "fsdp2-scaler": dict(strategy="fsdp2", dtype="autocast-fp16"),
    "fsdp2-scaler-log": dict(strategy="fsdp2", dtype="autocast-fp16", bad="log"),
    "ddp-scaler-overflow": dict(strategy="ddp", dtype="autocast-fp16", bad="overflow"),
    "ddp-bf16-overflow": dict(strategy="ddp", dtype="autocast-bf16", bad="overflow", left_out="none"),
}
# --8<-- [end:variants]

STEPS, TOKENS, WIDTH, RATE = 4, 4, 8, 0.5
ON_DEVICE = torch.accelerator.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.accelerator.current_accelerator() if ON_DEVICE else torch.device("cpu")


def left_out(s):
    """What it is compared with: a training without the bad sample, or one without the whole step."""
    known = s.get("way") in ("tokens-of-all", "filtered", "nan-to-num", "where", "clamp")
    return s.get("left_out", "sample" if known else "step")


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = VARIANTS[variant]
    strategy, dtype, zero = s["strategy"], s.get("dtype", "float32"), s["strategy"].startswith("zero")
    config = s.get("config", {})
    told = {
        "strategy": strategy.replace("zero", "zero-"),
        "bad_number": s.get("bad", "no-target"),
        "bad_treated": {"clip": "clipped", "check": "norm-check"}.get(s.get("clip"), s.get("way", "nothing")),
        "left_out": left_out(s),
        "dtype": "bf16" if dtype == "bf16" else "float32",
        "autocast": {"autocast-bf16": "bf16", "autocast-fp16": "float16"}.get(dtype, "none"),
        "clipping": "torch" if "clip" in s else "none",
    }
    if "clip" in s:
        told |= {"clip_bites": False, "norm_type": "2", "clip_foreach": "default"}
    if strategy == "ddp":
        told |= {"find_unused": False, "static_graph": False}
    if zero:
        multi_rank = config.get("zero", {}).get("use_multi_rank_bucket_allreduce", True)
        told |= {"synced": "by-deepspeed", "boundary": "own", "deepspeed_backward": "engine", "buckets": "one"}
        told |= {"overlap": config.get("zero", {}).get("overlap_comm", strategy == "zero3"), "offload": "none"}
        told |= {"leaf": False, "multi_rank_bucket": multi_rank}
        told |= {"overflow_check": config["bf16"]["check_grad_overflow"] if "bf16" in config else "default"}
        told |= {"persistence": "none", "gathering": "none"} if strategy == "zero3" else {}
    return told | {
        "averaged_by": "wrapper",
        "optimizer": "sgd",
        "tuning": "full",
        "frozen": "none",
        "checkpointing": "none",
        "runs": "once",
        "runs_vary": False,
        "skips": "never",
        "second_use": "none",
        "backward_calls": "once",
        "accumulation": 1,
        "batch_size": 1,
    }


# --8<-- [end:facts]


def made():
    torch.manual_seed(0)
    model = nn.Linear(WIDTH, WIDTH)
    for p in model.parameters():
        p.data = torch.randint(-2, 3, p.shape) / 8
    return model.to(DEVICE)


def samples(s, world_size):
    """Inputs, targets, which tokens count, and which sample is bad: that of the last rank, in the second step."""
    generator = torch.Generator().manual_seed(1)
    number, last = STEPS * world_size, 2 * world_size - 1
    inputs, signs = (torch.randint(-2, 3, (number, TOKENS, WIDTH), generator=generator) / 2 for _ in range(2))
    targets = torch.where(signs > 0, 1024.0, -1024.0)
    counts, bad = torch.ones(number, TOKENS), torch.arange(number) == last
    kind = s.get("bad", "no-target")
    if kind == "no-target":
        counts[last] = 0
    elif kind == "input":
        inputs[last, 0, 0] = float("nan")
    elif kind == "overflow":
        inputs[last] *= 256
    kept = ~bad if s.get("way") == "filtered" else torch.ones_like(bad)
    return [part[kept].to(DEVICE) for part in (inputs, targets, counts, bad)]


def losses_of(output, targets):
    return (output - targets).abs().mean(-1)  # of each token


# --8<-- [start:loss]
def loss_of(output, targets, counts, bad, s):
    losses, way = losses_of(output, targets), s.get("way")
    if way == "tokens-of-all":
        # --8<-- [start:fix]
        tokens = counts.sum()
        dist.all_reduce(tokens)  # of all ranks and micro-batches
        return (losses * counts).sum() / tokens.clamp(min=1) * dist.get_world_size()  # DDP averages over the ranks
        # --8<-- [end:fix]
    if way == "clamp":
        return (losses * counts).sum() / counts.sum().clamp(min=1)
    loss = (losses * counts).sum() / counts.sum()
    if bad and s.get("bad") == "log":
        loss = loss - torch.sigmoid(-1e6 * output[:, -1].square().mean()).log()
    if way == "nan-to-num":
        return loss.nan_to_num()
    if way == "where":
        return torch.where(counts.sum() > 0, loss, 0)
    return loss


# --8<-- [end:loss]


# --8<-- [start:train]
def train(model, engine, optimizer, batches, s):
    """The steps of one rank; `engine` is DeepSpeed's, or none."""
    dtype, way = s.get("dtype", "float32"), s.get("way")
    low = {"autocast-fp16": torch.float16, "autocast-bf16": torch.bfloat16}.get(dtype)
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=2.0**12, enabled=dtype == "autocast-fp16")
    for inputs, targets, counts, bad in batches:
        with torch.autocast(DEVICE.type, low) if low else nullcontext():
            output = (engine or model)(inputs.bfloat16() if dtype == "bf16" else inputs)
        loss = loss_of(output, targets, counts, bad, s)
        if way == "continue" and not loss.isfinite():
            continue
        if way == "together":
            # --8<-- [start:together]
            broken = (~loss.isfinite()).float()
            dist.all_reduce(broken)
            if broken > 0:  # the same on every rank
                continue
            # --8<-- [end:together]
        if engine:
            engine.backward(loss)
            engine.step()
            continue
        scaler.scale(loss).backward()
        if "clip" in s:
            # --8<-- [start:check]
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1e4)
            if s["clip"] == "check" and not norm.isfinite():
                optimizer.zero_grad()
                continue
            # --8<-- [end:check]
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def with_deepspeed(s, batches):
    """The weights that DeepSpeed trained, whole and in float32."""
    import deepspeed

    if DEVICE.type == "cpu":
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo does; nothing to compile
    stage, dtype, config, model = int(s["strategy"][-1]), s.get("dtype"), s.get("config", {}), made()
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=RATE),
        config={
            "train_micro_batch_size_per_gpu": 1,
            "gradient_clipping": 0.0,  # newer releases clip at 1.0 unless told otherwise
            "zero_allow_untested_optimizer": True,  # plain SGD, to compare parameters
            "zero_optimization": {"stage": stage, "overlap_comm": stage == 3}
            | ({"stage3_param_persistence_threshold": 0} if stage == 3 else {})
            | config.get("zero", {}),
            **({"bf16": {"enabled": True} | config.get("bf16", {})} if dtype == "bf16" else {}),
        },
    )
    try:
        train(model, engine, None, batches, s)
        trained = {}
        for name, p in model.named_parameters():
            with deepspeed.zero.GatheredParameters(p, enabled=stage == 3):
                trained[name] = p.detach().float().clone()
    finally:
        engine.destroy()
    return trained


def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    s, rank, world_size = VARIANTS[variant], dist.get_rank(), dist.get_world_size()
    inputs, targets, counts, bad = samples(s, world_size)
    steps = len(inputs) // world_size
    mine = [step * world_size + rank for step in range(steps)]
    batches = [(inputs[i], targets[i], counts[i], bad[i]) for i in mine]
    if s["strategy"].startswith("zero"):
        trained = with_deepspeed(s, batches)
    else:
        # A rank that waits alone gives up after 5 seconds.
        group = dist.new_group(timeout=timedelta(seconds=5)) if s.get("way") == "continue" else None
        model = DistributedDataParallel(made(), process_group=group) if s["strategy"] == "ddp" else fully_shard(made())
        train(model, None, torch.optim.SGD(model.parameters(), lr=RATE), batches, s)
        whole = model.module if s["strategy"] == "ddp" else model
        trained = {n: p.full_tensor() if s["strategy"] == "fsdp2" else p for n, p in whole.named_parameters()}
    alone = made()
    optimizer = torch.optim.SGD(alone.parameters(), lr=RATE)
    for step in range(steps):
        rows = range(step * world_size, (step + 1) * world_size)
        good = [i for i in rows if not bad[i]]
        if left_out(s) == "step" and len(good) < world_size:
            continue
        if left_out(s) == "none":
            good = list(rows)
        losses_of(alone(inputs[good]), targets[good]).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    kind = torch.bfloat16 if s.get("dtype") == "bf16" else torch.float32
    right, start = ({n: p.detach().to(kind).float() for n, p in it.named_parameters()} for it in (alone, made()))
    return compare(variant, trained, right, start)


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
    if DEVICE.type != "cpu":
        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(dist.get_default_backend_for_device(DEVICE), timeout=timedelta(seconds=60))
    result = run(sys.argv[1]) | {"facts": facts(sys.argv[1])}
    if dist.get_rank() == 0:
        print("RESULT", json.dumps(result), flush=True)
    dist.barrier()  # without it a rank that is done can take the store away from the other
    os._exit(0)  # else gloo's threads may abort, or block the end: seen with torch 2.6, pytorch/pytorch#154976
