"""hios export of functions and of files that somebody exported, those with open dimensions among them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn
from torch.export import Dim

from hios.cli import main
from hios.cli.files import export
from hios.errors import ArtifactError, HiosError, HiosWarning, UnsupportedError
from hios.frontends import program as programs
from hios.frontends.export import export_module
from hios.frontends.model_declarations import Declarations
from tests.frontends.small_networks import Model
from tests.refusals import refused

_MODULE = """
import torch
from torch import nn


class Net(nn.Module):
    hios_units = "operator"
    hios_blocks = ("first",)

    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(3, width, 1)

    def forward(self, x):
        return torch.relu(self.first(x))


def build(*, image_size=8, width=4):
    return Net(width), (torch.zeros(1, 3, image_size, image_size),)


def anything(**options):
    return build()


def needs(*, depth):
    return build()


def alone():
    return build()[0]


def numbers():
    return build()[0], (1,)


def listed():
    return build()[0], list(build()[1])


def empty():
    return ()


def elsewhere():
    return build()[0].to("meta"), build()[1]


def fails():
    return build(width="wide")


def traces():
    class Branches(nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x

    return Branches(), (torch.ones(1),)


def declares():
    net = build()[0]
    net.hios_blocks = ("second",)
    return net, build()[1]


def undefined():
    class Logarithms(nn.Module):
        def forward(self, x):
            return {"good": x, "bad": x.log()}

    return Logarithms(), (torch.tensor([-1.0, 1.0, 2.0]),)


constant = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a user's module in the current folder, which no other test has imported."""
    name = f"net_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(_MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


def test_function(module: str, tmp_path: Path) -> None:
    """A function is called with the options; weights are its own, by the seed; declarations are stored."""
    text = export(f"{module}:build", tmp_path / "a.pt2", {"width": 5, "image_size": 9}, seed=3)
    assert text == f"{module}:build, input float32 [1, 3, 9, 9], 20 weights"
    program = programs.load(tmp_path / "a.pt2")
    torch.manual_seed(3)
    assert torch.equal(program.state_dict["first.weight"], nn.Conv2d(3, 5, 1).weight)
    declared = programs.declarations(tmp_path / "a.pt2")
    assert (declared.units, declared.blocks) == ("operator", ("first",))


def test_function_of_any_options(module: str, tmp_path: Path) -> None:
    """A function that takes any keyword is given any."""
    export(f"{module}:anything", tmp_path / "a.pt2", {"color": "red"})
    assert (tmp_path / "a.pt2").is_file()


class _Remembers(nn.Module):
    """Makes a buffer of the size of its input when it runs for the first time, as ConViT does."""

    ramp: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ramp", torch.zeros(1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.ramp.shape[0] != x.shape[1]:
            self.ramp = torch.arange(float(x.shape[1]))
        return x + self.ramp


def test_buffers_of_the_first_run() -> None:
    """A model may make its buffers when it first runs."""
    x = torch.randn(2, 5)
    program = export_module(_Remembers(), (x,))
    assert torch.equal(program.exported.module()(x), x + torch.arange(5.0))


def test_outputs_of_nan_are_named(module: str, tmp_path: Path) -> None:
    """A model whose outputs hold NaN is exported with a warning that names them: comparing them would show nothing."""
    with pytest.warns(HiosWarning, match=r"undefined: NaN in output\['bad'\] \(1 of 3 values\) on its example inputs"):
        export(f"{module}:undefined", tmp_path / "a.pt2", {})
    assert (tmp_path / "a.pt2").is_file()


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        ("build", {"depth": 1}, "model {0}:build: unknown option depth; allowed: image_size, width"),
        ("alone", {"depth": 1}, "model {0}:alone: unknown option depth; allowed: none"),
        ("needs", {}, "model {0}:needs: the option depth is missing; it has no default"),
        ("nothing", {}, "{0}:nothing: {1} has no function nothing; it must return the module and a tuple of example"),
        ("constant", {}, "{0}:constant: {1} has no function constant; "),
        ("alone", {}, "model {0}:alone: cannot be run with its defaults: {1}: TypeError: alone returned Net; allowed:"),
        ("numbers", {}, "TypeError: numbers returned a tuple of Net and a tuple of int; allowed: the module and a"),
        (
            "listed",
            {},
            "TypeError: listed returned a tuple of Net and list; allowed: the module and a tuple of example",
        ),
        (
            "empty",
            {},
            "TypeError: empty returned a tuple of nothing; allowed: the module and a tuple of example inputs",
        ),
        ("elsewhere", {}, "ValueError: first.weight is on the device meta; allowed: cpu; make or move it there"),
        ("fails", {}, "model {0}:fails: cannot be run with its defaults: {1}:12: TypeError: "),
        ("traces", {}, "torch.export cannot export Branches: {1}:57: Could not guard on data-dependent expression"),
        ("declares", {}, "model {0}:declares: hios_blocks: found second, which is not a submodule of Net; allowed: "),
    ],
)
def test_bad_functions(module: str, tmp_path: Path, function: str, options: dict[str, Any], message: str) -> None:
    """What is wrong with a function, its options or its model is said in one line that leads to it; no file appears."""
    with refused("", message.format(module, tmp_path / f"{module}.py")):
        export(f"{module}:{function}", tmp_path / "a.pt2", options)
    assert not (tmp_path / "a.pt2").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import not_there_at_all", "{0}:build: {0} imports not_there_at_all, which is not installed"),
        ("x = 1\nx.y", "{1}:2: cannot be imported: AttributeError: 'int' object has no attribute 'y'"),
        ("def (", "{1}:1: cannot be imported: SyntaxError: "),
        ("raise SystemExit(3)", "{1}:1: cannot be imported: SystemExit: 3"),
    ],
)
def test_modules_that_cannot_be_imported(module: str, tmp_path: Path, text: str, message: str) -> None:
    """An error in a user's module leads to its line."""
    file = tmp_path / f"{module}.py"
    file.write_text(text)
    with refused(message.format(module, file)):
        export(f"{module}:build", tmp_path / "a.pt2", {})


