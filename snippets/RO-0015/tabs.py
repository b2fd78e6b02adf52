"""Experts that differ between the ranks, in transformers' own Qwen3-MoE: torchrun --nproc-per-node 2 tabs.py

Each rank's tokens go to other experts. Under ZeRO-1 and ZeRO-2 the weights are compared with one process. With `bf16-lora`
it is the first gradient, of LoRA in bfloat16, with AdamW and clipping.
"""

import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
import deepspeed
import torch
import torch.distributed as dist
from second import ADAPTED, ZERO, adapted, of_ranks, verdict
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

SIZES = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "moe_intermediate_size": 8, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8, "num_experts": 8, "num_experts_per_tok": 1}


def fresh():
    torch.manual_seed(0)
    model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**SIZES, **HEADS, initializer_range=0.5))
    if ADAPTED:
        return adapted(model, "mlp.experts.gate_up_proj", "mlp.experts.down_proj")
    return model, torch.optim.SGD(model.parameters(), lr=0.05)


def experts(model, tokens):
    """The experts of the first layer that these tokens go to."""
    chosen = []
    gate = (model.get_base_model() if ADAPTED else model).model.layers[0].mlp.gate
    hook = gate.register_forward_hook(lambda module, args, out: chosen.append(out[-1] if isinstance(out, tuple) else out))
    with torch.no_grad():
        model(input_ids=tokens)
    hook.remove()
    return sorted(set(chosen[0].flatten().tolist()))


def losses(model):
    return [model(input_ids=tokens, labels=tokens).loss / 2 for tokens in data]


deepspeed.init_distributed("gloo", verbose=False)
rank = dist.get_rank()
data = torch.stack([torch.full((2, 6), 3), torch.full((2, 6), 20)]) + torch.arange(6)  # for each rank
told = [None, None]
dist.all_gather_object(told, experts(fresh()[0], data[rank]))
if rank == 0:
    print(f"=> experts of the first layer: rank 0 {told[0]}, rank 1 {told[1]}", flush=True)
for stage in (1, 2):
    model, optimizer = fresh()
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.0, "zero_allow_untested_optimizer": True}
    config |= {"zero_optimization": {"stage": stage}} | ZERO
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    for step in range(3):
        engine.backward(engine(input_ids=data[rank], labels=data[rank]).loss)
        if ADAPTED and step == 0:
            got = of_ranks(model)
        engine.step()
    reference, optimizer = fresh()
    if ADAPTED:
        verdict(f"ZeRO-{stage}", got, reference, losses)
    for _ in range(0 if ADAPTED else 3):
        sum(losses(reference)).backward()
        optimizer.step()
        optimizer.zero_grad()
    apart = max(float((a - b).abs().max()) for a, b in zip(model.parameters(), reference.parameters(), strict=True))
    if rank == 0 and not ADAPTED:
        print(f"=> ZeRO-{stage}: the weights {'equal' if apart < 1e-5 else 'are not'} one process's", flush=True)
    engine.destroy()
dist.destroy_process_group()
