"""The loss goes past the wrapper: DeepSpeed's engine, FSDP1, FSDP2.

    torchrun --nproc-per-node 2 sharded.py zero2-module
    torchrun --nproc-per-node 2 sharded.py fsdp2-method

Objective: the mean loss over all samples of all ranks, equally many on each. A variant is compared with one process
that saw them all. Needs torch >= 2.6, and DeepSpeed for the variants that begin with zero. A variant either raises, as
it would in training, or trains three steps and says in its last line how far its parameters are from that process.
"""

import json
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard, register_fsdp_forward_method
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

if not torch.accelerator.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported

# --8<-- [start:variants]
DEFAULTS = dict(
    path="wrapper",  # what the loss goes through, see `loss_of`
    every_module=False,  # FSDP: a unit of its own for the embeddings and the head too, or with the root
    engine_backward=True,  # DeepSpeed: `engine.backward(loss)`, or `loss.backward()`
)
ZERO, FSDP = [f"zero{stage}" for stage in range(4)], ["fsdp1", "fsdp2"]
PATHS = "wrapper module method hidden redirected".split()
VARIANTS = (
    {f"{kind}-{path}": dict(strategy=kind, path=path) for kind in ZERO + FSDP for path in PATHS}
    | {f"fsdp2-{path}-every-module": dict(strategy="fsdp2", path=path, every_module=True) for path in PATHS[1:4]}
    | {
        "fsdp2-registered": dict(strategy="fsdp2", path="registered"),
        "zero0-module-loss-backward": dict(strategy="zero0", path="module", engine_backward=False),
        "zero2-wrapper-loss-backward": dict(strategy="zero2", path="wrapper", engine_backward=False),
        "zero3-wrapper-loss-backward": dict(strategy="zero3", path="wrapper", engine_backward=False),
    }
)
# --8<-- [end:variants]

STEPS, BATCH, WIDTH = 3, 8, 16
ON_DEVICE = torch.accelerator.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.accelerator.current_accelerator() if ON_DEVICE else torch.device("cpu")


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    zero = s["strategy"].startswith("zero")
    more = {"fsdp_units": "every-module" if s["every_module"] else "rest-with-root"}
    if zero:
        more = {"buckets": "one", "offload": "none", "leaf": False, "overlap": s["strategy"] == "zero3"}
        more["deepspeed_backward"] = "engine" if s["engine_backward"] else "loss"
    if s["strategy"] == "zero3":
        more |= {"persistence": "none", "gathering": "none"}
    return {
        "strategy": s["strategy"].replace("zero", "zero-"),
        "tuning": "full",
        "frozen": "none",
        "loss_through": "inner" if s["path"] == "module" else s["path"],
        "checkpointing": "none",
        "runs": "once",
        "runs_vary": False,
        "skips": "never",
        "second_use": "only-loss" if s["path"] == "hidden" else "none",
        "second_use_of": "not-checkpointed" if s["path"] == "hidden" else "none",
        "backward_calls": "once",
        "accumulation": 1,
        "batch_size": BATCH // 2,
        "optimizer": "sgd",
        **more,
    }


# --8<-- [end:facts]


# --8<-- [start:model]
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return torch.tanh(self.linear(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WIDTH, WIDTH)
        self.layers = nn.Sequential(Layer(), Layer())
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, tokens):
        return self.logits(tokens)

    def logits(self, tokens):
        return self.head(self.layers(self.embed(tokens)))

    def loss(self, tokens):
        """A method beside `forward`: a fused loss, a policy's log-probabilities, an encoder ..."""
        return F.cross_entropy(self.logits(tokens), tokens.flip(0))


# --8<-- [end:model]


