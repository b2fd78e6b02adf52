"""TRL with Liger's loss under ZeRO-3, compared with one process: torchrun --nproc-per-node 2 trl_liger.py DPO

Also with KTO or GRPO in the place of DPO, and with `without` after it: TRL 1.16 has a loss of the same kind of its own.
One process computes the same loss by itself, from the batches of both ranks. With the word `bf16-lora` LoRA is trained in
bfloat16 with AdamW and clipping; the reference is the model without its adapter.
"""

import os
import sys
import tempfile
from contextlib import nullcontext

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # Liger compiles its loss, which takes longer than this step
os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
import deepspeed
import torch
import torch.distributed as dist
import trl
from bf16_lora import ADAPTED, OPTIONS, ZERO, adapted, adapter, rounded, seen
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.nn.functional import logsigmoid
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

name, liger = sys.argv[1], "without" not in sys.argv
WORDS = ["<pad>", "</s>", *"abcdefghijklmnop"]
OFF = dict.fromkeys(("rope", "rms_norm", "swiglu", "cross_entropy", "fused_linear_cross_entropy"), False)  # need a GPU
ZERO3 = {"train_micro_batch_size_per_gpu": 2, "zero_allow_untested_optimizer": True} | ZERO
ZERO3 |= {"zero_force_ds_cpu_optimizer": False}
ZERO3 |= {"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}}  # else small weights stay whole
sizes = {"vocab_size": 18, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


def fresh(seed):
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**sizes, initializer_range=0.2, pad_token_id=0, eos_token_id=1))


def told(model, ids, attention, completion):
    """log p of the tokens of each completion."""
    logits = model(input_ids=ids, attention_mask=attention).logits[:, :-1].float()
    return logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0] * completion[:, 1:]


def ratio(batch, kl=""):
    keys = (f"{kl}{key}" for key in ("input_ids", "attention_mask", "completion_mask"))
    given = [batch[key] for key in keys]
    with torch.no_grad(), alone.disable_adapter() if ADAPTED else nullcontext():
        of_reference = told(reference, *given).sum(-1)
    return told(alone, *given).sum(-1) - of_reference


def one_process(batches):
    """The mean of the ranks' losses."""
    if name == "DPO":
        pairs = [ratio(batch).chunk(2) for batch in batches]
        return sum(-logsigmoid(args.beta * (chosen - rejected)).mean() for chosen, rejected in pairs) / len(batches)
    if name == "KTO":
        kl = sum(ratio(batch, "KL_").mean().detach() for batch in batches).clamp(min=0) / len(batches)
        signed = [(ratio(batch) - kl) * torch.where(batch["label"].bool(), 1, -1) for batch in batches]
        return sum((1 - torch.sigmoid(args.beta * it)).mean() for it in signed) / len(batches)
    keys, loss = [[f"{part}_{it}" for part in ("prompt", "completion")] for it in ("ids", "mask")], 0
    for batch in batches:  # GRPO's first step, in which the policy is still the one that wrote the completions
        ids, mask = (torch.cat([batch[key] for key in it], 1) for it in keys)
        completion = torch.cat([torch.zeros_like(batch["prompt_mask"]), batch["completion_mask"]], 1)
        loss -= (told(alone, ids, mask, completion).sum(-1) * batch["advantages"]).sum() / batch["num_items_in_batch"]
    return loss


class Seen(getattr(trl, f"{name}Trainer")):
    def compute_loss(self, model, inputs, *rest, **more):
        dist.all_gather_object(batches, dict(inputs))
        return super().compute_loss(model, inputs, *rest, **more)


deepspeed.init_distributed("gloo", verbose=False)
of_words = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="<pad>"))
of_words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=of_words, pad_token="<pad>", eos_token="</s>")
text = [f" {a} {b} {c}" for a, b, c in zip("abcdefghijkl", "ponmlkjihgfe", "cdefghijklmn")]
data, more, options = {"prompt": text[:4]}, {}, {}
if name == "GRPO":
    more["reward_funcs"] = lambda completion_ids, **_: [float(sum(it)) for it in completion_ids]
    options |= {"num_generations": 2, "max_completion_length": 4}
else:
    more["ref_model"] = None if ADAPTED else fresh(1)
    data |= {"DPO": {"chosen": text[4:8], "rejected": text[8:]}, "KTO": {"completion": text[4:8]}}[name]
if name == "KTO":
    data["label"] = [True, False, True, True]
alone, reference, start, model, batches = fresh(0), fresh(1), fresh(0), fresh(0), [None, None]
options |= {"use_liger_kernel": True, "liger_kernel_config": OFF} if liger else {}
options |= {"deepspeed": ZERO3} | OPTIONS
more |= {"peft_config": adapter()} if ADAPTED else {}
options |= {"max_steps": 1, "per_device_train_batch_size": 2, "learning_rate": 0.5, "lr_scheduler_type": "constant"}
options |= {"use_cpu": True, "gradient_checkpointing": False, "save_strategy": "no", "report_to": "none"}
args = getattr(trl, f"{name}Config")(tempfile.mkdtemp(), **options)
trainer = Seen(model, args=args, train_dataset=Dataset.from_dict(data), processing_class=tokenizer, **more)
assert getattr(trainer, "use_liger_kernel", False) == liger
if ADAPTED:
    alone = reference = adapted(fresh(0), trainer.model.state_dict())
trainer.train()
if ADAPTED:
    (got, *_), (wanted, bound) = seen, rounded(alone, lambda: one_process(batches))
else:
    one_process(batches).backward()
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        got = torch.cat([((a - b) / 0.5).flatten() for a, b in zip(start.parameters(), model.parameters(), strict=True)])
    wanted, bound = torch.cat([p.grad.flatten() for p in alone.parameters()]), 1e-5
apart = ((got - wanted).norm() / wanted.norm()).item()
if dist.get_rank() == 0:
    near = "within the rounding of bf16" if ADAPTED else "to a hundred-thousandth"
    setting = "LoRA in bf16, AdamW, clipping | " if ADAPTED else ""
    right = f"one process's, {near}" if apart <= bound else "not one process's"
    print(f"\n=> {setting}{name} with{'' if liger else 'out'} Liger under ZeRO-3: the gradient is {right}", flush=True)
    print(f"distance {apart:.1e}, allowed {bound:.1e}", flush=True)
dist.barrier()
os._exit(0)  # else gloo's threads may abort at the end: pytorch/pytorch#154976
