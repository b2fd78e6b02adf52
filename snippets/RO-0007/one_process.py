"""What trl_loss.py, ms_swift_loss.py and llamafactory_loss.py share: a tiny model on disk, the loss, and the comparison.

The first step's gradient, of two ranks with four micro-batches each, is compared with one process that is given all eight.
"""

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

ANSWERS = ["a" * (1 + n % 7) for n in range(16)]  # of unequal lengths
letters = {letter: n for n, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
bytewise = Tokenizer(models.BPE(vocab=letters, merges=[]))
bytewise.pre_tokenizer, bytewise.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytewise, eos_token="<|im_end|>", pad_token="<|endoftext|>")
sizes = {"vocab_size": 272, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
sizes |= {"num_attention_heads": 2, "pad_token_id": tokenizer.pad_token_id, "num_labels": 1, "initializer_range": 0.2}
FOLDERS, seen = {}, []  # of each micro-batch of this rank: what the model was called with, and its labels
torch.manual_seed(0)
for kind in (LlamaForCausalLM, LlamaForSequenceClassification):  # once there are ranks, rank 1 would save nothing
    FOLDERS[kind] = Path(tempfile.mkdtemp())
    tokenizer.save_pretrained(FOLDERS[kind])
    kind(LlamaConfig(**sizes)).save_pretrained(FOLDERS[kind])


def token_mean(outputs, labels, num_items_in_batch):
    logits, targets = outputs.logits[:, :-1], labels[:, 1:]
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / num_items_in_batch


class Compare(TrainerCallback):
    def __init__(self, name, kind=LlamaForCausalLM, watch=True):
        self.name, self.kind, self.watch = name, kind, watch

    def on_train_begin(self, args, state, control, model, **more):
        seen.clear()
        if self.watch:  # the loss adds the labels
            model.register_forward_pre_hook(lambda module, _, given: seen.append([given, None]), with_kwargs=True)

    def on_pre_optimizer_step(self, args, state, control, model, **more):
        every, alone = [None, None], self.kind.from_pretrained(FOLDERS[self.kind], dtype=torch.float32)
        dist.all_gather_object(every, seen)
        every = sum(every, [])
        tokens = sum(labels[:, 1:].ne(-100).sum() for _, labels in every if labels is not None)
        for given, labels in every:
            outputs = alone(**given)
            own = outputs.logits.square().mean() / len(every) if labels is None else token_mean(outputs, labels, tokens)
            own.backward()
        got, wanted = (torch.cat([p.grad.flatten() for p in it.parameters()]) for it in (model, alone))
        apart = ((got - wanted).norm() / wanted.norm()).item()
        if dist.get_rank() == 0:
            right = "one process's, to a millionth" if apart < 1e-6 else "not one process's"
            times = f"{got.norm() / wanted.norm():.3f} times as long"
            print(f"\n=> {self.name}, {len(every)} micro-batches: the gradient is {right}, {times}\n", flush=True)
            print(f"distance {apart:.1e}", flush=True)
