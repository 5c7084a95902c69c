"""The pipeline on a real Slurm, its profile as it is; a stand-in for `hios` does the steps."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.workflow import slurm_cluster

if TYPE_CHECKING:
    from conftest import Checkout

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(slurm_cluster.missing()), reason=slurm_cluster.missing() or "Slurm is there"),
]

#: The profile with what tests change: a node of two cores, and nothing to wait for on one file system.
PROFILE = (
    "--workflow-profile",
    "workflow/profiles/slurm",
    "--cores",
    "2",
    "--latency-wait",
    "5",
    "--slurm-init-seconds-before-status-checks",
    "1",
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


def test_pipeline(checkout: Checkout) -> None:
    """Each step is a job, schedules are one, the report is none; steps that measure have the node, and its GPUs."""
    checkout.config("config.yaml", models={"beta": None}, platform="cuda")
    before = _last()
    answer = checkout.snakemake(*PROFILE)
    assert answer.returncode == 0, answer.stdout
    jobs = _jobs(before)
    assert _rules(jobs) == {"export": 1, "extract": 1, "profile": 1, "schedule": 1, "execute": 1}, jobs
    assert {job["JobState"] for job in jobs} == {"COMPLETED"}
    alone = {name for job in jobs if job["OverSubscribe"] == "NO" for name in _rules([job])}
    assert alone == {"profile", "execute"}
    gpus = {name: job["TresPerJob"] for job in jobs if "TresPerJob" in job for name in _rules([job])}
    assert gpus == {"profile": "gres:gpu:2", "execute": "gres:gpu:2"}
    assert Counter(call["words"][0] for call in checkout.calls())["schedule"] == 3
    assert checkout.planned() == {}


def test_distributed_schedules(checkout: Checkout) -> None:
    """Schedules over ranks are a job of two tasks with a core and a GPU each and the node; srun starts both in it."""
    checkout.config(
        "config.yaml",
        models={"beta": None},
        platform="cuda",
        distribute={"algorithms": ["hios-lp"], "launcher": "srun"},
    )
    before = _last()
    answer = checkout.snakemake(*PROFILE, "--until", "distribute")
    assert answer.returncode == 0, answer.stdout
    (job,) = [job for job in _jobs(before) if _rules([job]) == {"distribute": 1}]
    assert (job["JobState"], job["NumTasks"], job["CPUs/Task"]) == ("COMPLETED", "2", "1"), job
    assert (job["OverSubscribe"], job["TresPerJob"]) == ("NO", "gres:gpu:2")
    ranks = [call["words"] for call in checkout.calls() if call["words"][0] == "distribute"]
    assert len(ranks) == 2
    assert ranks[0] == ranks[1]
    assert {"results/alpha/schedules/hios-lp-2.json", "mpi"} <= set(ranks[0])


def test_auto_is_refused(checkout: Checkout) -> None:
    """Devices cannot be found for a node that is not known yet; nothing that needs them is submitted."""
    checkout.config("config.yaml", models={"beta": None}, devices="auto")
    before = _last()
    answer = checkout.snakemake(*PROFILE)
    assert answer.returncode != 0
    assert "config.yaml: devices: found auto, for which the machine must be known" in answer.stdout
    assert set(_rules(_jobs(before))) <= {"export", "extract"}


def test_failure_and_resuming(checkout: Checkout) -> None:
    """A step that fails is tried again, ends the run with its log, and is all that the next run does anew."""
    checkout.config("config.yaml", models={"beta": None})
    before = _last()
    failed = checkout.snakemake(*PROFILE, "--retries", "1", STAND_IN_FAILS="profile")
    assert failed.returncode != 0
    assert "profile was told to fail" in failed.stdout
    assert _rules(_jobs(before)) == {"export": 1, "extract": 1, "profile": 2}
    before = _last()
    answer = checkout.snakemake(*PROFILE, "--until", "profile")
    assert answer.returncode == 0, answer.stdout
    assert _rules(_jobs(before)) == {"profile": 1}


def test_time_limit(checkout: Checkout) -> None:
    """A job that is killed for its time limit gets more at the next attempt."""
    checkout.config("config.yaml", models={"beta": None})
    before = _last()
    answer = checkout.snakemake(
        *PROFILE, "--set-resources", "profile:runtime=attempt", "--until", "profile", STAND_IN_SLEEPS="profile 75"
    )
    assert answer.returncode == 0, answer.stdout
    attempts = [(job["JobState"], job["TimeLimit"]) for job in _jobs(before) if "profile" in job["Comment"]]
    assert attempts == [("TIMEOUT", "00:01:00"), ("COMPLETED", "00:02:00")]


def test_cancelled_run(checkout: Checkout) -> None:
    """Ctrl-C takes the jobs from the cluster; the same command again does the rest."""
    checkout.config("config.yaml", models={"beta": None})
    before = _last()
    run = subprocess.Popen(
        [sys.executable, "-m", "snakemake", *PROFILE],
        cwd=checkout.path,
        env=checkout.environment(STAND_IN_SLEEPS="profile 600"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    deadline = time.monotonic() + 600
    while "profile" not in {name for job in _jobs(before) if job["JobState"] == "RUNNING" for name in _rules([job])}:
        assert time.monotonic() < deadline
        time.sleep(0.5)
    run.send_signal(signal.SIGINT)
    output, _ = run.communicate(timeout=300)
    assert run.returncode != 0
    assert "Traceback" not in output
    deadline = time.monotonic() + 120
    while {job["JobState"] for job in _jobs(before)} - {"COMPLETED", "CANCELLED"}:
        assert time.monotonic() < deadline, _jobs(before)
        time.sleep(0.5)
    before = _last()
    answer = checkout.snakemake(*PROFILE, "--until", "profile")
    assert answer.returncode == 0, answer.stdout
    assert _rules(_jobs(before)) == {"profile": 1}
