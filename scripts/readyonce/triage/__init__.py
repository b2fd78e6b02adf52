"""`readyonce triage`: the logs of many jobs, and of each the rank that failed first.

Names of files → jobs (`layout`), bytes → what each rank says (`reading`), and what NCCL and HCCL
say (`transport`), that → who failed first (`verdict`), and the
report (`report`, `page`). All of it is plain Python; Dask stands in `engine` alone, which the command imports.
"""
