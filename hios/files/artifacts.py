"""Reading and writing the project's files: validated against their format, written whole or not at all."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from hios.errors import ArtifactError, first_line, shown
from hios.files import read_limits
from hios.files.base import Record
from hios.files.validation import field_name, schema_errors

Json = dict[str, Any]
_Record = TypeVar("_Record", bound=Record)

#: Version of the JSON formats; a file that states another one is refused.
FORMAT_VERSION = 1

_PACKAGE = Path(__file__).resolve().parents[1]
#: Module in hios and name of the class of every artifact kind.
_CLASSES = {
    "graph": ("core.graph", "GraphFile"),
    "costs": ("core.costs", "CostsFile"),
    "schedule": ("core.schedule", "ScheduleFile"),
    "run": ("formats.run", "Run"),
    "partition": ("formats.partition", "PartitionFile"),
    "config": ("formats.config", "Config"),
    "gpu": ("formats.descriptions", "GpuFile"),
    "link": ("formats.descriptions", "LinkFile"),
    "simulation": ("formats.study", "SimulationFile"),
    "ablation": ("formats.study", "AblationFile"),
    "convolutions": ("formats.study", "ConvolutionsFile"),
    "top-study": ("formats.study", "TopStudyFile"),
    "predicted": ("formats.partition", "PredictionFile"),
    "published": ("formats.study", "PublishedFile"),
    "figure": ("formats.study", "FigureFile"),
    "archive": ("formats.archive", "ArchiveFile"),
    "calibration": ("formats.serving_result", "CalibrationFile"),
    "scenario": ("formats.scenario", "ScenarioFile"),
    "result": ("formats.serving_result", "ResultFile"),
}
#: JSON text without a match has no number beyond the range of floats: that takes a three-digit exponent or many digits.
_PERHAPS_NOT_FINITE = re.compile(r"NaN|Infinity|[eE]\+?[0-9]{3}|[0-9]{200}")


def resource_directory(name: str) -> Path:
    """Directory of schemas or models: the checkout's, or the copy that an installed wheel carries."""
    checkout = _PACKAGE.parent / name
    return checkout if checkout.is_dir() else _PACKAGE / f"_{name}"


def schema_path(kind: str) -> Path:
    """File of the JSON Schema of an artifact kind, such as ``graph`` or ``config``."""
    extension = "yaml" if kind == "config" else "json"
    return resource_directory("schemas") / f"{kind}.schema.{extension}"


@functools.cache
def schema(kind: str) -> Json:
    """The JSON Schema of an artifact kind."""
    path = schema_path(kind)
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".yaml":
        import yaml  # only config.yaml needs it

        loaded: Json = yaml.safe_load(text)
    else:
        loaded = json.loads(text)
    return loaded


@functools.cache
def record_class(kind: str) -> type[Record]:
    """The class of an artifact kind."""
    module, name = _CLASSES[kind]
    record: type[Record] = getattr(importlib.import_module(f"hios.{module}"), name)
    return record


def plain(record: Record) -> Json:
    """An object as JSON has it."""
    contents: Json = msgspec.to_builtins(record)
    return contents


def contents(record: Record) -> Json:
    """The fields of an object by name, without the version of its format."""
    fields = msgspec.structs.asdict(record)
    del fields["format_version"]
    return fields


def kind_of(cls: type[Record]) -> str:
    """The artifact kind of a class."""
    return next(kind for kind, (_, name) in _CLASSES.items() if name == cls.__name__)


def kind_in(data: Any) -> str | None:
    """The pipeline's artifact whose keys data has: graph, costs, schedule or run; None if it is none of them."""
    if isinstance(data, dict):
        for kind in ("graph", "costs", "schedule", "run"):
            fields = msgspec.structs.fields(record_class(kind))
            names = {field.encode_name for field in fields}
            if {field.encode_name for field in fields if field.required} <= data.keys() <= names:
                return kind
    return None


def load(path: str | Path, cls: type[_Record]) -> _Record:
    """Read a JSON artifact as an object of the class of its format.

    Raises:
        ArtifactError: missing, unreadable, damaged, of another version, or against its format.
    """
    return _converted(read_json(path), cls, str(path))


def read(path: str | Path, kind: str) -> Json:
    """Read a JSON artifact of a kind, such as ``graph``, as it is in the file; validated as `load` does."""
    data = read_json(path)
    _converted(data, record_class(kind), str(path))
    return data  # type: ignore[no-any-return]


