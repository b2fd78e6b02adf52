"""Compares a training's first gradient on N processes with that of one process that is given the batches of all N.

    python -m readyonce_compare -- torchrun --nproc-per-node 2 train.py        # no change of code

Right data-parallel training gives the same gradient both ways. The command runs three times up to its first optimizer
step: as it stands, and twice as one process, from the weights that the first run had. What each rank's DataLoader was
given is put together before the collate function sees it. The two runs of one process differ in the order of the ranks
only, so how far they are apart is the noise that a right run has. Dropout is off in all three. The gradient is compared
before it is clipped, and after it.

It needs torch >= 2.4 and readyonce_guard.py beside it, all ranks on one machine, and batches that come from a DataLoader.
A program without one is compared if it cuts its batches out of the same data, so that one process takes them whole.
"""
# SPDX-License-Identifier: Apache-2.0

import argparse
import functools
import gc
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import readyonce_guard

SETTINGS = "READYONCE_COMPARE"  # what `main` tells the processes that it starts
DIFFERENT, NOT_COMPARED = 91, 90  # exit codes
LIMIT, TF32, HALF = 1e-3, 1e-2, 5e-2  # relative; by the narrowest type that the gradient came through
TIMEOUT = 600  # seconds for the other ranks to take their first step
CUSTOMIZE = readyonce_guard.CUSTOMIZE.replace("readyonce_guard", "readyonce_compare")  # what puts this file into each Python


class NotCompared(Exception):
    """Why the two gradients cannot be compared; a sentence for the user."""


# ------------------------------------------------------------------------------ inside the training


def _from_environment():
    """Called by the sitecustomize of `main`, in every Python that the command starts."""
    settings = json.loads(os.environ[SETTINGS])
    sys.meta_path.insert(0, readyonce_guard._AfterTorch(lambda: _Part(**settings).install()))


