"""What transformers' Trainer logs of one sample without a target: torchrun --nproc-per-node 2 log.py [no-filter | zero2]"""

import os
import sys
import tempfile

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

WAY = sys.argv[1] if len(sys.argv) > 1 else "filter"
ZERO2 = {
    "train_micro_batch_size_per_gpu": 1,
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "zero_optimization": {"stage": 2},
}


class MaskedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        logits, wanted = model(inputs["input_ids"]).logits, inputs["labels"][:, 1:]
        losses = torch.nn.functional.cross_entropy(logits[:, :-1].mT, wanted.clamp(min=0), reduction="none")
        return (losses * (wanted != -100)).sum() / (wanted != -100).sum()  # 0 / 0 where no token counts


torch.manual_seed(0)
sizes = dict(vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
model = LlamaForCausalLM(LlamaConfig(**sizes))
tokens = torch.randint(32, (8, 6))
labels = tokens.clone()
labels[3] = -100  # rank 1 meets it in the second step
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        per_device_train_batch_size=1,
        num_train_epochs=1,
        optim="sgd",
        learning_rate=0.1,
        lr_scheduler_type="constant",
        train_sampling_strategy="sequential",
        logging_steps=1,
        logging_nan_inf_filter=WAY != "no-filter",
        deepspeed=ZERO2 if WAY == "zero2" else None,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    rows = [dict(input_ids=row, labels=wanted) for row, wanted in zip(tokens, labels)]
    trainer = MaskedTrainer(model, arguments, train_dataset=rows)
    trainer.train()
if dist.get_rank() == 0:
    for line in trainer.state.log_history[:-1]:
        loss, norm = float(line["loss"]), float(line["grad_norm"])
        print(f"=> step {line['step']}: loss {loss:.4}, grad_norm {norm:.4}", flush=True)
    print("=> weights:", "nan" if any(p.isnan().any() for p in model.parameters()) else "finite", flush=True)
dist.destroy_process_group()
