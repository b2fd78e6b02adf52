"""Experts that differ between the ranks, in transformers' own Qwen3-MoE, under DeepSpeed's stages.

    torchrun --nproc-per-node 2 moe.py fused-zero2
    torchrun --nproc-per-node 2 moe.py hit-zero2-equal

Two layers of random weights, four experts, one for each token. The router is steered: a token's number says which expert it goes
to. In each step the ranks' tokens go to other experts, and in the next step it is the other way round. A variant is compared, on
every rank, with one process that saw all the data. `hit-*` and `mended-*` need transformers 4.53 to 4.57, `every-*`
an older release, `fused-*` 5.0 or newer. Needs DeepSpeed.
"""

import json
import os
import sys
import types
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

if not torch.accelerator.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
import deepspeed
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

if not torch.accelerator.is_available():
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo does; nothing to compile
dist.set_debug_level(dist.DebugLevel.DETAIL)  # ranks whose collectives differ raise; without it gloo aborts the process
LINEAR = nn.functional.linear  # ZeRO-3 replaces it for the rest of the process

# --8<-- [start:variants]
DEFAULTS = dict(
    experts="hit",  # which experts run: those that were "hit", "every" one, or all "fused" into one parameter
    stage=2,  # of DeepSpeed
    split=((0, 1), (2, 3)),  # the experts that the tokens of one rank go to, and those of the other
    leaf="default",  # DeepSpeed's own list of leaf modules, which names this block; "none" empties it
    mended=False,  # the block's forward is `every_expert` below
)
UNEQUAL = ((0, 1, 2), (3,))
VARIANTS = {
    **{f"hit-zero{stage}-equal": dict(stage=stage) for stage in range(4)},
    **{f"hit-zero{stage}-unequal": dict(stage=stage, split=UNEQUAL) for stage in (1, 2, 3)},
    "hit-zero3-no-leaf-equal": dict(stage=3, leaf="none"),
    "hit-zero3-no-leaf-unequal": dict(stage=3, leaf="none", split=UNEQUAL),
    **{f"mended-zero{n}": dict(experts="every", stage=n, split=UNEQUAL, mended=True, leaf="none") for n in (1, 2, 3)},
    **{f"every-zero{stage}": dict(experts="every", stage=stage, split=UNEQUAL, leaf="none") for stage in (2, 3)},
    **{f"fused-zero{stage}": dict(experts="fused", stage=stage, split=UNEQUAL) for stage in (2, 3)},
}
# --8<-- [end:variants]

STEPS, SAMPLES, LENGTH, WIDTH, EXPERTS, VOCABULARY = 3, 2, 6, 16, 4, 32
ON_DEVICE = torch.accelerator.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.accelerator.current_accelerator() if ON_DEVICE else torch.device("cpu")


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    apart = s["experts"] == "hit"
    return {
        "strategy": f"zero-{s['stage']}",
        "experts": s["experts"],
        "gradient_order": "other-modules" if apart else "same",
        "rank_sizes": "unequal" if apart and s["split"] == UNEQUAL else "equal",
        "skips": "some-ranks" if apart else "never",
        "filler": "zeros" if s["mended"] else "none",
        "buckets": "one",
        "overlap": s["stage"] == 3,  # DeepSpeed's own choice
        "offload": "none",
        "leaf": "parent" if s["stage"] == 3 and s["leaf"] == "default" else False,
        "persistence": "none",
        "gathering": "none",
        "optimizer": "sgd",
        "tuning": "full",
        "frozen": "none",
        "checkpointing": "none",
        "runs": "once",
        "runs_vary": False,
        "second_use": "none",
        "backward_calls": "once",
        "accumulation": 1,
        "batch_size": SAMPLES,
    }


# --8<-- [end:facts]


# --8<-- [start:fix]
def every_expert(self, hidden_states):
    """The block's forward, with all experts in a fixed order; on zeros, times 0, where no token of the rank chose one."""
    x = hidden_states.flatten(0, 1)
    logits = self.gate(x)
    weights, chosen = logits.softmax(-1, dtype=torch.float).topk(self.top_k)
    if self.norm_topk_prob:
        weights = weights / weights.sum(-1, keepdim=True)
    out = torch.zeros_like(x)
    for number, expert in enumerate(self.experts):
        token, place = torch.where(chosen == number)
        if len(token):
            out = out.index_add(0, token, expert(x[token]) * weights[token, place, None].to(x.dtype))
        else:
            out = out + 0.0 * expert(torch.zeros_like(x[:1]))
    return out.view_as(hidden_states), logits


# --8<-- [end:fix]


