"""A mixture of experts in transformers' Trainer: torchrun --nproc-per-node 2 minimal.py [--fixed]"""

import sys
import tempfile

import torch
import torch.distributed as dist
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM, Trainer, TrainingArguments


class MoeTrainer(Trainer):
    def compute_loss(self, model, inputs, **more):  # in training; the class on the page of RO-0013 evaluates too
        hook = self.model.register_forward_hook(take_out)
        loss, out = super().compute_loss(model, inputs, True, **more)
        hook.remove()
        return loss + 0.1 * out["aux_loss"] / self.current_gradient_accumulation_steps


def take_out(model, inputs, out):  # the auxiliary loss, by the coefficient that the forward used
    (used,) = torch.autograd.grad(out.loss, out.aux_loss, retain_graph=True)
    out["loss"] = out.loss - used * out.aux_loss


def make():
    torch.manual_seed(5)
    sizes = {"vocab_size": 32, "hidden_size": 16, "moe_intermediate_size": 8, "num_hidden_layers": 1, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "initializer_range": 0.2}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "output_router_logits": True, "router_aux_loss_coef": 0.1}
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(**sizes, **heads, **experts))


dist.init_process_group("gloo")
tokens = torch.randint(32, (8, 24), generator=torch.Generator().manual_seed(1))
batch = [{"input_ids": row, "labels": row} for row in tokens]
arguments = TrainingArguments(
    tempfile.gettempdir(),  # nothing is saved
    num_train_epochs=3,  # of one step each: 2 ranks, 4 micro-batches, 1 row
    per_device_train_batch_size=1,
    gradient_accumulation_steps=4,
    optim="sgd",
    learning_rate=0.1,
    lr_scheduler_type="constant",
    max_grad_norm=0,
    use_cpu=True,
    save_strategy="no",
    disable_tqdm=True,
)
model = make()
if "--fixed" in sys.argv:
    # --8<-- [start:fixed]
    # adds the auxiliary loss itself, divided by the micro-batches
    trainer = MoeTrainer(model, arguments, train_dataset=batch)
    # --8<-- [end:fixed]
else:
    # --8<-- [start:fails]
    # multiplies the auxiliary loss by the ranks, and adds it for each micro-batch
    trainer = Trainer(model, arguments, train_dataset=batch)
    # --8<-- [end:fails]
trainer.train()
reference = make()
optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
for _ in range(3):
    for row in tokens.split(1):
        (reference(input_ids=row, labels=row).loss / 8).backward()
    optimizer.step()
    optimizer.zero_grad()
torch.testing.assert_close(model.state_dict(), reference.state_dict())
if dist.get_rank() == 0:
    print("The weights equal one process's.")
dist.destroy_process_group()
