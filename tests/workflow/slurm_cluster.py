"""A Slurm on this machine, without systemd, cgroups and accounting: for tests and for trying things out.

It has one node, or one on each of the hosts of `tests.runtime.hosts`.

As a command it runs another one inside: ``python tests/workflow/slurm_cluster.py sinfo``. It needs root and Debian's
packages slurm-wlm and munge, and refuses to run where a Slurm is configured already.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.runtime.hosts import Hosts

#: Jobs look for their cluster here alone: Snakemake's plugin takes Slurm's variables out of their environment.
CONFIGURATION = Path("/etc/slurm")
_FILES = ("slurm.conf", "gres.conf")
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel")
#: Where daemons lie, which PATH of plain users leaves out.
_SEARCH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
#: Of the names of clusters' folders.
PREFIX = "slurm-"
_STARTING_S = 120.0
_LOST_S = 15
_SINFO = ("sinfo", "--noheader", "--format=%T")
#: By which ranks of Open MPI find each other under srun.
MPI = "pmix"
#: What the node takes for GPUs.
_GPUS = ("/dev/null", "/dev/zero")


def missing(*, on_hosts: bool = False) -> str:
    """Why no cluster can be started, here or on hosts, which hide a Slurm of this machine; empty if one can."""
    absent = [name for name in _PROGRAMS if shutil.which(name, path=_SEARCH) is None]
    if absent:
        return f"no {', '.join(absent)}: apt-get install slurm-wlm munge"
    if os.geteuid() != 0:
        return "Slurm's daemons need root"
    if on_hosts:
        return ""
    paths = [CONFIGURATION / name for name in _FILES]
    there = next((path for path in paths if os.path.lexists(path) and not _is_left_over(path)), None)
    return "" if there is None else f"{there} is there already"


def _is_left_over(path: Path) -> bool:
    """Whether it is a link that a cluster of tests left which was killed, and not a configuration of this machine."""
    if not path.is_symlink() or not path.readlink().parent.name.startswith(PREFIX):
        return False
    try:
        os.kill(int((path.readlink().parent / "slurmctld.pid").read_text()), 0)
    except (OSError, ValueError):
        return True
    return False


def mpi_missing(hosts: Hosts | None = None) -> str:
    """Why srun cannot start ranks of Open MPI in a cluster that is up; empty if it can."""
    if find_spec("mpi4py") is None:
        return "mpi4py is not there: hios[mpi]"
    words = ["srun", f"--mpi={MPI}", "true"]
    words = words if hosts is None else hosts.command("host0", *words)
    asked = subprocess.run(words, check=False, capture_output=True, text=True)
    # Debian's Slurm opens libpmix.so, a name that only the package for developers has.
    return "" if asked.returncode == 0 else f"srun --mpi={MPI} starts nothing: apt-get install libpmix-dev"


@contextlib.contextmanager
def cluster(cpus: int = 2, memory_mb: int = 8000) -> Iterator[Path]:
    """Start the cluster; yields the folder of its logs. All its processes and files are gone afterwards.

    Args:
        cpus: of the node; may be more than the machine has.
        memory_mb: of the node.

    Raises:
        RuntimeError: it cannot be started here, or does not come up.
    """
    if reason := missing():
        raise RuntimeError(reason)
    host = socket.gethostname().partition(".")[0]
    node = f"NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory_mb} Gres=gpu:{len(_GPUS)}"
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        _configure(folder, f"{host}(127.0.0.1)", node)
        (folder / "gres.conf").write_text("".join(f"Name=gpu File={file}\n" for file in _GPUS))
        CONFIGURATION.mkdir(exist_ok=True)
        for name in _FILES:
            (CONFIGURATION / name).unlink(missing_ok=True)
            (CONFIGURATION / name).symlink_to(folder / name)
        _run(*_munged(folder))
        _run(_program("slurmctld"), "-c")
        _run(_program("slurmd"))
        _wait_until_idle(folder, _SINFO)
        yield folder
    finally:
        subprocess.run(["scancel", "--user=root"], check=False, capture_output=True)
        for name in (f"slurmd-{host}", "slurmctld", "munged"):
            _end(folder / f"{name}.pid")
        for name in _FILES:
            (CONFIGURATION / name).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


_MUNGE_FILES = {
    "key-file": "munge.key",
    "socket": "munge.socket",
    "pid-file": "munged.pid",
    "log-file": "munged.log",
    "seed-file": "munge.seed",
}


def start_on(hosts: Hosts, folder: Path) -> None:
    """Start a cluster with a node of one core on every host, the controller on the first one; it ends with them.

    Commands of Slurm find it on these hosts only. Its files and logs lie in a new folder, which the caller removes
    after the hosts have ended, also if this fails.
    """
    last = len(hosts.names) - 1
    nodes = f"NodeName=host[0-{last}] NodeAddr=10.77.0.[1-{last + 1}] CPUs=1 RealMemory=4000"
    # seconds without an answer after which a node counts as lost
    _configure(folder, "host0(10.77.0.1)", f"SlurmdTimeout={_LOST_S}\n{nodes}")
    CONFIGURATION.mkdir(exist_ok=True)
    hosts.mount(folder, CONFIGURATION)
    _run(*hosts.command("host0", *_munged(folder)))
    _run(*hosts.command("host0", _program("slurmctld"), "-c"))
    # Hosts have a /sys of their own networks, without the cgroups that slurmd looks for, and share /tmp, where PMIx has
    # the same names on each.
    cgroups, seen = folder / "cgroup", Path("/sys/fs/cgroup")
    cgroups.mkdir()
    hosts.mount(seen, cgroups)
    for host in hosts.names:
        start = f"mount --rbind {cgroups} {seen} && mount --bind $TMPDIR {folder}/temporary && {_program('slurmd')}"
        _run(*hosts.command(host, "sh", "-c", start))
    _wait_until_idle(folder, hosts.command("host0", *_SINFO))


def _munged(folder: Path) -> list[str]:
    return [_program("munged"), "--force", *(f"--{kind}={folder / name}" for kind, name in _MUNGE_FILES.items())]


def _configure(folder: Path, controller: str, nodes: str) -> None:
    """Write the configuration of a cluster, and its key, into a new folder."""
    (folder / "munge.key").write_bytes(secrets.token_bytes(1024))
    (folder / "munge.key").chmod(0o400)
    folder.chmod(0o755)
    for name in ("state", "temporary"):
        (folder / name).mkdir()
    (folder / "slurm.conf").write_text(_configuration(folder, controller, nodes))


def _configuration(folder: Path, host: str, nodes: str) -> str:
    controller, node = _free_ports(2)
    return f"""\
