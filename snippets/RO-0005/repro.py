"""A term that touches a head's parameters, under ZeRO-3: "invalid gradient at index 0 - got [0]".

    torchrun --nproc-per-node 2 repro.py reported
    torchrun --nproc-per-node 2 repro.py zero3-alternating-zero-input

Needs torch >= 2.6 and DeepSpeed. Below 0.19.8, ZeRO-3 on a CPU is right only with one gloo thread: see the page
concepts/zero3-early-gather. A variant either raises, as it would in training, or trains three
steps and says in its last line how far its parameters are from a single-process run.
"""

import itertools
import json
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

if not torch.accelerator.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
    # Without it, older releases call the program numactl to count processors.
    os.environ.setdefault("LOCAL_SIZE", os.environ.get("LOCAL_WORLD_SIZE", "1"))
import deepspeed  # noqa: E402

# --8<-- [start:variants]
DEFAULTS = dict(
    stage=3,
    head="used",  # "unused", "alternating" (in every second micro-batch), or on "rank-0" only
    way="dummy-sum",  # what keeps the head's parameters in the graph; see AXES
    term="sum",  # what the term does with each parameter; see TERMS; "linear": the head's layer, by its weight and bias
    gather_for=None,  # "gathered" with fwd_module=: the "model", whose forward reads them, or the "head"
    needed=None,  # a term that counts: an L2 "penalty" on the head, or its "norm" for a log, without gradient
    leaf=False,  # set_z3_leaf_modules on the head
    offload=None,  # to the CPU: "optimizer", or "params" too
    only_when_unused=False,  # leave the term out where the head is used
    starts="used",  # the first micro-batch of "alternating", or "unused"
    reference="right",  # or "stale": a head without a gradient is moved by its previous one
    persist=0,  # stage3_param_persistence_threshold: parameters up to this size stay whole
    frozen=None,  # "head" or "backbone"
    accumulation=1,
    vocab=8,  # of the audio; the incident has 4160
    streams=3,
)
AXES = dict(
    stage={"zero1": 1, "zero2": 2, "zero3": 3},
    head={"used": "used", "unused": "unused", "alternating": "alternating"},
    way={
        "dummy-sum": "dummy-sum",  # sum(p.sum() for p in head.parameters()) * 0.0
        "no-term": "no-term",  # that line removed
        "zero-input": "zero-input",  # removed, and the head runs on zeros where it is not used
        "registered": "registered",  # the sum, after register_external_parameter
        "gathered": "gathered",  # the sum, inside GatheredParameters
        "one-by-one": "one-by-one",  # sum((p * 0.0).sum() for p in head.parameters())
    },
)
TERMS = {
    "sum": lambda p: p.sum(),
    "one-by-one": lambda p: (p * 0.0).sum(),
    "mean": lambda p: p.mean(),
    "norm": lambda p: p.norm(),
    "power": lambda p: p.pow(2).sum(),
    "abs": lambda p: p.abs().sum(),
    "slice": lambda p: p[:1].sum(),
    "product": lambda p: (p * p).sum(),
    "cast": lambda p: p.double().sum(),
    "cat": lambda p: torch.cat([p, p]).sum(),
}
PENALTY = dict(needed="penalty")
LATE = dict(head="alternating", only_when_unused=True)

