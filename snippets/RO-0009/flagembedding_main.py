"""FlagEmbedding's own fine-tuning with its gather replaced: torchrun --nproc-per-node 2 flagembedding_main.py grad

With `slot` in the place of `grad` its gather is left. The first gradient is compared with one process. LoRA is an
option of its decoder-only embedders: `bf16-lora` runs their `main()`, with a tiny Llama in the place of the BERT.
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
from second import ADAPTED, CLIP, verdict
from transformers import BertConfig, BertModel, BertTokenizerFast, LlamaConfig, LlamaModel, TrainerCallback, trainer

if ADAPTED:
    from FlagEmbedding.finetune.embedder.decoder_only.base.__main__ import main
else:
    from FlagEmbedding.finetune.embedder.encoder_only.base.__main__ import main

(gather,) = sys.argv[1:]
WORDS, GROUP, TEMPERATURE = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnop"], 2, 0.1


def gather_with_gradients(self, t):
    return None if t is None else torch.cat(torch.distributed.nn.functional.all_gather(t.contiguous()))


class Compare(TrainerCallback):
    def on_train_begin(self, args, state, control, model, **more):
        for parameter in (p for name, p in model.named_parameters() if "lora_B" in name):
            torch.nn.init.normal_(parameter, std=0.1)  # it is 0 at the start, and A would have no gradient
        self.alone, self.seen = copy.deepcopy(model), []
        model.register_forward_pre_hook(lambda module, _, given: self.seen.append(given), with_kwargs=True)

    def on_pre_optimizer_step(self, args, state, control, model, **more):
        every, (given,) = [None, None], self.seen
        dist.all_gather_object(every, [dict(given[key]) for key in ("queries", "passages")])

        def of_all(alone):
            queries, passages = (torch.cat([alone.encode(it) for it in both]) for both in zip(*every, strict=True))
            targets = torch.arange(len(queries)) * GROUP  # a query's passage is the first of its group
            return F.cross_entropy(queries @ passages.T / TEMPERATURE, targets)

        verdict(f"main() with the gather {gather}: ", model, self.alone, of_all, 1e-5, "to a hundred-thousandth")


folder = Path(tempfile.mkdtemp())
(folder / "vocab.txt").write_text("\n".join(WORDS))
BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
torch.manual_seed(0)
sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
sizes |= {"vocab_size": len(WORDS), "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
config, kind = (LlamaConfig, LlamaModel) if ADAPTED else (BertConfig, BertModel)
kind(config(**sizes, initializer_range=0.2)).save_pretrained(folder)
text = [f"{a} {b} {c}" for a, b, c in zip("abcdefghijkl", "ponmlkjihgfe", "cdefghijklmn")]
rows = [{"query": text[n], "pos": [text[n + 4]], "neg": [text[(n + 8) % 12]]} for n in range(8)]
(folder / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
options = f"""
    --model_name_or_path {folder} --train_data {folder}/data.jsonl --cache_path {folder} --train_group_size {GROUP}
    --query_max_len 16 --passage_max_len 16 --negatives_cross_device --temperature {TEMPERATURE}
    --output_dir {folder}/out --per_device_train_batch_size 4 --max_steps 1 --use_cpu --save_strategy no
    --dataloader_num_workers 0 --report_to none
"""
lora = f"--sentence_pooling_method last_token --bf16 --lora_dropout 0 --optim adamw_torch --max_grad_norm {CLIP}"
sys.argv[1:] = [*options.split(), *(lora if ADAPTED else "--optim sgd --max_grad_norm 0").split()]
trainer.DEFAULT_CALLBACKS.append(Compare())
if gather == "grad":
    AbsEmbedderModel._dist_gather_tensor = gather_with_gradients
main()
dist.barrier()
os._exit(0)  # else gloo's threads may abort at the end: pytorch/pytorch#154976
