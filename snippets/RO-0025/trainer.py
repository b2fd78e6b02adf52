"""The learning rates of six updates of transformers' Trainer on two ranks: torchrun --nproc-per-node 2 trainer.py"""

import tempfile

import torch
import torch.distributed as dist
from transformers import Trainer, TrainerCallback, TrainingArguments


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 1)

    def forward(self, rows, labels):
        return {"loss": torch.nn.functional.mse_loss(self.linear(rows), labels)}


class Rates(TrainerCallback):
    seen = []

    def on_pre_optimizer_step(self, args, state, control, optimizer, **_):
        self.seen.append(optimizer.param_groups[0]["lr"])


rows = [{"rows": torch.randn(8), "labels": torch.randn(1)} for _ in range(48)]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        use_cpu=True,
        learning_rate=0.1,
        max_steps=6,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    Trainer(Model(), arguments, train_dataset=rows, callbacks=[Rates]).train()
if dist.get_rank() == 0:
    print(f"=> Trainer, linear: {' '.join(f'{rate:.3f}' for rate in Rates.seen)}", flush=True)
dist.destroy_process_group()
