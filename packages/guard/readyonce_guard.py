"""Stops a training that is about to take a step on wrong gradients. One file, needs torch >= 2.4 only.

    from readyonce_guard import watch
    watch(model)                          # after DDP(model), deepspeed.initialize(...), fully_shard(model), prepare(model)

    trainer.add_callback(readyonce_guard.callback(trainer))            # transformers' Trainer, TRL, ms-swift
    Trainer(callbacks=[readyonce_guard.lightning_callback()])          # Lightning
    python -m readyonce_guard -- torchrun --nproc-per-node 8 train.py  # no change of code
    python -m readyonce_guard --stall 300 -- torchrun ...              # and where each rank stands if it hangs

It looks at the first optimizer steps (three, unless told otherwise), then removes itself. Hooks count in how many pieces
each gradient came; before each optimizer step the ranks exchange a digest over the process group's store, not over
its network, so that no collective of the training is ever out of order. All ranks stop together.
"""
# SPDX-License-Identifier: Apache-2.0

import argparse
import atexit
import base64
import collections
import contextlib
import faulthandler
import functools
import hashlib
import importlib.machinery
import importlib.util
import itertools
import json
import math
import os
import random
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import traceback
import warnings
import weakref
from dataclasses import dataclass, field

SITE = os.environ.get("READYONCE_SITE", "")  # the address of the wiki; pages are named below it
SETTINGS = "READYONCE_GUARD"  # what `python -m readyonce_guard` tells the processes that it starts
STALL = "READYONCE_GUARD_STALL"  # seconds without an optimizer step, where no `stall` is given
SAMPLED, ELEMENTS = 16, 8192  # whether weights move is told by so many parameters and elements: at most 0.5 MB
PIECE = 1 << 17  # elements; what is copied as float32 is copied in pieces of half a megabyte

# code -> what is wrong, what it does to training, what to do, how sure it is; guard/#CODE says more
CODES = {
    "twice": (
        "the gradient came in more than one piece in one backward: a checkpointed module runs more than once, "
        "under reentrant checkpointing",
        "a piece that comes after the reduction is lost, or is added on one rank only",
        "make checkpointing non-reentrant: use_reentrant=False",
        "sure",
    ),
    "static": (
        "static_graph=True, and the gradient came in another number of pieces than in the first backward",
        "DDP reduces it too early or not at all; the ranks drift apart",
        "take static_graph=True off, and make checkpointing non-reentrant",
        "sure",
    ),
    "stale": (
        "no gradient came in the first micro-batch of this step, and earlier steps had one",
        "ZeRO-3 applies the gradient of an earlier step again",
        "run the module on zeros in the steps that have nothing for it",
        "sure",
    ),
    "ranks": (
        "the gradient differs between the ranks",
        "the ranks drift apart",
        "one backward() for each forward, checkpointing non-reentrant, and find_unused_parameters=True where a step "
        "skips a module",
        "sure",
    ),
    "bypassed": (
        "the gradient differs between the ranks, and the wrapper was not called: the inner model was "
        "(`.module(...)`, `unwrap_model`)",
        "nobody averages the gradients; the ranks drift apart",
        "call the wrapper: ddp(x), not ddp.module(x)",
        "sure",
    ),
    "unsynced": (
        "the last backward before this optimizer step ran under no_sync, or with gradient sync switched off",
        "this rank's own gradients are applied, or none; the ranks drift apart until something averages the weights",
        "let the last backward before each step synchronise: no_sync is for those before it",
        "sure",
    ),
    "unmet": (
        "the wrapper does not manage this trainable parameter (added or unfrozen after wrapping, or left out)",
        "nobody averages its gradient; the ranks drift apart",
        "add, unfreeze and share parameters first, then wrap; under FSDP2 put the checkpoint inside the unit",
        "sure",
    ),
    "start": (
        "the ranks start from different weights",
        "they train different models",
        "load or draw the same weights on every rank, and change none after wrapping",
        "sure",
    ),
    "buffers": (
        "the ranks start from different buffers",
        "they compute different losses",
        "load the same buffers on every rank, or leave DDP's broadcast_buffers on",
        "likely",
    ),
    "drift": (
        "the weights differ between the ranks, though they were equal",
        "they train different models",
        "mend what the other findings name; else find what writes weights on one rank only",
        "sure",
    ),
    "settings": (
        "the ranks step with different optimizer settings",
        "the ranks drift apart",
        "make optimizer and schedule from what all ranks know alike",
        "sure",
    ),
    "clipped": (
        "the ranks scaled their shards of the gradient by different factors (clipped by a norm of the own shard?)",
        "the whole gradient points elsewhere, and its norm is not what it was clipped to",
        "clip by the norm of the whole model: FSDP1's model.clip_grad_norm_(...), under FSDP2 torch's on the DTensors",
        "sure",
    ),
    "data": (
        "all ranks were given the same inputs in every forward of this step: no DistributedSampler?",
        "each sample counts once for each rank, and the ranks add nothing to each other",
        "give the DataLoader a DistributedSampler, or split the batch by rank",
        "likely",
    ),
    "kept": (
        "the last step's gradient was still there when this step's backward began: zero_grad() is missing, or in the wrong place",
        "each step repeats all earlier gradients",
        "call optimizer.zero_grad() after each step",
        "sure",
    ),
    "cleared": (
        "the gradient of an earlier micro-batch of this step, computed under no_sync, was cleared before the next backward",
        "the step follows the last micro-batches only",
        "call optimizer.zero_grad() after optimizer.step(), and nowhere else",
        "likely",
    ),
    "dropped": (
        "backward() was called again at the end of an accumulation, and no step() of the engine came between",
        "ZeRO-1 and ZeRO-2 drop the gradient of the backward before",
        "tell the engine which backward is the last: gradient_accumulation_steps, and engine.step() after each backward; or "
        "engine.set_gradient_accumulation_boundary(...)",
        "sure",
    ),
    "order": (
        "the gradients came in another order, or of other parameters, than on the other ranks",
        "ZeRO-1 and ZeRO-2 reduce them in the order in which they come: gradients of different parameters are averaged",
        "run the same modules in the same order on every rank, on zeros where a rank has nothing for one",
        "likely",
    ),
    "nan": (
        "the gradient is not finite (nan or inf), and the optimizer steps on it",
        "the weights become nan on all ranks, and stay so",
        "find the sample or the division that makes it: torch.autograd.set_detect_anomaly(True) names the line",
        "sure",
    ),
    "rounded": (
        "weights in bfloat16 or float16 did not move though they have gradients: a step at this learning rate is smaller than "
        "half the distance to the next number",
        "these weights stay as they are, and smaller ones lose most of their steps",
        "let the optimizer update float32 weights, and compute under autocast",
        "likely",
    ),
    "master": (
        "DeepSpeed's optimizer keeps other weights in float32 than the model has: loaded or changed after deepspeed.initialize?",
        "the first step writes the optimizer's weights over the model's: what was loaded is lost",
        "load before deepspeed.initialize, or call engine.optimizer.refresh_fp32_params() after it",
        "sure",
    ),
    "optimizer": (
        "the optimizer does not hold this trainable parameter of the model (made before the model was wrapped, "
        "sharded or unfrozen?)",
        "it never moves",
        "make the optimizer last, of the parameters of the model that trains",
        "likely",
    ),
    "still": (
        "an optimizer step moved no weight",
        "the training has no effect",
        "look at the learning rate, at requires_grad, and at which model the optimizer holds",
        "sure",
    ),
    "absent": (
        "a rank did not come to the comparison",
        "the others would wait for it",
        "let every rank take the same number of steps, and read that rank's log",
        "sure",
    ),
    "failed": (
        "a rank raised an error in its backward",
        "the others would wait for it",
        "look up that rank's error",
        "sure",
    ),
    "replay": (
        "the gradient differs from the one without reentrant checkpointing and without the wrapper",
        "training follows another gradient than the loss has",
        "make checkpointing non-reentrant, or call the repeated module once",
        "sure",
    ),
}
NAMED = {"buffers": "buffers", "data": "inputs"}  # what a finding names where it names no parameters


def _page(path, title):
    return f"{SITE.rstrip('/')}/{path}" if SITE else f'ReadyOnce, "{title}": {path}'


@dataclass(frozen=True)
class Finding:
    code: str
    step: int  # optimizer steps that were taken before it was seen
    names: tuple[str, ...] = ()
    detail: str = ""
    modules: tuple[str, ...] = ()  # that hold them; the whole model where nothing is named
    local: bool = False  # it is also seen in a right training that averages weights, not gradients (Local SGD)

    @property
    def sure(self):
        return "likely" if self.local else CODES[self.code][3]

    def __str__(self):
        says, does, fix, _ = CODES[self.code]
        told = {
            NAMED.get(self.code, "parameters"): _few(self.names),
            "modules": _few(self.modules),
            "seen": self.detail,
            "what it does": does,
            "how sure": self.sure + (", right if the weights are averaged every few steps" if self.local else ""),
            "the fix": fix,
            "more": _page(f"guard/#{self.code}", "Guard your training"),
        }
        lines = [f"  {key}: {words}" for key, words in told.items() if words]
        return "\n".join([f"[{self.code}] before optimizer step {self.step + 1}: {says}", *lines])


def _few(names):
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _finding(model, code, step, names, detail, local=False):
    paths = () if code in NAMED and code != "buffers" else dict.fromkeys(name.rpartition(".")[0] for name in names)
    modules = [f"{path or 'the model'} ({type(model.get_submodule(path)).__name__})" for path in paths or [""]]
    return Finding(code, step, tuple(names), detail, tuple(modules), local)


class GuardError(RuntimeError):
    """Raised on all ranks before the optimizer moves anything; `findings` says why."""

    def __init__(self, findings):
        self.findings = list(findings)
        super().__init__("ReadyOnce guard\n" + "\n".join(map(str, self.findings)))


# ------------------------------------------------------------------------------ what is shared by all guards

_guards = []
_lock = threading.Lock()
_running = 0  # outer backwards at work now, over all threads
_overlapped = False  # two of them ran at the same time
_backward = None  # torch's own, while ours stands in its place
_handles = []
_in_step = []  # optimizers whose step runs now, the outermost first, each with the guards that judged it
_automatic = 0  # uses of `automatic` that run: models that are met later need the hooks
_numbers = collections.Counter()  # of guards, by the ranks that compare: what one rank watches alone is not counted


def _install():
    global _backward
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    if _backward is None:
        _backward = torch.autograd.backward
        torch.autograd.backward = functools.wraps(_backward)(_watched_backward)
    if not _handles:
        _handles.append(register_optimizer_step_pre_hook(_before_step))
        _handles.append(register_optimizer_step_post_hook(_after_step))


