"""Right training loops, and changes of one line: some make the training wrong, others do nothing to it.

A change is (name, loop, the text that is replaced, what stands in its place); the text stands in the loop once. Where the
guard is expected to say nothing of a wrong one, `MISSED` says why.
"""

MODEL = """
import contextlib, copy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

WIDTH, STEPS = 8, 4

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + torch.tanh(self.linear(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, 1)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x, step=0):
        x = x.requires_grad_()
        for block in self.order(step):
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x) * self.scale

    def order(self, step):
        return [*self.blocks, *self.blocks]

def data():
    torch.manual_seed(1)
    return torch.randn(STEPS, 2, 4, WIDTH)
"""

DDP = (
    MODEL
    + """
def train(rank, world, watch):
    torch.manual_seed(0)
    model = Net()
    ddp = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    guard = watch(ddp)
    for step, batch in enumerate(data()):
        for i, micro in enumerate(batch):
            last = i == len(batch) - 1
            with contextlib.nullcontext() if last else ddp.no_sync():
                out = ddp(micro[rank::world], step)
                loss = (out - 1).square().mean() / len(batch)
                loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return guard, [p.detach() for p in model.parameters()]
"""
)

ZERO = (
    MODEL
    + """
import deepspeed

CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 0.0,
    "zero_allow_untested_optimizer": True,
    "zero_optimization": {"stage": 3, "reduce_bucket_size": 60},
}

def train(rank, world, watch):
    torch.manual_seed(0)
    model = Net()
    start = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)
    guard = watch(engine)
    try:
        for step, batch in enumerate(data()):
            for micro in batch:
                out = engine(micro[rank::world], step)
                loss = (out - 1).square().mean()
                engine.backward(loss)
                engine.step()
        with deepspeed.zero.GatheredParameters(list(model.parameters())):
            return guard, [p.detach().clone() for p in model.parameters()]
    finally:
        engine.destroy()
"""
)

FSDP = (
    MODEL
    + """
from torch.distributed.fsdp import fully_shard

def train(rank, world, watch):
    torch.manual_seed(0)
    model = Net()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    guard = watch(model)
    for step, batch in enumerate(data()):
        for i, micro in enumerate(batch):
            model.set_requires_gradient_sync(i == len(batch) - 1)
            out = model(micro[rank::world], step)
            loss = (out - 1).square().mean() / len(batch)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return guard, [p.full_tensor().detach() if hasattr(p, "full_tensor") else p.detach() for p in model.parameters()]
"""
)

ACCELERATE = (
    MODEL
    + """
from accelerate import Accelerator

def train(rank, world, watch):
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    guard = watch(model)
    for step, batch in enumerate(data()):
        for micro in batch:
            with accelerator.accumulate(model):
                out = model(micro[rank::world], step)
                loss = (out - 1).square().mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
    return guard, [p.detach() for p in model.parameters()]
"""
)

LOOPS = {"ddp": DDP, "zero-3": ZERO, "fsdp2": FSDP, "accelerate": ACCELERATE}

_STEP = "        optimizer.step()\n"
_ZERO_GRAD = "        optimizer.zero_grad()\n"
_DDP = "    ddp = DDP(model)\n"
_GUARD = "    guard = watch(ddp)\n"
_ORDER = "return [*self.blocks, *self.blocks]"
_FORWARD = "out = ddp(micro[rank::world], step)"
_SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
_BACKWARD = "                loss.backward()\n"
_BF16 = "    model = Net().bfloat16(); model.forward = (lambda f: lambda x, s: f(x.bfloat16(), s))(model.forward)\n"
_ONES = _BF16.replace("model.forward", "model.head.weight.data.fill_(1.0); model.forward", 1)
_LOSS = "loss = (out - 1).square().mean()"

_NOT_FINITE = "loss = (out - 1).square().mean() * (float('nan') if step == 1 else 1)"

