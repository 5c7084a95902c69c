"""Networks that were prepared for machines without TVM."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.frontends.small_networks import PREPARED, prepared
from tests.platforms.cuda.prepare import NETWORKS, prepare


def test_prepared_networks_are_those_that_are_extracted(tmp_path: Path) -> None:
    """What tests of GPUs read is what TVM extracts; `python -m tests.platforms.cuda.prepare` writes it anew."""
    prepare(tmp_path)
    committed = {path.relative_to(PREPARED): path.read_bytes() for path in PREPARED.rglob("*.json")}
    assert committed == {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*.json")}
    for name, make in NETWORKS.items():
        fresh = make()
        made = prepared(name, fresh.module, fresh.inputs)
        assert made.graph.fingerprint == fresh.graph.fingerprint
        assert made.tensors.keys() == fresh.tensors.keys()
        assert all(torch.equal(made.tensors[key], tensor) for key, tensor in fresh.tensors.items())
