"""Programs of torch.export: what they take and give, and that they do what their module does.

Regions under autocast or without gradients within a model: their operators join those of the model.
"""

from __future__ import annotations

import json
import resource
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import hios
from hios.cli.files import extract
from hios.errors import ArtifactError, UnsupportedError
from hios.frontends import program as programs
from hios.frontends.example_inputs import inputs_like
from hios.frontends.extract import extract_program
from hios.frontends.extraction_check import run_graph
from hios.frontends.program_interface import flat_module
from tests.frontends.small_networks import Model, extracted
from tests.refusals import refused

_X, _Y = torch.arange(4.0), torch.arange(4.0, 8.0)


class _Keyword(nn.Module):
    def forward(self, x: Tensor, *, y: Tensor) -> Tensor:
        return x - y


def _saved(
    folder: Path, model: nn.Module | Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any] | None = None
) -> Path:
    """A file that somebody else exported."""
    module = model if isinstance(model, nn.Module) else Model(model)
    torch.export.save(torch.export.export(module, args, named), folder / "given.pt2")
    return folder / "given.pt2"


@pytest.mark.parametrize("same", [lambda x: x, lambda x: x.view(2, 2).view(4), lambda x: x[:2]])
def test_inputs_in_the_same_memory(same: Callable[[Tensor], Tensor]) -> None:
    """Two inputs stay two where the example inputs are one tensor, or views of one."""
    network = extracted(Model(lambda model, x, y: 2 * x.sum() - y), (_X, same(_X)))
    other = (torch.ones(4), torch.full(same(_X).shape, 3.0))
    torch.testing.assert_close(run_graph(network.graph, network.tensors, other), [8.0 - other[1]])


@pytest.mark.parametrize(
    ("model", "args", "named"),
    [
        (_Keyword(), (_X,), {"y": _Y}),
        (lambda model, both: both["x"] - both["y"], ({"x": _X, "y": _Y},), {}),
        (lambda model, both: both["x"] - both["y"], (OrderedDict(x=_X, y=_Y),), {}),
        (lambda model, both: both[0] - both[1][0], ([_X, (_Y,)],), {}),
        (lambda model, x, y: x - y, (_X, _Y), {}),
    ],
)
def test_structures_of_inputs(
    tmp_path: Path, model: nn.Module | Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]
) -> None:
    """Inputs by keyword, in dictionaries and in lists are inputs of the graph in order, and given in order."""
    given = _saved(tmp_path, model, args, named)
    graph = extract(given, tmp_path / "graph.json", tmp_path / "weights.safetensors", "test")
    assert [entry.shape for entry in graph.inputs] == [(4,), (4,)]
    assert torch.equal(flat_module(programs.load(given))(_X, _Y), _X - _Y)


@pytest.mark.parametrize(("value", "text"), [(3, "int 3"), (None, "None"), ("word", "str word"), (0.5, "float 0.5")])
def test_inputs_that_are_not_tensors(tmp_path: Path, value: Any, text: str) -> None:
    """They are refused by name as soon as the program is loaded."""
    given = _saved(tmp_path, lambda model, x, number: x * 2, (_X, value))
    with pytest.raises(UnsupportedError, match=rf"given.pt2: found the input \w+, which is {text}; allowed: tensors"):
        programs.load(given)


def test_outputs_that_are_none(tmp_path: Path) -> None:
    """They are left out, in what hios exports and in what others did."""

    def forward(model: Any, x: Tensor) -> Any:
        return {"first": None, "rest": [x * 2, None, (x + 1,)]}

    programs.save(programs.export(Model(forward), (_X,)), tmp_path / "own.pt2")
    for path in (tmp_path / "own.pt2", _saved(tmp_path, forward, (_X,))):
        program = programs.load(path)
        torch.testing.assert_close(flat_module(program)(_Y), (_Y * 2, _Y + 1))
        graph = extract(path, tmp_path / "graph.json", tmp_path / "weights.safetensors", "test")
        assert len(graph.outputs) == len(programs.tensor_types(program)[1]) == 2


