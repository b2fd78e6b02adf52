"""A masked loss in transformers' Trainer, and one sample without a target: torchrun --nproc-per-node 2 minimal.py [--fixed]"""

import sys
import tempfile

import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


def losses_of(logits, labels):
    """Each token's loss, and which tokens count: none of a prompt that was truncated before its answer."""
    wanted = labels[:, 1:]
    losses = torch.nn.functional.cross_entropy(logits[:, :-1].mT, wanted.clamp(min=0), reduction="none")
    return losses, wanted != -100


class MaskedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        losses, counts = losses_of(model(inputs["input_ids"]).logits, inputs["labels"])
        if "--fixed" in sys.argv:
            # --8<-- [start:fixed]
            tokens = num_items_in_batch.clamp(min=1)  # of all ranks and micro-batches
            return (losses * counts).sum() / tokens * self.args.world_size  # DDP averages over the ranks
            # --8<-- [end:fixed]
        # --8<-- [start:fails]
        return (losses * counts).sum() / counts.sum()  # 0 / 0 where no token counts
        # --8<-- [end:fails]


torch.manual_seed(0)
sizes = dict(vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
model, reference = (LlamaForCausalLM(LlamaConfig(**sizes)) for _ in range(2))
reference.load_state_dict(model.state_dict())
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
        max_grad_norm=0.0,  # no clipping
        train_sampling_strategy="sequential",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,  # the log as lines
        use_cpu=True,
    )
    rows = [dict(input_ids=row, labels=wanted) for row, wanted in zip(tokens, labels)]
    MaskedTrainer(model, arguments, train_dataset=rows).train()
optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
for rows, wanted in zip(tokens.split(2), labels.split(2)):
    losses, counts = losses_of(reference(rows).logits, wanted)
    (losses * counts).sum().div(counts.sum()).backward()
    optimizer.step()
    optimizer.zero_grad()
torch.testing.assert_close(model.state_dict(), reference.state_dict())
if dist.get_rank() == 0:
    print("The weights equal one process's.")
dist.destroy_process_group()
