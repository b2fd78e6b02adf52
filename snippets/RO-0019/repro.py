"""A call that rank 0 makes alone, or more often than the others, under DDP, FSDP2 and DeepSpeed's ZeRO.

    torchrun --nproc-per-node 2 repro.py reported
    torchrun --nproc-per-node 2 repro.py fixed

The stated objective is, for each optimizer step, the mean squared error over all samples that are left for it. A variant is
compared, on every rank, with one process that does the same; what it saved, too. Only ZeRO needs DeepSpeed.
"""

import json
import os
import sys
import tempfile
import time
from contextlib import nullcontext
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

if not torch.accelerator.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported

# --8<-- [start:variants]
ALONE = {"by": "rank-0"}  # the call stands behind `if rank == 0`
VARIANTS = {
    "reported": dict(on="fsdp2", call="save", **ALONE),  # after the last step, as all calls but one
    "fixed": dict(on="fsdp2", call="save"),
    "fsdp2-save-barrier": dict(on="fsdp2", call="save", then="barrier", **ALONE),
    "fsdp2-save-longer": dict(on="fsdp2", call="save", limit=3, **ALONE),  # else who waits gives up after a second
    "fsdp2-save-omitted": dict(on="fsdp2", call="omitted"),
    "ddp-save": dict(on="ddp", call="module-save", **ALONE),
    "ddp-save-barrier": dict(on="ddp", call="module-save", then="barrier", **ALONE),
    "ddp-write": dict(on="ddp", call="write", **ALONE),  # no collective, but it takes two seconds
    "ddp-write-barrier": dict(on="ddp", call="write", then="barrier", **ALONE),
    "ddp-write-longer": dict(on="ddp", call="write", limit=10, **ALONE),
    "zero1-save": dict(on="zero-1", call="save", **ALONE),  # engine.save_checkpoint
    "zero2-save": dict(on="zero-2", call="save", **ALONE),
    "zero3-save": dict(on="zero-3", call="save", **ALONE),
    "zero2-save-all": dict(on="zero-2", call="save"),
    "zero3-save-all": dict(on="zero-3", call="save"),
    "zero2-module-save": dict(on="zero-2", call="module-save", **ALONE),  # engine.module.state_dict()
    "zero3-gather": dict(on="zero-3", call="gather", **ALONE),  # GatheredParameters
    "zero3-gather-all": dict(on="zero-3", call="gather"),
    "ddp-evaluate": dict(on="ddp", call="evaluate", **ALONE),  # a forward of the wrapper under no_grad
    "ddp-buffers-evaluate": dict(on="ddp", call="evaluate", buffers=True, **ALONE),
    "ddp-buffers-evaluate-before": dict(on="ddp", call="evaluate", buffers=True, before=True, **ALONE),
    # In the last one a step follows the call.
    "ddp-buffers-inner": dict(on="ddp", call="inner", buffers=True, **ALONE),  # a forward of .module
    "fsdp2-evaluate": dict(on="fsdp2", call="evaluate", **ALONE),
    "fsdp2-evaluate-all": dict(on="fsdp2", call="evaluate"),
    "zero2-inner": dict(on="zero-2", call="inner", **ALONE),
    "zero3-evaluate": dict(on="zero-3", call="evaluate", **ALONE),
    "zero3-inner": dict(on="zero-3", call="inner", **ALONE),
    "zero3-generate": dict(on="zero-3", call="generate", lengths="unequal"),  # two forwards on rank 0, four on rank 1
    "zero3-generate-synced": dict(on="zero-3", call="generate", lengths="synced"),  # and two more on rank 0
    "ddp-barrier": dict(on="ddp", call="barrier", **ALONE),
    "ddp-more": dict(on="ddp", last="more"),  # rank 0 has a batch that rank 1 has not
    "fsdp2-more": dict(on="fsdp2", last="more"),
    "zero3-more": dict(on="zero-3", last="more"),
    "ddp-join": dict(on="ddp", last="joined"),
    "ddp-join-shares": dict(on="ddp", last="joined", against="shares"),
    "ddp-join-counted": dict(on="ddp", last="joined-counted"),  # divide_by_initial_world_size=False
    "ddp-dropped": dict(on="ddp", last="dropped"),  # DistributedSampler(drop_last=True)
    "ddp-repeated": dict(on="ddp", last="repeated"),  # DistributedSampler as it is
    "accelerate-repeated": dict(on="ddp", last="even-batches"),  # even_batches=True, its default
    "accelerate-as-fed": dict(on="ddp", last="even-batches", against="as-fed"),
}
# --8<-- [end:variants]

