"""Each look-alike, from the library that says it: `torchrun --nproc-per-node 2 look_alikes.py NAME`."""

import os
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layer = nn.Embedding(8, 4), nn.Linear(4, 4)
        self.embed.requires_grad_(False)

    def forward(self, tokens):
        return checkpoint(self.layer, self.embed(tokens), use_reentrant=True).sum()


def checkpoint_kwargs():
    checkpoint(nn.Linear(4, 4), input=torch.ones(2, 4, requires_grad=True), use_reentrant=True, attention_mask=None)


def checkpoint_tensor_count():
    calls = []

    def layer(x):
        calls.append(x)
        return x.sin() if len(calls) > 1 else x.sin().exp().cos()

    checkpoint(layer, torch.ones(4, requires_grad=True), use_reentrant=False).sum().backward()


def checkpoint_more_tensors():
    from torch.utils.checkpoint import set_checkpoint_early_stop

    calls = []

    def layer(x):
        calls.append(x)
        return x.sin().exp().cos() if len(calls) > 1 else x.sin()

    with set_checkpoint_early_stop(False):
        checkpoint(layer, torch.ones(4, requires_grad=True), use_reentrant=False).sum().backward()


def checkpoint_metadata():
    calls = []

    def layer(x):
        calls.append(x)
        return (x[:2] if len(calls) > 1 else x).sin().exp()

    checkpoint(layer, torch.ones(4, requires_grad=True), use_reentrant=False).sum().backward()


def no_grad_fn():
    Frozen()(torch.tensor([1, 2])).backward()


def inputs_without_grad():
    Frozen()(torch.tensor([1, 2]))


def leaf_view():
    out = nn.Embedding(8, 4)(torch.tensor([1, 2, 3])).detach().requires_grad_(True)
    out.view(-1, 4).index_copy_(0, torch.tensor([1]), torch.ones(1, 4))


def leaf():
    torch.ones(4, requires_grad=True).add_(1)


def size_zero_checkpoint():
    model = nn.Sequential(nn.Linear(4, 4))
    state = {name: torch.empty(0) for name in model.state_dict()}
    model.load_state_dict(state)


def weight_not_2d():
    layer = nn.Embedding(8, 4)
    layer.weight.data = torch.empty(0)
    layer(torch.tensor([1]))


def fsdp(dtype=None, requires_grad=True):
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[0].requires_grad_(requires_grad)
    if dtype:
        model[0].to(dtype)
    FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=False)


def fsdp_requires_grad():
    fsdp(requires_grad=False)


def fsdp_dtype():
    fsdp(dtype=torch.bfloat16)


def no_sync_zero2():
    import deepspeed

    model = nn.Linear(4, 4)
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}, "zero_allow_untested_optimizer": True}
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), config=config)
    with engine.no_sync():
        engine.backward(engine(torch.ones(1, 4)).sum())


def zero3_device_map():
    import tempfile

    from transformers import GPT2Config, GPT2Model
    from transformers.integrations import HfDeepSpeedConfig

    with tempfile.TemporaryDirectory() as folder:
        GPT2Model(GPT2Config(n_layer=1, n_embd=8, n_head=1, vocab_size=8)).save_pretrained(folder)
        _alive = HfDeepSpeedConfig({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}, "bf16": {"enabled": False}})
        GPT2Model.from_pretrained(folder, device_map="auto")


def zero3_mixed_dtypes():
    import deepspeed

    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}
    config |= {"zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
    with deepspeed.zero.Init(config_dict_or_path=config):
        model = nn.Sequential(nn.Linear(4, 4))
    model.append(nn.Linear(4, 4))  # as an adapter in float32 that is made later
    deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters()), config=config)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]]()
