"""Tevatron's own loss across ranks, with DDP, and one process: torchrun --nproc-per-node 2 tevatron_loss.py

The model and its loss are Tevatron's, with `negatives_x_device`; the encoder is a tiny BERT, and the data are this file's.
"""

import copy
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn.functional as F
from tevatron.modeling import DenseModel
from torch.nn.parallel import DistributedDataParallel
from transformers import BertConfig, BertModel

PAIRS, PASSAGES = 4, 2  # of each rank; of each query, the first of which is its own
dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
chance = torch.Generator().manual_seed(1)
queries, passages = (torch.randint(1, 32, (world_size * PAIRS * n, 6), generator=chance) for n in (1, PASSAGES))
torch.manual_seed(0)
sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 32}
sizes |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.2}
encoder = BertModel(BertConfig(**sizes), add_pooling_layer=False)
alone = copy.deepcopy(encoder)
of_training = SimpleNamespace(negatives_x_device=True, per_device_train_batch_size=PAIRS)
own = DenseModel(encoder, encoder, data_args=SimpleNamespace(train_n_passages=PASSAGES), train_args=of_training)
mine = [{"input_ids": ids.chunk(world_size)[rank]} for ids in (queries, passages)]
model = DistributedDataParallel(own.train())  # one that nobody keeps is gone before the backward, and averages nothing
model(*mine).loss.backward()
scores = alone(queries).last_hidden_state[:, 0] @ alone(passages).last_hidden_state[:, 0].T
F.cross_entropy(scores, torch.arange(len(queries)) * PASSAGES).backward()
got, wanted = (torch.cat([p.grad.flatten() for p in it.parameters()]) for it in (encoder, alone))
apart = ((got - wanted).norm() / wanted.norm()).item()
if rank == 0:
    right = "one process's, to a hundred-thousandth" if apart < 1e-5 else "not one process's"
    print(f"=> the gradient is {right}, {got.norm() / wanted.norm():.3f} times as long", flush=True)
    print(f"distance {apart:.1e}", flush=True)
dist.barrier()
dist.destroy_process_group()
