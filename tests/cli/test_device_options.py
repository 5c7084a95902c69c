"""Options of the command line that say which devices run, and for how long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hios import Schedule
from hios.cli import files
from hios.files import artifacts
from hios.formats.partition import Partition, PartitionFile
from hios.frontends.models import RUNTIMES
from hios.platforms import PLATFORMS, executable
from tests.cli.commands import invoke, refused, succeed
from tests.runtime.small import branches

_FILES = ("graph.json", "weights.safetensors", "schedule.json", "--output", "run.json")
EXECUTE = ("execute", *_FILES, "--devices", "3")
PROFILE = ("profile", "graph.json", "--devices", "3", "--output", "costs.json")
COMMANDS = {"execute": EXECUTE, "profile": PROFILE, "distribute": ("distribute", *_FILES, "--transport", "gloo")}
GRAPH = '{"name": "one", "operators": [{"id": "a", "type": "task"}], "edges": []}'


class StoppedError(Exception):
    """Raised in place of what a command would run."""


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the commands pass on, instead of running it."""
    received: dict[str, Any] = {}

    def execute(*arguments: Any, **keywords: Any) -> None:
        received.update(keywords, settings=arguments[4])
        raise StoppedError

    def profile(*_: Any, **keywords: Any) -> None:
        received.update(keywords)
        raise StoppedError

    monkeypatch.setattr(files, "execute", execute)
    monkeypatch.setattr(files, "profile", profile)
    return received


def _stopped(*arguments: object) -> None:
    result = invoke(*arguments)
    assert isinstance(result.exception, StoppedError), result.output


@pytest.mark.parametrize(
    ("more", "changed"),
    [
        ((), {}),
        (("--platform", "cuda", "--virtual"), {"platform": "cuda", "virtual": True}),
        (("--cores-per-device", "4"), {"cores_per_device": 4}),
    ],
)
def test_devices_are_passed_on(given: dict[str, Any], more: tuple[str, ...], changed: dict[str, Any]) -> None:
    """Platform, devices and their cores reach profiler and session; without, schedules and defaults decide on cores."""
    expected = {"platform": "cpu", "virtual": False, "devices": 3, "cores_per_device": None, **changed}
    _stopped(*PROFILE, *more)
    assert {name: given[name] for name in expected} == expected
    _stopped(*EXECUTE, *more)
    assert {name: getattr(given["settings"], name) for name in expected} == expected
    assert given["settings"].timeout_s == 120.0
    _stopped(*EXECUTE, *more, "--timeout", "7.5")
    assert given["settings"].timeout_s == 7.5


def _division(tmp_path: Path, fingerprint: str = "") -> tuple[Path, Path]:
    """A graph, and a partition.json of it that chose two devices of three cores."""
    graph, path = tmp_path / "graph.json", tmp_path / "partition.json"
    network = branches().graph
    network.write(graph)
    entry = Partition(devices=2, cores_per_device=3, algorithm="hios-lp", predicted_ms=1.0)
    division = PartitionFile(
        graph=network.name,
        graph_fingerprint=fingerprint or network.fingerprint,
        cores=6,
        partitions=(entry,),
        devices=2,
        cores_per_device=3,
        reason="the fastest of 1",
    )
    artifacts.write(path, "partition", division)
    return graph, path


def test_partition_states_devices(given: dict[str, Any], tmp_path: Path) -> None:
    """`--partition` has profile and schedule use the devices that `hios partition` chose."""
    graph, path = _division(tmp_path)
    _stopped("profile", graph, "--partition", path, "--output", tmp_path / "costs.json")
    assert (given["devices"], given["cores_per_device"]) == (2, 3)
    costs, output = tmp_path / "predicted.json", tmp_path / "schedule.json"
    succeed("profile", graph, "--platform", "model", "--gpu", "a40", "--devices", 2, "--output", costs)
    succeed("schedule", graph, costs, "--algorithm", "hios-lp", "--partition", path, "--output", output)
    assert Schedule.read(output).devices == 2


