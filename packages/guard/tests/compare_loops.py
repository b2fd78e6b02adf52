"""Training programs that `readyonce_compare` is tried on: torchrun --nproc-per-node 2 compare_loops.py LOOP [CHANGE]

Each is right as it stands, and a change makes its first gradient depend on the number of processes, or puts something into it
that cannot be compared. `LOOPS` says what is expected of each.
"""

import contextlib
import sys

ALIKE, DIFFERENT, UNTOLD = "alike", "different", "not compared"
LOOPS = {
    "ddp": ALIKE,
    "ddp loss-times-ranks": DIFFERENT,
    "ddp sum-of-samples": DIFFERENT,
    "ddp mean-of-means": DIFFERENT,
    "ddp batch-norm": DIFFERENT,
    "ddp inner-model": DIFFERENT,
    "ddp no-sync": DIFFERENT,
    "ddp penalty-times-ranks": DIFFERENT,
    "ddp random-loss": UNTOLD,
    "ddp own-batches": UNTOLD,
    "ddp divided-twice": ALIKE,  # by the steps of accumulation, as it would be with one process
    "ddp clipped-by-added-norm": DIFFERENT,
    "ddp-sliced": ALIKE,  # no DataLoader: each rank takes its rows out of the same tensor
    "ddp-sliced loss-times-ranks": DIFFERENT,
    "ddp-sliced clipped-each-micro-batch": DIFFERENT,
    "ddp-closure": ALIKE,
    "ddp-closure loss-times-ranks": DIFFERENT,
    "contrastive": ALIKE,
    "contrastive gathered-without-gradients": DIFFERENT,
    "contrastive gathered-all-without-gradients": ALIKE,  # its own embeddings too, so one process has the same fault
    "contrastive own-negatives": DIFFERENT,
    "accelerate": ALIKE,
    "accelerate loss-times-ranks": DIFFERENT,
    "accelerate-bf16": ALIKE,
    "accelerate-bf16 mean-of-means": DIFFERENT,
    "fsdp1": ALIKE,
    "fsdp1 mean-of-means": DIFFERENT,
    "fsdp1-original-parameters": ALIKE,
    "fsdp1-original-parameters clipped-by-shards": DIFFERENT,
    "fsdp2": ALIKE,
    "fsdp2 loss-times-ranks": DIFFERENT,
    "zero0": ALIKE,
    "zero0 loss-times-ranks": DIFFERENT,
    "zero1": ALIKE,
    "zero1 loss-times-ranks": DIFFERENT,
    "zero2": ALIKE,
    "zero2 mean-of-means": DIFFERENT,
    "zero3": ALIKE,
    "zero3 mean-of-means": DIFFERENT,
    "trainer": ALIKE,
    "trainer tokens-of-each-rank": DIFFERENT,
    "trainer-lora-bf16": ALIKE,
    "trainer-zero2": ALIKE,
}
WIDTH, BATCH, CLIP = 8, 4, 0.1


