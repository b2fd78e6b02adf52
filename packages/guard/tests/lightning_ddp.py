"""Lightning's DDP on two ranks under the guard's callback: a right fit, a wrong one, one that fails by itself."""

import os
import sys
from pathlib import Path

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import readyonce_guard
from cases import PATIENCE, WIDTH, nothing_left


class Model(lightning.LightningModule):
    def __init__(self, reentrant, fails_at=None):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)
        self.reentrant, self.fails_at = reentrant, fails_at

    def training_step(self, batch, index):
        if index == self.fails_at:
            raise KeyError("a batch without labels")
        x = batch.requires_grad_()
        for _ in range(2):
            x = x + checkpoint(self.linear, x, use_reentrant=self.reentrant)
        return (self.head(x) - 1).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(model):
    watching = readyonce_guard.lightning_callback(timeout=PATIENCE)
    trainer = lightning.Trainer(
        strategy=DDPStrategy(find_unused_parameters=False),
        callbacks=[watching],
        accelerator="cpu",
        devices=2,
        max_steps=5,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    torch.manual_seed(1)
    batches = torch.utils.data.DataLoader(torch.randn(32, WIDTH), batch_size=2)
    try:
        trainer.fit(model, batches)
        error = None
    except Exception as raised:
        error = raised
    assert watching.guard.kind == "ddp" and watching.guard.done
    nothing_left(model)
    return watching.guard, error, trainer.global_step


def main():
    guard, error, _ = fit(Model(reentrant=False))
    assert error is None and guard.step == 3 and not guard.findings, (error, guard.findings)
    _, error, steps = fit(Model(reentrant=True))
    assert isinstance(error, readyonce_guard.GuardError) and steps == 0, error
    assert {finding.code for finding in error.findings} == {"ranks", "twice"}, error
    assert "linear.weight" in str(error)
    guard, error, _ = fit(Model(reentrant=False, fails_at=1))
    assert isinstance(error, KeyError) and guard.step == 1, error
    print(f"RANK {os.environ['RANK']} DONE", flush=True)


if __name__ == "__main__":
    main()