def read_json(path: str | Path, report: Callable[[str], None] | None = None) -> Any:
    """Read a JSON file, whatever it holds.

    Args:
        path: the file.
        report: called with each duplicate key and each number that is not finite; without it, these are errors.

    Raises:
        ArtifactError: missing, unreadable, damaged, too large for the memory, nested too deeply, with a lone surrogate,
            a duplicate key, or a number that is not finite.
    """
    path = Path(path)
    try:
        text = read_limits.read_text(path)
        data = json.loads(text, object_pairs_hook=functools.partial(_object, report or _refuse))
        if "\\ud" in text.lower():  # an escaped lone surrogate, which could not be written again
            json.dumps(data, ensure_ascii=False).encode()
        if _PERHAPS_NOT_FINITE.search(text):
            for message in _not_finite(data):
                (report or _refuse)(message)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ArtifactError(f"{path}: not a text file: byte {error.start} is not UTF-8; expected JSON") from error
    except json.JSONDecodeError as error:
        raise ArtifactError(
            f"{path}: line {error.lineno} column {error.colno}: not valid JSON ({error.msg}); "
            "the file is damaged or cut off, write it again"
        ) from error
    except RecursionError as error:
        raise ArtifactError(f"{path}: nested too deeply to be an artifact of hios") from error
    except ValueError as error:  # a duplicate key, an infinite number or one of thousands of digits, a lone surrogate
        raise ArtifactError(f"{path}: {first_line(error)}") from error
    return data


def _refuse(message: str) -> NoReturn:
    raise ValueError(message)


def _object(report: Callable[[str], None], pairs: list[tuple[str, Any]]) -> Json:
    members = dict(pairs)
    if len(members) < len(pairs):
        for key, count in Counter(key for key, _ in pairs).items():
            if count > 1:
                report(f"duplicate key {shown(key, quoted=False)} in an object; allowed: every key once")
    return members


def write(path: str | Path, kind: str, data: Mapping[str, Any] | Record) -> None:
    """Validate an artifact and write it as JSON; the file appears whole, by rename."""
    path = Path(path)
    document = {"format_version": FORMAT_VERSION, **(plain(data) if isinstance(data, Record) else data)}
    parsed(document, record_class(kind), str(path))
    write_whole(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def write_whole(path: str | Path, contents: str | bytes | memoryview) -> None:
    """Write a file that appears whole, by rename; an `ArtifactError` if it cannot be written."""
    with replacing(path) as temporary:
        temporary.write_bytes(contents.encode() if isinstance(contents, str) else contents)


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a temporary path next to ``path`` that replaces it on success and is removed on failure."""
    path = Path(path).resolve()  # a link stays a link; what it points to is replaced
    temporary = _temporary(path)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:  # a full disk names no file
        if error.filename not in (None, str(temporary)):
            raise
        raise ArtifactError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def require_writable(path: str | Path) -> None:
    """Refuse an output whose folder cannot be made or written, or that is no file, before the work for it begins."""
    path = Path(path).resolve()
    if path.exists() and not path.is_file():
        raise ArtifactError(f"{path}: cannot be written: it exists and is not a regular file")
    folder = next(parent for parent in path.parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise ArtifactError(f"{path}: cannot be written: {folder} is not a folder that may be written")


def _temporary(path: Path) -> Path:
    import tempfile  # not when hios is imported: it takes some milliseconds

    require_writable(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be written: {error.strerror}") from error
    os.close(handle)
    return Path(name)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def parsed(data: Any, cls: type[_Record], source: str) -> _Record:
    """The object of the class of its format behind plain data, as JSON has it.

    Raises:
        ArtifactError: one line with ``source``, field, what was found and what is allowed.
    """
    _require_finite(data, source)
    return _converted(data, cls, source)


def _converted(data: Any, cls: type[_Record], source: str) -> _Record:
    """As `parsed`, of data whose numbers are known to be finite."""
    _require_version(data, source)
    try:
        return msgspec.convert(data, cls)
    except (msgspec.ValidationError, RecursionError, UnicodeEncodeError) as error:
        if (kind := kind_in(data)) not in {None, kind_of(cls)}:
            raise ArtifactError(f"{source}: found a file of kind {kind}; required: {kind_of(cls)}") from error
        raise ArtifactError(f"{source}: {_reason(data, kind_of(cls), source, error)}") from error


def _require_version(data: Any, source: str) -> None:
    if isinstance(data, dict) and data.get("format_version", FORMAT_VERSION) != FORMAT_VERSION:
        raise ArtifactError(
            f"{source}: format_version: found {shown(data['format_version'])}; this hios reads version "
            f"{FORMAT_VERSION}: write the file again with this version"
        )


def _reason(data: Any, kind: str, source: str, refusal: Exception) -> str:
    """Why data was refused, in the words of the schema."""
    try:
        _require_finite(data, source)
        errors = schema_errors(data, schema(kind))
    except (ValueError, RecursionError) as error:  # nested too deeply, or text that is not Unicode
        return f"cannot be an artifact of hios: {first_line(error)}"
    return errors[0] if errors else first_line(refusal)


def _require_finite(data: Any, source: str) -> None:
    for message in _not_finite(data):
        raise ArtifactError(f"{source}: {message}")


def _not_finite(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[str]:
    """A message for each number that is not finite."""
    if isinstance(value, int | float):
        if not abs(value) <= sys.float_info.max:
            number = "nan" if value != value else "inf" if value > 0 else "-inf"
            yield f"{field_name(place)}: found {number}; allowed: a finite number"
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _not_finite(item, (*place, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _not_finite(item, (*place, index))
