"""program.pt2: exporting, saving and loading with torch.export.

Regions under autocast or without gradients, which torch.export keeps as nested programs, are inlined. An exported
program has to compute the same as its module, also for inputs other than the example.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import operator
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from hios.errors import ArtifactError, HiosError, UnsupportedError, first_line, place
from hios.files import read_limits
from hios.files.artifacts import write_whole
from hios.formats.aten_operators import is_harmless
from hios.frontends.example_inputs import inputs_like
from hios.frontends.model_declarations import Declarations
from hios.frontends.program_interface import TensorType, arguments_of, flat_module, of_node, plain, type_text
from hios.frontends.pt2_archive import MOST_GROWTH, without_code
from hios.frontends.tolerances import difference

#: File within program.pt2 that holds the declarations of the model.
_DECLARATIONS = "hios.json"
_AUTOCAST = torch.ops.higher_order.wrap_with_autocast
#: The operators that wrap a region, with the position of the nested program among their arguments; its inputs follow.
_REGIONS = {_AUTOCAST: 4, torch.ops.higher_order.wrap_with_set_grad_enabled: 1}


@dataclass(frozen=True)
class Program:
    """A network exported by torch.export, with the declarations of its model, and its name, empty if it has none."""

    exported: ExportedProgram
    declared: Declarations = field(default_factory=Declarations)
    name: str = ""

    @classmethod
    def read(cls, path: str | Path, *, trusted: bool = False) -> Program:
        """Read program.pt2; errors are those of `load` and `declarations`."""
        return cls(load(path, trusted=trusted), declarations(path))

    def ranged(self) -> Declarations:
        """The declarations with the ranges of integers, as declared, else as the example inputs show them, if any."""
        if self.declared.below or self.exported.example_inputs is None:
            return self.declared
        return self.declared.for_inputs(pytree.tree_leaves(self.exported.example_inputs))

    def write(self, path: str | Path) -> None:
        """Write program.pt2 atomically, by rename."""
        save(self.exported, path, self.declared)

    def to_bytes(self) -> bytes:
        """The contents of a program.pt2."""
        return _written(self.exported, self.declared).getvalue()


def export(module: nn.Module, inputs: tuple[Tensor, ...], model: nn.Module | None = None) -> ExportedProgram:
    """torch.export of a module in inference mode; messages name ``model``, if the module is only a wrapper around it.

    Raises:
        UnsupportedError: torch.export cannot trace it (the message is the first line of torch's, with the line of the
            file that defines the module), the program differs from the module, or has inputs or outputs that are not
            tensors.
    """
    model = module if model is None else model
    inputs, name = apart(module, inputs), type(model).__name__
    try:
        with torch.no_grad():
            program = torch.export.export(module, inputs)
    except Exception as error:  # torch.export raises many types; all mean the same to the user
        code = getattr(getattr(type(model), "forward", None), "__code__", None)  # a scripted module has none
        where = f"{place(error, code.co_filename)}: " if code is not None else ""
        raise UnsupportedError(f"torch.export cannot export {name}: {where}{first_line(error)}") from error
    inline_regions(program, name)
    _drop_empty(program)
    _write_out(program)
    for node in program.graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem:  # of an operator with several outputs
            continue
        if torch.Tag.dynamic_output_shape in getattr(node.target, "tags", ()) and not _is_static(node.meta["val"]):
            raise UnsupportedError(
                f"{name}: found {of_node(node).place}: the shape of its result depends on the values of its input; "
                "allowed: fixed shapes; write the model with a mask there"
            )
        if not is_harmless(f"torch.ops.{node.target}"):
            raise UnsupportedError(
                f"{name}: found {of_node(node).place}; allowed: ATen operators on tensors, as Relax has no "
                "others; write the model with such operators there"
            )
    program = plain(program, name)
    _require_wide(program, name)
    require_faithful(program, module, inputs, name)
    return program


def _write_out(program: ExportedProgram) -> None:
    """Replace weights that are conjugate or negative views, as files keep only the memory that these read."""
    for held in (program.state_dict, program.constants):
        for name, weight in held.items():
            if isinstance(weight, Tensor) and (weight.is_conj() or weight.is_neg()):
                plain = weight.detach().resolve_conj().resolve_neg()
                held[name] = nn.Parameter(plain, weight.requires_grad) if isinstance(weight, nn.Parameter) else plain


def save(program: ExportedProgram, path: str | Path, declared: Declarations | None = None) -> None:
    """Write program.pt2 with the declarations of the model.

    torch would embed the example inputs; they are left out, but the ranges of integers that they show are kept.
    """
    # Given a path, torch names the folder inside the archive after it; given a stream, equal programs give equal files.
    # Its writer ends the process where a stream has no room.
    write_whole(path, _written(program, declared or Declarations()).getbuffer())


def _written(program: ExportedProgram, declared: Declarations) -> io.BytesIO:
    stream = io.BytesIO()
    declared, examples = Program(program, declared).ranged(), program.example_inputs
    program.example_inputs = None
    try:
        torch.export.save(program, stream, extra_files={_DECLARATIONS: declared.json()})
    finally:
        program.example_inputs = examples
    return stream


def load(path: str | Path, *, trusted: bool = False) -> ExportedProgram:
    """Read program.pt2: if trusted, all that torch takes, which can run code, else only what cannot (`pt2_archive`).

    Raises:
        ArtifactError: missing, damaged, not an exported program, or one whose loading could run code.
        UnsupportedError: it has other inputs or outputs than tensors.
    """
    path = Path(path)
    with _opened(path):
        pass
    try:
        with _quiet(), path.open("rb") as stream:
            program = torch.export.load(stream if trusted else without_code(stream, path))
        _require_memory(program, path)
        if any(node.name == "self" for node in program.graph.nodes):
            raise ArtifactError(f"{path}: found a value named self, which torch's own code hides; export it again")
        program = plain(program, str(path))
        _require_wide(program, str(path))
        return program
    except HiosError:
        raise
    except Exception as error:  # damaged archives fail in many ways inside torch
        raise ArtifactError(
            f"{path}: damaged, or written by another version of torch ({type(error).__name__}); export it again"
        ) from error


def declarations(path: str | Path) -> Declarations:
    """The declarations in a program.pt2, none if `hios export` did not write it; if damaged, an `ArtifactError`."""
    path = Path(path)
    with _opened(path) as archive:
        names = [name for name in archive.namelist() if name.partition("/")[2] == f"extra/{_DECLARATIONS}"]
        if not names:
            return Declarations()
        try:
            return Declarations.from_json(archive.read(names[0]).decode())
        except (HiosError, UnicodeDecodeError) as error:
            raise ArtifactError(f"{path}: {_DECLARATIONS}: {error}; export it again") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress a deprecation warning of torch while loading, and errors it logs in addition to raising."""
    logger = logging.getLogger("torch.export")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """A program.pt2 that is whole, and that fits into memory."""
    if not path.is_file():
        raise ArtifactError(f"{path}: cannot be read: no such file")
    if not zipfile.is_zipfile(path):
        raise ArtifactError(f"{path}: not a program written by torch.export (.pt2), or cut off; export it again")
    with read_limits.opened_zip(
        path, path, MOST_GROWTH, "a program by torch.export, undamaged; export it again"
    ) as archive:
        # The copy without code, what is read from it, and the tensors.
        read_limits.require_memory(
            path, "its contents, three times", 3 * sum(entry.file_size for entry in archive.infolist())
        )
        if (broken := archive.testzip()) is not None:  # torch does not verify the checksums of weights
            raise ArtifactError(f"{path}: damaged at {broken}; export it again")
        yield archive


