"""Write the graphs that tests of GPUs read where TVM is missing: ``python -m tests.platforms.cuda.prepare``."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.weight_recipes import recipe_of
from tests.frontends.small_networks import PREPARED, SHARED_FOLDER, Network
from tests.platforms.cuda.test_executor import shared, squeezenet
from tests.runtime.small import branches
from tests.serving.served import blocks

#: By the names under which they are extracted.
NETWORKS: dict[str, Callable[[], Network]] = {
    "blocks": blocks,
    "branches": branches,
    "shared": shared,
    "squeezenet-64-1": squeezenet,
}


def prepare(folder: Path) -> None:
    """Write graphs and recipes."""
    for name, make in NETWORKS.items():
        own, network = folder / name, make()
        own.mkdir(parents=True, exist_ok=True)
        network.graph.write(own / "graph.json")
        recipe = recipe_of(network.tensors, network.module)
        if missing := network.tensors.keys() - recipe.keys():
            raise ValueError(f"{name}: no recipe makes {', '.join(sorted(missing))}")
        (own / "recipe.json").write_text(f"{json.dumps(recipe)}\n", encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as shared_folder:
        os.environ[SHARED_FOLDER] = shared_folder
        prepare(PREPARED)
