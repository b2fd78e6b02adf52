#!/usr/bin/env bash
# TODO: the framework's own command. Values come from variables; the defaults are the incident's.
set -euo pipefail

: "${GPUS:=8}"

# --8<-- [start:command]
torchrun --nproc-per-node "$GPUS" repro.py fixed
# --8<-- [end:command]
