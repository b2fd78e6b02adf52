"""The auxiliary loss in LLaMA-Factory's SFT: torchrun --nproc-per-node 2 llamafactory_moe.py (and a divisor, as 8)"""

import json
import sys

from llamafactory.train.tuner import run_exp
from one_process import ADAPTED, ANSWERS, CLIP, COEFFICIENT, OPTIM, Compare, folder

divisor = int(sys.argv[1])
del sys.argv[1:]
rows = [{"instruction": "Count.", "input": "", "output": answer} for answer in ANSWERS]
(folder / "rows.json").write_text(json.dumps(rows))
(folder / "dataset_info.json").write_text(json.dumps({"rows": {"file_name": "rows.json"}}))
settings = {"stage": "sft", "do_train": True, "model_name_or_path": str(folder)}
settings |= {"dataset": "rows", "dataset_dir": str(folder), "template": "default", "output_dir": f"{folder}/out"}
settings |= {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "max_steps": 1, "optim": OPTIM}
settings |= {"max_grad_norm": CLIP, "disable_gradient_checkpointing": True, "save_strategy": "no", "use_cpu": True}
settings |= {"moe_aux_loss_coef": COEFFICIENT / divisor, "report_to": "none"}
settings |= {"bf16": ADAPTED, "finetuning_type": "lora" if ADAPTED else "full"}
run_exp(settings, [Compare(f"LLaMA-Factory, the value divided by {divisor}")])
