"""The pipeline on a real Slurm, its profile as it is; a stand-in for `hios` does the steps."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from hios.files import artifacts
from hios.formats.run import Run
from hios.verify import verify
from tests.workers.processes import eventually
from tests.workflow import slurm_cluster
from tests.workflow.conftest import Checkout
from tests.workflow.networks import OWN_NETWORK

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(slurm_cluster.missing()), reason=slurm_cluster.missing() or "Slurm is there"),
]

#: The profile with what tests change: a node of two cores, and nothing to wait for on one file system.
PROFILE = (
    *("--workflow-profile", "workflow/profiles/slurm", "--cores", "2"),
    *("--latency-wait", "5", "--slurm-init-seconds-before-status-checks", "1"),
)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[Path]:
    """One cluster for all tests here."""
    with slurm_cluster.cluster() as folder:
        yield folder


def _jobs(since: int = 0) -> list[dict[str, str]]:
    """The jobs that the cluster was given, by what Slurm says of each."""
    text = subprocess.run(["scontrol", "show", "job", "--oneliner"], check=True, capture_output=True, text=True).stdout
    jobs = [
        dict(pair.split("=", 1) for pair in line.split() if "=" in pair)
        for line in text.splitlines()
        if line.startswith("JobId=")
    ]
    return [job for job in jobs if int(job["JobId"]) > since]


def _last() -> int:
    return max((int(job["JobId"]) for job in _jobs()), default=0)


def _rules(jobs: list[dict[str, str]]) -> Counter[str]:
    """How many jobs each rule became; a group counts once."""
    comments = [job["Comment"] for job in jobs]
    return Counter(
        "schedule" if "schedules" in comment else comment.removeprefix("rule_").partition("_wildcards")[0]
        for comment in comments
    )


def _alone(jobs: list[dict[str, str]]) -> set[str]:
    """The rules whose jobs have their node for themselves."""
    return {name for job in jobs if job["OverSubscribe"] == "NO" for name in _rules([job])}


def test_gpus(checkout: Checkout) -> None:
    """Steps that measure have the node, and its GPUs; schedules are one job without them.

    Schedules over ranks are a job of two tasks with a core and a GPU each; srun starts both in it.
    """
    distribute = {"algorithms": ["hios-lp"], "launcher": "srun"}
    checkout.config("config.yaml", models={"beta": None}, platform="cuda", distribute=distribute)
    checkout.succeed("--until", "extract")
    before, measuring = _last(), {"profile", "execute", "distribute"}
    targets = [f"results/alpha/{name}.json" for name in ("run", "distributed/run")]
    checkout.succeed(*PROFILE, "--allowed-rules", "schedule", *measuring, "--", *targets)
    jobs = _jobs(before)
    assert _rules(jobs) == dict.fromkeys({"schedule"} | measuring, 1), jobs
    assert {job["JobState"] for job in jobs} == {"COMPLETED"}
    assert _alone(jobs) == measuring
    gpus = {name: job["TresPerJob"] for job in jobs if "TresPerJob" in job for name in _rules([job])}
    assert gpus == dict.fromkeys(measuring, "gres:gpu:2")
    (job,) = [job for job in jobs if _rules([job]) == {"distribute": 1}]
    assert (job["NumTasks"], job["CPUs/Task"]) == ("2", "1"), job
    ranks = checkout.called("distribute")
    assert len(ranks) == 2
    assert ranks[0] == ranks[1]
    assert {"results/alpha/schedules/hios-lp-2.json", "mpi"} <= set(ranks[0])


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two devices need two cores")
def test_all_for_real(real_checkout: Checkout) -> None:
    """From a model to a report that is verified; srun starts a schedule over two ranks as one MPI program.

    Each step is a job, schedules are one, the report is none; steps that measure have the node.
    """
    checkout, missing = real_checkout, slurm_cluster.mpi_missing()
    checkout.add_own_network()
    checkout.config(
        "config.yaml",
        models={"alpha": None, "beta": None, **OWN_NETWORK},
        profile={"repeats": 2, "budget": 0, "cache": False, "stages_of": ["greedy"]},
        execute={"runs": 3, "warmup": 1},
        distribute={"algorithms": ["hios-lp"], **({} if missing else {"launcher": "srun", "mpi": slurm_cluster.MPI})},
    )
    before = _last()
    checkout.succeed(*PROFILE)
    measuring = {"profile", "execute", "distribute"}
    assert _rules(_jobs(before)) == dict.fromkeys({"export", "extract", "schedule"} | measuring, 1), _jobs(before)
    jobs = {name: job for job in _jobs(before) for name in _rules([job])}
    assert {job["JobState"] for job in jobs.values()} == {"COMPLETED"}
    assert _alone(_jobs(before)) == measuring
    results = checkout.path / "results"
    assert len(list((results / "net" / "schedules").iterdir())) == 3
    assert checkout.planned() == {}
    assert (results / "report.html").stat().st_size > 0
    assert [problem for file in verify(results) for problem in file.problems] == []
    run = artifacts.load(results / "net" / "run.json", Run)
    assert run.platform.allocation is not None
    assert run.platform.allocation.job == jobs["execute"]["JobId"]
    run = artifacts.load(results / "net" / "distributed" / "run.json", Run)
    assert [result.label for result in run.results] == ["hios-lp-2"]
    assert (run.platform.devices, run.checked_against) == (2, "eager")
    assert run.platform.allocation is not None
    assert run.platform.allocation.job == jobs["distribute"]["JobId"]
    if missing:
        pytest.skip(f"ranks of torchrun in place of srun: {missing}")
    assert (jobs["distribute"]["NumTasks"], run.platform.transport) == ("2", "mpi")


def test_auto_is_refused(checkout: Checkout) -> None:
    """Devices cannot be found for a node that is not known yet: one line, before anything is submitted."""
    checkout.config("config.yaml", models={"beta": None}, devices="auto")
    before = _last()
    answer = checkout.snakemake(*PROFILE)
    assert answer.returncode == 1, answer.stdout
    assert "Error: config.yaml: devices: found auto, for which the machine must be known" in answer.stdout
    assert "Traceback" not in answer.stdout
    assert "Snakefile" not in answer.stdout.partition("Error:")[2], answer.stdout
    assert _jobs(before) == []
    # It left no lock: the local executor goes on in the same folder.
    checkout.succeed("-n", "--cores", "2")


#: Snakemake whose plugin asks Slurm twice a second, as in `tests.workflow.snakemake_server`.
#: It is interrupted between two questions once the file INTERRUPT_AT is there: while the plugin asks, it has no list
#: of its jobs, so Ctrl-C would leave them (snakemake-interface-executor-plugins 9.4; docs/cluster.md).
_SNAKEMAKE = """
import asyncio, os, runpy, signal
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

