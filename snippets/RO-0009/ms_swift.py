"""ms-swift's own InfoNCE across ranks, with DDP, and one process: torchrun --nproc-per-node 2 ms_swift.py

The loss is the class that `--task_type embedding --loss_type infonce` chooses; the encoder and the data are this file's.
"""

import copy
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn.functional as F
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model
from second import ADAPTED, CLIP, moved, verdict
from swift.loss import loss_map
from torch import nn

PAIRS, WIDTH, TEMPERATURE = 4, 8, 0.1  # of each rank; ms-swift's default temperature
accelerator = Accelerator(cpu=True, mixed_precision="bf16" if ADAPTED else "no")  # starts gloo, as under the Trainer
rank, world_size = dist.get_rank(), dist.get_world_size()
queries, passages = torch.randn(2, world_size * PAIRS, WIDTH, generator=torch.Generator().manual_seed(1))
torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
if ADAPTED:
    encoder = get_peft_model(encoder, LoraConfig(target_modules=["0", "2"], init_lora_weights=False))
alone = copy.deepcopy(encoder)
model = accelerator.prepare(encoder)  # DDP
mine = slice(rank * PAIRS, (rank + 1) * PAIRS)
rows = torch.stack([queries[mine], passages[mine]], 1).flatten(0, 1)  # a query, its passage, a query, its passage
loss = loss_map["infonce"](SimpleNamespace(), SimpleNamespace())
accelerator.backward(loss({"last_hidden_state": F.normalize(model(rows), dim=-1)}, torch.ones(PAIRS)))
if ADAPTED:
    accelerator.clip_grad_norm_(encoder.parameters(), CLIP)
    torch.optim.AdamW(encoder.parameters()).step()
    moved(encoder, alone)


def of_all(alone):
    q, p = (F.normalize(alone(it).float(), dim=-1) for it in (queries, passages))  # accelerate's outputs are float32
    with torch.autocast("cpu", enabled=False):
        return F.cross_entropy(q @ p.T / TEMPERATURE, torch.arange(len(q)))


verdict("", encoder, alone, of_all, 1e-6, "to a millionth")
dist.barrier()
dist.destroy_process_group()
