"""Hosts on one machine: each with a network, an address, a host name, a boot id and a clock of its own.

Needs root and iproute2. Nothing has a name outside the namespaces that are made here, and the system removes hosts,
networks and processes when the process that made them ends, however that ends. ``python -m tests.runtime.hosts 3
COMMAND...`` makes three hosts, ``host0`` to ``host2``, and runs a command on the first.
"""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Self

_ROOT = Path(__file__).resolve().parents[2]
_RELAY = Path(__file__).with_name("relay.py")
CLOCKS_APART_S = 1000
#: Makes the hosts, in a process and mount namespace of their own, which end when the standard input is closed.
_MAKE = """
mount -t tmpfs tmpfs /run
mkdir /run/netns
ip netns add switch
ip -n switch link add bridge type bridge
ip -n switch link set bridge up
for number in $(seq 0 $(($1 - 1))); do
    host=host$number
    ip netns add $host
    ip -n $host link set lo up
    if test "$2" = relay; then
        ip -n $host tuntap add dev eth0 mode tap
        ip -n $host link set eth0 mtu 9000
    else
        ip -n switch link add $host type veth peer name eth0 netns $host
        ip -n switch link set $host master bridge up
    fi
    ip -n $host address add 10.77.0.$((number + 1))/24 dev eth0
    ip -n $host link set eth0 up
done
exec "$3" -c "$4"
"""

#: Waits for the end; processes that it adopts vanish when they end, as it is the first one there.
_WAIT = """
import signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("made", flush=True)
sys.stdin.read()
"""

#: Runs a command on a host: ``on HOST COMMAND...``, by a shell as with ssh, also from another host.
_ON = """#!/bin/sh
host=$1
shift
exec ip netns exec $host unshare --uts --mount --time --monotonic $(cat FOLDER/clock-$host) sh -ec '
hostname "$0"
mount --bind FOLDER/hosts /etc/hosts
mount --bind FOLDER/boot-$0 /proc/sys/kernel/random/boot_id
export TMPDIR=FOLDER/tmp-$0
exec taskset --cpu-list $(cat FOLDER/cores-$0) sh -c "$*"' $host "$@"
"""


@functools.cache
def missing(delay_s: float | None = None) -> str:
    """What is missing here for such hosts, or for such a delay between them; empty if nothing is."""
    if os.geteuid() != 0:
        return "hosts need root"
    if lacking := [name for name in ("ip", "unshare", "nsenter", "taskset") if shutil.which(name) is None]:
        return f"hosts need {', '.join(lacking)}"
    try:
        with Hosts(1, delay_s=delay_s) as made:
            done = subprocess.run(made.command("host0", "true"), check=False, capture_output=True, text=True)
    except OSError as error:
        return f"hosts need namespaces, veth and bridges, or TAP devices for delays: {error}"
    return f"hosts need namespaces: {done.stderr.strip()}" if done.returncode else ""


