"""program.pt2: exporting, saving and loading with torch.export."""

from __future__ import annotations

import contextlib
import io
import logging
import operator
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from hios.artifacts import replacing
from hios.errors import ArtifactError, HiosError, UnsupportedError, first_line, place
from hios.frontends.autocast_regions import inline_regions
from hios.frontends.export_check import apart, require_faithful
from hios.frontends.model_declarations import Declarations
from hios.frontends.program_interface import TensorType, plain
from hios.frontends.pt2_archive import is_harmless, without_code
from hios.frontends.source_location import of_node

#: File within program.pt2 that holds the declarations of the model.
_DECLARATIONS = "hios.json"


@dataclass(frozen=True)
class Program:
    """A network exported by torch.export, with the declarations of its model.

    Attributes:
        exported: the program.
        declared: scheduling units, blocks and limits of inputs.
        name: of the network; empty if it has none.
    """

    exported: ExportedProgram
    declared: Declarations = field(default_factory=Declarations)
    name: str = ""

    @classmethod
    def read(cls, path: str | Path, *, trusted: bool = False) -> Program:
        """Read program.pt2; errors are those of `load` and `declarations`."""
        return cls(load(path, trusted=trusted), declarations(path))

    def write(self, path: str | Path) -> None:
        """Write program.pt2 atomically, by rename."""
        save(self.exported, path, self.declared)

    def to_bytes(self) -> bytes:
        """The contents of a program.pt2."""
        stream = io.BytesIO()
        _write(self.exported, stream, self.declared)
        return stream.getvalue()


def export(module: nn.Module, inputs: tuple[Tensor, ...], model: nn.Module | None = None) -> ExportedProgram:
    """torch.export of a module in inference mode.

    Args:
        module: what is exported.
        inputs: example inputs.
        model: named in messages instead of the module, if the module is only a wrapper around it.

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
    for node in program.graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem:  # of an operator with several outputs
            continue
        if not is_harmless(f"torch.ops.{node.target}"):
            raise UnsupportedError(
                f"{name}: found {of_node(node).place}; allowed: ATen operators on tensors, as Relax has no "
                "others; write the model with such operators there"
            )
    program = plain(program, name)
    require_faithful(program, module, inputs, name)
    return program


def save(program: ExportedProgram, path: str | Path, declared: Declarations | None = None) -> None:
    """Write program.pt2 with the declarations of the model.

    torch would embed the example inputs; they are left out, but the ranges of integers that they show are kept.
    """
    # Given a path, torch names the folder inside the archive after it; given a stream, equal programs give equal files.
    with replacing(path) as temporary, temporary.open("wb") as stream:
        _write(program, stream, declared or Declarations())


def _write(program: ExportedProgram, stream: IO[bytes], declared: Declarations) -> None:
    if (examples := program.example_inputs) is not None:
        values, named = examples
        declared = declared.for_inputs([*values, *named.values()])
    program.example_inputs = None
    try:
        torch.export.save(program, stream, extra_files={_DECLARATIONS: declared.json()})
    finally:
        program.example_inputs = examples


def load(path: str | Path, *, trusted: bool = False) -> ExportedProgram:
    """Read program.pt2.

    Args:
        path: the file.
        trusted: whether the user trusts who made it. Then everything that torch takes is loaded, which can run code;
            else only what cannot (`hios.frontends.pt2_archive`).

    Raises:
        ArtifactError: missing, damaged, not an exported program, or one whose loading could run code.
        UnsupportedError: it has other inputs or outputs than tensors.
    """
    path = Path(path)
    _require_whole(path)
    try:
        with _quiet(), path.open("rb") as stream:
            program = torch.export.load(stream if trusted else without_code(stream, path))
        if any(node.name == "self" for node in program.graph.nodes):
            raise ArtifactError(f"{path}: found a value named self, which torch's own code hides; export it again")
        return plain(program, str(path))
    except HiosError:
        raise
    except Exception as error:  # damaged archives fail in many ways inside torch
        raise ArtifactError(
            f"{path}: damaged, or written by another version of torch ({type(error).__name__}); export it again"
        ) from error


def declarations(path: str | Path) -> Declarations:
    """The declarations in a program.pt2; none if `hios export` did not write it.

    Raises:
        ArtifactError: missing or damaged.
    """
    path = Path(path)
    _require_whole(path)
    with zipfile.ZipFile(path) as archive:
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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        logger.setLevel(level)


def _require_whole(path: Path) -> None:
    if not path.is_file():
        raise ArtifactError(f"{path}: cannot be read: no such file")
    if not zipfile.is_zipfile(path):
        raise ArtifactError(f"{path}: not a program written by torch.export (.pt2), or cut off; export it again")
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()  # torch does not verify the checksums of weights
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, ValueError) as error:
        raise ArtifactError(f"{path}: damaged ({first_line(error)}); export it again") from error
    if broken is not None:
        raise ArtifactError(f"{path}: damaged at {broken}; export it again")


def tensor_types(program: ExportedProgram) -> tuple[list[TensorType], list[TensorType]]:
    """Shape and dtype of all input and output tensors of a program, in order."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    signature = program.graph_signature
    values_of = [
        [values[name] for name in names if isinstance(name, str)]
        for names in (signature.user_inputs, signature.user_outputs)
    ]
    inputs, outputs = (
        [(tuple(value.shape), value.dtype) for value in tensors if isinstance(value, Tensor)] for tensors in values_of
    )
    return inputs, outputs
