"""Makes what launch.sh needs to run in seconds on a CPU: `python tiny.py FOLDER`.

A MiniCPM-V of random weights (chunked.py stands in for its own code), a tokenizer of single bytes, and twelve
samples of one image each. An image makes ten slices, so two samples a rank are two calls of the vision tower.
The last line printed is JSON: the variables and the further arguments of launch.sh.
"""

import json
import sys
from pathlib import Path

import numpy
import torch
from chunked import GRID, SIDE, MiniCPMV, MiniCPMVConfig, MiniCPMVImageProcessor, MiniCPMVProcessor
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

# Facts of the runs that no option shows: the model's, the data's, and what the arguments below set.
FACTS = [
    {"text": "--freeze_vit true", "facts": {"runs": "once"}},
    {"text": "--vit_gradient_checkpointing false", "facts": {"runs": "once"}},  # the tower's runs are not checkpointed
    {"text": "--per_device_train_batch_size 1", "facts": {"runs": "once", "batch_size": 1}},  # one chunk of slices
    {"text": "--deepspeed zero3", "facts": {"buckets": "several"}},  # "auto" makes them as small as the model
    {"text": "--deepspeed zero1", "facts": {"overlap": False}},  # ms-swift's own zero1.json
    {
        "facts": {
            "runs": "last",
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
torch.manual_seed(0)
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
bytewise = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
bytewise.pre_tokenizer, bytewise.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=bytewise,
    eos_token="<|im_end|>",
    pad_token="<|endoftext|>",
    unk_token="<unk>",
    additional_special_tokens=["<|im_start|>", "<image>", "</image>"],
)
config = MiniCPMVConfig(
    vocab_size=len(tokenizer),
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    eos_token_id=tokenizer.eos_token_id,
    pad_token_id=tokenizer.pad_token_id,
    bos_token_id=None,
    vision_config=dict(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=SIDE,
        patch_size=SIDE // 2,
        vision_use_head=False,
    ),
)
MiniCPMV(config).save_pretrained(folder / "model")
MiniCPMVProcessor(MiniCPMVImageProcessor(), tokenizer).save_pretrained(folder / "model")

random = numpy.random.default_rng(0)
samples = []
for n in range(12):
    picture = folder / f"{n}.png"
    Image.fromarray(random.integers(256, size=(GRID * SIDE, GRID * SIDE, 3), dtype=numpy.uint8)).save(picture)
    said = [{"role": "user", "content": "<image>What is this?"}, {"role": "assistant", "content": f"Number {n}."}]
    samples.append({"messages": said, "images": [str(picture)]})
(folder / "data.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in samples))

arguments = """
    --model_type minicpmv2_6 --template minicpmv2_6 --check_model false --use_cpu true
    --torch_dtype float32 --fp16 false --max_steps 3 --save_steps 1 --save_only_model true --split_dataset_ratio 0
    --gradient_accumulation_steps 1 --max_grad_norm 0 --lora_dropout 0 --seed 1 --report_to none
    --optim sgd --learning_rate 0.1 --lr_scheduler_type constant
"""
variables = {"MODEL": f"{folder}/model", "DATASET": f"{folder}/data.jsonl"}
print(json.dumps({"variables": variables, "arguments": arguments.split()}))
