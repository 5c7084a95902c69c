"""Programs of torch.export with open dimensions, exported again for fixed shapes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn
from torch.export import Dim

from hios.cli import main
from hios.cli.files import export
from hios.errors import ArtifactError, HiosError, UnsupportedError
from hios.frontends import program as programs


class Open(nn.Module):
    """Takes images of any size, and a value for each."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        """A view whose size depends on that of the image."""
        return (self.stem(x) * scale[:, None, None, None]).view(x.shape[0], -1)


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """A program that leaves batch, height and width open."""
    batch, sizes = Dim("batch", min=1, max=8), {2: Dim("height", min=4, max=64), 3: Dim("width", min=4, max=64)}
    program = torch.export.export(
        Open().eval(),
        (torch.randn(2, 3, 8, 9), torch.ones(2)),
        dynamic_shapes={"x": {0: batch, **sizes}, "scale": {0: batch}},
    )
    torch.export.save(program, tmp_path / "given.pt2")
    return tmp_path / "given.pt2"


def test_shapes_are_fixed(given: Path, tmp_path: Path) -> None:
    """With shapes for all inputs the program is exported for them, with the names of its weights."""
    out = tmp_path / "fixed.pt2"
    shapes = {"x": [3, 3, 16, 12], "scale": [3]}
    text = export(str(given), out, {}, inputs=shapes, trusted=True)
    assert text.startswith(f"{given}, input float32 [3, 3, 16, 12], float32 [3], 112 weights")
    program, loaded = programs.load(out), torch.export.load(given)
    assert set(program.state_dict) == {"stem.weight", "stem.bias"}
    assert not program.range_constraints
    inputs = torch.randn(3, 3, 16, 12), torch.randn(3)
    torch.testing.assert_close(program.module()(*inputs), loaded.module()(*inputs))


def test_the_message_lists_what_is_open(given: Path, tmp_path: Path) -> None:
    """Without shapes the message has the options to give; without trust it says that trust is needed."""
    out = tmp_path / "fixed.pt2"
    with pytest.raises(
        UnsupportedError,
        match=r"input x \[\?, 3, \?, \?\]; input scale \[\?\]; give --input x=\?x3x\?x\? --input scale=\?",
    ):
        export(str(given), out, {}, trusted=True)
    with pytest.raises(UnsupportedError, match=r"in input scale \[\?\]"):
        export(str(given), out, {}, inputs={"x": [1, 3, 8, 8]}, trusted=True)
    with pytest.raises(ArtifactError, match="give --trust and --input NAME=SIZES"):
        export(str(given), out, {}, inputs={"x": [1, 3, 8, 8], "scale": [1]})
    assert not out.exists()


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"y": [1]}, "inputs: found y; allowed: x, scale"),
        ({"x": [1, 3, 8]}, r"inputs: x: found 3 dimensions; allowed: 4, \[\?, 3, \?, \?\]"),
        ({"x": [1, 4, 8, 8], "scale": [1]}, "found 4 for dimension 1; allowed: 3, which the program fixes"),
        ({"x": [1, 3, 8, 8], "scale": [2]}, "inputs: cannot run on these shapes"),
        ({"x": [1, 3, 8, 999], "scale": [1]}, "inputs: cannot run on these shapes"),
    ],
)
def test_shapes_that_the_program_does_not_allow(
    given: Path, tmp_path: Path, shapes: dict[str, list[int]], message: str
) -> None:
    """Unknown inputs, other numbers of dimensions and sizes that the program excludes are refused."""
    with pytest.raises(HiosError, match=message):
        export(str(given), tmp_path / "fixed.pt2", {}, inputs=shapes, trusted=True)


def test_input_option(given: Path, tmp_path: Path) -> None:
    """The command line takes the shapes."""
    out = tmp_path / "fixed.pt2"
    arguments = ["export", str(given), "--output", str(out), "--trust"]
    result = CliRunner().invoke(main, [*arguments, "--input", "x=1x3x8x8", "--input", "scale=1"])
    assert result.exit_code == 0, result.output
    assert programs.tensor_types(programs.load(out))[0] == [((1, 3, 8, 8), torch.float32), ((1,), torch.float32)]
