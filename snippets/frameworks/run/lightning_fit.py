"""Lightning, two processes: torchrun --nproc-per-node 2 watch.py lightning_fit.py"""

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.checkpoint import checkpoint


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            # --8<-- [start:checkpointing]
            x = checkpoint(layer, x, use_reentrant=False)
            # --8<-- [end:checkpointing]
        return x

    def training_step(self, batch, _):
        return self(batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


rest = {"accelerator": "cpu", "devices": 2, "max_steps": 2, "logger": False, "enable_checkpointing": False}
# --8<-- [start:find-unused]
trainer = lightning.Trainer(strategy=DDPStrategy(find_unused_parameters=True), **rest)
# --8<-- [end:find-unused]
trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(8, 8), batch_size=2))
