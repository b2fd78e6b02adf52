#!/usr/bin/env bash
# Fine-tuning MiniCPM-V 2.6 with its vision tower on one node. Values come from variables.
set -euo pipefail

: "${GPUS:=8}" "${MODEL:=OpenBMB/MiniCPM-V-2_6}" "${OUTPUT:=output}"
: "${DATASET:?a dataset with images: a name, or the path of a JSON file}"

# --8<-- [start:command]
NPROC_PER_NODE="$GPUS" swift sft \
    --model "$MODEL" \
    --dataset "$DATASET" \
    --freeze_vit false \
    --deepspeed zero2 \
    --per_device_train_batch_size 2 \
    --output_dir "$OUTPUT" \
    --gradient_checkpointing_kwargs '{"use_reentrant": false}' \
    "$@"
# --8<-- [end:command]
