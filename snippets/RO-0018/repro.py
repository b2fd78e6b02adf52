"""Several `engine.backward()` before one `engine.step()` under DeepSpeed, stages 0 to 3, and what people do instead.

    torchrun --nproc-per-node 2 repro.py reported
    torchrun --nproc-per-node 2 repro.py zero2-fixed

The stated objective is, for each optimizer step, the mean squared error over all samples of its accumulation window: three
micro-batches of all ranks. A variant is compared, on every rank, with one process that does the same. Needs DeepSpeed.
"""

import json
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

if not torch.accelerator.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported

# --8<-- [start:variants]
WAYS = {
    "plain": {},  # gradient_accumulation_steps: 1, the loss divided by hand, one step() after all backwards
    "fixed": dict(boundary="each"),  # the same, and set_gradient_accumulation_boundary before each forward
    "late": dict(boundary="before-step"),  # the same, but it is set to True only after the last backward
    "unmanaged": dict(boundary="unmanaged"),  # managed_gradient_accumulation: false
    "counted": dict(boundary="own"),  # gradient_accumulation_steps: 3, and step() after each micro-batch
    "one-step": dict(boundary="too-few-steps"),  # gradient_accumulation_steps: 3, and one step() for all three
    "summed": dict(calls="summed"),  # the losses of all micro-batches added, one backward
    "losses": dict(calls="each-loss"),  # not micro-batches: a backward for each of two losses of one forward
}
BUCKETS = {"overlap_comm": True, "reduce_bucket_size": 40}  # several buckets: a layer has 72 parameters
VARIANTS = {f"zero{stage}-{way}": dict(stage=stage, **s) for stage in range(4) for way, s in WAYS.items()} | {
    "reported": dict(stage=2),
    "zero1-last-alone": dict(stage=1, reference="last-micro-batch"),  # compared with the last micro-batch alone
    "zero2-last-alone": dict(stage=2, reference="last-micro-batch"),
    "zero2-undivided": dict(stage=2, boundary="each", undivided=True),
    "zero2-losses-fixed": dict(stage=2, boundary="each", calls="each-loss"),
    "zero2-loss-backward": dict(stage=2, torch_backward=True),  # loss.backward() instead of engine.backward(loss)
    "zero2-overlap": dict(stage=2, config=BUCKETS),
    "zero2-overlap-fixed": dict(stage=2, boundary="each", config=BUCKETS),
}
# --8<-- [end:variants]

N, STEPS, SAMPLES, WIDTH = 3, 3, 4, 8
ON_DEVICE = torch.accelerator.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.accelerator.current_accelerator() if ON_DEVICE else torch.device("cpu")


def counted(s):
    """Whether `gradient_accumulation_steps` is N: DeepSpeed divides the loss then."""
    return s.get("boundary") in ("own", "too-few-steps")


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = VARIANTS[variant]
    calls = s.get("calls", "once")
    boundary = s.get("boundary", "own" if calls == "summed" else "every-backward")
    return {
        "strategy": f"zero-{s['stage']}",
        "synced": "by-deepspeed",
        "boundary": boundary,
        "backward_calls": calls,
        "runs": "early" if calls == "summed" else "once",
        "accumulation": 1 if calls == "each-loss" else N,
        "batch_size": SAMPLES // 2 * (N if calls == "each-loss" else 1),
        "window_divisor": "nothing" if s.get("undivided") else "window",
        "reference": s.get("reference", "right"),
        "deepspeed_backward": "loss" if s.get("torch_backward") else "engine",
        "buckets": "several" if "config" in s else "one",
        "overlap": s["stage"] == 3 or "config" in s,
        "no_sync_around": "both",
        "tail": "none",
        "averaged_by": "wrapper",
        "offload": "none",
        "leaf": False,
        **({"persistence": "none", "gathering": "none"} if s["stage"] == 3 else {}),
        "optimizer": "sgd",
        "tuning": "full",
        "frozen": "none",
        "checkpointing": "none",
        "runs_vary": False,
        "skips": "never",
        "second_use": "none",
    }


# --8<-- [end:facts]


def made():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)).to(DEVICE)


def loss_of(output):
    return (output - 1).square().mean()


def second_loss_of(output):
    return output.square().mean()


# --8<-- [start:train]
def train_window(engine, window, s):
    """One step of the optimizer, if all is well: the micro-batches of a window."""
    boundary, calls = s.get("boundary"), s.get("calls")
    if calls == "summed":
        engine.backward(sum(loss_of(engine(batch)) for batch in window) / len(window))
        engine.step()
    elif calls == "each-loss":
        output = engine(window.flatten(0, 1))
        if boundary == "each":
            engine.set_gradient_accumulation_boundary(False)
        engine.backward(loss_of(output), retain_graph=True)
        if boundary == "each":
            engine.set_gradient_accumulation_boundary(True)
        engine.backward(second_loss_of(output))
        engine.step()
    elif boundary == "each" and not s.get("undivided"):
        # --8<-- [start:fix]
        for i, batch in enumerate(window):
            engine.set_gradient_accumulation_boundary(i == len(window) - 1)  # only the last backward ends the step
            engine.backward(loss_of(engine(batch)) / len(window))
        engine.step()
        # --8<-- [end:fix]
    else:
        share = 1 if counted(s) or s.get("undivided") else len(window)
        for i, batch in enumerate(window):
            if boundary in ("each", "before-step"):
                engine.set_gradient_accumulation_boundary(boundary == "each" and i == len(window) - 1)
            loss = loss_of(engine(batch)) / share
            if s.get("torch_backward"):
                loss.backward()
            else:
                engine.backward(loss)
            if boundary == "own":
                engine.step()
        if boundary == "before-step":
            engine.set_gradient_accumulation_boundary(True)
        if boundary != "own":
            engine.step()


def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    import deepspeed

    if DEVICE.type == "cpu":
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo does; nothing to compile
    s, rank, world_size = VARIANTS[variant], dist.get_rank(), dist.get_world_size()
    data = torch.randn(N * STEPS, SAMPLES, WIDTH, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    model = made()
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        config={
            "train_micro_batch_size_per_gpu": SAMPLES // world_size,
            "gradient_accumulation_steps": N if counted(s) else 1,
            **({"managed_gradient_accumulation": False} if s.get("boundary") == "unmanaged" else {}),
            "gradient_clipping": 0.0,  # newer releases clip at 1.0 unless told otherwise
            "zero_allow_untested_optimizer": True,  # plain SGD, to compare parameters
            "zero_optimization": {"stage": s["stage"], **s.get("config", {"overlap_comm": s["stage"] == 3})}
            | ({"stage3_param_persistence_threshold": 0} if s["stage"] == 3 else {}),
        },
    )
    try:
        for window in data[:, rank::world_size].split(N):
            train_window(engine, window, s)
        trained = {}
        for name, p in model.named_parameters():
            with deepspeed.zero.GatheredParameters(p, enabled=s["stage"] == 3):
                trained[name] = p.detach().clone()
    finally:
        engine.destroy()
    alone = made()
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for window in data.split(N):
        if s.get("reference") == "last-micro-batch":
            loss = loss_of(alone(window[-1])) / N
        else:
            output = alone(window.flatten(0, 1))
            loss = loss_of(output) + (second_loss_of(output) if s.get("calls") == "each-loss" else 0)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return compare(variant, trained, *(dict(it.named_parameters()) for it in (alone, made())))


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
