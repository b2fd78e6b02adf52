"""Where the guard goes, for each framework, and what to change for a finding. The page "Guard your training" shows these sections."""


def plain(model, watch):
    # --8<-- [start:ddp]
    from torch.nn.parallel import DistributedDataParallel

    ddp = DistributedDataParallel(model)
    watch(ddp)  # or the FSDP model, or DeepSpeed's engine: what you call in training
    # --8<-- [end:ddp]
    return ddp


def with_accelerate(accelerator, model, optimizer, watch):
    # --8<-- [start:accelerate]
    model, optimizer = accelerator.prepare(model, optimizer)
    watch(model)
    # --8<-- [end:accelerate]
    return model, optimizer


def with_deepspeed(model, optimizer, config, watch):
    # --8<-- [start:deepspeed]
    import deepspeed

    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    watch(engine)
    # --8<-- [end:deepspeed]
    return engine


def with_trainer(trainer):
    # --8<-- [start:trainer]
    import readyonce_guard

    trainer.add_callback(readyonce_guard.callback(trainer))
    trainer.train()
    # --8<-- [end:trainer]


def with_lightning(Trainer):
    # --8<-- [start:lightning]
    import readyonce_guard

    trainer = Trainer(callbacks=[readyonce_guard.lightning_callback()])
    # --8<-- [end:lightning]
    return trainer


def once_more(ddp, loss_of, batch, optimizer):
    # --8<-- [start:replay]
    from readyonce_guard import replay

    loss_of(ddp, batch).backward()
    replay(ddp, lambda module: loss_of(module, batch))  # on all ranks, before the step
    optimizer.step()
    # --8<-- [end:replay]


def bypassed(ddp, batch):
    # --8<-- [start:bypassed]
    out = ddp(batch)  # not ddp.module(batch)
    # --8<-- [end:bypassed]
    return out


def unsynced(ddp, loss_of, first, last, optimizer):
    # --8<-- [start:unsynced]
    with ddp.no_sync():
        loss_of(ddp, first).backward()
    loss_of(ddp, last).backward()  # outside: this one averages
    optimizer.step()
    # --8<-- [end:unsynced]


def unmet(model, Head, DistributedDataParallel, AdamW):
    # --8<-- [start:unmet]
    model.head = Head()  # add, unfreeze, tie: all of it first
    ddp = DistributedDataParallel(model)
    optimizer = AdamW(ddp.parameters())
    # --8<-- [end:unmet]
    return ddp, optimizer


def start(torch, Model, DistributedDataParallel):
    # --8<-- [start:start]
    torch.manual_seed(0)  # the same on every rank, before the model is made
    model = Model()  # load a checkpoint here, on every rank
    ddp = DistributedDataParallel(model)  # sends rank 0's weights
    # --8<-- [end:start]
    return ddp


def buffers(model, DistributedDataParallel):
    # --8<-- [start:buffers]
    ddp = DistributedDataParallel(model, broadcast_buffers=True)  # the default
    # --8<-- [end:buffers]
    return ddp


def settings(base_lr, dist, optimizer):
    # --8<-- [start:settings]
    for group in optimizer.param_groups:
        group["lr"] = base_lr * dist.get_world_size()  # alike on all ranks; not what one rank measured
    # --8<-- [end:settings]


def data(dataset, epoch, DataLoader, DistributedSampler):
    # --8<-- [start:data]
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, sampler=sampler)
    sampler.set_epoch(epoch)  # each epoch
    # --8<-- [end:data]
    return loader


def kept(loss, optimizer):
    # --8<-- [start:kept]
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    # --8<-- [end:kept]


def optimizer(model, DistributedDataParallel, AdamW):
    # --8<-- [start:optimizer]
    ddp = DistributedDataParallel(model)  # unfreeze, add adapters, wrap or shard
    optimizer = AdamW(p for p in ddp.parameters() if p.requires_grad)  # then this
    # --8<-- [end:optimizer]
    return ddp, optimizer
