"""TRL's KTOTrainer with Liger's loss under DDP, compared with one process: torchrun --nproc-per-node 2 kto.py 1.14.0

The release of TRL is named only to tell the runs apart. Three steps of plain SGD, of a model that is not its reference.
With the word `bf16-lora` LoRA is trained in bfloat16 with AdamW and clipping, and the first gradient is compared: there
TRL takes the adapter of the start as the reference, so that in this step each ratio is 0, and so is the KL term.
"""

import os
import sys
import tempfile

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # Liger compiles its loss, which takes longer than these steps
import torch
import torch.distributed as dist
import trl
from bf16_lora import ADAPTED, OPTIONS, adapted, rounded, seen
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

assert sys.argv[1] == trl.__version__
WORDS, RATE = ["<pad>", "</s>", *"abcdefghijklmnop"], 0.5
OFF = dict.fromkeys(("rope", "rms_norm", "swiglu", "cross_entropy", "fused_linear_cross_entropy"), False)  # need a GPU
sizes = {"vocab_size": 18, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


def fresh(seed):
    torch.manual_seed(seed)
    config = LlamaConfig(**sizes, initializer_range=0.2, pad_token_id=0, eos_token_id=1)
    return adapted(LlamaForCausalLM(config), ["q_proj", "v_proj"])


def ratio(batch, kl=""):
    """log p of each completion, less that of the reference."""
    ids, attention, completion = (batch[f"{kl}{key}"] for key in ("input_ids", "attention_mask", "completion_mask"))
    told = []
    for model in (alone, reference):
        logits = model(input_ids=ids, attention_mask=attention).logits[:, :-1].float()
        every = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
        told.append((every * completion[:, 1:]).sum(-1))
    return told[0] - told[1].detach()


def one_process(batches):
    kl = sum(ratio(batch, "KL_").mean().detach() for batch in batches).clamp(min=0) / len(batches)
    signed = [(ratio(batch) - kl) * torch.where(batch["label"].bool(), 1, -1) for batch in batches]
    return sum((1 - torch.sigmoid(args.beta * it)).mean() for it in signed) / len(batches)


class Seen(trl.KTOTrainer):
    def compute_loss(self, model, inputs, *rest, **more):
        steps.append([None, None])
        dist.all_gather_object(steps[-1], dict(inputs))
        return super().compute_loss(model, inputs, *rest, **more)


of_words = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="<pad>"))
of_words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=of_words, pad_token="<pad>", eos_token="</s>")
text = [f" {a} {b} {c}" for a, b, c in zip("abcdefghijkl", "ponmlkjihgfe", "cdefghijklmn")]
data = {"prompt": text, "completion": text[::-1], "label": [n % 3 > 0 for n in range(12)]}
model, alone, start, steps = fresh(0), fresh(0), fresh(0), []
reference = alone if ADAPTED else fresh(1)
options = {"use_liger_kernel": True, "liger_kernel_config": OFF, "learning_rate": RATE, "max_steps": 1 if ADAPTED else 3}
options |= {"bf16": False, "lr_scheduler_type": "constant", "per_device_train_batch_size": 2, "use_cpu": True}
options |= {"gradient_checkpointing": False, "save_strategy": "no", "report_to": "none"} | OPTIONS
args = trl.KTOConfig(tempfile.mkdtemp(), **options)
more = {"ref_model": None if ADAPTED else fresh(1), "processing_class": tokenizer, "train_dataset": Dataset.from_dict(data)}
Seen(model, args=args, **more).train()
if ADAPTED:
    wanted, bound = rounded(alone, lambda: one_process(steps[0]))
    apart, setting = ((seen[0] - wanted).norm() / wanted.norm()).item(), "LoRA in bf16, AdamW, clipping | "
    right, wrong = "the first gradient is one process's", "the first gradient is not one process's"
else:
    optimizer = torch.optim.SGD(alone.parameters(), lr=RATE)
    for batches in steps:
        one_process(batches).backward()
        optimizer.step()
        optimizer.zero_grad()
    got, wanted, first = (torch.cat([p.detach().flatten() for p in it.parameters()]) for it in (model, alone, start))
    apart, bound, setting = ((got - wanted).norm() / (first - wanted).norm()).item(), 1e-4, ""
    right, wrong = "the weights equal one process's", "the weights are not one process's"
every = [None, None]
dist.all_gather_object(every, apart)
if dist.get_rank() == 0:
    told = right if all(it <= bound for it in every) else wrong  # never where one is nan
    print(f"\n=> {setting}KTO with Liger under DDP, TRL {trl.__version__}: {told}", flush=True)
    print("distances", *(f"{it:.1e}" for it in every), f"allowed {bound:.1e}", flush=True)
dist.barrier()
os._exit(0)  # else gloo's threads may abort at the end: pytorch/pytorch#154976
