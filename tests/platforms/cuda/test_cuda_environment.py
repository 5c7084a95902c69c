"""What the cache's keys hold of GPUs."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from hios import HiosWarning
from hios.files.base import Platform
from hios.platforms.cuda import devices, distributing, environment, executing, gpu_settings
from tests.platforms.torch_precision import float32_precision

#: As nvidia-smi prints them: a GPU a line, in the order of the fields.
_TWO = (
    "580.1, Enabled, 700.00 W, 1980 MHz, 2619 MHz, Enabled, Disabled, Default\n"
    "580.1, Enabled, 500.00 W, [N/A], [N/A], [N/A], [N/A], Default\n"
)


def test_clocks_of_gpus() -> None:
    """Every GPU's settings are read by name; a value that a GPU does not have stays as it is printed."""
    lowered, full = gpu_settings.clocks(_TWO)
    assert full["power.limit"] == "700.00 W"
    assert full["clocks.applications.graphics"] == "1980 MHz"
    assert full["mig.mode.current"] == "Disabled"
    assert lowered["clocks.applications.graphics"] == "[N/A]"
    assert set(full) == set(lowered) == set(gpu_settings._CLOCKS)


def test_equal_gpus_count_once() -> None:
    """Neither the number of equal GPUs nor their order changes the key."""
    first, second = _TWO.splitlines()
    assert gpu_settings.clocks(f"{second}\n{first}\n{second}\n") == gpu_settings.clocks(_TWO)


@pytest.mark.parametrize("text", ["", "\n", "NVIDIA-SMI has failed because it couldn't communicate\n"])
def test_no_clocks(text: str) -> None:
    """Where nvidia-smi is not there or does not answer, clocks are unknown."""
    assert gpu_settings.clocks(text) == []


