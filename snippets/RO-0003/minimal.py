"""A reranker in a plain nn.Module, with LoRA, under DDP: torchrun --nproc-per-node 2 minimal.py [--fixed]"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


class Reranker(nn.Module):  # no PreTrainedModel: transformers' Trainer then picks find_unused_parameters=True
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(32, 8).requires_grad_(False), nn.Linear(8, 1).requires_grad_(False)
        self.base, self.lora = nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 8)

    def layer(self, x):
        return torch.tanh(self.base(x) + self.lora(x))

    def forward(self, pairs):
        x = self.embed(pairs).requires_grad_()  # peft's enable_input_require_grads()
        if "--fixed" in sys.argv:
            # --8<-- [start:fixed]
            x = checkpoint(self.layer, x, use_reentrant=False)
            # --8<-- [end:fixed]
        else:
            # --8<-- [start:fails]
            x = checkpoint(self.layer, x, use_reentrant=True)
            # --8<-- [end:fails]
        scores = self.head(x.mean(2)).squeeze(-1)
        return -scores.log_softmax(1)[:, 0].mean()  # of a query's passages the first is the right one


def train(wrap, batch):
    torch.manual_seed(0)
    model = Reranker()
    wrapped, optimizer = wrap(model), torch.optim.SGD(model.lora.parameters(), lr=0.5)
    for _ in range(3):
        wrapped(batch).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


dist.init_process_group("gloo")
batch = torch.randint(32, (4, 2, 6), generator=torch.Generator().manual_seed(1))  # queries, passages, tokens
mine = batch[dist.get_rank() :: 2]
trained = train(lambda model: DistributedDataParallel(model, find_unused_parameters=True), mine)
torch.testing.assert_close(trained, train(lambda model: model, batch))
if dist.get_rank() == 0:
    print("The weights equal one process's.")
dist.destroy_process_group()