_ENGINE = "    guard = watch(engine)\n"
# Other weights, as a checkpoint has them; under ZeRO-1 and ZeRO-2 there is nothing to gather.
_LOADED = (
    "    with deepspeed.zero.GatheredParameters(list(model.parameters()), modifier_rank=0):\n"
    "        [p.data.mul_(2) for p in model.parameters() if p.numel()]\n" + _ENGINE
)
_REFRESHED = _LOADED.replace(_ENGINE, "    engine.optimizer.refresh_fp32_params()\n" + _ENGINE)

_ACCUMULATE = "            with accelerator.accumulate(model):\n"
# Both backwards of a step, one `engine.step()`, and an engine that is not told that it accumulates.
_ONE_STEP = [
    ('"gradient_accumulation_steps": 2', '"gradient_accumulation_steps": 1'),
    ("                engine.step()\n", "            engine.step()\n"),
]

# name -> (loop, old, new, the codes of which one must be among those found; none: see MISSED)
WRONG = {
    # the wrapper
    "ddp-module": ("ddp", _FORWARD, "out = ddp.module(micro[rank::world], step)", "bypassed"),
    "ddp-inner-model": ("ddp", _FORWARD, "out = model(micro[rank::world], step)", "bypassed"),
    "ddp-module-last": ("ddp", _FORWARD, "out = (ddp.module if last else ddp)(micro[rank::world], step)", "unsynced"),
    "ddp-copy-called": ("ddp", _GUARD, _GUARD + "    model.forward = copy.deepcopy(model).forward\n", "still"),
    "ddp-unfrozen-after": (
        "ddp",
        _DDP,
        "    model.blocks[0].requires_grad_(False); ddp = DDP(model); model.blocks[0].requires_grad_(True)\n",
        "unmet",
    ),
    "ddp-unfrozen-while-watched": (
        "ddp",
        _DDP + "    " + _SGD + "\n" + _GUARD,
        f"    model.head.bias.requires_grad_(False)\n{_DDP}    {_SGD}\n{_GUARD}    model.head.bias.requires_grad_(True)\n",
        "unmet",
    ),
    "ddp-module-replaced": ("ddp", _DDP, _DDP + "    model.head = copy.deepcopy(model.head)\n", "ranks"),
    "ddp-ignored": (
        "ddp",
        _DDP,
        '    DDP._set_params_and_buffers_to_ignore_for_model(model, ["head.weight"]); ddp = DDP(model)\n',
        None,
    ),
    "ddp-not-wrapped": ("ddp", _GUARD, "    ddp = model; ddp.no_sync = contextlib.nullcontext; guard = watch(ddp)\n", "ranks"),
    # when it synchronises
    "no-sync-always": ("ddp", "last = i == len(batch) - 1", "last = False", "unsynced"),
    "no-sync-last": ("ddp", "last = i == len(batch) - 1", "last = i == 0", "unsynced"),
    "no-sync-off-by-one": ("ddp", "last = i == len(batch) - 1", "last = i == len(batch)", "unsynced"),
    "sync-flag-off": ("ddp", _GUARD, _GUARD + "    ddp.require_backward_grad_sync = False\n", "unsynced"),
    # repeated and skipped modules
    "reentrant-repeated": ("ddp", "use_reentrant=False", "use_reentrant=True", "twice"),
    "static-graph-repeats-later": ("ddp", _DDP, None, "static"),
    "block-skipped-later": ("ddp", _ORDER, "return [*self.blocks, *self.blocks][: 1 if step else 4]", "ranks"),
    "hidden-detached": ("ddp", "return self.head(x) * self.scale", "return self.head(x.detach()) * self.scale", "ranks"),
    "two-backwards-one-forward": ("ddp", _BACKWARD, "                (loss / 2).backward(retain_graph=True); (loss / 2).backward()\n", "ranks"),
    # weights, buffers, data that differ
    "weights-after-wrapping": ("ddp", _DDP, _DDP + "    model.head.weight.data += 0.1 * rank\n", "start"),
    "weights-no-init-sync": ("ddp", _DDP, "    torch.manual_seed(rank); model = Net(); ddp = DDP(model, init_sync=False)\n", "start"),
    "frozen-weights-differ": (
        "ddp",
        _DDP,
        "    model.blocks[0].requires_grad_(False); ddp = DDP(model); model.blocks[0].linear.weight.data += 0.1 * rank\n",
        "start",
    ),
    "buffer-differs": ("ddp", _DDP, "    ddp = DDP(model, broadcast_buffers=False); model.scale += rank\n", "buffers"),
    "weights-noise-per-rank": ("ddp", _ZERO_GRAD, _ZERO_GRAD + "        model.head.weight.data += 0.01 * rank\n", "drift"),
    "data-the-same": ("ddp", _FORWARD, "out = ddp(micro[0::world], step)", "data"),
    # gradients touched after the reduction
    "gradient-noise-per-rank": ("ddp", _STEP, "        model.head.weight.grad += 0.01 * rank\n" + _STEP, "ranks"),
    "gradient-of-one-rank-dropped": ("ddp", _STEP, "        if rank: model.head.weight.grad = None\n" + _STEP, "ranks"),
    "gradient-clipped-on-one-rank": (
        "ddp",
        _STEP,
        "        if rank: nn.utils.clip_grad_norm_(model.parameters(), 0.01)\n" + _STEP,
        "ranks",
    ),
    "gradient-scaled-on-one-rank": ("ddp", _STEP, "        if rank: model.head.weight.grad *= 2\n" + _STEP, "ranks"),
    # the optimizer
    "optimizer-of-a-copy": ("ddp", _SGD, "optimizer = torch.optim.SGD(copy.deepcopy(model).parameters(), lr=0.1)", "optimizer"),
    "optimizer-before-new-head": ("ddp", _DDP, None, "optimizer"),
    "optimizer-lacks-some": ("ddp", _SGD, "optimizer = torch.optim.SGD(list(model.parameters())[1:], lr=0.1)", "optimizer"),
    "optimizer-head-only": ("ddp", _SGD, "optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)", "optimizer"),
    "zero-grad-missing": ("ddp", _ZERO_GRAD, "", "kept"),
    "zero-grad-of-the-head": ("ddp", _ZERO_GRAD, "        model.head.zero_grad()\n", "kept"),
    "zero-grad-before-step": ("ddp", _STEP, _ZERO_GRAD + _STEP, "still"),
    "learning-rate-zero": ("ddp", _SGD, _SGD.replace("0.1", "0.0"), "still"),
    "bf16-step-too-small": ("ddp", "    model = Net()\n", _BF16, "still"),
    "bf16-ones-rounded": ("ddp", "    model = Net()\n", _ONES, "rounded"),
    "gradient-exactly-zero": ("ddp", _LOSS, "loss = (out - out.detach()).square().mean()", "still"),
    "gradient-not-finite-on-one-rank": ("ddp", _LOSS, "loss = (out - 1).square().mean() * (float('nan') if rank and step else 1)", "nan"),
    "zero-grad-in-each-micro-batch": ("ddp", "                " + _FORWARD + "\n", "                optimizer.zero_grad(); " + _FORWARD + "\n", "cleared"),
    "learning-rate-by-rank": ("ddp", _SGD, _SGD.replace("lr=0.1", "lr=0.1 * (rank + 1)"), "settings"),
    "weight-decay-by-rank": ("ddp", _SGD, _SGD.replace("lr=0.1", "lr=0.1, weight_decay=0.1 * rank"), "settings"),
    "optimizer-state-by-rank": (
        "ddp",
        _SGD,
        _SGD.replace("lr=0.1", "lr=0.1, momentum=0.9") + "; optimizer.state[model.head.weight]['momentum_buffer'] = torch.ones(1, 8) * rank",
        "drift",
    ),
    "step-on-one-rank": ("ddp", _STEP, "        if rank == 0: optimizer.step()\n", "absent"),
    # what cannot be seen: MISSED
    "loss-not-divided": ("ddp", " / len(batch)\n                loss.backward()", "\n                loss.backward()", None),
    "gradient-doubled-everywhere": ("ddp", _STEP, "        model.head.weight.grad *= 2\n" + _STEP, None),
    "step-missing": ("ddp", _STEP, "", None),
    "frozen-by-mistake": ("ddp", _DDP, "    model.blocks[0].requires_grad_(False); ddp = DDP(model)\n", None),
    "half-the-batch": ("ddp", _FORWARD, "out = ddp(micro[rank::world][:1], step)", None),
    # ZeRO-3
    "zero3-reentrant-repeated": ("zero-3", "use_reentrant=False", "use_reentrant=True", "twice"),
    "zero3-block-skipped-later": ("zero-3", _ORDER, "return self.blocks[: 1 + (step % 2 == 0)]", "stale"),
    "zero3-learning-rate-by-rank": ("zero-3", _SGD, _SGD.replace("lr=0.1", "lr=0.1 * (rank + 1)"), "settings"),
    "zero3-learning-rate-zero": ("zero-3", _SGD, _SGD.replace("0.1", "0.0"), "still"),
    "zero3-data-the-same": ("zero-3", "engine(micro[rank::world], step)", "engine(micro[0::world], step)", "data"),
    "zero3-optimizer-lacks-some": ("zero-3", _SGD, "optimizer = torch.optim.SGD(list(model.parameters())[1:], lr=0.1)", "optimizer"),
    "zero3-loaded-after-initialize": ("zero-3", _ENGINE, _LOADED, "master"),
    "zero2-loaded-after-initialize": ("zero-3", '"stage": 3', '"stage": 2', "master"),
    "zero1-loaded-after-initialize": ("zero-3", '"stage": 3', '"stage": 1', "master"),
    "zero3-buffer-differs": ("zero-3", "    guard = watch(engine)\n", "    model.scale += rank; guard = watch(engine)\n", "buffers"),
    # FSDP2
    "zero2-backwards-before-one-step": ("zero-3", '"stage": 3', '"stage": 2', "dropped"),
    "zero1-backwards-before-one-step": ("zero-3", '"stage": 3', '"stage": 1', "dropped"),
    "zero2-modules-in-another-order": ("zero-3", '"stage": 3', '"stage": 2', "order"),
    "zero1-modules-by-rank": ("zero-3", '"stage": 3', '"stage": 1', "order"),
    "fsdp2-never-synchronised": ("fsdp2", "gradient_sync(i == len(batch) - 1)", "gradient_sync(False)", "unsynced"),
    "fsdp2-synchronised-first": ("fsdp2", "gradient_sync(i == len(batch) - 1)", "gradient_sync(i == 0)", "unsynced"),
    "fsdp2-optimizer-before-sharding": ("fsdp2", "    model = Net()\n", "    model = Net(); early = torch.optim.SGD(model.parameters(), lr=0.1)\n", "optimizer"),
    "fsdp2-parameter-ignored": ("fsdp2", "    fully_shard(model)\n", "    fully_shard(model, ignored_params={model.head.weight})\n", "unmet"),
    "fsdp2-zero-grad-missing": ("fsdp2", _ZERO_GRAD, "", "kept"),
    "fsdp2-zero-grad-before-step": ("fsdp2", _STEP, _ZERO_GRAD + _STEP, "still"),
    "fsdp2-learning-rate-by-rank": ("fsdp2", _SGD, _SGD.replace("lr=0.1", "lr=0.1 * (rank + 1)"), "settings"),
    "fsdp2-data-the-same": ("fsdp2", "model(micro[rank::world], step)", "model(micro[0::world], step)", "data"),
    "fsdp2-buffer-differs": ("fsdp2", "    guard = watch(model)\n", "    model.scale += rank; guard = watch(model)\n", "buffers"),
    # accelerate
    "accelerate-not-prepared": ("accelerate", "model, optimizer = accelerator.prepare(model, optimizer)", "optimizer = accelerator.prepare(optimizer)", "ranks"),
    "accelerate-unwrapped": ("accelerate", "out = model(", "out = accelerator.unwrap_model(model)(", "bypassed"),
    "accelerate-step-without-sync": ("accelerate", "                optimizer.step()\n", "                (optimizer if accelerator.sync_gradients else optimizer.optimizer).step()\n", "unsynced"),
    "accelerate-zero-grad-first": ("accelerate", "                optimizer.zero_grad()\n", "", "cleared"),
    "accelerate-data-the-same": ("accelerate", "micro[rank::world]", "micro[0::world]", "data"),
}  # fmt: skip
# A change that needs two places of the loop.
MORE = {
    "static-graph-repeats-later": [
        (_DDP, "    ddp = DDP(model, static_graph=True)\n"),
        ("use_reentrant=False", "use_reentrant=True"),
        (_ORDER, "return [*self.blocks] * (2 - step % 2)"),
        ("i, micro in enumerate(batch)", "i, micro in enumerate(batch[1:], 1)"),
    ],
    "optimizer-before-new-head": [
        (_DDP, f"    {_SGD}; model.head = nn.Linear(WIDTH, 1); ddp = DDP(model)\n"),
        (f"    {_SGD}\n    guard", "    guard"),
    ],
    "bf16-step-too-small": [(_SGD, _SGD.replace("0.1", "1e-9"))],
    "bf16-ones-rounded": [(_SGD, "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)")],
    "zero2-loaded-after-initialize": [(_ENGINE, _LOADED)],
    "zero1-loaded-after-initialize": [(_ENGINE, _LOADED)],
    "zero2-backwards-before-one-step": _ONE_STEP,
    "zero1-backwards-before-one-step": _ONE_STEP,
    "zero2-modules-in-another-order": [(_ORDER, "return [*self.blocks][:: 1 - 2 * dist.get_rank()]")],
    "zero1-modules-by-rank": [(_ORDER, "return [self.blocks[dist.get_rank()]]")],
    "accelerate-zero-grad-first": [(_ACCUMULATE, _ACCUMULATE + "                optimizer.zero_grad()\n")],
    "fsdp2-optimizer-before-sharding": [(f"    {_SGD}\n    guard", "    optimizer = early\n    guard")],
}
MISSED = {
    "ddp-ignored": "DDP was told to leave it out, as experts are; the first line names how many",
    "loss-not-divided": "the scale of a loss is the author's",
    "gradient-doubled-everywhere": "equal on all ranks; it could be meant",
    "step-missing": "nothing steps, so there is no step to stand before",
    "frozen-by-mistake": "which parameters are trained is the author's",
    "half-the-batch": "what a rank is given is the author's",
}

