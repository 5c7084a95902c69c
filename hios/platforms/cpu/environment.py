"""What measurements depend on beside what is measured: the key of the cache holds all of it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from hios.machine import processor
from hios.sources import code_hash

_CPUINFO = Path("/proc/cpuinfo")
_CPUS = Path("/sys/devices/system/cpu")
#: What tells processors of one name apart, which virtual machines often have.
_PROCESSOR_FIELDS = ("vendor_id", "cpu family", "model", "stepping", "microcode")
#: Clocks-relevant settings, where the system has them: of the machine, and of a core.
_MACHINE_CLOCKS = ("cpufreq/boost", "intel_pstate/no_turbo", "intel_pstate/max_perf_pct", "smt/active")
_CORE_CLOCKS = ("cpufreq/scaling_driver", "cpufreq/scaling_governor", "cpufreq/scaling_max_freq")
#: Variables that change what kernels of torch, and its memory, do.
_VARIABLES = ("ATEN_", "DNNL_", "GLIBC_TUNABLES", "KMP_", "LD_PRELOAD", "MALLOC_", "MKL_", "ONEDNN_")
#: Variables that change what CUDA's libraries, or torch on GPUs, do. Which GPUs are visible is no such matter.
_GPU_VARIABLES = (
    "CUBLAS",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDNN_",
    "NVIDIA_TF32_OVERRIDE",
    "PYTORCH_ALLOC",
    "PYTORCH_CUDA",
    "TORCH_ALLOW_TF32",
    "TORCH_BLAS",
    "TORCH_CUDNN",
)
#: What nvidia-smi is asked for: what a GPU's clocks, and its share that is used, depend on.
_GPU_CLOCKS = (
    "persistence_mode",
    "power.limit",
    "clocks.applications.graphics",
    "clocks.applications.memory",
    "ecc.mode.current",
    "mig.mode.current",
    "compute_mode",
)
#: Seconds that nvidia-smi may take.
_ANSWER_S = 30.0
#: Runs operators and stages, hands values over, and times the probe, on GPUs and on cores.
_GPU_CODE = ("hios.platforms.cuda.timing", "hios.platforms.cuda.gpu_probe", "hios.workers.worker")
_CODE = (
    "hios.platforms.cpu.timing",
    "hios.platforms.cpu.transfer_timing",
    "hios.platforms.cpu.core_probe",
    "hios.workers.worker",
)


def settings(cores: list[list[int]]) -> dict[str, object]:
    """Processor, clocks and software that measurements on devices that are cores depend on.

    Which core a device is pinned to is left out: cores that differ differ in their caches or clocks.

    Args:
        cores: cores of every device.
    """
    used = sorted({core for own in cores for core in own})
    return {
        "processor": {"name": processor(), **_processor_fields()},
        "caches": _caches(used),
        "clocks": {
            **{name: _read(_CPUS / name) for name in _MACHINE_CLOCKS},
            **{name: sorted({_read(_CPUS / f"cpu{core}" / name) for core in used}) for name in _CORE_CLOCKS},
        },
        "threads_per_device": len(cores[0]),
        "vector_instructions": torch.backends.cpu.get_cpu_capability(),
        "environment": {name: os.environ[name] for name in sorted(os.environ) if name.startswith(_VARIABLES)},
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "code": code_hash(_CODE),
    }


def gpu_settings(description: Mapping[str, Any]) -> dict[str, object]:
    """GPUs, clocks and software that measurements on devices depend on.

    Args:
        description: of the platform (``hios.platforms.cuda.platform.describe``).
    """
    return {
        "gpus": sorted(set(zip(description["gpus"], description["compute_capability"], strict=True))),
        **{name: description[name] for name in ("driver", "cuda", "cudnn")},
        "clocks": gpu_clocks(_nvidia_smi()),
        "precision": _precision(),
        "environment": {name: os.environ[name] for name in sorted(os.environ) if name.startswith(_GPU_VARIABLES)},
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "code": code_hash(_GPU_CODE),
    }


def gpu_clocks(text: str) -> list[dict[str, str]]:
    """Clocks-relevant settings of all GPUs, each combination once.

    Args:
        text: what ``nvidia-smi --query-gpu=FIELDS --format=csv,noheader`` prints of `_GPU_CLOCKS`, a line a GPU; a
            value that a GPU does not have is said to be ``[N/A]``. Lines with other numbers of values are none of it.
    """
    rows = {tuple(value.strip() for value in line.split(",")) for line in text.splitlines()}
    return [dict(zip(_GPU_CLOCKS, row, strict=True)) for row in sorted(rows) if len(row) == len(_GPU_CLOCKS)]


def _nvidia_smi() -> str:
    """What nvidia-smi says of all GPUs; empty where it is not installed or fails."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    command = [program, f"--query-gpu={','.join(_GPU_CLOCKS)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_S, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _precision() -> dict[str, object]:
    """How precisely, and with which algorithms, torch has CUDA's libraries compute, where workers do not set that."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    return {
        "float32_matmul": torch.get_float32_matmul_precision(),
        "cudnn_tf32": cudnn.allow_tf32,
        "cudnn_deterministic": cudnn.deterministic,
        "fp16_reduced": matmul.allow_fp16_reduced_precision_reduction,
        "bf16_reduced": matmul.allow_bf16_reduced_precision_reduction,
    }


def cache_bytes(core: int) -> int:
    """Size of the largest cache that a core has, shared or not; 0 where unknown."""
    return max((_size(text) for text in _caches([core])), default=0)


def _size(text: str) -> int:
    size = text.rpartition(" ")[2]
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(size[-1:], 0)
    return int(size[:-1]) * unit if unit and size[:-1].isdigit() else 0


def _caches(cores: list[int]) -> list[str]:
    """Level, kind and size of every cache."""
    folders = [folder for core in cores for folder in (_CPUS / f"cpu{core}" / "cache").glob("index*")]
    return sorted({" ".join(_read(folder / name) for name in ("level", "type", "size")) for folder in folders})


def _processor_fields() -> dict[str, str]:
    found: dict[str, str] = {}
    for line in _read(_CPUINFO).splitlines():
        name, _, value = line.partition(":")
        if name.strip() in _PROCESSOR_FIELDS:
            found.setdefault(name.strip(), value.strip())
    return found


def _read(path: Path) -> str:
    """Text of a file of the system; empty where there is none or it may not be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
