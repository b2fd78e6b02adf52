"""A mixture of experts in transformers' Trainer: by what is the router's auxiliary loss scaled?

    torchrun --nproc-per-node 2 repro.py reported
    torchrun --nproc-per-node 2 repro.py apart-4
    torchrun --nproc-per-node 1 repro.py single-model-4

The stated objective has two terms. The main loss is the token mean over all micro-batches and all ranks of a step. The auxiliary
loss is computed for each micro-batch, averaged over micro-batches and ranks, and multiplied by the coefficient. An alternative
is the auxiliary loss of all tokens of the step together; a variant is compared with it, on purpose, and some with the mean
of the micro-batches' means, or with the auxiliary loss times a whole number.

Needs torch, transformers >= 4.46 and accelerate; DeepSpeed for the variants that begin with zero2, peft for those that begin
with lora, and transformers 5 for those that begin with vl. A variant trains three steps of plain SGD in the Trainer and says
in its last line how far its parameters are from a plain loop in one process, and how many times too large the auxiliary part
of its first gradient is: `aux_factor`.
"""

import json
import os
import sys
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
import transformers
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import SequentialSampler
from transformers import Trainer, TrainerCallback, TrainingArguments

# --8<-- [start:variants]
DEFAULTS = dict(
    strategy="ddp",  # "zero2", or "own": DDP without the Trainer
    aux="model",  # how the auxiliary loss is added; see `MoeTrainer` and `SubtractedTrainer`
    coefficient="as-it-is",  # what router_aux_loss_coef is divided by
    assigned=False,  # only as model.router_aux_loss_coef; else in the config, or by the fix
    func=False,  # whether the main loss is a compute_loss_func
    lora=False,  # whether the model is a PeftModel
    accumulation=4,  # gradient_accumulation_steps
    average=True,  # average_tokens_across_devices; None is the release's own default
    accepts=None,  # set self.model_accepts_loss_kwargs; None is the Trainer's own guess, here True
    model="Qwen3Moe",  # where the release has none, Qwen2Moe; or a vision-language model
    top_k=2,  # experts per token, of 4
    counts="unequal",  # labelled tokens of the micro-batches
    short=False,  # whether the last step has half as many micro-batches
    reference="right",  # "mean-of-means", "whole-batch"
    times=1,  # the reference's auxiliary loss times this, on purpose
)
EQUAL, ONE = dict(counts="equal"), dict(accumulation=1)
LORA, VL = dict(lora=True), dict(model="MiniMaxM3VL")
VARIANTS = {
    "reported": ONE,
    "model-4": {},  # as it comes
    "apart-4": dict(aux="apart"),  # the fix
    "subtracted-1": dict(ONE, aux="subtracted"),  # what two open pull requests do
    "subtracted-4": dict(aux="subtracted"),
    "over-ranks-1": dict(ONE, coefficient="ranks"),
    "over-ranks-4": dict(coefficient="ranks"),
    "over-both-4": dict(coefficient="both"),  # divided by ranks and micro-batches
    # with equally many tokens everywhere only the auxiliary loss can be wrong
    "equal-separate-1": dict(EQUAL | ONE, average=False),
    "equal-separate-4": dict(EQUAL, average=False),
    "equal-accepts-false": dict(EQUAL, accepts=False),
    "accepts-false": dict(accepts=False),
    "all-experts": dict(top_k=4),
    "off": dict(aux="off"),  # compared with the main loss alone
    "times-both": dict(times=8),  # by what: compared with 8 times the auxiliary loss
    "whole-batch": dict(aux="apart", reference="whole-batch"),  # another objective
    # the last step has 2 micro-batches, the others 4
    "short-apart": dict(aux="apart", short=True),
    "short-over-both": dict(coefficient="both", short=True),
    # DeepSpeed ZeRO-2, and DDP without the Trainer
    "zero2-model": dict(strategy="zero2"),
    "zero2-apart": dict(strategy="zero2", aux="apart"),
    "own-apart": dict(strategy="own", aux="apart"),
    # a PeftModel, and a model whose forward reads its config's text_config
    "lora-apart-4": dict(LORA, aux="apart"),
    "lora-apart-assigned-4": dict(LORA, aux="apart", assigned=True),  # model.router_aux_loss_coef = 0.0, and no look
    "lora-over-both-4": dict(LORA, coefficient="both"),
    "lora-over-both-assigned-4": dict(LORA, coefficient="both", assigned=True),
    "vl-apart-4": dict(VL, aux="apart"),
    "vl-apart-assigned-4": dict(VL, aux="apart", assigned=True),
    "vl-over-both-4": dict(VL, coefficient="both"),
    "equal-qwen3-vl": dict(EQUAL, model="Qwen3VLMoe"),  # its class says that it accepts no loss kwargs
    # the labels go to a compute_loss_func, so the model adds no auxiliary loss
    "func-4": dict(func=True, aux="dropped"),
    "func-apart-4": dict(func=True, aux="apart"),
    # one process
    "single-model-1": ONE,
    "single-model-4": {},
    "single-apart": dict(aux="apart"),
}
# --8<-- [end:variants]

