#!/bin/sh
# --8<-- [start:commands]
.venv/bin/dask scheduler --host 127.0.0.1 --port 8786 &
.venv/bin/dask worker tcp://127.0.0.1:8786 --nworkers 2 --nthreads 1 &
.venv/bin/readyonce verify RO-0001 --write --on tcp://127.0.0.1:8786
# --8<-- [end:commands]
