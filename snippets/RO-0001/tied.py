"""A model whose embedding and output head are one weight, trained whole: torchrun --nproc-per-node 2 tied.py

Qwen2 of transformers, tiny, under each strategy and each kind of gradient checkpointing; two steps of SGD beside one process.
"""

import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
import deepspeed
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from transformers import Qwen2Config, Qwen2ForCausalLM

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
STRATEGIES = ["DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3", "FSDP1", "FSDP2"]
KINDS = {"no checkpointing": None, "reentrant checkpointing": True, "non-reentrant checkpointing": False}


def fresh(reentrant):
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(Qwen2Config(**SIZES, num_key_value_heads=2, tie_word_embeddings=True, initializer_range=0.5))
    assert model.lm_head.weight is model.model.embed_tokens.weight
    if reentrant is not None:
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    return model.train()


def trained(strategy, reentrant, data):
    """The embedding after two steps."""
    model = fresh(reentrant)
    if strategy.startswith("ZeRO"):
        config = {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.0, "zero_allow_untested_optimizer": True}
        config["zero_optimization"] = {"stage": int(strategy[-1])}
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
        for _ in range(2):
            engine.backward(engine(input_ids=data, labels=data).loss)
            engine.step()
        with deepspeed.zero.GatheredParameters(list(engine.module.parameters())):
            weight = engine.module.lm_head.weight.detach().clone()
        engine.destroy()
        return weight
    if strategy == "FSDP2":
        for layer in model.model.layers:
            fully_shard(layer)
        fully_shard(model)
    if strategy == "FSDP1":
        for number, layer in enumerate(model.model.layers):
            model.model.layers[number] = FullyShardedDataParallel(layer, device_id=torch.device("cpu"), use_orig_params=True)
        wrapped = FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)
    else:
        wrapped = DistributedDataParallel(model) if strategy == "DDP" else model
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    for _ in range(2):
        wrapped(input_ids=data, labels=data).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if strategy == "FSDP1":
        with FullyShardedDataParallel.summon_full_params(wrapped):
            return model.lm_head.weight.detach().clone()
    weight = model.lm_head.weight.detach()
    return weight.full_tensor() if isinstance(weight, DTensor) else weight


deepspeed.init_distributed("gloo", verbose=False)
rank, apart = dist.get_rank(), {}
data = torch.stack([torch.arange(12).reshape(2, 6) + 1, torch.arange(12).reshape(2, 6) * 3 + 2])  # for each rank
for strategy in STRATEGIES:
    for said, reentrant in KINDS.items():
        reference = fresh(None)
        before = reference.lm_head.weight.detach().clone()
        optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
        for _ in range(2):
            sum(reference(input_ids=tokens, labels=tokens).loss / 2 for tokens in data).backward()
            optimizer.step()
            optimizer.zero_grad()
        moved = float((reference.lm_head.weight - before).norm())
        try:
            distance = float((trained(strategy, reentrant, data[rank]) - reference.lm_head.weight).norm()) / moved
            told = "trains as one process" if distance < 1e-4 else f"{distance:.2f} of the movement apart"
        except (RuntimeError, AssertionError) as error:
            told = f"stops: {str(error).splitlines()[0][:90]}"
        if rank == 0:
            print(f"=> {strategy}, {said}: {told}", flush=True)
dist.destroy_process_group()