def _uninstall():
    global _backward
    import torch

    if any(not guard.done for guard in _guards):
        return
    _guards.clear()
    # Else somebody stands on top of us: stay.
    if _backward is not None and getattr(torch.autograd.backward, "__wrapped__", None) is _backward:
        torch.autograd.backward = _backward
        _backward = None
    if not _automatic:
        _in_step.clear()
        while _handles:
            _handles.pop().remove()


def _watched_backward(*args, **kwargs):
    import torch

    global _running, _overlapped
    # Inside a node of a running backward this is the inner one of reentrant checkpointing, in whatever thread.
    if not _guards or torch._C._current_graph_task_id() != -1:
        return (_backward or torch.autograd.backward)(*args, **kwargs)
    original = _backward
    _uninstall()  # a guard that was done took its hooks off where it stood; the rest only now
    watching = [guard for guard in _guards if not guard.done]
    with _lock:
        _running += 1
        _overlapped = _running > 1
    try:
        for guard in watching:
            guard._begin()
        try:
            result = original(*args, **kwargs)
        except Exception as error:
            for guard in watching:
                guard._failed(error)
            raise
        for guard in watching:
            guard._end(_overlapped)
        return result
    finally:
        with _lock:
            _running -= 1


def _before_step(optimizer, args, kwargs):
    _ended(optimizer)  # a step that raised left it there
    judged_by, around = [], [others for _, others in _in_step]
    _in_step.append((optimizer, judged_by))

    def judge():
        for guard in [guard for guard in _guards if not guard.done]:
            if guard._stepping(optimizer, inside=any(guard in others for others in around)):
                judged_by.append(guard)

    closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
    if not callable(closure):
        return judge()

    def judged():  # Lightning and LBFGS compute the gradients inside the step; the model may first be called there
        loss = closure()
        judge()
        return loss

    if "closure" in kwargs:
        return args, {**kwargs, "closure": judged}
    return (args[0], judged, *args[2:]), kwargs


def _after_step(optimizer, args, kwargs):
    _ended(optimizer)


def _ended(optimizer):
    running = [one for one, _ in _in_step]
    if optimizer in running:
        del _in_step[running.index(optimizer) :]


# ------------------------------------------------------------------------------ one watched model


def watch(model, steps=3, on_finding="raise", timeout=120, name=None, stall=None, stall_folder=None):
    """Watch the first `steps` optimizer steps of a model; `None` watches until `remove()`.

    `model` is what you call in training: the DDP or FSDP wrapper, DeepSpeed's engine, what `accelerator.prepare`
    returned. `on_finding` is "raise", "warn", or "record" (only `guard.findings`). A rank that does not come to a
    comparison within `timeout` seconds is a finding. Works as a context manager too.

    With `stall`, also after these steps and until `remove()`: after so many seconds without an optimizer step each rank
    writes its stacks into `stall_folder`, and training goes on.
    """
    for guard in _guards:
        if guard.model is model and not guard.done:
            guard._say("already watched: the first guard stays, this call adds nothing")
            return guard
    seconds = _seconds(stall)
    guard = Guard(model, steps, on_finding, timeout, name)
    if seconds:
        guard.stalls = _stalls_for(guard, seconds, stall_folder)
        guard.stalls.begin()
    return guard