def test_outputs_that_are_not_tensors(tmp_path: Path) -> None:
    """An output that is a number is refused at export, and in a file exported elsewhere."""

    def forward(model: Any, x: Tensor) -> Any:
        return x * 2, 3

    with pytest.raises(UnsupportedError, match=r"^Model: found the output 1, which is int 3; allowed: tensors"):
        programs.export(Model(forward), (_X,))
    with pytest.raises(UnsupportedError, match=r"given.pt2: found the output 1, which is int 3"):
        programs.load(_saved(tmp_path, forward, (_X,)))


def test_values_named_self(tmp_path: Path) -> None:
    """A renamed value that would hide torch's own is refused; running it would end in a traceback."""
    program = torch.export.export(Model(lambda model, x: x * 2), (_X,))
    program.graph.find_nodes(op="placeholder")[0].name = "self"
    for spec in program.graph_signature.input_specs:
        spec.arg.name = "self"
    torch.export.save(program, tmp_path / "a.pt2")
    with pytest.raises(ArtifactError, match="found a value named self"):
        programs.load(tmp_path / "a.pt2")


def test_weights_of_other_shapes(tmp_path: Path) -> None:
    """A file whose weight would not fit into the memory is refused in one line, before anything is made of it."""
    given = _saved(tmp_path, nn.Conv2d(1, 1, 1, bias=False), (torch.ones(1, 1, 2, 2),))
    edited = tmp_path / "edited.pt2"
    with zipfile.ZipFile(given) as old, zipfile.ZipFile(edited, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("model_weights_config.json"):
                config = json.loads(data)
                config["config"]["weight"]["tensor_meta"].update(sizes=[{"as_int": 2**50}], strides=[{"as_int": 0}])
                data = json.dumps(config).encode()
            new.writestr(name, data)
    with pytest.raises(ArtifactError, match=r"edited\.pt2: the weight weight: found 4,503,599\.6 GB; allowed: at most"):
        extract(edited, tmp_path / "graph.json", tmp_path / "weights.safetensors", "test")
    assert not (tmp_path / "graph.json").exists()


@pytest.mark.parametrize(
    ("dtype", "largest"),
    [(torch.uint8, 200), (torch.uint16, 300), (torch.uint32, 300), (torch.uint64, 2**63), (torch.int64, 2**63 - 1)],
)
def test_large_integers(tmp_path: Path, dtype: torch.dtype, largest: int) -> None:
    """The largest value of the example is found, which torch finds for few dtypes, and no larger one is drawn."""
    given = programs.export(Model(lambda model, x: x.float() * 2), (torch.tensor([1, largest], dtype=dtype),))
    programs.save(given, tmp_path / "program.pt2")
    graph = extract(tmp_path / "program.pt2", tmp_path / "graph.json", tmp_path / "weights.safetensors", "test")
    (spec,) = graph.inputs
    assert (spec.dtype, spec.below) == (str(dtype).removeprefix("torch."), largest + 1)
    in_memory, _ = hios.extract(given)
    assert in_memory.inputs == graph.inputs


@pytest.mark.parametrize("kind", [lambda h: h, lambda h: h.imag, nn.Parameter])
def test_weights_that_are_conjugates(tmp_path: Path, kind: Callable[[Tensor], Tensor]) -> None:
    """Files keep the memory of a weight, which a conjugate shares with what it is the conjugate of."""
    weight = kind(torch.fft.fft(torch.arange(6.0)).conj())
    model = Model(lambda model, x: torch.fft.ifft(x * model.h).real, h=nn.Parameter(weight, requires_grad=False))
    x = torch.arange(12.0).reshape(2, 6)
    programs.save(programs.export(model, (x,)), tmp_path / "program.pt2")
    assert torch.equal(programs.load(tmp_path / "program.pt2").module()(x), model(x))
    assert weight.is_conj() or weight.is_neg()  # the user's stays as it is


def test_full_disk(tmp_path: Path) -> None:
    """A program that has no room is not written, in one line; torch's own writer would end the process."""
    program = programs.export(nn.Linear(20, 20).eval(), (torch.ones(1, 20),))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with refused(f"{tmp_path / 'program.pt2'}: cannot be written: File too large", kind=ArtifactError):
            programs.save(program, tmp_path / "program.pt2")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


def test_damaged_after_it_was_compressed(tmp_path: Path) -> None:
    """Whatever byte of a compressed entry is wrong, the file is refused in one line."""
    given, path = _saved(tmp_path, nn.Linear(2, 2), (torch.ones(1, 2),)), tmp_path / "damaged.pt2"
    with zipfile.ZipFile(given) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in sorted(old.namelist(), key=lambda name: "model.json" not in name):
            new.writestr(name, old.read(name))
    data = path.read_bytes()
    for place in range(60, 600, 60):
        path.write_bytes(data[:place] + bytes([data[place] ^ 255]) + data[place + 1 :])
        with refused(f"{path}: ", "export it again", kind=ArtifactError):
            programs.load(path)


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        (lambda model, x: x + torch.rand(2), "rand"),
        (lambda model, x: x + torch.randn_like(x), "randn_like"),
        (lambda model, x: F.dropout(x, 0.5, training=True), "dropout"),
        (lambda model, x: torch.bernoulli(x.sigmoid()), "bernoulli"),
        (lambda model, x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.1), "scaled_dot_product"),
    ],
)
def test_random_numbers_are_refused(function: Callable[..., Any], operator: str) -> None:
    """A model that gives other outputs each time is refused by the operator that makes them differ, and its line."""
    message = rf"^Model: found aten\.{operator}\S* \(\w+\.py:\d+\), which draws random numbers; allowed: "
    with pytest.raises(UnsupportedError, match=message):
        programs.export(Model(function), (_X.view(2, 2),))


