"""A loss of one's own in TRL's trainers, with accumulation: torchrun --nproc-per-node 2 trl_loss.py

SFT's is the token mean; in the other trainers it is any mean over a micro-batch, and the objective is the mean of those.
"""

import torch
import torch.distributed as dist
import trl
from datasets import Dataset
from one_process import ADAPTED, ANSWERS, FOLDERS, OPTIONS, Compare, seen, token_mean, tokenizer
from peft import LoraConfig
from transformers import LlamaForCausalLM, LlamaForSequenceClassification

PAIRS = {"prompt": ["Count."] * 16, "chosen": ANSWERS, "rejected": ANSWERS[::-1]}
DATA = {"SFT": {"text": ANSWERS}, "DPO": PAIRS, "Reward": PAIRS, "RLOO": {"prompt": ANSWERS}}
DATA["KTO"] = {"prompt": ["Count."] * 16, "completion": ANSWERS, "label": [True, False] * 8}
OF_RLOO = {"num_generations": 2, "max_completion_length": 4}


def train(name, times_ranks=False):
    class Own(getattr(trl, f"{name}Trainer")):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            given = {key: inputs[key] for key in ("input_ids", "attention_mask") if key in inputs}
            if name == "RLOO":
                given = {"input_ids": torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)}
            seen.append([given, inputs.get("labels")])
            outputs = model(**given)
            if name != "SFT":
                return outputs.logits.square().mean()  # divided by nothing
            loss = token_mean(outputs, inputs["labels"], num_items_in_batch)
            return loss * self.accelerator.num_processes if times_ranks else loss

    kind = LlamaForSequenceClassification if name == "Reward" else LlamaForCausalLM
    rest = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "max_steps": 1, **OPTIONS}
    rest |= {"bf16": ADAPTED, "use_cpu": True, "save_strategy": "no", "report_to": "none"}
    args = getattr(trl, f"{name}Config")(FOLDERS[kind] / "out", **rest, **(OF_RLOO if name == "RLOO" else {}))
    more = {"reward_funcs": lambda completions, **_: [float(len(it)) for it in completions]} if name == "RLOO" else {}
    more |= {"train_dataset": Dataset.from_dict(DATA[name]), "processing_class": tokenizer}
    if ADAPTED:
        more["peft_config"] = LoraConfig(target_modules="all-linear", init_lora_weights=False)
    said = Compare(f"{name}Trainer{', times the ranks' * times_ranks}", watch=False)
    Own(kind.from_pretrained(FOLDERS[kind], dtype=torch.float32), args=args, callbacks=[said], **more).train()


train("SFT", times_ranks=True)
for each in DATA:
    train(each)
dist.destroy_process_group()
