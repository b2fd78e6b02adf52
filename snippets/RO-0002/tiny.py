"""Makes what launch.sh needs to run in seconds on a CPU: `python tiny.py FOLDER`.

A Qwen2-VL of random weights with a tokenizer of single bytes, and three sets of data: images, images and text by turns,
an image and a video each. The last line printed is JSON: the variables and the further arguments of launch.sh.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

import torch
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
)

# Qwen2-VL's own numbers: ms-swift looks for the tokens of an image and a video by these.
SPECIAL = {
    "<|endoftext|>": 151643,
    "<|im_start|>": 151644,
    "<|im_end|>": 151645,
    "<|vision_start|>": 151652,
    "<|vision_end|>": 151653,
    "<|image_pad|>": 151655,
    "<|video_pad|>": 151656,
}

RECENT = version("ms-swift") >= "4"  # takes a video as a list of frames; before, as their folder

# Facts of the runs that no option shows: the model's, the data's, and what the arguments below set.
FACTS = [
    {"text": "--freeze_vit true", "facts": {"runs": "once"}},
    # An image and a video each: up to ms-swift 3 the tower runs once for either.
    {"text": "--train_type full", "facts": {"runs": "early"}},  # the embeddings wait meanwhile
    {"text": '"$BOTH"', "where": {"ms-swift": "< 4"}, "facts": {"runs": "last"}},
    {
        "facts": {
            "runs": "once",
            "runs_vary": False,
            "skips": "never",
            "second_use": "none",
            "batch_size": 1,
            "steps": 3,
            "accumulation": 8,  # chosen for a total batch of 16
            "first_backward": "no-sync",
        }
    },
]

folder = Path(sys.argv[1])
torch.manual_seed(0)
alphabet = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
bytewise = Tokenizer(models.BPE(vocab=alphabet | SPECIAL, merges=[]))
bytewise.pre_tokenizer, bytewise.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=bytewise,
    eos_token="<|im_end|>",
    pad_token="<|endoftext|>",
    additional_special_tokens=list(SPECIAL),
)
for part in (tokenizer, Qwen2VLImageProcessor(), Qwen2VLVideoProcessor()):
    part.save_pretrained(folder / "model")
width, heads = 32, 4
config = Qwen2VLConfig(
    vocab_size=151657,
    hidden_size=width,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=heads,
    num_key_value_heads=2,
    rope_scaling={"type": "mrope", "mrope_section": [2, 1, 1]},
    vision_config=dict(depth=2, embed_dim=width, hidden_size=width, num_heads=heads, mlp_ratio=2),
    eos_token_id=SPECIAL["<|im_end|>"],
    pad_token_id=SPECIAL["<|endoftext|>"],
    bos_token_id=None,
    vision_start_token_id=SPECIAL["<|vision_start|>"],
    vision_end_token_id=SPECIAL["<|vision_end|>"],
    image_token_id=SPECIAL["<|image_pad|>"],
    video_token_id=SPECIAL["<|video_pad|>"],
)
Qwen2VLForConditionalGeneration(config).save_pretrained(folder / "model")


def picture(file, number):
    file.parent.mkdir(exist_ok=True)
    Image.new("RGB", (56, 56), (5 * number, 128, 255 - 5 * number)).save(file)
    return str(file)


def example(number, shows):
    image = [picture(folder / f"image-{number}.png", number)] if "image" in shows else []
    frames = [picture(folder / f"video-{number}" / f"{frame}.png", number + frame) for frame in (1, 2)]
    video = [frames if RECENT else f"{folder}/video-{number}"] if "video" in shows else []
    asked = "<image>" * len(image) + "<video>" * len(video) + f"{number}?"
    messages = [{"role": "user", "content": asked}, {"role": "assistant", "content": f"{number} + {number}"}]
    return {"messages": messages, "images": image} | ({"videos": video} if video else {})


def write(name, *turns):
    examples = [example(number, turns[number % len(turns)]) for number in range(48)]
    (folder / name).write_text("".join(json.dumps(each) + "\n" for each in examples))


write("images.jsonl", ["image"])
write("mixed.jsonl", ["image"], [])
write("both.jsonl", ["image", "video"])

arguments = """
    --model_type qwen2_vl --template qwen2_vl --check_model false --torch_dtype float32 --fp16 false --use_cpu true --system tiny
    --max_steps 3 --save_steps 1 --save_only_model true --split_dataset_ratio 0
    --optim sgd --learning_rate 0.1 --lr_scheduler_type constant --max_grad_norm 0 --lora_dropout 0 --seed 1
    --report_to none --dataset_num_proc 1 --dataloader_num_workers 0
"""
variables = {"MODEL": f"{folder}/model", "DATASET": f"{folder}/images.jsonl"}
variables |= {"MIXED": f"{folder}/mixed.jsonl", "BOTH": f"{folder}/both.jsonl"}
print(json.dumps({"variables": variables, "arguments": arguments.split()}))