def test_missing_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says where a module was looked for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    start = "no_such_package.net:build: no module no_such_package in the current folder, "
    with refused(start, str(tmp_path)):
        export("no_such_package.net:build", tmp_path / "a.pt2", {})


class Double(nn.Module):
    """A model without weights."""

    def forward(self, x: Tensor) -> Tensor:
        """Twice the input."""
        return x * 2


def test_pt2(tmp_path: Path) -> None:
    """A program that torch saved is copied without its example inputs; the declarations of hios stay."""
    given = tmp_path / "given.pt2"
    torch.export.save(torch.export.export(Double(), (torch.ones(3),)), given)
    assert export(str(given), tmp_path / "a.pt2", {}) == f"{given}, input float32 [3], 0 weights"
    program = programs.load(tmp_path / "a.pt2")
    assert not program.example_inputs
    assert torch.equal(program.module()(torch.ones(3)), torch.full((3,), 2.0))
    programs.save(program, given, Declarations("relu-sepconv"))
    export(str(given), tmp_path / "b.pt2", {})
    assert programs.declarations(tmp_path / "b.pt2").units == "relu-sepconv"


def test_open_shapes_are_refused(tmp_path: Path) -> None:
    """A program whose shapes are not fixed is refused, trusted or not, and nothing is written."""
    given, dimension = tmp_path / "given.pt2", torch.export.Dim("n", min=2, max=8)
    torch.export.save(torch.export.export(Double(), (torch.ones(3),), dynamic_shapes={"x": {0: dimension}}), given)
    for trusted, kind in ((False, ArtifactError), (True, UnsupportedError)):
        with pytest.raises(kind, match=r"not fixed.*export it without dynamic_shapes"):
            export(str(given), tmp_path / "a.pt2", {}, trusted=trusted)
    assert [path.name for path in tmp_path.iterdir()] == ["given.pt2"]


