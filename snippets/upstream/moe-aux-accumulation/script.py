"""Trainer: an MoE's router auxiliary loss is multiplied by gradient_accumulation_steps, on one process too.

python script.py                          # one process, 4 micro-batches: 4 times too large
torchrun --nproc-per-node 2 script.py     # two processes: 8 times; the 2 is #48690
python script.py 1                        # one process, no accumulation: right
"""

import os
import sys
import tempfile

import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM, Trainer, TrainerCallback, TrainingArguments

STEPS, RANKS, RATE = int([*sys.argv, 4][1]), int(os.environ.get("WORLD_SIZE", 1)), 0.1
torch.manual_seed(1)
ROW = torch.randint(32, (24,))  # of every micro-batch, twice


def model(coefficient):
    torch.manual_seed(5)
    sizes = dict(vocab_size=32, hidden_size=16, intermediate_size=16, moe_intermediate_size=8, num_hidden_layers=1)
    heads = dict(num_attention_heads=2, num_key_value_heads=2, head_dim=8, initializer_range=0.2)
    experts = dict(num_experts=4, num_experts_per_tok=2, output_router_logits=True, router_aux_loss_coef=coefficient)
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(**sizes, **heads, **experts))


class First(TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **_):
        self.router = model.model.layers[0].mlp.gate.weight.detach().clone()


def step_of_trainer(coefficient):
    """The router's first gradient: plain SGD, so it is how far the weight moved, over the learning rate."""
    trained, first = model(coefficient), First()
    start = trained.model.layers[0].mlp.gate.weight.detach().clone()
    with tempfile.TemporaryDirectory() as folder:
        plain = dict(optim="sgd", learning_rate=RATE, lr_scheduler_type="constant", max_grad_norm=0, use_cpu=True)
        quiet = dict(report_to=[], disable_tqdm=True, logging_strategy="no", save_strategy="no")
        size = dict(per_device_train_batch_size=2, gradient_accumulation_steps=STEPS, max_steps=1)
        rows = [{"input_ids": ROW, "labels": ROW}] * (2 * STEPS * RANKS)
        args = TrainingArguments(folder, **plain, **quiet, **size)
        Trainer(trained, args, train_dataset=rows, callbacks=[first]).train()
    return (start - first.router) / RATE


alone = model(0.1)  # coefficient times the auxiliary loss, by itself
inputs = torch.stack([ROW, ROW])
(0.1 * alone(input_ids=inputs).aux_loss).backward()
expected = alone.model.layers[0].mlp.gate.weight.grad
seen = step_of_trainer(0.1) - step_of_trainer(0.0)
if int(os.environ.get("RANK", 0)) == 0:
    print(f"expected {expected.norm():.4f}, the norm of the router's gradient from coefficient times auxiliary loss")
    print(f"seen     {seen.norm():.4f}, {seen.norm() / expected.norm():.1f} times it", flush=True)
os._exit(0)
