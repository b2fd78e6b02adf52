"""`max_grad_norm` of TRL's SFTTrainer, compared with one process: torchrun --nproc-per-node 2 trl_sft.py

accelerate turns FSDP on for GPUs only. On a CPU `Own` sets what it sets on a GPU; the rest is TRL's own.
"""

import tempfile

import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from datasets import Dataset
from tokenizers import Tokenizer, models
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.utils.data import SequentialSampler
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import SFTConfig, SFTTrainer

BOUND, SIZES = 0.2, {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
STRATEGIES = {"DDP": None, "FSDP1": {"use_orig_params": False}, "FSDP2": {"fsdp_version": 2}}
POLICY = {"auto_wrap_policy": "transformer_based_wrap", "transformer_cls_names_to_wrap": ["LlamaDecoderLayer"]}
POLICY |= {"cpu_ram_efficient_loading": False, "sync_module_states": False}
words = Tokenizer(models.WordLevel({f"w{n}": n for n in range(32)}, unk_token="w0"))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w1", pad_token="w2")


def fresh():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, num_attention_heads=2, initializer_range=0.2, pad_token_id=2))


class Own(SFTTrainer):
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


class Told(TrainerCallback):
    def on_log(self, args, state, control, logs, **more):
        norms.extend([logs["grad_norm"]] if "grad_norm" in logs else [])


def whole(model):
    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(model):
            return [p.detach().clone() for p in model.parameters()]
    return [p.full_tensor() if hasattr(p, "full_tensor") else p.detach() for p in model.parameters()]


data = torch.randint(3, 32, (12, 8), generator=torch.Generator().manual_seed(1))  # three steps of four rows
alone, wanted = fresh(), []
optimizer = torch.optim.SGD(alone.parameters(), lr=0.5)
for rows in data.split(4):
    alone(input_ids=rows, labels=rows).loss.backward()
    wanted.append(torch.nn.utils.clip_grad_norm_(alone.parameters(), BOUND).item())
    optimizer.step()
    optimizer.zero_grad()
rest = {"optim": "sgd", "learning_rate": 0.5, "lr_scheduler_type": "constant", "max_steps": 3, "use_cpu": True}
rest |= {"bf16": False, "save_strategy": "no", "report_to": "none", "per_device_train_batch_size": 2, "logging_steps": 1}
for name, Own.settings in STRATEGIES.items():
    AcceleratorState._reset_state(True), PartialState._reset_state(), GradientState._reset_state()
    norms, args = [], SFTConfig(tempfile.mkdtemp(), max_grad_norm=BOUND, **rest)
    rows = Dataset.from_dict({"input_ids": data.tolist()})
    trainer = Own(fresh(), args, train_dataset=rows, processing_class=tokenizer, callbacks=[Told()])
    trainer.train()
    moved, apart = (
        sum((a - b).square().sum() for a, b in zip(whole(alone), other, strict=True)).sqrt().item()
        for other in (whole(fresh()), whole(trainer.model_wrapped))
    )
    if dist.get_rank() == 0:
        right = "equal one process's" if apart / moved < 1e-5 else "are not one process's"
        same = "are its" if all(abs(a / b - 1) < 1e-5 for a, b in zip(norms, wanted, strict=True)) else "are not its"
        print(f"\n=> {name}, {type(trainer.model_wrapped).__name__}: the weights {right}, the norms {same}", flush=True)
        print(f"distance {apart / moved:.1e}, norms {norms}, bound {BOUND}", flush=True)
dist.destroy_process_group()