_MICRO = "for i, micro in enumerate(batch):\n"
HARMLESS = {
    "ddp-as-it-is": ("ddp", "", ""),
    "find-unused": ("ddp", "DDP(model)", "DDP(model, find_unused_parameters=True)"),
    "static-graph": ("ddp", "DDP(model)", "DDP(model, static_graph=True)"),
    "small-buckets": ("ddp", "DDP(model)", "DDP(model, bucket_cap_mb=1e-4)"),
    "bucket-views": ("ddp", "DDP(model)", "DDP(model, gradient_as_bucket_view=True)"),
    "buffers-not-broadcast": ("ddp", "DDP(model)", "DDP(model, broadcast_buffers=False)"),
    "process-group-named": ("ddp", "DDP(model)", "DDP(model, process_group=dist.group.WORLD)"),
    "adam": ("ddp", _SGD, "optimizer = torch.optim.Adam(model.parameters(), lr=0.01)"),
    "adamw-foreach": ("ddp", _SGD, "optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=True)"),
    "momentum": ("ddp", _SGD, _SGD.replace("lr=0.1", "lr=0.1, momentum=0.9, nesterov=True")),
    "parameter-groups": ("ddp", _SGD, "optimizer = torch.optim.SGD([{'params': model.blocks.parameters(), 'lr': 0.01}, {'params': model.head.parameters()}], lr=0.1)"),
    "schedule": ("ddp", _STEP, _STEP + "        optimizer.param_groups[0]['lr'] *= 0.9\n"),
    "warmup-from-zero": ("ddp", _STEP, "        optimizer.param_groups[0]['lr'] = 0.1 * step\n" + _STEP),
    "clip": ("ddp", _STEP, "        nn.utils.clip_grad_norm_(model.parameters(), 0.1)\n" + _STEP),
    "clip-value": ("ddp", _STEP, "        nn.utils.clip_grad_value_(model.parameters(), 0.1)\n" + _STEP),
    "zero-grad-keeps-zeros": ("ddp", _ZERO_GRAD, _ZERO_GRAD.replace("()", "(set_to_none=False)")),
    "zero-grad-of-the-model": ("ddp", _ZERO_GRAD, "        ddp.zero_grad()\n"),
    "sync-every-micro-batch": ("ddp", "last = i == len(batch) - 1", "last = True"),
    "checkpointing-off": ("ddp", "x = checkpoint(block, x, use_reentrant=False)", "x = block(x)"),
    "reentrant-once": ("ddp", _ORDER, "return self.blocks"),
    "generation-between-steps": ("ddp", _STEP, _STEP + "        model.eval(); torch.no_grad()(model)(batch[0]); model.train()\n"),
    "evaluation-of-the-wrapper": ("ddp", _STEP, _STEP + "        with torch.no_grad(): ddp(batch[0][rank::world], step)\n"),
    "reference-model": ("ddp", "loss = (out - 1)", "loss = (out - frozen(micro[rank::world]).detach() - 1)"),
    "second-optimizer": ("ddp", _SGD, "optimizer = torch.optim.SGD(model.blocks.parameters(), lr=0.1); second = torch.optim.SGD(model.head.parameters(), lr=0.1)"),
    "backward-by-function": ("ddp", _BACKWARD, "                torch.autograd.backward([loss])\n"),
    "loss-in-two-parts": ("ddp", _BACKWARD, "                torch.autograd.backward([loss / 2, loss / 2])\n"),
    "gradient-penalty": ("ddp", _BACKWARD, "                (loss + 0.1 * torch.autograd.grad(out.sum(), model.head.weight, create_graph=True)[0].square().sum()).backward()\n"),
    "tensor-hook": ("ddp", _BACKWARD, "                out.register_hook(lambda g: g); loss.backward()\n"),
    "error-caught": ("ddp", _ZERO_GRAD, _ZERO_GRAD + "        with contextlib.suppress(RuntimeError): torch.zeros(1).sum().backward()\n"),
    "average-of-weights": ("ddp", _ZERO_GRAD, _ZERO_GRAD + "        average = copy.deepcopy(model).requires_grad_(False)\n"),
    "frozen-block": ("ddp", "DDP(model)", "DDP(model.requires_grad_(True) and model.blocks[0].requires_grad_(False) and model)"),
    "bf16-autocast": ("ddp", _FORWARD, "out = torch.autocast('cpu', dtype=torch.bfloat16)(ddp)(micro[rank::world], step)"),
    "bf16-weights": ("ddp", "    model = Net()\n", _BF16),
    "bf16-weights-while-the-rate-grows": ("ddp", "    model = Net()\n", _BF16),
    "bf16-ones-with-large-steps": ("ddp", "    model = Net()\n", _ONES),
    "fp16-compressed-gradients": ("ddp", _GUARD, "    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks\n    ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)\n" + _GUARD),
    "sharded-optimizer": ("ddp", _SGD, "optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)"),
    "two-models": ("ddp", _GUARD, _GUARD + "    judge = DDP(Net()); fooled = torch.optim.SGD(judge.parameters(), lr=0.1)\n"),
    "adapters-on-frozen-weights": ("ddp", "    model = Net()\n", "    model = Net().requires_grad_(False); model.head = nn.Sequential(nn.Linear(WIDTH, 2, bias=False), nn.Linear(2, 1)); nn.init.zeros_(model.head[1].weight)\n"),
    "gradient-scaler": ("ddp", _STEP, "        scaler.unscale_(optimizer); nn.utils.clip_grad_norm_(model.parameters(), 0.1); scaler.step(optimizer); scaler.update()\n"),
    "gradient-scaler-that-leaves-a-step-out": ("ddp", _STEP, "        scaler.step(optimizer); scaler.update()\n"),
    "double": ("ddp", "    model = Net()\n", "    model = Net().double(); torch.set_default_dtype(torch.float32)\n"),
    "seed-by-rank": ("ddp", _GUARD, _GUARD + "    torch.manual_seed(rank)\n"),
    "dropout": ("ddp", "return self.head(x) * self.scale", "return self.head(nn.functional.dropout(x, 0.1)) * self.scale"),
    "batch-norm": ("ddp", "    model = Net()\n", "    model = Net(); model.head = nn.Sequential(nn.BatchNorm1d(WIDTH), model.head)\n"),
    "block-skipped-on-one-rank": ("ddp", _ORDER, "return [*self.blocks][: 2 - (step > 0) * dist.get_rank()]"),
    "unequal-batches": ("ddp", _FORWARD, "out = ddp(micro[: 1 + 2 * rank], step)"),
    "compiled": ("ddp", _DDP, "    ddp = DDP(torch.compile(model, backend='eager'))\n"),
    "own-averaging": ("ddp", _GUARD, "    ddp = model; ddp.no_sync = contextlib.nullcontext; guard = watch(ddp); [p.register_post_accumulate_grad_hook(lambda p: None) for p in ()]\n"),
    "frozen-parameter": ("ddp", "self.head = nn.Linear(WIDTH, 1)", "self.head = nn.Linear(WIDTH, 1); self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)"),
    "optimizer-state-saved": ("ddp", _STEP, _STEP + "        state = copy.deepcopy(optimizer.state_dict())\n"),
    "zero-3-as-it-is": ("zero-3", "", ""),
    "zero2": ("zero-3", '"stage": 3', '"stage": 2'),
    "zero1": ("zero-3", '"stage": 3', '"stage": 1'),
    "zero0": ("zero-3", '"stage": 3', '"stage": 0'),
    "zero2-boundary-named": ("zero-3", '"stage": 3', '"stage": 2'),
    "zero2-loaded-and-refreshed": ("zero-3", '"stage": 3', '"stage": 2'),
    "zero3-loaded-and-refreshed": ("zero-3", _ENGINE, _REFRESHED),
    "zero2-step-left-out": ("zero-3", '"stage": 3', '"stage": 2'),
    "zero1-step-left-out": ("zero-3", '"stage": 3', '"stage": 1'),
    "zero3-one-bucket": ("zero-3", '"reduce_bucket_size": 60', '"reduce_bucket_size": 500000'),
    "zero3-adam": ("zero-3", _SGD, "optimizer = torch.optim.Adam(model.parameters(), lr=0.01)"),
    "zero3-clipping": ("zero-3", '"gradient_clipping": 0.0', '"gradient_clipping": 0.1'),
    "zero3-generation": ("zero-3", "                engine.step()\n", "                engine.step(); torch.no_grad()(engine)(micro[rank::world])\n"),
    "fsdp2-as-it-is": ("fsdp2", "", ""),
    "fsdp2-root-only": ("fsdp2", "        fully_shard(block)\n", "        pass\n"),
    "fsdp2-keeps-gathered": ("fsdp2", "    fully_shard(model)\n", "    fully_shard(model, reshard_after_forward=False)\n"),
    "fsdp2-sync-always": ("fsdp2", "gradient_sync(i == len(batch) - 1)", "gradient_sync(True)"),
    "fsdp2-adam": ("fsdp2", _SGD, "optimizer = torch.optim.Adam(model.parameters(), lr=0.01)"),
    "fsdp2-reentrant": ("fsdp2", _ORDER, "return self.blocks"),
    "fsdp2-clip": ("fsdp2", _STEP, "        nn.utils.clip_grad_norm_(model.parameters(), 0.1)\n" + _STEP),
    "accelerate-as-it-is": ("accelerate", "", ""),
    "accelerate-plain-backward": ("accelerate", "accelerator.backward(loss)", "(loss / 2).backward()"),
    "accelerate-clip": ("accelerate", "accelerator.backward(loss)", "accelerator.backward(loss); accelerator.sync_gradients and accelerator.clip_grad_norm_(model.parameters(), 0.1)"),
    "accelerate-optimizer-plain": ("accelerate", "model, optimizer = accelerator.prepare(model, optimizer)", "model, optimizer = accelerator.prepare(model), accelerator.prepare(optimizer)"),
}  # fmt: skip
HARMLESS_MORE = {
    "static-graph": [("last = i == len(batch) - 1", "last = True")],
    "block-skipped-on-one-rank": [("DDP(model)", "DDP(model, find_unused_parameters=True)")],
    "bf16-weights-while-the-rate-grows": [
        (_SGD, _SGD + "; schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 1e-8 * (s + 1))"),
        (_STEP, _STEP + "        schedule.step()\n"),
    ],
    "bf16-ones-with-large-steps": [(_SGD, "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)")],
    "sharded-optimizer": [("def data():", "from torch.distributed.optim import ZeroRedundancyOptimizer\n\ndef data():")],
    "two-models": [
        (_LOSS, "loss = (out - 1).square().mean() + judge(out.expand(-1, WIDTH)).square().mean()"),
        (_STEP, _STEP + "        judge.zero_grad(); judge(batch[0][rank::world]).square().mean().backward(); fooled.step(); judge.zero_grad()\n"),
    ],
    "gradient-scaler": [(_SGD, _SGD + "; scaler = torch.amp.GradScaler('cpu')"), (_BACKWARD, "                scaler.scale(loss).backward()\n")],
    "gradient-scaler-that-leaves-a-step-out": [
        (_SGD, _SGD + "; scaler = torch.amp.GradScaler('cpu', init_scale=2.0**40)"),
        (_BACKWARD, "                scaler.scale(loss * (1e30 if step == 1 else 1)).backward()\n"),
    ],
    "zero2-loaded-and-refreshed": [(_ENGINE, _REFRESHED)],
    "zero2-step-left-out": [(_LOSS, _NOT_FINITE)],
    "zero1-step-left-out": [(_LOSS, _NOT_FINITE)],
    "zero2-boundary-named": [
        ('"gradient_accumulation_steps": 2', '"gradient_accumulation_steps": 1'),
        ("            for micro in batch:", "            for i, micro in enumerate(batch):"),
        ("                engine.backward(loss)\n", "                engine.set_gradient_accumulation_boundary(i == 1); engine.backward(loss / 2)\n"),
        ("                engine.step()\n", "            engine.step()\n"),
    ],
    "reference-model": [(_GUARD, _GUARD + "    frozen = copy.deepcopy(model).requires_grad_(False)\n")],
    "second-optimizer": [(_STEP, "        optimizer.step(); second.step()\n"), (_ZERO_GRAD, "        ddp.zero_grad()\n")],
    "reentrant-once": [("use_reentrant=False", "use_reentrant=True")],
    "fsdp2-reentrant": [("use_reentrant=False", "use_reentrant=True")],
    "own-averaging": [(_STEP, "        [(dist.all_reduce(p.grad), p.grad.div_(world)) for p in model.parameters()]\n" + _STEP)],
    "double": [("return torch.randn(STEPS, 2, 4, WIDTH)", "return torch.randn(STEPS, 2, 4, WIDTH).double()")],
}  # fmt: skip


def source(name):
    """The loop with the change in it."""
    loop, old, new, *_ = WRONG[name] if name in WRONG else HARMLESS[name]
    text = LOOPS[loop]
    changes = [] if new is None or not old else [(old, new)]
    for old, new in changes + (MORE if name in WRONG else HARMLESS_MORE).get(name, []):
        assert text.count(old) == 1, f"{name}: {old!r} stands {text.count(old)} times in {loop}"
        text = text.replace(old, new)
    return text
