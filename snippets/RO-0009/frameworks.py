"""The losses of FlagEmbedding and sentence-transformers themselves, under DDP, with a small encoder.

    torchrun --nproc-per-node 2 frameworks.py flagembedding

The stated objective is the mean InfoNCE over all pairs of the global batch, as one process computes it. Needs FlagEmbedding,
which brings sentence-transformers. Embeddings, gathering and loss are theirs; the encoder, the data and the loop are this file's.
"""

import contextlib
import copy
import importlib
import json
import os
import sys
from datetime import timedelta
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# --8<-- [start:variants]
VARIANTS = {
    "flagembedding": dict(of="flagembedding", gathers=True),  # --negatives_cross_device
    "flagembedding-half": dict(of="flagembedding", gathers=True, reference="scaled"),  # compared with right / ranks
    "flagembedding-ranks": dict(of="flagembedding", gathers=True, times="ranks"),  # the loss times the world size
    "flagembedding-grad": dict(of="flagembedding", gathers=True, gather="grad"),  # its gather replaced
    # a teacher's scores: with kl_div, distillation over the own queries is added; in a batch without in-batch negatives
    # (no_in_batch_neg_flag) a query is compared with the passages of its own group
    "flagembedding-kl-div-plain": dict(of="flagembedding", gathers=True, kind="kl-div"),
    "flagembedding-kl-div-ranks": dict(of="flagembedding", gathers=True, kind="kl-div", times="ranks"),
    "flagembedding-kl-div-grad": dict(of="flagembedding", gathers=True, kind="kl-div", gather="grad"),
    "flagembedding-m3-kd-plain": dict(of="flagembedding", gathers=True, kind="m3-kd"),
    "flagembedding-m3-kd-ranks": dict(of="flagembedding", gathers=True, kind="m3-kd", times="ranks"),
    "flagembedding-m3-kd-grad": dict(of="flagembedding", gathers=True, kind="m3-kd", gather="grad"),
    "flagembedding-no-in-batch-plain": dict(of="flagembedding", gathers=True, kind="no-in-batch"),
    "flagembedding-no-in-batch-ranks": dict(of="flagembedding", gathers=True, kind="no-in-batch", times="ranks"),
    "flagembedding-no-in-batch-grad": dict(of="flagembedding", gathers=True, kind="no-in-batch", gather="grad"),
    "flagembedding-local": dict(of="flagembedding", gathers=False),
    "flagembedding-local-own-objective": dict(of="flagembedding", gathers=False, reference="local"),
    "mnrl-local": dict(of="mnrl", gathers=False),  # MultipleNegativesRankingLoss, as it is by default
    "mnrl-local-own-objective": dict(of="mnrl", gathers=False, reference="local"),
    "mnrl-gather": dict(of="mnrl", gathers=True),  # gather_across_devices=True
    "mnrl-gather-ranks": dict(of="mnrl", gathers=True, times="ranks"),
    "mnrl-gather-both": dict(of="mnrl", gathers=True, symmetric=True),  # passages against queries too
}
# --8<-- [end:variants]

STEPS, PAIRS, WIDTH, SCALE = 3, 4, 8, 5.0
TEACHERS = {"kl-div": "kl_div", "m3-kd": "m3_kd_loss"}  # kd_loss_type


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = VARIANTS[variant]
    design = ("all-queries", s.get("gather", "slot")) if s["of"] == "flagembedding" else ("own-queries", "grad")
    gathers = dict(zip(("contrast", "gather"), design))
    if s.get("kind") == "no-in-batch":
        gathers = {"contrast": "group"}  # nothing is gathered
    return {
        "strategy": "ddp",
        "tuning": "full",
        "frozen": "none",
        "checkpointing": "none",
        "find_unused": False,
        "static_graph": False,
        "first_backward": "synchronises",
        "runs": "last",
        "runs_vary": False,
        "skips": "never",
        "second_use": "none",
        "backward_calls": "once",
        "accumulation": 1,
        "batch_size": PAIRS,
        "optimizer": "sgd",
        **(gathers if s["gathers"] else {"contrast": "local"}),
        "loss_times": s.get("times", "one"),
        "temperature": "fixed",
        "directions": "both" if s.get("symmetric") else "one",
        "second_term": "local" if s.get("kind") == "kl-div" else "none",
        "rank_pairs": "equal",
        "reference": {"local": "local-negatives"}.get(s.get("reference"), s.get("reference", "right")),
    }