WIDTH = 8
ON_DEVICE = torch.accelerator.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.accelerator.current_accelerator() if ON_DEVICE else torch.device("cpu")


def limit_of(s):
    """After how many seconds a rank that waits for another gives up."""
    waits = s.get("by") == "rank-0" or s.get("last") == "more" or s.get("lengths") == "unequal"
    return s.get("limit", 1 if waits else 5)


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = VARIANTS[variant]
    call, last, strategy = s.get("call", "none"), s.get("last", "none"), s["on"]
    if call == "save":
        call = "save-checkpoint" if strategy.startswith("zero") else "full-state"
    told = {"rank_call_by": s.get("by", "all")} if call not in ("none", "omitted") else {}
    if strategy == "ddp":
        told |= {"find_unused": False, "static_graph": False, "buffers_sent": "buffers" in s}
    if strategy.startswith("zero"):
        told |= {"buckets": "one", "overlap": strategy == "zero-3", "offload": "none", "leaf": False, "boundary": "own"}
        told |= {"deepspeed_backward": "engine"}
    if strategy == "zero-3":
        told |= {"persistence": "none", "gathering": "gathered" if call == "gather" else "none"}
    return told | {
        "strategy": strategy,
        "rank_call": call,
        "rank_call_then": "a-step" if s.get("before") else s.get("then", "nothing"),
        "time_limit": limit_of(s),
        "generated": s.get("lengths", "equal"),
        "last_batch": {"even-batches": "repeated"}.get(last, last),
        "last_batch_against": s.get("against", "samples"),
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
        "batch_size": 2,
    }


# --8<-- [end:facts]


def made(s):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
    if s.get("buffers"):
        model.register_buffer("seen", torch.zeros(1))
    return model.to(DEVICE)


def loss_of(output):
    return (output - 1).square().mean()


def wrapped(s):
    """The model under its strategy, with all that it sends in the group that `run` made; and the optimizer."""
    model = made(s)
    if s["on"] == "ddp":
        model = DistributedDataParallel(model)
    elif s["on"] == "fsdp2":
        # A mesh is known by its dimensions: without a name of its own this one would be taken for an earlier run's.
        mesh = DeviceMesh.from_group(dist.group.WORLD, DEVICE.type, mesh_dim_names=(dist.group.WORLD.group_name,))
        for part in (model[0], model[2], model):
            fully_shard(part, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if not s["on"].startswith("zero"):
        return model, optimizer
    import deepspeed

    if DEVICE.type == "cpu":
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo does; nothing to compile
    deepspeed.utils.groups._WORLD_GROUP = dist.group.WORLD  # else it makes one, which waits for half an hour
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_clipping": 0.0,  # newer releases clip at 1.0 unless told otherwise
        "zero_allow_untested_optimizer": True,  # plain SGD, to compare parameters
        "zero_optimization": {
            "stage": int(s["on"][-1]),
            # A model as small as this stays whole on each rank otherwise, or from one forward to the next.
            "stage3_param_persistence_threshold": 0,
            "stage3_max_live_parameters": 0,
            "stage3_max_reuse_distance": 0,
            "stage3_prefetch_bucket_size": 0,
        },
    }
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0], None


def batches_of(s, data):
    """The batches of this rank; the steps of one process; by what it divides the loss of the last one."""
    rank, last = dist.get_rank(), s.get("last")
    if last in ("dropped", "repeated"):  # nine samples
        sampler = DistributedSampler(data[:9], num_replicas=2, rank=rank, shuffle=False, drop_last=last == "dropped")
        return list(DataLoader(data[:9], 2, sampler=sampler)), [data[:4], data[4:8], data[8:9]], 1
    if last == "even-batches":  # ten, as with `more` and `joined`
        from accelerate.data_loader import prepare_data_loader

        loader = prepare_data_loader(DataLoader(data[:10], 2), num_processes=2, process_index=rank, even_batches=True)
        end = torch.cat([data[8:10], data[:2]]) if s.get("against") == "as-fed" else data[8:10]
        return list(loader), [data[:4], data[4:8], end], 1
    data = data[:10] if last else data
    return data.split(2)[rank::2], data.split(4), 2 if s.get("against") == "shares" else 1


