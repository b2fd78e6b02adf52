"""An own loop with accelerate: torchrun --nproc-per-node 2 watch.py accelerate_loop.py old (or new: transformers 5.23)"""

import sys

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2)
model = LlamaForCausalLM(config).train()

if sys.argv[1] == "new":
    # --8<-- [start:new]
    model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    # --8<-- [end:new]
else:
    # --8<-- [start:old]
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    # --8<-- [end:old]
rest = {"cpu": True}
# --8<-- [start:find-unused]
accelerator = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)], **rest)
# --8<-- [end:find-unused]
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
ids = torch.arange(8).repeat(2, 1)
for _ in range(2):
    accelerator.backward(model(input_ids=ids, labels=ids).loss)
    optimizer.step()
    optimizer.zero_grad()
accelerator.wait_for_everyone()
