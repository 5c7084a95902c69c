"""The measurement environment on GPUs: part of the keys of cached measurements."""

from __future__ import annotations

import platform
from importlib import metadata

import torch

from hios.files.base import Platform
from hios.files.versions import versions
from hios.machine.description import variables
from hios.platforms.code_hash import code_hash
from hios.platforms.cuda import devices, gpu_settings
from hios.platforms.cuda.precision import precisions

#: Environment variables that affect CUDA's libraries, or torch on GPUs; not those that select visible GPUs.
_VARIABLES = (
    "CUBLAS",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MPS_",
    "CUDNN_",
    "NVIDIA_TF32_OVERRIDE",
    "PYTORCH_ALLOC",
    "PYTORCH_CUDA",
    "TORCH_ALLOW_TF32",
    "TORCH_BLAS",
    "TORCH_CUDNN",
)
#: The code that runs operators and stages, transfers values and times the probe.
_CODE = ("hios.platforms.cuda.timing", "hios.platforms.cuda.gpu_probe", "hios.workers.worker")


def settings(description: Platform) -> dict[str, object]:
    """GPUs, clocks and software that measurements depend on."""
    return {
        "gpus": sorted(set(zip(description.gpus or (), description.compute_capability or (), strict=True))),
        "driver": description.driver,
        "cuda": description.cuda,
        "cudnn": description.cudnn,
        "clocks": gpu_settings.clocks(*gpu_settings.asked(devices.uuids(description.gpu_indices or ()))),
        "precision": _precision(),
        "environment": variables(_VARIABLES),
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "onnxruntime": versions().get("onnxruntime"),  # runs operators that torch does not have
        "code": code_hash(_CODE),
    }


def _precision() -> dict[str, object]:
    """Precision and algorithms that torch selects for CUDA's libraries, as far as workers do not set them."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    return {
        "float32": precisions(),
        "cudnn_deterministic": cudnn.deterministic,
        "fp16_reduced": matmul.allow_fp16_reduced_precision_reduction,
        "bf16_reduced": matmul.allow_bf16_reduced_precision_reduction,
    }