STEPS, ROWS, LENGTH, VOCABULARY, EXPERTS, COEFFICIENT, RATE, LORA_RANK = 3, 2, 24, 32, 4, 0.1, 0.1, 4
ON_DEVICE = torch.accelerator.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.accelerator.current_accelerator() if ON_DEVICE else torch.device("cpu")
QWEN = dict(num_experts=EXPERTS, moe_intermediate_size=8, decoder_sparse_step=1)
MINIMAX = dict(
    num_local_experts=EXPERTS, shared_intermediate_size=8, rotary_dim=8, bos_token_id=None, eos_token_id=None
)
VISION = {  # the class of a vision-language model, its experts, and its vision tower
    "MiniMaxM3VL": (
        "MiniMaxM3SparseForConditionalGeneration",
        MINIMAX,
        dict(num_hidden_layers=1, num_attention_heads=2),
    ),
    "Qwen3VLMoe": (
        "Qwen3VLMoeForConditionalGeneration",
        QWEN,
        dict(depth=1, num_heads=2, out_hidden_size=16, deepstack_visual_indexes=[0], num_position_embeddings=16),
    ),
}


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    single, own, vl = variant.startswith("single"), s["strategy"] == "own", s["model"] in VISION
    default = TrainingArguments.__dataclass_fields__["average_tokens_across_devices"].default
    of_strategy = {
        "find_unused": s["strategy"] != "own",  # the Trainer's default
        "static_graph": False,
        "first_backward": "synchronises" if s["accumulation"] == 1 else "no-sync",
    }
    if s["strategy"] == "zero2":
        of_strategy = {"buckets": "one", "overlap": False, "offload": "none"}
    hook = "own" if own else "model" if s["aux"] in ("model", "off") else "compute-loss"
    of_trainer = {
        "loss_divisor": "num-items" if s["func"] else "model",
        "average_tokens": default if s["average"] is None else s["average"],
        "accepts_loss_kwargs": "set-false" if s["accepts"] is False else s["model"] != "Qwen3VLMoe",
        "scaled_flag": "none",
    }
    return {
        "strategy": "single" if single else "zero-2" if s["strategy"] == "zero2" else "ddp",
        "tuning": "lora" if s["lora"] else "part" if vl else "full",
        "frozen": "base" if s["lora"] else "tower" if vl else "none",
        **({"model_wrapper": "peft", "lora_rank": LORA_RANK, "lora_alpha": LORA_RANK} if s["lora"] else {}),
        "optimizer": "sgd",
        "checkpointing": "none",
        "runs": "once",
        "runs_vary": False,
        "skips": "never",
        "second_use": "none",
        "backward_calls": "once",
        **({} if single else of_strategy),
        "accumulation": s["accumulation"],
        "batch_size": ROWS,
        "loss_hook": "compute-loss-func" if s["func"] else hook,
        **({} if own else of_trainer),
        "token_counts": s["counts"],
        "first_label": False,
        "router_loss": {"model": "with-the-loss", "off": "none"}.get(s["aux"], s["aux"]),
        "router_coefficient": s["coefficient"],
        "router_coefficient_at": "elsewhere" if s["assigned"] and (s["lora"] or vl) else "forward",
        "experts_per_token": "all" if s["top_k"] == EXPERTS else "some",
        **({} if s["aux"] == "off" else {"last_step": "short" if s["short"] else "full"}),
        "reference": s["reference"] if s["times"] == 1 else "scaled",
    }