class _Part:
    """One process of a run: `record` of the command as it stands, `one` and `turned` of one process given all batches."""

    def __init__(self, folder, mode):
        self.folder, self.mode = folder, mode
        self.fetched, self.loaders = {}, 0  # (loader, batch) -> what the collate function was given
        self.entered = []  # without a DataLoader: of each tensor that enters the model, its sum and its sum of squares
        self.optimizers, self.unclipped, self.clipped, self.loaded = [], {}, {}, False
        self.given, self.half = None, False

    def install(self):
        import torch
        from torch.nn.modules.module import register_module_forward_pre_hook
        from torch.optim.optimizer import register_optimizer_step_pre_hook
        from torch.utils.data import dataloader

        self._without_dropout()
        self._before_clipping()
        self._from_loaders(dataloader)
        original = torch.optim.Optimizer.__init__

        @functools.wraps(original)
        def remembered(optimizer, *args, **kwargs):
            original(optimizer, *args, **kwargs)
            self.optimizers.append(optimizer)

        torch.optim.Optimizer.__init__ = remembered
        enter = torch.amp.autocast_mode.autocast.__enter__

        @functools.wraps(enter)
        def entered(autocast):
            self.half |= bool(autocast._enabled)
            return enter(autocast)

        torch.amp.autocast_mode.autocast.__enter__ = entered
        register_module_forward_pre_hook(self._before_forward)
        register_optimizer_step_pre_hook(self._before_step)

    def _without_dropout(self):
        """No mask is drawn: another one in each process would make the gradients differ."""
        from torch.nn import functional

        for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"):
            original = getattr(functional, name)

            @functools.wraps(original)
            def without(x, p=0.5, training=True, inplace=False, original=original):
                return original(x, 0.0, training, inplace)

            setattr(functional, name, without)
        attention = functional.scaled_dot_product_attention

        @functools.wraps(attention)
        def attended(query, key, value, attn_mask=None, dropout_p=0.0, *args, **kwargs):
            return attention(query, key, value, attn_mask, 0.0, *args, **kwargs)

        functional.scaled_dot_product_attention = attended

    def _before_clipping(self):
        """Keep each gradient as it is before it is clipped; a second call in a row clips what is clipped already."""
        from torch.nn import utils
        from torch.nn.utils import clip_grad

        for name in ("clip_grad_norm_", "clip_grad_value_"):
            original = getattr(clip_grad, name)

            @functools.wraps(original)
            def clipped(parameters, *args, original=original, **kwargs):
                parameters = [parameters] if hasattr(parameters, "grad") else list(parameters)
                return self._clip(parameters, lambda: original(parameters, *args, **kwargs))

            setattr(clip_grad, name, clipped)
            setattr(utils, name, clipped)

    def _clip(self, parameters, clip):
        """Call `clip`, and remember how it leaves the gradients, to see whether a backward changes them before the next call."""
        for p in parameters:
            if p.grad is not None and self.clipped.get(id(p)) != _state(p.grad):
                self.unclipped[id(p)] = _flat(p.grad)
        norm = clip()
        self.clipped |= {id(p): _state(p.grad) for p in parameters if p.grad is not None}
        return norm

    def _before_own_clipping(self, kind, method, parameters):
        """As above, of a wrapper that clips by a method of its own; `parameters` takes them out of the wrapper."""
        original = getattr(kind, method)

        @functools.wraps(original)
        def clipped(wrapper, *args, **kwargs):
            return self._clip(list(parameters(wrapper)), lambda: original(wrapper, *args, **kwargs))

        setattr(kind, method, clipped)

    def _from_loaders(self, dataloader):
        """Every batch is collated in this process, from what was recorded or to be recorded."""
        create, single = dataloader._DatasetKind.create_fetcher, dataloader._SingleProcessDataLoaderIter

        def fetcher(kind, dataset, auto_collation, collate_fn, drop_last):
            number, batches = self.loaders, iter(range(sys.maxsize))
            self.loaders += 1

            def collate(samples):
                return collate_fn(self._samples((number, next(batches)), samples, auto_collation))

            return create(kind, dataset, auto_collation, collate, drop_last)

        def here(loader):
            loader.num_workers, loader.timeout = 0, 0  # a worker would keep what it was given to itself
            loader.prefetch_factor = None
            return single(loader)

        dataloader._DatasetKind.create_fetcher = staticmethod(fetcher)
        dataloader.DataLoader._get_iterator = here

    def _samples(self, key, samples, collated):
        if self.mode == "record":
            self.fetched[key] = samples
            return samples
        self.fetched[key] = None
        given = [of_rank[key] for of_rank in self._recorded()["fetched"] if key in of_rank]
        if not given:
            return samples
        if self.mode == "turned":
            given = given[::-1]
        return [sample for part in given for sample in part] if collated else _joined(given)

    def _recorded(self):
        if self.given is None:
            parts = _parts(self.folder)
            self.given = {"fetched": [part["fetched"] for part in parts], "weights": _whole(parts, "weights")}
        return self.given

    def _before_forward(self, module, args):
        """Before the first forward after the optimizer was made, one process takes the weights that the recorded run had."""
        import torch

        if not self.fetched and not module._modules and args and isinstance(args[0], torch.Tensor):
            self._enter(args[0])
        if self.loaded or not self.optimizers:
            return
        self.loaded = True
        modules = sys.modules
        if fsdp := modules.get("torch.distributed.fsdp.fully_sharded_data_parallel"):
            self._before_own_clipping(fsdp.FullyShardedDataParallel, "clip_grad_norm_", lambda it: it.parameters())
        if engine := modules.get("deepspeed.runtime.engine"):
            self._before_own_clipping(engine.DeepSpeedEngine, "clip_fp32_gradients", lambda it: it.module.parameters())
        if zero := modules.get("deepspeed.runtime.zero.stage_1_and_2"):
            self._before_zero(zero.DeepSpeedZeroOptimizer, lambda it: itertools.chain.from_iterable(it.bit16_groups))
        if zero := modules.get("deepspeed.runtime.zero.stage3"):
            self._before_zero(zero.DeepSpeedZeroOptimizer_Stage3, lambda it: it.module.parameters())
        if self.mode == "record" or "deepspeed" in modules:  # its master weights lie elsewhere; they are compared
            return
        weights = self._recorded()["weights"]
        with torch.no_grad():
            for key, p in self._parameters():
                ours = getattr(p, "_local_tensor", p).data
                if key in weights and weights[key].numel() >= ours.numel():
                    ours.copy_(weights[key][: ours.numel()].view(ours.shape))

    def _enter(self, tensor):
        """What has no gradient comes from the data, and its sums are those of the samples."""
        import torch

        if not tensor.requires_grad and not tensor.is_complex():
            length = torch.linalg.vector_norm(tensor if tensor.is_floating_point() else tensor.double(), dtype=torch.float64)
            self.entered.append((float(tensor.sum(dtype=torch.float64)), float(length) ** 2, tensor.numel()))

    def _before_zero(self, kind, parameters):
        """ZeRO keeps a slice of the gradients on each rank, so DeepSpeed itself puts them together, before it clips them."""
        original = kind.step

        @functools.wraps(original)
        def step(optimizer, *args, **kwargs):
            from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_grad

            params = {(0, place): p for place, p in enumerate(parameters(optimizer)) if p.requires_grad}
            found = {key: _flat(grad) for key, p in params.items() if (grad := safe_get_full_grad(p)) is not None}
            self._write(found, {key: _flat(safe_get_full_fp32_param(p)) for key, p in params.items()}, params)
            return original(optimizer, *args, **kwargs)

        kind.step = step

    def _parameters(self):
        """((optimizer, place in it), parameter): the same in every run, since the program is."""
        for number, optimizer in enumerate(self.optimizers):
            params = [p for group in optimizer.param_groups for p in group["params"]]
            yield from (((number, place), p) for place, p in enumerate(params))

    def _before_step(self, optimizer, args, kwargs):
        """`args` begins with the optimizer; where a closure follows, the gradients are computed inside the step."""
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            self._stepping(optimizer)
            return None

        def then():
            loss = closure()
            self._stepping(optimizer)
            return loss

        return ((args[0], then, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "closure": then})

    def _stepping(self, optimizer):
        """Before the first step that has gradients: write them, and end."""
        mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
        params = {key: p for key, p in self._parameters() if id(p) in mine}
        stepped = {key: _flat(p.grad) for key, p in params.items() if p.grad is not None}
        # What was changed after it was clipped, as by an average of one's own, is compared as it is now.
        clipped = {key for key in stepped if self.clipped.get(id(params[key])) == _state(params[key].grad)}
        found = {key: self.unclipped[id(params[key])] if key in clipped else grad for key, grad in stepped.items()}
        weights = {key: _flat(p) for key, p in params.items()}
        self._write(found, weights, params, {key: stepped[key] for key in clipped})

    def _write(self, found, weights, params, clipped=None):
        if not found:
            return
        import torch
        from torch import distributed

        narrow = (torch.bfloat16, torch.float16)
        half = self.half or any(issubclass(type(it), torch.Tensor) and it.dtype in narrow for it in gc.get_objects())
        tf32 = torch.cuda.is_available() and torch.get_float32_matmul_precision() != "highest"
        together = distributed.is_available() and distributed.is_initialized()
        rank, world = (distributed.get_rank(), distributed.get_world_size()) if together else (0, 1)
        record = {
            "gradients": found,
            "clipped": clipped or {},
            "entered": self.entered,
            "weights": weights if self.mode != "turned" else {},
            "fetched": self.fetched if self.mode == "record" else {},
            "batches": sorted(self.fetched),
            "limit": HALF if half else TF32 if tf32 else LIMIT,
            "names": _names(params) if self.mode == "one" else {},
            "norms": _has_batch_norm() if self.mode == "one" else False,
        }
        name = f"record-{rank}" if self.mode == "record" else self.mode
        torch.save(record, os.path.join(self.folder, f"{name}.part"))
        os.replace(os.path.join(self.folder, f"{name}.part"), os.path.join(self.folder, f"{name}.pt"))
        if self.mode == "record" and rank == 0:
            launch = {"world": world, "command": sys.orig_argv, "directory": os.getcwd(), "environment": dict(os.environ)}
            with open(os.path.join(self.folder, "launch.json"), "w", encoding="utf-8") as file:
                json.dump(launch, file)
        if self.mode == "record":  # the others may still need this process: its store, its part of a reduction
            ends = time.monotonic() + TIMEOUT
            while time.monotonic() < ends and not all(
                os.path.exists(os.path.join(self.folder, f"record-{other}.pt")) for other in range(world)
            ):
                time.sleep(0.05)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _names(params):
    """The name of each parameter in the outermost module that holds it."""
    from torch import nn

    wanted, names = {id(p): key for key, p in params.items()}, {}
    for module in [it for it in gc.get_objects() if issubclass(type(it), nn.Module)]:
        for name, p in module.named_parameters():
            if id(p) in wanted and len(name) > len(names.get(wanted[id(p)], "")):
                names[wanted[id(p)]] = name
    inner = re.compile(r"(?:^|(?<=\.))(?:module|_fsdp_wrapped_module|_orig_mod|_checkpoint_wrapped_module)\.")
    return {key: inner.sub("", name) for key, name in names.items()}


