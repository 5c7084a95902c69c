"""Schedules over the ranks of a launcher: what the configuration accepts, and the command it results in."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from hios.cli import main
from hios.formats.config import Config
from hios.pipeline import config, rank_launchers
from tests.refusals import refused

ALGORITHMS: dict[str, Any] = {"sequential": {}, "wide": {"algorithm": "hios-lp"}, "auto": {}}


def _settings(distribute: dict[str, Any], **changes: Any) -> Config:
    data = {"models": {"squeezenet": {}}, "devices": [1, 2, 4], "algorithms": ALGORITHMS, "distribute": distribute}
    return config.without_files({**data, **changes}, "mine.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "distribute: {algorithms: [wide, hios-lp]}",
            "algorithms[1]: found hios-lp; allowed: labels of algorithms for several devices (wide)",
        ),
        ("distribute: {algorithms: [auto]}", "algorithms[0]: found auto; allowed: labels of algorithms for "),
        ("distribute: {algorithms: [sequential]}", "algorithms[0]: found sequential; allowed: labels of "),
        (
            "distribute: {algorithms: [sequential]}, algorithms: {sequential: {}}",
            "algorithms[0]: found sequential; allowed: labels of algorithms for several devices (none yet: ",
        ),
        (
            "distribute: {algorithms: [wide], devices: 3}",
            "devices: found 3; allowed: a number above 1 that `devices` lists (2, 4)",
        ),
        ("distribute: {algorithms: [wide], devices: 1}", "devices: found 1; allowed: a number above 1 that "),
        (
            "distribute: {algorithms: [wide]}, devices: [1]",
            "devices: found 1; allowed: a number above 1 that `devices` lists (none yet: add ",
        ),
        (
            "distribute: {algorithms: [wide]}, devices: auto",
            "algorithms: found with devices: auto; allowed: with numbers of devices",
        ),
        (
            "distribute: {algorithms: [wide]}, platform: model, gpu: a40, algorithms: {wide: {algorithm: hios-lp}}",
            "algorithms: found with platform model, which runs nothing; allowed: with platform cpu or cuda",
        ),
        ("distribute: {mpi: pmix}", "mpi: found with launcher torchrun; allowed: with launcher srun"),
        (
            "distribute: {algorithms: [wide, wide]}",
            'algorithms: found ["wide", "wide"]; allowed: items that differ from each other',
        ),
        ("distribute: {launcher: ssh}", 'launcher: found "ssh"; allowed: '),
        ("distribute: {launcher: srun, mpi: pmix --prolog=x}", 'mpi: found "pmix --prolog=x"; allowed: '),
    ],
)
def test_refusals(text: str, message: str) -> None:
    """In one line with file, field, what was found and what is allowed."""
    with refused(f"mine.yaml: distribute.{message}"):
        rank_launchers.checked(_settings(**yaml.safe_load(f"{{{text}}}")), "mine.yaml")


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