ClusterName=hios-tests
SlurmctldHost={host}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
TmpFS={folder}/temporary
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPort={controller}
SlurmdPort={node}
# no cgroups in containers
ProctrackType=proctrack/pgid
TaskPlugin=task/none
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
# without cgroups, Slurm looks itself, each second, whether a job has more memory than it asked for; PSS counts shared
# pages once
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill,UsePss
MpiDefault=none
ReturnToService=2
KillWait=2
# jobs that have ended stay known while a test of them runs, however slow the machine is
MinJobAge=3600
# the node has what is said below, whatever this machine has
SlurmdParameters=config_overrides
# the scheduler looks at once
SchedulerParameters=batch_sched_delay=0,sched_interval=1
{nodes} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE OverTimeLimit=0 State=UP
"""


def _free_ports(count: int) -> list[int]:
    """Below those that the kernel gives away, so that no other program gets one before the daemons are up."""
    ports: list[int] = []
    for port in random.sample(range(20_000, 30_000), 1000):
        with contextlib.suppress(OSError), socket.socket() as tried:
            tried.bind(("127.0.0.1", port))
            ports.append(port)
        if len(ports) == count:
            return ports
    raise RuntimeError("no ports are free")


def _program(name: str) -> str:
    return shutil.which(name, path=_SEARCH) or name


def _run(*words: str) -> None:
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{words[0]} ended with {done.returncode}: {done.stderr.strip()}")


def _wait_until_idle(folder: Path, sinfo: Sequence[str]) -> None:
    deadline = time.monotonic() + _STARTING_S
    while time.monotonic() < deadline:
        answer = subprocess.run(sinfo, check=False, capture_output=True, text=True)
        if answer.stdout.split() == ["idle"]:
            return
        time.sleep(0.2)
    log = (folder / "slurmctld.log").read_text()
    raise RuntimeError(f"the node is not idle after {_STARTING_S:g} s: {answer.stdout}{answer.stderr}\n{log}")


def _end(pid_file: Path) -> None:
    """End a daemon; one that does not go is killed."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(pid_file.read_text())
        os.kill(pid, 15)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            os.kill(pid, 0)
            time.sleep(0.1)
        os.kill(pid, 9)


if __name__ == "__main__":
    with cluster():
        sys.exit(subprocess.run(sys.argv[1:], check=False).returncode)
