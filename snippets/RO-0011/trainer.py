"""`max_grad_norm` of transformers' Trainer, compared with one process: torchrun --nproc-per-node 2 trainer.py

With `bf16-lora` behind it, it is LoRA in bfloat16 with AdamW.
"""

import os
import tempfile

import torch
import torch.distributed as dist
from on_cpu import BOUND, REST, SIZES, OnCpu, adapted, beside_one_process
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

STRATEGIES = {"DDP": None, "FSDP1": {"use_orig_params": False}, "FSDP1, use_orig_params": {"use_orig_params": True}}
STRATEGIES["FSDP2"] = {"fsdp_version": 2}


def fresh():
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES, num_attention_heads=2, initializer_range=0.2, use_cache=False))
    return adapted(model)


class Own(OnCpu, Trainer):
    pass


def make(callbacks):
    args = TrainingArguments(tempfile.mkdtemp(), max_grad_norm=BOUND, **REST)
    rows = [{"input_ids": row, "labels": row} for row in data]
    return Own(fresh(), args, train_dataset=rows, callbacks=callbacks)


data = torch.randint(32, (12, 8), generator=torch.Generator().manual_seed(1))
beside_one_process(fresh, data, STRATEGIES, Own, make)
dist.barrier()
os._exit(0)  # else gloo's threads may abort at the end: pytorch/pytorch#154976
