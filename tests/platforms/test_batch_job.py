"""What a process was given, from the variables of batch systems."""

from __future__ import annotations

import os
import platform

import pytest

from hios.platforms.batch_job import allocation


def test_outside_of_jobs() -> None:
    """Node and cores alone."""
    job = allocation({})
    assert job.node == platform.node()
    assert job.cores == tuple(sorted(os.sched_getaffinity(0)))
    assert (job.system, job.job, job.partition, job.gpus) == (None, None, None, None)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (
            {"SLURM_JOB_ID": "17", "SLURM_JOB_PARTITION": "long", "CUDA_VISIBLE_DEVICES": "0,2"},
            ("slurm", "17", "long", "0,2"),
        ),
        ({"SLURM_JOB_ID": "17", "SLURM_JOB_PARTITION": ""}, ("slurm", "17", None, None)),
        ({"PBS_JOBID": "17.head", "PBS_QUEUE": "batch"}, ("pbs", "17.head", "batch", None)),
        ({"LSB_JOBID": "17", "LSB_QUEUE": "normal"}, ("lsf", "17", "normal", None)),
    ],
)
def test_batch_systems(variables: dict[str, str], expected: tuple[str | None, ...]) -> None:
    """Job and partition are those of the batch system."""
    job = allocation(variables)
    assert (job.system, job.job, job.partition, job.gpus) == expected
