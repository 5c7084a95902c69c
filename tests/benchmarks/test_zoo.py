"""benchmarks/zoo.py: rows of models that come through, and of those that do not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks import zoo


@pytest.mark.slow
def test_an_onnx_file_comes_through(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its row has operators and edges, whatever process it was extracted in; the given shape fixes open dimensions."""
    pytest.importorskip("onnxscript")
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1)).eval()
    path = tmp_path / "net.onnx"
    dynamic = {"input": {2: torch.export.Dim("height", min=4), 3: torch.export.Dim("width", min=4)}}
    torch.onnx.export(network, (torch.ones(1, 3, 8, 8),), path, dynamic_shapes=dynamic, verbose=False)
    status = zoo.main([f"{path},input=1x3x8x8"])
    _, _, row, _, last = capsys.readouterr().out.splitlines()
    assert row.startswith(f"| {path},input=1x3x8x8 | 2 | 1 | ")
    assert row.endswith(" | equal outputs |")
    assert (last, status) == ("1 of 1 come through", 0)


def test_reasons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model that does not come through has the last line of its error, and the exit status says so."""
    assert zoo.main([f"{tmp_path}/absent.onnx"]) == 1
    row = capsys.readouterr().out.splitlines()[2]
    assert f"{tmp_path}/absent.onnx: " in row.removeprefix(f"| {tmp_path}/absent.onnx | ")


def test_time_limit(capsys: pytest.CaptureFixture[str]) -> None:
    """A process that takes too long is stopped."""
    assert zoo.main(["resnet18", "--timeout", "0.01"]) == 1
    assert "| not finished after 0.01 s |" in capsys.readouterr().out
