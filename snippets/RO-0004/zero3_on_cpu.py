"""Read by ms-swift at its start. With `--use_cpu true` nobody else tells DeepSpeed of the ranks before ZeRO-3 cuts up the model."""

import deepspeed

deepspeed.init_distributed("gloo")
