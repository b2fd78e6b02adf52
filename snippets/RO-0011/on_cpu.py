"""What trainer.py and trl_sft.py share: FSDP on a CPU, the norms that are logged, and the comparison with one process.

accelerate turns FSDP on for GPUs only. On a CPU `OnCpu` sets what it sets on a GPU; the rest is the trainer's own.
"""

import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.utils.data import SequentialSampler
from transformers import TrainerCallback

BOUND, SIZES = 0.2, {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
REST = {"optim": "sgd", "learning_rate": 0.5, "lr_scheduler_type": "constant", "max_steps": 3, "use_cpu": True}
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
            for it in (self.accelerator.state, PartialState()):
                it.distributed_type, it.device = DistributedType.FSDP, torch.device("cpu")

    def _get_train_sampler(self, *_):
        return SequentialSampler(self.train_dataset)


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


def beside_one_process(fresh, data, strategies, kind, make):
    """Train with `make(callbacks)`, a trainer of this kind, under each strategy, and beside it as one process."""
    alone, wanted = fresh(), []
    optimizer = torch.optim.SGD(alone.parameters(), lr=REST["learning_rate"])
    for rows in data.split(4):  # three steps of four rows
        alone(input_ids=rows, labels=rows).loss.backward()
        wanted.append(torch.nn.utils.clip_grad_norm_(alone.parameters(), BOUND).item())
        optimizer.step()
        optimizer.zero_grad()
    for name, kind.settings in strategies.items():
        AcceleratorState._reset_state(True), PartialState._reset_state(), GradientState._reset_state()
        norms = Norms()
        trainer = make([norms])
        trainer.train()
        moved, apart = (
            sum((a - b).square().sum() for a, b in zip(whole(alone), other, strict=True)).sqrt().item()
            for other in (whole(fresh()), whole(trainer.model_wrapped))
        )
        if dist.get_rank() == 0:
            right = "equal one process's" if apart / moved < 1e-5 else "are not one process's"
            same = all(abs(a / b - 1) < 1e-5 for a, b in zip(norms.seen, wanted, strict=True))
            clipped = "each of them above the bound" if min(wanted) > BOUND else "not all above the bound"
            told = f"the weights {right}, the norms {'are its' if same else 'are not its'}, {clipped}"
            print(f"\n=> {name}, {type(trainer.model_wrapped).__name__}: {told}", flush=True)
            print(f"distance {apart / moved:.1e}, norms {norms.seen}, bound {BOUND}", flush=True)