class Guard:
    def __init__(self, model, steps, on_finding, timeout, name):
        if on_finding not in ("raise", "warn", "record"):
            raise ValueError(f'on_finding is "raise", "warn" or "record", not {on_finding!r}')
        if steps is not None and steps < 1:
            raise ValueError(f"steps is at least 1, not {steps}")
        self.model, self.steps, self.on_finding, self.timeout = model, steps, on_finding, timeout
        self.findings, self.lines, self.notes = [], [], []
        self.step = self.micro = self.calls = self.bytes_sent = 0
        self.done, self.synced, self.graph, self.had = False, True, None, set()
        self.stalls = None
        self.reduced = False  # in one of this step's backwards
        self.local = self.equal = False  # a local step was taken; the ranks had equal weights after one
        self.pending, self.before, self.kept, self.stepped = [], None, None, set()
        self.held, self.optimizers, self.failing, self.fresh = set(), weakref.WeakSet(), False, False
        self.idle = weakref.WeakSet()
        self.inner = _inner(model)
        self.kind, self.stage = _strategy(model)
        self.hidden = self.kind == "zero" and _has_flat_gradients(model, self.stage)  # the optimizer never sees p.grad
        self.name = name or self._number()
        named = [(n, p) for n, p in self.inner.named_parameters() if p.requires_grad]
        self.names, self.params = [n for n, _ in named], [p for _, p in named]
        self.index = {id(p): i for i, p in enumerate(self.params)}
        self.pieces = [0] * len(self.params)
        self.has_moved, self.had_gradient = False, []
        self.buffers, self.inputs, self.rate, self.sampled, self.left = None, [], 0.0, [], {}
        self.order, self.orders, self.at_boundary = [], [], False  # of gradients under ZeRO-1 and ZeRO-2
        self.unsynced, self.zeros, self.rounding = [], 0, {}
        self.skipped = getattr(model, "skipped_steps", 0)  # by DeepSpeed, for nan or inf
        self.handles = [_register_first(p, self._counter(i)) for i, p in enumerate(self.params)]
        self.handles.append(model.register_forward_pre_hook(self._called, with_kwargs=True))
        if self.kind == "zero":
            model.allreduce_gradients = self._watched_reduction(model.allreduce_gradients)
        if self.kind == "ddp":
            model._check_and_sync_module_buffers = self._watched_join(model._check_and_sync_module_buffers)
        _install()
        _guards.append(self)
        self._say(self._introduction())

    # -------------------------------------------------------------- attached and removed

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        self.remove()

    def remove(self):
        """Take every hook off again; nothing is left behind."""
        if not self.done:
            self._say_seen()
        self._finish()
        _uninstall()
        if self.stalls:
            self.stalls.leave(self)

    def _finish(self):
        """What can be taken off from inside an optimizer step; the rest goes when the next backward begins."""
        if self.done:
            return
        self.done = True
        for handle in self.handles:
            handle.remove()
        for name in ("allreduce_gradients", "_check_and_sync_module_buffers"):
            if getattr(self.model.__dict__.get(name), "guard", None) is self:
                delattr(self.model, name)  # the class has it
        self.handles, self.params, self.pieces, self.before, self.buffers = [], [], [], None, None
        self.sampled, self.left, self.unsynced, self.rounding = [], {}, [], {}
        self.model = self.inner = None
        self.kept, self.index = None, {}

    def _say(self, line):
        self.lines.append(line)
        if self.on_finding != "record" and _rank() == 0:
            print(f"readyonce guard: {line}", file=sys.stderr, flush=True)

    def _say_seen(self):
        wanted = f"of {self.steps} " if self.steps is not None and self.step < self.steps else ""
        line = f"{self.step} {wanted}optimizer steps watched, {len(self.findings) or 'no'} findings; removed"
        if self.local:
            line += "; the weights were equal again in between" if self.equal else "; no average of the weights was seen"
        self._say(line)

    def _introduction(self):
        ranks = len(self._group())
        what = {"zero": f"DeepSpeed ZeRO-{self.stage}", "plain": "a model without a wrapper", "ddp": "DDP"}
        told = what.get(self.kind, self.kind.upper())
        steps = "until removed" if self.steps is None else f"for {self.steps} optimizer steps"
        frozen = _frozen(self.inner) if self.params else []
        train = f"{len(self.params)} trainable parameters"
        if frozen:
            count = sum(1 for _ in self.inner.parameters())
            train += f" of {count} (frozen: {_few(frozen)})" if len(frozen) <= 8 else f" of {count}"
        line = f"watching {told}, {ranks} rank{'s' * (ranks > 1)}, {train}, {steps}"
        if not self.params:
            line += "; it has no trainable parameter: nothing will be seen"
        if ranks == 1:
            line += "; one process, there is nothing to compare: only `kept`, `optimizer` and `still` can be seen"
        if left_out := self._not_covered():
            line += "; not covered: " + ", ".join(left_out)
        return line

    def _not_covered(self):
        left_out = []
        if any(type(m).__name__ == "PipelineEngine" for m in self.model.modules()):
            left_out.append("pipeline parallelism")
        if ignored := [n for n, p in zip(self.names, self.params) if self._is_local(n, p)]:
            left_out.append(f"{len(ignored)} parameters that differ between ranks by design (experts, or ignored)")
        if any(_placements(p) - {"Shard"} and _mesh_dims(p) > 1 or "tp" in _mesh_names(p) for p in self.params):
            left_out.append("tensor parallelism and replicas of shards")
        if self.kind in ("fsdp1", "fsdp2") or self.hidden:
            left_out.append("the values of sharded gradients (their hooks and the weights' movement are watched)")
        if _compiled_autograd():
            left_out.append("compiled autograd, where hooks may not fire")
        return left_out

    def _is_local(self, name, p):
        ignored = getattr(self.model, "parameters_to_ignore", ())
        return name in ignored or getattr(p, "allreduce", True) is False

    # -------------------------------------------------------------- what the hooks see

    def _counter(self, i):
        # Not bound to self: a hook must not keep the guard alive, nor look anything up.
        pieces, order = self.pieces, self.order

        def count(_):
            pieces[i] += 1

        def count_in_order(_):
            pieces[i] += 1
            order.append(i)

        return count_in_order if self.kind == "zero" and self.stage in (1, 2) else count

    def _watched_reduction(self, reduce):
        """DeepSpeed reduces what is left after autograd's backward, and asserts there too."""

        @functools.wraps(reduce)
        def watched(*args, **kwargs):
            told = len(self.notes)
            try:
                return reduce(*args, **kwargs)
            except Exception as error:
                if not self.done and len(self.notes) == told:
                    self._failed(error)
                raise

        watched.guard = self
        return watched

    def _watched_join(self, synchronise):
        """DDP calls it under `Join`, on a rank that has no more batches while others have: those need not wait for it."""

        @functools.wraps(synchronise)
        def watched():
            if not self.done:
                self._post({"joined": self.step})
                self._joined([_rank()])
            return synchronise()

        watched.guard = self
        return watched

    def _joined(self, ranks):
        """What follows has fewer ranks; the next epoch begins with other numbers of steps on each."""
        self._say(
            f"no more batches for {_which_ranks(ranks)}, and the others go on under `Join`: nothing after this is compared"
        )
        self._say_seen()
        self._finish()

    def _called(self, _=None, args=(), kwargs={}):
        import torch

        if torch.is_grad_enabled():
            self._next_step()
            self.calls += 1
            self.synced = _synchronises(self.model, self.kind)
            given = {**{f"argument {i}": t for i, t in enumerate(args, 1)}, **kwargs}
            if tensors := {n: t for n, t in given.items() if isinstance(t, torch.Tensor) and t.numel() > 1}:
                self.inputs.append((tuple(tensors), _sized(tensors.values(), integers=True)))
            if self.buffers is None:  # before the first forward changes them
                self.buffers = self._buffers()

    def _next_step(self):
        """After an optimizer's step; a second optimizer may step on the same backward. DeepSpeed may leave a step out."""
        before, self.skipped = self.skipped, getattr(self.model, "skipped_steps", 0)
        if self.fresh or self.skipped != before:
            self.micro, self.calls, self.fresh, self.inputs, self.reduced = 0, 0, False, [], False
            self.orders, self.at_boundary, self.unsynced = [], False, []

    def _begin(self):
        self._next_step()
        if _running == 1:
            self._reset()
        self.kept = None
        if self.micro == 0 and self.step and self.kind != "zero":
            sample = [i for i in sorted(self.stepped) if self.params[i].grad is not None][:8]
            self.kept = sample, _sized([self.params[i].grad for i in sample])
        if self.unsynced and not any(_norms([self.params[i].grad for i in self.unsynced if self.params[i].grad is not None])):
            self._note("cleared", self.unsynced)

    def _reset(self):
        self.pieces[:] = [0] * len(self.pieces)
        del self.order[:]

    def _end(self, overlapped):
        reached = any(self.pieces)
        if not (reached or self.kind in ("fsdp1", "fsdp2") and self.calls):
            return  # the backward of another model
        if overlapped:
            self._say("two backwards ran at the same time in two threads: the pieces of this one are not judged")
            self.micro += 1
            return
        came = {i for i, n in enumerate(self.pieces) if n}
        came |= self._filled_with_zeros(came)
        repeated = [i for i, n in enumerate(self.pieces) if n > 1]
        by_ddp = self.kind == "ddp" and self.synced and self.calls
        static = by_ddp and getattr(self.model, "static_graph", False)
        if repeated and not static and (by_ddp or self.kind == "zero" and self.stage >= 2):
            self._note("twice", repeated, f"{max(self.pieces)} pieces")
        if static:
            if self.graph is None:
                self.graph = list(self.pieces)
            changed = [i for i, n in enumerate(self.pieces) if n != self.graph[i]]
            if changed:
                i = changed[0]
                self._note("static", changed, f"{self.pieces[i]} pieces, first {self.graph[i]}")
        if self.kind == "zero" and self.stage == 3 and self.micro == 0:
            if missing := sorted(self.had - came):
                self._note("stale", missing)
        if self.kept:
            sample, sizes = self.kept
            again = [i for i, size in zip(sample, sizes()) if size and (self.pieces[i] or self.kind in ("fsdp1", "fsdp2"))]
            if again:
                self._note("kept", again)
        if self.kind == "zero" and self.stage in (1, 2):
            self._look_at_engine()
        if self.kind != "ddp":  # there the forward has decided
            self.synced = _synchronises(self.model, self.kind)
        local = self.kind == "ddp" and not self.synced
        looked_at = [i for i in sorted(came) if self.params[i].grad is not None][:8] if local else []
        sizes = _norms([self.params[i].grad for i in looked_at]) if looked_at else []
        self.unsynced = [i for i, size in zip(looked_at, sizes) if size > 0]
        self.reduced |= self.synced
        self.left = self._shards()
        self.had |= came
        self.micro += 1

    def _look_at_engine(self):
        """What ZeRO-1 and ZeRO-2 make of this backward: in which order they reduce, and whether they drop the one before."""
        # Without overlap ZeRO-1 reduces after the backward, in an order of its own: only which ones came matters.
        at_once = self.stage == 2 or getattr(self.model.optimizer, "overlap_comm", True)
        came = self.order if at_once else sorted(self.order)
        self.orders.append(hashlib.sha256(repr(came).encode()).hexdigest()[:16])
        # Under no_sync a backward waits: it takes the place of none before it, and the next one adds it.
        ends = bool(self.model.is_gradient_accumulation_boundary()) and _synchronises(self.model, self.kind)
        if ends and self.at_boundary and _deepspeed() >= (0, 18, 3):  # before, it was added
            self._note("dropped")
        self.at_boundary |= ends

    def _filled_with_zeros(self, came):
        """What ZeRO-3 gives a gradient of zeros: the rest of a leaf module (set_z3_leaf_modules) that was run."""
        if self.kind != "zero" or self.stage != 3:
            return set()
        leaves = [getattr(p, "ds_z3_leaf_module", None) for p in self.params]
        run = {id(leaves[i]) for i in came if leaves[i] is not None}
        return {i for i, leaf in enumerate(leaves) if id(leaf) in run}

    def _failed(self, error):
        """Tell what was seen in a backward that the framework ended; the others need not wait for this rank."""
        repeated = [i for i, n in enumerate(self.pieces) if n > 1]
        came = sum(1 for n in self.pieces if n)
        if not came and not self.calls:
            return
        if repeated:
            note = _finding(self.inner, "twice", self.step, self._named(repeated), f"{max(self.pieces)} pieces")
            text = f"ReadyOnce guard, at this error: {note}"
        else:
            text = (
                f"ReadyOnce guard, at this error: {came} of {len(self.params)} parameters had their gradient, none of "
                f"them twice (before optimizer step {self.step + 1})\n  look it up: {_page('diagnose/', 'Diagnose')}"
            )
        if hasattr(error, "add_note") and self.on_finding != "record":
            error.add_note(text)
        self.notes.append(text)
        self._reset()
        if not self.failing:
            self.failing = True
            with contextlib.suppress(Exception):
                self._post({"failed": f"{type(error).__name__}: {error}"[:300]})

    def _note(self, code, indices=(), detail=""):
        if all(code != seen[0] for seen in self.pending):
            self.pending.append((code, sorted(indices), detail))

    def _named(self, indices):
        return tuple(self.names[i] for i in indices if i < len(self.names))

    # -------------------------------------------------------------- before an optimizer step

    def _stepping(self, optimizer, inside):
        """Judge this step, and say whether it was; `inside` the step of an optimizer that was judged, it may be the same one."""
        if self.done:
            return False
        if self.hidden:
            # It steps flat shards, perhaps several times for one step of the engine.
            if self.fresh or not self.micro or not _is_inside(optimizer, self.model):
                return False
            mine = list(range(len(self.params)))
            if not self.step:
                self._note_left_out()
                self._note_master_weights()
        else:
            theirs = [p for group in optimizer.param_groups for p in group["params"]]
            mine = sorted(self.index[id(p)] for p in theirs if id(p) in self.index)
            if not mine and not self._is_twin(theirs) and not self._is_left_behind(optimizer, theirs):
                return False
            if not mine:
                self._note("optimizer", range(len(self.params)), "it holds none of them")
            elif inside and self.stepped.issuperset(mine):
                return False
        rates = [float(group.get("lr", 1)) for group in optimizer.param_groups]
        if not self.micro and not any(rates):
            return False  # a step that only makes the optimizer's state
        self._check(optimizer, mine, rates)
        self.fresh, self.stepped = True, set(mine)
        return True

    def _note_left_out(self):
        """Trainable parameters that DeepSpeed was given no optimizer for."""
        engines = self.model.optimizer
        groups = getattr(engines, "fp16_groups", None) or getattr(engines, "bit16_groups", None)
        if groups:
            held = {id(p) for group in groups for p in _flattened(group)}
            if left_out := [i for i, p in enumerate(self.params) if id(p) not in held]:
                self._note("optimizer", left_out, f"{len(left_out)} of {len(self.params)}")

    def _note_master_weights(self):
        """Weights of which DeepSpeed's optimizer keeps another copy: looked at once, before the first step."""
        import torch.distributed as dist

        zero, pairs = self.model.optimizer, []
        with contextlib.suppress(Exception):  # another release or an offload may keep them elsewhere: nothing is said then
            if self.stage == 3:
                from deepspeed.utils import safe_get_local_fp32_param

                if not getattr(zero, "swap_optimizer", False):  # reading them from the disk takes too long
                    pairs = [(i, safe_get_local_fp32_param(p), p.ds_tensor) for i, p in enumerate(self.params)]
            elif hasattr(
                zero, "fp16_groups"
            ):  # weights of 16 bits without ZeRO: a tensor for each group, or for each parameter
                flat = hasattr(zero, "fp32_groups_flat")
                copies = zero.fp32_groups_flat if flat else itertools.chain(*zero.fp32_groups)
                weights = zero.fp16_groups_flat if flat else itertools.chain(*zero.fp16_groups)
                pairs = [(None, *pair) for pair in zip(copies, weights)]
            else:
                by_zero = hasattr(zero, "single_partition_of_fp32_groups")
                copies = zero.single_partition_of_fp32_groups if by_zero else zero.fp32_groups_flat_partition
                parts = zero.parallel_partitioned_bit16_groups if by_zero else zero.bf16_partitioned_groups
                ranks = [dist.get_rank(group) for group in zero.real_dp_process_group]
                pairs = [(None, copy, part[rank]) for copy, part, rank in zip(copies, parts, ranks)]
            if apart := [i for i, copy, weight in pairs if _differ(copy, weight)]:
                self._note("master", [i for i in apart if i is not None])

    def _is_twin(self, theirs):
        """Other tensors of our shapes and without gradients, while ours have some: made of another copy of the model."""
        import torch

        if not theirs or any(p.grad is not None for p in theirs) or not self.micro:
            return False
        known = {id(p) for guard in _guards if guard is not self for p in guard.params}
        if any(id(p) in known for p in theirs):
            return False
        sharded = self.kind in ("fsdp1", "fsdp2")
        mine = sorted(tuple(p.shape) for p in self.params)
        return sharded or sorted(tuple(p.shape) for p in theirs if isinstance(p, torch.Tensor)) == mine

    def _is_left_behind(self, optimizer, theirs):
        """Parameters of ours that do not train, for the second time, and no other optimizer stepped: adapters came later."""
        if self.step or not self.micro or any(p.grad is not None for p in theirs):
            return False
        ours, again = {id(p) for p in self.inner.parameters()}, optimizer in self.idle
        self.idle.add(optimizer)
        return again and bool(theirs) and all(id(p) in ours for p in theirs)

    def _check(self, optimizer, mine, rates):
        group, moving = self._group(), max(rates, default=0) > 0
        compared = self._compared(mine)
        grads = [self.params[i].grad for i in compared]
        norms = _norms([g for g in grads if g is not None])
        sizes = iter(norms)
        vector = [next(sizes) if g is not None else -1.0 for g in grads]
        any_gradient = self.hidden or any(p.grad is not None for p in self.params)
        visible, vector_of_shards = compared, vector
        if self.kind in ("fsdp1", "fsdp2"):  # this rank's shards
            visible = [i for i, p in enumerate(self.params) if p.grad is not None]
            vector_of_shards = _norms([self.params[i].grad for i in visible])
        sizes_of = dict(zip(visible, vector_of_shards))
        if self.hidden:  # but what DeepSpeed gives its optimizer is seen: this rank's share, as flat tensors without names
            flat = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            if not all(map(math.isfinite, _norms(flat))):
                self._note("nan")
        elif getattr(optimizer, "found_inf", None) is None:  # else its own step looks, and leaves such a step out
            if broken := [i for i, size in sizes_of.items() if not math.isfinite(size)]:
                self._note("nan", broken)
        if not self.hidden and any_gradient and moving and all(size in (0.0, -1.0) for size in vector_of_shards):
            self.zeros += 1
        last = self.steps is not None and self.step + 1 >= self.steps
        if self.kind != "zero":
            self._look_at_rounding(optimizer, sizes_of)
        if self._unsynced() and not compared:  # else the gradients themselves tell: a script may average them by hand
            self._note("unsynced")
        if self.kind == "ddp" and self.step == 0:
            self._note_unmet()
        self.rate = max([self.rate, *rates])
        if self.step and not self.rate and self.steps is not None and self.step + 1 >= self.steps:
            self._note("still", (), "the learning rate was 0 in all watched steps")
        if any_gradient and not self.micro:
            self._say("gradients came without torch.autograd.backward: their pieces are not judged")
        if optimizer in self.optimizers and self.kind != "zero":  # by now all have stepped once
            if outside := self.had - self.held - set(mine):
                self._note("optimizer", outside, f"{len(outside)} of {len(self.params)}")
        record = {
            "found": self.pending,
            "why": self._reason(),
            "grads": _digest(vector),
            "settings": _settings(optimizer, self.kind),
            "here": _fingerprint(self.params),
            "moved": self._moved(),
            "empty": moving and not any_gradient,
            "zeros": last and self.zeros == self.step + 1,
            "order": self.orders,
            "factor": self._factor(),
            "local": self._may_be_local(),
            # A step on zeros moves nothing, rightly; where that cannot be seen, one such step proves nothing.
            "gradient": self.step > 0 if self.hidden else any(size > 0 for size in vector_of_shards),
        }
        weights = self._weights(all_of_them=self.step == 0)
        flat = [size for _, sizes in self.inputs for size in sizes()]
        record["inputs"] = _digest(flat) if any(flat) else None
        buffers, self.buffers = self.buffers or {}, {}  # compared once
        record["weights"], record["buffers"] = _digest(weights.values()), _digest(buffers.values())
        self.pending = []
        self.held |= set(mine)
        self.optimizers.add(optimizer)
        if len(group) > 1:
            records, absent = self._exchange(record, group)
        else:
            records, absent = [record], []
        if ended := [rank for rank, it in zip(group, records) if "joined" in it]:
            return self._joined(ended)
        values = {"grads": dict(zip(self._named(compared), vector)), "weights": weights, "buffers": buffers}
        findings = self._judge(records, absent, values, group)
        self._sample(
            moving and self._is_settled(optimizer), [] if self.hidden else sorted(zip(vector_of_shards, visible), reverse=True)
        )
        self.step += 1
        _mark("step")
        self._answer(findings)
        if last and not self.done:
            self._say_seen()
            self._finish()

    def _compared(self, mine):
        """The parameters whose whole gradient each rank has, equal on all of them where training is right."""
        if self.hidden:
            return []
        managed = _managed(self.model, self.kind)
        return [i for i in mine if id(self.params[i]) not in managed and not self._is_local(self.names[i], self.params[i])]

    def _weights(self, all_of_them):
        """name -> size of each weight that all ranks hold whole; those that no step moves are looked at once."""
        sharded = _managed(self.model, self.kind) if self.kind in ("fsdp1", "fsdp2") else set()
        whole = {
            n: p
            for n, p in self.inner.named_parameters()
            if (all_of_them or p.requires_grad)
            and id(p) not in sharded
            and not hasattr(p, "ds_id")
            and not self._is_local(n, p)
        }
        return dict(zip(whole, _norms(whole.values())))

    def _buffers(self):
        if getattr(self.model, "broadcast_buffers", False):  # rank 0's will be everybody's
            return {}
        named = self.inner.named_buffers()
        whole = {n: b for n, b in named if b.is_floating_point() and not hasattr(b, "placements")}
        return dict(zip(whole, _norms(whole.values())))

    def _unsynced(self):
        return bool(self.calls and not self.synced)

    def _may_be_local(self):
        """Whether this may be a local step: on each rank's own gradient, with the weights averaged every few steps."""
        if self.kind == "plain":  # only its author knows what is averaged
            return True
        by_hook = bool(getattr(self.model, "_comm_hooks", ()))  # as post_localSGD_hook does
        return self.kind == "ddp" and (by_hook or self._unsynced() and not self.reduced)

    def _reason(self):
        if self.kind == "ddp" and not self.calls:
            return "bypassed"
        if self.kind in ("fsdp1", "fsdp2"):
            return "unmet"
        return "unsynced" if self._unsynced() else "ranks"

    def _note_unmet(self):
        """Parameters that need a gradient now, and did not when DDP counted."""
        new = [n for n, p in self.inner.named_parameters() if p.requires_grad and id(p) not in self.index]
        with contextlib.suppress(Exception):
            managed = self.model._get_ddp_logging_data()["num_parameter_tensors"]
            ours = [n for n, p in zip(self.names, self.params) if not self._is_local(n, p)]
            if new or len(ours) > managed:
                detail = f"DDP manages {managed} of {len(ours) + len(new)} trainable parameters"
                self._note("unmet", (), detail + (": not " + ", ".join(new[:5]) if new else ""))

    # -------------------------------------------------------------- sharded gradients that are clipped

    def _shards(self):
        """index -> two sizes of this rank's part of a gradient."""
        if self.kind not in ("fsdp1", "fsdp2"):
            return {}
        managed = _managed(self.model, self.kind)
        held = {i: p.grad for i, p in enumerate(self.params) if p.grad is not None and id(p) in managed}
        return dict(zip(held, zip(_norms(held.values()), _norms(held.values(), order=math.inf))))

    def _factor(self):
        """By what all of this rank's shards were multiplied since the last backward; None where not all by the same."""
        now = self._shards()
        pairs = [pair for i in now if i in self.left for pair in zip(now[i], self.left[i])]
        ratios = [new / old for new, old in pairs if old > 0]
        return ratios[0] if ratios and min(ratios) > 0 and _alike(ratios, self._noise()) else None

    def _noise(self):
        exact = all(p.element_size() >= 4 for p in self.params)
        return 1e-4 if exact else 2e-2

    # -------------------------------------------------------------- weights that do not move

    def _is_settled(self, optimizer):
        """Whether a step that moves nothing is a fault: weights of 16 bits may not move yet while the learning rate grows."""
        exact = all(p.element_size() >= 4 for p in self.params)
        return exact or all(float(group.get("lr", 1)) >= _base_rate(group) for group in optimizer.param_groups)

    def _look_at_rounding(self, optimizer, sizes):
        """Weights of 16 bits that no step moves, since AdamW's steps are about as long as the learning rate."""
        import torch

        if _keeps_what_is_lost(optimizer):
            return
        steps = min(self.steps or 3, 3)
        if self.step == 0 and steps > 1:
            rates = {id(p): _base_rate(group) for group in optimizer.param_groups for p in group["params"]}
            low = [i for i, size in sizes.items() if size > 0 and self.params[i].dtype in (torch.bfloat16, torch.float16)]
            for i in low[:: -(-len(low) // 64) or 1]:
                if id(self.params[i]) in rates and (part := _part(self.params[i])[:64]).numel():
                    self.rounding[i] = part.clone(), rates[id(self.params[i])]
        if self.step == steps - 1 and self.rounding:
            looked_at, self.rounding = self.rounding, {}
            lost = []
            for i, (before, rate) in looked_at.items():
                smallest = before.abs().min().item() * torch.finfo(before.dtype).eps / 4  # below it, to the next number
                if 0 < rate < smallest and torch.equal(before, _part(self.params[i])[:64]):
                    lost.append(i)
            if lost:
                detail = f"{len(lost)} of {len(looked_at)} tensors that were looked at, in {self.step} steps"
                self._note("rounded", lost, f"{detail}, at a learning rate of {max(looked_at[i][1] for i in lost):.3g}")

    def _sample(self, moving, sizes):
        """Remember a little of the weights, to see in the next step whether this one moved any.

        Those with the largest gradients: of LoRA's matrices only every second one moves in the first step. Where gradients
        are hidden, a fixed choice without a pattern.
        """
        self.before = None
        if moving and self.params and not self.has_moved:
            chosen = [i for size, i in sizes[:SAMPLED] if size > 0]
            if not sizes:
                chosen = random.Random(0).sample(range(len(self.params)), min(SAMPLED, len(self.params)))
            self.sampled = [self.params[i] for i in chosen]
            self.before = [_part(p).clone() for p in self.sampled]

    def _moved(self):
        import torch

        if self.before is None:
            return None
        pairs = [(old, _part(p)) for old, p in zip(self.before, self.sampled)]
        differ = [(old != new).any() for old, new in pairs if old.shape == new.shape and old.numel()]
        if any(old.shape != new.shape for old, new in pairs):
            return True
        return bool(torch.stack([d.to(differ[0].device) for d in differ]).any()) if differ else None

    # -------------------------------------------------------------- between ranks

    def _group(self):
        """The global ranks that hold the same parameters."""
        import torch.distributed as dist

        if not (dist.is_available() and dist.is_initialized()):
            return [0]
        group = getattr(self.model, "process_group", None) if self.kind == "ddp" else None
        if self.kind == "zero":
            group = getattr(self.model, "data_parallel_group", None)
        with contextlib.suppress(Exception):
            return list(dist.get_process_group_ranks(group or dist.group.WORLD))
        return list(range(dist.get_world_size()))

    def _number(self):
        """The same on all ranks that compare; None as long as there is nobody to compare with."""
        if len(group := self._group()) == 1:
            return None
        ranks = ",".join(map(str, group))
        _numbers[ranks] += 1
        return f"{hashlib.sha256(ranks.encode()).hexdigest()[:16]}/{_numbers[ranks]}"

    def _store(self):
        import torch.distributed as dist

        self.name = self.name or self._number()
        return dist.PrefixStore(f"readyonce-guard/{self.name}", dist.distributed_c10d._get_default_store())

    def _post(self, record, part=""):
        content = json.dumps(record, separators=(",", ":"))
        self.bytes_sent += len(content)
        self._store().set(f"{self.step}{part}/{_rank()}", content)

    def _exchange(self, record, group, part=""):
        """Every rank's record, and the ranks that did not come in time. Asks instead of waiting: the store's lock stays free."""
        store = self._store()
        self._post(record, part)
        keys = [f"{self.step}{part}/{rank}" for rank in group]
        limit, pause = time.monotonic() + self.timeout, 0.0002
        missing = keys
        while missing and time.monotonic() < limit:
            if store.check(missing):
                missing = []
                break
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)
            if pause == 0.02 and any(store.check([key]) and b'"failed"' in store.get(key)[:12] for key in missing):
                break  # it will not come; no need to wait for the others
        missing = [key for key in missing if not store.check([key])]
        came = [key for key in keys if key not in missing]
        # At once, where the store can: of 512 ranks this is one question instead of 512.
        contents = store.multi_get(came) if store.has_extended_api() else map(store.get, came)
        records = [json.loads(content) for content in contents]
        if self.step > 1 and not part:
            with contextlib.suppress(Exception):
                store.delete_key(f"{self.step - 2}/{_rank()}")
        return records, [int(key.rpartition("/")[2]) for key in missing]

    def _judge(self, records, absent, values, group):
        """The same findings on every rank, since each judges the same records."""
        found = {}

        def add(code, names=(), detail=""):
            known, words = found.get(code, ((), ""))
            found[code] = (dict.fromkeys([*known, *names]), words or detail)

        failed = [(rank, it["failed"]) for rank, it in zip(group, records) if "failed" in it]
        for rank, error in failed:
            add("failed", (), f"rank {rank}: {error}")
        if failed:
            absent = []
        for rank in absent:
            add("absent", (), f"rank {rank}, within {self.timeout} s")
        if failed or absent:
            return self._findings(found)
        for record in records:
            for code, indices, detail in record["found"]:
                add(code, self._named(indices), detail)
        why = next((it["why"] for it in records if it["why"] != "ranks"), "ranks")
        local = {code for code in ("ranks", "unsynced") if all(it["local"] for it in records)}
        if self.local:
            local.add("drift")
            self.equal |= len({it["weights"] for it in records}) == 1
        exact = len({it["here"] for it in records}) == 1
        for key, code in {"grads": why, "weights": "drift" if self.step else "start", "buffers": "buffers"}.items():
            if len({it[key] for it in records}) > 1:
                differing, detail = self._which(key, values[key], group, exact)
                if detail:
                    add("unsynced" if key == "grads" and "unsynced" in found else code, differing, detail)
        if len(records) > 1 and len(seen := {it["inputs"] for it in records}) == 1 and seen != {None}:
            add("data", self.inputs[0][0], f"equal in {len(self.inputs)} forwards of this step")
        factors = [it["factor"] for it in records if it["factor"]]
        if len(factors) > 1 and not _alike(factors, self._noise()):
            add("clipped", (), f"factors from {min(factors):.4g} to {max(factors):.4g}")
        settings = [it["settings"] for it in records]
        if any(told != settings[0] for told in settings):
            apart = set().union(*settings).difference(set(settings[0]).intersection(*settings))
            add("settings", (), ", ".join(sorted(apart)) or "their parameter groups stand in another order")
        if all(it["empty"] for it in records):
            add("still", (), "no parameter has a gradient")
        if all(it["zeros"] for it in records):
            add("still", (), "all gradients were exactly 0 in all watched steps")
        if any(it["order"] != records[0]["order"] for it in records):
            add("order")
        moved = [it["moved"] for it in records]
        self.has_moved |= any(moved)
        if False in moved and not self.has_moved and any(self.had_gradient):
            add("still", (), f"after {self.step} of them")
        self.had_gradient = [it["gradient"] for it in records]
        self.local |= not local.isdisjoint(found)
        return self._findings(found, local)

    def _findings(self, found, local=frozenset()):
        return [
            _finding(self.inner, code, self.step, names, detail, code in local)
            for code, (names, detail) in sorted(found.items())
        ]

    def _which(self, key, values, group, exact):
        """The names of the values that differ, and how: asked only where the digests do."""
        import torch

        names, mine = list(values), torch.tensor([*values.values()], dtype=torch.float32)
        told = base64.b64encode(bytes(mine.view(torch.uint8).tolist())).decode()
        records, absent = self._exchange({"v": told}, group, f"/{key}")
        if absent:
            return [], f"rank {absent[0]} did not tell which"
        all_values = [
            torch.frombuffer(bytearray(base64.b64decode(it["v"])), dtype=torch.float32) if it["v"] else mine[:0]
            for it in records
        ]
        numbers = [len(v) for v in all_values]
        if len(set(numbers)) > 1:
            return [], f"the ranks hold different numbers of tensors: {', '.join(map(str, numbers))}"
        rows = torch.stack(all_values)
        low, high = rows.amin(0), rows.amax(0)
        same = (rows.view(torch.int32) == rows.view(torch.int32)[0]).all(0)
        if not exact:  # other hardware may add up in another order
            same |= (high - low) <= 1e-5 * high.abs()
        differing = (~same).nonzero().flatten().tolist()
        if not differing:
            return [], ""
        apart = ((high - low) / high.abs().clamp_min(1e-30))[differing]
        if (low[differing] < 0).any():
            return [names[i] for i in differing], "some ranks have no gradient"
        return [names[i] for i in differing], f"sizes differ by up to {apart.max().item():.1e}"

    def _answer(self, findings):
        known = {finding.code for finding in self.findings}
        fresh = [finding for finding in findings if finding.code not in known]
        self.findings += fresh
        if not findings or self.on_finding == "record":
            return
        sure = any(finding.sure == "sure" for finding in findings)
        if self.on_finding == "warn" or not sure:  # what could be meant stops nobody
            if _rank() == 0:
                for finding in fresh:
                    warnings.warn(f"ReadyOnce guard: {finding}", stacklevel=2)
            return
        self._finish()
        _uninstall()
        if self.stalls:
            self.stalls.leave(self)
        raise GuardError(findings)


# ------------------------------------------------------------------------------ a training that hangs

GRACE = 10  # seconds for the other ranks to write, from the first one on
PAUSE = 0.5  # seconds between two looks at a stall that was noticed
OLDEST = time.time()  # what was written before is of an earlier training
_stalls = None  # of this process


def _seconds(stall):
    """The `stall` that is given, else that of the environment."""
    given = os.environ.get(STALL) or None if stall is None else stall
    with contextlib.suppress(TypeError, ValueError):
        if given is None or 0 < float(given) < threading.TIMEOUT_MAX:
            return given and float(given)
    raise ValueError(f"stall is a number of seconds above 0, not {given!r}")


def _stalls_for(holder, seconds, folder):
    """The one of this process, until all that hold it have left."""
    global _stalls
    if _stalls is None or _stalls.over.is_set():
        _stalls = _Stalls(seconds, folder)
    _stalls.holders.append(holder)
    return _stalls


class _Stalls:
    """Notices that this rank takes no optimizer step, and writes where it stands. Asks no other rank."""

    def __init__(self, seconds, folder):
        from torch.optim.optimizer import register_optimizer_step_post_hook

        name = f"readyonce-stall-{os.environ.get('MASTER_PORT') or os.getpid()}"  # the same on all ranks
        self.seconds, self.folder = seconds, os.path.abspath(folder or name)
        self.steps, self.thread, self.trains = 0, None, 0
        self.over, self.holders, self.reports = threading.Event(), [], []
        self.handle = register_optimizer_step_post_hook(self._stepped)

    def begin(self):
        """From now on a step is expected, in this thread."""
        if self.thread is None:
            self.trains = threading.get_ident()
            self.thread = threading.Thread(target=self._watch, name="readyonce guard", daemon=True)
            self.thread.start()

    def leave(self, holder):
        self.holders = [it for it in self.holders if it is not holder]
        if not self.holders and not self.over.is_set():
            self.over.set()
            self.handle.remove()
            if self.thread:
                self.thread.join(GRACE)  # it may have to say that a stall ended

    def _stepped(self, optimizer, args, kwargs):
        self.steps += 1  # no more than this: the clock is read in the thread, and torch.compile can trace it
        if self.thread is None:
            self.begin()

    def _watch(self):
        seen, at, pause = self.steps, time.monotonic(), self.seconds / 10
        while not self.over.is_set():
            began = time.monotonic()
            self.over.wait(min(pause, PAUSE) if self.reports else pause)
            now = time.monotonic()
            if self.steps != seen or now - began > pause + max(1, self.seconds / 2):
                seen, at = self.steps, now  # a step; or all of the process was stopped (SIGSTOP), and gets its time anew
            elif now - at >= self.seconds:
                with contextlib.suppress(Exception):  # the training goes on, whatever is wrong here
                    self._stalled(seen, now - at)
            self._look()

    def _look(self):
        with contextlib.suppress(Exception):
            self.reports = [report for report in self.reports if not report.look()]

    def _stalled(self, steps, waited):
        path = None
        try:
            told = self._told(waited)
            path = self._write(told)
            if path and not getattr(_from_environment, "groups", False):
                self.reports += filter(None, [_claimed(self.folder, told["since"])])
        finally:  # one report for one stall
            while self.steps == steps and not self.over.wait(PAUSE):
                self._look()
        if self.steps == steps:
            return
        if not path:
            _print(f"the stall ended by itself: rank {told['rank']} goes on")
            return
        with contextlib.suppress(OSError):
            open(f"{path}.ended", "w").close()

    def _told(self, waited):
        import torch.distributed as dist

        number = None
        with contextlib.suppress(Exception):  # counted by this rank for itself
            number = dist.distributed_c10d._get_default_group()._get_sequence_number_for_group()
        frame = sys._current_frames().get(self.trains)
        frames = itertools.islice(traceback.walk_stack(frame), 200) if frame else ()
        stack = [(f.f_code.co_filename, line or 0, getattr(f.f_code, "co_qualname", f.f_code.co_name)) for f, line in frames]
        return {
            "rank": _rank(),
            "ranks": _ranks(),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "attempt": int(os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0),
            "since": time.time() - waited,
            "time": time.time(),
            "waited": waited,
            "steps": self.steps,
            "collectives": number,
            "stack": [(*frame, _whose(frame[0])) for frame in stack],  # the innermost first
        }

    def _write(self, told):
        """The path of the file, None where it could not be written."""
        rank = told["rank"]
        says = f"no optimizer step for {told['waited']:.0f} s, {told['steps']} done; it {_place(told['stack'])[0]}"
        part = os.path.join(self.folder, f"rank-{rank}.part")
        try:
            os.makedirs(self.folder, exist_ok=True)
            paths = (os.path.join(self.folder, f"rank-{rank}-stall-{n}.txt") for n in itertools.count(1))
            path = next(path for path in paths if not os.path.exists(path))
            with open(part, "w", encoding="utf-8") as file:
                clock = time.strftime("%Y-%m-%d %H:%M:%S")
                file.write(f"rank {rank} on {told['host']}, process {told['pid']}, {clock}: {says}\n\n")
                file.flush()
                faulthandler.dump_traceback(file, all_threads=True)
                file.write(f"\n{json.dumps(told)}\n")
            os.replace(part, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.remove(part)
            _print(f"rank {rank}: {says}; its stacks cannot be written to {self.folder}: {error.strerror}")
            return None
        return path


def _print(line):
    with contextlib.suppress(OSError, ValueError):
        print(f"readyonce guard: {line}", file=sys.stderr, flush=True)


def _whose(file):
    """Whose code a file is: "torch", "python", "guard", of another "package", or the training's "own"."""
    import torch

    if file == _whose.__code__.co_filename:
        return "guard"
    if file.startswith(os.path.dirname(torch.__file__) + os.sep):
        return "torch"
    if f"{os.sep}site-packages{os.sep}" in file or f"{os.sep}dist-packages{os.sep}" in file:
        return "package"
    libraries = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))
    return "python" if file.startswith(("<frozen ", *libraries)) else "own"


