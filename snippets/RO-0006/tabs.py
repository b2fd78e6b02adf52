"""The loss through the wrapper and past it, in three frameworks under DDP: torchrun --nproc-per-node 2 tabs.py

Three steps of plain SGD; each rank's weights are compared with one process that is given the rows of both. With the word
`bf16-lora` LoRA is trained in bfloat16 with AdamW and clipping, and the first gradient is compared.
"""

import os
import tempfile

import lightning
import torch
import torch.distributed as dist
from accelerate import Accelerator
from bf16_lora import ADAPTED, CLIP, OPTIONS, adapted, optimizer_of, rounded, seen
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, SequentialSampler
from transformers import Trainer, TrainingArguments

RATE, data = 0.5, torch.randn(12, 8, generator=torch.Generator().manual_seed(1))  # three steps of four rows
rows = [{"x": row} for row in data]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return (self.head(torch.tanh(self.body(x))) - 1).square().mean()


def fresh():
    return adapted(Net(), ["body", "head"])


class Through(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return model(inputs["x"])

    def _get_train_sampler(self, *_):
        return SequentialSampler(self.train_dataset)


class Past(Through):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return self.model(inputs["x"])


class Unwrapped(Through):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return self.accelerator.unwrap_model(model)(inputs["x"])


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = fresh()

    def training_step(self, batch, _):
        return self.net(batch["x"])

    def configure_optimizers(self):
        return optimizer_of(self, RATE)


def with_trainer(kind):
    net, rest = fresh(), {"learning_rate": RATE, "lr_scheduler_type": "constant", "max_steps": 3}
    rest |= {"use_cpu": True, "save_strategy": "no", "report_to": "none", "per_device_train_batch_size": 2}
    args = TrainingArguments(tempfile.mkdtemp(), remove_unused_columns=False, **rest, **OPTIONS)
    trainer = kind(net, args, train_dataset=rows)
    trainer.train()
    assert isinstance(trainer.model_wrapped, nn.parallel.DistributedDataParallel)
    return net


def with_accelerate(unwrap):
    accelerator, net = Accelerator(cpu=True, mixed_precision="bf16" if ADAPTED else "no"), fresh()
    model, optimizer = accelerator.prepare(net, optimizer_of(net, RATE))
    called = accelerator.unwrap_model(model) if unwrap else model
    for batch in data.split(4):
        accelerator.backward(called(batch[dist.get_rank() :: 2]))
        if ADAPTED:
            accelerator.clip_grad_norm_(net.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
    return net


def with_lightning():
    own = {"enable_progress_bar": False, "enable_checkpointing": False, "enable_model_summary": False, "logger": False}
    own |= {"accelerator": "cpu", "devices": 2, "strategy": "ddp", "use_distributed_sampler": False}
    own |= {"precision": "bf16-mixed", "gradient_clip_val": CLIP} if ADAPTED else {}
    trainer = lightning.Trainer(max_steps=3, **own)
    trainer.fit(Module(), DataLoader(rows, batch_size=2, sampler=DistributedSampler(rows, shuffle=False)))
    return trainer.lightning_module.net


CASES = {
    "Trainer, compute_loss calls its `model`": lambda: with_trainer(Through),
    "Trainer, compute_loss calls `self.model`": lambda: with_trainer(Past),
    "Trainer, compute_loss unwraps its `model`": lambda: with_trainer(Unwrapped),
    "accelerate, what `prepare` returned is called": lambda: with_accelerate(unwrap=False),
    "accelerate, what `unwrap_model` returns is called": lambda: with_accelerate(unwrap=True),
    "Lightning, training_step calls a module of its own": with_lightning,
}
alone = fresh()
wanted, bound = rounded(alone, lambda: alone(data[:4])) if ADAPTED else (None, 1e-5)
optimizer = optimizer_of(alone, RATE)
for batch in [] if ADAPTED else data.split(4):
    alone(batch).backward()
    optimizer.step()
    optimizer.zero_grad()
setting, what, wrong = "", "the weights equal one process's", "the weights are not one process's"
if ADAPTED:
    setting, what = "LoRA in bf16, AdamW, clipping | ", "the first gradient is one process's, within bf16's rounding"
    wrong = "the first gradient is not one process's"
for name, case in CASES.items():
    seen.clear()
    net = case()
    if ADAPTED:
        apart = (seen[0] - wanted).norm() / wanted.norm()
    else:
        got, wanted, start = (torch.cat([p.detach().flatten() for p in it.parameters()]) for it in (net, alone, fresh()))
        apart = (got - wanted).norm() / (start - wanted).norm()
    every = [None, None]
    dist.all_gather_object(every, apart.item())
    if dist.get_rank() == 0:
        told = what if all(it <= bound for it in every) else wrong  # never where one is nan
        print(f"\n=> {setting}{name}: {told}", flush=True)
        print("distances", *(f"{apart:.1e}" for apart in every), f"the bound {bound:.1e}", flush=True)
dist.barrier()
os._exit(0)  # else gloo's threads may abort at the end: pytorch/pytorch#154976
