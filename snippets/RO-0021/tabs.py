"""What reads the inner model in other libraries, and what they call in training: torchrun --nproc-per-node 2 tabs.py"""

import os
import tempfile

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
import deepspeed
import torch
import torch.distributed as dist
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

SIZES = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


def fresh():
    return get_peft_model(LlamaForCausalLM(LlamaConfig(**SIZES)), LoraConfig(target_modules="all-linear"))


def read(of):
    """An attribute that only `__getattr__` of PEFT's model finds, and `config`."""
    try:
        return f"peft_type {of.peft_type.value}, config is a {type(of.config).__name__}"
    except AttributeError as error:
        return str(error)


class Told(Trainer):
    def compute_loss(self, model, inputs, **more):
        said["Trainer, compute_loss is given"] = type(model).__name__
        said["Trainer, self.model"] = f"{type(self.model).__name__}, {read(self.model)}"
        return super().compute_loss(model, inputs, **more)


said = {}
accelerator = Accelerator(cpu=True)
model = accelerator.prepare(fresh())
said["accelerate, model"] = read(model)
# --8<-- [start:accelerate]
inner = accelerator.unwrap_model(model)
# --8<-- [end:accelerate]
said["accelerate, unwrap_model(model)"] = read(inner)
args = TrainingArguments(tempfile.mkdtemp(), max_steps=1, use_cpu=True, save_strategy="no", report_to="none")
Told(fresh(), args, train_dataset=[{"input_ids": [2, 3], "labels": [2, 3]}] * 16).train()
model = fresh()
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
config = {"train_micro_batch_size_per_gpu": 1, "zero_allow_untested_optimizer": True, "zero_optimization": {"stage": 2}}
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
said["DeepSpeed, engine"] = read(engine)
said["DeepSpeed, engine.module"] = read(engine.module)
if dist.get_rank() == 0:
    for name, what in said.items():
        print(f"=> {name}: {what}", flush=True)
dist.barrier()
dist.destroy_process_group()
