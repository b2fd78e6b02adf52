"""LoRA on a vision-language model that also sees text-only batches: torchrun --nproc-per-node 2 minimal.py [--fixed]"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.base, self.lora = nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 8)

    def layer(self, x):
        return self.base(x) + self.lora(x)

    def forward(self, x):
        x = x.clone().requires_grad_()  # peft's enable_input_require_grads()
        if "--fixed" in sys.argv:
            # --8<-- [start:fixed]
            return checkpoint(self.layer, x, use_reentrant=False)
            # --8<-- [end:fixed]
        # --8<-- [start:fails]
        return checkpoint(self.layer, x, use_reentrant=True)
        # --8<-- [end:fails]


class VisionLanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.visual, self.model = Layer(), Layer()

    def forward(self, text, image):
        return self.model(text if image is None else text + self.visual(image))


def train(wrap, text, image):
    torch.manual_seed(0)
    model = VisionLanguageModel()
    wrapped, optimizer = wrap(model), torch.optim.SGD(model.parameters(), lr=0.1)
    for seen in (image, None, image):  # the second batch has no image: the vision tower does not run
        wrapped(text, seen).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


dist.init_process_group("gloo")
batch = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(1))  # four texts and their four images
mine = batch[:, dist.get_rank() :: 2]
trained = train(lambda model: nn.parallel.DistributedDataParallel(model, find_unused_parameters=True), *mine)
torch.testing.assert_close(trained, train(lambda model: model, *batch))
if dist.get_rank() == 0:
    print("The weights equal one process's.")
dist.destroy_process_group()
