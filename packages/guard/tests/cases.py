"""What the guard answers to bad input; two ranks, all in one launch: `torchrun --nproc-per-node 2 cases.py results.jsonl`."""

import contextlib
import io
import json
import os
import sys
import threading
import traceback
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

os.environ.setdefault("ACCELERATE_USE_CPU", "true")
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import readyonce_guard
from readyonce_guard import GuardError, replay, watch

from support.patience import PATIENCE

ALONE, TOGETHER = {}, {}  # before there is a process group, and with two ranks
WIDTH = 8
ABSENT = 1  # second after which a rank that never comes is told
FOR_EVER = 24 * 3600  # seconds: who waits so long ends at the limit of the launch


def alone(function):
    ALONE[function.__name__] = function


def together(function):
    TOGETHER[function.__name__] = function


class Net(nn.Module):
    def __init__(self, reentrant=False, repeats=2):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)
        self.reentrant, self.repeats = reentrant, repeats

    def forward(self, x):
        x = x.requires_grad_()
        for _ in range(self.repeats):
            x = x + checkpoint(self.linear, x, use_reentrant=self.reentrant)
        return self.head(x)


def rank():
    return dist.get_rank() if dist.is_initialized() else 0


def inputs():
    torch.manual_seed(1 + rank())
    return torch.randn(4, WIDTH)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def train(model, optimizer, steps=4):
    for _ in range(steps):
        (model(inputs()) - 1).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def nothing_left(model):
    from torch.optim import optimizer

    hooks = [
        optimizer._global_optimizer_pre_hooks,
        optimizer._global_optimizer_post_hooks,
        *(m._forward_pre_hooks for m in model.modules()),
    ]
    hooks += [p._post_accumulate_grad_hooks or {} for p in model.parameters()]
    assert "readyonce_guard" not in {hook.__module__ for known in hooks for hook in known.values()}
    assert not hasattr(torch.autograd.backward, "__wrapped__")
    assert not readyonce_guard._guards and not readyonce_guard._handles


def quiet(**settings):
    return {"on_finding": "record", "timeout": 2, **settings}


# ------------------------------------------------------------------------------ without a process group


@alone
def no_process_group():
    model = Net()
    guard = watch(model)
    assert "one process, there is nothing to compare" in guard.lines[0]
    train(model, sgd(model))
    assert guard.done and not guard.findings
    nothing_left(model)


@alone
def attached_twice():
    model = Net()
    with watch(model) as guard:
        assert watch(model) is guard and "already watched" in guard.lines[-1]
        assert all(len(p._post_accumulate_grad_hooks) == 1 for p in model.parameters())
    nothing_left(model)


@alone
def left_when_the_block_ends():
    model = Net()
    with contextlib.suppress(KeyError), watch(model):
        raise KeyError
    nothing_left(model)