def _state(grad):
    """Another one after the gradient has changed."""
    return id(grad), getattr(grad, "_local_tensor", grad)._version


def _flat(tensor):
    """A copy in CPU memory of what this rank holds, in one dimension, as float32 at least."""
    import torch

    ours = getattr(tensor, "_local_tensor", tensor).detach()
    ours = ours.to_dense() if ours.is_sparse else ours
    return ours.reshape(-1).to("cpu", torch.float64 if ours.dtype == torch.float64 else torch.float32, copy=True)


def _has_batch_norm():
    from torch import nn

    return any(
        issubclass(type(it), nn.modules.batchnorm._BatchNorm) and it.training and not issubclass(type(it), nn.SyncBatchNorm)
        for it in gc.get_objects()
    )


def _joined(parts):
    """Batches that came ready-made from the dataset, as one: tensors one behind the other."""
    import torch

    first = parts[0]
    if isinstance(first, torch.Tensor):
        return torch.cat(parts) if first.dim() else first
    if isinstance(first, dict):
        return type(first)({key: _joined([part[key] for part in parts]) for key in first})
    if isinstance(first, tuple | list):
        return type(first)(_joined(list(items)) for items in zip(*parts, strict=True))
    return first


# ------------------------------------------------------------------------------ outside of it


def _read(folder, name):
    import torch

    return torch.load(os.path.join(folder, f"{name}.pt"), weights_only=False)


