"""The loss through the wrapper and past it, in three frameworks under DDP: torchrun --nproc-per-node 2 tabs.py

Three steps of plain SGD; each rank's weights are compared with one process that is given the rows of both.
"""

import os
import tempfile

import lightning
import torch
import torch.distributed as dist
from accelerate import Accelerator
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
        self.net = Net()

    def training_step(self, batch, _):
        return self.net(batch["x"])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=RATE)


def with_trainer(kind):
    net, rest = Net(), {"optim": "sgd", "learning_rate": RATE, "lr_scheduler_type": "constant", "max_steps": 3}
    rest |= {"use_cpu": True, "save_strategy": "no", "report_to": "none", "per_device_train_batch_size": 2}
    args = TrainingArguments(tempfile.mkdtemp(), max_grad_norm=0, remove_unused_columns=False, **rest)
    trainer = kind(net, args, train_dataset=rows)
    trainer.train()
    assert isinstance(trainer.model_wrapped, nn.parallel.DistributedDataParallel)
    return net


def with_accelerate(unwrap):
    accelerator, net = Accelerator(cpu=True), Net()
    model, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=RATE))
    called = accelerator.unwrap_model(model) if unwrap else model
    for batch in data.split(4):
        accelerator.backward(called(batch[dist.get_rank() :: 2]))
        optimizer.step()
        optimizer.zero_grad()
    return net


def with_lightning():
    own = {"enable_progress_bar": False, "enable_checkpointing": False, "enable_model_summary": False, "logger": False}
    own |= {"accelerator": "cpu", "devices": 2, "strategy": "ddp", "use_distributed_sampler": False}
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
alone = Net()
optimizer = torch.optim.SGD(alone.parameters(), lr=RATE)
for batch in data.split(4):
    alone(batch).backward()
    optimizer.step()
    optimizer.zero_grad()
for name, case in CASES.items():
    net = case()
    got, wanted, start = (torch.cat([p.detach().flatten() for p in it.parameters()]) for it in (net, alone, Net()))
    every = [None, None]
    dist.all_gather_object(every, ((got - wanted).norm() / (start - wanted).norm()).item())
    if dist.get_rank() == 0:
        right = "equal one process's" if max(every) < 1e-5 else "are not one process's"
        print(f"\n=> {name}: the weights {right}", flush=True)
        print("distances", *(f"{apart:.1e}" for apart in every), flush=True)
dist.barrier()
os._exit(0)  # else gloo's threads may abort at the end: pytorch/pytorch#154976