# --8<-- [end:facts]


class Encoder(nn.Module):
    """What FlagEmbedding takes for a transformer, and sentence-transformers for a model."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))

    def forward(self, features=None, inputs=None, attention_mask=None, return_dict=True):
        if features is not None:
            return {"sentence_embedding": self.layers(features["inputs"])}
        return SimpleNamespace(last_hidden_state=self.layers(inputs)[:, None])


@contextlib.contextmanager
def gathering(s):
    """For these settings, FlagEmbedding's gather replaced; what follows in this process has its own again."""
    if s["of"] != "flagembedding" or s.get("gather") != "grad":
        yield
        return
    own = importlib.import_module("FlagEmbedding.abc.finetune.embedder").AbsEmbedderModel._dist_gather_tensor
    # --8<-- [start:grad]
    from FlagEmbedding.abc.finetune.embedder import AbsEmbedderModel

    def gather_with_gradients(self, t):
        return None if t is None else torch.cat(torch.distributed.nn.functional.all_gather(t.contiguous()))

    AbsEmbedderModel._dist_gather_tensor = gather_with_gradients
    # --8<-- [end:grad]
    try:
        yield
    finally:
        AbsEmbedderModel._dist_gather_tensor = own


# --8<-- [start:losses]
def of_flagembedding(s, encoder, gathers, wrapped=True):
    """FlagEmbedding's loss of two batches; the teacher's scores are made up, from the passages."""
    from FlagEmbedding.finetune.embedder.encoder_only.base.modeling import BiEncoderOnlyEmbedderModel

    kind = s.get("kind")
    settings = dict(temperature=1 / SCALE, normalize_embeddings=True, negatives_cross_device=gathers)
    if kind in TEACHERS:
        settings["kd_loss_type"] = TEACHERS[kind]
    model = BiEncoderOnlyEmbedderModel(encoder, **settings).train()
    model = DistributedDataParallel(model) if wrapped else model

    def loss_of(queries, passages):
        more = dict(teacher_scores=passages["inputs"][:, 0].tolist()) if kind in TEACHERS else {}
        return model(queries=queries, passages=passages, no_in_batch_neg_flag=kind == "no-in-batch", **more).loss

    return loss_of


def made(s, encoder):
    """The framework's loss of two batches, through the wrapped model."""
    if s["of"] == "flagembedding":
        return of_flagembedding(s, encoder, s["gathers"])
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    model = DistributedDataParallel(encoder)
    settings = dict(scale=SCALE, gather_across_devices=s["gathers"])
    if s.get("symmetric"):
        settings |= dict(directions=("query_to_doc", "doc_to_query"), partition_mode="per_direction")
    loss = MultipleNegativesRankingLoss(model, **settings)
    return lambda queries, passages: loss([queries, passages], None)


# --8<-- [end:losses]


