"""Loading a program.pt2 from an untrusted source: nothing in it runs, whatever it contains."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export.pt2_archive import PT2ArchiveReader, PT2ArchiveWriter

from hios.errors import ArtifactError
from hios.formats.aten_operators import is_harmless
from hios.frontends import program as programs
from tests.frontends.small_networks import Model
from tests.refusals import refused

Records = dict[str, bytes]

_PROGRAM = "models/model.json"
_WEIGHTS = "data/weights/model_weights_config.json"
_CONSTANTS = "data/constants/model_constants_config.json"


class Net(nn.Module):
    """Parameters, a buffer, a constant, and two outputs in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("scale", torch.tensor([2.0]))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """A small computation."""
        made = self.linear(x) * self.scale + torch.tensor([1.0, 2.0, 3.0])
        return {"sum": made + 1, "list": torch.relu(made)}


class Payload:
    """Pickled, it makes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (f"open({str(self._marker)!r}, 'w').close()",)


def _saved(value: object) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """The records of a harmless program as torch itself saves it, example inputs included."""
    path = tmp_path_factory.mktemp("archive") / "program.pt2"
    torch.manual_seed(0)
    torch.export.save(torch.export.export(Net(), (torch.ones(2, 3),)), path)
    reader = PT2ArchiveReader(str(path))
    written_by_torch = (".data/", "byteorder", "archive_")
    names = [name for name in reader.get_file_names() if not name.startswith(written_by_torch)]
    return {name: reader.read_bytes(name) for name in names}


def _write(records: Records, path: Path) -> Path:
    with path.open("wb") as stream, PT2ArchiveWriter(stream) as writer:
        for name, data in records.items():
            writer.write_bytes(name, data)
    return path


def _edited(records: Records, name: str, edit: Callable[[dict[str, Any]], object]) -> Records:
    """The records with one JSON record changed in place by ``edit``."""
    data = json.loads(records[name])
    edit(data)
    return {**records, name: json.dumps(data).encode()}


def _graph(program: dict[str, Any]) -> dict[str, Any]:
    graph: dict[str, Any] = program["graph_module"]["graph"]
    return graph


# Each attack changes the records of a harmless program so that torch runs code, which makes the marker.


def _pickled_weight(records: Records, marker: Path) -> Records:
    def edit(config: dict[str, Any]) -> None:
        next(iter(config["config"].values()))["use_pickle"] = True

    return {**_edited(records, _WEIGHTS, edit), "data/weights/weight_0": _saved(Payload(marker))}


def _pickled_constant(records: Records, marker: Path) -> Records:
    def edit(config: dict[str, Any]) -> None:
        next(iter(config["config"].values())).update(use_pickle=True, path_name="opaque_obj_0")

    return {**_edited(records, _CONSTANTS, edit), "data/constants/opaque_obj_0": pickle.dumps(Payload(marker))}


def _with_pickle(name: str) -> Callable[[Records, Path], Records]:
    return lambda records, marker: {**records, name: _saved(Payload(marker))}


def _expression(records: Records, marker: Path) -> Records:
    def edit(program: dict[str, Any]) -> None:
        value = next(iter(_graph(program)["tensor_values"].values()))
        value["sizes"][0] = {"as_expr": {"expr_str": f"open({str(marker)!r}, 'w').close() or 2", "hint": None}}

    return _edited(records, _PROGRAM, edit)


def _name_of_an_input(records: Records, marker: Path) -> Records:
    """Names of nodes stand in the Python code that torch generates, those of inputs in the head of a function."""
    name = json.dumps(f"x=open({str(marker)!r}, 'w')")
    return {**records, _PROGRAM: records[_PROGRAM].replace(b'"x"', name.encode())}


def _importing(kind: str, context: object) -> Callable[[Records, Path], Records]:
    """The structure of the outputs may name a module, which is imported."""
    tree = json.dumps([1, {"type": kind, "context": context, "children_spec": []}])

    def edit(program: dict[str, Any]) -> None:
        program["graph_module"]["module_call_graph"][0]["signature"]["out_spec"] = tree

    def attack(records: Records, marker: Path) -> Records:
        (marker.parent / "hios_test_payload.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
        return _edited(records, _PROGRAM, edit)

    return attack


_ENUMERATION = json.dumps({"__enum__": True, "fqn": "hios_test_payload:Kind", "name": "A"})
_FACTORY = {"default_factory_module": "hios_test_payload", "default_factory_name": "A", "dict_context": []}


ATTACKS: dict[str, tuple[Callable[[Records, Path], Records], str]] = {
    "pickled weight": (_pickled_weight, "asks for pickle"),
    "pickled constant": (_pickled_constant, "opaque_obj_0, which is pickled"),
    "weights of an older format": (_with_pickle("data/weights/model.pt"), "data/weights/model.pt, which is pickled"),
    "constants of an older format": (
        _with_pickle("data/constants/model.pt"),
        "data/constants/model.pt, which is pickled",
    ),
    "name of an input": (_name_of_an_input, "which is not a name"),
    "module named in a structure": (_importing("builtins.list", _ENUMERATION), "has keys that are not a list"),
    "factory named in a structure": (
        _importing("collections.defaultdict", _FACTORY),
        "names the type collections.defaultdict; allowed: ",
    ),
}


def _loaded_and_run(path: Path, trusted: bool) -> None:
    programs.load(path, trusted=trusted).module()(torch.ones(2, 3))


@pytest.mark.parametrize("name", ATTACKS)
def test_attacks_are_refused(records: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A crafted file is refused in one line that says why and what to do, and nothing of it has run."""
    monkeypatch.syspath_prepend(tmp_path)
    attack, reason = ATTACKS[name]
    path, marker = tmp_path / "program.pt2", tmp_path / "marker"
    _write(attack(records, marker), path)
    start = f"{path}: refused, because loading it could run code: "
    with refused(start, reason, "--trust", kind=ArtifactError):
        _loaded_and_run(path, trusted=False)
    assert not marker.exists()