def _require_memory(program: ExportedProgram, path: Path) -> None:
    """Refuse a program with a tensor that does not fit into memory, however few bytes it is stored in."""
    values = [(f"the value {node.name}", node.meta.get("val")) for node in program.graph.nodes]
    weights = {**program.state_dict, **program.constants}
    for what, value in [*values, *((f"the weight {name}", weight) for name, weight in weights.items())]:
        for tensor in value if isinstance(value, list | tuple) else [value]:
            if isinstance(tensor, Tensor) and all(isinstance(size, int) for size in tensor.shape):
                read_limits.require_memory(path, what, tensor.numel() * tensor.dtype.itemsize)


def tensor_types(program: ExportedProgram) -> tuple[list[TensorType], list[TensorType]]:
    """Shape and dtype of all input and output tensors of a program, in order."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    signature = program.graph_signature
    inputs, outputs = (
        [(tuple(value.shape), value.dtype) for value in map(values.get, names) if isinstance(value, Tensor)]
        for names in (signature.user_inputs, signature.user_outputs)
    )
    return inputs, outputs


def inline_regions(program: ExportedProgram, name: str) -> None:
    """Inline, in place, each region whose context does not change the results of its operators.

    An `UnsupportedError` says that autocast is on in a region, and would change its precision.
    """
    graph = program.graph
    while regions := [node for node in graph.nodes if node.op == "call_function" and node.target in _REGIONS]:
        for node in regions:
            if node.target is _AUTOCAST and node.args[0] == "cpu" and node.args[2]:
                where = of_node(node).place
                raise UnsupportedError(
                    f"{name}: found {where}, where autocast is on; allowed: torch.autocast with enabled=False"
                )
            _inline(program, node)


def _drop_empty(program: ExportedProgram) -> None:
    """Drop, in place, tensors of shape (0,) among those concatenated: torch takes them, whatever shape the others have.

    A cache of keys and values begins with such a tensor.
    """
    graph = program.graph
    for node in list(graph.find_nodes(op="call_function", target=torch.ops.aten.cat.default)):
        empty = [value for value in node.args[0] if value.meta["val"].shape == (0,)]
        if not 0 < len(empty) < len(node.args[0]):
            continue
        node.args = ([value for value in node.args[0] if value not in empty], *node.args[1:])
        while empty:
            value = empty.pop()
            if value.op == "call_function" and not value.users:
                empty += value.all_input_nodes
                graph.erase_node(value)
    program.graph_module.recompile()


def _inline(program: ExportedProgram, node: fx.Node) -> None:
    """Inline one region; regions nested in it stay."""
    graph, root = program.graph, program.graph_module
    held, *arguments = node.args[_REGIONS[node.target] :]  # type: ignore[index]
    assert isinstance(held, fx.Node)  # noqa: S101 - it names the attribute
    body = getattr(root, str(held.target))
    places = (inner for inner in body.graph.nodes if inner.op == "placeholder")
    values: dict[fx.Node, Any] = dict(zip(places, arguments, strict=True))
    with graph.inserting_before(node):
        outputs = graph.graph_copy(body.graph, values)
    for inner in body.graph.nodes:
        if inner.op == "get_attr":
            name = next(name for number in itertools.count() if not hasattr(root, name := f"region_{number}"))
            setattr(root, name, getattr(body, inner.target))
            values[inner].target = name
    for user in list(node.users):
        if user.target is operator.getitem:
            _replace(program, user, outputs[user.args[1]])
    if node.users:
        _replace(program, node, outputs)
    else:
        graph.erase_node(node)
    if not held.users:
        graph.erase_node(held)
        delattr(root, str(held.target))


def _replace(program: ExportedProgram, old: fx.Node, new: fx.Node) -> None:
    """Replace a node by another one, including in the outputs."""
    old.replace_all_uses_with(new)
    program.graph_signature.replace_all_uses(old.name, new.name)
    for entry in program.module_call_graph:
        for argument in entry.signature.outputs if entry.signature is not None else ():
            if getattr(argument, "name", None) == old.name:
                argument.name = new.name
    program.graph.erase_node(old)


def _is_static(made: Any) -> bool:
    """Whether the shapes of the results of a node are known."""
    parts = made if isinstance(made, list | tuple) else [made]
    return all(isinstance(size, int) for part in parts if isinstance(part, Tensor) for size in part.shape)


#: Arguments with which an operator that can draw random numbers draws none.
_NOT_RANDOM = {"train": False, "training": False, "p": 0, "dropout_p": 0}


def apart(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Inputs that share no memory with each other or the weights, as torch.export treats equal tensors as one value."""
    seen = {value.untyped_storage().data_ptr() for value in (*module.parameters(), *module.buffers())}
    separate = []
    for value in inputs:
        memory = value.untyped_storage().data_ptr()
        separate.append(value.clone() if memory in seen else value)
        seen.add(memory)
    return tuple(separate)


