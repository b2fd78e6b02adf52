"""Where the guard goes, for each framework. The page "Guard your training" shows these sections."""


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
