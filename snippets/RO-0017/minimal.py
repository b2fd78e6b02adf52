"""A loss that takes a weight from a model under ZeRO-3: torchrun --nproc-per-node 2 minimal.py [--fixed]"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
import deepspeed


class Model(nn.Module):
    """Predicts the embedding of the next token."""

    def __init__(self):
        super().__init__()
        self.embed, self.body = nn.Embedding(16, 8), nn.Linear(8, 8)

    def forward(self, tokens, wanted=None):
        hidden = torch.tanh(self.body(self.embed(tokens)))
        return hidden if wanted is None else F.mse_loss(hidden, self.embed(wanted))


deepspeed.init_distributed("gloo")
batches = torch.randint(16, (3, 4, 6), generator=torch.Generator().manual_seed(1))
torch.manual_seed(0)
model, reference = Model(), Model()
reference.load_state_dict(model.state_dict())
config = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_clipping": 0.0,  # DeepSpeed 0.19.3 and newer clip at 1.0 unless told otherwise
    "zero_allow_untested_optimizer": True,  # plain SGD
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},  # else ZeRO-3 leaves small ones whole
}
engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), config=config)
optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
for batch in batches:
    mine = batch[dist.get_rank() :: 2]
    tokens, wanted = mine[:, :-1], mine[:, 1:]
    if "--fixed" in sys.argv:
        # --8<-- [start:fixed]
        loss = engine(tokens, wanted)  # the model's forward computes the loss, and calls self.embed(wanted)
        # --8<-- [end:fixed]
    else:
        # --8<-- [start:fails]
        loss = F.mse_loss(engine(tokens), F.embedding(wanted, model.embed.weight))  # the weight has no elements here
        # --8<-- [end:fails]
    engine.backward(loss)
    engine.step()
    reference(batch[:, :-1], batch[:, 1:]).backward()
    optimizer.step()
    optimizer.zero_grad()
with deepspeed.zero.GatheredParameters(list(model.parameters())):
    torch.testing.assert_close(model.state_dict(), reference.state_dict())
if dist.get_rank() == 0:
    print("The weights equal one process's.")
dist.destroy_process_group()
