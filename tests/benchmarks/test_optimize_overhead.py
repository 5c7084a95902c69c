"""benchmarks/optimize_overhead.py: rows of networks beside runtimes by hand."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import benchmarks.networks
from hios.errors import UnsupportedError


@pytest.fixture
def overhead(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The script, which imports the module beside it as a script does, with a small network and no choice of hios."""
    pytest.importorskip("onnxruntime")
    monkeypatch.syspath_prepend(str(Path(benchmarks.networks.__file__).parent))
    script = importlib.import_module("optimize_overhead")
    monkeypatch.setattr(script, "build_model", lambda *_: (nn.Linear(2, 3), (torch.ones(1, 2),)))
    monkeypatch.setattr(script, "_PAUSES_S", (0.0,))
    yield script
    for name in ("optimize_overhead", "zoo"):
        sys.modules.pop(name, None)


def _chosen(model: nn.Module, inputs: Any, **_: Any) -> Any:
    class Fast(nn.Module):
        report = SimpleNamespace(chosen="the model itself", provisional=False)

        def forward(self, *given: Any) -> Any:
            return model(*given)

        def close(self) -> None:
            pass

    return Fast()


@pytest.mark.parametrize("refused", [(), ("openvino",), ("openvino", "onnxruntime")])
def test_rows_lack_what_no_runtime_ran(
    refused: tuple[str, ...], overhead: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A runtime that refuses a network leaves a cell empty and says why; where all do, nothing is compared."""

    def bound(kind: str, *_: Any) -> Callable[[], object]:
        if kind in refused:
            raise UnsupportedError(f"{kind} lacks an operator")
        return lambda: None

    monkeypatch.setattr(overhead.hios, "optimize", _chosen)
    monkeypatch.setattr(overhead, "_bound", bound)
    row, *reasons = overhead.side_by_side("net", tmp_path).splitlines()
    name, eager, *by_hand, hios_ms, chosen, more_us, ratio = row.strip("| ").split(" | ")
    assert (name, chosen) == ("net", "the model itself")
    assert float(eager) >= 0
    assert float(hios_ms) >= 0
    assert [bool(cell) for cell in by_hand] == [kind not in refused for kind, _ in overhead._BY_HAND.values()]
    assert reasons == [
        f"{label}: {kind} lacks an operator" for label, (kind, _) in overhead._BY_HAND.items() if kind in refused
    ]
    assert (ratio == "no runtime by hand") == (not any(by_hand)) == (not more_us)
