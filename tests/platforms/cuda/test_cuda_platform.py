"""What the platform cuda says of GPUs, and where there are none."""

from __future__ import annotations

import re

import pytest
import torch

from hios.errors import PlatformError
from hios.platforms.cuda import devices as cuda
from tests.gpu_marker import GPUS, requires_gpu


def test_devices_are_gpus() -> None:
    """Device i has GPU i; virtual devices share them in turn."""
    assert cuda.indices(2, 3, virtual=False) == [0, 1]
    assert cuda.indices(5, 2, virtual=True) == [0, 1, 0, 1, 0]
    assert cuda.indices(1, 2, virtual=True) == [0]


@pytest.mark.parametrize(("devices", "virtual"), [(0, False), (3, False), (0, True)])
def test_wrong_numbers_of_devices_are_refused(devices: int, virtual: bool) -> None:
    """None, or more than there are GPUs, in one line."""
    message = rf"^platform cuda: devices: found {devices}; allowed: 1 to 2, the GPUs that torch finds, and more with -"
    with pytest.raises(PlatformError, match=message):
        cuda.indices(devices, 2, virtual)


@pytest.mark.parametrize(
    ("built", "message"),
    [
        (None, r"^platform cuda: found torch \S+, which is built without CUDA; install a build of torch with CUDA, or"),
        ("12.9", r"^platform cuda: torch \S+ \(CUDA 12\.9\) finds no GPU; nvidia-smi shows what the driver sees, and"),
    ],
)
def test_no_gpu(built: str | None, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch without CUDA and a machine without GPU are told apart; virtual devices need a GPU too."""
    monkeypatch.setattr(torch.version, "cuda", built)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    for virtual in (False, True):
        with pytest.raises(PlatformError, match=message) as caught:
            cuda.describe(1, virtual=virtual)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n", "535.104.05"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build\n", "550.54.15"),
        ("", "unknown"),
    ],
)
def test_driver_version(text: str, version: str) -> None:
    """The version stands in a line of the driver's own, of either kind of driver; it may be missing."""
    assert cuda.driver_version(text).partition(",")[0] == version


class _Properties:
    """What torch says of a GPU."""

    name, major, minor, total_memory = "GPU of a test", 9, 0, 85_000_000_000


def test_description(monkeypatch: pytest.MonkeyPatch) -> None:
    """The description has an entry a device, and says whether GPUs reach each other, and whether devices share one."""
    monkeypatch.setattr(torch.version, "cuda", "12.9")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda gpu: _Properties)
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda one, other: one < other)
    platform = cuda.describe(2)
    assert (platform.gpus, platform.gpu_indices) == (("GPU of a test",) * 2, (0, 1))
    assert (platform.compute_capability, platform.memory_gb) == (("9.0", "9.0"), (85.0, 85.0))
    assert platform.peer_access is False
    assert platform.virtual is None
    assert cuda.describe(3, virtual=True).virtual is True
    assert cuda.describe(1).peer_access is None


@requires_gpu
def test_description_of_this_machine() -> None:
    """Every GPU has a name, a compute capability and memory."""
    platform = cuda.describe(GPUS)
    assert len(platform.gpus or ()) == len(platform.memory_gb or ()) == GPUS
    assert all(re.fullmatch(r"\d+\.\d+", capability) for capability in platform.compute_capability or ())
