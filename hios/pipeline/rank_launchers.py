"""Schedules over the ranks of a launcher, as the pipeline runs them (``distribute`` in config.yaml)."""

from __future__ import annotations

import shlex

from hios.errors import HiosError
from hios.formats.config import Config
from hios.pipeline import config
from hios.schedulers import find
from hios.schedulers.registry import AUTO

#: Starts all its ranks on one node; the others start theirs by MPI, on one node or several.
TORCHRUN = "torchrun"


def checked(settings: Config, source: str) -> Config:
    """The settings, if the schedules that they distribute are among those of the pipeline, else a `HiosError`."""
    distributing, field = settings.distribute, f"{source}: distribute"
    if distributing.mpi is not None and distributing.launcher != "srun":
        raise HiosError(f"{field}.mpi: found with launcher {distributing.launcher}; allowed: with launcher srun")
    if not distributing.algorithms:
        return settings
    if config.predicts(settings):
        raise HiosError(
            f"{field}.algorithms: found with platform {settings.platform}, which runs nothing; allowed: with platform "
            "cpu or cuda"
        )
    if config.divides(settings):
        raise HiosError(f"{field}.algorithms: found with devices: auto; allowed: with numbers of devices")
    numbers = [number for number in config.numbers_of_devices(settings) if number > 1]
    if ranks(settings) not in numbers:
        allowed = ", ".join(map(str, numbers)) or "none yet: add a number above 1 to `devices`"
        raise HiosError(
            f"{field}.devices: found {ranks(settings)}; allowed: a number above 1 that `devices` lists ({allowed})"
        )
    several = [
        label
        for label, entry in settings.algorithms.items()
        if entry["algorithm"] != AUTO and find(str(entry["algorithm"])).several_devices
    ]
    for place, label in enumerate(distributing.algorithms):
        if label not in several:
            allowed = ", ".join(several) or "none yet: add one for several devices to `algorithms`"
            raise HiosError(
                f"{field}.algorithms[{place}]: found {label}; allowed: labels of algorithms for several devices "
                f"({allowed})"
            )
    return settings


def ranks(settings: Config) -> int:
    """How many ranks there are, each of them a device."""
    return settings.distribute.devices or max(config.numbers_of_devices(settings), default=1)


def names(settings: Config) -> list[str]:
    """The schedules that are distributed, by the stems of their files."""
    return [f"{label}-{ranks(settings)}" for label in settings.distribute.algorithms]


def transport(settings: Config) -> str:
    """The transport of values, which follows from launcher and platform."""
    if settings.distribute.launcher != TORCHRUN:
        return "mpi"
    return "nccl" if settings.platform == "cuda" else "gloo"


def launch(settings: Config) -> str:
    """The beginning of the command, up to ``python -m hios`` on every rank."""
    count, cores, mpi = str(ranks(settings)), settings.cores_per_device or 1, settings.distribute.mpi
    words = {
        TORCHRUN: ["torchrun", "--standalone", "--nproc-per-node", count, "-m", "hios"],
        # srun takes neither number from the allocation within a job of Snakemake, which hides Slurm's variables
        "srun": [
            "srun",
            *([] if mpi is None else [f"--mpi={mpi}"]),
            f"--ntasks={count}",
            f"--cpus-per-task={cores}",
            "--cpu-bind=cores",
            *("python", "-m", "hios"),
        ],
        # hios pins the ranks, as with torchrun: mpirun would give each a single core
        "mpirun": ["mpirun", "-n", count, "--bind-to", "none", "python", "-m", "hios"],
    }[settings.distribute.launcher]
    return shlex.join(words)


def resources(settings: Config) -> dict[str, int | str]:
    """Tasks to request from Slurm, as resources of Snakemake's plugin; empty if one task starts all ranks."""
    if settings.distribute.launcher == TORCHRUN:
        return {}
    # 0: without it, the plugin would request the total number of tasks for every GPU
    return {"mpi": settings.distribute.launcher, "tasks": ranks(settings), "tasks_per_gpu": 0}
