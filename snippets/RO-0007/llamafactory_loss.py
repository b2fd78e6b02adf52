"""A loss of one's own in LLaMA-Factory's SFT, with accumulation: torchrun --nproc-per-node 2 llamafactory_loss.py"""

import json

import torch
from llamafactory.train.sft import workflow
from llamafactory.train.tuner import run_exp
from one_process import ADAPTED, ANSWERS, FOLDERS, OPTIONS, Compare, seen, token_mean
from transformers import LlamaForCausalLM


class Own(workflow.CustomSeq2SeqTrainer):
    def __init__(self, **more):
        super().__init__(**more)
        self.compute_loss_func = own  # the line that a reader writes where that of `use_dft_loss` stands
        for name, p in self.model.named_parameters():
            if "lora_B" in name:  # 0 at the start, so that A would have no gradient
                torch.nn.init.normal_(p, std=0.1)


def own(outputs, labels, num_items_in_batch=None):
    seen[-1][1] = labels
    return token_mean(outputs, labels, num_items_in_batch)


workflow.CustomSeq2SeqTrainer = Own
folder = FOLDERS[LlamaForCausalLM]
rows = [{"instruction": "Count.", "input": "", "output": answer} for answer in ANSWERS]
(folder / "rows.json").write_text(json.dumps(rows))
(folder / "dataset_info.json").write_text(json.dumps({"rows": {"file_name": "rows.json"}}))
settings = {"stage": "sft", "do_train": True, "model_name_or_path": str(folder)}
settings |= {"dataset": "rows", "dataset_dir": str(folder), "template": "default", "output_dir": f"{folder}/out"}
settings |= {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "max_steps": 1, **OPTIONS}
settings |= {"bf16": True, "finetuning_type": "lora"} if ADAPTED else {"finetuning_type": "full"}
settings |= {"disable_gradient_checkpointing": True, "save_strategy": "no", "use_cpu": True}
run_exp(settings | {"report_to": "none"}, [Compare("LLaMA-Factory, compute_loss_func")])