VARIANTS = {
    "-".join(words): {key: AXES[key][word] for key, word in zip(AXES, words)}
    for words in itertools.product(*AXES.values())
} | {
    "reported": dict(vocab=4160, persist=35840),  # what "auto" sets for a hidden size of 3584
    "head-frozen": dict(frozen="head"),
    "head-frozen-unused": dict(frozen="head", head="unused"),
    "backbone-frozen": dict(frozen="backbone"),
    "backbone-frozen-zero-input": dict(frozen="backbone", way="zero-input", head="alternating"),
    "persist-bias": dict(persist=100),  # the bias has 24 elements, the weight 192
    "persist-all": dict(persist=100_000),
    "persist-all-unused": dict(persist=100_000, head="unused"),
    "persist-all-late": dict(LATE, persist=100_000),
    "persist-all-late-first-unused": dict(LATE, persist=100_000, starts="unused"),
    "persist-none-late": LATE,
    "no-term-first-unused": dict(way="no-term", head="alternating", starts="unused"),
    "no-term-stale-reference": dict(way="no-term", head="alternating", reference="stale"),
    "no-term-accumulate-2": dict(way="no-term", head="alternating", accumulation=2),
    "no-term-accumulate-2-first-unused": dict(way="no-term", head="alternating", starts="unused", accumulation=2),
    "zero-input-first-unused": dict(way="zero-input", head="alternating", starts="unused"),
    "zero-input-accumulate-2": dict(way="zero-input", head="alternating", accumulation=2),
    "zero-input-rank-0-only": dict(way="zero-input", head="rank-0"),
    **{
        f"gathered-for-{module}-{head}": dict(way="gathered", gather_for=module, head=head)
        for module in ("model", "head")
        for head in AXES["head"]
    },
    **{f"leaf-head-{head}": dict(way="no-term", leaf=True, head=head) for head in AXES["head"]},
    "penalty": dict(PENALTY, way="dummy-sum"),
    "penalty-registered": dict(PENALTY, way="registered"),
    "penalty-gathered": dict(PENALTY, way="gathered"),
    "penalty-gathered-for-model": dict(PENALTY, way="gathered", gather_for="model"),
    "penalty-gathered-for-model-alternating": dict(PENALTY, way="gathered", gather_for="model", head="alternating"),
    "penalty-registered-alternating": dict(PENALTY, way="registered", head="alternating"),
    "norm-for-log": dict(way="gathered", needed="norm"),
    "norm-for-log-zero-input": dict(way="zero-input", needed="norm", head="alternating"),
    **{
        f"offload-{what}-{way}": dict(offload=what, way=way, head="alternating")
        for what in ("optimizer", "params")
        for way in ("no-term", "zero-input", "dummy-sum")
    },
    **{f"term-{name}": dict(term=name) for name in [*TERMS, "linear"] if name not in ("sum", "one-by-one")},
}


def config(settings, world_size):
    zero = {"stage": settings["stage"]}
    if settings["stage"] == 3:
        zero["stage3_param_persistence_threshold"] = settings["persist"]
    if settings["offload"]:
        zero["offload_optimizer"] = {"device": "cpu"}
    if settings["offload"] == "params":
        zero["offload_param"] = {"device": "cpu"}
    return {
        "train_micro_batch_size_per_gpu": BATCH // world_size,
        "gradient_accumulation_steps": settings["accumulation"],
        "gradient_clipping": 0.0,  # newer releases clip at 1.0 unless told otherwise
        "zero_allow_untested_optimizer": True,  # plain SGD, to compare parameters
        "zero_force_ds_cpu_optimizer": False,  # SGD with offload too
        "zero_optimization": zero,
    }


# --8<-- [end:variants]


