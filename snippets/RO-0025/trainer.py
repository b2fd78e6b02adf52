"""The learning rates of six updates of transformers' Trainer on two ranks: torchrun --nproc-per-node 2 trainer.py

With `bf16-lora` of LoRA in bfloat16, with AdamW and clipping, whose first gradient is compared with one process.
"""

import copy
import sys
import tempfile

import torch
import torch.distributed as dist
from transformers import Trainer, TrainerCallback, TrainingArguments

ADAPTED = "bf16-lora" in sys.argv


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 1)

    def forward(self, rows, labels):
        batches.append((rows, labels))
        return {"loss": torch.nn.functional.mse_loss(self.linear(rows), labels)}


class Rates(TrainerCallback):
    seen = []

    def on_pre_optimizer_step(self, args, state, control, optimizer, **_):
        self.seen.append(optimizer.param_groups[0]["lr"])


def trained(model):
    return [p for p in model.parameters() if p.requires_grad]


def before_clipping(parameters, *rest):
    grads.append(torch.cat([p.grad.flatten() for p in trained(model)]))
    norm = clip(parameters, *rest)
    assert norm > 0.01 or not ADAPTED
    return norm


def one_process(bf16):
    alone.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        sum(alone(rows=rows, labels=wanted)["loss"] for rows, wanted in first).div(len(first)).backward()
    return torch.cat([p.grad.flatten() for p in trained(alone)])


torch.manual_seed(0)
batches, grads, model, more = [], [], Model(), {}
if ADAPTED:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(model, LoraConfig(target_modules=["linear"], init_lora_weights=False))
    more = {"bf16": True, "optim": "adamw_torch", "max_grad_norm": 0.01}
alone = copy.deepcopy(model)
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
        **more,
    )
    trainer = Trainer(model, arguments, train_dataset=rows, callbacks=[Rates])
    clip, trainer.accelerator.clip_grad_norm_ = trainer.accelerator.clip_grad_norm_, before_clipping
    trainer.train()
every = [None, None]
dist.all_gather_object(every, batches[:2])  # of the first update
if dist.get_rank() == 0:
    setting = "LoRA in bf16, AdamW, clipping | " if ADAPTED else ""
    print(f"=> {setting}Trainer, linear: {' '.join(f'{rate:.3f}' for rate in Rates.seen)}", flush=True)
    if ADAPTED:
        first = sum(every, [])
        half, full = one_process(True), one_process(False)
        apart, rounding = (((it - half).norm() / half.norm()).item() for it in (grads[0], full))
        right = "is one process's" if apart <= 3 * rounding else "is not one process's"
        print(f"=> {setting}Trainer: the first gradient {right}\ndistance {apart:.1e}, of bf16 {rounding:.1e}", flush=True)
dist.destroy_process_group()
