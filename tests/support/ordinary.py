"""Ordinary tracebacks: errors of one process, in which words of our families stand for something else or nearly stand.

Each of 60 errors, with the frames that lead to it, in five surroundings: a plain loop, inference, Lightning, the Trainer of
transformers with its arguments printed above, and a notebook. No launcher and no strategy is in any of them.
"""

from __future__ import annotations

import re

LIBRARIES = "/opt/conda/lib/python3.11/site-packages/"
ARGUMENTS = (
    "TrainingArguments(\n_n_gpu=1,\naccelerator_config={'split_batches': False},\nbf16=True,\nddp_backend=None,\n"
    "ddp_find_unused_parameters=None,\ndeepspeed=None,\nfsdp=[],\nfsdp_config={'min_num_params': 0, 'xla': False},\n"
    "gradient_checkpointing=False,\nlocal_rank=0,\nlearning_rate=5e-05,\n)\n"
)


def frame(path, line, function, code):
    return f'  File "{path}", line {line}, in {function}\n    {code}\n'


def library(path, line, function, code):
    return frame(LIBRARIES + path, line, function, code)


MODULE = library("torch/nn/modules/module.py", 1751, "_wrapped_call_impl", "return self._call_impl(*args, **kwargs)")
MODULE += library("torch/nn/modules/module.py", 1762, "_call_impl", "return forward_call(*args, **kwargs)")
FORWARD = MODULE + frame("net.py", 41, "forward", "x = self.mix(x) + self.position")
LINEAR = FORWARD + library(
    "torch/nn/modules/linear.py", 125, "forward", "return F.linear(input, self.weight, self.bias)"
)
OWN = FORWARD + frame("layers.py", 12, "mix", "return torch.addmm(self.bias, x, self.scores)")
TABLE_OWN = FORWARD + frame("layers.py", 20, "lookup", "return F.embedding(ids, table)")
TABLE_OWN += library("torch/nn/functional.py", 2551, "embedding", "return torch.embedding(weight, input, padding_idx)")
CONV = FORWARD + library(
    "torch/nn/modules/conv.py", 554, "forward", "return self._conv_forward(input, self.weight, self.bias)"
)
NORM = FORWARD + library("torch/nn/functional.py", 2822, "batch_norm", "return torch.batch_norm(")
LOSS = frame("net.py", 60, "loss", "return F.cross_entropy(logits, labels)")
LOSS += library("torch/nn/functional.py", 3494, "cross_entropy", "return torch._C._nn.cross_entropy_loss(")
BACKWARD = library("torch/_tensor.py", 647, "backward", "torch.autograd.backward(")
BACKWARD += library("torch/autograd/__init__.py", 354, "backward", "_engine_run_backward(")
BACKWARD += library(
    "torch/autograd/graph.py", 829, "_engine_run_backward", "return Variable._execution_engine.run_backward("
)
OWN_BACKWARD = BACKWARD + frame("ops.py", 33, "backward", "return grad * ctx.scale")
LOAD = frame("net.py", 80, "restore", 'self.load_state_dict(torch.load("net.pt"))')
LOAD += library("torch/nn/modules/module.py", 2581, "load_state_dict", "raise RuntimeError(")
OPEN = frame("data.py", 9, "rows", "return read(path)")
SERVE = frame("/usr/lib/python3.11/socketserver.py", 472, "server_bind", "self.socket.bind(self.server_address)")
FETCH = library(
    "torch/utils/data/_utils/fetch.py", 52, "fetch", "data = [self.dataset[idx] for idx in possibly_batched_index]"
)
FETCH += frame("data.py", 31, "__getitem__", "return self.rows[index]")
TO = library(
    "torch/nn/modules/module.py", 1355, "convert", "return t.to(device, dtype if t.is_floating_point() else None)"
)
STEP = library("torch/optim/adamw.py", 226, "step", "adamw(")
GENERATE = library(
    "transformers/generation/utils.py", 3431, "_sample", "next_tokens = torch.multinomial(probs, num_samples=1)"
)

