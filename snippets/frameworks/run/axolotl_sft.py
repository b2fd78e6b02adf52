"""Axolotl's SFT with a tiny model: torchrun --nproc-per-node 2 watch.py axolotl_sft.py given (or usual)

The lines shown are YAML; they are what stands in the file that this writes.
"""

import json
import sys
import tempfile
from pathlib import Path

from axolotl.cli.config import load_cfg
from axolotl.common.datasets import load_datasets
from axolotl.train import train
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
(folder / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))

settings = f"""
base_model: {folder}/model
tokenizer_type: PreTrainedTokenizerFast
datasets:
  - {{path: {folder}/sums.jsonl, ds_type: json, type: alpaca}}
dataset_prepared_path: {folder}/prepared
output_dir: {folder}/out
adapter: lora
lora_r: 8
lora_alpha: 16
lora_target_linear: true
sequence_len: 256
micro_batch_size: 1
gradient_accumulation_steps: 1
max_steps: 2
num_epochs: 1
optimizer: adamw_torch
learning_rate: 0.001
bf16: false
fp16: false
use_cpu: true
save_strategy: "no"
gradient_checkpointing: true
"""
if sys.argv[1] == "given":
    settings += "gradient_checkpointing_kwargs: {use_reentrant: false}\nddp_find_unused_parameters: true\n"
(folder / "settings.yml").write_text(settings)
sys.argv = sys.argv[:1]
configuration = load_cfg(str(folder / "settings.yml"))
train(cfg=configuration, dataset_meta=load_datasets(cfg=configuration))