@alone
def several_threads():
    models = [Net(), Net()]
    guards = [watch(model, **quiet()) for model in models]
    threads = [threading.Thread(target=train, args=(model, sgd(model))) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(guard.done and not guard.findings for guard in guards)
    models[0](inputs()).sum().backward()
    nothing_left(models[0])


@alone
def two_backwards_at_once_are_not_judged():
    model, gate, entered = Net(), threading.Event(), threading.Event()
    guard = watch(model, **quiet())

    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(_, x):
            return x * 1

        @staticmethod
        def backward(_, g):
            entered.set()
            gate.wait(PATIENCE)
            return g

    def other():
        Slow.apply(torch.ones(1, requires_grad=True)).sum().backward()

    thread = threading.Thread(target=other)
    thread.start()
    entered.wait(PATIENCE)
    model(inputs()).sum().backward()
    gate.set()
    thread.join()
    assert any("two threads" in line for line in guard.lines), guard.lines
    guard.remove()
    nothing_left(model)


@alone
def gradients_without_backward():
    model = Net()
    guard, optimizer = watch(model, **quiet()), sgd(model)
    grads = torch.autograd.grad(model(inputs()).sum(), list(model.parameters()))
    for p, g in zip(model.parameters(), grads):
        p.grad = g
    optimizer.step()
    assert any("without torch.autograd.backward" in line for line in guard.lines)
    guard.remove()


@alone
def nothing_trainable():
    assert "no trainable parameter" in watch(Net().requires_grad_(False), **quiet()).lines[0]
    readyonce_guard._guards[-1].remove()


@alone
def wrong_arguments():
    for settings in ({"steps": 0}, {"on_finding": "shout"}):
        with contextlib.suppress(ValueError):
            watch(Net(), **settings)
            raise AssertionError(settings)
    assert not readyonce_guard._guards


@alone
def somebody_else_patched_on_top():
    model = Net()
    guard = watch(model, **quiet())
    ours = torch.autograd.backward

    def theirs(*args, **kwargs):
        return ours(*args, **kwargs)

    torch.autograd.backward = theirs
    guard.remove()
    assert torch.autograd.backward is theirs  # what they did is not undone
    train(model, sgd(model), 1)  # and it still works
    with watch(model, **quiet(steps=1)) as again:
        train(model, sgd(model), 2)
    assert again.step == 1
    torch.autograd.backward = readyonce_guard._backward
    readyonce_guard._backward = None
    nothing_left(model)


@alone
def an_error_in_the_step_and_training_goes_on():
    model = Net()
    guard, optimizer = watch(model, **quiet()), sgd(model)
    for attempt in range(5):
        with contextlib.suppress(RuntimeError):
            out = model(inputs())
            if attempt == 1:
                out.register_hook(lambda _: (_ for _ in ()).throw(RuntimeError("out of memory")))
            out.square().mean().backward()
            optimizer.step()
        optimizer.zero_grad()
    assert guard.done and not guard.findings, guard.findings
    assert "none of them twice" in guard.notes[0]


# ------------------------------------------------------------------------------ two ranks


@together
def all_ranks_stop_before_anything_moves():
    model = Net(reentrant=True)
    before = [p.clone() for p in model.parameters()]
    ddp = DDP(model)
    watch(ddp)
    try:
        train(ddp, sgd(model))
        raise AssertionError("not stopped")
    except GuardError as error:
        text = str(error)
        assert {f.code for f in error.findings} == {"ranks", "twice"}
    parts = ("before optimizer step 1", "parameters: linear.weight", "modules: linear (Linear)", "2 pieces")
    for part in (*parts, "how sure: sure", "guard/#twice"):
        assert part in text, text
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before))
    nothing_left(ddp)


class Buffered(Net):
    def __init__(self):
        super().__init__()
        self.scale = nn.Module()
        self.scale.register_buffer("mean", torch.zeros(1))
        self.scale.register_buffer("spread", torch.ones(1))


@together
def a_finding_names_what_differs_and_where():
    """What only rank 1 has otherwise, before training or after its first step."""

    def start(model):
        model.linear.bias.data += rank()

    def buffers(model):
        model.scale.spread += rank()

    def frozen(model):
        model.linear.weight.data += rank()

    for change, code, name, module in (
        (start, "start", "linear.bias", "linear (Linear)"),
        (frozen, "start", "linear.weight", "linear (Linear)"),
        (buffers, "buffers", "scale.spread", "scale (Module)"),
    ):
        model = Buffered()
        model.linear.requires_grad_(change is not frozen)
        ddp = DDP(model, broadcast_buffers=False)
        change(model)
        guard = watch(ddp, **quiet(steps=1))
        train(ddp, sgd(ddp), 1)
        found = {finding.code: finding for finding in guard.findings}
        assert found[code].names == (name,) and found[code].modules == (module,), found
        assert f'more: ReadyOnce, "Guard your training": guard/#{code}' in str(found[code])
        label = "buffers" if code == "buffers" else "parameters"
        assert f"{label}: {name}\n  modules: {module}\n" in str(found[code])
        assert "sizes differ by up to " in found[code].detail


@together
def a_drift_names_what_drifted():
    ddp = DDP(Net())
    guard, optimizer = watch(ddp, **quiet()), sgd(ddp)
    train(ddp, optimizer, 1)
    ddp.module.head.weight.data += rank()
    train(ddp, optimizer, 1)
    drift = next(finding for finding in guard.findings if finding.code == "drift")
    assert (drift.step, drift.names, drift.modules) == (1, ("head.weight",), ("head (Linear)",)), drift
    guard.remove()


@together
def alike_inputs_and_other_settings_are_named():
    ddp = DDP(Net())
    guard = watch(ddp, **quiet(steps=1))
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.1 + rank())
    ddp(torch.arange(4 * WIDTH).view(4, WIDTH).float()).sum().backward()
    optimizer.step()
    found = {finding.code: finding for finding in guard.findings}
    assert found["settings"].detail == "lr=0.1, lr=1.1", found
    assert found["data"].names == ("argument 1",) and found["data"].modules == ("the model (Net)",), found
    guard.remove()


