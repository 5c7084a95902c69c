"""The cache on disk: which candidate was the fastest for a model here, and its files, ready to be loaded.

The key of a choice covers the model's structure, code, attributes and shapes, the types of its inputs, torch's settings
and the measurement environment; models with other weights share it. The key of what runs it - graph and weights, or the
files of another runtime - also covers the contents of its state, all parameters, buffers and other tensors of modules:
a model never gets what was made for other weights. Both are computed without exporting the model.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import itertools
import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from hios.core.graph import Graph
from hios.errors import ArtifactError, HiosError
from hios.files.json_cache import JsonCache
from hios.frontends.models import reached
from hios.machine.description import usable_cores, variables
from hios.optimizing import runtimes
from hios.optimizing.candidates import SCHEDULE, Candidate
from hios.optimizing.report import Report
from hios.optimizing.tracing import is_plain_object
from hios.platforms.cpu.segment_runtimes import content_digest

_ADVICE = "give another folder (cache=FOLDER), or keep nothing (cache=False)"
_GRAPH, _WEIGHTS = "graph.json", "weights.safetensors"


class ChoiceCache:
    """The cached choice of one key: everything that it depends on, as JSON. Without a folder nothing is saved.

    Raises:
        ArtifactError: choices could not be written there.
    """

    def __init__(self, folder: Path | None, key: Mapping[str, Any]) -> None:
        self._entries = None if folder is None else JsonCache(folder, _ADVICE)
        self._key = key

    def get(self) -> tuple[Report, Candidate] | None:
        """The report, and the candidate; None if there is no usable entry."""
        return None if self._entries is None else self._entries.get(self._key, _choice)

    def put(self, report: Report, candidate: Candidate) -> None:
        """Store a choice; an `ArtifactError` if the folder cannot be written."""
        if self._entries is not None:
            members = {"report": msgspec.to_builtins(report), "way": candidate.to_json()}
            self._entries.put(self._key, members)


def _choice(entry: Any) -> tuple[Report, Candidate]:
    report = replace(msgspec.convert(entry["report"], Report), cached=True)
    if any(way.outcome == "raced" and way.median_ms is None for way in report.ways):
        raise ArtifactError("a choice in the cache is damaged: a way that raced has no times")
    return report, Candidate.from_json(entry["way"])


def write_graph(folder: Path, graph: Graph, weights: Mapping[str, Tensor]) -> None:
    """Write a graph and its weights."""
    (folder / _GRAPH).write_bytes(graph.to_bytes())
    save_file(dict(weights), folder / _WEIGHTS)


def read_graph(folder: Path) -> tuple[Graph, dict[str, Tensor]]:
    """Read what `write_graph` wrote; a `HiosError` if it is damaged."""
    try:
        return Graph.read(folder / _GRAPH), load_file(folder / _WEIGHTS)
    except HiosError:
        raise
    except Exception as error:  # safetensors raises types of its own
        raise ArtifactError(f"{folder}: damaged ({error})") from error


def link(folder: Path, candidate: Candidate, target: Path) -> None:
    """Have the files of a workspace that a candidate needs in another folder too."""
    needed = {_GRAPH, _WEIGHTS}
    if candidate.kind != SCHEDULE:
        file = runtimes.file(candidate.converted_for, folder, candidate.threads)
        needed = {file.name, file.with_suffix(".bin").name}
    for path in folder.iterdir():
        if path.name in needed:
            try:
                (target / path.name).hardlink_to(path)
            except OSError:  # a file system without links
                shutil.copyfile(path, target / path.name)


#: Environment variables that change how intra-operator threads wait and where they run.
_VARIABLES = ("GOMP_", "KMP_", "OMP_")
#: Attributes that change no outputs: what every module has, but for its mode (tables are examined separately, and no
#: optimized model has hooks), and what torch.compile, nn.Module.compile and torch.jit.script set on their modules.
WITHOUT_EFFECT = frozenset(vars(nn.Module())) - {"training"} | {
    "_is_torch_compile",
    "_compiled_call_impl",
    "__overloads__",
}
#: Where a module holds what its ``named_parameters`` and so on return.
_TABLES = ("_parameters", "_buffers", "_modules")
#: Depth to which objects among the attributes are examined.
_DEPTH = 4
#: Packages that are identified by their versions, and the standard library.
_BY_VERSION = frozenset({"torch", "hios", *sys.stdlib_module_names} - {"__main__"})
_INSTALLED = ("site-packages", "dist-packages")
#: Types whose values are part of the key as they are.
_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, slice, torch.dtype, torch.device, torch.Size)


def _matmul_precision() -> str:
    """The precision of matrix products in float32; empty if set by operator, which torch does not mix with this."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return ""


def _set_matmul_precision(precision: str) -> None:
    if precision:
        torch.set_float32_matmul_precision(precision)


