"""The auxiliary loss in TRL's SFT, with accumulation: torchrun --nproc-per-node 2 trl_moe.py"""

import torch
import torch.distributed as dist
from datasets import Dataset
from one_process import ANSWERS, COEFFICIENT, Compare, folder, see, tokenizer
from transformers import Qwen3MoeForCausalLM
from trl import SFTConfig, SFTTrainer


class Seen(SFTTrainer):
    def compute_loss(self, model, inputs, *rest, **more):
        see(inputs)
        return super().compute_loss(model, inputs, *rest, **more)


args = SFTConfig(
    folder / "out",
    router_aux_loss_coef=COEFFICIENT,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=4,
    max_steps=1,
    optim="sgd",
    max_grad_norm=0,
    bf16=False,
    use_cpu=True,
    gradient_checkpointing=False,
    save_strategy="no",
    report_to="none",
)
model = Qwen3MoeForCausalLM.from_pretrained(folder, dtype=torch.float32)
rest = {"train_dataset": Dataset.from_dict({"text": ANSWERS}), "processing_class": tokenizer}
trainer = Seen(model, args=args, callbacks=[Compare("SFTTrainer", watch=False, asked=False)], **rest)
assert trainer.router_aux_loss_coef == COEFFICIENT
trainer.train()
dist.destroy_process_group()
