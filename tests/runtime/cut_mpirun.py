"""How long mpirun of Open MPI waits for a host whose link is cut: by default, told to end, told again, with keepalives.

    python -m tests.runtime.cut_mpirun

Rank 0 ends with an error 20 s after the cut, as hios does after its time-out; what hios then does to end mpirun is left
out. After 60 s mpirun is given up. Needs root.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

from tests.runtime.hosts import Hosts, missing

_LIMIT_S, _SETTLING_S, _AGAIN_S = 60.0, 2.0, 2.0
_PROGRAM = """
import os, time
from mpi4py import MPI
print("ready", flush=True)
time.sleep(22 if MPI.COMM_WORLD.rank == 0 else 300)
os._exit(1)
"""
_KEEPALIVE = {
    f"PRTE_MCA_oob_tcp_keepalive_{name}": value for name, value in zip(("time", "intvl", "probes"), "523", strict=True)
}


def _seconds(told: int) -> str:
    """How long mpirun takes to end after the cut, and its exit status, if it gets SIGTERM so often after 30 s."""
    with Hosts(2) as hosts:
        (job,) = hosts.launch("mpi", "-c", _PROGRAM)
        assert job.stdout is not None
        for _ in range(2):
            next(line for line in job.stdout if line == "ready\n")
        time.sleep(_SETTLING_S)  # a message on its way would keep TCP from looking for the host
        hosts.cut("host1")
        cut = time.monotonic()
        if told:
            time.sleep(30)
            (pid,) = [pid for pid, words in hosts.processes().items() if words.startswith("prterun")]
        for _ in range(told):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            time.sleep(_AGAIN_S)
        try:
            job.wait(_LIMIT_S - (time.monotonic() - cut))
        except subprocess.TimeoutExpired:
            return f"there after {_LIMIT_S:g} s"
        return f"ended after {time.monotonic() - cut:.0f} s with status {job.returncode}"


if __name__ == "__main__":
    if reason := missing():
        sys.exit(reason)
    sys.stdout.write(f"by default: {_seconds(told=0)}\n")
    sys.stdout.write(f"SIGTERM after 30 s: {_seconds(told=1)}\n")
    sys.stdout.write(f"SIGTERM three times after 30 s: {_seconds(told=3)}\n")
    os.environ.update(_KEEPALIVE)
    sys.stdout.write(f"keepalive 5, 2, 3: {_seconds(told=0)}\n")
