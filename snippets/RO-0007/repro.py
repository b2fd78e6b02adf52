"""A loss of one's own in transformers' Trainer: by what does the Trainer scale it?

    torchrun --nproc-per-node 2 repro.py reported
    torchrun --nproc-per-node 2 repro.py func-items-average

The stated objective is the token mean: a step follows the gradient of the sum over all labelled tokens of all its
micro-batches on all ranks, divided by their number. The alternative, the mean of the micro-batches' means, is the
same only where every micro-batch has equally many tokens; some variants are compared with it, on purpose.

Needs torch, transformers >= 4.46 and accelerate. A variant trains three steps of plain SGD in the Trainer and says in its
last line how far its parameters are from a plain loop in one process, and what its first gradient is to that loop's:
`factor` times as long, with `cosine` 1 where it has the same direction.
"""

import itertools
import json
import os
import sys
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import SequentialSampler
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

# --8<-- [start:variants]
DEFAULTS = dict(
    hook="override",  # of compute_loss; "func": compute_loss_func=; None: the model's own loss; "own": no Trainer
    divide="mean",  # what the sum over a micro-batch's tokens is divided by; see `divided`
    accumulation=4,  # gradient_accumulation_steps
    average=None,  # average_tokens_across_devices; None is the release's own default
    accepts=None,  # set self.model_accepts_loss_kwargs; None is the Trainer's own guess, here True
    scaled=None,  # set self.loss_is_scaled_for_ga, which newer releases have
    counts="unequal",  # labelled tokens of the micro-batches
    first=False,  # whether the first token of a row is labelled, too, as with labels = input_ids
    reference="right",  # the token mean; or "mean-of-means"
    times=1,  # the reference's gradient times this, on purpose
)
AXES = dict(
    hook={"override": "override", "func": "func"},
    divide={
        "mean": "mean",  # its own tokens: a plain mean
        "items": "items",  # num_items_in_batch
        "ranks": "items-ranks",  # the same, times the world size
        "steps": "mean-steps",  # a plain mean, divided by gradient_accumulation_steps too
    },
    average={"average": True, "separate": False},
)
EQUAL, MEANS = dict(counts="equal"), dict(reference="mean-of-means")
VARIANTS = {
    "-".join(words): {key: AXES[key][word] for key, word in zip(AXES, words)}
    for words in itertools.product(*AXES.values())
} | {
    "reported": {},
    "own-loop": dict(hook="own", accumulation=1),  # DDP without the Trainer, for comparison
    # the model's own loss
    "model-average": dict(hook=None, average=True),
    "model-separate": dict(hook=None, average=False),
    "model-first-token": dict(hook=None, average=True, first=True),
    "func-items-first-token": dict(hook="func", divide="items", average=True, first=True),
    "super-dropped": dict(divide="super-dropped", average=True),  # super().compute_loss(model, inputs)
    "super-passed": dict(divide="super", average=True),  # with num_items_in_batch
    # what one is told to set, compared with the token mean, or with the mean of means
    "override-mean-accepts-false": dict(accepts=False),
    "override-mean-accepts-false-means": dict(MEANS, accepts=False),
    "override-steps-accepts-false-means": dict(MEANS, divide="mean-steps", accepts=False),
    "override-ranks-accepts-false": dict(divide="items-ranks", average=True, accepts=False),
    "func-mean-accepts-false": dict(hook="func", average=True, accepts=False),
    "func-items-accepts-false": dict(hook="func", divide="items", average=True, accepts=False),
    "override-mean-scaled-false": dict(scaled=False),
    "override-mean-scaled-false-means": dict(MEANS, scaled=False),
    "func-mean-scaled-false-means": dict(MEANS, hook="func", average=False, scaled=False),
    "override-steps-means": dict(MEANS, divide="mean-steps"),
    # one micro-batch a step
    "override-mean-1": dict(accumulation=1),
    "override-mean-1-means": dict(MEANS, accumulation=1),
    "override-ranks-1": dict(divide="items-ranks", average=True, accumulation=1),
    "func-mean-1": dict(hook="func", average=True, accumulation=1),
    "func-items-1": dict(hook="func", divide="items", average=True, accumulation=1),
    # equally many tokens everywhere: what is left is a whole factor
    "equal-override-mean-1": dict(EQUAL, accumulation=1),
    "equal-override-mean": EQUAL,
    "equal-override-mean-times-4": dict(EQUAL, times=4),
    "equal-override-mean-accepts-false": dict(EQUAL, accepts=False),
    "equal-override-steps": dict(EQUAL, divide="mean-steps"),
    "equal-func-mean-times-8": dict(EQUAL, hook="func", average=True, times=8),
    "equal-func-mean-1-times-2": dict(EQUAL, hook="func", average=True, accumulation=1, times=2),
    "equal-override-items-times-half": dict(EQUAL, divide="items", average=True, times=0.5),
    "equal-override-items-separate": dict(EQUAL, divide="items", average=False),
    "equal-func-items-separate": dict(EQUAL, hook="func", divide="items", average=False),
    # one process
    "single-model": dict(hook=None),
    "single-override-mean-1": dict(accumulation=1),
    "single-override-mean": {},
    "single-equal-override-mean-times-4": dict(EQUAL, times=4),
    "single-override-items": dict(divide="items"),
    "single-func-items": dict(hook="func", divide="items"),
}
# --8<-- [end:variants]

