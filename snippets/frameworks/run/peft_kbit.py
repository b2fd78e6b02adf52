"""QLoRA's preparation, a model in 4 bits: torchrun --nproc-per-node 2 watch.py peft_kbit.py (needs bitsandbytes)"""

import tempfile

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from setting import ADAPTED, clip, optimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

config = LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2)
folder = tempfile.mkdtemp()
LlamaForCausalLM(config).save_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(
    folder, quantization_config=BitsAndBytesConfig(load_in_4bit=True), device_map={"": "cpu"}
)
assert model.is_loaded_in_4bit
# --8<-- [start:checkpointing]
model = prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": False})
# --8<-- [end:checkpointing]
model = get_peft_model(model, LoraConfig(target_modules="all-linear", init_lora_weights=False)).train()
dist.init_process_group("gloo")
model = DistributedDataParallel(model, find_unused_parameters=True)
optimizer, data = optimizer(model), torch.randint(64, (8, 8))
for ids in DataLoader(data, batch_size=2, sampler=DistributedSampler(data)):
    with torch.autocast("cpu", torch.bfloat16, enabled=ADAPTED):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    clip(model)
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
