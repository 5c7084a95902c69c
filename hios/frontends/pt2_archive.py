"""Loading program.pt2 without trust: a copy without anything that torch's loader could execute.

torch.export.load unpickles anything that an archive contains, looks up operators by attribute, evaluates shape
expressions, imports modules that a tree of outputs names, and writes names of nodes into Python code that it then runs.
Therefore, torch never loads the file itself. This module lists what an archive may contain, reads it with torch's own
reader, checks it, and writes a new archive from the checked parts; anything else is refused. The lists follow
``torch._export.serde.schema`` of the torch that is pinned.
"""

from __future__ import annotations

import io
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from hios.errors import ArtifactError, first_line
from hios.files import read_limits
from hios.formats.aten_operators import is_harmless

#: How many times smaller a file may be than its contents: torch compresses none of them, and weights hardly shrink.
MOST_GROWTH = 4
_PROGRAM = "models/model.json"
_EXAMPLES = "data/sample_inputs/model.pt"
#: Folders of tensors, with the file that describes them, and the names of tensors.
_TENSORS = {"data/weights/": "model_weights_config.json", "data/constants/": "model_constants_config.json"}
_TENSOR = re.compile(r"data/weights/weight_[0-9]+|data/constants/tensor_[0-9]+")
#: Records that the copy writes itself or omits.
_LEFT_OUT = re.compile(r"archive_(format|version)|\.data/\w+|byteorder|data/sample_inputs/model\.pt|extra/.+")
_COMPILED = ("data/aotinductor/", "data/executorch/", "data/mtia")

#: Names become variables of generated code; paths of modules and weights appear in it in double quotes.
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)?")
_PATH = re.compile(r"[\w.:/ +<>()-]*")
_WORD = re.compile(r"[A-Za-z]+")
#: Numbers that JSON cannot express, which torch writes as text.
_NOT_FINITE = re.compile(r"-?Infinity|NaN")
_ANYTHING = re.compile(r".*", re.DOTALL)

#: Keys of the program whose values are numbers, or objects and lists that are checked in their turn.
_STRUCTURE = re.compile(
    r"graph_module|graph|signature|module_call_graph|inputs|outputs|nodes|arg|kind|(in|out)put_specs|index|value|"
    r"is_single_tensor_return|is_hop_single_tensor_return|schema_version|major|minor|device|dtype|layout|"
    r"as_(none|(tensor|int|float|bool|sym_int|sym_bool|sym_float|optional_tensor)s?|nested_tensors|(int|float)_lists)|"
    r"as_(scalar_type|memory_format|layout|device|complex)|real|imag|"
    r"parameter|buffer|tensor_constant|constant_input|persistent|user_(in|out)put|loss_output|"
    r"(buffer|parameter|user_input)_mutation|gradient_to_(parameter|user_input)|"
    r"tensor_meta|sizes|strides|storage_offset|requires_grad|is_param|use_pickle"
)
#: Keys whose values are text, with the allowed texts.
_TEXT = {
    **dict.fromkeys(("name", "as_name", "user_input_name", "forward_arg_names"), _NAME),
    **dict.fromkeys(("fqn", "parameter_name", "buffer_name", "tensor_constant_name", "torch_version"), _PATH),
    **dict.fromkeys(("as_string", "as_strings"), _ANYTHING),
    "as_float": _NOT_FINITE,
    "path_name": _PATH,
    "type": _WORD,
    "verifiers": _WORD,
}
#: Objects whose keys are names.
_TABLES = {
    **dict.fromkeys(("tensor_values", "sym_int_values", "sym_bool_values", "sym_float_values"), _NAME),
    **dict.fromkeys(("opset_version", "config"), _PATH),
}
#: Code, and data for torch's own tools only, with the replacement in the copy.
_REPLACED: Mapping[str, object] = {"guards_code": [], "treespec_namedtuple_fields": {}, "range_constraints": {}}
#: Reasons for refusing keys that a program may have.
_REASONS = {
    "as_operator": "an operator as an argument",
    "as_graph": "a program within the program (control flow)",
    "as_custom_obj": "a custom object, which is pickled",
    "custom_obj": "a custom object, which is pickled",
    "custom_obj_values": "a custom object, which is pickled",
}
#: Metadata of a node that is kept: where in the model it comes from.
_METADATA = ("stack_trace", "nn_module_stack", "torch_fn")

