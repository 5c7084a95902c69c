"""Where this process runs: its node, its cores and, on a cluster, its batch job."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from typing import Literal

from hios.files.base import Allocation
from hios.machine.topology import usable_cpus

#: Batch systems, each with its variables for the number of the job, and for the partition or queue.
_SYSTEMS: dict[Literal["slurm", "pbs", "lsf"], tuple[str, str]] = {
    "slurm": ("SLURM_JOB_ID", "SLURM_JOB_PARTITION"),
    "pbs": ("PBS_JOBID", "PBS_QUEUE"),
    "lsf": ("LSB_JOBID", "LSB_QUEUE"),
}


def allocation(environment: Mapping[str, str] = os.environ) -> Allocation:
    """The node and cores of this process, and its batch job by the variables of its environment."""
    system = next((name for name, (number, _) in _SYSTEMS.items() if environment.get(number)), None)
    number, partition = ("", "") if system is None else _SYSTEMS[system]
    return Allocation(
        node=platform.node() or "unknown",
        cores=tuple(sorted(usable_cpus())),
        system=system,
        job=environment.get(number) or None,
        partition=environment.get(partition) or None,
        gpus=environment.get("CUDA_VISIBLE_DEVICES") or None,
    )