def main(loop, change=""):
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    if loop.startswith("trainer"):
        return trainer(loop, change)
    torch.manual_seed(0)
    x = torch.randn(64, WIDTH)
    data = TensorDataset(x, x.sum(1, keepdim=True) + torch.randn(64, 1))
    middle = nn.BatchNorm1d(15) if change == "batch-norm" else nn.Tanh()
    model = nn.Sequential(nn.Linear(WIDTH, 15), middle, nn.Dropout(0.3), nn.Linear(15, 1))
    world = 1

    def loss_of(out, y):
        each = (out.float() - y).square()
        if change == "mean-of-means":
            return (each * (y > 0)).sum() / (y > 0).sum().clamp(min=1)
        if change == "random-loss":
            return (each * torch.rand_like(y)).mean()
        return (
            each.sum() if change == "sum-of-samples" else each.mean() * (world if change == "loss-times-ranks" else 1)
        )

    if loop.startswith("zero"):
        import deepspeed

        deepspeed.init_distributed("gloo")
        world = torch.distributed.get_world_size()
        config = {
            "train_micro_batch_size_per_gpu": BATCH,
            "gradient_accumulation_steps": 2,
            "gradient_clipping": CLIP,
            "zero_allow_untested_optimizer": True,
            "zero_optimization": {"stage": int(loop[-1])},
        }
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
        for inputs, y in DataLoader(data, BATCH, sampler=DistributedSampler(data)):
            engine.backward(loss_of(engine(inputs), y))
            engine.step()
        return None
    if loop.startswith("accelerate"):
        from accelerate import Accelerator

        precision = "bf16" if loop.endswith("bf16") else "no"
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, mixed_precision=precision)
        world = accelerator.num_processes
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, BATCH, shuffle=True))
        for inputs, y in loader:
            with accelerator.accumulate(model):
                accelerator.backward(loss_of(model(inputs), y))
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), CLIP)
                optimizer.step()
                optimizer.zero_grad()
        return None
    torch.distributed.init_process_group("gloo")
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    loader = DataLoader(data, BATCH, sampler=DistributedSampler(data), num_workers=1)
    if change == "own-batches":
        loader = [tuple(part[rank::world][:BATCH] for part in data.tensors)] * 4
    if loop == "ddp-sliced":
        rows = range(0, len(x), 2 * BATCH)
        loader = [tuple(part[at : at + 2 * BATCH][rank::world] for part in data.tensors) for at in rows]
    if loop.startswith("fsdp"):
        if loop == "fsdp2":
            from torch.distributed.fsdp import fully_shard

            fully_shard(model[0])
            fully_shard(model)
        else:
            from torch.distributed.fsdp import FullyShardedDataParallel

            original = loop == "fsdp1-original-parameters"
            model = FullyShardedDataParallel(model, use_orig_params=original, device_id=torch.device("cpu"))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for inputs, y in loader:
            loss_of(model(inputs), y).backward()
            if loop == "fsdp2" or change == "clipped-by-shards":
                nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            else:
                model.clip_grad_norm_(CLIP)
            optimizer.step()
            optimizer.zero_grad()
        return None
    torch.manual_seed(rank)  # each rank draws its own weights, and DDP takes those of rank 0
    if loop == "contrastive":
        model = nn.Linear(WIDTH, 6)
    ddp = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if loop == "ddp-closure":  # the gradients are computed inside the step, as in Lightning
        for inputs, y in loader:

            def closure(inputs=inputs, y=y):
                optimizer.zero_grad()
                loss = loss_of(ddp(inputs), y)
                loss.backward()
                return loss

            optimizer.step(closure)
        return None
    called = ddp.module if change == "inner-model" else ddp
    for micro, (inputs, y) in enumerate(loader):
        last = micro % 2 == 1
        synced = last and change != "no-sync"
        with contextlib.nullcontext() if synced else ddp.no_sync():
            out = called(inputs)
            loss = contrastive(out, change) if loop == "contrastive" else loss_of(out, y)
            if change == "penalty-times-ranks":
                loss = loss + 0.01 * world * model[3].weight.square().sum()
            (loss / (4 if change == "divided-twice" else 2)).backward()
        if change == "clipped-each-micro-batch" and not last:
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        if last:
            if change == "clipped-by-added-norm":
                square = sum(p.grad.norm() ** 2 for p in model.parameters())
                torch.distributed.all_reduce(square)
                nn.utils.clip_grads_with_norm_(model.parameters(), CLIP, square.sqrt())
            else:
                nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            optimizer.zero_grad()
    return None


def contrastive(out, change):
    """Each sample against all of all ranks; its pair is its mirror image among the samples of its own rank."""
    import torch
    from torch import distributed
    from torch.nn import functional

    out = functional.normalize(out, dim=-1)
    everyone, first = out, 0
    if change.startswith("gathered"):
        parts = [torch.empty_like(out) for _ in range(distributed.get_world_size())]
        distributed.all_gather(parts, out.detach())
        if change == "gathered-without-gradients":
            parts[distributed.get_rank()] = out
        everyone, first = torch.cat(parts), distributed.get_rank() * len(out)
    elif change != "own-negatives":
        everyone = torch.cat(distributed.nn.functional.all_gather(out))
        first = distributed.get_rank() * len(out)
    scores = out @ everyone.T / 0.1
    own = torch.arange(len(out)) + first
    # A sample's own score is the target: the loss spreads the embeddings out.
    return functional.cross_entropy(scores, own)


def trainer(loop, change):
    """transformers' Trainer on sequences of different lengths, padded by its collator; two micro-batches a step.

    `lora-bf16`: PEFT's LoRA with dropout, bf16 autocast and gradient checkpointing.
    """
    import tempfile

    import torch
    from tokenizers import Tokenizer, models
    from transformers import (
        DataCollatorForSeq2Seq,
        LlamaConfig,
        LlamaForCausalLM,
        PreTrainedTokenizerFast,
        Trainer,
        TrainingArguments,
    )

    tokens = Tokenizer(models.WordLevel({"<pad>": 0, **{f"w{i}": i for i in range(1, 32)}}, unk_token="<pad>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokens, pad_token="<pad>")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, pad_token_id=0
    )
    model = LlamaForCausalLM(config)
    more = {}
    if loop == "trainer-lora-bf16":
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj", "v_proj"], lora_dropout=0.1))
        more = {"bf16": True, "gradient_checkpointing": True}
        more["gradient_checkpointing_kwargs"] = {"use_reentrant": False}
    if loop == "trainer-zero2":
        more["deepspeed"] = {
            "zero_optimization": {"stage": 2},
            "train_micro_batch_size_per_gpu": "auto",
            "gradient_accumulation_steps": "auto",
            "gradient_clipping": "auto",
        }
    rows = []
    for length in torch.randint(3, 24, (64,)).tolist():
        ids = torch.randint(1, 32, (length,)).tolist()
        rows.append({"input_ids": ids, "attention_mask": [1] * length, "labels": ids})
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=2,
            max_steps=2,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            dataloader_num_workers=1,
            average_tokens_across_devices=change != "tokens-of-each-rank",
            **more,
        )
        collator = DataCollatorForSeq2Seq(tokenizer, padding=True)
        Trainer(model=model, args=arguments, train_dataset=rows, data_collator=collator).train()


if __name__ == "__main__":
    main(*sys.argv[1:])
