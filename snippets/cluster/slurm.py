"""As long as a command runs, Dask workers run as Slurm jobs, by ~/.config/dask/jobqueue.yaml. The command is given the address:

python slurm.py 4 readyonce verify --write --on
"""

import signal
import subprocess
import sys

from dask_jobqueue import SLURMCluster

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through the `with`, which ends the jobs
    with SLURMCluster() as cluster:
        cluster.scale(jobs=int(sys.argv[1]))
        cluster.wait_for_workers(1)
        sys.exit(subprocess.call([*sys.argv[2:], cluster.scheduler_address]))