ERRORS = [
    # Shapes.
    (FORWARD, "RuntimeError: The size of tensor a (12) must match the size of tensor b (10) at non-singleton dimension 0"),
    (FORWARD, "RuntimeError: The size of tensor a (0) must match the size of tensor b (77) at non-singleton dimension 1"),
    (FORWARD, "RuntimeError: The size of tensor a (8) must match the size of tensor b (0) at non-singleton dimension 0"),
    (OWN_BACKWARD, "RuntimeError: The size of tensor a (4) must match the size of tensor b (8) at non-singleton dimension 0"),
    (OWN, "RuntimeError: mat2 must be a matrix, got 1-D tensor"),
    (OWN, "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 16x4)"),
    (LINEAR, "RuntimeError: mat1 and mat2 shapes cannot be multiplied (0x8 and 16x4)"),
    (LINEAR, "RuntimeError: mat1 and mat2 must have the same dtype, but got Float and BFloat16"),
    (LINEAR, "RuntimeError: size mismatch, got input (4), mat (4x16), vec (8)"),
    (OWN, "RuntimeError: size mismatch, got input (5), mat (5x3), vec (0)"),
    (OWN, "RuntimeError: size mismatch, got 4, 4x16,8"),
    (TABLE_OWN, "RuntimeError: 'weight' must be 2-D"),
    (TABLE_OWN, "IndexError: index out of range in self"),
    (CONV, "RuntimeError: Given groups=1, weight of size [64, 3, 7, 7], expected input[8, 1, 224, 224] to have 3 channels, but got 1 channels instead"),
    (FORWARD, "RuntimeError: shape '[0, 8]' is invalid for input of size 16"),
    (FORWARD, "RuntimeError: Sizes of tensors must match except in dimension 1. Expected size 4 but got size 0 for tensor number 1 in the list."),
    (FORWARD, "RuntimeError: expected scalar type BFloat16 but found Float"),
    (NORM, "ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, 8])"),
    (LOSS, "ValueError: Expected input batch_size (8) to match target batch_size (0)."),
    (LOSS, "RuntimeError: 0D or 1D target tensor expected, multi-target not supported"),
    # Gradients.
    (BACKWARD, "RuntimeError: grad can be implicitly created only for scalar outputs"),
    (BACKWARD, "RuntimeError: Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed)."),
    (BACKWARD, "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation: [torch.FloatTensor [8]], which is output 0 of AddBackward0, is at version 2; expected version 1 instead."),
    (OWN_BACKWARD, "RuntimeError: function ScaleBackward returned an incorrect number of gradients (expected 2, got 1)"),
    (OWN_BACKWARD, "RuntimeError: Function ScaleBackward returned an invalid gradient at index 0 - got [4] but expected shape compatible with [8]"),
    (OWN_BACKWARD, "RuntimeError: Function ScaleBackward returned an invalid gradient at index 1 - got [0] but expected shape compatible with [4]"),
    (BACKWARD, "RuntimeError: Found dtype Long but expected Float"),
    (BACKWARD, "RuntimeError: Function 'LogBackward0' returned nan values in its 0th output."),
    (STEP, "AssertionError: No inf checks were recorded for this optimizer."),
    (STEP, "RuntimeError: unscale_() has already been called on this optimizer since the last update()."),
    (STEP, "ValueError: some parameters appear in more than one parameter group"),
    (STEP, "ValueError: optimizer got an empty parameter list"),
    # Checkpoints of one process.
    (LOAD, 'RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "head.weight", "head.bias".'),
    (LOAD, 'RuntimeError: Error(s) in loading state_dict for Net:\n\tUnexpected key(s) in state_dict: "old.weight".'),
    (LOAD, "RuntimeError: Error(s) in loading state_dict for Net:\n\tsize mismatch for head.weight: copying a param with shape torch.Size([10, 8]) from checkpoint, the shape in current model is torch.Size([5, 8])."),
    (LOAD, "RuntimeError: Error(s) in loading state_dict for Net:\n\tsize mismatch for head.weight: copying a param with shape torch.Size([10, 8]) from checkpoint, the shape in current model is torch.Size([0, 8])."),
    (LOAD, "RuntimeError: Error(s) in loading state_dict for Net:\n\tsize mismatch for scale: copying a param with shape torch.Size([3]) from checkpoint, the shape in current model is torch.Size([0])."),
    (LOAD, "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory"),
    (LOAD, "_pickle.UnpicklingError: Weights only load failed."),
    # Calls and names.
    (FORWARD, "ValueError: Unexpected keyword arguments: colour"),
    (FORWARD, "TypeError: forward() got an unexpected keyword argument 'labels'"),
    (FORWARD, "AttributeError: 'Net' object has no attribute 'module'"),
    (FORWARD, "AttributeError: 'DataParallel' object has no attribute 'generate'"),
    (FORWARD, "AttributeError: 'Adam' object has no attribute 'optimizer'"),
    (FORWARD, "KeyError: 'RANK'"),
    (FORWARD, "KeyError: 'LOCAL_RANK'"),
    (FORWARD, "IndexError: pop from an empty deque"),
    (FETCH, "KeyError: 'input_ids'"),
    (OPEN, "FileNotFoundError: [Errno 2] No such file or directory: 'train.json'"),
    (OPEN, "ConnectionResetError: [Errno 104] Connection reset by peer"),
    (OPEN, "requests.exceptions.ConnectionError: ('Connection aborted.', RemoteDisconnected('Remote end closed connection without response'))"),
    (SERVE, "OSError: [Errno 98] Address already in use"),
    # Devices.
    (FORWARD, "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"),
    (FORWARD, "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cuda:1!"),
    (TO, "RuntimeError: CUDA error: invalid device ordinal"),
    (TO, "RuntimeError: No CUDA GPUs are available"),
    (TO, "RuntimeError: CUDA error: no kernel image is available for execution on the device"),
    (FORWARD, "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"),
    (LINEAR, "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    (GENERATE, "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0"),
]  # fmt: skip

HEAD = "Traceback (most recent call last):\n"


def plain(frames, message):
    return "epoch 0\n" + HEAD + frame("train.py", 31, "<module>", "loss = step(batch)") + frames + message + "\n"


def inference(frames, message):
    call = frame("serve.py", 12, "<module>", "print(model.generate(**inputs, max_new_tokens=64))")
    call += library("torch/utils/_contextlib.py", 120, "decorate_context", "return func(*args, **kwargs)")
    call += library("transformers/generation/utils.py", 2539, "generate", "result = decoding_method(")
    return (
        "Loading checkpoint shards: 100%|██████████| 4/4 [00:09<00:00,  2.30s/it]\n"
        + HEAD
        + call
        + frames
        + message
        + "\n"
    )


def lightning(frames, message):
    call = frame("fit.py", 20, "<module>", "trainer.fit(Net(), data)")
    call += library(
        "lightning/pytorch/loops/optimization/automatic.py", 270, "_optimizer_step", "call._call_lightning_module_hook("
    )
    call += library(
        "lightning/pytorch/core/module.py", 1366, "optimizer_step", "optimizer.step(closure=optimizer_closure)"
    )
    call += library("torch/optim/adamw.py", 197, "step", "loss = closure()")
    call += library(
        "lightning/pytorch/plugins/precision/precision.py", 108, "_wrap_closure", "closure_result = closure()"
    )
    call += frame("net.py", 33, "training_step", "return self.loss(self(batch))")
    return (
        "GPU available: True (cuda), used: True\nEpoch 0:   0%|          | 0/100 [00:00<?, ?it/s]"
        + HEAD
        + call
        + frames
        + message
        + "\n"
    )


def trainer(frames, message):
    call = frame("train.py", 88, "<module>", "trainer.train()")
    call += library("transformers/trainer.py", 2325, "train", "return inner_training_loop(")
    call += library("transformers/trainer.py", 4071, "training_step", "self.accelerator.backward(loss, **kwargs)")
    call += library("accelerate/accelerator.py", 2578, "backward", "loss.backward(**kwargs)")
    return ARGUMENTS + "  0%|          | 0/300 [00:00<?, ?it/s]" + HEAD + call + frames + message + "\n"


def notebook(frames, message):
    """As IPython prints it, its frames without quotes."""
    frames = re.sub(
        r'  File "([^"]+)", line (\d+), in (\S+)\n    (.*)\n', r"File \1:\2, in \3(*args)\n--> \2 \4\n\n", frames
    )
    rule = "-" * 75
    return f"{rule}\n{message.split(':')[0]:<34}{HEAD}Cell In[7], line 3\n----> 3 fit(model, data)\n\n{frames}\n{message}\n"


SURROUNDINGS = {form.__name__: form for form in (plain, inference, lightning, trainer, notebook)}