@pytest.mark.parametrize(
    "function",
    [
        lambda model, x: F.dropout(x, 0.5, training=False),
        lambda model, x: F.dropout(x, 0.0, training=True),
        lambda model, x: F.scaled_dot_product_attention(x, x, x),
        lambda model, x: F.rrelu(x),
    ],
)
def test_what_could_be_random_is_not(function: Callable[..., Any]) -> None:
    """Dropout and the like are taken where they draw no numbers."""
    programs.export(Model(function), (_X.view(2, 2),))


@pytest.mark.parametrize(
    ("function", "kind", "given"),
    [
        (lambda model, x: x.float() + 1, "input", _X.to(torch.float8_e4m3fn)),
        (lambda model, x: (x + 1).to(torch.float8_e4m3fn), "output", _X),
    ],
)
def test_narrow_floats_outside_are_refused(function: Callable[..., Any], kind: str, given: Tensor) -> None:
    """Floats of 8 bits can neither be drawn nor be compared; the model is to convert them."""
    message = rf"^Model: found an {kind} of float8_e4m3fn \[4\]; allowed: floats of at least 16 bits, [^\n]+$"
    with pytest.raises(UnsupportedError, match=message):
        programs.export(Model(function), (given,))


def test_inputs_that_are_weights() -> None:
    """An input that the model holds as a buffer too stays an input."""
    module = Model(lambda model, x, y: x - y + 2 * model.held, held=_Y)
    output = flat_module(programs.export(module, (_X, _Y)))(_X, torch.zeros(4))
    assert torch.equal(output, _X + 2 * _Y)


def test_state_in_python_is_refused() -> None:
    """A number that changes from run to run would be the same forever in the program."""
    runs: list[None] = []

    def forward(model: Any, x: Tensor) -> Tensor:
        runs.append(None)
        return x + len(runs)

    with pytest.raises(UnsupportedError, match=r"^Model: the exported program differs from the model [^\n]+$"):
        programs.export(Model(forward), (_X,))


