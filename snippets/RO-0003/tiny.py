"""Makes what both launch scripts need to run in seconds on a CPU: `python tiny.py FOLDER`.

Two rerankers of the same random weights with a tokenizer of single bytes, and 16 queries with their passages. The last line
printed is JSON: the variables and the further arguments of the scripts.
"""

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

LAYERS, START_LAYER = 4, 2
# Facts of the runs that no option shows: the model's, the data's, and what the arguments below set.
FACTS = [
    {"text": "embedder.decoder_only", "facts": {"runs": "last"}},  # queries, then passages
    {
        "text": "--modules_to_save linear_head",
        "facts": {"skips": "always"},
    },  # several heads, of which the loss uses one
    {
        "facts": {
            "runs": "once",
            "runs_vary": False,
            "skips": "never",
            "second_use": "none",
            "batch_size": 2,
            "steps": 3,
            "accumulation": 1,
            "first_backward": "synchronises",
        }
    },
]

folder = Path(sys.argv[1])
base, layerwise = folder / "base", folder / "layerwise"
torch.manual_seed(0)

alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
bytewise = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
bytewise.pre_tokenizer, bytewise.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytewise, bos_token="<s>", eos_token="</s>", pad_token="<unk>")

sizes = {
    "vocab_size": len(tokenizer),
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "bos_token_id": tokenizer.bos_token_id,
    "eos_token_id": tokenizer.eos_token_id,
    "pad_token_id": tokenizer.pad_token_id,
    "tie_word_embeddings": False,
}
model = LlamaForCausalLM(LlamaConfig(**sizes))
model.save_pretrained(base)
tokenizer.save_pretrained(base)

# The layerwise reranker has the same layers, and from START_LAYER on a head after each. Its configuration is code in the
# model's folder: FlagEmbedding's own file.
layerwise.mkdir()
flagembedding = Path(importlib.util.find_spec("FlagEmbedding").origin).parent
shutil.copy(
    flagembedding / "finetune/reranker/decoder_only/layerwise/configuration_minicpm_reranker.py",
    layerwise,
)
code = {"AutoConfig": "configuration_minicpm_reranker.LayerWiseMiniCPMConfig"}
config = {
    "model_type": "minicpm",
    "auto_map": code,
    "start_layer": START_LAYER,
    "head_multi": True,
    "head_type": "simple",
}
(layerwise / "config.json").write_text(json.dumps(sizes | config))
weights = {name: weight for name, weight in model.state_dict().items() if not name.startswith("lm_head")}
for head in range(LAYERS + 1 - START_LAYER):
    weights[f"lm_head.{head}.linear_head.weight"] = torch.randn(1, sizes["hidden_size"]) / sizes["hidden_size"] ** 0.5
save_file(weights, layerwise / "model.safetensors", {"format": "pt"})
tokenizer.save_pretrained(layerwise)
AutoConfig.from_pretrained(layerwise, trust_remote_code=True)  # puts the code where two ranks would write it at once

# As many negatives as a group takes: whatever order they are drawn in, the loss is the same.
questions = [
    {"query": f"What is {n} + {n}?", "pos": [f"It is {2 * n}."], "neg": [f"It is {2 * n + off}." for off in (1, 2, 3)]}
    for n in range(16)
]
(folder / "data.jsonl").write_text("".join(json.dumps(question) + "\n" for question in questions))

arguments = """
    --use_cpu True --bf16 False --train_group_size 4 --per_device_train_batch_size 2 --gradient_accumulation_steps 1
    --max_steps 3 --save_steps 1 --optim sgd --learning_rate 0.6 --lr_scheduler_type constant --max_grad_norm 0
    --lora_dropout 0 --seed 1 --report_to none --target_modules v_proj o_proj
"""
variables = {"MODEL": str(base), "LAYERWISE_MODEL": str(layerwise), "DATA": f"{folder}/data.jsonl"}
print(json.dumps({"variables": variables, "arguments": arguments.split()}))