# --8<-- [end:facts]


# --8<-- [start:fix]
class MoeTrainer(Trainer):
    coefficient = 0.001  # yours
    def compute_loss(self, model, inputs, return_outputs=False, **more):
        if not (self.model_accepts_loss_kwargs or self.compute_loss_func):
            raise ValueError("the Trainer divides this loss itself: use no MoeTrainer")
        hook = self.model.register_forward_hook(take_out)
        loss, out = super().compute_loss(model, inputs, True, **more)
        hook.remove()
        if model.training:
            loss = loss + self.coefficient * out["aux_loss"] / self.current_gradient_accumulation_steps
        return (loss, out) if return_outputs else loss


def take_out(model, inputs, out):  # by the coefficient that the forward used
    loss = out.get("loss")  # none where a compute_loss_func makes it
    if loss is not None and loss.requires_grad:
        (used,) = torch.autograd.grad(loss, out["aux_loss"], retain_graph=True)
        out["loss"] = loss - used * out["aux_loss"]


# --8<-- [end:fix]


# --8<-- [start:used]
def used_coefficient(model, batch):
    """By which coefficient a model that no DDP wraps adds the auxiliary loss to its own."""
    out = model(**batch, output_router_logits=True)
    return torch.autograd.grad(out.loss, out.aux_loss)[0].item()


# --8<-- [end:used]


# --8<-- [start:assigned]
class AssignedTrainer(Trainer):
    """With `model.router_aux_loss_coef = 0.0` the fix that was here before: nothing shows whether that arrives."""

    coefficient = 0.001

    def compute_loss(self, model, inputs, return_outputs=False, **more):
        loss, out = super().compute_loss(model, inputs, True, **more)
        if model.training:
            loss = loss + self.coefficient * out["aux_loss"] / self.current_gradient_accumulation_steps
        return (loss, out) if return_outputs else loss


# --8<-- [end:assigned]


def token_mean(outputs, labels, num_items_in_batch=None):
    """RO-0007's fix, for compute_loss_func=."""
    logits, targets = outputs.logits[:, :-1], labels[:, 1:]
    total = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")  # but -100
    if num_items_in_batch is None:  # in evaluation
        return total / targets.ne(-100).sum()
    return total / num_items_in_batch


