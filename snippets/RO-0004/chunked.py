"""What stands in for MiniCPM-V 2.6's own code: SigLIP, a resampler, Qwen2, and the vision tower called in chunks.

It has the attributes and methods that ms-swift's model type `minicpmv2_6` asks for. Written for this page;
the loop over `vision_batch_size` and the names follow the original, the sizes and the slicing do not.
"""

import numpy
import torch
from torch import nn
from transformers import (
    BaseImageProcessor,
    BatchFeature,
    GenerationMixin,
    PreTrainedModel,
    ProcessorMixin,
    Qwen2Config,
    Qwen2ForCausalLM,
    SiglipVisionConfig,
    SiglipVisionModel,
)

SIDE = 8  # pixels of a slice
GRID = 3  # an image is cut into at most 3 x 3 slices
QUERIES = 2  # tokens that the resampler makes of a slice


class MiniCPMVConfig(Qwen2Config):
    model_type = "minicpmv"
    sub_configs = {"vision_config": SiglipVisionConfig}

    def __init__(self, vision_config=None, vision_batch_size=16, **kwargs):
        super().__init__(**kwargs)
        if not isinstance(vision_config, SiglipVisionConfig):
            vision_config = SiglipVisionConfig(**vision_config or {})
        self.vision_config, self.vision_batch_size = vision_config, vision_batch_size


class Resampler(nn.Module):
    """The aligner: a few queries read the patches of each slice."""

    def __init__(self, width, out):
        super().__init__()
        self.query = nn.Parameter(torch.randn(QUERIES, out))
        self.kv_proj = nn.Linear(width, out)

    def forward(self, seen):
        seen = self.kv_proj(seen)
        return (self.query @ seen.mT).softmax(-1) @ seen


class MiniCPMV(PreTrainedModel, GenerationMixin):
    config_class = MiniCPMVConfig
    supports_gradient_checkpointing = True
    _no_split_modules = []

    def __init__(self, config):
        super().__init__(config)
        self.llm = Qwen2ForCausalLM(config)
        self.vpm = SiglipVisionModel(config.vision_config)
        self.resampler = Resampler(config.vision_config.hidden_size, config.hidden_size)
        self.post_init()

    def _init_weights(self, module):
        """Each part has initialised its own."""

    def get_vllm_embedding(self, data):
        embeddings = self.llm.get_input_embeddings()(data["input_ids"]).clone()
        slices = torch.stack([part for sample in data["pixel_values"] for part in sample])  # of the whole micro-batch
        parts = slices.split(self.config.vision_batch_size)
        seen = torch.cat([self.vpm(part).last_hidden_state for part in parts])
        tokens = self.resampler(seen).flatten(0, 1)
        places = [(row, at) for row, bounds in enumerate(data["image_bound"]) for at in bounds]
        rows = torch.cat([torch.full((int(end - start),), row) for row, (start, end) in places])
        columns = torch.cat([torch.arange(int(start), int(end)) for _, (start, end) in places])
        embeddings[rows, columns] = tokens.to(embeddings.dtype)
        return embeddings, tokens


class MiniCPMVImageProcessor(BaseImageProcessor):
    model_input_names = ["pixel_values"]

    def preprocess(self, images, max_slice_nums=None, **kwargs):
        samples = [[part for image in sample for part in self._sliced(image, max_slice_nums)] for sample in images]
        sizes = [[image.size for image in sample] for sample in images]
        return BatchFeature({"pixel_values": samples, "image_sizes": sizes, "tgt_sizes": None})

    def _sliced(self, image, most):
        """A thumbnail, then the slices."""
        pixels = numpy.asarray(image.convert("RGB").resize((GRID * SIDE, GRID * SIDE)), dtype=numpy.float32)
        pixels = torch.from_numpy(pixels / 127.5 - 1).permute(2, 0, 1)
        slices = pixels.unfold(1, SIDE, SIDE).unfold(2, SIDE, SIDE).flatten(1, 2).unbind(1)
        return [pixels[:, ::GRID, ::GRID].contiguous(), *(part.contiguous() for part in slices[:most])]

    def get_slice_image_placeholder(self, size, image_idx=0, max_slice_nums=None, use_image_id=True):
        slices = min(GRID * GRID, max_slice_nums or GRID * GRID)
        return ("<image>" + "<unk>" * QUERIES + "</image>") * (1 + slices)


class MiniCPMVProcessor(ProcessorMixin):
    attributes = ["image_processor", "tokenizer"]
    image_processor_class, tokenizer_class = "AutoImageProcessor", "AutoTokenizer"


MiniCPMVConfig.register_for_auto_class()
MiniCPMV.register_for_auto_class("AutoModelForCausalLM")
MiniCPMVImageProcessor.register_for_auto_class("AutoImageProcessor")
MiniCPMVProcessor.register_for_auto_class("AutoProcessor")
