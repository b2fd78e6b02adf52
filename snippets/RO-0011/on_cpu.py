"""What trainer.py and trl_sft.py share: FSDP on a CPU, the norms that are logged, and the comparison with one process.

accelerate turns FSDP on for GPUs only. On a CPU `OnCpu` sets what it sets on a GPU; the rest is the trainer's own. With the
word `bf16-lora` it is LoRA in bfloat16 with AdamW, and the first clipped gradient is compared in place of the weights.
"""

import sys

import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from peft import LoraConfig, get_peft_model
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.utils.data import SequentialSampler
from transformers import TrainerCallback

ADAPTED = "bf16-lora" in sys.argv
SETTING = "LoRA in bf16, AdamW, clipping | " if ADAPTED else ""
BOUND, SIZES = 0.1 if ADAPTED else 0.2, {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
REST = {"learning_rate": 0.5, "lr_scheduler_type": "constant", "max_steps": 3, "use_cpu": True}
REST |= {"optim": "adamw_torch", "bf16": True, "learning_rate": 1e-3} if ADAPTED else {"optim": "sgd", "bf16": False}
REST |= {"save_strategy": "no", "report_to": "none", "per_device_train_batch_size": 2, "logging_steps": 1}
POLICY = {"auto_wrap_policy": "transformer_based_wrap", "transformer_cls_names_to_wrap": ["LlamaDecoderLayer"]}
POLICY |= {"cpu_ram_efficient_loading": False, "sync_module_states": False}


class OnCpu:
    """Of a trainer: under FSDP with these settings, or under DDP without any."""

    settings = None

    def create_accelerator_and_postprocess(self):
        super().create_accelerator_and_postprocess()
        if self.settings:
            plugin, self.is_fsdp_enabled = FullyShardedDataParallelPlugin(**POLICY, **self.settings), True
            self.accelerator.state.fsdp_plugin = plugin
            if ADAPTED:
                plugin.set_mixed_precision("bf16")
            for it in (self.accelerator.state, PartialState()):
                it.distributed_type, it.device = DistributedType.FSDP, torch.device("cpu")

    def _get_train_sampler(self, *_):
        return SequentialSampler(self.train_dataset)

    def _clip_grad_norm(self, model):
        norm = super()._clip_grad_norm(model)
        self.clipped = getattr(self, "clipped", None) or gradient(model)
        return norm


class Norms(TrainerCallback):
    def __init__(self):
        self.seen = []

    def on_log(self, args, state, control, logs, **more):
        self.seen.extend([logs["grad_norm"]] if "grad_norm" in logs else [])


def whole(model):
    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(model):
            return [p.detach().clone() for p in model.parameters()]
    return [p.full_tensor() if hasattr(p, "full_tensor") else p.detach() for p in model.parameters()]


def gradient(model):
    """The whole gradient, which stands in the place of the weights for as long as `whole` needs."""
    kept = [p.detach().clone() for p in model.parameters()]
    for p in model.parameters():
        p.data.zero_() if p.grad is None else p.data.copy_(p.grad)
    found = [p.clone() for p in whole(model)]
    for p, before in zip(model.parameters(), kept, strict=True):
        p.data.copy_(before)
    return found


def adapted(model):
    lora = LoraConfig(target_modules="all-linear", init_lora_weights=False)  # B is not zero: A has a gradient at once
    return get_peft_model(model, lora) if ADAPTED else model


def one_process(fresh, data, half):
    """What the weights became, or the first clipped gradient, and each step's norm."""
    alone, norms, clipped = fresh(), [], None
    kind = torch.optim.AdamW if ADAPTED else torch.optim.SGD
    optimizer = kind([p for p in alone.parameters() if p.requires_grad], lr=REST["learning_rate"])
    for rows in data.split(4):  # three steps of four rows
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = alone(input_ids=rows, labels=rows).loss
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(alone.parameters(), BOUND).item())
        clipped = clipped or gradient(alone)
        optimizer.step()
        optimizer.zero_grad()
    return clipped if ADAPTED else whole(alone), norms


def length(one, other):
    return sum((a - b).square().sum() for a, b in zip(one, other, strict=True)).sqrt().item()


def beside_one_process(fresh, data, strategies, kind, make):
    """Train with `make(callbacks)`, a trainer of this kind, under each strategy, and beside it as one process."""
    alone, wanted = one_process(fresh, data, half=ADAPTED)
    moved = length(alone, [p * (not ADAPTED) for p in whole(fresh())])
    limit = 3 * length(one_process(fresh, data, half=False)[0], alone) / moved if ADAPTED else 1e-5
    for name, kind.settings in strategies.items():
        AcceleratorState._reset_state(True), PartialState._reset_state(), GradientState._reset_state()
        norms = Norms()
        trainer = make([norms])
        trainer.train()
        apart = length(alone, trainer.clipped if ADAPTED else whole(trainer.model_wrapped)) / moved
        if dist.get_rank() == 0:
            what, which = ("first clipped gradients", "first norm is") if ADAPTED else ("weights", "norms are")
            right = "equal one process's" if apart < limit else "are not one process's"
            right += ", within rounding" if ADAPTED else ""
            pairs = list(zip(norms.seen, wanted, strict=True))[: 1 if ADAPTED else 3]
            same = "its" if all(abs(a / b - 1) < limit for a, b in pairs) else "not its"
            clipped = "each of them above the bound" if min(wanted) > BOUND else "not all above the bound"
            told = f"the {what} {right}, the {which} {same}, {clipped}"
            print(f"\n=> {SETTING}{name}, {type(trainer.model_wrapped).__name__}: {told}", flush=True)
            print(f"distance {apart:.1e} (limit {limit:.1e}), norms {norms.seen} ({wanted}), bound {BOUND}", flush=True)