#: Containers in which inputs and outputs may be nested.
PLAIN_TREES = (tuple, list, dict, OrderedDict)
_TREES = {f"{kind.__module__}.{kind.__name__}": kind for kind in PLAIN_TREES}


def without_code(stream: BinaryIO, path: Path) -> io.BytesIO:
    """A copy of a program.pt2 that torch.export.load can read without trusting its author.

    Guards on inputs, files of other programs, and example inputs that are not plain tensors are left out.

    Raises:
        ArtifactError: the file needs pickle, or contains anything else that could run code when loaded.
    """
    from torch.export.pt2_archive import PT2ArchiveReader, PT2ArchiveWriter  # loads all of Dynamo

    try:
        reader = PT2ArchiveReader(stream)
        records = reader.get_file_names()
    except (RuntimeError, AssertionError) as error:
        raise _refused(path, "it is not in the present format of torch.export (an older one is pickled)") from error
    copied = io.BytesIO()
    with PT2ArchiveWriter(copied) as writer:
        for name, data in _Checked(path, reader.read_bytes, records).records():
            writer.write_bytes(name, data)
    copied.seek(0)
    return copied


def _refused(path: Path, reason: str) -> ArtifactError:
    return ArtifactError(
        f"{path}: refused, because loading it could run code: {reason}; export the model again, or, where you trust "
        "who made the file, say so with --trust (in config.yaml: trusted: true)"
    )


