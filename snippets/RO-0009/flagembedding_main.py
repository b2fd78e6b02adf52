"""FlagEmbedding's own fine-tuning with its gather replaced: torchrun --nproc-per-node 2 flagembedding_main.py grad

With `slot` in the place of `grad` its gather is left. The first gradient is compared with one process.
"""

import copy
import json
import os
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn
import torch.nn.functional as F
from FlagEmbedding.abc.finetune.embedder import AbsEmbedderModel
from FlagEmbedding.finetune.embedder.encoder_only.base.__main__ import main
from transformers import BertConfig, BertModel, BertTokenizerFast, TrainerCallback, trainer

(gather,) = sys.argv[1:]
WORDS, GROUP, TEMPERATURE = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnop"], 2, 0.1


def gather_with_gradients(self, t):
    return None if t is None else torch.cat(torch.distributed.nn.functional.all_gather(t.contiguous()))


class Compare(TrainerCallback):
    def on_train_begin(self, args, state, control, model, **more):
        self.alone, self.seen = copy.deepcopy(model), []
        model.register_forward_pre_hook(lambda module, _, given: self.seen.append(given), with_kwargs=True)

    def on_pre_optimizer_step(self, args, state, control, model, **more):
        every, (given,) = [None, None], self.seen
        dist.all_gather_object(every, [dict(given[key]) for key in ("queries", "passages")])
        queries, passages = (torch.cat([self.alone.encode(it) for it in both]) for both in zip(*every, strict=True))
        targets = torch.arange(len(queries)) * GROUP  # a query's passage is the first of its group
        F.cross_entropy(queries @ passages.T / TEMPERATURE, targets).backward()
        pairs = [(p, q) for p, q in zip(model.parameters(), self.alone.parameters(), strict=True) if q.grad is not None]
        got, wanted = torch.cat([p.grad.flatten() for p, _ in pairs]), torch.cat([q.grad.flatten() for _, q in pairs])
        apart = ((got - wanted).norm() / wanted.norm()).item()
        if dist.get_rank() == 0:
            right = "one process's, to a hundred-thousandth" if apart < 1e-5 else "not one process's"
            times = f"{got.norm() / wanted.norm():.3f} times as long"
            print(f"\n=> main() with the gather {gather}: the gradient is {right}, {times}", flush=True)
            print(f"distance {apart:.1e}", flush=True)


folder = Path(tempfile.mkdtemp())
(folder / "vocab.txt").write_text("\n".join(WORDS))
BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
torch.manual_seed(0)
sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
sizes |= {"vocab_size": len(WORDS), "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
BertModel(BertConfig(**sizes, initializer_range=0.2)).save_pretrained(folder)
text = [f"{a} {b} {c}" for a, b, c in zip("abcdefghijkl", "ponmlkjihgfe", "cdefghijklmn")]
rows = [{"query": text[n], "pos": [text[n + 4]], "neg": [text[(n + 8) % 12]]} for n in range(8)]
(folder / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
options = f"""
    --model_name_or_path {folder} --train_data {folder}/data.jsonl --cache_path {folder} --train_group_size {GROUP}
    --query_max_len 16 --passage_max_len 16 --negatives_cross_device --temperature {TEMPERATURE} --output_dir {folder}/out
    --per_device_train_batch_size 4 --max_steps 1 --max_grad_norm 0 --optim sgd --use_cpu --save_strategy no
    --dataloader_num_workers 0 --report_to none
"""
sys.argv[1:] = options.split()
trainer.DEFAULT_CALLBACKS.append(Compare())
if gather == "grad":
    AbsEmbedderModel._dist_gather_tensor = gather_with_gradients
main()
dist.barrier()
os._exit(0)  # else gloo's threads may abort at the end: pytorch/pytorch#154976
