"""What the tabs of RO-0022 say, compared with one process: torchrun --nproc-per-node 2 tabs.py (or tabs.py PEFT)

Each case trains three steps under ZeRO-3, with a model that transformers has partitioned while it loaded it.
"""

import copy
import os
import sys
import tempfile

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
import deepspeed
import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.integrations import HfDeepSpeedConfig

SIZES = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
ZERO3 = {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.0, "zero_allow_untested_optimizer": True}
ZERO3 |= {"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}}  # else small weights stay whole
BOTH = ["embed_tokens", "lm_head"]
data = torch.randint(32, (4, 6), generator=torch.Generator().manual_seed(1))


def loaded():
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)


def peft(**settings):
    model = get_peft_model(loaded(), LoraConfig(r=2, **settings))
    with deepspeed.zero.GatheredParameters(list(model.parameters()), modifier_rank=0):
        for key, value in model.named_parameters():
            if "lora_" in key:  # drawn at random
                value.data.copy_(torch.linspace(-0.2, 0.2, value.numel()).view(value.shape))
    return model


def resized():
    model = loaded()
    model.resize_token_embeddings(40, mean_resizing=False)
    with deepspeed.zero.GatheredParameters(list(model.parameters()), modifier_rank=0):
        for it in (model.get_input_embeddings(), model.get_output_embeddings()):
            it.weight.data[32:] = it.weight.data[:8]  # drawn at random
    return model


def of_the_size_read():
    model = loaded()
    model.set_input_embeddings(nn.Embedding(model.get_input_embeddings().weight.shape[0], 16))
    return model


def train(model, sharded, reference=None, average=None):
    engine, optimizer = model, torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
    rows = data.chunk(2)[dist.get_rank()] if sharded else data
    if sharded:
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=ZERO3)
    if sharded and reference:
        reference, *_ = deepspeed.initialize(model=reference, config=ZERO3)
    for _ in range(3):
        out = engine(input_ids=rows, labels=rows)
        loss = out.loss
        if reference:
            with torch.no_grad():
                wanted = reference(input_ids=rows[:, 1:]).logits
            loss = loss + (out.logits[:, 1:] - wanted).square().mean()
        engine.backward(loss) if sharded else loss.backward()
        engine.step() if sharded else optimizer.step()
        model.zero_grad()
        if average:
            # --8<-- [start:ema]
            with deepspeed.zero.GatheredParameters(list(model.parameters())):
                for kept, now in zip(average.parameters(), model.parameters(), strict=True):
                    kept.data.lerp_(now.data, 0.3)
            # --8<-- [end:ema]
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        return [p.detach().clone() for it in (average or model, model) for p in it.parameters()]


def with_copy(sharded):
    from trl.experimental.utils import create_reference_model

    return train(loaded(), sharded, reference=create_reference_model(loaded()))


def with_average(sharded):
    model = loaded()
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        average = copy.deepcopy(model)
    return train(model, sharded, average=average)


CASES = {
    "PEFT, modules_to_save": lambda sharded: train(peft(target_modules=["q_proj"], modules_to_save=BOTH), sharded),
    "PEFT, target_modules": lambda sharded: train(peft(target_modules=["q_proj", *BOTH]), sharded),
    "a reference model, loaded once more": lambda sharded: train(loaded(), sharded, reference=loaded().eval()),
    "create_reference_model": with_copy,
    "an EMA copy": with_average,
    "resize_token_embeddings": lambda sharded: train(resized(), sharded),
    "an embedding made with shape[0] of the old weight": lambda sharded: train(of_the_size_read(), sharded),
}
cases = {name: case for name, case in CASES.items() if not sys.argv[1:] or name.startswith(sys.argv[1])}
folder = tempfile.mkdtemp()
torch.manual_seed(0)
LlamaForCausalLM(LlamaConfig(**SIZES, initializer_range=0.2)).save_pretrained(folder)  # with ranks, rank 1 saves nothing
deepspeed.init_distributed("gloo", verbose=False)
alone = {name: case(False) for name, case in cases.items()}
known = HfDeepSpeedConfig(ZERO3)  # keep it: here transformers sees that it is ZeRO-3
for name, case in cases.items():
    try:
        apart = max(float((a - b).abs().max()) for a, b in zip(case(True), alone[name], strict=True))
        said = f"{'equal to' if apart < 1e-6 else 'NOT'} one process"
    except AssertionError as error:
        apart, said = None, "ds_status == AVAILABLE fails, " + str(error)[str(error).index("'ds_shape'") :].split(", 'req")[0]
    except ValueError as error:
        apart, said = None, str(error).split(". ")[0]
    if dist.get_rank() == 0:
        print(f"\n=> {name}: {said}", flush=True)
        print(f"distance {apart}", flush=True)
    dist.barrier()
os._exit(0)  # a rank may hold a thread after the assertion