@pytest.mark.parametrize(
    ("text", "output", "options", "trusted", "message"),
    [
        ("given.pt2", "a.onnx", {}, False, "found the ending .onnx; allowed: .pt2"),
        ("given.pt2", "a", {}, False, "found the ending none; allowed: .pt2"),
        ("squeezenet", "a.bin", {}, False, "found the ending .bin; allowed: .pt2"),
        ("given.onnx", "a.pt2", {}, False, "found the ending .pt2; allowed: .onnx"),
        ("given.pt2", "a.pt2", {"image_size": 3}, False, "found the option image_size, but the file holds a finished"),
        ("given.onnx", "a.onnx", {"batch_size": 1, "classifier": True}, False, "found the option classifier, but"),
        ("squeezenet", "a.pt2", {}, True, "found the option trust; allowed: for .pt2 files"),
        ("given.pt2", "a.pt2", {}, False, "given.pt2: cannot be read: no such file"),
    ],
)
def test_refusals(tmp_path: Path, text: str, output: str, options: dict[str, Any], trusted: bool, message: str) -> None:
    """Endings, options and trust that do not fit a kind of model are refused before anything is made."""
    with refused("", message):
        export(text, tmp_path / output, options, trusted=trusted)
    assert list(tmp_path.iterdir()) == []


class Pair(NamedTuple):
    """Two outputs with names."""

    sum: Tensor
    product: Tensor


def test_outputs_of_other_types(tmp_path: Path) -> None:
    """Outputs in a named tuple are a flat tuple in program.pt2: what hios writes is loaded without trust."""
    program = programs.export(Model(lambda m, x: {"both": Pair(x[:1] + 1, x[1:] * 2)}), (torch.ones(2),))
    programs.save(program, tmp_path / "a.pt2")
    outputs = programs.load(tmp_path / "a.pt2").module()(torch.ones(2))
    torch.testing.assert_close(outputs, (torch.full((1,), 2.0), torch.full((1,), 2.0)))


def test_operators_that_are_not_aten() -> None:
    """A program within the program is refused when it is exported, with the line of the model."""
    module = Model(
        lambda m, x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (m.inner(x),)), inner=nn.ReLU()
    )
    with pytest.raises(UnsupportedError, match=r"^Model: found cond .*allowed: ATen operators on tensors"):
        programs.export(module, (torch.ones(2),))


class Open(nn.Module):
    """Takes images of any size, and a value for each."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        """A view whose size depends on that of the image."""
        return (self.stem(x) * scale[:, None, None, None]).view(x.shape[0], -1)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that leaves batch, height and width open."""
    path = tmp_path_factory.mktemp("given") / "given.pt2"
    batch, sizes = Dim("batch", min=1, max=8), {2: Dim("height", min=4, max=64), 3: Dim("width", min=4, max=64)}
    program = torch.export.export(
        Open().eval(),
        (torch.randn(2, 3, 8, 9), torch.ones(2)),
        dynamic_shapes={"x": {0: batch, **sizes}, "scale": {0: batch}},
    )
    torch.export.save(program, path)
    return path


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


@pytest.mark.parametrize("declared", [(), (120, 9, None)])
@pytest.mark.parametrize("is_open", [True, False])
def test_ranges_of_whole_numbers(tmp_path: Path, declared: tuple[int | None, ...], is_open: bool) -> None:
    """Whole numbers have the range that the file declares, else that of its example inputs, for other shapes too."""
    module = Model(lambda model, tokens, scale: tokens["words"] * scale + tokens["types"])
    inputs = {"words": torch.full((2, 3), 49), "types": torch.full((2, 1), 7)}, torch.ones(2, 3)
    batch = {0: Dim("batch", min=1, max=8)} if is_open else {}
    program = torch.export.export(module, inputs, dynamic_shapes=[({"words": batch, "types": batch}, batch)])
    given, out = tmp_path / "given.pt2", tmp_path / "fixed.pt2"
    torch.export.save(program, given, extra_files={"hios.json": Declarations(below=declared).json()})
    shapes = {"inputs_0_words": [3, 3], "inputs_0_types": [3, 1], "inputs_1": [3, 3]}
    export(str(given), out, {}, inputs=shapes if is_open else {}, trusted=True)
    assert programs.declarations(out).below == (declared or (50, 8, None))


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
