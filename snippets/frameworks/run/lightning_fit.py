"""Lightning, two processes: torchrun --nproc-per-node 2 watch.py lightning_fit.py"""

import os

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from setting import ADAPTED, CLIP, adapted, optimizer
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            # --8<-- [start:checkpointing]
            x = checkpoint(layer, x, use_reentrant=False)
            # --8<-- [end:checkpointing]
        return x


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.inner = adapted(Layers(), r"layers\.\d")

    def training_step(self, batch, _):
        return self.inner(batch).pow(2).mean()

    def configure_optimizers(self):
        return optimizer(self)


rest = {"accelerator": "cpu", "devices": int(os.environ["WORLD_SIZE"]), "max_steps": 2, "logger": False}
rest |= {"enable_checkpointing": False}
if ADAPTED:
    rest |= {"precision": "bf16-mixed", "gradient_clip_val": CLIP}
# --8<-- [start:find-unused]
trainer = lightning.Trainer(strategy=DDPStrategy(find_unused_parameters=True), **rest)
# --8<-- [end:find-unused]
trainer.fit(Model(), DataLoader(torch.randn(8, 8), batch_size=2))
