"""A loss of one's own in transformers' Trainer, with accumulation: torchrun --nproc-per-node 2 minimal.py [--fixed]"""

import sys
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


def loss_of(outputs, labels, num_items_in_batch):  # in training; the function on the page of RO-0007 evaluates too
    logits, targets = outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    if "--fixed" in sys.argv:
        # --8<-- [start:fixed]
        # divided by the tokens of all micro-batches on all ranks
        return F.cross_entropy(logits, targets, reduction="sum") / num_items_in_batch
        # --8<-- [end:fixed]
    # --8<-- [start:fails]
    # a plain mean: the Trainer does not divide it by the accumulation, and multiplies it by the ranks
    return F.cross_entropy(logits, targets)
    # --8<-- [end:fails]


def make():
    torch.manual_seed(0)
    sizes = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=2, initializer_range=0.2))


dist.init_process_group("gloo")
tokens = torch.randint(32, (8, 12), generator=torch.Generator().manual_seed(1))
labels = tokens.where(tokens < 24, -100)  # in each micro-batch another number of tokens is labelled
arguments = TrainingArguments(
    tempfile.gettempdir(),  # nothing is saved
    num_train_epochs=3,  # of one step each: 2 ranks, 4 micro-batches, 1 row
    per_device_train_batch_size=1,
    gradient_accumulation_steps=4,
    average_tokens_across_devices=True,
    optim="sgd",
    learning_rate=0.1,
    lr_scheduler_type="constant",
    max_grad_norm=0,
    use_cpu=True,
    save_strategy="no",
    disable_tqdm=True,
)
model, reference = make(), make()
batch = [{"input_ids": row, "labels": label} for row, label in zip(tokens, labels)]
Trainer(model, arguments, train_dataset=batch, compute_loss_func=loss_of).train()
optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
for _ in range(3):
    reference(input_ids=tokens, labels=labels).loss.backward()  # the mean over all labelled tokens
    optimizer.step()
    optimizer.zero_grad()
torch.testing.assert_close(model.state_dict(), reference.state_dict())
if dist.get_rank() == 0:
    print("The weights equal one process's.")
dist.destroy_process_group()