def _launch(folder):
    """How rank 0 was started, and among how many; None where it took no step."""
    path = os.path.join(folder, "launch.json")
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def _parts(folder):
    """What each rank of the recorded run wrote."""
    return [_read(folder, f"record-{rank}") for rank in range(_launch(folder)["world"])]


def _whole(parts, what):
    """(optimizer, place) → what the ranks hold, one behind the other.

    Where each holds a piece (FSDP, ZeRO-1 and ZeRO-2), that is the whole, and padding at its end; else it begins with rank 0's.
    """
    import torch

    keys = dict.fromkeys(key for part in parts for key in part[what])
    return {key: torch.cat([part[what][key] for part in parts if key in part[what]]) for key in keys}


def _compared(folder):
    """What the three runs tell: the distance of the gradient, and of each parameter's, with the noise of each."""
    import torch

    parts = _parts(folder)
    first, world = parts[0], len(parts)
    one, turned = _read(folder, "one"), _read(folder, "turned")
    if not any(part["batches"] for part in parts):
        _whole_batches([part["entered"] for part in parts], one["entered"])
    batches = {len(part["batches"]) for part in parts}
    if len(batches) > 1:
        raise NotCompared("the ranks took different numbers of batches before the first step: one reads for the others?")
    if {len(one["batches"])} != batches:
        raise NotCompared(
            f"one process took {len(one['batches'])} batches before its first step, and each of the {world} processes "
            f"took {len(first['batches'])}: its settings follow the number of processes"
        )
    began = _whole(parts, "weights")
    for key, weights in one["weights"].items():
        if key in began and not torch.allclose(weights, began[key][: weights.numel()], rtol=1e-4, atol=1e-6):
            name = one["names"].get(key, "a parameter")
            raise NotCompared(f"one process began with other weights ({name}): set a seed before the model is made")
    if not (found := _paired(parts, one, turned, "gradients")):
        raise NotCompared("no parameter has a gradient in the run of one process")
    limit, norms = max(first["limit"], one["limit"]), one["norms"]
    told = _Comparison(found, world, limit, norms)
    if told.different or told.untold or not (found := _paired(parts, one, turned, "clipped")):
        return told
    after = _Comparison(found, world, limit, norms, clipped=True)
    return after if after.different and not after.untold else told


def _whole_batches(ranks, one):
    """Without a DataLoader: whether one process took what all ranks took together, by the sums of what entered the model."""
    message = "no batch came from a DataLoader before the first step, so one process cannot be given the others'"
    if not any(ranks) or {len(entered) for entered in ranks} != {len(one)}:
        raise NotCompared(message)
    whole = False
    for alone, *of_ranks in zip(one, *ranks, strict=True):
        total = tuple(map(sum, zip(*of_ranks, strict=True)))
        if _alike(alone, total):
            whole = True
        elif not all(_alike(alone, entered) for entered in of_ranks):  # positions, and what else is the same in each batch
            raise NotCompared(message)
    if not whole:
        raise NotCompared(message)


