#!/usr/bin/env bash
# A layerwise reranker with LoRA, FlagEmbedding 1.4.2 with transformers 4 (5 does not load it).
# Values come from variables; the defaults are of upstream's example.
set -euo pipefail

: "${GPUS:=4}" "${LAYERWISE_MODEL:=BAAI/bge-reranker-v2-minicpm-layerwise}" "${DATA:=train.jsonl}" "${OUTPUT:=output}"

# --8<-- [start:command]
torchrun --nproc-per-node "$GPUS" -m FlagEmbedding.finetune.reranker.decoder_only.layerwise \
    --model_name_or_path "$LAYERWISE_MODEL" \
    --model_type from_finetuned_model \
    --trust_remote_code True \
    --start_layer 8 \
    --head_multi True \
    --head_type simple \
    --use_lora True \
    --lora_rank 32 \
    --lora_alpha 64 \
    --target_modules q_proj k_proj v_proj o_proj \
    --train_data "$DATA" \
    --train_group_size 8 \
    --query_max_len 512 \
    --passage_max_len 512 \
    --output_dir "$OUTPUT" \
    --learning_rate 2e-4 \
    --bf16 \
    --per_device_train_batch_size 2 \
    --dataloader_drop_last True \
    --gradient_checkpointing \
    --gradient_checkpointing_kwargs '{"use_reentrant": false}' \
    "$@"
# --8<-- [end:command]