# --8<-- [start:model]
def make(s):
    """The model: the direction of a token's embedding is the expert that it goes to."""
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=WIDTH,
        moe_intermediate_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        num_experts=EXPERTS,
        num_experts_per_tok=1,
        initializer_range=0.1,
    )
    model = Qwen3MoeForCausalLM(config).to(DEVICE)
    number = torch.arange(EXPERTS)
    with torch.no_grad():
        model.model.embed_tokens.weight[:, :EXPERTS] = torch.eye(EXPERTS).repeat(VOCABULARY // EXPERTS, 1)
        for block in blocks(model):
            block.gate.weight.zero_()
            block.gate.weight[number, number] = 0.5
            if s["mended"]:
                block.forward = types.MethodType(every_expert, block)
    return model


def blocks(model):
    return [module for module in model.modules() if isinstance(module, Qwen3MoeSparseMoeBlock)]


def tokens_of(step, rank, s):
    """A rank's tokens in a step: their numbers, modulo the number of experts, are the experts."""
    experts = torch.tensor(s["split"][(step + rank) % 2])
    generator = torch.Generator().manual_seed(1 + 2 * step + rank)
    expert = experts[torch.arange(SAMPLES * LENGTH) % len(experts)]
    row = torch.randint(VOCABULARY // EXPERTS, (SAMPLES * LENGTH,), generator=generator)
    return (row * EXPERTS + expert).view(SAMPLES, LENGTH).to(DEVICE)


def loss_of(model, step, rank, s):
    """The loss of a rank's tokens, once it is known that they went to the experts that are meant."""
    chosen = []
    hooks = [
        block.gate.register_forward_hook(lambda _, given, out: chosen.append(out[0] if isinstance(out, tuple) else out))
        for block in blocks(model)
    ]
    tokens = tokens_of(step, rank, s)
    loss = model(input_ids=tokens, labels=tokens).loss
    for hook in hooks:
        hook.remove()
    for logits in chosen:
        went_to = logits.argmax(-1).unique().tolist()
        assert went_to == list(s["split"][(step + rank) % 2]), f"step {step}, rank {rank}: experts {went_to}"
    return loss


# --8<-- [end:model]


# --8<-- [start:train]
def train(model, s):
    """Three steps; the trained parameters."""
    rank = dist.get_rank()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    zero = {"stage": s["stage"]}
    if s["stage"] == 3:
        zero["stage3_param_persistence_threshold"] = 0
        if s["leaf"] == "none":
            zero["leaf_module"] = {"classes": []}
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=optimizer,
        config={
            "train_micro_batch_size_per_gpu": SAMPLES,
            "gradient_clipping": 0.0,  # newer releases clip at 1.0 unless told otherwise
            "zero_allow_untested_optimizer": True,  # plain SGD, to compare parameters
            "zero_optimization": zero,
        },
    )
    try:
        for step in range(STEPS):
            engine.backward(loss_of(engine, step, rank, s))
            engine.step()
        trained = {}
        for name, p in model.named_parameters():
            with deepspeed.zero.GatheredParameters(p, enabled=s["stage"] == 3):
                trained[name] = p.detach().clone()
        return trained
    finally:
        engine.destroy()  # or its hooks outlive a failed variant


def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    nn.functional.linear = LINEAR
    world_size = dist.get_world_size()
    alone = make(s | {"mended": False})
    trained = train(make(s), s)
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for step in range(STEPS):
        for rank in range(world_size):
            (loss_of(alone, step, rank, s) / world_size).backward()
        optimizer.step()
        optimizer.zero_grad()
    return compare(variant, trained, *(dict(it.named_parameters()) for it in (alone, make(s))))


# --8<-- [end:train]


# Copied from scripts/readyonce/compare.py, which `readyonce render` writes here.
LIMIT = 1e-3  # the largest gradient error of a match


def compare(variant, trained, reference, start):
    """How a run ended. The tensors are {name: whole tensor}: of this rank, of one process, and of both before training.

    A gradient error is a tensor's distance to one process's, as a share of how far that one moved it from `start`; a
    rank spread is its distance to rank 0's. What moved by less than rounding can show is named, and not judged.
    """
    assert trained.keys() == reference.keys() == start.keys(), "not the same tensors"
    errors, spreads, unmoved, unjudged = {}, {}, [], {}
    for name, q in reference.items():
        p, q, first = trained[name].detach(), q.detach(), trained[name].detach().clone()
        assert p.shape == q.shape == start[name].shape, f"{name}: {p.shape}, {q.shape}, {start[name].shape}"
        if dist.is_initialized():
            dist.broadcast(first, src=0)
        moved = (q - start[name].detach()).abs().max().item()
        rounding = 2 * torch.finfo(q.dtype).eps * q.abs().max().item() + torch.finfo(q.dtype).tiny
        if moved < rounding:
            unmoved.append(name)
        elif moved < rounding / LIMIT:
            unjudged[name] = rounding / moved  # the smallest error that it can show
        off, apart = ((p - other).abs().max().nan_to_num(nan=3e38).item() for other in (q, first))
        errors[name], spreads[name] = (part / max(moved, rounding / LIMIT) for part in (off, apart))
    assert len(unjudged) <= len(errors) / 20, f"these moved too little to be judged: {unjudged}"
    worst = max(errors, key=errors.get)
    ranks = [(errors[worst], worst, max(spreads.values()))]
    if dist.is_initialized():
        ranks = dist.get_world_size() * ranks
        dist.all_gather_object(ranks, ranks[0])
    error, worst, _ = max(ranks)
    told = {"variant": variant, "outcome": "match" if error <= LIMIT else "diverge", "gradient_error": error}
    told |= {"rank_spread": max(spread for *_, spread in ranks), "worst": worst}
    return told | {key: value for key, value in (("unmoved", unmoved), ("unjudged", unjudged)) if value}


if __name__ == "__main__":
    torch.set_num_threads(1)
    deepspeed.init_distributed(timeout=timedelta(seconds=60), verbose=False)
    result = run(sys.argv[1]) | {"facts": facts(sys.argv[1])}
    if dist.get_rank() == 0:
        print("RESULT", json.dumps(result), flush=True)
    dist.barrier()  # without it a rank that is done can take the store away from the other
    os._exit(0)  # else gloo's threads may abort, or block the end: seen with torch 2.6, pytorch/pytorch#154976
