"""TRL's DPO with Liger's loss under ZeRO-3, compared with one process: torchrun --nproc-per-node 2 trl_liger.py"""

import copy
import os
import tempfile

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # Liger compiles its loss, which takes longer than this step
os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
import deepspeed
import torch
import torch.distributed as dist
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import SequentialSampler
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer

WORDS = ["<pad>", "</s>", *"abcdefghijklmnop"]
OFF = dict.fromkeys(("rope", "rms_norm", "swiglu", "cross_entropy", "fused_linear_cross_entropy"), False)  # need a GPU
ZERO3 = {"train_micro_batch_size_per_gpu": 2, "zero_allow_untested_optimizer": True, "gradient_clipping": 0.0}
ZERO3 |= {"zero_force_ds_cpu_optimizer": False}
ZERO3 |= {"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}}  # else small weights stay whole


def preference(model, batch):
    """log p(chosen) - log p(rejected) of each pair."""
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
    told = logits.log_softmax(-1).gather(-1, batch["input_ids"][:, 1:, None])[..., 0]
    chosen, rejected = (told * batch["completion_mask"][:, 1:]).sum(-1).chunk(2)
    return chosen - rejected


deepspeed.init_distributed("gloo", verbose=False)
DPOTrainer._get_train_sampler = lambda self, *_: SequentialSampler(self.train_dataset)
of_words = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="<pad>"))
of_words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=of_words, pad_token="<pad>", eos_token="</s>")
sizes = {"vocab_size": 18, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(**sizes, initializer_range=0.2, pad_token_id=0, eos_token_id=1))
alone, start = copy.deepcopy(model), copy.deepcopy(model)
text = [f" {a} {b} {c}" for a, b, c in zip("abcdefghijkl", "ponmlkjihgfe", "cdefghijklmn")]
data = Dataset.from_list([{"prompt": text[n], "chosen": text[n + 4], "rejected": text[n + 8]} for n in range(4)])
args = DPOConfig(
    tempfile.mkdtemp(),
    use_liger_kernel=True,
    liger_kernel_config=OFF,
    deepspeed=ZERO3,
    max_steps=1,
    per_device_train_batch_size=2,
    optim="sgd",
    learning_rate=0.5,
    lr_scheduler_type="constant",
    max_grad_norm=0,
    use_cpu=True,
    bf16=False,
    gradient_checkpointing=False,
    save_strategy="no",
    report_to="none",
)
trainer = DPOTrainer(model, args=args, ref_model=copy.deepcopy(model), train_dataset=data, processing_class=tokenizer)
assert trainer.use_liger_kernel
trainer.train()
batch = trainer.data_collator(list(trainer.train_dataset))  # of both ranks
with torch.no_grad():
    before = preference(start, batch)
(-torch.nn.functional.logsigmoid(args.beta * (preference(alone, batch) - before))).mean().backward()
with deepspeed.zero.GatheredParameters(list(model.parameters())):
    got = torch.cat([((a - b) / 0.5).flatten() for a, b in zip(start.parameters(), model.parameters(), strict=True)])
wanted = torch.cat([p.grad.flatten() for p in alone.parameters()])
apart = ((got - wanted).norm() / wanted.norm()).item()
if dist.get_rank() == 0:
    right = "one process's, to a hundred-thousandth" if apart < 1e-5 else "not one process's"
    print(f"\n=> DPO with Liger under ZeRO-3: the gradient is {right}", flush=True)
    print(f"distance {apart:.1e}", flush=True)
dist.barrier()
os._exit(0)  # else gloo's threads may abort at the end: pytorch/pytorch#154976