# --8<-- [start:paths]
def loss_of(path, wrapper, model, tokens):
    """The same loss; what differs is who computes it."""
    target = tokens.flip(0)
    if path == "wrapper":
        return F.cross_entropy(wrapper(tokens), target)
    if path == "module":  # engine.module(...), fsdp.module(...); FSDP2 has no wrapper: `forward` of the model itself
        return F.cross_entropy(model.forward(tokens) if wrapper is model else model(tokens), target)
    if path == "hidden":  # a fused loss takes hidden states, and the head's weight without its forward
        return F.cross_entropy(F.linear(hidden_of(wrapper, model, tokens), model.head.weight), target)
    if path == "redirected":
        return redirected(wrapper, model, model.loss, tokens)
    return model.loss(tokens)  # "method", "registered"


def hidden_of(wrapper, model, tokens):
    """The wrapper's forward up to the head."""
    head, model.head = model.head, nn.Identity()
    try:
        return wrapper(tokens)
    finally:
        model.head = head


def redirected(wrapper, model, method, *args):
    """Call the wrapper, whose forward runs `method` of the model inside."""
    forward = model.forward

    def once(*args):
        model.forward = forward  # `method` may call the model
        return method(*args)

    model.forward = once
    return wrapper(*args)


# --8<-- [end:paths]


# --8<-- [start:wrap]
def wrap(model, settings):
    """(what to call, its backward, its step, its parameters made whole, how to end it)."""
    if settings["strategy"].startswith("zero"):
        return with_deepspeed(model, settings)
    kind, every = settings["strategy"], settings["every_module"]
    if kind == "fsdp1":
        wrapper = FullyShardedDataParallel(
            model,
            auto_wrap_policy=ModuleWrapPolicy({nn.Embedding, Layer, nn.Linear} if every else {Layer}),
            use_orig_params=True,
            device_id=DEVICE,  # or it refuses to run without an accelerator
        )
    else:
        for module in (model.embed, model.head) if every else ():
            fully_shard(module)
        for layer in model.layers:
            fully_shard(layer)
        wrapper = fully_shard(model)
        if settings["path"] == "registered":
            # --8<-- [start:register]
            register_fsdp_forward_method(model, "loss")
            # --8<-- [end:register]
    optimizer = torch.optim.SGD(wrapper.parameters(), lr=0.1)

    def step():
        optimizer.step()
        optimizer.zero_grad()

    return wrapper, torch.Tensor.backward, step, lambda: whole(wrapper), lambda: None


def with_deepspeed(model, settings):
    import deepspeed

    stage = int(settings["strategy"][-1])
    zero = {"stage": stage} | ({"stage3_param_persistence_threshold": 0} if stage == 3 else {})
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        config={
            "train_micro_batch_size_per_gpu": BATCH // dist.get_world_size(),
            "gradient_clipping": 0.0,  # newer releases clip at 1.0 unless told otherwise
            "zero_allow_untested_optimizer": True,  # plain SGD, to compare parameters
            "zero_optimization": zero,
        },
    )

    def whole():
        found = {}
        for name, p in model.named_parameters():
            with deepspeed.zero.GatheredParameters(p, enabled=stage == 3):
                found[name] = p.detach().clone()
        return found

    backward = engine.backward if settings["engine_backward"] else torch.Tensor.backward
    return engine, backward, engine.step, whole, engine.destroy


def whole(model):
    """FSDP's parameters, gathered from the ranks."""
    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(model):
            return {name: p.detach().clone() for name, p in model.named_parameters()}
    return {name: p.full_tensor() for name, p in model.named_parameters()}


# --8<-- [end:wrap]


# --8<-- [start:train]
def make():
    torch.manual_seed(0)
    return Model().to(DEVICE)


def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    settings = {**DEFAULTS, **VARIANTS[variant]}
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = make()
    batches = torch.randint(WIDTH, (STEPS, BATCH)).to(DEVICE)
    wrapper, backward, step, parameters, end = wrap(model, settings)
    try:
        for batch in batches:
            backward(loss_of(settings["path"], wrapper, model, batch[rank::world_size]))
            step()
        trained = parameters()
    finally:
        end()
    alone = make()
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for batch in batches:
        sum(alone.loss(batch[r::world_size]) for r in range(world_size)).div(world_size).backward()
        optimizer.step()
        optimizer.zero_grad()
    return compare(variant, trained, *(dict(it.named_parameters()) for it in (alone, make())))


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