def test_models_that_fail_on_other_inputs() -> None:
    """The message of a model that takes only some numbers is passed on in one line."""

    def even(model: Any, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() and x.sum() % 2:
            raise ValueError("odd sum\nof inputs")
        return x * 2

    with pytest.raises(UnsupportedError, match=r"^Model: fails on inputs .*: odd sum; allowed: [^\n]+$"):
        programs.export(Model(even), (torch.zeros(4),))


def test_buffers_are_as_before() -> None:
    """Comparing does not count as a run of the model: what it keeps in buffers stays."""
    module = nn.BatchNorm1d(2).train()
    before = {name: value.tolist() for name, value in module.named_buffers()}
    programs.export(module, (torch.randn(3, 2, generator=torch.Generator().manual_seed(0)),))
    assert {name: value.tolist() for name, value in module.named_buffers()} == before


def test_inputs_like() -> None:
    """Random inputs have shapes and dtypes of the given ones; whole numbers stay within what these show."""
    given = (torch.zeros(2, 3, dtype=torch.float16), torch.tensor([0, 5] * 50), torch.tensor([True]), torch.zeros(0))
    inputs = inputs_like(given, seed=0)
    assert [(value.shape, value.dtype) for value in inputs] == [(value.shape, value.dtype) for value in given]
    assert sorted(set(inputs[1].tolist())) == [0, 1, 2, 3, 4, 5]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_modules() -> None:
    """A scripted module, which has no line of Python to name, is refused in one line."""
    scripted = torch.jit.trace(nn.ReLU(), (_X,))
    with pytest.raises(UnsupportedError, match=r"^torch.export cannot export \w+: [^\n]+$"):
        programs.export(scripted, (_X,))


class Regions(nn.Module):
    """A model that switches autocast off for a part of it, as linear attention does for its sums.

    Args:
        enabled: whether it switches autocast on instead.
    """

    def __init__(self, enabled: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self._enabled = enabled

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Two values of the region, one of which is an output."""
        x = self.first(x)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self._enabled):
            total = x.sum(-1, keepdim=True)
            scaled = self.second(x) / (total.abs() + 1)
            with torch.no_grad():
                scaled = scaled * 2
        return torch.relu(scaled), total


def test_regions_join_the_model(tmp_path: Path) -> None:
    """The program has no regions any more, its graph computes what the model does, and it can be written and read."""
    model, x = Regions().eval(), torch.randn(2, 4)
    program = programs.export(model, (x,))
    assert not [node for node in program.graph.nodes if "wrap_with" in str(node.target) or node.op == "get_attr"]
    graph, weights = extract_program(program, "net")
    assert set(weights) == {"first.weight", "first.bias", "second.weight", "second.bias"}
    with torch.no_grad():
        torch.testing.assert_close(run_graph(graph, weights, (x,)), list(model(x)))
        programs.save(program, tmp_path / "net.pt2")
        torch.testing.assert_close(programs.load(tmp_path / "net.pt2").module()(x), model(x))


def test_autocast_that_is_on_is_refused() -> None:
    """What would run in another precision is refused, with the place in the model."""
    with pytest.raises(UnsupportedError, match=r"where autocast is on; allowed: torch\.autocast with enabled=False"):
        programs.export(Regions(enabled=True).eval(), (torch.randn(2, 4),))


def test_an_input_may_be_named_input() -> None:
    """As that of torch.nn.Sequential, whose name a copy of the graph would change."""
    module, inputs = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval(), (torch.ones(2, 4),)
    graph, weights = extract_program(programs.export(module, inputs), "net")
    (output,) = run_graph(graph, weights, inputs)
    torch.testing.assert_close(output, module(*inputs))
