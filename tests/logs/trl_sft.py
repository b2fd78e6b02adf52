"""TRL's SFT with LoRA under ZeRO-3, checkpointing as TRL sets it: `torchrun --nproc-per-node 2 trl_sft.py`.

With DeepSpeed 0.19.2, TRL 0.27.2 checkpoints non-reentrantly and fails; 0.28.0 makes it reentrant. CPU is enough.
"""

import os
import tempfile

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch.distributed as dist
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, set_seed
from trl import SFTConfig, SFTTrainer

deepspeed.init_distributed("gloo", verbose=False)
set_seed(0)
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
bytewise = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
bytewise.pre_tokenizer, bytewise.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytewise, eos_token="<|im_end|>", pad_token="<|endoftext|>")
config = Qwen2Config(
    vocab_size=len(tokenizer),
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    eos_token_id=tokenizer.eos_token_id,
    pad_token_id=tokenizer.pad_token_id,
    bos_token_id=None,
)
zero3 = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "zero_optimization": {"stage": 3},
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
}
with tempfile.TemporaryDirectory() as folder:
    settings = SFTConfig(
        folder,
        use_cpu=True,
        bf16=False,
        deepspeed=zero3,
        gradient_checkpointing=True,
        per_device_train_batch_size=1,
        max_steps=2,
        optim="sgd",
        save_strategy="no",
        report_to="none",
    )
    trainer = SFTTrainer(
        Qwen2ForCausalLM(config),
        settings,
        train_dataset=Dataset.from_dict({"text": [f"What is {n} + {n}? {2 * n}." for n in range(16)]}),
        processing_class=tokenizer,
        peft_config=LoraConfig(target_modules="all-linear"),
    )
    trainer.train()
    if dist.get_rank() == 0:
        print(f"Finished. Checkpointing: {settings.gradient_checkpointing_kwargs}")
