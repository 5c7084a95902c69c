"""Schedules over the ranks of a launcher: what the configuration accepts, and the command it results in."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from hios.cli import main
from hios.formats.config import Config
from hios.pipeline import config, rank_launchers
from tests.refusals import refused

ALGORITHMS: dict[str, Any] = {"sequential": {}, "wide": {"algorithm": "hios-lp"}, "auto": {}}


def _settings(distribute: dict[str, Any], **changes: Any) -> Config:
    data = {"models": {"squeezenet": {}}, "devices": [1, 2, 4], "algorithms": ALGORITHMS, "distribute": distribute}
    return config.without_files({**data, **changes}, "mine.yaml")


@pytest.mark.parametrize(
    ("distribute", "changes", "message"),
    [
        (
            {"algorithms": ["wide", "hios-lp"]},
            {},
            "distribute.algorithms[1]: found hios-lp; allowed: labels of algorithms for several devices (wide)",
        ),
        ({"algorithms": ["auto"]}, {}, "distribute.algorithms[0]: found auto; allowed: labels of algorithms for "),
        ({"algorithms": ["sequential"]}, {}, "distribute.algorithms[0]: found sequential; allowed: labels of "),
        (
            {"algorithms": ["sequential"]},
            {"algorithms": {"sequential": {}}},
            "distribute.algorithms[0]: found sequential; allowed: labels of algorithms for several devices (none yet: ",
        ),
        (
            {"algorithms": ["wide"], "devices": 3},
            {},
            "distribute.devices: found 3; allowed: a number above 1 that `devices` lists (2, 4)",
        ),
        ({"algorithms": ["wide"], "devices": 1}, {}, "distribute.devices: found 1; allowed: a number above 1 that "),
        (
            {"algorithms": ["wide"]},
            {"devices": [1]},
            "distribute.devices: found 1; allowed: a number above 1 that `devices` lists (none yet: add ",
        ),
        (
            {"algorithms": ["wide"]},
            {"devices": "auto"},
            "distribute.algorithms: found with devices: auto; allowed: with numbers of devices",
        ),
        (
            {"algorithms": ["wide"]},
            {"platform": "model", "gpu": "a40", "algorithms": {"wide": {"algorithm": "hios-lp"}}},
            "distribute.algorithms: found with platform model, which runs nothing; allowed: with platform cpu or cuda",
        ),
        ({"mpi": "pmix"}, {}, "distribute.mpi: found with launcher torchrun; allowed: with launcher srun"),
        (
            {"algorithms": ["wide", "wide"]},
            {},
            'distribute.algorithms: found ["wide", "wide"]; allowed: items that differ from each other',
        ),
        ({"launcher": "ssh"}, {}, 'distribute.launcher: found "ssh"; allowed: '),
        ({"launcher": "srun", "mpi": "pmix --prolog=x"}, {}, 'distribute.mpi: found "pmix --prolog=x"; allowed: '),
    ],
)
def test_refusals(distribute: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    """In one line with file, field, what was found and what is allowed."""
    with refused("mine.yaml: ", message):
        rank_launchers.checked(_settings(distribute, **changes), "mine.yaml")


@pytest.mark.parametrize(
    ("distribute", "platform", "launch", "transport"),
    [
        ({}, "cpu", "torchrun --standalone --nproc-per-node 4 -m hios", "gloo"),
        ({"devices": 2}, "cuda", "torchrun --standalone --nproc-per-node 2 -m hios", "nccl"),
        (
            {"launcher": "srun", "mpi": "pmix"},
            "cpu",
            "srun --mpi=pmix --ntasks=4 --cpus-per-task=1 --cpu-bind=cores python -m hios",
            "mpi",
        ),
        ({"launcher": "mpirun"}, "cuda", "mpirun -n 4 --bind-to none python -m hios", "mpi"),
    ],
)
def test_launch(distribute: dict[str, Any], platform: str, launch: str, transport: str) -> None:
    """The transport follows from launcher and platform."""
    settings = rank_launchers.checked(_settings({"algorithms": ["wide"], **distribute}, platform=platform), "mine.yaml")
    assert rank_launchers.launch(settings) == launch
    assert rank_launchers.transport(settings) == transport
    assert rank_launchers.names(settings) == [f"wide-{rank_launchers.ranks(settings)}"]


def test_resources() -> None:
    """Slurm's plugin is asked for a task for each rank, where these speak MPI; torchrun is a single task."""
    assert rank_launchers.resources(_settings({"algorithms": ["wide"]})) == {}
    for launcher in ("srun", "mpirun"):
        settings = _settings({"algorithms": ["wide"], "launcher": launcher})
        assert rank_launchers.resources(settings) == {"mpi": launcher, "tasks": 4, "tasks_per_gpu": 0}


def test_cores_per_device() -> None:
    """Both srun and hios are told how many cores a rank has."""
    settings = _settings({"algorithms": ["wide"], "launcher": "srun"}, cores_per_device=3)
    assert "--cpus-per-task=3" in shlex.split(rank_launchers.launch(settings))
    assert config.distribute_options(settings, "squeezenet").startswith("--cores-per-device 3 --runs 36")


def test_options_exist(tmp_path: Path) -> None:
    """`hios distribute` takes the options that the pipeline passes on."""
    settings = _settings(
        {"algorithms": ["wide"]}, cores_per_device=2, models={"net": {"model": "net.pt2", "trusted": True}}
    )
    words = shlex.split(config.distribute_options(settings, "net"))
    assert words[-1] == "--trust"
    files = []
    for name in ("graph.json", "weights.safetensors", "wide-4.json"):
        (tmp_path / name).touch()
        files.append(str(tmp_path / name))
    given = [*files, *words, "--transport", rank_launchers.transport(settings), "--output", str(tmp_path / "run.json")]
    context = main.get_command(None, "distribute").make_context("distribute", given)  # type: ignore[arg-type, union-attr]
    assert {name: context.params[name] for name in ("cores_per_device", "runs", "trust")} == {
        "cores_per_device": 2,
        "runs": 36,
        "trust": True,
    }
