"""The session of convolutions alone: measured on two cores at a tiny size, and the figures drawn from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hios import platforms
from hios.errors import PlatformError
from hios.files import artifacts
from hios.files.base import Platform
from hios.formats.config import ConvolutionStudy, Study
from hios.formats.study import ConvolutionsFile, ConvolutionSize, Pair
from hios.machine.description import usable_cores
from hios.study import registry
from hios.study.figure_data import FigureData
from hios.study.rows import Rows
from hios.study.sessions import CONVOLUTION_SIZES, convolution_sizes
from tests.cli.commands import refused, succeed

#: Two convolutions at once take 0.75 of the time of one after the other on small images, 1.5 times as long on others.
MADE = ConvolutionsFile(
    platform=Platform(name="cpu", devices=2, cores=((0,), (1,))),
    versions={"hios": "0.1.0"},
    measured_at="2026-01-01T00:00:00Z",
    kernel=5,
    channels=48,
    repeats=3,
    sizes=(
        ConvolutionSize(8, alone_ms=1.0, both_cores_ms=1.0, at_once_ms=1.5, hand_over_ms=0.5, output_bytes=12288),
        ConvolutionSize(64, alone_ms=8.0, both_cores_ms=4.0, at_once_ms=12.0, hand_over_ms=2.0, output_bytes=786432),
    ),
    pairs=(Pair(("conv", "relu"), 64, 8.0, 10.0), Pair(("relu", "relu"), 64, 2.0, 3.0)),
    seconds=1.5,
)


def _rows(name: str) -> Rows:
    return registry.figure(name).rows(FigureData(convolutions=(MADE,)))


def test_two_at_once_over_one_after_the_other() -> None:
    """Both convolutions count: the quotient is over two of those on both cores."""
    figure, rows = registry.figure("hios_fig1"), _rows("hios_fig1")
    assert [row["at once over one after the other"] for row in rows] == [0.75, 1.5]
    assert figure.finding(rows).endswith("0.75 at 8 px, 1.50 at 64 px; at once is faster at these sizes: 8.")
    assert figure.compare(rows) == ()


def test_hand_over_over_convolution() -> None:
    """Over the time of the convolution on one core; the paper's GPUs are predicted at the same sizes."""
    rows = _rows("hios_fig2")
    measured = [row for row in rows if row["mark"] == "measured here"]
    assert [row["hand-over over convolution"] for row in measured] == [0.5, 0.25]
    links = {row["link"] for row in rows if row["mark"] == "predicted"}
    assert {(row["link"], row["image size"]) for row in rows} == {
        (link, size) for link in ("shared memory", *links) for size in (8, 64)
    }
    assert len(links) == 3
    figure = registry.figure("hios_fig2")
    assert all(link in figure.finding(rows) and link in figure.why(rows) for link in links)
    assert "relative to the time of the convolution: 0.50 at 8 px, 0.25 at 64 px." in figure.finding(rows)


def test_pairs() -> None:
    """How much slower the first of a pair is with the second beside it."""
    rows = _rows("opara_fig3")
    assert [row["slower %"] for row in rows] == [25.0, 50.0]
    assert "conv beside relu +25.0 %, relu beside relu +50.0 %" in registry.figure("opara_fig3").finding(rows)


def test_sizes_by_scale() -> None:
    """To 256 px, to 1024 px as the paper, or what the configuration says."""
    assert [convolution_sizes(Study(scale=scale)) for scale in ("quick", "full")] == [
        CONVOLUTION_SIZES["quick"],
        CONVOLUTION_SIZES["full"],
    ]
    assert convolution_sizes(Study(convolutions=ConvolutionStudy(sizes=(8,)))) == (8,)


@pytest.mark.slow
@pytest.mark.skipif(len(usable_cores()) < 2, reason="needs two cores")
def test_measured(tmp_path: Path) -> None:
    """Every size and pair is measured; the file keeps to its schema and is read again."""
    pytest.importorskip("torch")
    output = tmp_path / "convolutions.json"
    options = ["--size", "8", "--size", "4", "--channels", "2", "--repeats", "2"]
    succeed("study", "convolutions", *options, "--output", output)
    written = artifacts.load(output, ConvolutionsFile)
    assert [size.image_size for size in written.sizes] == [4, 8]
    assert [size.output_bytes for size in written.sizes] == [4 * 2 * 16, 4 * 2 * 64]
    times = [(s.alone_ms, s.both_cores_ms, s.at_once_ms, s.hand_over_ms) for s in written.sizes]
    assert min(min(row) for row in times) > 0
    assert [pair.kinds for pair in written.pairs] == [(a, b) for a in ("conv", "relu") for b in ("conv", "relu")]
    assert {pair.image_size for pair in written.pairs} == {8}
    assert written.platform.devices == 2
    data = FigureData.read([output])
    assert data.seconds == written.seconds
    assert len(registry.figure("hios_fig1").rows(data)) == 2


def test_one_core_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where only one core can be used, in one line."""

    def describe(name: str, devices: int, **_: object) -> Platform:
        raise PlatformError(f"platform {name}: devices: found {devices}; allowed: 1 to 1")

    monkeypatch.setattr(platforms, "describe", describe)
    message = refused("study", "convolutions", "--output", tmp_path / "convolutions.json")
    assert message == "platform cpu: devices: found 2; allowed: 1 to 1"
