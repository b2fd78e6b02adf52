"""A real Slurm of one node, on this machine, as long as it is wanted: munge, slurmctld and slurmd, of no system's service."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.hosting import reserved_port
from support.patience import PATIENCE, until

SLOTS = 4  # processors that the node says it has, whatever this machine has
CONFIGURATION = """
ClusterName=readyonce
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
CredType=cred/munge
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd.log
# Nothing of systemd's and no control groups: a container may have neither.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=10
MinJobAge=300
NodeName={host} NodeAddr=127.0.0.1 CPUs={slots} RealMemory=32000 State=UNKNOWN
PartitionName=cpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@contextmanager
def slurm(place: Path) -> Iterator[dict[str, str]]:
    """What its commands need of the environment. Raises RuntimeError, with the daemons' words, where it does not start."""
    host = socket.gethostname().split(".")[0]
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    (place / "state").mkdir()
    (place / "spool").mkdir()
    place.chmod(0o755)  # munge wants its folder to be nobody else's to write
    (place / "munge.key").write_bytes(secrets.token_bytes(128))
    (place / "munge.key").chmod(0o400)
    words = {"host": host, "user": user, "place": place, "slots": SLOTS}
    with reserved_port() as controller, reserved_port() as node:
        (place / "slurm.conf").write_text(CONFIGURATION.format(**words, controller=controller, node=node))
        with _running(place, user) as environment:
            yield environment


@contextmanager
def _running(place: Path, user: str) -> Iterator[dict[str, str]]:
    environment = os.environ | {"SLURM_CONF": str(place / "slurm.conf"), "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    munge = [
        "munged",
        "--foreground",
        "--force",
        *(f"--{it}-file={place}/munge.{it}" for it in ("key", "pid", "seed", "log")),
    ]
    daemons = [[*munge, f"--socket={place}/munge.socket"], ["slurmctld", "-D"], ["slurmd", "-D"]]
    running: list[subprocess.Popen[bytes]] = []
    said = place / "said.txt"

    def up() -> bool:
        if ended := [it for it in running if it.poll() is not None]:
            logs = [it.read_text(errors="replace")[-2000:] for it in (said, *place.glob("*.log"))]
            raise RuntimeError(f"{ended[0].args} ended:\n" + "\n".join(logs))
        told = subprocess.run(["sinfo", "--noheader", "--format=%T"], capture_output=True, text=True, env=environment)
        return told.stdout.strip() == "idle"

    try:
        with said.open("ab") as log:
            for daemon in daemons:
                program = shutil.which(daemon[0], path=environment["PATH"])
                if program is None:
                    raise RuntimeError(f"there is no {daemon[0]}: apt-get install slurm-wlm munge")
                running.append(
                    subprocess.Popen([program, *daemon[1:]], env=environment, stdout=log, stderr=log, cwd=place)
                )
                if daemon[0] == "munged":
                    until((place / "munge.socket").exists)
        until(up)
        yield environment
    finally:
        if len(running) == len(daemons):
            subprocess.run(["scancel", "--user", user], env=environment, capture_output=True)
            queue = ["squeue", "--noheader", "--user", user]
            until(lambda: not subprocess.run(queue, env=environment, capture_output=True).stdout)
        for process in reversed(running):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
