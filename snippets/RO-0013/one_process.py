"""What trl_moe.py, ms_swift_moe.py and llamafactory_moe.py share: a tiny Qwen3-MoE on disk, and the comparison.

The first step's gradient, of two ranks with four micro-batches each, is compared with one process that is given all eight.
"""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from repro import used_coefficient
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3MoeConfig, Qwen3MoeForCausalLM, TrainerCallback

COEFFICIENT = 0.1  # the one that is wanted
ANSWERS = ["abcdefg"[n % 5 :] * (1 + n % 3) for n in range(16)]  # of unequal lengths
letters = {letter: n for n, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
bytewise = Tokenizer(models.BPE(vocab=letters, merges=[]))
bytewise.pre_tokenizer, bytewise.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytewise, eos_token="<|im_end|>", pad_token="<|endoftext|>")
sizes = {"vocab_size": 272, "hidden_size": 16, "intermediate_size": 16, "moe_intermediate_size": 8}
sizes |= {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8, "num_experts": 4}
sizes |= {"num_experts_per_tok": 2, "initializer_range": 0.2, "pad_token_id": tokenizer.pad_token_id}
KEYS = ("input_ids", "attention_mask", "labels", "logits_to_keep")  # the last by ms-swift, which cuts the labels so too
seen = []  # of each micro-batch of this rank
folder = Path(tempfile.mkdtemp())
torch.manual_seed(0)
tokenizer.save_pretrained(folder)  # once there are ranks, rank 1 would save nothing
Qwen3MoeForCausalLM(Qwen3MoeConfig(**sizes)).save_pretrained(folder)


def see(inputs):
    seen.append({key: inputs[key] for key in KEYS if key in inputs})


class Compare(TrainerCallback):
    def __init__(self, name, watch=True, asked=True, by_tokens=False):
        self.name, self.watch, self.asked, self.by_tokens = name, watch, asked, by_tokens

    def on_train_begin(self, args, state, control, model, **more):
        seen.clear()
        if self.watch:
            model.register_forward_pre_hook(lambda module, _, given: see(given), with_kwargs=True)

    def on_pre_optimizer_step(self, args, state, control, model, **more):
        every, alone = [None, None], Qwen3MoeForCausalLM.from_pretrained(folder, dtype=torch.float32)
        dist.all_gather_object(every, seen)
        every, main, aux = sum(every, []), 0, 0
        tokens = sum(batch["labels"][:, 1:].ne(-100).sum() for batch in every)
        for batch in every:
            out = alone(**(batch | {"labels": None}), output_router_logits=True)
            targets = batch["labels"][:, 1:].flatten()
            main += F.cross_entropy(out.logits[:, :-1].flatten(0, 1), targets, reduction="sum") / tokens
            aux += out.aux_loss * (targets.ne(-100).sum() / tokens if self.by_tokens else 1 / len(every))
        more = {"inputs": list(alone.parameters()), "retain_graph": True, "materialize_grads": True}
        of_main, of_aux = (torch.cat([g.flatten() for g in torch.autograd.grad(it, **more)]) for it in (main, aux))
        got, wanted = torch.cat([p.grad.flatten() for p in model.parameters()]), of_main + COEFFICIENT * of_aux
        apart = ((got - wanted).norm() / wanted.norm()).item()
        times = ((got - of_main) @ of_aux / (of_aux @ of_aux) / COEFFICIENT).item()
        used = used_coefficient(model, batch) if self.asked else None
        if dist.get_rank() == 0:
            right = "one process's, to a millionth" if apart < 1e-6 else "not one process's"
            right += ", where it is weighted by tokens" if self.by_tokens else ""
            asked = f"used_coefficient {used:.4f}, " if self.asked else ""
            told = f"{asked}the auxiliary loss counts {times:.2f} times, the gradient is {right}"
            print(f"\n=> {self.name}, {len(every)} micro-batches: {told}\n", flush=True)
            print(f"distance {apart:.1e}", flush=True)
