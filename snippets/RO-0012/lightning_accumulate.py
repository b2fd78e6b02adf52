"""Accumulation in Lightning, its short last window too: torchrun --nproc-per-node 2 lightning_accumulate.py

Two epochs of eight micro-batches, accumulation 3: windows of 3, 3 and 2. The objective is the mean over a window's samples.
Lightning refuses its class FSDPStrategy without a GPU. `OnCpu` is a subclass that gives FSDP the CPU as its device. With
the word `bf16-lora` it is LoRA in bfloat16 with AdamW and clipping.
"""

import os

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy, ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.utils.data import DataLoader, DistributedSampler
from windows import ADAPTED, BOUND, RATE, SETTING, adapted, clipped, compared, gradient, whole


class OnCpu(FSDPStrategy):
    def _setup_model(self, model):
        more = {"mixed_precision": self.mixed_precision_config, **self.kwargs}
        return FullyShardedDataParallel(model, device_id=torch.device("cpu"), **more)


class Model(lightning.LightningModule):
    def __init__(self, form="as it is"):
        super().__init__()
        torch.manual_seed(0)
        self.layers = adapted(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8)), ["0", "2"])
        self.form, self.automatic_optimization = form, form != "manual"

    def configure_model(self):
        if isinstance(self.trainer.strategy, ModelParallelStrategy):
            layers = self.layers.base_model.model if ADAPTED else self.layers
            for module in (layers[0], layers[2], self.layers):
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
            if ADAPTED:
                self.configure_gradient_clipping(optimizer, BOUND, "norm")
            optimizer.step()
            optimizer.zero_grad()

    def configure_optimizers(self):
        trained = [p for p in self.parameters() if p.requires_grad]
        return torch.optim.AdamW(trained, lr=RATE) if ADAPTED else torch.optim.SGD(trained, lr=0.5)

    def configure_gradient_clipping(self, optimizer, gradient_clip_val=None, gradient_clip_algorithm=None):
        if ADAPTED:
            ended.append(gradient(self.trainer.model))
            if isinstance(self.trainer.model, FullyShardedDataParallel):  # Lightning refuses to clip by norm there
                self.trainer.model.clip_grad_norm_(gradient_clip_val)
            else:
                self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def on_train_end(self):
        if not ADAPTED:
            ended.append(whole(self.trainer.model))


def losses(rows, share):
    windows = [(window, share if len(window) < 6 else 1) for window in rows.split(6) * 2]
    return [lambda model, window=window, part=part: model.compute_loss(window) * part for window, part in windows]


data, rank = torch.randn(16, 8, generator=torch.Generator().manual_seed(1)), int(os.environ["RANK"])
STRATEGIES = {"DDP": DDPStrategy, "FSDP1": lambda: OnCpu(use_orig_params=True)}
STRATEGIES["FSDP2"] = lambda: ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1)
OBJECTIVES = {"one process's": 1.0, "one process's with the short window divided by 3": 2 / 3}
rest = {"accelerator": "cpu", "devices": 2, "max_epochs": 2, "logger": False, "enable_checkpointing": False}
rest |= {"use_distributed_sampler": False, "enable_progress_bar": False, "enable_model_summary": False}
rest |= {"precision": "bf16-mixed"} if ADAPTED else {}
for name, strategy in STRATEGIES.items():
    for form, rows in (("as it is", data[:12]), ("as it is", data), ("scaled", data), ("manual", data)):
        ended, batches = [], DataLoader(rows, 1, sampler=DistributedSampler(rows, 2, rank, shuffle=False))
        more = {} if form == "manual" else {"accumulate_grad_batches": 3}
        more |= {"gradient_clip_val": BOUND} if ADAPTED and more else {}
        what = "gradients" if ADAPTED else "weights"
        text, told = f"the {what} equal neither", {}
        try:
            lightning.Trainer(strategy=strategy(), **more, **rest).fit(Model(form), batches)
            told = {goal: compared(Model, losses(rows, share), ended) for goal, share in OBJECTIVES.items()}
            text = next((f"the {what} equal {goal}" for goal in OBJECTIVES if told[goal][0] < 1), text)
            text += f", within rounding; {len(ended)} windows, all clipped: {clipped(ended)}" if ADAPTED else ""
        except ValueError as error:
            text = f"an error, {error}"
        if rank == 0:
            print(f"\n=> {SETTING}{name}, {form}, {len(batches)} micro-batches an epoch: {text}\n{told}", flush=True)
dist.destroy_process_group()
