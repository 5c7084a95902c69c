"""The papers' networks as graphs, from `hios.study.reference_networks`, for scripts of this folder and tests.

Networks of models/, extracted by commands, and environments of other packages, for scripts of this folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hios.study.reference_networks import (
    RANDWIRE_FILES,
    googlenet,
    inception_v3,
    nasnet_large,
    randwire,
    resnet50,
    squeezenet,
    synthetic_costs,
)

__all__ = [
    "KIND",
    "RANDWIRE_FILES",
    "environment",
    "extracted",
    "googlenet",
    "hios",
    "inception_v3",
    "nasnet_large",
    "randwire",
    "resnet50",
    "squeezenet",
    "synthetic_costs",
]

#: Kinds of the counting rule, by operator type.
KIND = {
    "conv2d": "conv",
    "conv2d-relu": "conv",
    "relu-sepconv": "relu-sepconv",
    "relu-conv2d": "relu-conv",
    "max_pool2d": "pool",
    "avg_pool2d": "pool",
    "adaptive_avg_pool2d": "pool",
    "concat": "concat or add",
    "add": "concat or add",
    "relu": "other",
}


def hios(*arguments: object) -> None:
    """Run a command of hios; what it prints goes to standard error."""
    subprocess.run([sys.executable, "-m", "hios", *map(str, arguments)], check=True, stdout=sys.stderr)


def environment(home: Path, packages: Sequence[str]) -> None:
    """An environment for other packages, made unless it is there with those that are stated."""
    stamp = home / "installed.json"
    if stamp.exists() and json.loads(stamp.read_text()) == list(packages):
        return
    print(f"making the environment of {home.name}", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    subprocess.run([str(home / "bin" / "pip"), "install", "--quiet", *packages], check=True)
    stamp.write_text(json.dumps(packages))


def extracted(network: str, folder: Path) -> tuple[Path, Path]:
    """Graph and weights of a network in its folder, extracted unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    graph, weights = folder / "graph.json", folder / "weights.safetensors"
    if not (graph.exists() and weights.exists()):
        hios("export", network, "--output", folder / "program.pt2")
        hios("extract", folder / "program.pt2", "--output", graph, "--weights", weights)
    return graph, weights
