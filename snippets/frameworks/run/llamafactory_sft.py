"""LLaMA-Factory's SFT with LoRA: torchrun --nproc-per-node 2 watch.py llamafactory_sft.py KEY=VALUE ...

Without a key it shows the defaults. This is what `FORCE_TORCHRUN=1 llamafactory-cli train` starts in each process.
"""

import json
import sys
import tempfile
from pathlib import Path

from llamafactory.cli import main
from setting import ADAPTED, CLIP
from tiny import model, sums, tokenizer

folder = Path(tempfile.mkdtemp())
tokenizer.save_pretrained(folder / "model")
model.save_pretrained(folder / "model")
(folder / "sums.json").write_text(json.dumps([{"instruction": ask, "input": "", "output": answer} for ask, answer in sums]))
(folder / "dataset_info.json").write_text(json.dumps({"sums": {"file_name": "sums.json"}}))
settings = f"""
model_name_or_path: {folder}/model
stage: sft
do_train: true
finetuning_type: lora
lora_target: all
dataset: sums
dataset_dir: {folder}
template: default
cutoff_len: 64
output_dir: {folder}/out
per_device_train_batch_size: 1
max_steps: 2
save_strategy: "no"
report_to: none
use_cpu: true
"""
if ADAPTED:
    settings += f"bf16: true\nmax_grad_norm: {CLIP}\n"
settings += "".join(it.replace("=", ": ") + "\n" for it in sys.argv[1:])
(folder / "train.yaml").write_text(settings)
sys.argv = ["llamafactory-cli", "train", f"{folder}/train.yaml"]
main()