def require_faithful(program: ExportedProgram, module: nn.Module, inputs: tuple[Tensor, ...], name: str) -> None:
    """Run program and module on random inputs and compare all outputs; the module's buffers are as before afterwards.

    Raises:
        UnsupportedError: the model draws random numbers, fails on other inputs, or the program differs from it.
    """
    _require_no_randomness(program, name)
    drawn = inputs_like(inputs, seed=1)
    expected = _run(module, module, drawn, name)
    outputs = _run(flat_module(program), module, drawn, name)
    for ours, theirs in zip(outputs, expected, strict=True):
        off, allowed = difference(ours, theirs)
        if not off <= allowed:
            raise UnsupportedError(
                f"{name}: the exported program differs from the model by up to {off:.3g} on other inputs than "
                "the example inputs; make outputs depend only on inputs, weights and buffers, not on other state "
                "of the model"
            )


def _require_wide(program: ExportedProgram, name: str) -> None:
    """Refuse 8-bit floats as inputs and outputs, which torch neither draws nor compares."""
    for kind, types in zip(("input", "output"), tensor_types(program), strict=True):
        for own in types:
            if own[1].is_floating_point and own[1].itemsize == 1:
                raise UnsupportedError(
                    f"{name}: found an {kind} of {type_text(own)}; allowed: floats of at least 16 bits, from and to "
                    "which the model converts"
                )


