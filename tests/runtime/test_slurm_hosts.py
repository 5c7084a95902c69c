"""A Slurm of three hosts, which are namespaces of this machine: ranks on two of them, and a node that dies."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hios import Graph
from hios.files import artifacts
from tests.frontends.small_networks import Files
from tests.runtime.hosts import Hosts, missing
from tests.runtime.test_distributed import RANKS
from tests.scripts import ROOT
from tests.workers.processes import eventually
from tests.workflow import slurm_cluster

_REASON = missing() or slurm_cluster.missing(on_hosts=True)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_REASON), reason=_REASON)]


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    """Three hosts with a node of the cluster each."""
    # The folder goes after the hosts, whose daemons write into it.
    with tempfile.TemporaryDirectory(prefix=slurm_cluster.PREFIX) as folder, Hosts(3) as made:
        slurm_cluster.start_on(made, Path(folder))
        if reason := slurm_cluster.mpi_missing(made):
            pytest.skip(reason)
        yield made


def _on_two(hosts: Hosts, files: Files, schedule: Path, *program: object) -> subprocess.Popen[str]:
    """A job of two ranks on the last two hosts, which run a program."""
    words = ["env", f"PYTHONPATH={ROOT}", "OMP_NUM_THREADS=1", "OMPI_MCA_btl_tcp_if_include=eth0"]
    words += ["srun", f"--mpi={slurm_cluster.MPI}", "--ntasks=2", "--nodelist=host1,host2", sys.executable]
    options = ("--transport", "mpi", "--output", schedule.with_name("run.json"), "--runs", 2, "--warmup", 1)
    words += [*map(str, program), "distribute", *map(str, (files.graph, files.weights, schedule, *options))]
    return subprocess.Popen(hosts.command("host0", *words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _asked(hosts: Hosts, *words: str) -> list[str]:
    """The words that a command prints on the first host."""
    return subprocess.run(hosts.command("host0", *words), check=True, capture_output=True, text=True).stdout.split()


def test_ranks_on_two_nodes(hosts: Hosts, files: Files, alternating: Path) -> None:
    """Srun starts a rank on each of two of three nodes; outputs are right, and the run names nodes and job."""
    job = _on_two(hosts, files, alternating, "-m", "hios")
    printed, _ = job.communicate(timeout=300)
    assert job.returncode == 0, printed
    run = artifacts.read(alternating.with_name("run.json"), "run")
    platform = run["platform"]
    assert (platform["hosts"], platform["clocks"], platform["transport"]) == (["host1", "host2"], "compared", "mpi")
    assert platform["allocation"]["job"] in _asked(hosts, "squeue", "--noheader", "--states=all", "--format=%i")
    assert run["results"][0]["largest_difference"] == 0.0


def test_a_node_that_dies(hosts: Hosts, files: Files, graph: Graph, alternating: Path) -> None:
    """Its job ends on the other node too, Slurm says why, and the nodes that are left run the next job."""
    job = _on_two(hosts, files, alternating, RANKS, "spoilt", 1, graph.operators[graph.order[5]].id, "say")
    assert job.stdout is not None
    assert any("spoilt" in line for line in job.stdout)
    hosts.kill("host2")
    printed, _ = job.communicate(timeout=300)
    assert "host2" in printed, (job.returncode, printed)
    assert eventually(lambda: not any(str(alternating) in command for command in hosts.processes().values()))
    assert not alternating.with_name("run.json").exists()
    states = ("squeue", "--noheader", "--states=all", "--format=%T", "--sort=i")
    assert eventually(lambda: _asked(hosts, *states)[-1] == "NODE_FAIL")
    assert _asked(hosts, "sinfo", "--noheader", "--nodes=host2", "--format=%t") == ["down*"]
    assert sorted(_asked(hosts, "srun", "--nodes=2", "hostname")) == ["host0", "host1"]
