"""Two backwards of accelerate under ZeRO-2 are two steps of the optimizer: torchrun --nproc-per-node 2 tabs.py"""

import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
import torch
import torch.distributed as dist
from accelerate import Accelerator, DeepSpeedPlugin
from torch import nn
from torch.utils.data import DataLoader

ZERO2 = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1,
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "zero_optimization": {"stage": 2},
}
torch.manual_seed(0)
model = nn.Linear(8, 8)
accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=ZERO2))
optimizer, loader = torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(torch.randn(4, 8), batch_size=1)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
steps = []
for batch in loader:
    before = model.module.weight.detach().clone()
    for loss in (model(batch).square().mean(), model(batch + 1).square().mean()):
        accelerator.backward(loss)
        after = model.module.weight.detach().clone()
        steps.append(not torch.equal(before, after))
        before = after
    optimizer.step()
    steps.append(not torch.equal(before, model.module.weight))
    optimizer.zero_grad()
    break
if dist.get_rank() == 0:
    for name, moved in zip(
        ("accelerator.backward, first loss", "accelerator.backward, second loss", "optimizer.step()"), steps
    ):
        print(f"=> {name}: the weights {'move' if moved else 'stand still'}", flush=True)
dist.destroy_process_group()