def gathered(engine):
    import deepspeed

    with deepspeed.zero.GatheredParameters(list(engine.module.parameters())):
        return {name: p.detach().clone() for name, p in engine.module.named_parameters()}


# --8<-- [start:call]
def called(s, model, batch, folder):
    """What stands behind the last step, or before it; it returns what was saved."""
    kind = s["call"]
    if kind == "save" and s["on"] == "fsdp2":
        # --8<-- [start:fix]
        whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
        state = get_model_state_dict(model, options=whole)  # on every rank
        if dist.get_rank() == 0:
            torch.save(state, f"{folder}/model.pt")
        # --8<-- [end:fix]
        return torch.load(f"{folder}/model.pt") if dist.get_rank() == 0 else None
    if kind == "save":
        model.save_checkpoint(folder)
    if kind == "module-save":
        return {name: p.clone() for name, p in model.module.state_dict().items()}
    if kind == "gather":
        return gathered(model)
    if kind == "write":
        time.sleep(2)
    if kind == "barrier":
        dist.barrier()
    model.eval()
    with torch.no_grad():
        if kind == "evaluate":
            model(batch)
        if kind == "inner":
            model.module(batch)
        if kind == "generate":
            for _ in range(4 if s["lengths"] == "synced" else 2 + 2 * dist.get_rank()):
                model(batch)
    model.train()


# --8<-- [end:call]


# --8<-- [start:train]
def wait_at_most(seconds, groups):
    """From here on; gloo's own limit is half an hour. The ranks come here together."""
    dist.barrier(group=groups["all"])
    for name in ("work", "end"):
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=seconds), groups[name])


def train(s, model, optimizer, batches, folder, groups):
    mine = s.get("call", "omitted") != "omitted" and (dist.get_rank() == 0 or s.get("by") != "rank-0")
    saved, last = None, s.get("last", "none")
    counted = {"divide_by_initial_world_size": False} if last == "joined-counted" else {}
    with Join([model], **counted) if last.startswith("joined") else nullcontext():
        for i, batch in enumerate(batches):
            if i == 1:
                wait_at_most(limit_of(s), groups)
            if i == 2 and mine and s.get("before"):
                called(s, model, batch, folder)
            loss = loss_of(model(batch))
            if optimizer is None:
                model.backward(loss)
                model.step()
            else:
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
    if mine and not s.get("before"):
        saved = called(s, model, batches[0], folder)
    if s.get("then") == "barrier":
        dist.barrier()
    dist.barrier(group=groups["end"])  # where the others wait: in a group of its own, since calls pair by their order
    wait_at_most(30, groups)
    return saved


def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    s = VARIANTS[variant]
    data = torch.randn(12, WIDTH, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    batches, steps, share = batches_of(s, data)
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder)
    groups = {"all": dist.group.WORLD, "work": dist.new_group(), "end": dist.new_group()}
    dist.group.WORLD = groups["work"]  # what a call breaks is this group, whoever makes it
    try:
        model, optimizer = wrapped(s)
        saved = train(s, model, optimizer, batches, folder[0], groups)
        if s["on"] == "zero-3":
            trained = gathered(model)
        else:
            inner = model if s["on"] == "fsdp2" else model.module
            trained = {name: p.detach() for name, p in inner.named_parameters()}
            trained = {name: p.full_tensor() if s["on"] == "fsdp2" else p.clone() for name, p in trained.items()}
    finally:
        dist.group.WORLD = groups["all"]
        if s["on"].startswith("zero") and optimizer is None:
            model.destroy()
    if s.get("call") == "save" and s["on"].startswith("zero"):
        from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

        saved = get_fp32_state_dict_from_zero_checkpoint(folder[0]) if dist.get_rank() == 0 else None
    saved = [saved or {}]
    dist.broadcast_object_list(saved)  # rank 0's, if it has any
    trained |= {f"saved.{name}": p.to(DEVICE) for name, p in saved[0].items()}
    alone = made(s)
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for i, batch in enumerate(steps):
        (loss_of(alone(batch)) / (share if i == 2 else 1)).backward()
        optimizer.step()
        optimizer.zero_grad()
    both = (dict(it.named_parameters()) for it in (alone, made(s)))
    if saved[0]:
        both = (it | {f"saved.{name}": p for name, p in it.items()} for it in both)
    return compare(variant, trained, *both)


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
