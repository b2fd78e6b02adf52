#!/usr/bin/env bash
# A base reranker with LoRA. Values come from variables; the defaults are of upstream's example.
set -euo pipefail

: "${GPUS:=8}" "${MODEL:=BAAI/bge-reranker-v2-gemma}" "${DATA:=train.jsonl}" "${OUTPUT:=output}"

# --8<-- [start:command]
torchrun --nproc-per-node "$GPUS" -m FlagEmbedding.finetune.reranker.decoder_only.base \
    --model_name_or_path "$MODEL" \
    --model_type decoder \
    --use_lora True \
    --lora_rank 32 \
    --lora_alpha 64 \
    --target_modules q_proj k_proj v_proj o_proj \
    --train_data "$DATA" \
    --train_group_size 16 \
    --query_max_len 512 \
    --passage_max_len 512 \
    --output_dir "$OUTPUT" \
    --learning_rate 2e-4 \
    --bf16 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 16 \
    --dataloader_drop_last True \
    --gradient_checkpointing \
    --gradient_checkpointing_kwargs '{"use_reentrant": false}' \
    "$@"
# --8<-- [end:command]