def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the pairs."""
    s, rank, world_size = VARIANTS[variant], dist.get_rank(), dist.get_world_size()
    group = 2 if "kind" in s else 1  # passages of a query
    data = torch.randn(STEPS, 1 + group, world_size * PAIRS, WIDTH, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    encoder = Encoder()
    reference, start = copy.deepcopy(encoder), copy.deepcopy(encoder)
    loss_of, optimizer, first = made(s, encoder), torch.optim.SGD(encoder.parameters(), lr=0.1), None
    with gathering(s):
        for step in data:
            loss = loss_of(*batches(step[:, rank * PAIRS : (rank + 1) * PAIRS]))
            (loss * (world_size if s.get("times") == "ranks" else 1)).backward()
            first = torch.cat([p.grad.flatten().clone() for p in encoder.parameters()]) if first is None else first
            optimizer.step()
            optimizer.zero_grad()
    expected = train_alone(reference, data, s)
    told = compare(variant, *(dict(it.named_parameters()) for it in (encoder, reference, start)))
    return told | {
        "factor": round((first @ expected / (expected @ expected)).item(), 3),
        "cosine": round(F.cosine_similarity(first, expected, dim=0).item(), 4),
    }


def batches(step):
    """Queries, and the passages of each, as the frameworks take them."""
    both = step[0], step[1:].transpose(0, 1).flatten(0, 1)
    return [{"inputs": it, "attention_mask": torch.ones(len(it), 1)} for it in both]


def train_alone(model, data, s):
    """The same steps in one process. Returns the first gradient of the stated objective."""
    optimizer, first = torch.optim.SGD(model.parameters(), lr=0.1), None
    theirs = of_flagembedding(s, model, gathers=False, wrapped=False) if "kind" in s else None
    for step in data:
        losses = [theirs(*batches(step))] if theirs else []
        parts = step.split(PAIRS, dim=1) if s.get("reference") == "local" else [step]
        for queries, passages in [] if theirs else parts:
            queries, passages = (F.normalize(model.layers(it), dim=-1) for it in (queries, passages))
            scores, targets = SCALE * queries @ passages.T, torch.arange(len(queries))
            loss = F.cross_entropy(scores, targets)
            losses.append((loss + F.cross_entropy(scores.T, targets)) / 2 if s.get("symmetric") else loss)
        loss = sum(losses) / len(losses) / (dist.get_world_size() if s.get("reference") == "scaled" else 1)
        loss.backward()
        first = torch.cat([p.grad.flatten().clone() for p in model.parameters()]) if first is None else first
        optimizer.step()
        optimizer.zero_grad()
    return first


# Copied from scripts/readyonce/compare.py, which `readyonce render` writes here.
LIMIT = 1e-3  # the largest gradient error of a match


def compare(variant, trained, reference, start):
    """How a run ended. The tensors are {name: whole tensor}: of this rank, of one process, and of both before training.

    A gradient error is a tensor's distance to one process's, as a share of how far that one moved it from `start`; a
    rank spread is its distance to rank 0's. What moved by less than rounding can show is named, and not judged.
    """
    assert trained.keys() == reference.keys() == start.keys(), "not the same tensors"
    errors, spreads, unmoved, unjudged = {}, {}, [], {}
    for name, q in reference.items():
        p, q, first = trained[name].detach(), q.detach(), trained[name].detach().clone()
        assert p.shape == q.shape == start[name].shape, f"{name}: {p.shape}, {q.shape}, {start[name].shape}"
        if dist.is_initialized():
            dist.broadcast(first, src=0)
        moved = (q - start[name].detach()).abs().max().item()
        rounding = 2 * torch.finfo(q.dtype).eps * q.abs().max().item() + torch.finfo(q.dtype).tiny
        if moved < rounding:
            unmoved.append(name)
        elif moved < rounding / LIMIT:
            unjudged[name] = rounding / moved  # the smallest error that it can show
        off, apart = ((p - other).abs().max().nan_to_num(nan=3e38).item() for other in (q, first))
        errors[name], spreads[name] = (part / max(moved, rounding / LIMIT) for part in (off, apart))
    assert len(unjudged) <= len(errors) / 20, f"these moved too little to be judged: {unjudged}"
    worst = max(errors, key=errors.get)
    ranks = [(errors[worst], worst, max(spreads.values()))]
    if dist.is_initialized():
        ranks = dist.get_world_size() * ranks
        dist.all_gather_object(ranks, ranks[0])
    error, worst, _ = max(ranks)
    told = {"variant": variant, "outcome": "match" if error <= LIMIT else "diverge", "gradient_error": error}
    told |= {"rank_spread": max(spread for *_, spread in ranks), "worst": worst}
    return told | {key: value for key, value in (("unmoved", unmoved), ("unjudged", unjudged)) if value}


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    result = run(sys.argv[1]) | {"facts": facts(sys.argv[1])}
    if dist.get_rank() == 0:
        print("RESULT", json.dumps(result), flush=True)
    dist.barrier()  # without it a rank that is done can take the store away from the other
    os._exit(0)  # else gloo's threads may abort, or block the end: seen with torch 2.6, pytorch/pytorch#154976