def _alike(one, other):
    """Two of (sum, sum of squares, number of elements): the same but for rounding."""
    (total, squares, count), (other_total, other_squares, other_count) = one, other
    close = abs(squares - other_squares) <= 1e-4 * squares
    return count == other_count and close and abs(total - other_total) <= 1e-4 * (count * squares) ** 0.5


def _paired(parts, one, turned, what):
    """(name, of N processes, of one, of one with the ranks in the other order), flat, of each parameter."""
    import torch

    first, gathered, found = parts[0], _whole(parts, what), []
    for key in one[what].keys() | first[what].keys():
        alone, other = one[what].get(key), turned[what].get(key)
        if alone is None or other is None:
            size = next(it for it in (alone, other, first[what].get(key)) if it is not None).numel()
            alone = torch.zeros(size) if alone is None else alone
            other = torch.zeros(size) if other is None else other
        mine = first[what].get(key)
        held = first["weights"].get(key)
        if held is not None and held.numel() < alone.numel():  # rank 0 has a piece of it, or nothing
            mine = gathered.get(key)  # the last piece ends with padding
        if mine is None:
            mine = torch.zeros_like(alone)
        if mine.numel() < alone.numel():
            name = one["names"].get(key, key)
            raise NotCompared(f"{name} has {alone.numel()} elements in one process, and {mine.numel()} in all ranks together")
        mine = mine[: alone.numel()]
        found.append((one["names"].get(key, f"parameter {key[1]} of optimizer {key[0]}"), mine, alone, other))
    return found


def _length(tensors):
    return sum(float(tensor.double().square().sum()) for tensor in tensors) ** 0.5


class _Comparison:
    """`tensors`: (name, gradient of N processes, of one, of one with the ranks in the other order), flat."""

    def __init__(self, tensors, world, limit, norms, clipped=False):
        self.world, self.norms, self.clipped = world, norms, clipped
        length, alone = _length(a for _, a, _, _ in tensors), _length(b for _, _, b, _ in tensors) or 1e-30
        inner = sum(float((a.double() * b.double()).sum()) for _, a, b, _ in tensors)
        self.distance = _length(a - b for _, a, b, _ in tensors) / alone
        self.noise = _length(c - b for _, _, b, c in tensors) / alone
        self.ratio = length / alone
        self.cosine = inner / (length * alone or 1e-30)
        self.untold = not self.noise <= limit
        self.limit = max(limit, 10 * self.noise)
        self.worst = []
        for name, a, b, c in tensors:
            size = float(b.norm()) + 1e-30
            # Of a gradient that is nearly nothing beside the others, only the rounding is left.
            if max(size, float(a.norm())) > 1e-6 * alone:
                limit = max(self.limit, 10 * float((c - b).norm()) / size)
                if (apart := float((a - b).norm()) / size) > limit:
                    self.worst.append((apart, name))
        self.worst.sort(reverse=True)

    @property
    def different(self):
        return not self.distance <= self.limit or bool(self.worst)

    def meaning(self):
        """What such a gradient is seen with; the first is the likeliest."""
        if self.clipped:
            return [
                "The gradients are alike before they are clipped, and differ after it: each rank takes another norm than "
                "one process does, as that of its own part."
            ]
        straight, world = self.cosine > 0.9999, self.world
        if straight and abs(self.ratio / world - 1) < 0.01:
            return [
                f"The gradient is {world} times that of one process: a loss that is multiplied by the number of processes, "
                "or gradients that are added and not averaged."
            ]
        if straight and abs(self.ratio * world - 1) < 0.01:
            return [
                f"The gradient is that of one process divided by {world}: a gather without gradients, "
                "or a loss that is divided by the number of processes once too often."
            ]
        if straight and abs(self.ratio * world**0.5 - 1) < 0.01:
            return [
                f"The gradient is that of one process divided by the square root of {world}: it is clipped by a norm whose "
                "squares are added up over the ranks, though each rank holds the whole gradient."
            ]
        causes = [
            "The loss is a mean over tokens or pairs, and the ranks have different numbers of them: a mean of means.",
            "The loss compares the samples of a batch with each other, and each rank sees its own only. That may be meant.",
            "A part of the gradient is not averaged. The guard says which: python -m readyonce_guard -- COMMAND",
        ]
        if self.norms:
            causes.insert(
                0,
                "The model has BatchNorm, and each rank takes the statistics of its own batch. That may be meant. "
                "SyncBatchNorm takes those of all ranks.",
            )
        return causes

    def text(self):
        lines = [
            f"{self.world} processes and one process that is given the same batches, first gradient{', clipped' * self.clipped}:",
            f"  distance {self.distance:.2g}, ratio of lengths {self.ratio:.4g}, cosine {self.cosine:.6g}",
            f"  noise of two right orders {self.noise:.2g}, limit {self.limit:.2g}",
        ]
        if self.untold:
            lines.append(
                "  not compared: the two runs of one process disagree. Does the loss draw random numbers (noise, masks)?"
            )
        elif self.different:
            lines.append("  DIFFERENT. It is likely a fault; some of these may be meant:")
            lines += [f"  - {cause}" for cause in self.meaning()]
            if self.worst:
                some = ", ".join(f"{name} ({apart:.2g})" for apart, name in self.worst[:3])
                lines.append(f"  parameters, the worst first: {some}{', …' if len(self.worst) > 3 else ''}")
        else:
            lines.append(
                "  ALIKE: what this command trains does not depend on the number of processes, as far as its first step shows."
            )
        return "\n".join(lines)