STEPS, BATCH, LENGTH, WIDTH, TEXT = 3, 4, 8, 16, 32


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    way, trained = s["way"], s["frozen"] != "head"
    skips = {"used": "never", "unused": "always", "rank-0": "some-ranks"}.get(s["head"], "some-steps")
    if skips == "some-steps" and s["accumulation"] > 1:
        skips = "later-micro-batch" if s["starts"] == "used" else "first-micro-batch"
    elif skips == "some-steps" and s["starts"] == "unused":
        skips = "first-step"
    counts = s["needed"] != "norm"  # without a gradient it is no second use
    second = trained and counts and (way not in ("no-term", "zero-input") or s["needed"] == "penalty")
    gathering = way if s["stage"] == 3 and way in ("registered", "gathered") else "none"
    late = "later-steps" if s["starts"] == "used" else "skipped-steps"
    term = "one-by-one" if way == "one-by-one" else s["needed"] or s["term"]
    sizes = 3 * s["vocab"], 3 * s["vocab"] ** 2  # of the head's bias and weight
    persist = sum(size <= s["persist"] for size in sizes)
    return {
        "strategy": f"zero-{s['stage']}",
        "tuning": "part" if s["frozen"] else "full",
        "frozen": s["frozen"] or "none",
        "checkpointing": "none",
        "runs": "once",
        "runs_vary": False,
        "skips": skips if trained and way != "zero-input" else "never",
        "filler": "zeros" if way == "zero-input" and s["head"] != "used" else "none",
        "second_use": "forward" if second else "none",
        "second_use_of": "not-checkpointed" if second else "none",
        "second_use_in": late if s["only_when_unused"] else "every-step",
        "gathering": f"{gathering}-for-{s['gather_for']}" if s["gather_for"] else gathering,
        "term": term if second or s["needed"] else "none",
        "leaf": s["leaf"],
        "offload": s["offload"] or "none",
        "persistence": ("none", "some", "all")[persist] if s["stage"] == 3 else "none",
        "backward_calls": "once",
        "accumulation": s["accumulation"],
        "batch_size": BATCH // 2,
        "optimizer": "sgd",
        "buckets": "one",
        "overlap": s["stage"] == 3,  # DeepSpeed's own choice
        "reference": s["reference"],
    }


# --8<-- [end:facts]


# --8<-- [start:model]
class Layer(nn.Module):
    """Attention and a gated MLP behind RMSNorms, as in Qwen."""

    def __init__(self):
        super().__init__()
        self.norm, self.mlp_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate_up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Head(nn.Module):
    """One linear layer whose output is split into streams, as SLAM-Omni's group decoding."""

    def __init__(self, vocab, streams):
        super().__init__()
        self.streams = streams
        self.linear = nn.Linear(vocab, streams * vocab)

    def forward(self, logits):
        return self.linear(logits).unflatten(-1, (self.streams, -1))


class Model(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.settings = settings
        self.embed = nn.Embedding(TEXT, WIDTH)
        self.layers = nn.ModuleList([Layer()])
        self.lm_head = nn.Linear(WIDTH, TEXT + settings["vocab"], bias=False)
        self.head = Head(settings["vocab"], settings["streams"])
        if settings["frozen"]:
            of_head = set(self.head.parameters())
            for p in self.parameters():
                p.requires_grad_((p in of_head) == (settings["frozen"] == "backbone"))

    def forward(self, tokens, audio):  # audio is None where the batch has none
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        text_logits, audio_logits = self.lm_head(x).tensor_split([TEXT], dim=-1)
        loss = F.cross_entropy(text_logits.flatten(0, 1), tokens.flatten())
        if audio is not None or self.settings["way"] == "zero-input":
            loss = loss + self.audio_loss(audio_logits, audio)
        if audio is None or not self.settings["only_when_unused"]:
            loss = loss + self.dummy_loss()
        return loss

    # --8<-- [start:fix]
    def audio_loss(self, logits, audio):
        """The head runs exactly once on every rank, on zeros where the batch has no audio."""
        if audio is None:
            return self.head(torch.zeros_like(logits)).sum() * 0.0
        return F.cross_entropy(self.head(logits).flatten(0, 2), audio.flatten())

    # --8<-- [end:fix]

    def dummy_loss(self):
        s, way, parameters = self.settings, self.settings["way"], list(self.head.parameters())
        module = {"model": self, "head": self.head, None: None}[s["gather_for"]]
        gather = s["stage"] == 3 and (way == "gathered" or s["needed"] == "norm")
        with deepspeed.zero.GatheredParameters(parameters, fwd_module=module, enabled=gather):
            if s["needed"] == "norm":
                with torch.no_grad():
                    self.logged = sum(p.square().sum() for p in parameters).sqrt()
                return 0.0
            if s["needed"] == "penalty":
                return sum(p.square().sum() for p in parameters)
            if way in ("no-term", "zero-input"):
                return 0.0
            if s["term"] == "linear":
                weight, bias = parameters
                return F.linear(weight.new_ones(1, s["vocab"]), weight, bias).sum() * 0.0
            term = TERMS["one-by-one" if way == "one-by-one" else s["term"]]
            return sum(term(p) for p in parameters) * 0.0


# --8<-- [end:model]


# --8<-- [start:train]
def make(settings):
    torch.manual_seed(0)
    return Model(settings)


def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    settings = {**DEFAULTS, **VARIANTS[variant]}
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = make(settings)
    if settings["leaf"]:
        deepspeed.utils.set_z3_leaf_modules(model, [Head])
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.SGD(trainable(model).values(), lr=0.1),
        config=config(settings, world_size),
    )
    if settings["way"] == "registered" and settings["stage"] == 3:
        # --8<-- [start:register]
        for p in model.head.parameters():
            deepspeed.zero.register_external_parameter(model, p)
        # --8<-- [end:register]
    data = batches(settings)
    try:
        for micro_step in range(STEPS * settings["accumulation"]):
            share = share_of(data, settings, micro_step, rank, world_size, engine.device)
            engine.backward(engine(*share))
            engine.step()
        trained = {}
        for name, p in trainable(model).items():
            # One by one: as a list, DeepSpeed < 0.19.8 on CPU may return too early.
            with deepspeed.zero.GatheredParameters(p, enabled=settings["stage"] == 3):
                trained[name] = p.detach().clone()
    finally:
        engine.destroy()  # or its hooks outlive a failed variant
    reference = train_alone(settings, data, world_size, engine.device)
    start = make(settings).to(engine.device)
    return compare(variant, trained, trainable(reference), trainable(start))