def _named_frame(frame):
    file, line, name, whose = frame
    if whose == "package":
        file = file.replace("dist-packages", "site-packages").rpartition(f"site-packages{os.sep}")[2]
    elif file.startswith(os.getcwd() + os.sep):
        file = os.path.relpath(file)
    return f"{file}:{line}" + (f" in {name}" if name != "<module>" else "")


def _place(stack):
    """Where a stack stands: in words, and its frames outside of torch and of Python's library, the innermost first."""
    ours = [frame for frame in stack if frame[3] in ("own", "package")]
    if not ours:
        return "stands nowhere in Python code of the training", []
    inside = list(itertools.takewhile(lambda frame: frame[3] not in ("own", "package"), stack))
    # What is called there, the outermost first: the name that the training knows it by.
    called = [frame for frame in reversed(inside) if frame[3] != "guard" and "<locals>" not in frame[2]]
    public = [frame for frame in called if not re.search(r"(^|\.)_(?!_)[^.]*$", frame[2])]
    collectives = ("distributed_c10d.py", "_functional_collectives.py")
    collective = next((frame for frame in public if os.path.basename(frame[0]) in collectives), None)
    inner = collective or next(iter(public or called), None)
    words = f"{'waits' if collective else 'stands'} in `{inner[2]}` at " if inner else "stands at "
    words += _named_frame(ours[0])
    own = next((frame for frame in ours if frame[3] == "own"), ours[0])
    return words + (f" (from {_named_frame(own)})" if own is not ours[0] else ""), ours


