"""Qwen3-Omni's experts as LLaMA-Factory patches them, under ZeRO-2: torchrun --nproc-per-node 2 llamafactory_omni.py

Each rank's tokens go to other experts. The weights are compared with one process, before the patch and with it. With
`bf16-lora` it is the first gradient, of LoRA in bfloat16, with AdamW and clipping.
"""

import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
import deepspeed
import torch
import torch.distributed as dist
from llamafactory.model.patcher import patch_qwen3_omni_moe_thinker_text_sparse_moe_block
from second import ADAPTED, ZERO, adapted, of_ranks, verdict
from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as omni

SIZES = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "moe_intermediate_size": 8, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8, "num_experts": 8, "num_experts_per_tok": 1}
ROPE = {"rope_scaling": {"rope_type": "default", "mrope_section": [2, 1, 1]}, "initializer_range": 0.5}
ZERO2 = {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.0, "zero_allow_untested_optimizer": True}
ZERO2 |= {"zero_optimization": {"stage": 2}} | ZERO


def fresh():
    torch.manual_seed(0)
    config = omni.Qwen3OmniMoeTextConfig(**SIZES, **HEADS, **ROPE)
    model = omni.Qwen3OmniMoeThinkerTextModel(config)
    if ADAPTED:
        return adapted(model)
    return model, torch.optim.SGD(model.parameters(), lr=0.05)


def loss_of(model, tokens):
    return (model(input_ids=tokens).last_hidden_state - 0.5).square().mean()


def losses(model):
    return [loss_of(model, tokens) / 2 for tokens in data]


def train(name):
    model, optimizer = fresh()
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=ZERO2)
    alone, sgd = fresh()
    for _ in range(3):
        engine.backward(loss_of(engine, data[dist.get_rank()]))
        first = of_ranks(model) if ADAPTED else None
        engine.step()
        if ADAPTED:
            engine.destroy()
            return verdict(name, first, alone, losses)
        sum(losses(alone)).backward()
        sgd.step()
        sgd.zero_grad()
    both = (model.parameters(), alone.parameters(), fresh()[0].parameters())
    got, wanted, start = (torch.cat([p.detach().flatten() for p in it]) for it in both)
    apart = ((got - wanted).norm() / (start - wanted).norm()).item()
    if dist.get_rank() == 0:
        print(f"\n=> {name}: the weights {'equal' if apart < 1e-5 else 'are not'} one process's", flush=True)
        print(f"distance {apart:.1e}", flush=True)
    engine.destroy()


deepspeed.init_distributed("gloo", verbose=False)
data = torch.stack([torch.full((2, 6), 3), torch.full((2, 6), 20)])  # for each rank, whose tokens go to one expert each
train("Qwen3-Omni's text model")
patch_qwen3_omni_moe_thinker_text_sparse_moe_block()
train("Qwen3-Omni's text model, with LLaMA-Factory's patch")
dist.destroy_process_group()
