"""What the cache's keys hold of GPUs."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
import torch

from hios.files.base import Platform
from hios.platforms.cuda import environment

#: As nvidia-smi prints them: a GPU a line, in the order of the fields.
_TWO = (
    "Enabled, 700.00 W, 1980 MHz, 2619 MHz, Enabled, Disabled, Default\n"
    "Enabled, 500.00 W, [N/A], [N/A], [N/A], [N/A], Default\n"
)


def test_clocks_of_gpus() -> None:
    """Every GPU's settings are read by name; a value that a GPU does not have stays as it is printed."""
    lowered, full = environment.clocks(_TWO)
    assert full["power.limit"] == "700.00 W"
    assert full["clocks.applications.graphics"] == "1980 MHz"
    assert full["mig.mode.current"] == "Disabled"
    assert lowered["clocks.applications.graphics"] == "[N/A]"
    assert set(full) == set(lowered) == set(environment._CLOCKS)


def test_equal_gpus_count_once() -> None:
    """Neither the number of equal GPUs nor their order changes the key."""
    first, second = _TWO.splitlines()
    assert environment.clocks(f"{second}\n{first}\n{second}\n") == environment.clocks(_TWO)


@pytest.mark.parametrize("text", ["", "\n", "NVIDIA-SMI has failed because it couldn't communicate\n"])
def test_no_clocks(text: str) -> None:
    """Where nvidia-smi is not there or does not answer, clocks are unknown."""
    assert environment.clocks(text) == []


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
    """What measurements depend on changes the key; how many devices there are, and which, does not."""
    monkeypatch.setattr(environment, "_nvidia_smi", lambda: _TWO)

    def key(**changes: Any) -> str:
        return json.dumps(environment.settings(_description(**changes)), sort_keys=True)

    same = key()
    twice = {"gpus": ["NVIDIA H100"] * 2, "compute_capability": ["9.0"] * 2}
    assert key(**twice, devices=2, gpu_indices=[0, 1], peer_access=True) == same
    assert key(gpus=["NVIDIA H200"]) != same
    for name in ("driver", "cuda", "cudnn"):
        assert key(**{name: "other"}) != same
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    assert key() != same
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE")
    for name in ("CUDA_VISIBLE_DEVICES", "TORCH_HOME"):
        monkeypatch.setenv(name, "1")
    assert key() == same
    monkeypatch.setattr(environment, "_nvidia_smi", lambda: "")
    assert key() != same


def test_precision_is_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether convolutions may run in TF32, and which algorithms cuDNN may choose, changes the key."""
    before = environment._precision()
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", not before["cudnn_tf32"])
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", not before["cudnn_deterministic"])
    after = environment._precision()
    assert {name for name in after if after[name] != before[name]} == {"cudnn_tf32", "cudnn_deterministic"}