def _ranges(numbers):
    """3, 0, 1 -> "0-1, 3"."""
    parts = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(f"{low}-{high}" if low < high else f"{low}" for low, high in parts)


def _which_ranks(ranks):
    return f"rank{'s' * (len(ranks) > 1)} {_ranges(ranks)}"


def _grouped(written, folder):
    """What the ranks of one stall wrote, as one report: who stands where, and where they part."""
    groups = {}
    for told in sorted(written, key=lambda told: told["rank"]):
        words, stack = _place(told["stack"])
        # Ranks at the same place that have begun other numbers of collectives wait for different ones.
        ranks, _ = groups.setdefault((words, told["steps"], told["collectives"]), ([], stack[::-1]))
        ranks.append(told["rank"])
    lines = [f"no optimizer step for {min(told['waited'] for told in written):.0f} s; training is left as it is"]
    for (words, steps, collectives), (ranks, _) in groups.items():
        if len(ranks) > 1:
            words = words.replace("s ", " ", 1)  # they wait, they stand
        counts = f"{steps} steps done" + ("" if collectives is None else f", {collectives} collectives begun")
        lines.append(f"{_which_ranks(ranks)} {words}; {counts}")
    if silent := set(range(max(told["ranks"] for told in written))) - {told["rank"] for told in written}:
        lines.append(f"{_which_ranks(silent)} wrote nothing here: ended, stopped, still at work, or on another host")
    depth = 0  # of the frames that all have in common, the outermost first
    for level in zip(*(stack for _, stack in groups.values())):
        if any(frame != level[0] for frame in level):
            break
        depth += 1
    parted = [(words, ranks, _named_frame(stack[depth])) for (words, *_), (ranks, stack) in groups.items() if stack[depth:]]
    if any(frame not in words for words, _, frame in parted):
        lines.append("they part at " + ", ".join(f"{frame} ({_which_ranks(ranks)})" for _, ranks, frame in parted))
    lines += [f"the stacks of all threads: {folder}", f"more: {_page('guard/#hangs', 'Guard your training')}"]
    return "\n  ".join(lines)


