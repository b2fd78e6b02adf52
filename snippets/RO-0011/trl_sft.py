"""`max_grad_norm` of TRL's SFTTrainer, compared with one process: torchrun --nproc-per-node 2 trl_sft.py

With `bf16-lora` behind it, it is LoRA in bfloat16 with AdamW.
"""

import os
import tempfile

import torch
import torch.distributed as dist
from datasets import Dataset
from on_cpu import BOUND, REST, SIZES, OnCpu, adapted, beside_one_process
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

STRATEGIES = {"DDP": None, "FSDP1": {"use_orig_params": False}, "FSDP2": {"fsdp_version": 2}}
words = Tokenizer(models.WordLevel({f"w{n}": n for n in range(32)}, unk_token="w0"))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w1", pad_token="w2")


def fresh():
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES, num_attention_heads=2, initializer_range=0.2, pad_token_id=2))
    return adapted(model)


class Own(OnCpu, SFTTrainer):
    pass


def make(callbacks):
    args = SFTConfig(tempfile.mkdtemp(), max_grad_norm=BOUND, **REST)
    rows = Dataset.from_dict({"input_ids": data.tolist()})
    return Own(fresh(), args, train_dataset=rows, processing_class=tokenizer, callbacks=callbacks)


data = torch.randint(3, 32, (12, 8), generator=torch.Generator().manual_seed(1))
beside_one_process(fresh, data, STRATEGIES, Own, make)
dist.barrier()
os._exit(0)  # else gloo's threads may abort at the end: pytorch/pytorch#154976