@pytest.mark.parametrize(
    ("fingerprint", "more", "message"),
    [
        ("", ["--devices", "1"], "--devices: found with --partition, which states it; allowed: one of them"),
        ("", ["--cores-per-device", "2"], "--cores-per-device: found with --partition, which states it; "),
        ("0" * 16, [], "/partition.json: graph_fingerprint: found 0000000000000000, of another graph than "),
    ],
)
def test_partition_that_does_not_fit(tmp_path: Path, fingerprint: str, more: list[str], message: str) -> None:
    """What contradicts the partition is refused, and nothing is measured."""
    graph, path = _division(tmp_path, fingerprint)
    costs = tmp_path / "costs.json"
    assert message in refused("profile", graph, "--partition", path, "--output", costs, *more)
    assert not costs.exists()


@pytest.mark.parametrize("timeout", ["0", "-1", "inf", "nan"])
@pytest.mark.parametrize("command", ["execute", "distribute"])
def test_time_outs_that_cannot_be(command: str, timeout: str) -> None:
    """The time limit of a run must be positive and finite in both commands that measure."""
    message = f"--timeout: found {float(timeout)}; allowed: more than 0 seconds, finite"
    assert refused(*COMMANDS[command], "--timeout", timeout) == message


def test_choices_are_those_of_the_library() -> None:
    """The command line takes every platform and every runtime that the library knows, and no other."""
    for command, names in ((EXECUTE, executable()), (PROFILE, PLATFORMS)):
        wrong = invoke(*command, "--platform", "tpu")
        assert wrong.exit_code == 2
        assert all(f"'{name}'" in wrong.stderr for name in names)
    wrong = invoke(*EXECUTE, "--baselines", "jax")
    assert wrong.exit_code == 2
    assert all(f"'{name}'" in wrong.stderr for name in RUNTIMES)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_no_gpu_is_said_in_one_line(tmp_path: Path) -> None:
    """Platform cuda without a GPU is refused with what is missing and what to do instead; nothing is written."""
    graph = tmp_path / "graph.json"
    branches().graph.write(graph)
    output = tmp_path / "costs.json"
    message = refused("profile", graph, "--platform", "cuda", "--devices", 1, "--output", output)
    assert message.startswith("platform cuda: ")
    assert message.endswith("or use --platform cpu")
    assert [path.name for path in tmp_path.iterdir()] == ["graph.json"]


_PREDICT = "--platform model"


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        ("execute", _PREDICT, "--platform: found model, which predicts costs and runs nothing; allowed: cpu, cuda"),
        ("distribute", _PREDICT, "--platform: found model, which predicts costs and runs nothing"),
        ("profile", _PREDICT, "--gpu: missing; required with platform model: one of a100-pcie-40gb, a40, "),
        ("profile", f"{_PREDICT} --gpu a41", "--gpu: found a41; allowed: a100-pcie-40gb, a40, "),
        (
            "profile",
            f"{_PREDICT} --gpu rtx3080 --link nvlink",
            "--link: found nvlink; allowed with gpu rtx3080: pcie, pcie3, or the path of a .yaml file",
        ),
        (
            "profile",
            f"{_PREDICT} --gpu a40 --repeats 5",
            "--repeats: found with platform model, which measures nothing; allowed: without it",
        ),
        ("profile", "--gpu a40", "--gpu: found with platform cpu; allowed: with platform model"),
        ("profile", "--platform cuda --link pcie", "--link: found with platform cuda; allowed: with platform"),
    ],
)
def test_gpus_that_are_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, options: str, message: str
) -> None:
    """What platform model needs and cannot, in one line; nothing is written."""
    monkeypatch.chdir(tmp_path)
    Path("graph.json").write_text(GRAPH, encoding="utf-8")
    assert refused(*COMMANDS[command], *options.split()).startswith(message)
    assert [path.name for path in tmp_path.iterdir()] == ["graph.json"]


@pytest.mark.parametrize("command", COMMANDS)
def test_gpus_are_no_groups_of_cores(command: str) -> None:
    """Cores per device are refused where devices are GPUs, in one line and before a file is read."""
    assert refused(*COMMANDS[command], "--platform", "cuda", "--cores-per-device", 2) == (
        "platform cuda: found --cores-per-device; allowed: without it, as only devices of platform cpu are "
        "groups of cores"
    )
