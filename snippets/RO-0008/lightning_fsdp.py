"""The parameters that `configure_optimizers` takes, with Lightning: torchrun --nproc-per-node 2 lightning_fsdp.py

Lightning refuses its class FSDPStrategy without a GPU. `OnCpu` is a subclass that gives FSDP the CPU as its device. With
the word `bf16-lora` it is LoRA in bfloat16 with AdamW and clipping. FSDP1 with `use_orig_params=False` refuses trained
and frozen weights in one unit, so there it wraps each layer by itself.
"""

import os

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from second import ADAPTED, BOUND, SETTING, adapted, compared, gradient, optimizer_of, whole
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.utils.data import DataLoader, DistributedSampler


class OnCpu(FSDPStrategy):
    def _setup_model(self, model):
        more = {"mixed_precision": self.mixed_precision_config, **self.kwargs}
        return FullyShardedDataParallel(model, device_id=torch.device("cpu"), **more)

    def training_step(self, *batch):
        with torch.autocast("cpu", torch.bfloat16, enabled=ADAPTED):  # Lightning's own, under FSDP, is a GPU's
            return super().training_step(*batch)


class Model(lightning.LightningModule):
    def __init__(self, source=""):
        super().__init__()
        torch.manual_seed(0)
        self.layers = adapted(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8)), ["0", "2"])
        self.source, self.before = source, list(self.parameters())

    def configure_model(self):
        if isinstance(self.trainer.strategy, ModelParallelStrategy):
            layers = self.layers.base_model.model if ADAPTED else self.layers
            for module in (layers[0], layers[2], self.layers):
                fully_shard(module, mesh=self.device_mesh["data_parallel"])

    def training_step(self, batch, _):
        return self.layers(batch).square().mean()

    def configure_optimizers(self):
        sources = {"self.trainer.model.parameters()": self.trainer.model.parameters, "self.parameters()": self.parameters}
        return optimizer_of(sources.get(self.source, lambda: self.before)())

    def configure_gradient_clipping(self, optimizer, gradient_clip_val=None, gradient_clip_algorithm=None):
        if ADAPTED:
            seen.append(gradient(self.trainer.model))
        if ADAPTED and isinstance(self.trainer.model, FullyShardedDataParallel):  # Lightning refuses to clip there
            self.trainer.model.clip_grad_norm_(gradient_clip_val)
        else:
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def on_train_end(self):
        ended.extend(whole(self.trainer.model))


def loss(model, rows):
    return model.training_step(rows, 0)


policy = {"auto_wrap_policy": {nn.Linear}} if ADAPTED else {}
CASES = {"FSDPStrategy": OnCpu, "FSDPStrategy, use_orig_params=False": lambda: OnCpu(use_orig_params=False, **policy)}
CASES["ModelParallelStrategy, fully_shard"] = lambda: ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1)
SOURCES = ("self.trainer.model.parameters()", "self.parameters()", "a list made in __init__")
data, rank = torch.randn(12, 8, generator=torch.Generator().manual_seed(1)), int(os.environ["RANK"])
rest = {"accelerator": "cpu", "devices": 2, "max_steps": 3, "logger": False, "enable_checkpointing": False}
rest |= {"use_distributed_sampler": False, "enable_progress_bar": False, "enable_model_summary": False}
rest |= {"precision": "bf16-mixed", "gradient_clip_val": BOUND} if ADAPTED else {}
for strategy, make in CASES.items():
    for source in SOURCES:
        ended, seen, batches = [], [], DataLoader(data, 2, sampler=DistributedSampler(data, 2, rank, shuffle=False))
        try:
            lightning.Trainer(strategy=make(), **rest).fit(Model(source), batches)
            moved, right, distance = compared(Model, loss, data.split(4), ended, seen)
            text = f"{moved}, {right if ADAPTED else 'they ' + right}"
        except ValueError as error:
            text, distance = f"an error, {error}", "no distance"
        if rank == 0:
            print(f"\n=> {SETTING}{strategy}, {source}: {text}\n{distance}", flush=True)
dist.destroy_process_group()
