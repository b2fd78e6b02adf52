"""A fused loss, as TRL calls Liger's, under DDP: torchrun --nproc-per-node 2 minimal.py [--fixed]"""

import sys

import torch
import torch.distributed as dist
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Embedding(16, 8), nn.Linear(8, 16, bias=False)

    def forward(self, tokens):
        return self.head(self.body(tokens))

    def loss(self, tokens):  # as Liger's, in plain torch: hidden states and the head's weight, without its forward
        logits = nn.functional.linear(self.body(tokens[:-1]), self.head.weight)
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[1:].flatten())


def redirected(wrapper, model, method, *args):
    forward = model.forward

    def once(*args):
        model.forward = forward
        return method(*args)

    model.forward = once
    return wrapper(*args)


def train(wrap, batch):
    torch.manual_seed(0)
    model = Model()
    wrapper, optimizer = wrap(model), torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(3):
        if "--fixed" in sys.argv:
            # --8<-- [start:fixed]
            redirected(wrapper, model, model.loss, batch).backward()  # wrapper(batch), whose forward runs model.loss
            # --8<-- [end:fixed]
        else:
            # --8<-- [start:fails]
            model.loss(batch).backward()  # model is wrapper.module, or accelerator.unwrap_model(wrapper)
            # --8<-- [end:fails]
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


dist.init_process_group("gloo")
batch = torch.randint(16, (6, 4), generator=torch.Generator().manual_seed(1))  # tokens of four texts
trained = train(nn.parallel.DistributedDataParallel, batch[:, dist.get_rank() :: 2])
torch.testing.assert_close(trained, train(lambda model: model, batch))
if dist.get_rank() == 0:
    print("The weights equal one process's.")
dist.destroy_process_group()
