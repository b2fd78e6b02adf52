"""SLAM-Omni as models of ms-swift: `--custom_register_path slam_omni.py --model_type slam_omni`.

A Qwen2 whose vocabulary ends in the audio codes. The head turns the scores of these codes into one code per layer. Needs
ms-swift 3 or 4.
"""

import torch
import torch.nn.functional as F
from torch import nn
from transformers import Qwen2ForCausalLM

AUDIO_VOCAB, CODE_LAYERS = 4160, 3  # of SLAM-LLM's script: 4096 codes and 64 more, 3 in a group


class GroupDecodeAdapter(nn.Module):
    """SLAM-LLM's `Linear_GroupDecodeAdapter`: one linear layer, its output split into the layers of a group."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(AUDIO_VOCAB, CODE_LAYERS * AUDIO_VOCAB)

    def forward(self, logits):
        return self.linear(logits).unflatten(-1, (CODE_LAYERS, AUDIO_VOCAB))


class SlamOmni(Qwen2ForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        self.head = GroupDecodeAdapter()
        self.post_init()

    def forward(self, input_ids=None, labels=None, **others):
        output = super().forward(input_ids=input_ids, labels=labels, **others)
        if labels is not None:
            scores = output.logits[:, :-1, -AUDIO_VOCAB:]
            codes = labels[:, 1:] - (self.config.vocab_size - AUDIO_VOCAB)  # below 0: no code
            output.loss = output.loss + self.audio_loss(scores, codes) + self.dummy_loss()
        return output

    # --8<-- [start:fix]
    def audio_loss(self, scores, codes):
        """The head runs exactly once, on zeros where the batch has no audio."""
        if (codes < 0).all():
            return self.head(torch.zeros_like(scores[:, :1])).sum() * 0.0
        return self.group_loss(scores[codes >= 0], codes[codes >= 0])

    # --8<-- [end:fix]

    def group_loss(self, scores, codes):
        """In place of the audio's own codes, each layer learns the code of the text stream."""
        return F.cross_entropy(self.head(scores).flatten(0, 1), codes.repeat_interleave(CODE_LAYERS))

    def dummy_loss(self):
        return 0.0


class HeadSkipped(SlamOmni):
    """Nothing keeps the head in the graph where the batch has no audio."""

    def audio_loss(self, scores, codes):
        return 0.0 if (codes < 0).all() else self.group_loss(scores[codes >= 0], codes[codes >= 0])


class DummyLoss(HeadSkipped):
    """As reported."""

    # --8<-- [start:dummy-loss]
    def dummy_loss(self):
        return sum(p.sum() for p in self.head.parameters()) * 0.0

    # --8<-- [end:dummy-loss]


class OneByOne(HeadSkipped):
    def dummy_loss(self):
        return sum((p * 0.0).sum() for p in self.head.parameters())


def register(model_type, model_class):
    """`--model_type` of this name loads this class."""
    try:
        from swift.model import ModelLoader, ModelMeta, register_model
    except ImportError:  # ms-swift 3
        from swift.llm import ModelMeta, get_model_tokenizer_with_flash_attn, register_model

        def load(*args, **others):
            return get_model_tokenizer_with_flash_attn(*args, **others | {"automodel_class": model_class})

        how = {"get_function": load}
    else:

        class Loader(ModelLoader):
            def __init__(self, *args, **others):
                super().__init__(*args, **others)
                self.auto_model_cls = model_class

        how = {"loader": Loader}
    register_model(ModelMeta(model_type, [], template="qwen2_5", architectures=[model_class.__name__], **how))


register("slam_omni", SlamOmni)
register("slam_omni_dummy_loss", DummyLoss)
register("slam_omni_head_skipped", HeadSkipped)
register("slam_omni_one_by_one", OneByOne)