#: torch 2.11 does not load constants of this kind yet.
_PICKLED_CONSTANTS_ARE_LOADED = hasattr(torch.export.pt2_archive.constants, "OPAQUE_OBJ_FILENAME_PREFIX")


@pytest.mark.parametrize("name", ATTACKS)
def test_attacks_are_real(records: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The tests test something: with trust torch is given the same file, and the code in it runs."""
    if name == "pickled constant" and not _PICKLED_CONSTANTS_ARE_LOADED:
        pytest.skip(f"torch {torch.__version__} does not load pickled constants")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "hios_test_payload", raising=False)
    path, marker = tmp_path / "program.pt2", tmp_path / "marker"
    _write(ATTACKS[name][0](records, marker), path)
    with contextlib.suppress(Exception):  # what comes after the code has run may fail
        _loaded_and_run(path, trusted=True)
    assert marker.exists()


def test_names_of_modules_in_other_alphabets(tmp_path: Path) -> None:
    """What stands in quotes within generated code may have every character that cannot end them."""
    layers = {name: nn.Linear(3, 3) for name in ("<paper___cites___paper>", "größe (1)")}
    model = Model(lambda model, x: sum(layer(x) for layer in model.own.values()), own=nn.ModuleDict(layers))
    x = torch.randn(2, 3)
    programs.save(programs.export(model, (x,)), tmp_path / "program.pt2")
    assert torch.equal(programs.load(tmp_path / "program.pt2").module()(x), model(x))


def test_expressions_are_refused(records: Records, tmp_path: Path) -> None:
    """A shape that is an expression, which torch would evaluate, is told apart: trusting it would not help."""
    marker = tmp_path / "marker"
    path = _write(_expression(records, marker), tmp_path / "program.pt2")
    with pytest.raises(ArtifactError, match=r"is a dimension that is not fixed; export it without dynamic_shapes"):
        programs.load(path)
    assert not marker.exists()


def test_example_inputs_run_nothing(records: Records, tmp_path: Path) -> None:
    """Example inputs are kept if they are tensors; others, which torch would unpickle, are left out and do not run."""
    marker = tmp_path / "marker"
    changed = {**records, "data/sample_inputs/model.pt": _saved(Payload(marker))}
    path = _write(changed, tmp_path / "program.pt2")
    assert not programs.load(path).example_inputs
    assert not marker.exists()
    with pytest.raises(ArtifactError, match="damaged"):  # what was unpickled are no inputs
        programs.load(path, trusted=True)
    assert marker.exists()
    kept = programs.load(_write(records, path)).example_inputs
    assert kept is not None
    assert torch.equal(kept[0][0], torch.ones(2, 3))


def test_guards_are_not_run(records: Records, tmp_path: Path) -> None:
    """Guards on inputs are code; the program loads without them."""
    changed = _edited(records, _PROGRAM, lambda program: program.update(guards_code=["1 / 0"]))
    assert programs.load(_write(changed, tmp_path / "program.pt2"))._guards_code == []


def test_what_torch_saves_is_loaded(records: Records, tmp_path: Path) -> None:
    """A program that torch.export saved, with example inputs, gives the same outputs with and without trust."""
    path = _write(records, tmp_path / "program.pt2")
    careful, trusting = programs.load(path), programs.load(path, trusted=True)
    inputs = torch.ones(2, 3)
    torch.testing.assert_close(careful.module()(inputs), trusting.module()(inputs), rtol=0, atol=0)
    assert [node.meta.get("stack_trace") for node in careful.graph.nodes] == [
        node.meta.get("stack_trace") for node in trusting.graph.nodes
    ]


def test_metadata_that_could_end_a_comment_is_left_out(records: Records, tmp_path: Path) -> None:
    """Where a node comes from is kept, unless it holds the quotes that end the text in which torch may put it."""

    def edit(program: dict[str, Any]) -> None:
        for node in _graph(program)["nodes"]:
            node["metadata"] = {"stack_trace": 'x """ y', "torch_fn": "a;b", "custom": "{}"}

    program = programs.load(_write(_edited(records, _PROGRAM, edit), tmp_path / "program.pt2"))
    calls = [node.meta for node in program.graph.nodes if node.op == "call_function"]
    assert calls
    for meta in calls:
        assert meta["torch_fn"] == ("a", "b")
        assert not {"stack_trace", "custom"} & set(meta)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda p: p.update(more=1), "more is nothing that hios knows"),
        (lambda p: p["graph_module"]["signature"]["input_specs"].append({"token": {}}), "token is nothing that hios"),
        (lambda p: _graph(p).update(custom_obj_values={"a": {}}), "a custom object, which is pickled"),
        (lambda p: _graph(p)["nodes"][0]["inputs"][0].update(arg={"as_graph": {}}), "a program within the program"),
        (lambda p: _graph(p)["nodes"][0]["inputs"][0].update(arg={"as_operator": "math.sin"}), "an operator as an arg"),
        (
            lambda p: _graph(p)["nodes"][0].update(target="torch.os.system"),
            "is torch.os.system; allowed: ATen operators",
        ),
        (lambda p: _graph(p)["outputs"].append("x"), "is text, x"),
        (lambda p: p["graph_module"]["signature"]["input_specs"][0]["parameter"].update(parameter_name='a"b'), "name"),
        (lambda p: p["graph_module"]["module_call_graph"][0]["signature"].update(forward_arg_names=["x=1"]), "x=1"),
    ],
)
def test_what_is_unknown_is_refused(
    records: Records, tmp_path: Path, edit: Callable[[dict[str, Any]], object], reason: str
) -> None:
    """What is on no list is refused, whether or not anybody has found a way to use it."""
    path = _write(_edited(records, _PROGRAM, edit), tmp_path / "program.pt2")
    with refused("", "could run code", reason, kind=ArtifactError):
        programs.load(path)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("data/aotinductor/model/wrapper.so", "it holds compiled code, data/aotinductor/model/wrapper.so"),
        ("models/other.json", "it holds models/other.json, which hios does not know"),
        ("Models/Model.json", "it holds Models/Model.json twice"),
        ("data/weights/weight_x", "it holds data/weights/weight_x, which is pickled"),
    ],
)
def test_unknown_records_are_refused(records: Records, tmp_path: Path, name: str, reason: str) -> None:
    """Compiled code, other programs, and names that differ in case only are refused."""
    path = _write({**records, name: b""}, tmp_path / "program.pt2")
    with refused("", reason, kind=ArtifactError):
        programs.load(path)