# --8<-- [start:subtracted]
class SubtractedTrainer(Trainer):
    """What the ranks multiply is taken off again; what the micro-batches add up stays."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch=num_items_in_batch)
        if self.args.average_tokens_across_devices:
            coefficient = self.accelerator.unwrap_model(model).router_aux_loss_coef
            loss = loss - (self.accelerator.num_processes - 1) * coefficient * outputs["aux_loss"]
        return (loss, outputs) if return_outputs else loss


# --8<-- [end:subtracted]


# --8<-- [start:train]
def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    world_size = dist.get_world_size()
    AcceleratorState._reset_state(True), PartialState._reset_state(), GradientState._reset_state()
    os.environ.pop("ACCELERATE_USE_DEEPSPEED", None)
    divisor = {"as-it-is": 1, "ranks": world_size, "both": world_size * s["accumulation"]}[s["coefficient"]]
    data, model = rows(s, world_size), tiny(s, COEFFICIENT if s["assigned"] else COEFFICIENT / divisor)
    if s["assigned"]:
        model.router_aux_loss_coef = 0.0 if s["aux"] == "apart" else COEFFICIENT / divisor
    start = copied(trained(model))
    first = FirstStep()
    if s["strategy"] == "own":
        train_in_own_loop(s, model, data, first)
    else:
        train_in_trainer(s, model, data, first)
    reference, (main, aux) = train_alone(s, data, world_size)
    gradient = torch.cat([((p - first.parameters[name]) / RATE).flatten() for name, p in start.items()])
    part = (gradient - main) @ aux / (aux @ aux) / COEFFICIENT if aux.abs().max() > 1e-6 else None
    told = compare(variant, trained(model), trained(reference), start)
    return told | {"aux_factor": None if part is None else round(part.item(), 2)}


def train_in_trainer(s, model, data, first):
    apart = AssignedTrainer if s["assigned"] else MoeTrainer
    kind = {"apart": apart, "subtracted": SubtractedTrainer}.get(s["aux"], Trainer)
    kind._get_train_sampler = lambda self, *_: SequentialSampler(self.train_dataset)  # for the plain loop's sake
    with tempfile.TemporaryDirectory() as folder:
        trainer = kind(
            model,
            TrainingArguments(
                folder,
                num_train_epochs=1,
                per_device_train_batch_size=ROWS,
                gradient_accumulation_steps=s["accumulation"],
                optim="sgd",
                learning_rate=RATE,
                lr_scheduler_type="constant",
                max_grad_norm=0,
                use_cpu=DEVICE.type == "cpu",
                save_strategy="no",
                logging_strategy="no",
                report_to=[],
                disable_tqdm=True,
                **({"deepspeed": ZERO2} if s["strategy"] == "zero2" else {}),
                **({} if s["average"] is None else {"average_tokens_across_devices": s["average"]}),
            ),
            train_dataset=data,
            compute_loss_func=token_mean if s["func"] else None,
            callbacks=[first],
        )
        trainer.coefficient = COEFFICIENT
        if not hasattr(trainer, "current_gradient_accumulation_steps"):  # 4.46 does not know it
            trainer.current_gradient_accumulation_steps = s["accumulation"]
        if s["accepts"] is not None:
            trainer.model_accepts_loss_kwargs = s["accepts"]
        trainer.train()


ZERO2 = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": 0.0,
    "zero_allow_untested_optimizer": True,  # plain SGD, to compare parameters
    "zero_optimization": {"stage": 2, "overlap_comm": False},
}


class FirstStep(TrainerCallback):
    parameters = None

    def on_step_end(self, *_, model, **__):
        if self.parameters is None:
            self.parameters = copied(trained(model))


def trained(model):
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def copied(parameters):
    return {name: p.detach().clone() for name, p in parameters.items()}


def tiny(s, coefficient=COEFFICIENT):
    torch.manual_seed(5)  # with which every expert gets a token in every micro-batch
    name = s["model"] if hasattr(transformers, f"{s['model']}Config") else "Qwen2Moe"
    kind, experts, tower = VISION.get(name, (f"{name}ForCausalLM", QWEN, None))
    text = dict(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_experts_per_tok=s["top_k"],
        **experts,
        **({"shared_expert_intermediate_size": 8} if name == "Qwen2Moe" else {"head_dim": 8}),
        initializer_range=0.2,  # so that the router prefers some experts
        output_router_logits=s["aux"] != "off",
        router_aux_loss_coef=coefficient,
        use_cache=False,
    )
    if tower:
        vision = tower | {"hidden_size": 16, "intermediate_size": 16}
        text = {"text_config": text, "vision_config": vision, "tie_word_embeddings": False}
    model = getattr(transformers, kind)(getattr(transformers, f"{name}Config")(**text))
    if tower:  # trained on text, so all but the language model is frozen
        for parameter, p in model.named_parameters():
            p.requires_grad_("language_model" in parameter or "lm_head" in parameter)
    if s["lora"]:
        from peft import LoraConfig, get_peft_model

        options = LoraConfig(r=LORA_RANK, lora_alpha=LORA_RANK, target_modules=["q_proj", "v_proj"])
        options.init_lora_weights = False  # so that B is not zero
        model = get_peft_model(model, options)
    return model.to(DEVICE)


def steps_of(s):
    """Micro-batches of a rank in each step."""
    return [s["accumulation"]] * (STEPS - s["short"]) + [s["accumulation"] // 2] * s["short"]


def rows(s, world_size):
    """In each micro-batch another number of labelled tokens, from 4 to 20, or 12 in all."""
    torch.manual_seed(1)
    found = []
    for batch in range(sum(steps_of(s)) * world_size):
        tokens = torch.randint(VOCABULARY, (ROWS, LENGTH))
        labels, count = tokens.clone(), 6 if s["counts"] == "equal" else 2 + 7 * batch % 9
        labels[:, :-count] = -100
        found += [{"input_ids": x, "labels": y} for x, y in zip(tokens, labels)]
    return found


def train_in_own_loop(s, model, data, first):
    """Plain DDP: the sum over this rank's tokens, times the ranks, divided by the tokens of all."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for step in range(STEPS):
        batches = batches_of(data, step * s["accumulation"] * ranks, s["accumulation"] * ranks)
        tokens = sum(labels[:, 1:].ne(-100).sum() for _, labels in batches)
        mine = batches[rank::ranks]
        for number, (inputs, labels) in enumerate(mine, 1):
            wrapped.require_backward_grad_sync = number == len(mine)
            main, aux = losses_of(wrapped, inputs, labels)
            if s["aux"] == "apart":
                loss = ranks * main / tokens + COEFFICIENT * aux / len(mine)
            else:
                loss = ranks * (main / tokens + COEFFICIENT * aux)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        first.on_step_end(model=model)


