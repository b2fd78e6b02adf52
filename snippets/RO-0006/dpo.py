"""TRL's DPOTrainer under DDP, with Liger's loss and without.

    torchrun --nproc-per-node 2 dpo.py dpo-liger
    torchrun --nproc-per-node 2 dpo.py dpo-plain

Objective: DPO's sigmoid loss, averaged over the pairs of all ranks, as a plain loop in one process computes it. A tiny
Llama with random weights, three steps of plain SGD. Needs trl and liger-kernel; trl 1.13.0 and 1.14.0 were run.
"""

import copy
import json
import os
import sys
import tempfile
from datetime import timedelta

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # Liger compiles its loss, which takes longer than these steps

import torch
import torch.distributed as dist
import transformers
import trl
from accelerate.state import AcceleratorState, GradientState, PartialState
from datasets import Dataset
from packaging.version import Version
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import SequentialSampler
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import DPOConfig, DPOTrainer

# --8<-- [start:variants]
DEFAULTS = dict(liger=True, averaged=None, clip=False)
VARIANTS = {
    "dpo-liger": dict(),
    "dpo-plain": dict(liger=False),
    "dpo-liger-by-hand": dict(averaged="training-step", clip=True),
    "dpo-liger-callback": dict(averaged="callback"),  # which the Trainer calls after it has clipped
    "dpo-liger-callback-clip": dict(averaged="callback", clip=True),
}
# --8<-- [end:variants]

KERNELS = "rope rms_norm swiglu cross_entropy fused_linear_cross_entropy".split()
STEPS, PAIRS, RATE, BETA, BOUND = 3, 2, 0.5, 0.1, 0.1  # pairs of a rank in each step; BOUND of the gradient's norm
WORDS = "a b c d e f g h i j k l m n o p".split()
REDIRECTS = Version(trl.__version__) >= Version("1.14")  # Liger's loss through the wrapper's `forward`, also under DDP


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    averaged = {None: "wrapper", "training-step": "hand", "callback": "hand-after-clipping"}
    through = ("redirected" if REDIRECTS else "fused") if s["liger"] else "wrapper"
    return {
        "strategy": "ddp",
        "tuning": "full",
        "frozen": "none",
        "dpo_loss": "liger" if s["liger"] else "own",
        "loss_through": through,
        "also_wrapper": "nothing",
        "averaged_by": averaged[s["averaged"]],
        "after_wrapping": "nothing",
        "wrapped": "once",
        "find_unused": True,  # the Trainer's own choice, without gradient checkpointing
        "static_graph": False,
        "checkpointing": "none",
        "runs": "once",
        "runs_vary": False,
        "skips": "never",
        "second_use": "only-loss" if through == "fused" else "none",
        "second_use_of": "not-checkpointed" if through == "fused" else "none",
        "backward_calls": "once",
        "accumulation": 1,
        "first_backward": "synchronises",
        "batch_size": PAIRS,
        "optimizer": "sgd",
        "reference": "right",
        **({"clipping": "accelerate", "clip_bites": True} if s["clip"] else {"clipping": "none"}),
    }


# --8<-- [end:facts]


# --8<-- [start:average]
def average(model):
    """What DDP would have done; every rank reduces the same gradients in the same order."""
    for p in model.parameters():
        if p.requires_grad:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()


class AveragedTrainer(DPOTrainer):
    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        if self.accelerator.sync_gradients:  # after the last micro-batch, before clipping
            average(self.accelerator.unwrap_model(self.model))
        return loss


# --8<-- [end:average]


class Average(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, model, **kwargs):
        average(model)


# --8<-- [start:train]
def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    AcceleratorState._reset_state(True), PartialState._reset_state(), GradientState._reset_state()
    s = {**DEFAULTS, **VARIANTS[variant]}
    model = tiny()
    DPOTrainer._get_train_sampler = lambda self, *_: SequentialSampler(self.train_dataset)  # for the plain loop's sake
    with tempfile.TemporaryDirectory() as folder:
        trainer = (AveragedTrainer if s["averaged"] == "training-step" else DPOTrainer)(
            model,
            args=DPOConfig(
                folder,
                use_liger_kernel=s["liger"],
                # Liger's kernels need a GPU; its DPO loss does not.
                liger_kernel_config=dict.fromkeys(KERNELS, False),
                beta=BETA,
                num_train_epochs=1,
                per_device_train_batch_size=PAIRS,
                optim="sgd",
                learning_rate=RATE,
                lr_scheduler_type="constant",
                max_grad_norm=BOUND if s["clip"] else 0,
                use_cpu=True,
                bf16=False,
                disable_dropout=True,
                gradient_checkpointing=False,
                save_strategy="no",
                logging_strategy="no",
                report_to=[],
                disable_tqdm=True,
            ),
            ref_model=copy.deepcopy(model),
            train_dataset=pairs(STEPS * PAIRS * dist.get_world_size()),
            processing_class=tokenizer(),
            callbacks=[Average()] if s["averaged"] == "callback" else [],
        )
        trainer.train()
    reference = train_alone(tiny(), trainer, s["clip"])
    return compare(variant, *(dict(it.named_parameters()) for it in (model, reference, tiny())))


def train_alone(model, trainer, clip):
    """DPO's own formula on the pairs of all ranks, in one process."""
    reference, rows, size = copy.deepcopy(model), list(trainer.train_dataset), PAIRS * dist.get_world_size()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for step in range(STEPS):
        batch = trainer.data_collator(rows[step * size : (step + 1) * size])
        with torch.no_grad():
            wanted = preference(reference, batch)
        (-torch.nn.functional.logsigmoid(BETA * (preference(model, batch) - wanted))).mean().backward()
        if clip:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), BOUND)
            assert norm > BOUND, norm
        optimizer.step()
        optimizer.zero_grad()
    return model


def preference(model, batch):
    """log p(chosen) - log p(rejected) of each pair: (pairs,), in nats."""
    mask = batch["completion_mask"][:, 1:]
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
    told = logits.log_softmax(-1).gather(-1, batch["input_ids"][:, 1:, None])[..., 0]
    chosen, rejected = (told * mask).sum(-1).chunk(2)
    return chosen - rejected


# --8<-- [end:train]


def tiny():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS) + 3,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        tie_word_embeddings=False,
        initializer_range=0.2,  # large enough that three steps move it
    )
    return LlamaForCausalLM(config)


def tokenizer():
    known = {word: number for number, word in enumerate(["<pad>", "<s>", "</s>", *WORDS])}
    own = Tokenizer(models.WordLevel(known, unk_token="<pad>"))
    own.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=own, pad_token="<pad>", bos_token="<s>", eos_token="</s>")


def pairs(count):
    chance = torch.Generator().manual_seed(1)
    text = lambda: " " + " ".join(WORDS[i] for i in torch.randint(len(WORDS), (4,), generator=chance))
    return Dataset.from_list([{"prompt": text(), "chosen": text(), "rejected": text()} for _ in range(count)])


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
    transformers.utils.logging.set_verbosity_error()
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    result = run(sys.argv[1]) | {"facts": facts(sys.argv[1])}
    if dist.get_rank() == 0:
        print("RESULT", json.dumps(result), flush=True)
    dist.barrier()  # without it a rank that is done can take the store away from the other
    os._exit(0)  # else gloo's threads may abort, or block the end: seen with torch 2.6, pytorch/pytorch#154976