STEPS, ROWS, LENGTH, VOCABULARY = 3, 2, 12, 32
ON_DEVICE = torch.accelerator.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.accelerator.current_accelerator() if ON_DEVICE else torch.device("cpu")


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    default = TrainingArguments.__dataclass_fields__["average_tokens_across_devices"].default
    first_backward = "synchronises" if s["accumulation"] == 1 else "no-sync"
    of_ddp = {"find_unused": False, "static_graph": False, "first_backward": first_backward}
    single = variant.startswith("single")
    of_trainer = {
        "loss_divisor": "model" if s["hook"] is None else DIVISORS[s["divide"]],
        "average_tokens": default if s["average"] is None else s["average"],
        "accepts_loss_kwargs": "set-false" if s["accepts"] is False else "true",
        "scaled_flag": "none" if s["scaled"] is None else s["scaled"],
    }
    return {
        "strategy": "single" if single else "ddp",
        "tuning": "full",
        "frozen": "none",
        "checkpointing": "none",
        "runs": "once",
        "runs_vary": False,
        "skips": "never",
        "second_use": "none",
        "backward_calls": "once",
        **({} if single else of_ddp),
        "accumulation": s["accumulation"],
        "batch_size": ROWS,
        "optimizer": "sgd",
        "loss_hook": {"override": "compute-loss", "func": "compute-loss-func", None: "model"}.get(s["hook"], "own"),
        **({} if s["hook"] == "own" else of_trainer),
        "token_counts": s["counts"],
        "first_label": s["first"],
        "reference": s["reference"] if s["times"] == 1 else "scaled",
    }


DIVISORS = {
    "mean": "micro-batch",
    "super-dropped": "micro-batch",
    "super": "model",
    "items": "num-items",
    "items-ranks": "num-items-over-ranks",
    "mean-steps": "micro-batch-and-accumulation",
}
# --8<-- [end:facts]


# --8<-- [start:fix]
def token_mean(outputs, labels, num_items_in_batch=None):
    """For compute_loss_func=, with average_tokens_across_devices=True."""
    logits, targets = outputs.logits[:, :-1], labels[:, 1:]
    total = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")  # but -100
    if num_items_in_batch is None:  # in evaluation
        return total / targets.ne(-100).sum()
    return total / num_items_in_batch


# --8<-- [end:fix]


# --8<-- [start:override]
def divided(outputs, labels, num_items, divide, world_size, accumulation):
    """The same loss, divided in each way that one finds."""
    mean = token_mean(outputs, labels)
    if divide == "mean":
        return mean
    if divide == "mean-steps":
        return mean / accumulation
    loss = token_mean(outputs, labels, num_items)
    return loss * world_size if divide == "items-ranks" else loss


class OwnLoss(Trainer):
    settings = DEFAULTS

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        s = self.settings
        if s["hook"] != "override" or s["divide"] == "super":
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch=num_items_in_batch)
        if s["divide"] == "super-dropped":
            return super().compute_loss(model, inputs, return_outputs)
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        place = self.accelerator.num_processes, self.args.gradient_accumulation_steps
        loss = divided(outputs, labels, num_items_in_batch, s["divide"], *place)
        return (loss, outputs) if return_outputs else loss

    def _get_train_sampler(self, *_):
        return SequentialSampler(self.train_dataset)  # so that the plain loop sees the same batches


# --8<-- [end:override]


# --8<-- [start:train]
def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    world_size = dist.get_world_size()
    AcceleratorState._reset_state(True), PartialState._reset_state(), GradientState._reset_state()
    data, first = rows(s, world_size), FirstGradient()
    if s["hook"] == "own":
        return compared(variant, *train_in_own_loop(data, world_size), *train_alone(s, data, world_size))
    with tempfile.TemporaryDirectory() as folder:
        trainer = OwnLoss(
            tiny(),
            TrainingArguments(
                folder,
                max_steps=STEPS,
                per_device_train_batch_size=ROWS,
                gradient_accumulation_steps=s["accumulation"],
                optim="sgd",
                learning_rate=0.1,
                lr_scheduler_type="constant",
                max_grad_norm=0,
                use_cpu=DEVICE.type == "cpu",
                ddp_find_unused_parameters=False,
                save_strategy="no",
                logging_strategy="no",
                report_to=[],
                disable_tqdm=True,
                **({} if s["average"] is None else {"average_tokens_across_devices": s["average"]}),
            ),
            train_dataset=data,
            compute_loss_func=by_function(s, world_size) if s["hook"] == "func" else None,
            callbacks=[first],
        )
        trainer.settings = s
        if s["accepts"] is not None:
            trainer.model_accepts_loss_kwargs = s["accepts"]
        if s["scaled"] is not None:
            trainer.loss_is_scaled_for_ga = s["scaled"]
        trainer.train()
    return compared(variant, trainer.model, first.gradient, *train_alone(s, data, world_size))


