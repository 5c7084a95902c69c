"""Costs of a graph on a platform where nothing runs: predicted, to costs.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from hios import artifacts, platforms
from hios.formats.costs_file import CostsFile
from hios.graph import Graph


def predict(
    graph: str | Path, output: str | Path, platform: str, devices: int, options: Mapping[str, str]
) -> CostsFile:
    """Predict what a graph costs and write costs.json; returns what it holds.

    Args:
        graph: graph.json.
        output: costs.json to write.
        platform: one of ``PLATFORMS`` on which nothing runs.
        devices: number of devices.
        options: of the platform, by name.

    Raises:
        HiosError: bad graph, an unknown platform, or options that it does not have.
    """
    known = Graph.read(graph)
    described = platforms.describe(platform, devices, options=options)
    costs = msgspec.structs.replace(
        platforms.predicting(platform).costs(known, described),
        graph=known.name,
        graph_fingerprint=known.fingerprint,
        platform=described,
    )
    artifacts.write(output, "costs", costs)
    return costs
