"""What a use of a weight ends in under ZeRO-3, by use and by place: torchrun --nproc-per-node 2 uses.py

Each use is added to the loss in four ways. A training that ends is compared with one process that saw all the data.
The last lines are a second model, which `zero.Init` has partitioned, before and after `deepspeed.initialize`.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
import deepspeed


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.conv = nn.Embedding(16, 8), nn.Conv1d(8, 8, 1)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, tokens, term=None):
        hidden = self.conv(self.embed(tokens).transpose(1, 2)).transpose(1, 2)
        out = self.head(self.norm(hidden))
        return out if term is None else loss_of(self, tokens, out, term)


def loss_of(model, tokens, out, term):
    return out.square().mean() + term(model, tokens, out).square().mean()


USES = {
    "module(x)": lambda m, tokens, out: m.head(out),
    "F.embedding(tokens, weight)": lambda m, tokens, out: F.embedding(tokens, m.embed.weight),
    "F.linear(x, weight)": lambda m, tokens, out: F.linear(out, m.head.weight),
    "F.linear(matrix, weight, bias)": lambda m, tokens, out: F.linear(out.flatten(0, 1), m.head.weight, m.head.bias),
    "x @ weight.T": lambda m, tokens, out: out @ m.head.weight.T,
    "x @ weight.transpose(0, 1)": lambda m, tokens, out: out @ m.head.weight.transpose(0, 1),
    "F.conv1d(x, weight, bias)": lambda m, tokens, out: F.conv1d(out.transpose(1, 2), m.conv.weight, m.conv.bias),
    "F.layer_norm(x, shape, weight)": lambda m, tokens, out: F.layer_norm(out, (8,), m.norm.weight),
    "x * weight": lambda m, tokens, out: out * m.norm.weight,
    "weight.shape[1]": lambda m, tokens, out: out / m.head.weight.shape[1],
    "weight[0]": lambda m, tokens, out: m.embed.weight[0],
    "weight[tokens]": lambda m, tokens, out: m.embed.weight[tokens],
    "weight.norm()": lambda m, tokens, out: m.head.weight.norm(),
    "out * weight.detach().norm()": lambda m, tokens, out: out * m.head.weight.detach().norm(),
}


def gathered(engine, model, tokens, term):
    out = engine(tokens)
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        return loss_of(model, tokens, out, term)


def after(engine, model, tokens, term):
    return loss_of(model, tokens, engine(tokens), term)


WAYS = {  # the stage of ZeRO, and where the use stands
    "after the engine's forward": (3, after),
    "in the forward": (3, lambda engine, model, tokens, term: engine(tokens, term)),
    "GatheredParameters": (3, gathered),
    "ZeRO-2": (2, after),
}


def ends(stage, way, term):
    torch.manual_seed(0)
    model, reference = Model(), Model()
    reference.load_state_dict(model.state_dict())
    zero = {"stage": stage} | ({"stage3_param_persistence_threshold": 0} if stage == 3 else {})
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.0, "zero_allow_untested_optimizer": True}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config | {"zero_optimization": zero})
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
    try:
        for tokens in torch.randint(16, (3, 4, 5), generator=torch.Generator().manual_seed(1)):
            engine.backward(way(engine, model, tokens[dist.get_rank() :: 2], term))
            engine.step()
            sum(reference(half, term) / 2 for half in (tokens[::2], tokens[1::2])).backward()
            optimizer.step()
            optimizer.zero_grad()
        with deepspeed.zero.GatheredParameters(list(model.parameters()), enabled=stage == 3):
            torch.testing.assert_close(model.state_dict(), reference.state_dict())
        return "trains right"
    except AssertionError as error:
        return "trains wrong" if "not close" in str(error) else f"AssertionError: {error}"
    except (RuntimeError, IndexError) as error:
        return str(error)
    finally:
        engine.destroy()  # or its hooks outlive it


deepspeed.init_distributed("gloo", verbose=False)
for use, term in USES.items():
    for name, (stage, way) in WAYS.items():
        end = ends(stage, way, term)
        if dist.get_rank() == 0:
            print(f"=> {use} | {name} | {end}", flush=True)
with deepspeed.zero.Init():
    second = Model()
for name in ("not initialized", "initialized"):
    if name == "initialized":
        # --8<-- [start:second]
        config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}}
        second, *_ = deepspeed.initialize(model=second, config=config)  # without an optimizer
        # --8<-- [end:second]
    try:
        with torch.no_grad():
            end = f"an output of shape {list(second(torch.arange(6)[None]).shape)}"
    except RuntimeError as error:
        end = str(error)
    if dist.get_rank() == 0:
        print(f"=> second(tokens) | {name} | {end}", flush=True)
dist.destroy_process_group()
