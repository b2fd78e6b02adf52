"""Experts that differ between the ranks, in ms-swift's SFT under ZeRO-2: torchrun --nproc-per-node 2 ms_swift_moe.py

The weights of a tiny Qwen3-MoE are compared with one process that is given the batches of both ranks. With `bf16-lora` it
is the first gradient, of LoRA in bfloat16, with AdamW and clipping.
"""

import copy
import json
import os
import tempfile
from pathlib import Path

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
import torch
import torch.distributed as dist
import transformers
from second import ADAPTED, CLIP, ZERO, of_ranks, verdict
from swift.callbacks import callbacks_map
from swift.pipelines import sft_main
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3MoeConfig, Qwen3MoeForCausalLM, TrainerCallback

SIZES = {"vocab_size": 272, "hidden_size": 16, "intermediate_size": 16, "moe_intermediate_size": 8, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8, "num_experts": 32, "num_experts_per_tok": 1}
KEYS, RATE = ("input_ids", "attention_mask", "labels", "logits_to_keep"), 0.5
ZERO2 = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "gradient_clipping": 0.0}
ZERO2 |= {"zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False, "zero_optimization": {"stage": 2}} | ZERO
letters = {letter: n for n, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
bytewise = Tokenizer(models.BPE(vocab=letters, merges=[]))
bytewise.pre_tokenizer, bytewise.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
folder = Path(tempfile.mkdtemp())
PreTrainedTokenizerFast(tokenizer_object=bytewise, eos_token="<|im_end|>", pad_token="<|endoftext|>").save_pretrained(folder)
torch.manual_seed(0)
Qwen3MoeForCausalLM(Qwen3MoeConfig(**SIZES, **HEADS, initializer_range=0.5)).save_pretrained(folder)
steps, experts = [], set()


class Compare(TrainerCallback):
    def __init__(self, trainer):
        self.trainer = trainer

    def on_train_begin(self, args, state, control, model, **more):
        self.alone, inner = (copy.deepcopy(model), model.get_base_model()) if ADAPTED else (None, model)
        self.step, self.got = self.trainer.model_wrapped.step, []
        self.trainer.model_wrapped.step = self.before_step
        model.register_forward_pre_hook(self.see, with_kwargs=True)
        inner.model.layers[0].mlp.gate.register_forward_hook(lambda gate, _, out: experts.update(out[-1].flatten().tolist()))

    def before_step(self, *args, **more):
        self.got += [of_ranks(self.trainer.model)] if ADAPTED else []
        self.step(*args, **more)

    def see(self, model, _, given):
        steps.append({key: given[key] for key in KEYS if key in given})

    def on_train_end(self, args, state, control, model, optimizer, **more):
        every, told = [None, None], [None, None]
        dist.all_gather_object(every, steps), dist.all_gather_object(told, experts)
        alike = "the same experts" if told[0] == told[1] else "different experts"
        release = f"transformers {transformers.__version__}, {type(optimizer.optimizer).__name__}, {alike}"

        def losses(alone, batches):
            tokens = [it["labels"][:, 1:].ne(-100).sum() for it in batches]
            return [alone(**it).loss * count / sum(tokens) for it, count in zip(batches, tokens, strict=True)]

        if ADAPTED:
            batches = next(zip(*every, strict=True))
            return verdict(f"ms-swift with {release}", self.got[0], self.alone, lambda alone: losses(alone, batches))
        alone = Qwen3MoeForCausalLM.from_pretrained(folder, dtype=torch.float32)
        sgd, first = torch.optim.SGD(alone.parameters(), lr=RATE), [p.detach().clone() for p in alone.parameters()]
        for batches in zip(*every, strict=True):
            sum(losses(alone, batches)).backward()
            sgd.step()
            sgd.zero_grad()
        both = (model.parameters(), alone.parameters(), first)
        got, wanted, start = (torch.cat([p.detach().flatten() for p in it]) for it in both)
        apart = ((got - wanted).norm() / (start - wanted).norm()).item()
        if dist.get_rank() == 0:
            right = "equal" if apart < 1e-5 else "are not"
            print(f"\n=> ms-swift with {release}: the weights {right} one process's", flush=True)
            print(f"distance {apart:.1e}, of rank 0 only {told[0] - told[1]}, of rank 1 only {told[1] - told[0]}", flush=True)


callbacks_map["compare"] = lambda args, trainer: Compare(trainer)
with (folder / "data.jsonl").open("w") as data:
    for n in range(6):
        said = [{"role": "user", "content": "Count."}, {"role": "assistant", "content": ("abcde", "vwxyz")[n % 2] * (1 + n)}]
        data.write(json.dumps({"messages": said}) + "\n")
(folder / "zero2.json").write_text(json.dumps(ZERO2))
options = f"""
    --model {folder} --model_type qwen3_moe --template qwen2_5 --check_model false --dataset {folder}/data.jsonl
    --output_dir {folder}/out --deepspeed {folder}/zero2.json --callbacks compare --fp16 false --use_cpu true
    --max_steps {1 if ADAPTED else 3} --per_device_train_batch_size 1 --split_dataset_ratio 0 --dataloader_num_workers 0
    --gradient_accumulation_steps 1 --learning_rate {RATE} --lr_scheduler_type constant --warmup_ratio 0 --weight_decay 0
    --gradient_checkpointing false --save_strategy no --report_to none
"""
if ADAPTED:
    options += f"""
        --bf16 true --torch_dtype bfloat16 --optim adamw_torch --max_grad_norm {CLIP} --tuner_type lora --lora_dropout 0
        --init_weights false --target_modules q_proj v_proj --target_parameters experts.gate_up_proj experts.down_proj
    """
else:
    options += "--bf16 false --torch_dtype float32 --optim sgd --max_grad_norm 0 --tuner_type full"
sft_main(options.split())
