#!/usr/bin/env bash
# GRPO with LoRA on one node. Values come from variables; the defaults are of the incident's size.
set -euo pipefail

: "${GPUS:=8}" "${MODEL:=Qwen/Qwen2.5-7B-Instruct}" "${DATASET:=AI-MO/NuminaMath-TIR}" "${OUTPUT:=output}"

# --8<-- [start:command]
NPROC_PER_NODE="$GPUS" swift rlhf \
    --rlhf_type grpo \
    --model "$MODEL" \
    --dataset "$DATASET" \
    --reward_funcs accuracy \
    --num_generations "$GPUS" \
    --output_dir "$OUTPUT" \
    --gradient_checkpointing_kwargs '{"use_reentrant": false}' \
    "$@"
# --8<-- [end:command]