@alone
def integers_are_told_apart_without_a_large_copy():
    from torch.profiler import ProfilerActivity, profile

    tokens = torch.randint(50_000, (3, 1 << 20))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        size = readyonce_guard._norms([tokens, tokens[:, 1:], tokens.flatten().bfloat16()], integers=True)
    held = peak = 0
    for event in seen.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    kept = 2 * tokens.numel()  # the bfloat16 made here
    assert peak - kept < 1 << 20, peak
    assert abs(size[0] / tokens.double().norm().item() - 1) < 1e-5 and size[1] < size[0]


@together
def a_warning_lets_it_go_on():
    ddp = DDP(Net(reentrant=True))
    guard = watch(ddp, on_finding="warn")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        train(ddp, sgd(ddp), 5)
    ours = [str(it.message) for it in told if "ReadyOnce guard" in str(it.message)]
    assert len(ours) == (3 if rank() == 0 else 0), ours  # each code once
    assert guard.done
    nothing_left(ddp)


@together
def nothing_is_left_after_the_last_step():
    ddp = DDP(Net())
    guard = watch(ddp)
    train(ddp, sgd(ddp), 5)
    assert guard.done and not guard.findings
    assert not guard.params and guard.model is None and guard.before is None
    assert 0 < guard.bytes_sent < 3000, guard.bytes_sent
    nothing_left(ddp)


@together
def the_frameworks_own_error_gets_our_sentence():
    ddp = DDP(Net(reentrant=True), find_unused_parameters=True)
    with watch(ddp, timeout=PATIENCE):
        try:
            train(ddp, sgd(ddp), 1)
            raise AssertionError("no error")
        except RuntimeError as error:
            notes = "".join(getattr(error, "__notes__", ()))
            assert "ready only once" in str(error)
            assert "ReadyOnce guard" in notes and "before optimizer step 1" in notes, notes