def _claimed(folder, since):
    """The report of the stall that began then, for the one process that asks first; None for all others."""
    for number in itertools.count(1):
        path = os.path.join(folder, f"report-{number}.txt")
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            return _Report(folder, path, since)
        except FileExistsError:
            with contextlib.suppress(OSError):
                if os.path.getmtime(path) >= since:
                    return None
        except OSError:
            return None


class _Report:
    def __init__(self, folder, path, since):
        self.folder, self.path, self.since = folder, path, since
        self.due, self.said, self.read = time.monotonic() + GRACE, [], {}

    def look(self, last=False):
        """Say it once the ranks have written, or have had their time; and once that it has ended: then it is over."""
        if not self.said:
            told = self._written()
            whole = told and len(told) >= max(it["ranks"] for it in told.values())
            if not told or not (whole or last or time.monotonic() > self.due):
                return False
            self._say(_grouped(told.values(), self.folder))
            self.said = list(told)
        if not all(os.path.exists(f"{path}.ended") for path in self.said):
            return False
        ranks = _which_ranks([self.read[path]["rank"] for path in self.said])
        self._say(f"the stall ended by itself: {ranks} took a step again")
        return True

    def _say(self, text):
        _print(text)
        with contextlib.suppress(OSError), open(self.path, "a", encoding="utf-8") as file:
            file.write(f"{text}\n")

    def _written(self):
        """path -> what a rank wrote: of each rank the last, of this stall or of one that lasts."""
        self.read |= {path: told for path, told in _files(self.folder, self.read) if told["time"] >= OLDEST}
        attempt = max((told["attempt"] for told in self.read.values()), default=0)
        latest = {}
        for path, told in sorted(self.read.items(), key=lambda item: item[1]["time"]):
            if told["attempt"] == attempt and (told["time"] >= self.since or not os.path.exists(f"{path}.ended")):
                latest[told["rank"]] = path
        return {path: self.read[path] for path in latest.values()}


def _files(folder, known=()):
    """What ranks wrote into the folder, but for the paths that are known."""
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if re.fullmatch(r"rank-\d+-stall-\d+\.txt", name) and path not in known:
                with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
                    yield path, json.loads(file.read().rstrip().rpartition("\n")[2])


class _Grouping:
    """In the process of the command: says what the ranks write, while the command runs."""

    def __init__(self, folder):
        self.folder, self.seen, self.reports, self.over = folder, set(), [], threading.Event()
        self.thread = threading.Thread(target=self._watch, name="readyonce guard", daemon=True)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, kind, error, traceback):
        self.over.set()
        self.thread.join(GRACE)
        self._look(last=True)

    def _watch(self):
        while not self.over.wait(PAUSE):
            self._look()

    def _look(self, last=False):
        with contextlib.suppress(Exception):  # the command goes on, and its exit code stays
            for path, told in _files(self.folder, self.seen):
                self.seen.add(path)
                if told["time"] >= OLDEST:
                    self.reports += filter(None, [_claimed(self.folder, told["since"])])
            self.reports = [report for report in self.reports if not report.look(last)]


# ------------------------------------------------------------------------------ how a model is trained


def _inner(model):
    inner = getattr(model, "_orig_mod", model)
    kind = _strategy(model)[0]
    return inner.module if kind in ("ddp", "zero") else inner


def _strategy(model):
    model = getattr(model, "_orig_mod", model)
    names = {base.__name__ for base in type(model).__mro__}
    if "DistributedDataParallel" in names:
        return "ddp", 0
    if "DeepSpeedEngine" in names:
        return "zero", int(model.zero_optimization_stage())
    for module in model.modules():
        bases = {base.__name__ for base in type(module).__mro__}
        if "FullyShardedDataParallel" in bases:
            return "fsdp1", 0
        if "FSDPModule" in bases:
            return "fsdp2", 0
    return "plain", 0


def _synchronises(model, kind):
    """Whether the backward of a forward that begins now averages gradients."""
    if kind == "ddp":
        return bool(model.require_backward_grad_sync)
    if kind == "zero":
        coalesced = getattr(getattr(model, "optimizer", None), "_coalesce_grad_reduction", False)  # reduced on leaving it
        return coalesced or not getattr(model, "inside_no_sync_ctxt", False)
    modules = list(model.modules()) if kind in ("fsdp1", "fsdp2") else []
    if kind == "fsdp1":
        return all(getattr(m, "_sync_gradients", True) for m in modules)
    for module in modules:
        state = getattr(module, "_get_fsdp_state", None)
        groups = [getattr(state(), "_fsdp_param_group", None)] if state else []
        if any(group is not None and not group.reduce_grads for group in groups):
            return False
    return True


def _managed(model, kind):
    """The ids of the parameters that FSDP shards."""
    managed = set()
    if kind == "fsdp2":
        managed = {id(p) for p in model.parameters() if hasattr(p, "placements")}
    if kind == "fsdp1":
        for module in model.modules():
            flat = getattr(getattr(module, "_handle", None), "flat_param", None)
            if flat is not None:
                managed |= {id(flat), *(id(p) for p in getattr(flat, "_params", None) or ())}
    return managed


def _has_flat_gradients(engine, stage):
    """Whether DeepSpeed gives its optimizer tensors of its own: under ZeRO, and for weights of 16 bits also without it."""
    return stage > 0 or any(name.startswith("fp32_groups") for name in vars(getattr(engine, "optimizer", None) or object))


def _is_inside(optimizer, engine):
    """Whether DeepSpeed's engine steps this optimizer."""
    held = getattr(engine, "optimizer", None)
    for _ in range(5):
        if held is optimizer:
            return True
        held = getattr(held, "optimizer", None)
    return getattr(engine, "basic_optimizer", None) is optimizer


def _deepspeed():
    """The release of DeepSpeed, as numbers."""
    import deepspeed

    return tuple(map(int, re.findall(r"\d+", deepspeed.__version__)[:3]))


def _base_rate(group):
    """The learning rate that a warm-up leads to, where a scheduler has left it there; else the one of now."""
    return max(float(group.get("lr", 1)), float(group.get("initial_lr", 0)))


