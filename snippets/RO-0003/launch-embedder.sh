#!/usr/bin/env bash
# An embedder with LoRA. Values come from variables; the defaults are of upstream's example.
set -euo pipefail

: "${GPUS:=2}" "${MODEL:=BAAI/bge-multilingual-gemma2}" "${DATA:=train.jsonl}" "${OUTPUT:=output}"

# --8<-- [start:command]
torchrun --nproc-per-node "$GPUS" -m FlagEmbedding.finetune.embedder.decoder_only.base \
    --model_name_or_path "$MODEL" \
    --use_lora True \
    --lora_rank 32 \
    --lora_alpha 64 \
    --target_modules q_proj k_proj v_proj o_proj gate_proj down_proj up_proj \
    --train_data "$DATA" \
    --train_group_size 8 \
    --query_max_len 512 \
    --passage_max_len 512 \
    --sentence_pooling_method last_token \
    --negatives_cross_device \
    --output_dir "$OUTPUT" \
    --learning_rate 1e-4 \
    --bf16 \
    --per_device_train_batch_size 2 \
    --dataloader_drop_last True \
    --gradient_checkpointing \
    --gradient_checkpointing_kwargs '{"use_reentrant": false}' \
    "$@"
# --8<-- [end:command]