def _say(line):
    print(f"readyonce compare: {line}", file=sys.stderr, flush=True)


def _alone(folder, launch, mode, show):
    """Rank 0's own command once more, as the only process."""
    command = launch["command"]
    if any("multiprocessing" in word for word in command):
        raise NotCompared(
            "the ranks are started by Python's multiprocessing (mp.spawn, notebook_launcher), not by a command of their own"
        )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {name: value for name, value in launch["environment"].items() if not name.startswith("TORCHELASTIC_")}
    environment |= dict.fromkeys(("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK"), "0")
    environment |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"), "1")
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    environment[SETTINGS] = json.dumps({"folder": folder, "mode": mode})
    ended = subprocess.run(command, cwd=launch["directory"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    log = ended.stdout.decode(errors="replace")
    if show:
        print(log, file=sys.stderr, end="")
    if not os.path.exists(os.path.join(folder, f"{mode}.pt")):
        last = "\n".join(log.rstrip().splitlines()[-15:])
        raise NotCompared(
            f"as one process the command ended with {ended.returncode} before its first optimizer step. Its last lines:\n{last}"
        )


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m readyonce_compare",
        description="Run a training command up to its first optimizer step, once as it stands and twice as one process that "
        "is given the batches of all ranks, and compare the gradients.",
        epilog=f"Exit code: 0 if they are alike, {DIFFERENT} if they differ, {NOT_COMPARED} if they cannot be compared, and the "
        "command's own if it fails by itself. No step is taken. What the command writes before its first step, it writes three "
        "times.",
    )
    parser.add_argument("--show", action="store_true", help="print what the two runs of one process print, too")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    options = parser.parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("name the command to run: python -m readyonce_compare -- torchrun --nproc-per-node 2 train.py")
    ours = os.path.dirname(os.path.abspath(__file__))
    with tempfile.TemporaryDirectory(prefix="readyonce-compare-") as folder:
        for name in ("readyonce_guard.py", "readyonce_compare.py"):
            shutil.copy(os.path.join(ours, name), folder)
        with open(os.path.join(folder, "sitecustomize.py"), "w", encoding="utf-8") as file:
            file.write(CUSTOMIZE)
        path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
        settings = json.dumps({"folder": folder, "mode": "record"})
        try:
            code = readyonce_guard._run(command, {**os.environ, "PYTHONPATH": path, SETTINGS: settings})
        except OSError as error:
            parser.error(f"{command[0]} cannot be run: {error.strerror}")
        try:
            launch = _launch(folder)
            if not launch:
                if code:
                    return code
                raise NotCompared("no optimizer step with a gradient was seen in a Python that this command started")
            world = launch["world"]
            if world == 1:
                raise NotCompared("the command trains with one process")
            for rank in range(world):
                if not os.path.exists(os.path.join(folder, f"record-{rank}.pt")):
                    raise NotCompared(
                        f"rank {rank} took no optimizer step on this machine within {TIMEOUT} seconds of rank 0's"
                    )
            _say(f"the first gradient of {world} processes is recorded")
            for number, mode in enumerate(("one", "turned"), 1):
                _say(f"as one process, run {number} of 2")
                _alone(folder, launch, mode, options.show)
            comparison = _compared(folder)
        except NotCompared as why:
            _say(f"not compared: {why}")
            return NOT_COMPARED
    _say(comparison.text())
    return NOT_COMPARED if comparison.untold else DIFFERENT if comparison.different else 0


if __name__ == "__main__":
    sys.exit(main())
