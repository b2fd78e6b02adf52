"""Tevatron's own loss across ranks, with DDP, and one process: torchrun --nproc-per-node 2 tevatron_loss.py

The model and its loss are Tevatron's, with `negatives_x_device`; the encoder is a tiny BERT, and the data are this file's.
The release has no option for LoRA: with `bf16-lora` it is this file's, too.
"""

import copy
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn.functional as F
from second import ADAPTED, CLIP, moved, verdict
from tevatron.modeling import DenseModel
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from transformers import BertConfig, BertModel

PAIRS, PASSAGES = 4, 2  # of each rank; of each query, the first of which is its own


class Adapted(nn.Module):
    def __init__(self, linear, rank=8):
        super().__init__()
        self.linear, self.lora_A = linear, nn.Linear(linear.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, linear.out_features, bias=False)  # not zero, so that A has a gradient

    def forward(self, x):
        return self.linear(x) + self.lora_B(self.lora_A(x))


dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
chance = torch.Generator().manual_seed(1)
queries, passages = (torch.randint(1, 32, (world_size * PAIRS * n, 6), generator=chance) for n in (1, PASSAGES))
torch.manual_seed(0)
sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 32}
sizes |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.2}
encoder = BertModel(BertConfig(**sizes), add_pooling_layer=False)
if ADAPTED:
    encoder.requires_grad_(False)
    for name, linear in list(encoder.named_modules()):
        if isinstance(linear, nn.Linear):
            encoder.set_submodule(name, Adapted(linear))
alone = copy.deepcopy(encoder)
of_training = SimpleNamespace(negatives_x_device=True, per_device_train_batch_size=PAIRS)
own = DenseModel(encoder, encoder, data_args=SimpleNamespace(train_n_passages=PASSAGES), train_args=of_training)
mine = [{"input_ids": ids.chunk(world_size)[rank]} for ids in (queries, passages)]
model = DistributedDataParallel(own.train())  # one that nobody keeps is gone before the backward, and averages nothing
with torch.autocast("cpu", torch.bfloat16, enabled=ADAPTED):
    loss = model(*mine).loss
loss.backward()
if ADAPTED:
    nn.utils.clip_grad_norm_(encoder.parameters(), CLIP)
    torch.optim.AdamW(encoder.parameters()).step()
    moved(encoder, alone)


def of_all(alone):
    scores = alone(queries).last_hidden_state[:, 0] @ alone(passages).last_hidden_state[:, 0].T
    return F.cross_entropy(scores, torch.arange(len(queries)) * PASSAGES)


verdict("", encoder, alone, of_all, 1e-5, "to a hundred-thousandth")
dist.barrier()
dist.destroy_process_group()
