"""Makes what launch.sh needs to run in seconds on a CPU: `python tiny.py FOLDER`.

A Qwen2 of random weights with a tokenizer of single bytes, whose vocabulary ends in the 4160 audio codes, and 6 answers:
of audio codes in every second step, of text in the others. The last line printed is JSON: the variables and the further
arguments of launch.sh.
"""

import importlib.metadata
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from slam_omni import AUDIO_VOCAB, SlamOmni
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config

# On a CPU, accelerate starts torch's process group and not DeepSpeed's. zero.Init then counts one rank, and stops at its
# check of the batch size.
CPU = """
import deepspeed

deepspeed.init_distributed("gloo", verbose=False)
"""

# Facts of the runs that no option shows: the model's, the data's, and what the arguments below set.
FACTS = [
    {"text": "--freeze_parameters head", "facts": {"skips": "never", "second_use": "none", "second_use_of": "none"}},
    {
        "text": "slam_omni_dummy_loss",
        "facts": {
            "filler": "none",
            "skips": "some-steps",
            "second_use": "forward",
            "second_use_of": "not-checkpointed",
            "term": "sum",
        },
    },
    {
        "text": "slam_omni_one_by_one",
        "facts": {
            "filler": "none",
            "skips": "some-steps",
            "second_use": "forward",
            "second_use_of": "not-checkpointed",
            "term": "one-by-one",
        },
    },
    {"text": "slam_omni_head_skipped", "facts": {"filler": "none", "skips": "some-steps", "second_use": "none"}},
    {
        "facts": {
            "runs": "once",
            "runs_vary": False,
            "skips": "never",
            "filler": "zeros",
            "second_use": "none",
            "second_use_of": "none",
            "second_use_in": "every-step",
            "gathering": "none",
            "term": "none",
            "batch_size": 1,
            "steps": 3,
            "accumulation": 1,
        }
    },
]

folder = Path(sys.argv[1])
torch.manual_seed(0)
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
bytewise = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
bytewise.pre_tokenizer, bytewise.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
codes = [f"<|audio_{n}|>" for n in range(9)]  # the first of the 4160
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=bytewise,
    eos_token="<|im_end|>",
    pad_token="<|endoftext|>",
    additional_special_tokens=["<|im_start|>", *codes],
)
tokenizer.save_pretrained(folder / "model")
config = Qwen2Config(
    vocab_size=tokenizer.convert_tokens_to_ids(codes[0]) + AUDIO_VOCAB,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    eos_token_id=tokenizer.eos_token_id,
    pad_token_id=tokenizer.pad_token_id,
    bos_token_id=None,
)
SlamOmni(config).save_pretrained(folder / "model")
old = importlib.metadata.version("ms-swift").startswith("3.")  # hands each rank a half; newer ones deal in turn
speech, text = "".join(codes), "Four."
with (folder / "data.jsonl").open("w") as data:
    for answer in (speech, text, speech) * 2 if old else (speech, speech, text, text, speech, speech):
        messages = [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": answer}]
        data.write(json.dumps({"messages": messages}) + "\n")
(folder / "cpu.py").write_text(CPU)

arguments = f"""
    --check_model false --torch_dtype float32 --fp16 false --bf16 false --use_cpu true
    --external_plugins {folder}/cpu.py
    --max_steps 3 --save_steps 2 --save_only_model true --per_device_train_batch_size 1 --split_dataset_ratio 0
    --gradient_accumulation_steps 1 --dataset_shuffle false --train_dataloader_shuffle false
    --dataloader_num_workers 0 --optim sgd --learning_rate 0.5 --lr_scheduler_type constant --max_grad_norm 0
    --weight_decay 0 --seed 1 --report_to none
"""
variables = {
    "DS_ACCELERATOR": "cpu",
    "NPUS": "2",
    "MODEL": f"{folder}/model",
    "DATASET": f"{folder}/data.jsonl",
    "FULL": "--train_type=full" if old else "--tuner_type=full",
}
print(json.dumps({"variables": variables, "arguments": arguments.split()}))
