"""Two experts, of which each rank runs one, under ZeRO-2: torchrun --nproc-per-node 2 minimal.py [--fixed]"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
import deepspeed


class Experts(nn.ModuleList):
    """The router is left out: `hit` says which expert the rank's tokens chose."""

    def forward(self, x, hit, fixed):
        if fixed:
            # --8<-- [start:fixed]
            # every expert, in a fixed order; on zeros, times 0, where no token chose it
            return sum(e(x) if i == hit else 0.0 * e(torch.zeros_like(x)) for i, e in enumerate(self))
            # --8<-- [end:fixed]
        # --8<-- [start:fails]
        return self[hit](x)  # only the expert that was hit
        # --8<-- [end:fails]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts, self.head = Experts(nn.Linear(8, 8) for _ in range(2)), nn.Linear(8, 8)

    def forward(self, x, hit, fixed=False):
        return (self.head(torch.tanh(self.experts(x, hit, fixed))) - 1).square().mean()


deepspeed.init_distributed("gloo")
rank = dist.get_rank()
batches = torch.randn(3, 2, 4, 8, generator=torch.Generator().manual_seed(1))  # steps, ranks, tokens
torch.manual_seed(0)
model, reference = Model(), Model()
reference.load_state_dict(model.state_dict())
config = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_clipping": 0.0,  # DeepSpeed 0.19.3 and newer clip at 1.0 unless told otherwise
    "zero_allow_untested_optimizer": True,  # plain SGD
    "zero_optimization": {"stage": 2},
}
engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), config=config)
optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
for step, batch in enumerate(batches):
    engine.backward(engine(batch[rank], (step + rank) % 2, "--fixed" in sys.argv))
    engine.step()
    sum(reference(batch[r], (step + r) % 2) / 2 for r in range(2)).backward()
    optimizer.step()
    optimizer.zero_grad()
torch.testing.assert_close(model.state_dict(), reference.state_dict())
if rank == 0:
    print("The weights equal one process's.")
dist.destroy_process_group()
