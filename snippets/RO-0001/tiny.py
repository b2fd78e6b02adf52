"""Makes what launch.sh needs to run in seconds on a CPU: `python tiny.py FOLDER`.

A Qwen2 of random weights with a tokenizer of single bytes, 16 questions, and a reward that every answer earns differently.
The last line printed is JSON: the variables and the further arguments of launch.sh.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

REWARD = """
import sys

import torch

try:
    from swift.rewards import ORM, orms
except ImportError:  # ms-swift 3
    from swift.plugin import ORM, orms


class Letters(ORM):
    def __call__(self, completions, **kwargs):
        return [sum(map(ord, text)) % 97 / 97 for text in completions]


orms["letters"] = Letters
if not torch.cuda.is_available():
    torch.cuda.set_device = lambda device: None  # ms-swift 3.1 calls it on CPU too
    if "--deepspeed" in sys.argv:
        import deepspeed

        deepspeed.init_distributed("gloo", verbose=False)  # accelerate starts torch's group only, and ZeRO-3 asks this one
"""

# Facts of the runs that no option shows: the model's and the data's, and what the arguments below set.
FACTS = [{"facts": {"runs": "once", "runs_vary": False, "skips": "never", "second_use": "none", "batch_size": 1}}]

# Facts of the runs that no option shows: the model's, the data's, and what the arguments below set.
FACTS = [
    {
        "facts": {
            "runs": "once",
            "runs_vary": False,
            "skips": "never",
            "second_use": "none",
            "batch_size": 1,
            "steps": 3,
        }
    },
]

folder = Path(sys.argv[1])
release = version("ms-swift")
if release < "3.1.1":
    sys.exit(f"ms-swift {release} has no GRPO.")
plugin = "--external_plugins" if release >= "3.2" else "--custom_register_path"
torch.manual_seed(0)
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
bytewise = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
bytewise.pre_tokenizer, bytewise.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=bytewise,
    eos_token="<|im_end|>",
    pad_token="<|endoftext|>",
    additional_special_tokens=["<|im_start|>"],
)
tokenizer.save_pretrained(folder / "model")
config = Qwen2Config(
    vocab_size=len(tokenizer),
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    eos_token_id=tokenizer.eos_token_id,
    pad_token_id=tokenizer.pad_token_id,
    bos_token_id=None,
)
Qwen2ForCausalLM(config).save_pretrained(folder / "model")
questions = [{"messages": [{"role": "user", "content": f"What is {n} + {n}?"}]} for n in range(16)]
(folder / "data.jsonl").write_text("".join(json.dumps(question) + "\n" for question in questions))
(folder / "reward.py").write_text(REWARD)

arguments = f"""
    --model_type qwen2 --template qwen2_5 --check_model false --torch_dtype float32 --fp16 false --use_cpu true
    {plugin} {folder}/reward.py --reward_funcs letters --num_generations 2 --max_completion_length 8
    --max_steps 3 --save_steps 1 --save_only_model true --per_device_train_batch_size 1 --split_dataset_ratio 0
    --optim sgd --learning_rate 0.1 --lr_scheduler_type constant --max_grad_norm 0 --lora_dropout 0 --seed 1
    --report_to none
"""
variables = {"MODEL": f"{folder}/model", "DATASET": f"{folder}/data.jsonl"}
print(json.dumps({"variables": variables, "arguments": arguments.split()}))
