"""YAML files as the project reads them: no duplicate keys, and only values that JSON knows."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from hios.errors import ArtifactError, HiosError, first_line
from hios.files import read_limits

# YAML 1.1, which PyYAML reads, takes 1e-4 for text; people and YAML 1.2 take it for a number.
_EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$")
#: Levels of lists and mappings; no file of the project needs more than ten.
_DEEPEST = 100


def read_yaml(path: str | Path) -> Any:
    """The contents of a YAML file.

    Raises:
        ArtifactError: unreadable, not YAML, too large, nested too deeply, a key given twice, of which YAML readers
            silently take the last, a value that contains itself, or a value that is neither text, number, date, list
            nor mapping; one line with file and line.
    """
    path = Path(path)
    try:
        loader = yaml.SafeLoader(read_limits.read_text(path, read_limits.MOST_BYTES_OF_YAML))
        tree = loader.get_single_node()
        for first, second in _repeated(tree, {}, set()):
            raise ArtifactError(
                f"{path}: line {second.start_mark.line + 1}: key {second.value} is given again; "
                f"allowed: once (it is on line {first.start_mark.line + 1})"
            )
        with _values_that_fit():
            return None if tree is None else loader.construct_document(tree)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ArtifactError(f"{path}: not a text file: byte {error.start} is not UTF-8; expected YAML") from error
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ArtifactError(f"{path}: {line}not valid YAML ({error.problem or error.context})") from error
    except yaml.YAMLError as error:
        raise ArtifactError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from error
    except RecursionError as error:
        raise ArtifactError(f"{path}: nested too deeply; allowed: at most {_DEEPEST} levels") from error


class _Loader(yaml.SafeLoader):
    """Reads 1e-4 as a number, and "1e-4" in quotes as text."""


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))


def yaml_value(text: str) -> Any:
    """A value in YAML, such as one of the command line.

    Raises:
        yaml.YAMLError: the text is not YAML, or a value does not fit its type.
    """
    with _values_that_fit():
        return yaml.load(text, _Loader)  # noqa: S506 - it is a safe one


@contextlib.contextmanager
def _values_that_fit() -> Iterator[None]:
    """Have PyYAML refuse text that does not fit its tag, such as 2020-99-99 and !!bool maybe, as it refuses others."""
    try:
        yield
    except (ValueError, LookupError, AttributeError) as error:
        raise yaml.YAMLError(f"a value does not fit its type: {first_line(error)}") from error


def _repeated(node: Any, counted: dict[int, int], around: set[int]) -> Iterator[tuple[Any, Any]]:
    """Keys given twice, each with the first one; ``around`` are the nodes that this one lies in.

    ``counted`` gets the values in each node, with what aliases stand for: readers and checkers meet each of them again.
    """
    if id(node) in around:
        raise yaml.MarkedYAMLError(problem="an anchor is used within its own value", problem_mark=node.start_mark)
    if id(node) in counted:  # an anchor may be used many times
        return
    around = around | {id(node)}
    inner: list[Any] = []
    if isinstance(node, yaml.SequenceNode):
        inner = node.value
    elif isinstance(node, yaml.MappingNode):
        inner = [part for pair in node.value for part in pair]
        seen: dict[Hashable, Any] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    yield seen[key.value], key
                seen[key.value] = key
    for part in inner:
        yield from _repeated(part, counted, around)
    counted[id(node)] = 1 + sum(counted[id(part)] for part in inner)
    if counted[id(node)] > read_limits.MOST_VALUES_OF_YAML:
        raise yaml.MarkedYAMLError(
            problem=f"more than {read_limits.MOST_VALUES_OF_YAML:,} values, those that aliases stand for included",
            problem_mark=node.start_mark,
        )


def plain(value: Any, source: str, place: tuple[str | int, ...]) -> Any:
    """The value in JSON types: plain dictionaries, text keys, 2.0 as 2, and no dates."""
    if len(place) > _DEEPEST:  # anchors nest without limit
        raise HiosError(f"{source}: {place[0]}: nested too deeply; allowed: at most {_DEEPEST} levels")
    field = ".".join(map(str, place)) or "(whole file)"
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise HiosError(
                    f"{source}: {field}: found the key {key}, which YAML reads as {type(key).__name__}; "
                    "allowed: text, put it in quotes"
                )
        return {key: plain(item, source, (*place, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item, source, (*place, index)) for index, item in enumerate(value)]
    # Snakemake, which reads config.yaml too, does not say what was in quotes.
    if isinstance(value, str) and _EXPONENT.fullmatch(value) and math.isfinite(float(value)):
        value = float(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)  # JSON Schema takes 2.0 for an integer; file names and commands need 2
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise HiosError(
        f"{source}: {field}: found {value}, which YAML reads as {type(value).__name__}; "
        "allowed: text or a number; put text in quotes"
    )
