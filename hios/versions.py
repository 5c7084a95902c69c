"""Versions of the software that costs and runs depend on."""

from __future__ import annotations

import json
import platform
from importlib import metadata
from pathlib import Path

from hios.artifacts import replacing

#: What measurements and results depend on, where it is installed.
_PACKAGES = (
    "hios",
    "torch",
    "apache-tvm",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "openvino",
    "numpy",
    "numba",
    "ortools",
    "snakemake",
)


def versions() -> dict[str, str]:
    """Versions of Python, the kernel and all packages that are installed."""
    found = {"python": platform.python_version(), "kernel": platform.release()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def write(path: str | Path) -> None:
    """Write the versions as JSON."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(versions(), indent=1) + "\n", encoding="utf-8")