def compared(variant, model, gradient, alone, expected):
    """What `compare` tells, and how the first gradient is to the plain loop's."""
    told = compare(variant, *(dict(it.named_parameters()) for it in (model, alone, tiny())))
    factor = (gradient @ expected / (expected @ expected)).item()
    cosine = F.cosine_similarity(gradient, expected, dim=0).item()
    return told | {"factor": round(factor, 3), "cosine": round(cosine, 4)}


def by_function(s, world_size):
    if s["divide"] == "items":
        return token_mean
    place = s["divide"], world_size, s["accumulation"]
    return lambda outputs, labels, num_items_in_batch=None: divided(outputs, labels, num_items_in_batch, *place)


class FirstGradient(TrainerCallback):
    gradient = None

    def on_pre_optimizer_step(self, *_, model, **__):
        if self.gradient is None:
            self.gradient = torch.cat([p.grad.flatten().clone() for p in model.parameters()])


def tiny():
    torch.manual_seed(0)
    sizes = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
    sizes |= dict(vocab_size=VOCABULARY, initializer_range=0.2)  # large enough that three steps move every tensor
    return LlamaForCausalLM(LlamaConfig(use_cache=False, **sizes)).to(DEVICE)


def rows(s, world_size):
    """In each micro-batch another number of labelled tokens, from 4 to 20, or 12 in all."""
    torch.manual_seed(1)
    found = []
    for batch in range(STEPS * s["accumulation"] * world_size):
        tokens = torch.randint(VOCABULARY, (ROWS, LENGTH))
        labels, count = tokens.clone(), 6 if s["counts"] == "equal" else 2 + 7 * batch % 9
        labels[:, 1:-count] = -100
        if not s["first"]:
            labels[:, 0] = -100
        found += [{"input_ids": x, "labels": y} for x, y in zip(tokens, labels)]
    return found


def train_in_own_loop(data, world_size):
    """Plain DDP: the sum over this rank's tokens, times the ranks, divided by the tokens of all."""
    wrapped, first = DistributedDataParallel(tiny()), None
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    for step in range(STEPS):
        inputs, labels = batch_of(data, step * world_size, world_size)
        mine = slice(dist.get_rank() * ROWS, (dist.get_rank() + 1) * ROWS)
        total = token_mean(wrapped(input_ids=inputs[mine]), labels[mine], labels[:, 1:].ne(-100).sum())
        (total * world_size).backward()
        if first is None:
            first = torch.cat([p.grad.flatten().clone() for p in wrapped.parameters()])
        optimizer.step()
        optimizer.zero_grad()
    return wrapped.module, first


def batch_of(data, first, count):
    """Tokens and labels of `count` micro-batches."""
    found = data[first * ROWS :][: count * ROWS]
    return (torch.stack([row[name] for row in found]).to(DEVICE) for name in ("input_ids", "labels"))


def train_alone(s, data, world_size):
    """The same steps in one process and a plain loop: what the parameters must become."""
    model, expected = tiny(), None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    size = s["accumulation"] * world_size  # micro-batches in a step
    for step in range(STEPS):
        inputs, labels = batch_of(data, step * size, size)
        logits = model(input_ids=inputs).logits
        losses = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="none")
        losses, counts = (it.reshape(size, -1).sum(1) for it in (losses, labels[:, 1:].ne(-100)))
        loss = (losses / counts).mean() if s["reference"] == "mean-of-means" else losses.sum() / counts.sum()
        (loss * s["times"]).backward()
        if expected is None:
            expected = torch.cat([p.grad.flatten().clone() for p in model.parameters()]) / s["times"]
        optimizer.step()
        optimizer.zero_grad()
    return model, expected


# --8<-- [end:train]


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
    if DEVICE.type != "cpu":
        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(dist.get_default_backend_for_device(DEVICE), timeout=timedelta(seconds=60))
    result = run(sys.argv[1]) | {"facts": facts(sys.argv[1])}
    if dist.get_rank() == 0:
        print("RESULT", json.dumps(result), flush=True)
    dist.barrier()  # without it a rank that is done can take the store away from the other
    os._exit(0)  # else gloo's threads may abort, or block the end: seen with torch 2.6, pytorch/pytorch#154976
