"""How often a training step runs each module of transformers' text models: torchrun --nproc-per-node 2 forwards.py

Counts, in one forward and backward of a tiny model, the calls of each module that holds a trained parameter, and the
places where the backward hands each parameter a gradient. More than one place: the parameter is used in a second one.
"""

import os
from collections import Counter

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

TYPES = ["llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "gpt_neox", "starcoder2", "glm", "olmo2"]
SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
MORE = {"num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0, "tie_word_embeddings": False}


def counted(model):
    """(calls of the module that ran most often, of the one that ran least, places of the parameter that has most)"""
    calls = Counter()
    held = {name: module for name, module in model.named_modules() if any(True for _ in module.parameters(recurse=False))}
    for name, module in held.items():
        module.register_forward_hook(lambda *_, name=name: calls.update([name]))
    tokens = torch.arange(12).reshape(2, 6) + 1
    loss = model(input_ids=tokens, labels=tokens).loss
    places, seen, ahead = Counter(), set(), [loss.grad_fn]
    while ahead:
        node = ahead.pop()
        for following, _ in node.next_functions:
            if hasattr(following, "variable"):  # where a gradient arrives at a parameter
                places[following] += 1
            elif following is not None and following not in seen:
                seen.add(following)
                ahead.append(following)
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    return max(calls.values()), min(calls[name] for name in held), max(places.values())


for kind in TYPES if os.environ.get("RANK", "0") == "0" else []:
    try:
        config = AutoConfig.for_model(kind, **SIZES, **MORE)
    except ValueError:  # of a later release
        continue
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    most, least, places = counted(model.train())
    once = most == least == places == 1
    said = "each module once, each parameter in one place" if once else f"{least} to {most} calls, {places} places"
    print(f"=> {type(model).__name__}: {said}", flush=True)
print(f"transformers {transformers.__version__}", flush=True)
