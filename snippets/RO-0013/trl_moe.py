"""The auxiliary loss in TRL's SFT, with accumulation: torchrun --nproc-per-node 2 trl_moe.py"""

import torch.distributed as dist
from datasets import Dataset
from one_process import ADAPTED, ANSWERS, CLIP, COEFFICIENT, DTYPE, OPTIM, Compare, folder, see, tokenizer
from peft import LoraConfig
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
    optim=OPTIM,
    max_grad_norm=CLIP,
    bf16=ADAPTED,
    use_cpu=True,
    gradient_checkpointing=False,
    save_strategy="no",
    report_to="none",
)
model = Qwen3MoeForCausalLM.from_pretrained(folder, dtype=DTYPE)
rest = {"train_dataset": Dataset.from_dict({"text": ANSWERS}), "processing_class": tokenizer}
if ADAPTED:
    rest["peft_config"] = LoraConfig(target_modules="all-linear", lora_dropout=0)
trainer = Seen(model, args=args, callbacks=[Compare("SFTTrainer", watch=False, asked=False)], **rest)
assert trainer.router_aux_loss_coef == COEFFICIENT
trainer.train()
dist.destroy_process_group()