def test_older_format_is_refused(records: Records, tmp_path: Path) -> None:
    """A zip file as torch 2.7 wrote it, whose weights are pickled, runs nothing."""
    path, marker = tmp_path / "program.pt2", tmp_path / "marker"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("version", "8.20")
        archive.writestr("serialized_exported_program.json", records[_PROGRAM])
        for name in ("state_dict", "constants", "example_inputs"):
            archive.writestr(f"serialized_{name}.pt", _saved(Payload(marker)))
    with pytest.raises(ArtifactError, match=r"not in the present format of torch\.export"):
        programs.load(path)
    assert not marker.exists()


def test_programs_of_other_devices(records: Records, tmp_path: Path) -> None:
    """A program that was exported on a GPU is told apart from one that is damaged."""
    changed = {**records, _PROGRAM: records[_PROGRAM].replace(b'"type": "cpu"', b'"type": "cuda"')}
    with pytest.raises(ArtifactError, match=r"type is the device cuda; allowed: cpu; move model and inputs there"):
        programs.load(_write(changed, tmp_path / "program.pt2"))


def test_missing_record(records: Records, tmp_path: Path) -> None:
    """An archive without its program is damaged."""
    path = _write({name: data for name, data in records.items() if name != _PROGRAM}, tmp_path / "program.pt2")
    with pytest.raises(ArtifactError, match=r"models/model\.json is missing; export it again"):
        programs.load(path)


