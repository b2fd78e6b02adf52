"""The parameters that `configure_optimizers` takes, with Lightning: torchrun --nproc-per-node 2 lightning_fsdp.py

Lightning refuses its class FSDPStrategy without a GPU. `OnCpu` is a subclass that gives FSDP the CPU as its device.
"""

import os

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.utils.data import DataLoader, DistributedSampler


class OnCpu(FSDPStrategy):
    def _setup_model(self, model):
        return FullyShardedDataParallel(model, device_id=torch.device("cpu"), **self.kwargs)


class Model(lightning.LightningModule):
    def __init__(self, source):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
        self.source, self.before = source, list(self.parameters())

    def configure_model(self):
        if isinstance(self.trainer.strategy, ModelParallelStrategy):
            for module in (self.layers[0], self.layers[2], self.layers):
                fully_shard(module, mesh=self.device_mesh["data_parallel"])

    def training_step(self, batch, _):
        return self.layers(batch).square().mean()

    def configure_optimizers(self):
        sources = {"self.trainer.model.parameters()": self.trainer.model.parameters, "self.parameters()": self.parameters}
        return torch.optim.SGD(sources.get(self.source, lambda: self.before)(), lr=0.5)

    def on_train_end(self):
        ended.extend(whole(self.trainer.model))


def whole(model):
    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(model):
            return [p.detach().clone() for p in model.parameters()]
    return [p.full_tensor() if hasattr(p, "full_tensor") else p.detach().clone() for p in model.parameters()]


CASES = {"FSDPStrategy": OnCpu, "FSDPStrategy, use_orig_params=False": lambda: OnCpu(use_orig_params=False)}
CASES["ModelParallelStrategy, fully_shard"] = lambda: ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1)
SOURCES = ("self.trainer.model.parameters()", "self.parameters()", "a list made in __init__")
data, rank = torch.randn(12, 8, generator=torch.Generator().manual_seed(1)), int(os.environ["RANK"])
alone, start = Model(""), whole(Model(""))
optimizer = torch.optim.SGD(alone.parameters(), lr=0.5)
for rows in data.split(4):  # three steps
    alone.training_step(rows, 0).backward()
    optimizer.step()
    optimizer.zero_grad()
rest = {"accelerator": "cpu", "devices": 2, "max_steps": 3, "logger": False, "enable_checkpointing": False}
rest |= {"use_distributed_sampler": False, "enable_progress_bar": False, "enable_model_summary": False}
for strategy, make in CASES.items():
    for source in SOURCES:
        ended, batches = [], DataLoader(data, 2, sampler=DistributedSampler(data, 2, rank, shuffle=False))
        try:
            lightning.Trainer(strategy=make(), **rest).fit(Model(source), batches)
            apart, far = (sum((a - b).norm() for a, b in zip(whole(alone), it, strict=True)) for it in (ended, start))
            moved = sum(not torch.equal(a, b) for a, b in zip(ended, start, strict=True))
            right = "they equal one process's" if apart / far < 1e-5 else "they are not one process's"
            text, distance = f"{moved} of {len(start)} weights moved, {right}", f"{apart / far:.1e}"
        except ValueError as error:
            text, distance = f"an error, {error}", "none"
        if rank == 0:
            print(f"\n=> {strategy}, {source}: {text}\ndistance {distance}", flush=True)
dist.destroy_process_group()