def _keeps_what_is_lost(optimizer):
    """Whether an optimizer keeps float32 weights of its own, or makes up for what is rounded away."""
    states = next(iter(getattr(optimizer, "state", {}).values()), {})
    told = {**vars(optimizer), **(states if isinstance(states, dict) else {})}
    names = [str(name) for name, value in told.items() if value is not None and value is not False]
    return any(re.search(r"master|kahan|stochastic|compensat|shift|fp32", name) for name in names)


def _frozen(model):
    """The largest modules, and the parameters beside them, of which nothing is trained."""

    def inside(module, path):
        if not any(p.requires_grad for p in module.parameters()):
            return [path] if any(True for _ in module.parameters()) else []
        own = [f"{path}.{n}".lstrip(".") for n, p in module.named_parameters(recurse=False) if not p.requires_grad]
        return own + [name for n, child in module.named_children() for name in inside(child, f"{path}.{n}".lstrip("."))]

    return inside(model, "")


def _flattened(nested):
    for item in nested:
        yield from _flattened(item) if isinstance(item, (list, tuple)) else (item,)


def _register_first(p, hook):
    """Before the hooks that are there: DeepSpeed's raises at the second piece, which must be counted by then."""
    handle = p.register_post_accumulate_grad_hook(hook)
    hooks = p._post_accumulate_grad_hooks
    for key in [key for key in hooks if key != handle.id]:
        hooks[key] = hooks.pop(key)
    return handle


def _local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _part(p):
    """Some elements of what this rank holds of a parameter."""
    held = getattr(p, "ds_tensor", None)
    return _local((p if held is None else held).detach()).flatten()[:ELEMENTS]


def _differ(copy, weights):
    """Whether a copy in another type is of other numbers: up to 65,536 of them are compared."""
    number = min(copy.numel(), weights.numel())
    chosen = slice(0, number, number // 65536 or 1)
    copy, weights = copy.detach().flatten()[chosen].float(), weights.detach().flatten()[chosen].to(copy.device).float()
    return (copy - weights).norm().item() > 0.01 * max(copy.norm().item(), weights.norm().item())  # a rounding is 0.004


def _alike(numbers, noise):
    return all(map(math.isfinite, numbers)) and max(numbers) <= min(numbers) * (1 + noise)


def _norms(tensors, integers=False, order=2):
    """The size of each tensor, in one pass over the memory and one transfer; integers are 0 unless asked for."""
    return _sized(tensors, integers, order)()


def _sized(tensors, integers=False, order=2):
    """The same, computed now and read when it is called: reading waits for the GPU."""
    import torch

    whole = [_local(t.detach()) for t in tensors]
    whole = [t.coalesce().values() if t.is_sparse else t for t in whole]
    by_kind, sizes_of, number = {}, [], len(whole)
    for i, t in enumerate(whole):
        if (integers or t.is_floating_point()) and t.numel():
            by_kind.setdefault((t.device, t.dtype), []).append(i)
    for (_, dtype), members in by_kind.items():
        chosen = [whole[i] for i in members]
        exact = dtype == torch.float64 or dtype == torch.float32 or order != 2  # the largest element is not rounded
        sizes = torch._foreach_norm(chosen, order) if exact else [_norm_as_float(t) for t in chosen]
        sizes_of.append((members, torch.stack(sizes).to(torch.float32)))

    def read():
        found = [0.0] * number
        for members, sizes in sizes_of:
            for i, size in zip(members, sizes.tolist()):
                found[i] = size
        return found

    return read


def _norm_as_float(t):
    """In its own type the norm would be rounded. Only a GPU converts while it adds up: elsewhere pieces are copied."""
    import torch

    if t.is_floating_point() and t.device.type != "cpu":
        return torch.linalg.vector_norm(t, dtype=torch.float32)
    return torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(part.float()) for part in _pieces(t)]))


def _pieces(t):
    if t.numel() <= PIECE:
        yield t
    else:
        for half in t.chunk(2, dim=max(range(t.ndim), key=t.shape.__getitem__)):
            yield from _pieces(half)


def _digest(values):
    import struct

    return hashlib.blake2b(struct.pack(f"{len(values)}f", *values), digest_size=8).hexdigest()


def _settings(optimizer, kind):
    """What the ranks must agree on: the numbers of each parameter group. Shards may differ in how many there are."""

    def told(group):
        return sorted((k, v) for k, v in group.items() if isinstance(v, (int, float, bool, tuple, list)) and k != "params")

    groups = [f"{key}={value}" for group in optimizer.param_groups for key, value in told(group)]
    return [type(optimizer).__name__, *dict.fromkeys(groups)]


def _fingerprint(params):
    import torch

    device = params[0].device if params else torch.device("cpu")
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device.type} {torch.get_num_threads()}"
    return f"{torch.__version__} {name} {torch.backends.cpu.get_cpu_capability()}"


def _rank():
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    told = os.environ.get("RANK", "")  # before there is a process group, and after it
    return int(told) if told.isdecimal() else 0


def _ranks():
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size()
    told = os.environ.get("WORLD_SIZE", "")
    return int(told) if told.isdecimal() else 1


def _placements(p):
    return {type(it).__name__ for it in getattr(p, "placements", ())}


def _mesh_dims(p):
    return getattr(getattr(p, "device_mesh", None), "ndim", 1)


def _mesh_names(p):
    return getattr(getattr(p, "device_mesh", None), "mesh_dim_names", None) or ()


def _compiled_autograd():
    dynamo = sys.modules.get("torch._dynamo")  # not imported: nothing can have switched it on
    compiled = sys.modules.get("torch._dynamo.compiled_autograd")
    return bool(
        dynamo and getattr(dynamo.config, "compiled_autograd", False) or getattr(compiled, "compiled_autograd_enabled", False)
    )


# ------------------------------------------------------------------------------ the same micro-batch again

# How far a right gradient may be from the replayed one, as a share of the parameter's largest value. bench/noise.py
# measures it with two ranks, on CPU and on a GPU: 0 for float32, TF32 and bfloat16 autocast, 0.004 for bfloat16 weights,
# while the wrong ones are off by 0.27 and more. More ranks add up in another order: 1e-5, and five roundings of bfloat16 and
# of TF32. For what was not measured, float16, name a limit.
LIMITS = {"float32": 1e-5, "bfloat16": 2e-2, "tf32": 5e-3}


@dataclass(frozen=True)
class Replay:
    difference: float  # of the worst parameter: max|gradient - replayed| / max|replayed|
    parameter: str
    noise: float  # the same between two replays
    limit: float
    differing: tuple[str, ...] = field(default=())