def batches(settings):
    shape = STEPS * settings["accumulation"], BATCH, LENGTH
    return torch.randint(TEXT, shape), torch.randint(settings["vocab"], (*shape, settings["streams"]))


def share_of(data, settings, micro_step, rank, world_size, device):
    """This rank's part of a micro-batch; its audio is None where the head is not used."""
    tokens, audio = (part[micro_step][rank::world_size].to(device) for part in data)
    used = {
        "used": True,
        "unused": False,
        "alternating": (micro_step % 2 == 0) == (settings["starts"] == "used"),
        "rank-0": rank == 0,
    }[settings["head"]]
    return tokens, audio if used else None


def train_alone(settings, data, world_size, device):
    """The same steps in one process, without any dummy term: what the parameters must become."""
    model = make({**settings, "way": "no-term", "stage": 0}).to(device)
    optimizer, previous = torch.optim.SGD(trainable(model).values(), lr=0.1), {}
    for step in range(STEPS):
        for micro_step in range(step * settings["accumulation"], (step + 1) * settings["accumulation"]):
            for rank in range(world_size):
                loss = model(*share_of(data, settings, micro_step, rank, world_size, device))
                if loss.requires_grad:
                    (loss / world_size / settings["accumulation"]).backward()
        if settings["reference"] == "stale":
            for p in model.head.parameters():
                p.grad = previous.get(p) if p.grad is None else p.grad
                previous[p] = p.grad
        optimizer.step()
        optimizer.zero_grad()
    return model


# --8<-- [end:train]


# --8<-- [start:compare]
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


def trainable(model):
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


# --8<-- [end:compare]


if __name__ == "__main__":
    torch.set_num_threads(1)
    deepspeed.init_distributed(timeout=timedelta(seconds=60), verbose=False)
    result = run(sys.argv[1]) | {"facts": facts(sys.argv[1])}
    if dist.get_rank() == 0:
        print("RESULT", json.dumps(result), flush=True)
    dist.barrier()  # without it a rank that is done can take the store away from the other
    os._exit(0)  # else gloo's threads may abort, or block the end: seen with torch 2.6, pytorch/pytorch#154976
