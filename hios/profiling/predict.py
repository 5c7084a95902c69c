"""Predicted costs of a graph, on a platform that runs nothing."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from hios import platforms
from hios.core.costs import CostsFile
from hios.core.graph import Graph


def predict(graph: Graph, platform: str, devices: int, options: Mapping[str, str]) -> CostsFile:
    """Predict the costs of a graph; a `HiosError` for an unknown platform, or options that it does not have."""
    described = platforms.describe(platform, devices, options=options)
    return msgspec.structs.replace(
        platforms.predicting(platform).costs(graph, described),
        graph=graph.name,
        graph_fingerprint=graph.fingerprint,
        platform=described,
    )
