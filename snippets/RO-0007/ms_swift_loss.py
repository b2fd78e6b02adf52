"""A loss of one's own in ms-swift's SFT, with accumulation: torchrun --nproc-per-node 2 ms_swift_loss.py"""

import json

from one_process import ADAPTED, ANSWERS, CLIP, FOLDERS, Compare, seen, token_mean
from swift.callbacks import callbacks_map
from swift.loss import BaseLoss, loss_map
from swift.pipelines import sft_main
from transformers import LlamaForCausalLM


class Own(BaseLoss):
    def __call__(self, outputs, labels, *, num_items_in_batch=None, **more):
        seen[-1][1] = labels
        return token_mean(outputs, labels, num_items_in_batch)


loss_map["own"] = Own
callbacks_map["compare"] = lambda args, trainer: Compare("ms-swift, a class of loss_map")
folder = FOLDERS[LlamaForCausalLM]
with (folder / "data.jsonl").open("w") as data:
    for answer in ANSWERS:
        said = [{"role": "user", "content": "Count."}, {"role": "assistant", "content": answer}]
        data.write(json.dumps({"messages": said}) + "\n")
options = f"""
    --model {folder} --model_type llama --template qwen2_5 --check_model false --dataset {folder}/data.jsonl
    --output_dir {folder}/out --loss_type own --callbacks compare --fp16 false --use_cpu true --max_steps 1
    --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --split_dataset_ratio 0 --dataloader_num_workers 0
    --gradient_checkpointing false --save_strategy no --report_to none
"""
full = "--tuner_type full --torch_dtype float32 --bf16 false --optim sgd --max_grad_norm 0"
lora = "--tuner_type lora --target_modules all-linear --init_weights false --lora_dropout 0 --torch_dtype bfloat16"
lora += f" --bf16 true --optim adamw_torch --max_grad_norm {CLIP}"
sft_main([*options.split(), *(lora if ADAPTED else full).split()])