def losses_of(model, inputs, labels):
    """The sum over the labelled tokens, and the auxiliary loss."""
    outputs = model(input_ids=inputs, output_router_logits=True)
    targets = labels[:, 1:].flatten()  # cross_entropy leaves out -100
    return F.cross_entropy(outputs.logits[:, :-1].flatten(0, 1), targets, reduction="sum"), outputs.aux_loss


def batches_of(data, first, count):
    """Tokens and labels of `count` micro-batches."""
    found = [data[n * ROWS : (n + 1) * ROWS] for n in range(first, first + count)]
    keys = "input_ids", "labels"
    return [tuple(torch.stack([row[key] for row in rows]).to(DEVICE) for key in keys) for rows in found]


def train_alone(s, data, world_size):
    """The same steps in one process and a plain loop. Also the first gradient, of either term."""
    model, gradients, seen = tiny(s), None, 0
    parameters = list(trained(model).values())
    optimizer = torch.optim.SGD(parameters, lr=RATE)
    for size in steps_of(s):
        batches = batches_of(data, seen, size * world_size)
        seen += len(batches)
        sums, auxes = zip(*(losses_of(model, *batch) for batch in batches))
        counts = [labels[:, 1:].ne(-100).sum() for _, labels in batches]
        if s["reference"] == "mean-of-means":
            main = sum(it / count for it, count in zip(sums, counts)) / len(batches)
        else:
            main = sum(sums) / sum(counts)
        if s["reference"] == "whole-batch":
            inputs, labels = (torch.cat(them) for them in zip(*batches))
            auxes = [losses_of(model, inputs, labels)[1]]
        aux = sum(auxes) / len(auxes)
        if gradients is None:
            gradients = [flat(it, parameters) for it in (main, aux)]
        wanted = 0 if s["aux"] == "off" else COEFFICIENT * s["times"]
        (main + wanted * aux).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, gradients


# --8<-- [end:train]


def flat(loss, parameters):
    gradients = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in zip(gradients, parameters)])


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
    else:
        os.environ["DS_ACCELERATOR"] = "cpu"
    dist.init_process_group(dist.get_default_backend_for_device(DEVICE), timeout=timedelta(seconds=60))
    result = run(sys.argv[1]) | {"facts": facts(sys.argv[1])}
    if dist.get_rank() == 0:
        print("RESULT", json.dumps(result), flush=True)
    dist.barrier()  # without it a rank that is done can take the store away from the other
    os._exit(0)  # else gloo's threads may abort, or block the end: seen with torch 2.6, pytorch/pytorch#154976