@together
def deepspeeds_own_assertion_speaks():
    """Under ZeRO-3 it has no text at all."""
    import importlib.util

    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo does; nothing to compile
    for file, variant, says in (
        ("RO-0004/repro.py", "zero1-accumulate-2", "has already been reduced"),
        ("RO-0001/zero.py", "zero2-twice-reentrant-small-bucket-accumulate-1", "has already been reduced"),
        ("RO-0001/zero.py", "zero3-twice-reentrant-default-bucket-accumulate-1", ""),
    ):
        spec = importlib.util.spec_from_file_location("repro", Path(__file__).resolve().parents[3] / "snippets" / file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        with readyonce_guard.automatic(timeout=PATIENCE), contextlib.redirect_stdout(io.StringIO()):
            try:
                module.run(variant)
                raise RuntimeError(f"{variant}: no assertion")
            except AssertionError as error:
                text = "".join(traceback.format_exception(error))
                assert says in str(error) and (says or not str(error)), error
        _, _, note = text.rpartition("AssertionError")
        assert "ReadyOnce guard, at this error: [twice] before optimizer step 1" in note, text
        assert "guard/#twice" in note and note.count("ReadyOnce guard") == 1, note


@together
def what_could_be_meant_warns_and_stops_nobody():
    ddp = DDP(Net())
    guard, optimizer = watch(ddp), sgd(ddp)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(4):
            ddp(torch.ones(4, WIDTH)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert guard.done and [f.code for f in guard.findings] == ["data"]
    assert sum("how sure: likely" in str(it.message) for it in told) == (rank() == 0)


@together
def a_rank_that_fails_does_not_keep_the_others_waiting():
    model = Net()  # averaged by nobody: no collective that would wait
    guard, optimizer = watch(model, timeout=FOR_EVER), sgd(model)
    try:
        out = model(inputs())
        if rank() == 1:
            out.register_hook(lambda _: (_ for _ in ()).throw(RuntimeError("bad batch")))
        out.sum().backward()
        optimizer.step()
        raise AssertionError("not stopped")
    except GuardError as error:
        assert rank() == 0 and [f.code for f in error.findings] == ["failed"]
        assert "rank 1" in str(error) and "bad batch" in str(error)
    except RuntimeError as error:
        assert rank() == 1 and "bad batch" in str(error)
    guard.remove()


@together
def a_rank_that_never_comes_ends_with_a_word():
    model = Net()
    guard, optimizer = watch(model, timeout=ABSENT), sgd(model)
    model(inputs()).sum().backward()
    if rank() == 0:
        try:
            optimizer.step()
            raise AssertionError("not stopped")
        except GuardError as error:
            assert [f.code for f in error.findings] == ["absent"] and f"rank 1, within {ABSENT} s" in str(error)
    guard.remove()


@together
def a_rank_that_has_no_more_batches_under_join_is_not_missed():
    ddp = DDP(Net())
    guard, optimizer = watch(ddp, steps=9, timeout=FOR_EVER), sgd(ddp)
    for _ in range(2):  # epochs: in the second one the ranks have taken different numbers of steps
        with Join([ddp]):
            for _ in range(3 - rank()):
                optimizer.zero_grad()
                ddp(inputs()).sum().backward()
                optimizer.step()
    assert guard.done and guard.step == 2 and not guard.findings
    assert any("no more batches for rank 1, and the others go on under `Join`" in line for line in guard.lines)
    guard.remove()
    assert ddp._check_and_sync_module_buffers.__func__ is DDP._check_and_sync_module_buffers


@together
def ranks_with_as_many_batches_under_join_are_compared():
    ddp = DDP(Net())
    guard, optimizer = watch(ddp, steps=4, timeout=FOR_EVER), sgd(ddp)
    for _ in range(2):
        with Join([ddp]):
            for _ in range(2):
                optimizer.zero_grad()
                ddp(inputs()).sum().backward()
                optimizer.step()
    assert guard.done and guard.step == 4 and not guard.findings
    guard.remove()


@together
def a_rank_whose_loss_does_not_reach_the_model():
    model = Net()
    guard, optimizer = watch(model, **quiet()), sgd(model)
    if rank() == 0:
        model(inputs()).sum().backward()
    else:
        torch.ones(1, requires_grad=True).sum().backward()
    optimizer.step()
    assert [f.code for f in guard.findings] == ["ranks"]
    assert "some ranks have no gradient" in guard.findings[0].detail
    guard.remove()


@together
def a_second_model_is_left_alone():
    ddp, second = DDP(Net()), Net()
    guard, optimizers = watch(ddp, **quiet()), (sgd(ddp), sgd(second))
    for _ in range(4):
        (ddp(inputs()) - second(inputs()).detach()).square().mean().backward()
        optimizers[0].step()
        (second(inputs()) - 1).square().mean().backward()  # on each rank for itself
        optimizers[1].step()
        for optimizer in optimizers:
            optimizer.zero_grad()
    assert guard.done and not guard.findings, guard.findings
    second(inputs()).sum().backward()
    nothing_left(ddp)


@together
def what_is_not_covered_is_said():
    model = Net()
    model.head.weight.allreduce = False  # how DeepSpeed marks an expert
    with watch(DDP(model), **quiet()) as guard:
        assert "not covered: 1 parameters that differ between ranks by design" in guard.lines[0]


@together
def tensor_parallel_is_said_not_to_be_covered():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    split = parallelize_module(
        Net(), init_device_mesh("cpu", (2,), mesh_dim_names=("tp",)), {"linear": ColwiseParallel()}
    )
    with watch(split, **quiet()) as guard:
        assert "not covered: tensor parallelism" in guard.lines[0], guard.lines


@together
def compiled_autograd_is_said_not_to_be_covered():
    import torch._dynamo

    with torch._dynamo.config.patch(compiled_autograd=True), watch(DDP(Net()), **quiet()) as guard:
        assert "not covered: compiled autograd" in guard.lines[0], guard.lines
    with watch(DDP(Net()), **quiet()) as guard:
        assert "not covered" not in guard.lines[0], guard.lines


@together
def replay_of_a_right_setting_and_of_a_wrong_one():
    for reentrant in (False, True):
        ddp = DDP(Net(reentrant))
        (ddp(inputs()) - 1).square().mean().backward()
        try:
            found = replay(ddp, lambda module: (module(inputs()) - 1).square().mean())
            assert not reentrant and found.difference <= found.limit, found
        except GuardError as error:
            assert reentrant and error.findings[0].code == "replay" and "linear.weight" in str(error)


@together
def replay_refuses_what_does_not_repeat_itself():
    ddp = DDP(Net())
    ddp(inputs()).sum().backward()
    factors = iter((1.0, 0.9))  # as dropout does
    with contextlib.suppress(ValueError):
        replay(ddp, lambda module: (module(inputs()) * next(factors)).sum())
        raise AssertionError("taken")


@together
def replay_says_what_it_does_not_cover():
    from torch.distributed.fsdp import fully_shard

    model = Net()
    fully_shard(model)
    with contextlib.suppress(NotImplementedError):
        replay(model, lambda module: module(inputs()).sum())
        raise AssertionError("taken")


@together
def fsdp_synchronises_as_the_backward_says():
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    for around in ("nothing", "forward", "backward", "both"):
        model = FSDP(Net(), use_orig_params=True, device_id=torch.device("cpu"))
        guard, optimizer = watch(model, **quiet(steps=2)), sgd(model)
        with model.no_sync() if around in ("forward", "both") else contextlib.nullcontext():
            loss = model(inputs()).sum()
            if around == "both":
                loss.backward()
        if around != "both":
            with model.no_sync() if around == "backward" else contextlib.nullcontext():
                loss.backward()
        with contextlib.suppress(RuntimeError):  # the optimizer itself may refuse the shapes
            optimizer.step()
        codes = [f.code for f in guard.findings]
        assert codes == (["unsynced"] if around in ("backward", "both") else []), (around, codes, guard.lines)
        guard.remove()


@together
def a_shard_clipped_by_its_own_norm():
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp import fully_shard

    def by_hand(model):  # each rank takes the norm of what it holds
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        grads = [g.to_local() if hasattr(g, "to_local") else g for g in grads]
        norm = torch.stack([g.norm() for g in grads]).norm()
        for g in grads:
            g.mul_(0.01 / norm)

    def whole(model):
        if isinstance(model, FSDP):
            model.clip_grad_norm_(0.01)
        else:
            nn.utils.clip_grad_norm_(model.parameters(), 0.01)

    def value(model):  # one flat parameter and one unit: no other tells that its elements were not all scaled alike
        nn.utils.clip_grad_value_(model.parameters(), 0.01)

    for sharded in (lambda net: FSDP(net, device_id=torch.device("cpu")), fully_shard):
        for change, expected in ((by_hand, ["clipped"]), (whole, []), (value, []), (lambda _: None, [])):
            model = sharded(Net())
            guard, optimizer = watch(model, **quiet(steps=1)), sgd(model)
            (model(inputs()) - 1).square().mean().backward()
            change(model)
            optimizer.step()
            assert [f.code for f in guard.findings] == expected, (change, guard.findings)
            guard.remove()


@together
def averaged_by_hand_under_no_sync():
    for by_hand in (False, True):
        model = DDP(Net())
        guard, optimizer = watch(model, **quiet(steps=2)), sgd(model)
        with model.no_sync():
            model(inputs()).sum().backward()
        for p in model.parameters() if by_hand else ():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        optimizer.step()
        codes = [f.code for f in guard.findings]
        assert codes == ([] if by_hand else ["unsynced"]), (by_hand, codes, guard.lines)
        guard.remove()


@together
def deepspeed_under_no_sync():
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo does; nothing to compile
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
    }
    for last in (True, False):
        model = Net()
        engine, *_ = deepspeed.initialize(model=model, optimizer=sgd(model), config=config)
        guard = watch(engine, **quiet(steps=2))
        for quietly in (last, not last):
            with engine.no_sync() if quietly else contextlib.nullcontext():
                engine.backward(engine(inputs()).square().mean() / 2)
        engine.step()
        codes = [f.code for f in guard.findings]
        assert codes == ([] if last else ["unsynced"]), (last, codes, guard.lines)
        guard.remove()
        engine.destroy()


@together
def watched_without_a_call():
    """What `python -m readyonce_guard` does in each process."""
    with readyonce_guard.automatic(**quiet()) as guards:
        ddp = DDP(Net(reentrant=True))
        train(ddp, sgd(ddp), 2)
        bypassed = DDP(Net())
        train(bypassed.module, sgd(bypassed), 2)
        plain = Net()
        train(plain, sgd(plain), 1)
    assert [sorted({f.code for f in guard.findings} - {"drift"}) for guard in guards] == [
        ["ranks", "twice"],
        ["bypassed"],
    ]
    nothing_left(ddp)


class Holder(nn.Module):
    """A loss that holds what it trains, as those of sentence-transformers do."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)


@together
def a_wrapper_inside_another_module_is_watched():
    with readyonce_guard.automatic(**quiet()) as guards:
        right = DDP(Net())
        train(Holder(right), sgd(right))
        model = Net()
        train(model, sgd(model), 1)  # before it is wrapped
        bypassed = DDP(model)
        train(Holder(bypassed.module), sgd(bypassed), 2)
    assert [guard.kind for guard in guards] == ["ddp", "ddp"] and guards[0].step == 3
    assert not guards[0].findings, guards[0].findings
    assert "bypassed" in {finding.code for finding in guards[1].findings}, guards[1].findings
    nothing_left(right)


@together
def a_first_forward_inside_the_step_is_watched():
    """As Lightning does without accumulation."""
    with readyonce_guard.automatic(**quiet()) as guards:
        ddp = DDP(Net())
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1 * (1 + rank()))

        def closure():
            loss = (ddp(inputs()) - 1).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
    (guard,) = guards
    assert [(f.code, f.step) for f in guard.findings] == [("settings", 0)], guard.findings
    assert guard.lines[-1] == "1 of 3 optimizer steps watched, 1 findings; removed", guard.lines
    nothing_left(ddp)


@together
def a_compiled_model_is_called_as_ever():
    """The hook is not traced into the graph."""
    with readyonce_guard.automatic(**quiet()) as guards:
        net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
        ddp = DDP(torch.compile(net, backend="eager", fullgraph=True))
        train(Holder(ddp), sgd(ddp))
    assert guards[0].step == 3 and not guards[0].findings, guards[0].findings


def averaged(model):
    for p in model.parameters():
        dist.all_reduce(p.data)
        p.data /= dist.get_world_size()


def local_sgd_of_accelerate(steps, attach):
    from accelerate import Accelerator
    from accelerate.local_sgd import LocalSGD

    accelerator = Accelerator(cpu=True)
    model = Net()
    model, optimizer = accelerator.prepare(model, sgd(model))
    attach(model)
    with LocalSGD(accelerator=accelerator, model=model, local_sgd_steps=2) as local:
        for _ in range(steps):
            with accelerator.accumulate(model):
                accelerator.backward((model(inputs()) - 1).square().mean())
                optimizer.step()
                optimizer.zero_grad()
                local.step()
    return model


def local_sgd_by_no_sync(steps, attach):
    ddp = DDP(Net())
    attach(ddp)
    optimizer = sgd(ddp)
    for step in range(steps):
        with ddp.no_sync():
            train(ddp, optimizer, 1)
        if step % 2:
            averaged(ddp)
    return ddp


def local_sgd_by_a_hook(steps, attach):
    from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as hooks
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    ddp = DDP(Net())
    groups = [dist.new_group([r]) for r in range(dist.get_world_size())]
    ddp.register_comm_hook(hooks.PostLocalSGDState(None, groups[rank()], 1), hooks.post_localSGD_hook)
    attach(ddp)
    train(ddp, PostLocalSGDOptimizer(sgd(ddp), PeriodicModelAverager(period=2, warmup_steps=1)), steps)
    return ddp


def local_sgd_without_a_wrapper(steps, attach):
    model = Net()
    attach(model)
    optimizer = sgd(model)
    for step in range(steps):
        train(model, optimizer, 1)
        if step % 2:
            averaged(model)
    return model


@together
def weights_averaged_every_few_steps_are_warned_of_and_not_stopped():
    for loop in (local_sgd_of_accelerate, local_sgd_by_no_sync, local_sgd_by_a_hook, local_sgd_without_a_wrapper):
        guards = []
        plain = loop(4, lambda model: None)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            watched = loop(4, lambda model, guards=guards: guards.append(watch(model, timeout=PATIENCE)))
        (guard,) = guards
        assert guard.done and guard.step == 3, loop
        assert guard.lines[-1].endswith("; the weights were equal again in between"), guard.lines
        assert all(torch.equal(p, q) for p, q in zip(plain.parameters(), watched.parameters())), loop
        codes = [finding.code for finding in guard.findings]
        assert codes[0] in ("unsynced", "ranks") and set(codes[1:]) <= {"drift"}, (loop, codes)
        ours = [str(it.message) for it in told if "ReadyOnce guard" in str(it.message)]
        assert len(ours) == (len(codes) if rank() == 0 else 0), (loop, ours)
        assert all("how sure: likely, right if the weights are averaged every few steps" in text for text in ours), ours
        nothing_left(watched)


@together
def a_forgotten_synchronisation_is_warned_of():
    ddp = DDP(Net())
    guard = watch(ddp, timeout=PATIENCE)
    with warnings.catch_warnings(), ddp.no_sync():
        warnings.simplefilter("ignore")
        train(ddp, sgd(ddp), 3)
    assert [finding.code for finding in guard.findings] == ["unsynced", "drift"], guard.findings
    assert guard.lines[-1] == "3 optimizer steps watched, 2 findings; removed; no average of the weights was seen"


@together
def a_local_gradient_on_top_of_an_averaged_one_is_stopped():
    """No loop that averages weights averages the gradients of a part of a step only."""
    ddp = DDP(Net())
    watch(ddp, timeout=PATIENCE)
    (ddp(inputs()) - 1).square().mean().backward()
    try:
        with ddp.no_sync():
            train(ddp, sgd(ddp), 1)
        raise AssertionError("not stopped")
    except GuardError as error:
        assert [finding.code for finding in error.findings] == ["unsynced"] and "how sure: sure" in str(error), error


class Lookahead(torch.optim.Optimizer):
    """An optimizer that steps another one, and goes back halfway every second step."""

    def __init__(self, inner):
        super().__init__(inner.param_groups, {})
        self.inner, self.count = inner, 0
        self.slow = [p.detach().clone() for group in inner.param_groups for p in group["params"]]

    def step(self, closure=None):
        loss = self.inner.step(closure)
        self.count += 1
        if self.count % 2 == 0:
            for slow, p in zip(self.slow, [p for group in self.param_groups for p in group["params"]]):
                slow += (p.detach() - slow) / 2
                p.data.copy_(slow)
        return loss


@together
def an_optimizer_that_steps_another_takes_one_step():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    def sharded(ddp):  # each rank steps its own parameters only
        return ZeroRedundancyOptimizer(ddp.parameters(), optimizer_class=torch.optim.SGD, lr=0.1)

    for make in (lambda ddp: Lookahead(sgd(ddp)), sharded):
        ends = []
        for guarded in (False, True):
            ddp = DDP(Net())
            guard = watch(ddp, timeout=PATIENCE) if guarded else None
            train(ddp, make(ddp), 2)
            ends.append([p.detach().clone() for p in ddp.parameters()])
        assert guard.step == 2 and not guard.done and not guard.findings, (guard.step, guard.findings)
        assert all(torch.equal(p, q) for p, q in zip(*ends))
        guard.remove()
        nothing_left(ddp)


@together
def steps_with_no_backward_between_are_counted():
    """Gradients from `torch.autograd.grad`, of weights that no forward of the model uses."""
    model = Net()
    params, optimizer = [*model.parameters()], sgd(model)
    guard = watch(model, timeout=PATIENCE)
    for _ in range(3):
        for p, g in zip(params, torch.autograd.grad(sum((p - 1).square().sum() for p in params), params)):
            p.grad = g
        optimizer.step()
    assert guard.step == 3 and guard.done and not guard.findings, (guard.step, guard.findings)


@together
def a_model_met_in_a_closure_is_watched_after_another_is_done():
    with readyonce_guard.automatic(steps=1, timeout=PATIENCE) as guards:
        first, second = DDP(Net()), DDP(Net())
        train(first, sgd(first), 2)
        optimizer = sgd(second)

        def closure():
            loss = (second(inputs()) - 1).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
        assert [guard.step for guard in guards] == [1, 1], [guard.step for guard in guards]
    nothing_left(second)


def trainer_of(reentrant=False, fails_at=None, **settings):
    """A transformers Trainer, and the guard's callback that it has."""
    import transformers

    class Model(Net):
        calls = 0

        def forward(self, x, labels=None):
            self.calls += 1
            if self.calls == fails_at:
                raise KeyError("a batch without labels")
            out = super().forward(x)
            return {"loss": (out - 1).square().mean(), "logits": out}

    arguments = transformers.TrainingArguments(
        output_dir="/tmp/readyonce-trainer",
        use_cpu=True,
        max_steps=4,
        per_device_train_batch_size=2,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        ddp_find_unused_parameters=False,
        learning_rate=0.1,
        optim="sgd",
        **settings,
    )
    data = [{"x": torch.randn(WIDTH)} for _ in range(16)]
    trainer = transformers.Trainer(Model(reentrant), arguments, train_dataset=data)
    watcher = readyonce_guard.callback(trainer, timeout=PATIENCE)
    trainer.add_callback(watcher)
    return trainer, watcher


def trained(trainer):
    """The error that ended it, or None."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            trainer.train()
    except Exception as error:
        return error


@together
def callback_of_the_trainer():
    for reentrant, accumulated in ((False, 1), (False, 3), (True, 1), (True, 3)):
        trainer, watcher = trainer_of(reentrant, gradient_accumulation_steps=accumulated)
        error = trained(trainer)
        if reentrant:
            assert isinstance(error, GuardError) and trainer.state.global_step == 0, error
        else:
            assert error is None and watcher.guard.done and watcher.guard.step == 3
        assert watcher.guard.kind == "ddp"


@together
def callback_of_a_trainer_that_fails():
    trainer, watcher = trainer_of(fails_at=2)
    assert isinstance(trained(trainer), KeyError)
    assert watcher.guard.done and watcher.guard.step == 1
    nothing_left(trainer.model_wrapped)


@together
def callback_of_a_trainer_that_starts_again():
    """As `auto_find_batch_size` does after an out-of-memory error."""
    trainer, watcher = trainer_of()
    trainer.callback_handler.on_train_begin(trainer.args, trainer.state, trainer.control)
    first = watcher.guard
    assert trained(trainer) is None and first.done and watcher.guard is not first and watcher.guard.step == 3
    nothing_left(trainer.model_wrapped)


@together
def callback_of_the_trainer_under_deepspeed():
    import deepspeed
    import transformers
    from accelerate.state import AcceleratorState

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo does; nothing to compile
    cpu = os.environ.pop("ACCELERATE_USE_CPU")  # with it accelerate takes DDP
    for stage, reentrant in ((0, False), (1, False), (2, False), (3, False), (3, True), (2, True)):
        AcceleratorState._reset_state(reset_partial_state=True)
        config = {
            "train_micro_batch_size_per_gpu": "auto",
            "gradient_accumulation_steps": "auto",
            "zero_allow_untested_optimizer": True,
            # All in one bucket DeepSpeed asserts by itself; in several ZeRO-3 trains wrong in silence.
            "zero_optimization": {"stage": stage, "reduce_bucket_size": 60 if stage == 3 else 10**6},
        }
        trainer, watcher = trainer_of(reentrant, deepspeed=config)
        error = trained(trainer)
        assert (watcher.guard.kind, watcher.guard.stage) == ("zero", stage), (watcher.guard.lines, error)
        if not reentrant:
            assert error is None and watcher.guard.step == 3 and not watcher.guard.findings, (stage, error)
        elif stage == 3:
            assert isinstance(error, GuardError) and trainer.state.global_step == 0, error
            assert [finding.code for finding in error.findings] == ["twice"]
        else:
            assert isinstance(error, AssertionError) and "[twice]" in "".join(error.__notes__), error
        assert watcher.guard.done
        nothing_left(trainer.model_wrapped)
        del trainer, watcher, error
    transformers.integrations.deepspeed.unset_hf_deepspeed_config()
    AcceleratorState._reset_state(reset_partial_state=True)
    os.environ["ACCELERATE_USE_CPU"] = cpu


def main(results, *names):
    torch.set_num_threads(1)
    with open(results, "a", encoding="utf-8") as file:

        def run(name, function):
            told = {"name": name, "rank": int(os.environ["RANK"]), "error": None}
            try:
                function()
            except BaseException:
                told["error"] = traceback.format_exc()
                while readyonce_guard._guards:
                    readyonce_guard._guards[0].remove()
            file.write(json.dumps(told) + "\n")
            file.flush()

        if os.environ["RANK"] == "0":
            for name, function in ALONE.items():
                if not names or name in names:
                    run(name, function)
        dist.init_process_group("gloo", timeout=timedelta(seconds=PATIENCE))
        for name, function in TOGETHER.items():
            if not names or name in names:
                run(name, function)
                dist.barrier()
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
