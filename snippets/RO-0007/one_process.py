"""What trl_loss.py, ms_swift_loss.py and llamafactory_loss.py share: a tiny model on disk, the loss, and the comparison.

The first step's gradient, of two ranks with four micro-batches each, is compared with one process that is given all eight.
With the word `bf16-lora` LoRA is trained in bfloat16 with AdamW and clipping. Compared is the gradient before it is
clipped, with one process in bfloat16; it may be off by three times what one process in float32 is.
"""

import copy
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
    TrainerCallback,
)

ADAPTED, CLIP = "bf16-lora" in sys.argv, 0.01
ANSWERS = ["abcdefg"[: 1 + n % 7] for n in range(16)]  # of unequal lengths
letters = {letter: n for n, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
bytewise = Tokenizer(models.BPE(vocab=letters, merges=[]))
bytewise.pre_tokenizer, bytewise.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytewise, eos_token="<|im_end|>", pad_token="<|endoftext|>")
sizes = {"vocab_size": 272, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
sizes |= {"num_attention_heads": 2, "pad_token_id": tokenizer.pad_token_id, "num_labels": 1, "initializer_range": 0.2}
FOLDERS, seen = {}, []  # of each micro-batch of this rank: what the model was called with, and its labels
unclipped, clip = [], torch.nn.utils.clip_grad_norm_
torch.manual_seed(0)
for kind in (LlamaForCausalLM, LlamaForSequenceClassification):  # once there are ranks, rank 1 would save nothing
    FOLDERS[kind] = Path(tempfile.mkdtemp())
    tokenizer.save_pretrained(FOLDERS[kind])
    kind(LlamaConfig(**sizes)).save_pretrained(FOLDERS[kind])
OPTIONS = {"optim": "adamw_torch", "max_grad_norm": CLIP} if ADAPTED else {"optim": "sgd", "max_grad_norm": 0}


def token_mean(outputs, labels, num_items_in_batch):
    logits, targets = outputs.logits[:, :-1], labels[:, 1:]
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / num_items_in_batch


def gradient(parameters):
    return torch.cat([p.grad.float().flatten() for p in parameters if p.grad is not None])


def noted(parameters, *rest, **more):
    parameters = list(parameters)
    unclipped[:] = [gradient(parameters)]
    norm = clip(parameters, *rest, **more)
    assert norm > CLIP and all(p.grad.any() for p in parameters if p.grad is not None)  # the bound acts, and A learns
    return norm


class Compare(TrainerCallback):
    def __init__(self, name, watch=True):
        self.name, self.watch = name, watch

    def on_train_begin(self, args, state, control, model, **more):
        seen.clear()
        self.start = copy.deepcopy(model)
        for module in self.start.modules():
            module.__dict__.pop("forward", None)  # what was put around it, which runs the model that was copied
        if self.watch:  # the loss adds the labels
            model.register_forward_pre_hook(lambda module, _, given: seen.append([given, None]), with_kwargs=True)

    def alone(self, every, bf16):
        alone = copy.deepcopy(self.start) if bf16 else copy.deepcopy(self.start).float()
        tokens = sum(labels[:, 1:].ne(-100).sum() for _, labels in every if labels is not None)
        for given, labels in every:
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                outputs = alone(**given)
            outputs.logits = outputs.logits.float()  # as accelerate does
            own = outputs.logits.square().mean() / len(every) if labels is None else token_mean(outputs, labels, tokens)
            own.backward()
        return gradient(alone.parameters())

    def on_pre_optimizer_step(self, args, state, control, model, **more):
        every, (got,) = [None, None], unclipped if ADAPTED else [gradient(model.parameters())]
        dist.all_gather_object(every, seen)
        every = sum(every, [])
        wanted = plain = self.alone(every, bf16=False)
        setting, near, bound, digits = "", "to a millionth", 1e-6, 3
        if ADAPTED:
            setting, near, digits = "LoRA in bf16, AdamW, clipping | ", "within bf16's rounding", 1
            wanted = self.alone(every, bf16=True)
            bound = 3 * ((wanted - plain).norm() / wanted.norm()).item()
            assert bound < 0.25  # else a gradient half as long could pass
        apart = ((got - wanted).norm() / wanted.norm()).item()
        if dist.get_rank() == 0:
            right = f"one process's, {near}" if apart < bound else "not one process's"
            times = f"{got.norm() / wanted.norm():.{digits}f} times as long"
            name = f"{setting}{self.name}, {len(every)} micro-batches"
            print(f"\n=> {name}: the gradient is {right}, {times}\n", flush=True)
            print(f"distance {apart:.1e}, the bound {bound:.1e}", flush=True)


if ADAPTED:
    torch.nn.utils.clip_grad_norm_ = noted
