"""The auxiliary loss in ms-swift's SFT, with accumulation: torchrun --nproc-per-node 2 ms_swift_moe.py model

With `own` in the place of `model` ms-swift computes the loss itself, because it shows the loss of each channel.
"""

import json
import sys

from one_process import ADAPTED, ANSWERS, CLIP, COEFFICIENT, OPTIM, Compare, folder, see
from swift.callbacks import callbacks_map
from swift.pipelines import sft_main
from swift.trainers import Seq2SeqTrainer

(whose,) = sys.argv[1:]


class Seen(Compare):
    def on_train_begin(self, *args, **more):
        super().on_train_begin(*args, **more)
        compute_loss = Seq2SeqTrainer.compute_loss

        def then(trainer, model, inputs, *rest, **more):
            see(inputs)
            return compute_loss(trainer, model, inputs, *rest, **more)

        Seq2SeqTrainer.compute_loss = then


said = "ms-swift, the model's loss" if whose == "model" else "ms-swift, a loss of its own"
callbacks_map["compare"] = lambda args, trainer: Seen(said, watch=False, by_tokens=True)
with (folder / "data.jsonl").open("w") as data:
    for answer in ANSWERS:
        said_by = [{"role": "user", "content": "Count."}, {"role": "assistant", "content": answer}]
        data.write(json.dumps({"messages": said_by, "channel": "one"}) + "\n")
options = f"""
    --model {folder} --model_type qwen3_moe --template qwen2_5 --check_model false --dataset {folder}/data.jsonl
    --output_dir {folder}/out --router_aux_loss_coef {COEFFICIENT} --enable_channel_loss {whose == 'own'}
    --callbacks compare --bf16 {ADAPTED} --fp16 false --use_cpu true --max_steps 1
    --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --split_dataset_ratio 0 --dataloader_num_workers 0
    --optim {OPTIM} --max_grad_norm {CLIP} --gradient_checkpointing false --save_strategy no --report_to none
"""
full = "--tuner_type full --torch_dtype float32"
options += "--tuner_type lora --torch_dtype bfloat16 --lora_dropout 0" if ADAPTED else full
sft_main(options.split())
