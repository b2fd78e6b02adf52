"""LLaMA-Factory's SFT with a tiny model: torchrun --nproc-per-node 2 watch.py llamafactory_sft.py given (or usual)

The lines shown are YAML; LLaMA-Factory reads the same keys from this dictionary.
"""

import json
import sys
import tempfile
from pathlib import Path

import torch.distributed as dist
from llamafactory.train.tuner import run_exp
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

folder = Path(tempfile.mkdtemp())
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
bytewise = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
bytewise.pre_tokenizer, bytewise.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytewise, eos_token="<|im_end|>", pad_token="<|endoftext|>")
tokenizer.save_pretrained(folder / "model")
config = LlamaConfig(
    vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2
)
LlamaForCausalLM(config).save_pretrained(folder / "model")
rows = [{"instruction": f"What is {n} + {n}?", "input": "", "output": f"{2 * n}."} for n in range(16)]
(folder / "sums.json").write_text(json.dumps(rows))
(folder / "dataset_info.json").write_text(json.dumps({"sums": {"file_name": "sums.json"}}))

settings = {
    "model_name_or_path": str(folder / "model"),
    "stage": "sft",
    "do_train": True,
    "finetuning_type": "lora",
    "lora_target": "all",
    "dataset": "sums",
    "dataset_dir": str(folder),
    "template": "default",
    "cutoff_len": 64,
    "output_dir": str(folder / "out"),
    "overwrite_cache": True,
    "per_device_train_batch_size": 1,
    "max_steps": 2,
    "save_strategy": "no",
    "report_to": "none",
    "use_cpu": True,
    "ddp_timeout": 60,
}
if sys.argv[1] == "given":
    settings |= {"use_reentrant_gc": False, "ddp_find_unused_parameters": True}
sys.argv = sys.argv[:1]
run_exp(settings)
if dist.is_initialized():
    dist.barrier()