@pytest.mark.parametrize(
    ("target", "allowed"),
    [
        ("torch.ops.aten.conv2d.default", True),
        ("torch.ops.aten.conv2d.padding", True),
        ("torch.ops.aten.gelu.default", True),
        ("torch.ops.aten.max_pool2d.default", True),
        ("torch.ops.aten.__and__.Tensor", True),
        ("torch.ops.aten.from_file.default", False),
        ("torch.ops.aten.save.default", False),
        ("torch.ops.aten.warn.default", False),
        ("torch.ops.aten.name.format", False),
        ("torch.ops.aten.add.op", False),
        ("torch.ops.aten.add", False),
        ("torch.ops.aten.add.Tensor.__call__", False),
        ("torch.ops.load_library", False),
        ("torch.ops.higher_order.cond", False),
        ("torch.hub.load", False),
        ("math.sin", False),
        ("_operator.attrgetter", False),
        ("#namespace:operator", False),
    ],
)
def test_operators(target: str, allowed: bool) -> None:
    """ATen operators on tensors and numbers pass; files, text, attributes of torch's objects and all else do not."""
    assert is_harmless(target) is allowed


def test_trust(records: Records, tmp_path: Path) -> None:
    """A harmless file with something that hios does not know is refused, and loaded where the user trusts it."""
    path = _write({**records, "data/notes": b"mine"}, tmp_path / "program.pt2")
    with pytest.raises(ArtifactError, match="it holds data/notes, which hios does not know"):
        programs.load(path)
    trusted = programs.load(path, trusted=True)
    plain = programs.load(_write(records, tmp_path / "plain.pt2"))
    torch.testing.assert_close(trusted.module()(torch.ones(2, 3)), plain.module()(torch.ones(2, 3)), rtol=0, atol=0)
