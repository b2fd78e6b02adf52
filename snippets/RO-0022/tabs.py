"""What the tabs of RO-0022 say, compared with one process: torchrun --nproc-per-node 2 tabs.py (or tabs.py PEFT)

Each case trains three steps under ZeRO-3, with a model that transformers has partitioned while it loaded it. With
`bf16-lora` it is one step of LoRA in bfloat16, with AdamW and clipping, and the first gradient is compared.
"""

import copy
import os
import sys
import tempfile
import traceback

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
import deepspeed
import torch
import torch.distributed as dist
from second import ADAPTED, DTYPE, SETTING, UPCASTS, ZERO, adapted, averaged, distance, of_one, of_ranks, peft, stepping
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.integrations import HfDeepSpeedConfig

SIZES = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
ZERO3 = {"train_micro_batch_size_per_gpu": 2, "zero_allow_untested_optimizer": True} | ZERO
ZERO3 |= {"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}}  # else small weights stay whole
BOTH = ["embed_tokens", "lm_head"]
data = torch.randint(32, (4, 6), generator=torch.Generator().manual_seed(1))


def loaded():
    return LlamaForCausalLM.from_pretrained(folder, dtype=DTYPE)


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
    engine, optimizer, before = model, stepping(model), copy.deepcopy(average)
    rows = data.chunk(2)[dist.get_rank()] if sharded else data
    if sharded:
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=ZERO3)
    if sharded and reference:
        reference, *_ = deepspeed.initialize(model=reference, config=ZERO3)

    def loss():
        out = engine(input_ids=rows, labels=rows)
        if not reference:
            return out.loss
        with torch.no_grad():
            wanted = reference(input_ids=rows[:, 1:]).logits
        return out.loss + (out.logits[:, 1:] - wanted).square().mean()

    if ADAPTED and not sharded:
        return list(of_one([model, reference] if reference else [model], loss))
    for _ in range(1 if ADAPTED else 3):
        engine.backward(loss()) if sharded else loss().backward()
        gradients = of_ranks(model) if ADAPTED else None
        engine.step() if sharded else optimizer.step()
        model.zero_grad()
        if average:
            # --8<-- [start:ema]
            with deepspeed.zero.GatheredParameters(list(model.parameters())):
                for kept, now in zip(average.parameters(), model.parameters(), strict=True):
                    kept.data.lerp_(now.data, 0.3)
            # --8<-- [end:ema]
                assert not ADAPTED or averaged(average, before, model)
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        return gradients or [p.detach().clone() for it in (average or model, model) for p in it.parameters()]


def with_copy(sharded):
    from trl.experimental.utils import create_reference_model

    return train(adapted(loaded()), sharded, reference=create_reference_model(loaded()))


def with_average(sharded):
    model = adapted(loaded())
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        average = copy.deepcopy(model)
    return train(model, sharded, average=average)


CASES = {
    "PEFT, modules_to_save": lambda sharded: train(peft(loaded(), ["q_proj"], modules_to_save=BOTH), sharded),
    "PEFT, target_modules": lambda sharded: train(peft(loaded(), ["q_proj", *BOTH]), sharded),
    "a reference model, loaded once more": lambda sharded: train(adapted(loaded()), sharded, reference=loaded().eval()),
    "create_reference_model": with_copy,
    "an EMA copy": with_average,
    "resize_token_embeddings": lambda sharded: train(adapted(resized()), sharded),
    "an embedding made with shape[0] of the old weight": lambda sharded: train(adapted(of_the_size_read()), sharded),
}
if UPCASTS:
    rest = {"modules_to_save": BOTH, "upcast": True}
    CASES["PEFT, modules_to_save, adapters in float32"] = lambda it: train(peft(loaded(), ["q_proj"], **rest), it)
cases = {name: case for name, case in CASES.items() if not sys.argv[1:] or name.startswith(sys.argv[1])}
folder = tempfile.mkdtemp()
torch.manual_seed(0)
LlamaForCausalLM(LlamaConfig(**SIZES, initializer_range=0.2)).save_pretrained(folder)  # with ranks, rank 1 saves nothing
deepspeed.init_distributed("gloo", verbose=False)
alone = {name: case(False) for name, case in cases.items()}
known = HfDeepSpeedConfig(ZERO3)  # keep it: here transformers sees that it is ZeRO-3
for name, case in cases.items():
    try:
        apart, bound = distance(case(True), alone[name])
        said = "equal to one process" if apart < bound else "NOT one process"
        if ADAPTED:
            said = f"the first gradient is {'equal to' if apart < bound else 'not'} one process's"
    except AssertionError as error:
        apart, bound, shape = None, None, str(error).partition("'ds_shape'")[2].split(", 'req")[0]
        failed = traceback.extract_tb(error.__traceback__)[-1].line
        said = f"ds_status == AVAILABLE fails, 'ds_shape'{shape}" if shape else f"{failed} fails"
    except ValueError as error:
        apart, bound, said = None, None, str(error).split(". ")[0]
    if dist.get_rank() == 0:
        print(f"\n=> {SETTING}{name}: {said}", flush=True)
        print(f"distance {apart}, bound {bound}", flush=True)
    dist.barrier()
os._exit(0)  # a rank may hold a thread after the assertion