async def sleep(self):
    await asyncio.sleep(0.5)
    if self.active_jobs and os.path.exists(os.environ.get("INTERRUPT_AT", "")):
        os.kill(os.getpid(), signal.SIGINT)
        while self.wait:
            await asyncio.sleep(0.1)

RemoteExecutor.sleep = sleep
runpy.run_module("snakemake", run_name="__main__", alter_sys=True)
"""


#: Seconds for Slurm and Snakemake, however busy the machine is.
_LONG_S = 900.0


@contextlib.contextmanager
def _started(checkout: Checkout, *more: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A run of the pipeline that goes on meanwhile, and is killed if it has not ended by then."""
    with subprocess.Popen(
        [sys.executable, "-c", _SNAKEMAKE, *PROFILE, *more],
        cwd=checkout.path,
        env=checkout.environment(**environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as run:
        try:
            yield run
        finally:
            run.kill()


def test_limits(checkout: Checkout, cluster: Path, tmp_path: Path) -> None:
    """A job that Slurm kills, for its time or for more memory than it had asked for, gets more at the next attempt."""
    checkout.config("config.yaml", models={"beta": None})
    before, go = _last(), tmp_path / "go"
    limits = ("export:mem_mb=600*attempt", "export:runtime=attempt//3+1")
    waits = {"STAND_IN_WAITS": f"export {go}", "STAND_IN_TAKES": "export 700"}
    with _started(checkout, "--until", "export", "--set-resources", *limits, **waits) as run:
        # Slurm looks at limits of time every half minute.
        ended = lambda: "TIMEOUT" in {job["JobState"] for job in _jobs(before)}  # noqa: E731
        assert eventually(lambda: ended() or run.poll() is not None, _LONG_S, 0.5)
        go.touch()  # for the third attempt; the others are gone
        output, _ = run.communicate(timeout=_LONG_S)
    assert run.returncode == 0, output
    jobs = _jobs(before)
    # Without cgroups Slurm does not say OUT_OF_MEMORY of the job whose step it killed.
    assert [(job["JobState"], job["MinMemoryNode"], job["TimeLimit"]) for job in jobs] == [
        ("FAILED", "600M", "00:01:00"),
        ("TIMEOUT", "1200M", "00:01:00"),
        ("COMPLETED", "1800M", "00:02:00"),
    ]
    (log,) = cluster.glob("slurmd-*.log")
    assert f"StepId={jobs[0]['JobId']}.0 exceeded memory limit" in log.read_text()


def test_resuming(checkout: Checkout) -> None:
    """Ctrl-C takes the jobs from the cluster, and a step that fails ends the run with its log.

    The same command again does the rest: only the step that was cancelled, or failed. A step requests a fixed amount of
    memory, and more in proportion to what it reads.
    """
    checkout.config("config.yaml", models={"beta": None}, platform="cuda")
    before = _last()
    waits, at_work = f"extract {checkout.path / 'never'}", checkout.path / "never.awaited"
    with _started(checkout, "--until", "extract", STAND_IN_WAITS=waits, INTERRUPT_AT=str(at_work)) as run:
        output, _ = run.communicate(timeout=_LONG_S)
    assert run.returncode != 0
    assert "Traceback" not in output
    ended = {"COMPLETED", "CANCELLED"}
    assert eventually(lambda: {job["JobState"] for job in _jobs(before)} <= ended, 120, 0.5), (output, _jobs(before))
    assert "CANCELLED" in {job["JobState"] for job in _jobs(before)}
    assert not any("TresPerJob" in job for job in _jobs(before))  # they need no GPUs
    os.truncate(checkout.path / "results" / "alpha" / "program.pt2", 500 << 20)  # takes no room on the disk
    before = _last()
    failed = checkout.snakemake(*PROFILE, "--retries", "0", STAND_IN_FAILS="extract")
    assert failed.returncode != 0
    assert "extract was told to fail" in failed.stdout
    assert _rules(_jobs(before)) == {"extract": 1}
    assert [job["MinMemoryNode"] for job in _jobs(before)] == ["7000M"]
    before = _last()
    checkout.succeed(*PROFILE, "--until", "extract")
    assert _rules(_jobs(before)) == {"extract": 1}
