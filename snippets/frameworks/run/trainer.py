"""transformers' Trainer, two processes: torchrun --nproc-per-node 2 watch.py trainer.py old

Or `new`, which transformers 5.23 has; or `unset`, which shows the default.
"""

import sys
import tempfile

from setting import ADAPTED, CLIP, adapted
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

config = LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2)
data = [{"input_ids": list(range(n, n + 8)), "labels": list(range(n, n + 8))} for n in range(32)]
rest = {"output_dir": tempfile.mkdtemp(), "use_cpu": True, "max_steps": 2, "save_strategy": "no", "report_to": "none"}
rest |= {"bf16": True, "optim": "adamw_torch", "max_grad_norm": CLIP} if ADAPTED else {"optim": "sgd"}

if sys.argv[1] == "new":
    # --8<-- [start:new]
    args = TrainingArguments(
        activation_checkpointing=True,
        activation_checkpointing_kwargs={"use_reentrant": False},
        **rest,
    )
    # --8<-- [end:new]
elif sys.argv[1] == "unset":
    args = TrainingArguments(gradient_checkpointing=True, **rest)
else:
    # --8<-- [start:old]
    args = TrainingArguments(
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        **rest,
    )
    # --8<-- [end:old]
# --8<-- [start:find-unused]
args.ddp_find_unused_parameters = True
# --8<-- [end:find-unused]
Trainer(adapted(LlamaForCausalLM(config)), args, train_dataset=data).train()
