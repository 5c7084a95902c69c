"""Reading and writing the project's files: validated against their schema, written whole or not at all."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema_rs

from hios.errors import ArtifactError, first_line

Json = dict[str, Any]

#: Version of the JSON formats; a file that states another one is refused.
FORMAT_VERSION = 1

_PACKAGE = Path(__file__).resolve().parent
_LONGEST_VALUE_SHOWN = 60


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
def _validator(kind: str) -> Any:
    return jsonschema_rs.Draft202012Validator(schema(kind))


def read(path: str | Path, kind: str) -> Json:
    """Read a JSON artifact and validate it.

    Args:
        path: the file.
        kind: which schema it must meet: ``graph``, ``costs``, ``schedule``, ``run``.

    Raises:
        ArtifactError: missing, unreadable, damaged, of another version, or against the schema.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text, object_pairs_hook=_without_repetition)
        if "\\ud" in text.lower():  # an escaped surrogate: half of one is no text, and could not be written again
            json.dumps(data, ensure_ascii=False).encode()
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
    except ValueError as error:  # a repeated key, a number of thousands of digits, half a surrogate
        raise ArtifactError(f"{path}: {first_line(error)}") from error
    validate(data, kind, str(path))
    return data  # type: ignore[no-any-return]


def _without_repetition(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice} stands twice in one object; every key stands once")
    return found


def write(path: str | Path, kind: str, data: Mapping[str, Any]) -> None:
    """Validate an artifact and write it as JSON; the file appears whole, by rename."""
    path = Path(path)
    document = {"format_version": FORMAT_VERSION, **data}
    validate(document, kind, str(path))
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a temporary path beside ``path`` that replaces it on success and vanishes on failure."""
    path = Path(path).resolve()  # a link stays a link; what it points to is replaced
    temporary = _temporary(path)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        try:
            temporary.replace(path)
        except OSError as error:
            raise ArtifactError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)


def require_writable(path: str | Path) -> None:
    """Refuse an output that could not be written, before the work for it begins.

    Raises:
        ArtifactError: its folder cannot be made or written, or something else than a file is in its place.
    """
    path = Path(path).resolve()
    if path.exists() and not path.is_file():
        raise ArtifactError(f"{path}: cannot be written: it exists and is not a regular file")
    folder = next(parent for parent in path.parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise ArtifactError(f"{path}: cannot be written: {folder} is not a folder that may be written")


def _temporary(path: Path) -> Path:
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


def validate(data: Any, kind: str, source: str) -> None:
    """Refuse data that breaks the schema of its kind.

    Args:
        data: what was read.
        kind: the artifact kind.
        source: the file's name, for the message.

    Raises:
        ArtifactError: one line with file, field, what was found and what is allowed.
    """
    if isinstance(data, dict) and data.get("format_version", FORMAT_VERSION) != FORMAT_VERSION:
        raise ArtifactError(
            f"{source}: format_version: found {_shown(data['format_version'])}; this hios reads version "
            f"{FORMAT_VERSION}: write the file again with this version"
        )
    try:
        for place, number in _non_finite(data, ()):
            raise ArtifactError(f"{source}: {_field(place)}: found {number}; allowed: a finite number")
        # Errors nearest to the top first: what is wrong with the whole says more than what is wrong with a part.
        found = min(_validator(kind).iter_errors(data), key=lambda e: len(e.instance_path), default=None)
    except (ValueError, RecursionError) as error:  # nested too deeply, or text that is not Unicode
        raise ArtifactError(f"{source}: cannot be an artifact of hios: {first_line(error)}") from error
    if found is not None:
        raise ArtifactError(f"{source}: {_explained(found, schema(kind))}")


def _non_finite(value: Any, place: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], float]]:
    if isinstance(value, int | float):
        if not abs(value) <= sys.float_info.max:
            yield place, float("nan") if value != value else float("inf") if value > 0 else float("-inf")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _non_finite(item, (*place, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _non_finite(item, (*place, index))


def _field(place: tuple[str | int, ...] | list[str | int]) -> str:
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".") or "(whole file)"


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST_VALUE_SHOWN else f"{text[: _LONGEST_VALUE_SHOWN - 3]}..."


def _rule(schema_root: Json, path: list[str | int]) -> Json:
    """The subschema whose keyword failed, with local references followed."""
    node: Any = schema_root
    for part in path[:-1]:
        node = schema_root["$defs"][node["$ref"].rsplit("/", 1)[1]] if part == "$ref" else node[part]
    return node if isinstance(node, dict) else {}


def _explained(error: Any, schema_root: Json) -> str:
    of_key = error.kind.name == "propertyNames"
    if of_key:
        error = error.kind.error  # about the key; the outer error holds the whole mapping
    rule = _rule(schema_root, list(error.schema_path))
    keyword = error.schema_path[-1]
    meaning = f" ({rule['description'].rstrip('.')})" if "description" in rule else ""
    where = _field(error.instance_path)
    value = error.instance
    if keyword == "additionalProperties":
        known = rule.get("properties", {})
        unknown = ", ".join(sorted(set(value) - set(known)))
        return f"{where}: unknown key {unknown}; allowed: {', '.join(sorted(known))}"
    if keyword == "required":
        missing = ", ".join(key for key in rule["required"] if key not in value)
        return f"{where}: {missing} is missing; required: {', '.join(rule['required'])}"
    found = f"the key {_shown(value)}" if of_key else _shown(value)
    return f"{where}: found {found}; allowed: {_allowed(str(keyword), rule, error.message)}{meaning}"


def _allowed(keyword: str, rule: Json, message: str) -> str:
    """What a rule allows, in words; the validator's own message for keywords without words here."""
    bound = rule.get(keyword)
    if keyword == "enum":
        return "one of " + ", ".join(map(_shown, rule["enum"]))
    if keyword == "not" and "enum" in rule["not"]:
        return "anything but " + ", ".join(map(_shown, rule["not"]["enum"]))
    if keyword == "type":
        return bound if isinstance(bound, str) else " or ".join(rule["type"])
    words = {
        "const": _shown(bound),
        "minimum": f"at least {bound}",
        "exclusiveMinimum": f"more than {bound}",
        "maximum": f"at most {bound}",
        "minLength": f"at least {bound} character(s)",
        "minItems": f"at least {bound} item(s)",
        "minProperties": f"at least {bound} key(s)",
        "uniqueItems": "items that differ from each other",
        "pattern": f"text matching {bound}",
    }
    return words.get(keyword, message)
