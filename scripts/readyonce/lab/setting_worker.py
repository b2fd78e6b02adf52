"""Runs a script that trains a model on two ranks and the same one on one process, under a setting that it does not have.

    torchrun --nproc-per-node 2 setting_worker.py '{"adapters": true, "precision": "bf16", ...}' minimal.py --fixed

The script is run as it is. What it takes from torch is exchanged before: `nn.Linear` for one with LoRA of PEFT, `SGD` for AdamW
with clipping, the weights' type where the model is wrapped, and `backward()`, which adds a second term. Half of what trains may
be frozen, linear layers may have a buffer that no batch changes, and the forward may be what accelerate makes of it. Each optimizer's gradient
is kept before it is clipped, whole, at each step. Where the precision is another one the script is run in float32 too: how far
the one process's own gradients are apart in both is what the precision itself costs.

Needs torch, peft and, for a script with DeepSpeed, DeepSpeed; imports nothing of this package. Rank 0 prints a line `RESULT {...}`.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

LIMIT = 0.1  # the longest gradient that is not clipped
RATE = 0.01  # of AdamW
WEIGHT = 0.1  # of the second term

Gradients = list[torch.Tensor]  # of an optimizer, one for each of its steps: all parameters, flattened, float32


class NoSecondTerm(Exception):
    """The script has no output of the model that a term could be made of, or adds up several backwards."""


class NothingTrains(Exception):
    """No linear layer runs as a module, so that no adapter is trained."""


class Setting:
    """One run of the script: what is exchanged while it lasts, and the gradients that it came to."""

    def __init__(self, adapters: bool, precision: str, optimizer: str, terms: int, frozen: bool, buffers: bool) -> None:
        self.adapters, self.precision, self.clips, self.terms = adapters, precision, optimizer == "adamw", terms
        self.frozen, self.buffers = frozen, buffers
        self.buffered = False  # whether one was used
        self.trained: dict[int, Gradients] = {}
        self.alone: dict[int, Gradients] = {}
        self.depth = 0  # of the modules that run
        self.autocast: Any = None
        self.pending: list[torch.Tensor] = []  # second terms of the outputs since the last backward
        self.added: dict[str, list[int]] = {"trained": [], "alone": []}
        self.now = 0  # second terms since the last step

    # ------------------------------------------------------------------------------ the model

    def prepare(self, module: nn.Module) -> None:
        """Before it is wrapped."""
        self.freeze(module)
        self.round(module)

    def round(self, module: nn.Module) -> None:
        """The weights to bfloat16, where they are to be; DeepSpeed does so itself."""
        if self.precision == "bf16" and not hasattr(module, "zero_optimization_stage"):
            for p in module.parameters():
                p.data = p.data.to(torch.bfloat16)

    def freeze(self, module: nn.Module) -> None:
        """All but the adapters, as PEFT does."""
        for name, p in module.named_parameters() if self.adapters else ():
            if "lora_" not in name:
                p.requires_grad_(False)
        if self.frozen and not any("half" in vars(it) for it in module.modules()):
            module.half = trained = [p for p in module.parameters() if p.requires_grad]  # type: ignore[assignment]
            for p in trained[: len(trained) // 2]:
                p.requires_grad_(False)

    def wrap(self, module: nn.Module, named: dict[str, Any], version: int) -> None:
        """Before data parallelism takes it; where accelerate would, of FSDP the version, with the precision that it sets."""
        self.prepare(module)
        module.trained = True  # type: ignore[assignment]
        if self.precision != "accelerate":
            return
        from accelerate import Accelerator, FullyShardedDataParallelPlugin

        if version:
            plugin = FullyShardedDataParallelPlugin(fsdp_version=version)
            plugin.set_mixed_precision("bf16")
            named["mp_policy" if version == 2 else "mixed_precision"] = plugin.mixed_precision_policy
        if version < 2 and "_original_forward" not in vars(module):
            # makes nothing but autocast of its forward, and float32 of what it returns
            Accelerator(cpu=True, mixed_precision="bf16").prepare_model(module, False, evaluation_mode=True)

    def linear(self) -> type:
        """`nn.Linear` with a buffer, or whose instances are PEFT's, with an adapter that is not zero at the start; or both."""
        plain, setting = nn.Linear, self

        class Buffered(nn.Linear):
            factor: torch.Tensor

            def __init__(self, inputs: int, outputs: int, *args: Any, **named: Any) -> None:
                super().__init__(inputs, outputs, *args, **named)
                self.register_buffer("factor", torch.linspace(0.5, 1.5, outputs))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                setting.buffered, out = True, super().forward(x)
                return out * self.factor.to(out.dtype)

        made_of = Buffered if self.buffers else plain
        if not self.adapters:
            return made_of
        from peft.tuners.lora import Linear as WithAdapter
        from peft.tuners.lora.config import LoraConfig

        class Linear(plain):  # type: ignore[misc, valid-type]
            def __new__(cls, *args: Any, **named: Any) -> Any:
                nn.Linear = plain  # type: ignore[misc]
                try:
                    base, config = made_of(*args, **named), LoraConfig(r=2, lora_alpha=4, init_lora_weights=False)
                    made = WithAdapter(base, "default", config=config, r=2, lora_alpha=4, init_lora_weights=False)
                finally:
                    nn.Linear = cls  # type: ignore[misc]
                return made

        return Linear

    def enter(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Before a forward; only the outermost one is in a precision of its own."""
        self.depth += 1
        if self.depth > 1 or torch._C._current_graph_task_id() != -1:
            return None
        self.prepare(module)  # of the one process nothing is wrapped
        if self.precision == "float32":
            return None
        if self.precision == "accelerate" and any("trained" in vars(it) for it in module.modules()):
            return None
        if self.precision in ("autocast", "accelerate"):
            self.autocast = torch.autocast("cpu", dtype=torch.bfloat16)
            self.autocast.__enter__()
            return None
        return tuple(it.bfloat16() if isinstance(it, torch.Tensor) and it.is_floating_point() else it for it in args)

    def leave(self, module: nn.Module, args: tuple[Any, ...], out: Any) -> Any:
        self.depth -= 1
        if self.depth or torch._C._current_graph_task_id() != -1:
            return None
        if self.autocast is not None:
            self.autocast.__exit__(None, None, None)
            self.autocast = None
        out = _float(out)
        if self.terms == 2 and isinstance(out, torch.Tensor) and out.dim() and out.requires_grad:
            self.pending.append(WEIGHT * out.sin().mean())
        return out

    def whole_loss(self, loss: torch.Tensor) -> torch.Tensor:
        if (self.adapters or self.frozen) and not loss.requires_grad:
            raise NothingTrains
        self.now += len(self.pending)
        terms, self.pending = self.pending, []
        return sum(terms, loss)

    # ------------------------------------------------------------------------------ the steps

    def stepped(self, key: object, gradient: torch.Tensor, alone: bool) -> None:
        kept = self.alone if alone else self.trained
        kept.setdefault(id(key), []).append(gradient)
        self.added["alone" if alone else "trained"].append(self.now)
        self.now = 0

    def optimizer(self, plain: type) -> type:
        """SGD, or AdamW in its place, that keeps the gradient of each step."""
        setting, base = self, torch.optim.AdamW if self.clips else plain

        class Recorded(base):  # type: ignore[misc, valid-type]
            def __init__(self, params: Any, lr: float = RATE, **more: Any) -> None:
                super().__init__(params, **({"lr": RATE, "weight_decay": 0.0} if setting.clips else {"lr": lr, **more}))

            def step(self, *args: Any) -> Any:
                mine = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
                mine.sort(key=lambda p: getattr(p, "place", 0))  # a trainer makes groups of them
                if not getattr(self, "engine", False):
                    alone = all(type(p) is nn.Parameter and not hasattr(p, "wrapped") for p in mine)
                    setting.stepped(self, torch.cat([*map(_whole, mine)]), alone)
                    if setting.clips:
                        _clip(mine)
                return super().step(*args)

        return Recorded

    def result(self) -> tuple[Gradients, Gradients]:
        """The trained model's gradients and the one process's, of which rank 0 knows."""
        (trained,) = self.trained.values()
        alone = next(iter(self.alone.values()), [])
        none = self.terms == 2 and (self.added["trained"] != self.added["alone"] or not any(self.added["alone"]))
        told = [none]
        dist.broadcast_object_list(told)
        if told[0]:
            raise NoSecondTerm
        return trained, alone


def _float(out: Any) -> Any:
    if isinstance(out, torch.Tensor):
        return out.float() if out.is_floating_point() else out
    if isinstance(out, Mapping):
        for name, value in list(out.items()):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                out[name] = value.float()  # type: ignore[index]
        return out
    return type(out)(map(_float, out)) if type(out) in (tuple, list) else out


def _whole(p: Any) -> torch.Tensor:
    """A parameter's gradient over all ranks, flattened; zeros where it has none."""
    if hasattr(p, "full_tensor"):
        whole = torch.zeros(p.shape) if p.grad is None else p.grad.full_tensor()
    elif hasattr(p, "wrapped") and hasattr(p.wrapped, "clip_grad_norm_"):  # FSDP1 has a part of it on each rank
        mine = torch.zeros_like(p) if p.grad is None else p.grad
        parts: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(parts, mine.detach().flatten())
        padded = getattr(p, "_unpadded_unsharded_size", None)  # of all parameters in one
        whole = torch.cat(parts)[: padded.numel() if padded else None]
    else:
        whole = torch.zeros(p.shape) if p.grad is None else p.grad
    return whole.detach().clone().float().flatten()


def _clip(parameters: list[Any]) -> None:
    wrapper: Any = next((p.wrapped for p in parameters if hasattr(p, "wrapped")), None)
    if hasattr(wrapper, "clip_grad_norm_"):  # of FSDP1
        wrapper.clip_grad_norm_(LIMIT)
    else:
        nn.utils.clip_grad_norm_(parameters, LIMIT)


@contextlib.contextmanager
def exchanged(setting: Setting) -> Iterator[None]:
    """What the script takes from the libraries, while it runs."""
    import torch.distributed.fsdp as fsdp

    undo: list[Any] = []

    def put(owner: Any, name: str, new: Any) -> None:
        undo.append((owner, name, getattr(owner, name)))
        setattr(owner, name, new)

    def wrapping(kind: Any, version: int) -> None:
        plain = kind.__init__

        def init(self: Any, module: nn.Module, *args: Any, **named: Any) -> None:
            setting.wrap(module, named, version)
            if (setting.adapters or setting.frozen) and kind is fsdp.FullyShardedDataParallel:
                named["use_orig_params"] = True  # else frozen weights cannot be flattened with others
            plain(self, module, *args, **named)
            for place, p in enumerate(self.parameters()):
                p.wrapped, p.place = self, place

        put(kind, "__init__", init)

    wrapping(nn.parallel.DistributedDataParallel, 0)
    wrapping(fsdp.FullyShardedDataParallel, 1)
    shard: Any = fsdp.fully_shard
    backward: Any = torch.Tensor.backward

    def fully_shard(module: nn.Module, **named: Any) -> Any:
        setting.wrap(module, named, 2)
        return shard(module, **named)

    put(fsdp, "fully_shard", fully_shard)
    put(torch.Tensor, "backward", lambda loss, *args, **named: backward(setting.whole_loss(loss), *args, **named))
    put(torch.optim, "SGD", setting.optimizer(torch.optim.SGD))
    if setting.adapters or setting.buffers:
        put(nn, "Linear", setting.linear())
    if setting.clips or setting.precision != "float32":
        put(torch.testing, "assert_close", lambda *_, **__: None)  # weights that steps have rounded apart
    put(dist, "destroy_process_group", lambda *_: None)
    start = dist.init_process_group
    put(dist, "init_process_group", lambda *args, **named: dist.is_initialized() or start(*args, **named))
    if setting.precision == "accelerate" or "accelerate" in sys.modules:
        _exchange_accelerate(setting, put)
    if "deepspeed" in sys.modules:
        _exchange_deepspeed(setting, put)
    hooks: Any = nn.modules.module
    before = hooks.register_module_forward_pre_hook(setting.enter)
    after = hooks.register_module_forward_hook(setting.leave, always_call=True)
    try:
        yield
    finally:
        before.remove()
        after.remove()
        for owner, name, was in reversed(undo):
            setattr(owner, name, was)


def _exchange_accelerate(setting: Setting, put: Any) -> None:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state()  # the precision of the run before
    init: Any = Accelerator.__init__
    precision = {"mixed_precision": "bf16"} if setting.precision == "accelerate" else {}
    put(Accelerator, "__init__", lambda self, *args, **named: init(self, *args, **{**named, **precision}))


def _exchange_deepspeed(setting: Setting, put: Any) -> None:
    import deepspeed
    from deepspeed.utils import safe_get_full_grad

    def configure(config: dict[str, Any]) -> None:
        config["bf16"] = {"enabled": setting.precision == "bf16"}
        config["gradient_clipping"] = LIMIT if setting.clips else config.get("gradient_clipping", 0.0)

    initialize, init = deepspeed.initialize, deepspeed.zero.Init
    step = deepspeed.DeepSpeedEngine.step

    def initialized(*, model: nn.Module, optimizer: Any, config: dict[str, Any], **named: Any) -> Any:
        configure(config)
        setting.freeze(model)
        optimizer.engine = True
        return initialize(model=model, optimizer=optimizer, config=config, **named)

    def partitioned(*args: Any, config_dict_or_path: dict[str, Any], **named: Any) -> Any:
        configure(config_dict_or_path)
        return init(*args, config_dict_or_path=config_dict_or_path, **named)

    def stepped(engine: Any, *args: Any, **named: Any) -> Any:
        if engine.is_gradient_accumulation_boundary():
            whole = []
            for p in engine.module.parameters():
                if p.requires_grad:
                    size, gradient = getattr(p, "ds_numel", p.numel()), safe_get_full_grad(p)
                    whole.append(torch.zeros(size) if gradient is None else gradient.detach().clone().float().flatten())
            setting.stepped(engine, torch.cat(whole), False)
        return step(engine, *args, **named)

    put(deepspeed, "initialize", initialized)
    put(deepspeed.zero, "Init", partitioned)
    put(deepspeed.DeepSpeedEngine, "step", stepped)


def run(wanted: dict[str, Any], script: str, precision: str = "") -> tuple[Gradients, Gradients]:
    """Run the script under a setting: the trained model's gradients, and those of the one process."""
    precision = precision or wanted["precision"]
    if precision == "accelerate" and "deepspeed" in sys.modules:
        precision = "bf16"  # what accelerate sets there
    setting = Setting(**{**wanted, "precision": precision})
    with exchanged(setting):
        runpy.run_path(script, run_name="__main__")
    wanted["buffers"] = setting.buffered
    return setting.result()


def _apart(some: Gradients, others: Gradients) -> list[float]:
    """At each step the distance, as a part of the second one's length."""
    return [float((one - other).norm() / other.norm()) for one, other in zip(some, others, strict=True)]


def main() -> None:
    wanted, script = json.loads(sys.argv[1]), sys.argv[2]
    sys.argv[:] = sys.argv[2:]
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    if "import deepspeed" in Path(script).read_text(encoding="utf-8"):
        import deepspeed

        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo does; nothing to compile
    torch.set_num_threads(1)
    told: dict[str, Any] = {"setting": wanted, "apart": [], "rounding": []}
    with contextlib.suppress(NothingTrains):
        try:
            trained, alone = run(wanted, script)
        except NoSecondTerm:
            wanted["terms"] = 1
            trained, alone = run(wanted, script)
        if wanted["precision"] != "float32":
            _, exact = run(wanted, script, "float32")
            told["rounding"] = _apart(alone, exact) if dist.get_rank() == 0 else []
        told["apart"] = _apart(trained, alone) if dist.get_rank() == 0 else []
    if dist.get_rank() == 0:
        print("RESULT", json.dumps(told), flush=True)
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