def replay(model, closure, limit=None, on_finding="raise"):
    """Compute the gradients once more, in one plain backward each rank, and compare.

    Call it after the backward and before the optimizer's step, on all ranks. `closure(module)` computes the loss of the
    same micro-batch with the inner model (of all micro-batches of the step, added up and scaled as you do, where there
    are several). Reentrant checkpointing is off meanwhile. Dropout must be off: two replays that differ are an error.
    """
    import torch
    import torch.distributed as dist

    kind, stage = _strategy(model)
    if kind in ("fsdp1", "fsdp2"):
        raise NotImplementedError("replay is not covered for FSDP: no rank can compute a whole gradient alone")
    inner = _inner(model)
    named = [(n, p) for n, p in inner.named_parameters() if p.requires_grad]
    params = [p for _, p in named]

    def gradients():
        with _without_reentrant(), torch.enable_grad():
            grads = torch.autograd.grad(closure(inner), params, allow_unused=True)
        grads = [torch.zeros_like(p) if g is None else g.detach().float() for g, p in zip(grads, params)]
        if dist.is_initialized() and dist.get_world_size() > 1:
            for g in grads:
                dist.all_reduce(g)
                g /= dist.get_world_size()
        return grads

    if kind == "zero":
        import deepspeed
        from deepspeed.utils import safe_get_full_grad

        actual = [safe_get_full_grad(p) for p in params]
        with deepspeed.zero.GatheredParameters(params, enabled=stage == 3):
            first, second = gradients(), gradients()
    else:
        actual = [p.grad for p in params]
        first, second = gradients(), gradients()
    actual = [torch.zeros_like(a) if g is None else g.float() for g, a in zip(actual, first)]

    def apart(some, others):
        return [((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item() for a, b in zip(some, others)]

    noise, differences = max(apart(second, first), default=0.0), apart(actual, first)
    if limit is None:
        kinds = {str(p.dtype).removeprefix("torch.") for p in params}
        if torch.is_autocast_enabled(params[0].device.type):
            kinds.add(str(torch.get_autocast_dtype(params[0].device.type)).removeprefix("torch."))
        if params[0].is_cuda and torch.backends.cuda.matmul.allow_tf32:
            kinds.add("tf32")
        if unknown := kinds - set(LIMITS) - {"float64"}:
            raise ValueError(f"the noise of {', '.join(sorted(unknown))} is not known: name a limit")
        limit = max(LIMITS.get(kind, LIMITS["float32"]) for kind in kinds)
    if noise > limit:
        raise ValueError(f"two replays differ by {noise:.1e}: switch dropout off, and let the closure repeat itself")
    worst = max(range(len(params)), key=differences.__getitem__)
    differing = tuple(n for (n, _), d in zip(named, differences) if not d <= limit)
    result = Replay(differences[worst], named[worst][0], noise, limit, differing)
    if differing and on_finding == "raise":
        detail = f"off by {result.difference:.1e}, two right backwards by {noise:.1e}, limit {limit:.1e}"
        raise GuardError([_finding(inner, "replay", 0, differing, detail)])
    return result


@contextlib.contextmanager
def _without_reentrant():
    """Reentrant checkpointing calls the function straight, however `checkpoint` was imported."""
    from torch.utils import checkpoint as module

    class Straight:
        @staticmethod
        def apply(function, preserve_rng_state, *args):
            return function(*args)

    original = module.CheckpointFunction
    module.CheckpointFunction = Straight
    try:
        yield
    finally:
        module.CheckpointFunction = original


# ------------------------------------------------------------------------------ frameworks


def callback(trainer, steps=3, on_finding="raise", timeout=120, stall=None):
    """For transformers' Trainer and its children: `trainer.add_callback(callback(trainer))`.

    The Trainer tells its callbacks of no error, so its `train` is called through ours, which takes the hooks off.
    """
    from transformers import TrainerCallback

    class GuardCallback(TrainerCallback):
        guard = None

        def on_train_begin(self, args, state, control, **_):
            self.remove()  # a first attempt with a larger batch, say
            self.guard = watch(trainer.model_wrapped, steps, on_finding, timeout, stall=stall)

        def on_train_end(self, args, state, control, **_):
            self.remove()

        def remove(self):
            if self.guard:
                self.guard.remove()

    watching, train = GuardCallback(), trainer.train

    @functools.wraps(train)
    def watched(*args, **kwargs):
        try:
            return train(*args, **kwargs)
        finally:
            watching.remove()

    trainer.train = watched
    return watching


def lightning_callback(steps=3, on_finding="raise", timeout=120, stall=None):
    """For Lightning: `Trainer(callbacks=[lightning_callback()])`."""
    try:
        from lightning.pytorch.callbacks import Callback
    except ImportError:
        from pytorch_lightning.callbacks import Callback

    class GuardCallback(Callback):
        guard = None

        def on_train_start(self, trainer, pl_module):
            self.guard = watch(trainer.strategy.model, steps, on_finding, timeout, stall=stall)

        def on_train_end(self, trainer, pl_module):
            if self.guard:
                self.guard.remove()

        def on_exception(self, trainer, pl_module, exception):
            self.on_train_end(trainer, pl_module)

    return GuardCallback()


@contextlib.contextmanager
def automatic(steps=3, on_finding="raise", timeout=120, name=None, stall=None, stall_folder=None):
    """Watch each wrapped model from its first forward on. Yields the list of its guards.

    A stall is counted from the first wrapping by DDP, the first forward or the first step, whatever comes first.
    """
    global _automatic
    import torch
    from torch.nn.modules.module import register_module_forward_pre_hook
    from torch.nn.parallel import DistributedDataParallel
    from torch.optim.optimizer import register_optimizer_step_post_hook

    guards, seen, counter, told = [], weakref.WeakSet(), itertools.count(), []
    wrapper_of = weakref.WeakKeyDictionary()  # a module inside DDP -> a weak reference to the wrapper
    original = DistributedDataParallel.__init__
    seconds = _seconds(stall)
    stalls = _stalls_for(guards, seconds, stall_folder) if seconds else None

    @functools.wraps(original)
    def remembered(self, *args, **kwargs):
        if stalls:
            stalls.begin()
        original(self, *args, **kwargs)
        inside = list(self.module.modules())
        wrapper_of.update(dict.fromkeys(inside, weakref.ref(self)))
        seen.difference_update(inside)  # what was called before it was wrapped

    def before_forward(module, _):
        # Of what torch.compile made one graph, only the call from outside is looked at.
        if torch.compiler.is_compiling() or module in seen or not torch.is_grad_enabled():
            return
        if _ranks() > 1:
            _mark("ranks")
        # The outermost module comes first: where it is inside a wrapper, that one was bypassed.
        outer = wrapper_of.get(module, lambda: None)() or module
        if _strategy(outer)[0] == "plain":
            seen.add(module)  # it may hold a wrapper, so what is inside is looked at when it is called
            return
        seen.update(outer.modules())
        if any(p.requires_grad for p in outer.parameters()):
            if stalls:
                stalls.begin()
            guards.append(watch(outer, steps, on_finding, timeout, name and f"{name}/{next(counter)}"))
            _mark("model")
            if outer is module and guards[-1].model is module:
                guards[-1]._called()  # this forward runs already

    def after_step(optimizer, args, kwargs):
        if guards or told or all(p.grad is None for group in optimizer.param_groups for p in group["params"]):
            return
        if (ranks := _ranks()) > 1:
            _mark("ranks")
            told.append(f"{ranks} ranks, and no model was called under DDP, DeepSpeed or FSDP before this optimizer step")
        else:
            _mark("alone")
            told.append("one process, and no model under DDP, DeepSpeed or FSDP: there are no ranks to compare")
        if on_finding != "record" and _rank() == 0:
            print(f"readyonce guard: {told[0]}; nothing is watched so far", file=sys.stderr, flush=True)

    handles = [register_module_forward_pre_hook(before_forward), register_optimizer_step_post_hook(after_step)]
    DistributedDataParallel.__init__ = remembered
    _automatic += 1
    _install()  # a model that is first called inside optimizer.step(closure) is watched in that step
    try:
        yield guards
    finally:
        for handle in handles:
            handle.remove()
        DistributedDataParallel.__init__ = original
        for guard in guards:
            guard.remove()
        if stalls:
            stalls.leave(guards)
        _automatic -= 1
        _uninstall()


class _AfterTorch:
    """Watches for the import of torch, so that a process that needs none stays quick."""

    def __init__(self, then):
        self.then = then

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        # Some only ask whether there is a torch, and import it later: stay until it is loaded.
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            load = spec.loader.exec_module

            def exec_module(module):
                with contextlib.suppress(ValueError):
                    sys.meta_path.remove(self)
                load(module)
                self.then()

            spec.loader.exec_module = exec_module
        return spec


def _from_environment():
    """Called by the sitecustomize of `main`, in every Python that the command starts."""
    settings = json.loads(os.environ[SETTINGS])
    kept = contextlib.ExitStack()
    atexit.register(kept.close)
    _from_environment.kept = kept  # until the process ends
    _from_environment.groups = bool(settings["stall"])  # what ranks write of a stall, `main` says
    _mark("python")

    def then():
        _mark("torch")
        kept.enter_context(automatic(**settings))

    sys.meta_path.insert(0, _AfterTorch(then))


def _mark(name):
    """Leave word for `main` of how far the guard came, in the folder that it made for this copy of the file."""
    if hasattr(_from_environment, "kept"):
        with contextlib.suppress(OSError):
            open(os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.mark"), "w").close()


MARKS = ("python", "torch", "alone", "ranks", "model", "step")  # how far the guard came
# What `main` says where no optimizer step was watched: the furthest mark -> why
UNSEEN = {
    None: "no Python of this command took the guard (a container, another machine, `python -I`, `-E` or `-S`?)",
    "python": "no Python of this command imported torch",
    "torch": "no optimizer stepped in a Python that took the guard (a container, another machine, `python -I`, `-E` or `-S`?)",
    "alone": "no training on several ranks was seen, and no model under DDP, DeepSpeed or FSDP",
    "ranks": "there were several ranks, and no model was called under DDP, DeepSpeed or FSDP; "
    "a model that you average yourself needs `watch(model)`",
    "model": "a model was called under DDP, DeepSpeed or FSDP, and no optimizer stepped on it",
}
# Exit code: the command ended with 0, and no optimizer step was watched. Where one process trained without a wrapper, it stays 0.
UNWATCHED = 90
# Whoever runs a training asks it by these to end, to save or to go on; SIGKILL and SIGSTOP cannot be passed on.
PASSED_ON = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGCONT")


CUSTOMIZE = """\
import importlib.machinery, importlib.util, os, sys
here = os.path.dirname(os.path.abspath(__file__))
others = [place for place in sys.path if os.path.abspath(place) != here]
spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
if spec:  # the one that we stand in front of
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
import readyonce_guard
readyonce_guard._from_environment()
"""


def _run(command, environment):
    """Run a command to its end, and pass on to it the signals that this process gets. Its exit code, as a shell tells it."""
    process, early = None, []

    def pass_on(number, _):
        if process is None:
            early.append(number)
        elif signal.Signals(number).name not in ("SIGINT", "SIGQUIT") or not _in_foreground():
            process.send_signal(number)

    for name in PASSED_ON:
        number = getattr(signal, name, None)
        if number and signal.getsignal(number) != signal.SIG_IGN:  # nohup has the command ignore it too
            signal.signal(number, pass_on)
    process = subprocess.Popen(command, env=environment)
    for number in early:
        process.send_signal(number)
    code = process.wait()
    return 128 - code if code < 0 else code


def _in_foreground():
    """Whether a terminal sends what is typed there (Ctrl-C) to the command as well."""
    try:
        with open("/dev/tty") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m readyonce_guard",
        description="Run a training command; stop it before its first step on wrong gradients.",
        epilog=f"Signals are passed on to the command; SIGINT and SIGQUIT are not in the foreground of a terminal, which sends "
        f"them to the command too. The exit code is the command's, 128 + n where signal n ended it; "
        f"{UNWATCHED} where the command ended with 0 and no optimizer step was watched, unless it trained with one process.",
    )
    parser.add_argument("--steps", type=int, default=3, help="optimizer steps to watch (default 3)")
    parser.add_argument("--warn", action="store_true", help="say what is found, and go on")
    parser.add_argument("--timeout", type=float, default=120, help="seconds to wait for a rank (default 120)")
    parser.add_argument(
        "--stall",
        type=float,
        default=os.environ.get(STALL) or None,
        metavar="SECONDS",
        help="where no optimizer step is taken for so long, write and say where each rank stands, and go on "
        f"(default: the environment's {STALL}, else off)",
    )
    parser.add_argument("--stall-folder", metavar="FOLDER", help="where to write it (default readyonce-stall-TIME-PROCESS)")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    options = parser.parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if options.steps < 1:
        parser.error(f"--steps is at least 1, not {options.steps}")
    if not 0 < options.timeout < float("inf"):
        parser.error(f"--timeout is a number of seconds above 0, not {options.timeout:g}")
    if options.stall is not None and not 0 < options.stall < threading.TIMEOUT_MAX:
        parser.error(f"--stall is a number of seconds above 0, not {options.stall:g}")
    if not command:
        parser.error("name the command to run: python -m readyonce_guard -- torchrun train.py")
    if command[0].endswith(".py") and " " not in command[0] and not os.access(command[0], os.X_OK):
        parser.error(f"name the program that runs {command[0]}: python -m readyonce_guard -- python {command[0]}")
    on_finding = "warn" if options.warn else "raise"
    settings = {"steps": options.steps, "on_finding": on_finding, "timeout": options.timeout, "stall": options.stall}
    stall_folder = options.stall_folder or f"readyonce-stall-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    settings["stall_folder"] = os.path.abspath(stall_folder)
    grouping = _Grouping(settings["stall_folder"]) if options.stall else contextlib.nullcontext()
    with tempfile.TemporaryDirectory(prefix="readyonce-guard-") as folder:
        with open(os.path.join(folder, "sitecustomize.py"), "w", encoding="utf-8") as file:
            file.write(CUSTOMIZE)
        with open(__file__, encoding="utf-8") as ours:
            with open(os.path.join(folder, "readyonce_guard.py"), "w", encoding="utf-8") as file:
                file.write(ours.read())
        path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path, SETTINGS: json.dumps(settings)}
        try:
            with grouping:
                code = _run(command, environment)
        except FileNotFoundError:
            one = "; name its words one by one, not in one pair of quotes" if " " in command[0] else ""
            parser.error(f"no such command: {command[0]}{one}")
        except OSError as error:
            parser.error(f"{command[0]} cannot be run: {error.strerror}")
        marks = [it for it in MARKS if os.path.exists(os.path.join(folder, f"{it}.mark"))]
    if "step" in marks:
        return code
    furthest = marks[-1] if marks else None
    print(f"readyonce guard: nothing was watched: {UNSEEN[furthest]}", file=sys.stderr, flush=True)
    return code or (0 if furthest == "alone" else UNWATCHED)


if __name__ == "__main__":
    sys.exit(main())
