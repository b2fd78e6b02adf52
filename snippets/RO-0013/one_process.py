"""What trl_moe.py, ms_swift_moe.py and llamafactory_moe.py share: a tiny Qwen3-MoE on disk, and the comparison.

The first step's gradient, of two ranks with four micro-batches each, is compared with one process that is given all eight.
With the word `bf16-lora` it is the gradient of LoRA in bfloat16, with AdamW and clipping, and taken before it is clipped.
"""

import copy
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from accelerate import Accelerator
from repro import used_coefficient
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3MoeConfig, Qwen3MoeForCausalLM, TrainerCallback

ADAPTED = "bf16-lora" in sys.argv
sys.argv = [word for word in sys.argv if word != "bf16-lora"]
OPTIM, CLIP, DTYPE = ("adamw_torch", 0.1, torch.bfloat16) if ADAPTED else ("sgd", 0, torch.float32)
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
seen, unclipped = [], []  # of each micro-batch of this rank, and what the Trainer gives to its clipping
folder = Path(tempfile.mkdtemp())
torch.manual_seed(0)
tokenizer.save_pretrained(folder)  # once there are ranks, rank 1 would save nothing
Qwen3MoeForCausalLM(Qwen3MoeConfig(**sizes)).save_pretrained(folder)


def see(inputs):
    seen.append({key: inputs[key] for key in KEYS if key in inputs})


def clip(accelerator, parameters, *rest, **more):
    trained = [p for p in parameters if p.requires_grad]
    unclipped[:] = [p.grad.clone() for p in trained]
    return clipped(accelerator, trained, *rest, **more)


if ADAPTED:
    clipped, Accelerator.clip_grad_norm_ = Accelerator.clip_grad_norm_, clip


def flat(gradients):
    return torch.cat([g.float().flatten() for g in gradients])


def of_one(alone, every, by_tokens, half=False):
    """One process's gradients, of the main loss and of the auxiliary loss."""
    main, aux, tokens = 0, 0, sum(batch["labels"][:, 1:].ne(-100).sum() for batch in every)
    for batch in every:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            out = alone(**(batch | {"labels": None}), output_router_logits=True)
        targets = batch["labels"][:, 1:].flatten()
        main += F.cross_entropy(out.logits[:, :-1].float().flatten(0, 1), targets, reduction="sum") / tokens
        aux += out.aux_loss * (targets.ne(-100).sum() / tokens if by_tokens else 1 / len(every))
    trained = [p for p in alone.parameters() if p.requires_grad]
    return [flat(torch.autograd.grad(it, trained, retain_graph=True, materialize_grads=True)) for it in (main, aux)]


class Compare(TrainerCallback):
    def __init__(self, name, watch=True, asked=True, by_tokens=False):
        self.name, self.watch, self.asked, self.by_tokens = name, watch, asked, by_tokens

    def on_train_begin(self, args, state, control, model, **more):
        seen.clear()
        if not ADAPTED:
            self.alone = Qwen3MoeForCausalLM.from_pretrained(folder, dtype=DTYPE)
        else:
            for name, value in model.named_parameters():
                if "lora_B" in name:  # not zero at the start, so that `A` has a gradient in the first step
                    value.data.copy_(torch.linspace(-0.2, 0.2, value.numel()).view(value.shape))
            self.alone = copy.deepcopy(model.get_base_model())
            vars(self.alone).pop("forward", None)  # TRL's own, which is bound to the model that it trains
        if self.watch:
            model.register_forward_pre_hook(lambda module, _, given: see(given), with_kwargs=True)

    def on_pre_optimizer_step(self, args, state, control, model, **more):
        every = [None, None]
        dist.all_gather_object(every, seen)
        every, bound = sum(every, []), 1e-6
        of_main, of_aux = of_one(self.alone, every, self.by_tokens, half=ADAPTED)
        got = flat(unclipped if ADAPTED else [p.grad for p in model.parameters()])
        wanted = of_main + COEFFICIENT * of_aux
        if ADAPTED:  # three times what bfloat16 itself changes in one process
            full_main, full_aux = of_one(self.alone.float(), every, self.by_tokens)
            bound = 3 * ((full_main + COEFFICIENT * full_aux - wanted).norm() / wanted.norm()).item()
            assert got.norm() > CLIP
            assert bound < 0.25  # else a gradient half as long could pass
        apart = ((got - wanted).norm() / wanted.norm()).item()
        times = ((got - of_main) @ of_aux / (of_aux @ of_aux) / COEFFICIENT).item()
        used = used_coefficient(model, every[-1]) if self.asked else None
        if dist.get_rank() == 0:
            near = "within the rounding of bf16" if ADAPTED else "to a millionth"
            right = f"one process's, {near}" if apart < bound else "not one process's"
            right += ", where it is weighted by tokens" if self.by_tokens else ""
            asked = f"used_coefficient {used:.4f}, " if self.asked else ""
            counts = f"{times:.1f}" if ADAPTED else f"{times:.2f}"
            told = f"{asked}the auxiliary loss counts {counts} times, the gradient is {right}"
            setting = "LoRA in bf16, AdamW, clipping | " if ADAPTED else ""
            print(f"\n=> {setting}{self.name}, {len(every)} micro-batches: {told}\n", flush=True)
            print(f"distance {apart:.1e}, bound {bound:.1e}, norm {got.norm():.1f}, {times:.2f} times", flush=True)
