"""Accumulation in Lightning, its short last window too: torchrun --nproc-per-node 2 lightning_accumulate.py

Two epochs of eight micro-batches, accumulation 3: windows of 3, 3 and 2. The objective is the mean over a window's samples.
Lightning refuses its class FSDPStrategy without a GPU. `OnCpu` is a subclass that gives FSDP the CPU as its device.
"""

import os

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy, ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.utils.data import DataLoader, DistributedSampler


class OnCpu(FSDPStrategy):
    def _setup_model(self, model):
        return FullyShardedDataParallel(model, device_id=torch.device("cpu"), **self.kwargs)


class Model(lightning.LightningModule):
    def __init__(self, form="as it is"):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
        self.form, self.automatic_optimization = form, form != "manual"

    def configure_model(self):
        if isinstance(self.trainer.strategy, ModelParallelStrategy):
            for module in (self.layers[0], self.layers[2], self.layers):
                fully_shard(module, mesh=self.device_mesh["data_parallel"])

    def compute_loss(self, batch):
        return (self.layers(batch) - 1).square().mean()

    def training_step(self, batch, batch_idx):
        loss = self.compute_loss(batch)
        # --8<-- [start:scaled]
        window = min(3, self.trainer.num_training_batches - batch_idx // 3 * 3)  # its micro-batches
        scaled = loss * 3 / window  # Lightning divides by 3, `accumulate_grad_batches`
        # --8<-- [end:scaled]
        if self.form != "manual":
            return scaled if self.form == "scaled" else loss
        last, optimizer = batch_idx % 3 == window - 1, self.optimizers()
        with optimizer.toggle_model(sync_grad=last):
            self.manual_backward(loss / window)
        if last:
            optimizer.step()
            optimizer.zero_grad()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)

    def on_train_end(self):
        ended.extend(whole(self.trainer.model))


def whole(model):
    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(model):
            return [p.detach().clone() for p in model.parameters()]
    return [p.full_tensor() if hasattr(p, "full_tensor") else p.detach().clone() for p in model.parameters()]


def one_process(rows, share=1.0):
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for window in rows.split(6) * 2:
        (model.compute_loss(window) * (share if len(window) < 6 else 1)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return whole(model)


data, rank = torch.randn(16, 8, generator=torch.Generator().manual_seed(1)), int(os.environ["RANK"])
STRATEGIES = {"DDP": DDPStrategy, "FSDP1": lambda: OnCpu(use_orig_params=True)}
STRATEGIES["FSDP2"] = lambda: ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1)
OBJECTIVES = {"one process's": 1.0, "one process's with the short window divided by 3": 2 / 3}
rest = {"accelerator": "cpu", "devices": 2, "max_epochs": 2, "logger": False, "enable_checkpointing": False}
rest |= {"use_distributed_sampler": False, "enable_progress_bar": False, "enable_model_summary": False}
for name, strategy in STRATEGIES.items():
    for form, rows in (("as it is", data[:12]), ("as it is", data), ("scaled", data), ("manual", data)):
        ended, batches = [], DataLoader(rows, 1, sampler=DistributedSampler(rows, 2, rank, shuffle=False))
        more = {} if form == "manual" else {"accumulate_grad_batches": 3}
        text, told = "the weights equal neither", {}
        try:
            lightning.Trainer(strategy=strategy(), **more, **rest).fit(Model(form), batches)
            for what, share in OBJECTIVES.items():
                wanted, start = one_process(rows, share), whole(Model())
                apart, far = (sum((a - b).norm() for a, b in zip(wanted, it, strict=True)) for it in (ended, start))
                farthest = (apart / far).detach()
                dist.all_reduce(farthest, dist.ReduceOp.MAX)  # of the ranks
                told[what] = farthest.item()
            text = next((f"the weights equal {what}" for what in OBJECTIVES if told[what] < 1e-5), text)
        except ValueError as error:
            text = f"an error, {error}"
        if rank == 0:
            print(f"\n=> {name}, {form}, {len(batches)} micro-batches an epoch: {text}\n{told}", flush=True)
dist.destroy_process_group()