class Hosts:
    """Hosts ``host0``, ``host1``, ... with addresses 10.77.0.1, 10.77.0.2, ... on ``eth0``, until the context ends.

    Args:
        number: how many.
        one_boot: whether they have one boot id and one clock, as containers of one machine have; otherwise the
            monotonic clock of each is `CLOCKS_APART_S` ahead of the one before.
        delay_s: seconds that a packet takes to another host, each of which then sends at ``bits_per_s``; if None, what
            the kernel takes.
    """

    def __init__(
        self, number: int, *, one_boot: bool = False, delay_s: float | None = None, bits_per_s: float = 1e9
    ) -> None:
        self.names = [f"host{host}" for host in range(number)]
        self.one_boot, self.delay_s, self.bits_per_s = one_boot, delay_s, bits_per_s

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="hios-hosts-"))
        names = [f"10.77.0.{host + 1} {name}\n" for host, name in enumerate(self.names)]
        (self._folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(names), encoding="utf-8")
        cores, one = sorted(os.sched_getaffinity(0)), uuid.uuid4()
        for host, name in enumerate(self.names):
            boot = one if self.one_boot else uuid.uuid4()
            (self._folder / f"boot-{name}").write_text(f"{boot}\n", encoding="utf-8")
            ahead = 0 if self.one_boot else host * CLOCKS_APART_S
            (self._folder / f"clock-{name}").write_text(f"{ahead}\n", encoding="utf-8")
            (self._folder / f"tmp-{name}").mkdir()
            (self._folder / f"cores-{name}").write_text(f"{cores[host % len(cores)]}\n", encoding="utf-8")
        self.agent = self._folder / "on"
        self.agent.write_text(_ON.replace("FOLDER", str(self._folder)), encoding="utf-8")
        self.agent.chmod(0o755)
        network = "bridge" if self.delay_s is None else "relay"
        self._relay: subprocess.Popen[str] | None = None
        self._first = subprocess.Popen(
            [
                "unshare",
                "--pid",
                "--mount",
                "--fork",
                "--mount-proc",
                "sh",
                "-ec",
                _MAKE,
                "sh",
                str(len(self.names)),
                network,
                sys.executable,
                _WAIT,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._first.stdout is not None
        if (line := self._first.stdout.readline().strip()) != "made":
            self.close()
            raise OSError(f"no hosts: {line}")
        self._init = _child(self._first)
        self._own = {self._init}
        self._namespace = Path(f"/proc/{self._init}/ns/pid").readlink()
        if self.delay_s is not None:
            words = self._inside(sys.executable, _RELAY, self.delay_s, self.bits_per_s, *self.names)
            self._relay = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            assert self._relay.stdout is not None
            if (line := self._relay.stdout.readline().strip()) != "forwarding":
                self.close()
                raise OSError(f"no relay: {line}")
            self._own.add(_child(self._relay))
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all their processes, and remove them."""
        self._first.communicate()
        if self._relay is not None:
            self._relay.communicate()
        shutil.rmtree(self._folder)

    def command(self, host: str, *words: object) -> list[str]:
        """A command that runs another one on a host."""
        return self._inside(self.agent, host, shlex.join(map(str, words)))

    def launch(self, transport: str, *words: object, options: Sequence[str] = ()) -> list[subprocess.Popen[str]]:
        """Start a Python program with a rank on every host: torchrun on each, or mpirun with options on the first."""
        variables = ["env", f"PYTHONPATH={_ROOT}", "OMP_NUM_THREADS=1", "GLOO_SOCKET_IFNAME=eth0"]
        size = len(self.names)
        if transport == "gloo":
            run = ["-m", "torch.distributed.run", "--nnodes", size, "--nproc-per-node", 1, "--master-addr", "host0"]
            starts = [
                (name, [sys.executable, *run, "--master-port", 29500, "--node-rank", number, *words])
                for number, name in enumerate(self.names)
            ]
        else:
            # Bound by mpirun, the first rank of every host would be on the first core of the machine.
            given = ["--allow-run-as-root", "--bind-to", "none", "-x", "PYTHONPATH", "-n", size]
            given += ["--prtemca", "plm_ssh_agent", self.agent]
            given += ["--host", ",".join(f"{name}:1" for name in self.names), "--mca", "btl_tcp_if_include", "eth0"]
            starts = [("host0", ["mpirun", *options, *given, sys.executable, *words])]
        return [
            subprocess.Popen(
                self.command(name, *variables, *command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            for name, command in starts
        ]

    def cut(self, host: str) -> None:
        """Cut the link of a host at the switch, which the host itself does not notice."""
        subprocess.run(self._inside("ip", "-n", "switch", "link", "set", host, "nomaster"), check=True)

    def kill(self, host: str) -> None:
        """Cut the link of a host and end all its processes, as if it had lost power."""
        self.cut(host)
        subprocess.run(self._inside("sh", "-ec", f"kill -9 $(ip netns pids {host})"), check=True)

    def mount(self, source: Path, target: Path) -> None:
        """Have all hosts see a folder in the place of another one."""
        subprocess.run(self._inside("mount", "--rbind", source, target), check=True)

    def processes(self) -> dict[int, str]:
        """Command lines of all processes on the hosts, by the process IDs that this process sees."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                state = (path / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
                ours = (path / "ns/pid").readlink() == self._namespace
                if ours and state != "Z" and int(path.name) not in self._own:
                    words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
                    found[int(path.name)] = shlex.join(words[:-1])
            except (FileNotFoundError, PermissionError, ProcessLookupError):
                continue
        return found

    def _inside(self, *words: object) -> list[str]:
        return ["nsenter", "--target", str(self._init), "--mount", "--pid", *map(str, words)]


def _child(process: subprocess.Popen[str]) -> int:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return int(children.read_text(encoding="ascii"))


if __name__ == "__main__":
    if reason := missing():
        sys.exit(reason)
    with Hosts(int(sys.argv[1])) as made:
        sys.exit(subprocess.run(made.command("host0", *sys.argv[2:]), check=False).returncode)
