"""Versions of the software that costs and runs depend on."""

from __future__ import annotations

import json
import platform
import shutil
from pathlib import Path

from hios.files.artifacts import write_whole

#: What measurements and results depend on, where it is installed.
PACKAGES = (
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
    from importlib import metadata  # not when hios is imported: it takes some milliseconds

    known = {"python": platform.python_version(), "kernel": platform.release()}
    for package in PACKAGES:
        try:
            known[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return known


def write(path: str | Path) -> None:
    """Write the versions as JSON."""
    write_whole(path, json.dumps(versions(), indent=1) + "\n")


def checkout() -> str | None:
    """The commit of the checkout that hios runs from, and whether it was modified; None outside a checkout."""
    import subprocess  # as above

    root = Path(__file__).resolve().parents[2]
    git = shutil.which("git")
    if git is None or not (root / ".git").exists():
        return None

    def ask(*arguments: str) -> str | None:
        done = subprocess.run(  # noqa: S603  the arguments are ours
            [git, "--no-optional-locks", "-C", str(root), *arguments], capture_output=True, text=True, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else None

    commit, changes = ask("rev-parse", "--short=12", "HEAD"), ask("status", "--porcelain")
    if commit is None or changes is None:
        return None
    return f"commit {commit}, {'with uncommitted changes' if changes else 'no uncommitted changes'}"