#: An nvidia-smi that has not all fields that it is asked for: it names the first that it lacks.
_PROGRAM = """#!/bin/sh
for field in MISSING; do
    case "$1" in *"$field"*) echo "Field \\"$field\\" is not a valid field to query."; exit 2;; esac
done
case "$3" in *"$REFUSED"*) echo 'No devices were found'; exit 6;; esac
case "$1" in --query-gpu=*) echo "$1" | sed 's/--query-gpu=//; s/[a-z._]\\+/'"$3 &"'/g'; exit STATUS;; esac
"""


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts an nvidia-smi on the path, which lacks some fields."""

    def put(*missing: str, status: int = 0, program: str = _PROGRAM, refused: str = "none") -> None:
        monkeypatch.setenv("REFUSED", refused)
        file = tmp_path / "nvidia-smi"
        file.write_text(program.replace("MISSING", " ".join(missing)).replace("STATUS", str(status)), encoding="utf-8")
        file.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    return put


@pytest.mark.parametrize(
    "missing", [(), ("clocks.applications.graphics", "clocks.applications.memory"), ("power.limit",)]
)
def test_fields_that_a_driver_lacks_are_unknown(nvidia_smi: Callable[..., None], missing: tuple[str, ...]) -> None:
    """One such field makes nvidia-smi refuse all: the others are asked for again, and the key says what is unknown."""
    nvidia_smi(*missing)
    values = {name: "unknown" if name in missing else f"--id=GPU-1 {name}" for name in gpu_settings._CLOCKS}
    assert gpu_settings.clocks(*gpu_settings.asked(["1"])) == [values]


@pytest.mark.parametrize("missing", [(), ("power.limit",)])
def test_an_unknown_gpu_has_the_settings_of_all(nvidia_smi: Callable[..., None], missing: tuple[str, ...]) -> None:
    """A part of a GPU is not called GPU-UUID; all GPUs are asked for then, and the fields that there are."""
    nvidia_smi(*missing, refused="GPU-1")
    values = {name: "unknown" if name in missing else name for name in gpu_settings._CLOCKS}
    assert gpu_settings.clocks(*gpu_settings.asked(["0", "1"])) == [values]


def test_an_nvidia_smi_that_fails_says_nothing(nvidia_smi: Callable[..., None]) -> None:
    """Nor one that refuses a field that was not asked for, which would be asked for ever."""
    nvidia_smi(status=9)
    assert gpu_settings.clocks(*gpu_settings.asked(["1"])) == []
    nvidia_smi(program="#!/bin/sh\necho 'Field \"other\" is not a valid field to query.'; exit 2\n")
    assert gpu_settings.clocks(*gpu_settings.asked(["1"])) == []


@pytest.mark.parametrize(("mode", "warns"), [("Default", False), ("Exclusive_Process", True), ("[N/A]", False)])
def test_gpus_for_one_process_alone(monkeypatch: pytest.MonkeyPatch, mode: str, warns: bool) -> None:
    """Before baselines start in processes of their own, and in ranks that share a GPU, a warning says what to do."""
    text = _TWO.splitlines()[0].replace("Default", mode)
    monkeypatch.setattr(devices, "uuids", list)
    monkeypatch.setattr(gpu_settings, "asked", lambda uuids: (text, list(gpu_settings._CLOCKS)))
    monkeypatch.setattr(devices, "gpu_indices", lambda count, virtual: [number % 2 for number in range(count)])
    monkeypatch.setattr(distributing, "DistributedGpu", lambda index: index)
    shared: list[Callable[[], object]] = [
        lambda: executing.references(Platform("cuda"), "eager", ["cudagraph"]),
        lambda: distributing.device(3),
    ]
    for start in shared:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", HiosWarning)
            start()
        message = "platform cuda: nvidia-smi reports compute mode Exclusive_Process: only one process at a time can use"
        assert [str(warning.message).startswith(message) for warning in told] == [True] * warns
    with warnings.catch_warnings():
        warnings.simplefilter("error", HiosWarning)
        assert distributing.device(1) == 1
        executing.references(Platform("cuda"), "onnxruntime", [])  # on cores


def _description(**changes: Any) -> Platform:
    return msgspec.convert(
        {
            "name": "cuda",
            "devices": 1,
            "gpus": ["NVIDIA H100"],
            "gpu_indices": [0],
            "compute_capability": ["9.0"],
            "driver": "580.1",
            "cuda": "13.0",
            "cudnn": "91000",
            **changes,
        },
        Platform,
    )


def test_keys_tell_gpus_and_software_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """What measurements depend on changes the key; how many devices there are, and which, does not.

    The settings are those of the GPUs used: the third has another power limit, with which nothing of others is kept.
    """
    full, lowered = _TWO.splitlines()
    monkeypatch.setattr(devices, "uuids", lambda indices: [f"uuid {index}" for index in indices])

    def asked(uuids: list[str]) -> tuple[str, list[str]]:
        return "\n".join(lowered if own == "uuid 2" else full for own in uuids), list(gpu_settings._CLOCKS)

    monkeypatch.setattr(gpu_settings, "asked", asked)

    def key(**changes: Any) -> str:
        return json.dumps(environment.settings(_description(**changes)), sort_keys=True)

    same = key()
    twice = {"gpus": ["NVIDIA H100"] * 2, "compute_capability": ["9.0"] * 2}
    assert key(**twice, devices=2, gpu_indices=[0, 1], peer_access=True) == same
    assert key(gpu_indices=[1]) == same
    assert key(gpu_indices=[2]) != same
    assert key(gpus=["NVIDIA H200"]) != same
    for name in ("driver", "cuda", "cudnn"):
        assert key(**{name: "other"}) != same
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    assert key() != same
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE")
    for name in ("CUDA_VISIBLE_DEVICES", "TORCH_HOME"):
        monkeypatch.setenv(name, "1")
    assert key() == same
    full = full.replace("580.1", "580.2")  # where the description has no driver
    assert key() != same
    monkeypatch.setattr(gpu_settings, "asked", lambda uuids: ("", list(gpu_settings._CLOCKS)))
    assert key() != same


def test_precision_is_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether convolutions may run in TF32, and which algorithms cuDNN may choose, changes the key."""
    before = environment._precision()
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", not before["cudnn_deterministic"])
    with float32_precision("cudnn.conv", "ieee"):
        after = environment._precision()
    assert {name for name in after if after[name] != before[name]} == {"float32", "cudnn_deterministic"}
