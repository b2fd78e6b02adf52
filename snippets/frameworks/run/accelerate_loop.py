"""An own loop with accelerate: torchrun --nproc-per-node 2 watch.py accelerate_loop.py old (or new: transformers 5.23)"""

import sys

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from setting import ADAPTED, CLIP, adapted, optimizer
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2)
model = adapted(LlamaForCausalLM(config)).train()

if sys.argv[1] == "new":
    # --8<-- [start:new]
    model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    # --8<-- [end:new]
else:
    # --8<-- [start:old]
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    # --8<-- [end:old]
rest = {"cpu": True, "mixed_precision": "bf16" if ADAPTED else "no"}
# --8<-- [start:find-unused]
accelerator = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)], **rest)
# --8<-- [end:find-unused]
loader = DataLoader(torch.randint(64, (8, 8)), batch_size=2)
model, optimizer, loader = accelerator.prepare(model, optimizer(model), loader)
for ids in loader:
    accelerator.backward(model(input_ids=ids, labels=ids).loss)
    if ADAPTED:
        accelerator.clip_grad_norm_(model.parameters(), CLIP)
    optimizer.step()
    optimizer.zero_grad()
accelerator.wait_for_everyone()