class _Checked:
    """The records of an archive, checked when read."""

    def __init__(self, path: Path, read: Callable[[str], bytes], names: list[str]) -> None:
        self._path = path
        self._read = read
        self._names = names

    def records(self) -> Iterator[tuple[str, bytes]]:
        """Names and contents of the copy."""
        self._check_names()
        yield _PROGRAM, self._json(_PROGRAM)
        yield _EXAMPLES, self._examples()
        for folder, config in _TENSORS.items():
            yield folder + config, self._json(folder + config)
        yield from ((name, self._read(name)) for name in self._names if _TENSOR.fullmatch(name))

    def _examples(self) -> bytes:
        """Example inputs if they are plain tensors; otherwise none."""
        data = self._read(_EXAMPLES) if _EXAMPLES in self._names else b""
        try:
            with read_limits.opened_zip(io.BytesIO(data), self._path, MOST_GROWTH, "plain tensors"):
                loaded = torch.load(io.BytesIO(data), weights_only=True)
        except Exception:  # any other pickled object: nothing depends on it
            return b""
        return data if isinstance(loaded, tuple) and len(loaded) == 2 else b""

    def _check_names(self) -> None:
        seen: set[str] = set()
        for name in self._names:
            if name.lower() in seen:  # torch ignores the case of record names
                raise _refused(self._path, f"it holds {_shown(name)} twice")
            seen.add(name.lower())
            if name.startswith(_COMPILED):
                raise _refused(self._path, f"it holds compiled code, {_shown(name)}")
            known = name in {_PROGRAM, *(folder + config for folder, config in _TENSORS.items())}
            if not known and not _LEFT_OUT.fullmatch(name) and not _TENSOR.fullmatch(name):
                pickled = ", which is pickled" if name.startswith(tuple(_TENSORS)) else ", which hios does not know"
                raise _refused(self._path, f"it holds {_shown(name)}{pickled}")

    def _json(self, name: str) -> bytes:
        if name not in self._names:
            raise ArtifactError(f"{self._path}: {name} is missing; export it again")
        try:
            text = self._read(name)
            read_limits.require_memory(self._path, f"{name} in memory", read_limits.JSON_GROWTH * len(text))
            data = json.loads(text)
            return json.dumps(self._clean(data, "", name)).encode()
        except (ValueError, RecursionError) as error:
            raise ArtifactError(f"{self._path}: {name}: {first_line(error)}; export it again") from error

    def _clean(self, value: Any, key: str, place: str) -> Any:
        """A copy of a value under a key, with allowed contents only."""
        if isinstance(value, list):
            return [self._clean(item, key, f"{place}[{number}]") for number, item in enumerate(value)]
        if isinstance(value, str):
            return self._text(value, key, place)
        if not isinstance(value, dict):
            return value  # numbers, true, false and null run nothing
        if key in _TABLES:
            for name in value:
                self._require(_TABLES[key], name, place)
            return {name: self._clean(item, "", f"{place}.{name}") for name, item in value.items()}
        return {name: self._field(item, name, f"{place}.{_shown(name)}") for name, item in value.items()}

    def _field(self, value: Any, key: str, place: str) -> Any:
        if key in _REPLACED:
            return _REPLACED[key]
        if key in {"custom_obj_values", "metadata"} and isinstance(value, dict):
            if key == "custom_obj_values" and value:
                raise _refused(self._path, f"{place} is {_REASONS[key]}")
            return {name: text for name, text in value.items() if name in _METADATA and _is_comment(text)}
        if key == "use_pickle" and value is not False:
            raise _refused(self._path, f"{place} asks for pickle")
        if key == "target":
            return self._target(value, place)
        if key == "as_expr":  # torch evaluates it
            raise ArtifactError(
                f"{self._path}: {place} is a dimension that is not fixed; export it without dynamic_shapes, or, if you "
                "trust who made it, give --trust and --input NAME=SIZES (in config.yaml: trusted and inputs)"
            )
        if key in {"in_spec", "out_spec"}:
            self._check_tree(value, place)
            return value
        if not _STRUCTURE.fullmatch(key) and key not in _TEXT and key not in _TABLES:
            raise _refused(self._path, f"{place} is {_REASONS.get(key, 'nothing that hios knows')}")
        return self._clean(value, key, place)

    def _text(self, value: str, key: str, place: str) -> str:
        if key not in _TEXT:
            raise _refused(self._path, f"{place} is text, {_shown(value)}")
        self._require(_TEXT[key], value, place)
        if key == "type" and value != "cpu":
            raise ArtifactError(
                f"{self._path}: {place} is the device {_shown(value)}; allowed: cpu; move model and inputs there and "
                "export again"
            )
        record = f"{place.partition('model_')[0]}{value}"  # the place begins with the file that describes the tensor
        if key == "path_name" and (record not in self._names or not _TENSOR.fullmatch(record)):
            raise _refused(self._path, f"{place} is {_shown(value)}, which is not a tensor of the file")
        return value

    def _require(self, form: re.Pattern[str], value: str, place: str) -> None:
        if not form.fullmatch(value):
            raise _refused(self._path, f"{place} has the name {_shown(value)}, which is not a name")

    def _target(self, value: Any, place: str) -> str:
        if not isinstance(value, str) or not is_harmless(value):
            raise _refused(self._path, f"{place} is {_shown(str(value))}; allowed: ATen operators on tensors")
        return value

    def _check_tree(self, text: Any, place: str) -> None:
        """The structure of inputs or outputs: tuples, lists and dictionaries, whose types torch looks up by name."""
        protocol, tree = json.loads(text) if isinstance(text, str) else (None, None)
        waiting = [tree]
        while waiting:
            node = waiting.pop()
            if protocol != 1 or not isinstance(node, dict) or not isinstance(node.get("children_spec"), list):
                raise _refused(self._path, f"{place} is not a structure of values")
            waiting += node["children_spec"]
            if node.get("type") is None and node.get("context") is None:
                continue
            if node.get("type") not in _TREES or not isinstance(node.get("context"), str):
                allowed = ", ".join(kind.__name__ for kind in PLAIN_TREES)
                raise _refused(
                    self._path, f"{place} names the type {_shown(str(node.get('type')))}; allowed: {allowed}"
                )
            keys = json.loads(node["context"]) or []
            if not isinstance(keys, list):
                raise _refused(self._path, f"{place} has keys that are not a list")
            for key in keys:
                if not isinstance(key, int):
                    self._require(_NAME, str(key), place)


def _is_comment(text: Any) -> bool:
    """Whether metadata of a node is safe in generated code, where torch puts it between triple quotes."""
    return isinstance(text, str) and '"""' not in text and "'''" not in text


def _shown(value: str) -> str:
    text = json.dumps(value)[1:-1]
    return text if len(text) <= 60 else f"{text[:57]}..."
