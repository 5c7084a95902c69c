"""Ranks on several hosts, which are namespaces of this machine: what runs, and what is said when one is lost."""

from __future__ import annotations

import contextlib
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
from hios.files import artifacts
from tests.frontends.small_networks import Files
from tests.runtime.hosts import Hosts, missing
from tests.runtime.test_distributed import RANKS, SHORT_TIMEOUT_S, TIMEOUT_S, _over
from tests.workers.processes import eventually

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
#: Seconds that packets take over slow links, and their bits a second.
DELAY_S, BITS_PER_S = 2e-3, 1e9
needs_delay = pytest.mark.skipif(bool(missing(DELAY_S)), reason=missing(DELAY_S))

#: Receives some bytes again and again, and answers with one.
_ANSWERING = """
import socket, sys
with socket.create_server(("", 5000)) as server:
    print("there", flush=True)
    line, _ = server.accept()
for size in map(int, sys.argv[1:]):
    line.recv(size, socket.MSG_WAITALL)
    line.sendall(b"!")
"""
#: Says how long the answers take.
_ASKING = """
import socket, sys, time
line = socket.create_connection(("host1", 5000))
for size in map(int, sys.argv[1:]):
    start = time.perf_counter()
    line.sendall(bytes(size))
    line.recv(1)
    print(time.perf_counter() - start)
"""


@pytest.fixture
def hosts(request: pytest.FixtureRequest) -> Iterator[Hosts]:
    """The hosts that the test asks for."""
    with request.param as made:
        yield made
    assert not made.processes()


def _start(
    transport: str, hosts: Hosts, files: Files, schedule: Path, spoilt: Any = None
) -> list[subprocess.Popen[str]]:
    """The launchers: torchrun on every host, or one mpirun on the first."""
    of_hios = [RANKS, "spoilt", *spoilt] if spoilt else ["-m", "hios"]
    distribute = [*of_hios, "distribute", files.graph, files.weights, schedule, "--transport", transport]
    timeout_s = SHORT_TIMEOUT_S if spoilt and spoilt[-1] != "kill" else TIMEOUT_S
    distribute += ["--output", schedule.with_name("run.json"), "--runs", 2, "--warmup", 1, "--timeout", timeout_s]
    # By default, mpirun may end all ranks as soon as one is killed, before the line of hios is printed.
    options = ("--with-ft", "ulfm") if transport == "mpi" and spoilt and spoilt[-1] == "kill" else ()
    return hosts.launch(transport, *distribute, options=options)


def _ranks(hosts: Hosts, schedule: Path, rank: int) -> list[int]:
    """Processes of a rank."""
    found = []
    for pid, command in hosts.processes().items():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if str(schedule) in command and {b"RANK=%d" % rank, b"OMPI_COMM_WORLD_RANK=%d" % rank} & set(words):
                found.append(pid)
    return found


@needs_delay
@pytest.mark.parametrize("hosts", [Hosts(2, delay_s=DELAY_S, bits_per_s=BITS_PER_S)], indirect=True)
def test_a_slow_link_takes_its_time(hosts: Hosts) -> None:
    """No packet is quicker than the delay and the rate of the link, whatever else the machine does."""
    sizes = (1, 1, 2_500_000)
    answering = subprocess.Popen(
        hosts.command("host1", sys.executable, "-c", _ANSWERING, *sizes), stdout=subprocess.PIPE
    )
    assert answering.stdout is not None
    assert answering.stdout.readline() == b"there\n"
    asked = subprocess.run(
        hosts.command("host0", sys.executable, "-c", _ASKING, *sizes), check=True, capture_output=True, text=True
    )
    answering.communicate(timeout=60)
    for size, took in zip(sizes, map(float, asked.stdout.split()), strict=True):
        assert took >= 2 * DELAY_S + 8 * size / BITS_PER_S


@pytest.mark.parametrize(
    ("transport", "hosts"),
    [
        _over("gloo", Hosts(2)),
        _over("mpi", Hosts(2, delay_s=DELAY_S), marks=[pytest.mark.slow, needs_delay]),
        _over("gloo", Hosts(3, delay_s=DELAY_S), marks=[pytest.mark.slow, needs_delay]),
        _over("gloo", Hosts(2, one_boot=True), marks=[pytest.mark.slow]),
    ],
    indirect=["hosts"],
)
def test_hosts_run_a_schedule(transport: str, hosts: Hosts, files: Files, graph: Graph, alternating: Path) -> None:
    """Outputs are right, clocks that are 1,000 s apart are compared, and the run names the hosts."""
    launchers = _start(transport, hosts, files, alternating)
    printed = [launcher.communicate(timeout=300)[0] for launcher in launchers]
    assert [launcher.returncode for launcher in launchers] == [0] * len(launchers), printed
    run = artifacts.read(alternating.with_name("run.json"), "run")
    clocks = "shared" if hosts.one_boot else "compared"
    assert (run["platform"]["hosts"], run["platform"]["clocks"]) == (hosts.names, clocks)
    uncertainty_ms = run["platform"].get("clock_uncertainty_ms", 0.0)
    assert uncertainty_ms >= 1e3 * (hosts.delay_s or 0.0)
    (result,) = run["results"]
    assert result["largest_difference"] == 0.0
    at = {row["operator"]: row for row in result["measured"]}
    for edge in graph.edges:
        assert at[edge.source]["finish_ms"] <= at[edge.target]["start_ms"] + uncertainty_ms
    assert max(row["finish_ms"] for row in at.values()) < 1e3 * TIMEOUT_S


@pytest.mark.slow
@pytest.mark.parametrize(
    ("transport", "how"),
    [_over(transport, how) for transport in ("gloo", "mpi") for how in ("kill", "stop", "cut")],
)
@pytest.mark.parametrize("hosts", [Hosts(2)], indirect=True)
def test_a_lost_rank_is_named(
    transport: str, how: str, hosts: Hosts, files: Files, graph: Graph, alternating: Path
) -> None:
    """A rank that is killed, stopped or cut off is named, all launchers end with an error, and nothing is left.

    The operator of the rank that is cut off hangs.
    """
    operator = graph.operators[graph.order[5]].id
    launchers = _start(transport, hosts, files, alternating, (1, operator, "say" if how == "cut" else how))
    if how == "cut":
        assert launchers[-1].stdout is not None
        assert any("spoilt" in line for line in launchers[-1].stdout)
        hosts.cut("host1")
    printed, _ = launchers[0].communicate(timeout=300)
    (line,) = [line for line in printed.splitlines() if line.startswith("Error")]
    lost = r"died; last seen: random" if how == "kill" else r"has been silent for \d+ s; last seen: random"
    assert re.match(f"Error: rank 1 on host1 {lost}", line)
    if how == "stop":  # it can end only when it goes on
        for pid in _ranks(hosts, alternating, 1):
            os.kill(pid, signal.SIGCONT)
    for launcher in launchers[1:]:
        launcher.communicate(timeout=300)
    assert all(launcher.returncode for launcher in launchers)
    assert eventually(lambda: not hosts.processes())
    assert not alternating.with_name("run.json").exists()
