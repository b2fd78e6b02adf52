#!/usr/bin/env bash
# A Qwen2.5-7B with a new head, under ZeRO-3. Values come from variables; the plugin registers the model.
set -euo pipefail

: "${NPUS:=8}" "${MODEL:=Qwen/Qwen2.5-7B-Instruct}" "${MODEL_TYPE:=slam_omni}" "${PLUGIN:=slam_omni.py}"
: "${DATASET:=train.jsonl}" "${OUTPUT:=output}"

# --8<-- [start:command]
: "${FULL:=--tuner_type=full}" # up to ms-swift 3: --train_type=full
NPROC_PER_NODE="$NPUS" swift sft \
    --model "$MODEL" \
    --model_type "$MODEL_TYPE" \
    --custom_register_path "$PLUGIN" \
    "$FULL" \
    --dataset "$DATASET" \
    --output_dir "$OUTPUT" \
    --deepspeed zero3 \
    "$@"
# --8<-- [end:command]
