"""Ranks on several hosts, which are namespaces of this machine: what runs, and what is said when one is lost."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hios import Graph
from hios.core.schedule import StagedPlan
from hios.files import artifacts
from tests.frontends.small_networks import Files
from tests.runtime.hosts import Hosts, missing
from tests.runtime.schedules import write_schedules
from tests.runtime.test_distributed import RANKS, ROOT, _over
from tests.workers.processes import eventually

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
#: Seconds until a run is given up: for everything but what is meant to hang, and for that.
TIMEOUT_S, HANGING_S = 300, 30


@pytest.fixture
def hosts(request: pytest.FixtureRequest) -> Iterator[Hosts]:
    """The hosts that the test asks for."""
    with request.param as made:
        yield made
    assert not made.processes()


@pytest.fixture
def alternating(graph: Graph, tmp_path: Path) -> Path:
    """Operators in turn on two ranks."""
    stages = tuple(((operator,),) for operator in graph.order)
    return write_schedules(tmp_path, graph, {"random": StagedPlan((stages[::2], stages[1::2]))})[0]


def _start(
    transport: str, hosts: Hosts, files: Files, schedule: Path, spoilt: Any = None
) -> list[subprocess.Popen[str]]:
    """The launchers: torchrun on every host, or one mpirun on the first."""
    of_hios = [RANKS, *spoilt] if spoilt else ["-m", "hios"]
    distribute = [*of_hios, "distribute", files.graph, files.weights, schedule, "--transport", transport]
    timeout_s = HANGING_S if spoilt and spoilt[-1] != "kill" else TIMEOUT_S
    distribute += ["--output", schedule.with_name("run.json"), "--runs", 2, "--warmup", 1, "--timeout", timeout_s]
    variables = ["env", f"PYTHONPATH={ROOT}", "OMP_NUM_THREADS=1", "GLOO_SOCKET_IFNAME=eth0"]
    size = len(hosts.names)
    if transport == "gloo":
        run = ["-m", "torch.distributed.run", "--nnodes", size, "--nproc-per-node", 1, "--master-addr", "host0"]
        starts = [
            (name, [sys.executable, *run, "--master-port", 29500, "--node-rank", number, *distribute])
            for number, name in enumerate(hosts.names)
        ]
    else:
        options = ["--allow-run-as-root", "--prtemca", "plm_ssh_agent", hosts.agent, "-x", "PYTHONPATH", "-n", size]
        options += ["--host", ",".join(f"{name}:1" for name in hosts.names), "--mca", "btl_tcp_if_include", "eth0"]
        starts = [("host0", ["mpirun", *options, sys.executable, *distribute])]
    return [
        subprocess.Popen(
            hosts.command(name, *variables, *words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for name, words in starts
    ]


def _ranks(hosts: Hosts, schedule: Path, rank: int) -> list[int]:
    """Processes of a rank."""
    found = []
    for pid, command in hosts.processes().items():
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if str(schedule) in command and {b"RANK=%d" % rank, b"OMPI_COMM_WORLD_RANK=%d" % rank} & set(words):
            found.append(pid)
    return found


@pytest.mark.parametrize(
    ("transport", "hosts"),
    [
        _over("gloo", Hosts(2)),
        _over("mpi", Hosts(2), marks=[pytest.mark.slow]),
        _over("gloo", Hosts(3), marks=[pytest.mark.slow]),
        _over("gloo", Hosts(2, one_boot=True), marks=[pytest.mark.slow]),
        _over("mpi", Hosts(2, one_boot=True), marks=[pytest.mark.slow]),
    ],
    indirect=["hosts"],
)
def test_hosts_run_a_schedule(transport: str, hosts: Hosts, files: Files, alternating: Path) -> None:
    """Outputs are right, the clocks of several kernels are compared, and the run names the hosts."""
    launchers = _start(transport, hosts, files, alternating)
    printed = [launcher.communicate(timeout=300)[0] for launcher in launchers]
    assert [launcher.returncode for launcher in launchers] == [0] * len(launchers), printed
    run = artifacts.read(alternating.with_name("run.json"), "run")
    clocks = "shared" if hosts.one_boot else "compared"
    assert (run["platform"]["hosts"], run["platform"]["clocks"]) == (hosts.names, clocks)
    assert run["results"][0]["largest_difference"] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(("transport", "how"), [_over("gloo", "kill"), _over("gloo", "stop"), _over("gloo", "cut")])
@pytest.mark.parametrize("hosts", [Hosts(2)], indirect=True)
def test_a_lost_rank_is_named(
    transport: str, how: str, hosts: Hosts, files: Files, graph: Graph, alternating: Path
) -> None:
    """A rank that is killed, stopped or cut off is named in the promised time, and nothing is left.

    The operator of the rank that is cut off hangs.
    """
    operator = graph.operators[graph.order[5]].id
    launchers = _start(transport, hosts, files, alternating, (1, operator, "say" if how == "cut" else how))
    if how == "cut":
        assert launchers[1].stdout is not None
        assert any("spoilt" in line for line in launchers[1].stdout)
        hosts.cut("host1")
    printed, _ = launchers[0].communicate(timeout=120)
    (line,) = [line for line in printed.splitlines() if line.startswith("Error")]
    lost = r"died; last seen: random" if how == "kill" else r"has been silent for \d+ s; last seen: random"
    assert re.match(f"Error: rank 1 on host1 {lost}", line)
    if how == "stop":  # it can end only when it goes on
        for pid in _ranks(hosts, alternating, 1):
            os.kill(pid, signal.SIGCONT)
    for launcher in launchers[1:]:
        launcher.communicate(timeout=120)
    assert all(launcher.returncode for launcher in launchers)
    assert eventually(lambda: not hosts.processes())
    assert not alternating.with_name("run.json").exists()