def _require_no_randomness(program: ExportedProgram, name: str) -> None:
    for node in program.graph.nodes:
        target = node.target
        if not isinstance(target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
            continue
        given = arguments_of(node)
        if not any(given.get(argument) == harmless for argument, harmless in _NOT_RANDOM.items()):
            raise UnsupportedError(
                f"{name}: found {of_node(node).place}, which draws random numbers; allowed: models that give the same "
                "outputs for the same inputs; export it in eval mode, or give the numbers as an input"
            )


def _are_equal(tensor: Tensor, other: Tensor) -> bool:
    """Whether tensors are equal; false for layouts that torch does not compare."""
    try:
        return torch.equal(tensor, other)
    except RuntimeError:
        return False


def _run(run: nn.Module, module: nn.Module, inputs: tuple[Tensor, ...], name: str) -> list[Tensor]:
    """The output tensors of a module or its program; restores the buffers that both share."""
    held = [(buffer, buffer.clone()) for buffer in module.buffers()]
    with torch.no_grad():
        try:
            outputs = run(*(value.clone() for value in inputs))
        except Exception as error:  # whatever a user's model raises
            raise UnsupportedError(
                f"{name}: fails on inputs of the same shapes with other values: {first_line(error)}; allowed: models "
                "that take any numbers, whole ones up to the largest of the example inputs"
            ) from error
        finally:
            for buffer, value in held:
                if not _are_equal(buffer, value):  # a write would count as a change for whoever watches the module
                    buffer.copy_(value)
    return [value for value in pytree.tree_leaves(outputs) if isinstance(value, Tensor)]
