#!/usr/bin/env bash
# LoRA on a vision-language model, one node. Values come from variables; the report names no GPUs.
set -euo pipefail

: "${GPUS:=8}" "${MODEL:=Qwen/Qwen2-VL-7B-Instruct}" "${OUTPUT:=output}"
: "${DATASET:=modelscope/coco_2014_caption:validation#20000}"

# --8<-- [start:command]
NPROC_PER_NODE="$GPUS" swift sft \
    --model "$MODEL" \
    --dataset "$DATASET" \
    --freeze_vit true \
    --output_dir "$OUTPUT" \
    --gradient_checkpointing_kwargs '{"use_reentrant": false}' \
    "$@"
# --8<-- [end:command]
