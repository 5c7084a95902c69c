"""SqueezeNet on small images."""

from __future__ import annotations

from pathlib import Path

import pytest

from hios import Graph
from tests.frontends.small_networks import Files, write_squeezenet


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """program.pt2, graph.json and weights."""
    return write_squeezenet(tmp_path_factory.mktemp("platforms"))


@pytest.fixture(scope="session")
def graph_file(files: Files) -> Path:
    """graph.json."""
    return files.graph


@pytest.fixture(scope="session")
def graph(files: Files) -> Graph:
    """The graph."""
    return Graph.read(files.graph)
