"""TRL's SFT: torchrun --nproc-per-node 2 watch.py trl_sft.py old (or new: transformers 5.23), or zero3, zero3-unset

`zero3` gives `use_reentrant: False` to LoRA under ZeRO-3; `unset` and `zero3-unset` give nothing.
"""

import os
import sys
import tempfile

from datasets import Dataset
from peft import LoraConfig
from setting import ADAPTED, CLIP
from tiny import model, sums, tokenizer
from trl import SFTConfig, SFTTrainer

form = sys.argv[1]
rest = {"output_dir": tempfile.mkdtemp(), "use_cpu": True, "bf16": ADAPTED, "max_steps": 2}
rest |= {"optim": "adamw_torch", "max_grad_norm": CLIP} if ADAPTED else {"optim": "sgd"}
rest |= {"save_strategy": "no", "report_to": "none", "per_device_train_batch_size": 1}
if form.startswith("zero3"):
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed

    deepspeed.init_distributed("gloo", verbose=False)
    rest["deepspeed"] = {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "zero_optimization": {"stage": 3},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }

if form == "new":
    # --8<-- [start:new]
    args = SFTConfig(
        activation_checkpointing=True,
        activation_checkpointing_kwargs={"use_reentrant": False},
        **rest,
    )
    # --8<-- [end:new]
elif form in ("unset", "zero3-unset"):
    args = SFTConfig(gradient_checkpointing=True, **rest)
else:
    # --8<-- [start:old]
    args = SFTConfig(
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        **rest,
    )
    # --8<-- [end:old]
# --8<-- [start:find-unused]
args.ddp_find_unused_parameters = True
# --8<-- [end:find-unused]
trainer = SFTTrainer(
    model,
    args,
    train_dataset=Dataset.from_dict({"text": [f"{ask} {answer}" for ask, answer in sums]}),
    processing_class=tokenizer,
    peft_config=LoraConfig(target_modules="all-linear", init_lora_weights=False),
)
trainer.train()