def _precision(operator: Any) -> tuple[Callable[[], Any], Callable[[Any], object]]:
    return lambda: operator.fp32_precision, lambda precision: setattr(operator, "fp32_precision", precision)


#: What reads and what sets each setting of torch that changes how operators compute.
_SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "onednn": (torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    "onednn_deterministic": (torch._C._get_mkldnn_deterministic, torch._C._set_mkldnn_deterministic),
    "nnpack": (torch._C._get_nnpack_enabled, torch._C._set_nnpack_enabled),
    "float32_matmul": (_matmul_precision, _set_matmul_precision),
    **{f"onednn_{name}": _precision(getattr(torch.backends.mkldnn, name)) for name in ("matmul", "conv", "rnn")},
    "deterministic": (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    "dtype": (
        lambda: str(torch.get_default_dtype()).removeprefix("torch."),
        lambda name: torch.set_default_dtype(getattr(torch, name)),
    ),
    # Of attention on CPUs too, whatever their names say.
    "flash": (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    "math": (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
    "memory_efficient": (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
}


def model_key(model: nn.Module, tensors: Sequence[Tensor]) -> dict[str, object]:
    """Code of a model, memory formats of its tensors, and settings of torch, as JSON.

    Weights and values of inputs make no difference. `code_digest` says which code is covered.
    """
    code = hashlib.sha256()
    for path, module in model.named_modules():
        kind = type(module)
        own = {name: value for name, value in module.__dict__.items() if name not in WITHOUT_EFFECT}
        code.update(f"{path}:{kind.__module__}.{kind.__qualname__}:{_text(own, _DEPTH)}\n".encode())
    code.update(code_digest(model).encode())
    weights = [*model.named_parameters(), *model.named_buffers()]
    return {
        "code": code.hexdigest(),
        "weights": [[name, *_type(tensor)] for name, tensor in weights],
        "inputs": [_type(tensor) for tensor in tensors],
        "torch": torch_settings(),
        "environment": variables(_VARIABLES),
    }


def torch_settings() -> dict[str, Any]:
    """Settings of torch that change how operators compute, as JSON."""
    return {name: get() for name, (get, _) in _SETTINGS.items()}


def set_torch(settings: Mapping[str, Any]) -> None:
    """Take over what `torch_settings` returned, as in another process."""
    for name, value in settings.items():
        _SETTINGS[name][1](value)


def state_digest(model: nn.Module) -> str:
    """Hash of the contents of all tensors of a model: parameters, buffers, and attributes, in containers too."""
    tensors = list(_tensors(model))
    with ThreadPoolExecutor(max(1, len(usable_cores()))) as pool:  # hashing releases the GIL
        hashes = pool.map(content_digest, (tensor for _, tensor in tensors))
        whole = hashlib.sha256()
        for (name, tensor), content in zip(tensors, hashes, strict=True):
            whole.update(f"{name}:{_type(tensor)}:{content}\n".encode())
    return whole.hexdigest()


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from _tensors_of(model, set())


def _tensors_of(model: nn.Module, seen: set[int]) -> Iterator[tuple[str, Tensor]]:
    """All tensors of a model, but for those within objects that were seen before."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)
    for path, module in model.named_modules():
        seen.add(id(module))
        held = {name: value for name, value in module.__dict__.items() if name not in _TABLES}
        yield from ((f"{path}.{name}", tensor) for name, tensor in _tensors_within(held, seen))


def _tensors_within(value: Any, seen: set[int]) -> Iterator[tuple[str, Tensor]]:
    """Tensors in containers, functions and plain objects, and in modules that are not registered as submodules."""
    for number, leaf in enumerate(pytree.tree_leaves(value)):
        if isinstance(leaf, Tensor):
            yield str(number), leaf
        elif id(leaf) not in seen and (isinstance(leaf, _OPENED) or is_plain_object(leaf)):
            seen.add(id(leaf))
            inner = _tensors_of(leaf, seen) if isinstance(leaf, nn.Module) else _tensors_within(_parts(leaf), seen)
            yield from ((f"{number}.{name}", tensor) for name, tensor in inner)


#: What may hold tensors, beside plain objects.
_OPENED = (nn.Module, FunctionType, functools.partial, SimpleNamespace)


def _parts(value: Any) -> Any:
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    return _held(value) if isinstance(value, FunctionType) else vars(value)


def _type(tensor: Tensor) -> list[object]:
    stride = list(tensor.stride()) if tensor.layout is torch.strided else []
    return [list(tensor.shape), stride, str(tensor.dtype), str(tensor.layout)]


def _text(value: Any, depth: int, around: tuple[int, ...] = ()) -> str:
    """A textual form of a value that is the same in another process, as far as possible.

    ``around`` are the containers that it is in.
    """
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, Tensor):
        return str(_type(value))
    if depth == 0 or id(value) in around:
        return type(value).__qualname__
    inside = (*around, id(value))
    if isinstance(value, Mapping):
        pairs = (f"{_text(key, depth, inside)}: {_text(entry, depth, inside)}" for key, entry in value.items())
        return f"{{{', '.join(sorted(pairs))}}}"
    if isinstance(value, list | tuple | set | frozenset | deque):
        parts = [_text(entry, depth, inside) for entry in value]
        return f"{type(value).__name__}[{', '.join(sorted(parts) if isinstance(value, set | frozenset) else parts)}]"
    if isinstance(value, np.ndarray | np.generic):
        return f"{value.dtype}{value.shape}{hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, functools.partial):
        named = itertools.chain.from_iterable(value.keywords.items())
        return f"partial{_text([value.func, *value.args, *named], depth - 1)}"
    if inspect.isroutine(value) or inspect.isclass(value):
        name = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
        return name + (_text(_held(value), depth - 1) + _bytecode(value) if inspect.isfunction(value) else "")
    if isinstance(value, nn.Module | fx.Graph):
        return type(value).__qualname__  # modules are examined separately, graphs as code
    slots = {name for kind in type(value).__mro__ for name in vars(kind).get("__slots__", ())}
    held = {**{name: getattr(value, name, None) for name in slots}, **getattr(value, "__dict__", {})}
    return f"{type(value).__qualname__}{_text(held, depth - 1, inside)}"


def _bytecode(function: FunctionType) -> str:
    """What a function does that no version of a package identifies, such as a lambda that a model was given."""
    return "" if _top(function.__module__ or "") in _BY_VERSION else _code_text(function.__code__)


def _code_text(code: CodeType) -> str:
    constants = [_code_text(own) if isinstance(own, CodeType) else _text(own, _DEPTH) for own in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"


def _held(function: FunctionType) -> list[Any]:
    """What a function holds beside its code: defaults, and variables of the functions around it."""
    cells = []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # it is empty
            cells.append(cell.cell_contents)
    named = itertools.chain.from_iterable((function.__kwdefaults__ or {}).items())
    return [*(function.__defaults__ or ()), *named, *cells]


def code_digest(model: nn.Module) -> str:
    """Hash of the code of a model.

    It covers the source files of its classes, and the modules that these files name, directly or through others: of the
    packages that the classes are from, and of all that is not installed, such as a file of helpers next to the model's.
    Other packages, what is imported within functions, and helpers that were typed in are not covered.
    """
    digest = hashlib.sha256()
    for module in model.modules():
        if isinstance(module, fx.GraphModule):
            digest.update(module.code.encode())
    for kind in sorted(_own_classes(model), key=lambda kind: f"{kind.__module__}.{kind.__qualname__}"):
        digest.update(_source(kind).encode())
    for name in sorted(_reached(model)):
        if (file := _file(name)) is not None:
            digest.update(f"{name}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def is_in_files(model: nn.Module) -> bool:
    """Whether all classes of a model are defined in files, so that its digest covers them and their helpers."""
    return all(_file(kind.__module__) is not None for kind in _own_classes(model))


def _own_classes(model: nn.Module) -> set[type]:
    """Classes of modules that no package version identifies; FX graphs are code themselves."""
    kinds = {type(module) for module in model.modules() if not isinstance(module, fx.GraphModule)}
    return {kind for kind in kinds if _top(kind.__module__) not in _BY_VERSION}


def _reached(model: nn.Module) -> set[str]:
    """Names of the Python modules that define the classes of a model, and of those they import."""
    own = {kind.__module__ for kind in _own_classes(model)}
    tops = set(map(_top, own))
    return reached(own, lambda name: (n for n in _named(name) if _top(n) in tops or not _is_installed(n)))


def _named(name: str) -> Iterator[str]:
    """Modules that a module imports, or whose functions and classes it imports."""
    for value in list(vars(sys.modules[name]).values()) if name in sys.modules else ():
        if isinstance(value, ModuleType):
            yield value.__name__
        elif isinstance(value, FunctionType | type):
            yield str(value.__module__)


def _is_installed(name: str) -> bool:
    if _top(name) in _BY_VERSION or (file := _file(name)) is None:
        return True
    return any(part in _INSTALLED for part in file.parts)


def _file(name: str) -> Path | None:
    """The Python file of an imported module; None if there is none."""
    file = getattr(sys.modules.get(name), "__file__", None)
    path = Path(file) if isinstance(file, str) else None
    return path if path is not None and path.suffix == ".py" and path.is_file() else None


def _source(kind: type) -> str:
    """Source of a class or, if it was typed in, the bytecode of its forward."""
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        code = getattr(getattr(kind, "forward", None), "__code__", None)
        return "" if code is None else _code_text(code)


def _top(name: str) -> str:
    return name.partition(".")[0]
