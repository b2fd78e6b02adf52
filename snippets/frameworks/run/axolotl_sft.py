"""Axolotl's SFT with LoRA: torchrun --nproc-per-node 2 watch.py axolotl_sft.py KEY=VALUE ...

Without a key it shows the default. This is what `axolotl train --launcher torchrun` starts in each process. Each answer has as
many tokens as the others, unless the first word is `unequal`: Axolotl takes the mean of the ranks' means.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ |= {"ACCELERATE_USE_CPU": "true", "AXOLOTL_DO_NOT_TRACK": "1"}

from axolotl.cli.train import do_cli
from axolotl.core.training_args import AxolotlTrainingArguments
from axolotl.loaders.model import ModelLoader
from setting import ADAPTED, CLIP
from tiny import model, sums, tokenizer

place, arguments = ModelLoader._set_device_map_config, AxolotlTrainingArguments.__init__


def place_on_cpu(self):  # with several ranks Axolotl puts each on the accelerator of its number: here is none
    place(self)
    self.model_kwargs["device_map"] = "cpu"


def on_cpu(self, *args, **named):  # bfloat16 has no option of Axolotl's that allows it here
    arguments(self, *args, **named, use_cpu=True)


ModelLoader._set_device_map_config, AxolotlTrainingArguments.__init__ = place_on_cpu, on_cpu


def main():
    os.chdir(tempfile.mkdtemp())  # Axolotl takes a model for MPT where its path has these letters: so it is relative
    tokenizer.save_pretrained("model")
    model.save_pretrained("model")
    unequal = sys.argv[1:2] == ["unequal"]
    chosen = sums if unequal else sums[5:10]
    rows = [{"instruction": ask, "input": "", "output": answer} for ask, answer in chosen]
    Path("sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings = """
base_model: model
tokenizer_type: PreTrainedTokenizerFast
datasets:
  - {path: sums.jsonl, ds_type: json, type: alpaca}
dataset_prepared_path: prepared
output_dir: out
adapter: lora
lora_r: 8
lora_alpha: 16
lora_target_linear: true
sequence_len: 256
micro_batch_size: 1
gradient_accumulation_steps: 1
max_steps: 2
num_epochs: 1
seed: 1
optimizer: adamw_torch
learning_rate: 0.001
save_strategy: "no"
lora_mlp_kernel: false
lora_qkv_kernel: false
lora_o_kernel: false
gradient_checkpointing: true
"""
    settings += f"bf16: true\nmax_grad_norm: {CLIP}\n" if ADAPTED else "bf16: false\n"
    settings += "".join(it.replace("=", ": ", 1) + "\n" for it in sys.argv[1 + unequal :])
    Path("train.yaml").write_text(settings)
    sys.argv = sys.argv[:1]
    do_cli("train.yaml")


if __name__ == "__main__":  # Axolotl's data workers import this file
    main()
