"""The learning rates of six updates, with a schedule that accelerate steps: torchrun --nproc-per-node 2 rates.py"""

import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
import torch
import torch.distributed as dist
from accelerate import Accelerator, DataLoaderConfiguration, DeepSpeedPlugin
from accelerate.state import AcceleratorState, GradientState
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, OneCycleLR, StepLR
from transformers import get_cosine_schedule_with_warmup

UPDATES = 6
ZERO2 = {
    "train_micro_batch_size_per_gpu": 3,
    "gradient_accumulation_steps": 1,
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "zero_optimization": {"stage": 2},
}
SCHEDULES = {
    "LinearLR": lambda optimizer, steps: LinearLR(optimizer, 1.0, 0.0, total_iters=steps),
    "CosineAnnealingLR": lambda optimizer, steps: CosineAnnealingLR(optimizer, steps),
    "transformers' cosine": lambda optimizer, steps: get_cosine_schedule_with_warmup(optimizer, 0, steps),
    "StepLR, after half": lambda optimizer, steps: StepLR(optimizer, steps // 2, gamma=0.1),
    "OneCycleLR": lambda optimizer, steps: OneCycleLR(optimizer, 0.1, total_steps=steps),
}


def rates(schedule, times=1, prepared=True, accumulation=1, stepped_alone=False, **settings):
    """The rate of each update, as the optimizer has it. `stepped_alone`: only where an update was made."""
    AcceleratorState._reset_state()
    GradientState._reset_state()
    if "deepspeed_plugin" not in settings:
        settings["cpu"] = True
    accelerator = Accelerator(gradient_accumulation_steps=accumulation, **settings)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = schedule(optimizer, UPDATES * times)
    model, optimizer, *rest = accelerator.prepare(model, optimizer, *([scheduler] if prepared else []))
    scheduler = rest[0] if prepared else scheduler
    seen = []
    for _ in range(UPDATES * accumulation):
        with accelerator.accumulate(model):
            if accelerator.sync_gradients:
                seen.append(optimizer.param_groups[0]["lr"])
            accelerator.backward(model(torch.ones(3, 8)).square().mean())
            optimizer.step()
            if accelerator.sync_gradients or not stepped_alone:
                scheduler.step()
            optimizer.zero_grad()
    return seen


def alone(schedule):
    """The same in plain torch: one step of the schedule for each update."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    scheduler, seen = schedule(optimizer, UPDATES), []
    for _ in range(UPDATES):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return seen


def show(name, seen, wanted):
    if dist.get_rank() == 0:
        same = (
            "as in one process"
            if torch.allclose(torch.tensor(seen), torch.tensor(wanted), atol=1e-9)
            else "other rates"
        )
        print(f"=> {name}: {' '.join(f'{rate:.3f}' for rate in seen)} ({same})", flush=True)


dist.init_process_group("gloo")
for name, schedule in SCHEDULES.items():
    show(f"{name}, made for {UPDATES} updates", rates(schedule), alone(schedule))
linear, wanted = SCHEDULES["LinearLR"], alone(SCHEDULES["LinearLR"])
plain, own = dict(prepared=False, stepped_alone=True), dict(step_scheduler_with_optimizer=False)
split = dict(dataloader_config=DataLoaderConfiguration(split_batches=True))
for name, settings in {
    "made for twice as many": dict(times=2),
    "made for twice as many, accumulation 4": dict(times=2, accumulation=4),
    "accumulation 4": dict(accumulation=4),
    "split_batches=True": split,
    "not prepared, stepped at updates, accumulation 4": dict(accumulation=4, **plain),
    "step_scheduler_with_optimizer=False": own,
    "step_scheduler_with_optimizer=False, accumulation 4": dict(accumulation=4, **own),
    "ZeRO-2": dict(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=ZERO2)),
    "ZeRO-2, made for twice as many": dict(times=2, deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=ZERO2)),
}.items():
    show(f"LinearLR, {name}", rates(linear, **settings), wanted)
dist.destroy_process_group()
