"""Whether a model is pure: it writes to none of the user's tensors and keeps no state between calls.

A model that changes its state or its inputs must run exactly as often as the user calls it. So before it runs for the
first time, it is run on fake tensors, which record every write without carrying it out.

What a first call sets once, such as flags and caches, is no change of state. So where it sets something, a second call
decides: it has to set nothing more, and to use nothing that the first one computed from its inputs.

torch.export with functionalization cannot take the place of that (torch 2.13): it does not report numbers and lists
that a model changes, nor outputs that share memory. Without strict tracing it carries out writes into tensors that are
neither parameters nor buffers; with it, writing into the ``data`` of a parameter crashes the process.
"""

from __future__ import annotations

import contextlib
import logging
import operator
import os
import traceback
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from hios.errors import ExampleInputsError, UnsupportedError, first_line
from hios.formats.aten_operators import UPDATES_STATISTICS
from hios.optimizing.tracing import ModelOutputs, is_plain_object

#: Files of torch that check shapes and dtypes of operators, and the errors they raise.
_SHAPE_CHECKS = (
    "_meta_registrations.py",
    "_prims_common/__init__.py",
    "_refs/__init__.py",
    "_decomp/decompositions.py",
    "_subclasses/fake_impls.py",
    "nn/functional.py",
)
#: Number of innermost lines searched for such a check, which may raise through helpers.
_INNERMOST = 4
_REFUSALS = (RuntimeError, ValueError, TypeError, IndexError)
_TABLES = ("_parameters", "_buffers", "_modules")
#: Attributes that nn.LSTM, nn.GRU and nn.RNN derive again from their parameters when these are replaced, as here by
#: fake tensors.
_DERIVED = frozenset({"_flat_weights", "_flat_weight_refs"})
#: Types of attributes that may be assigned again if the value stays equal.
_VALUES = (int, float, str, torch.Size)


def require_pure(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a model with side effects, or whose outputs share elements otherwise than as views of one of them.

    It runs once or twice, without values; neither it nor its inputs are changed by that.

    Raises:
        ExampleInputsError: an operator refuses their shapes or dtypes.
        UnsupportedError: it cannot run without values; or it writes into an input, a parameter, a buffer or another
            tensor that it did not make in this call, or sets an attribute; or an output is in memory that another
            output that does not contain it, an input or a weight is in, as writes into one must be seen in the other.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv(), static_shapes=True)
    _require_python(model)
    with _restored(model) as state, torch.inference_mode(False), torch.no_grad():
        try:
            held = state.without_values(mode)
            given = pytree.tree_map_only(Tensor, mode.from_tensor, (tuple(args), dict(kwargs)))
            with mode:
                calls = [given, pytree.tree_map_only(Tensor, torch.clone, given)]
        except Exception as error:  # torch does not support fake tensors for some subclasses
            raise UnsupportedError(f"found a tensor that cannot be examined: {first_line(error)}") from error
        owners = {_memory(tensor): f"its {what}" for what, tensor in held.items()}
        earlier: _Writes | None = None
        for own_args, own_kwargs in calls:
            leaves = pytree.tree_flatten((own_args, own_kwargs))
            inputs = [leaf for leaf in leaves[0] if isinstance(leaf, Tensor)]
            before, writes, failed, outputs = _State(model), _Writes(owners, inputs, earlier), None, None
            try:
                with _unlogged(), mode, writes:
                    outputs = model(*own_args, **own_kwargs)
            except Exception as error:  # whatever a user's model raises, or the error that stops it
                failed = error
            changed = [*writes.written_into, *before.changed()]
            if not _holds(pytree.tree_flatten((own_args, own_kwargs)), leaves):
                changed.append("a list or dictionary among its inputs")
            if failed is not None or not changed:
                break
            earlier = writes
    if failed is not None and not writes.written_into:
        if _is_refused(failed, writes):
            raise ExampleInputsError(
                f"example inputs: {type(model).__name__} cannot run on them: {type(failed).__name__}: "
                f"{first_line(failed)}"
            ) from failed
        raise UnsupportedError(
            f"cannot run on tensors without values: {first_line(failed)}; allowed: models whose Python code does not "
            "depend on the values of tensors"
        ) from failed
    if changed:
        raise UnsupportedError(
            f"it changes {changed[0]} when it runs; allowed: models that only compute; let it work on a copy, "
            "or take the value as an input and return the new one"
        )
    _require_apart(outputs, inputs, writes.owners)


def _require_python(model: nn.Module) -> None:
    """Check that modules are in Python, and their tensors dense."""
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise UnsupportedError("found a part in TorchScript; allowed: modules in Python")
    for path, module in model.named_modules():
        for name, value in chain(*(vars(module)[table].items() for table in _TABLES), vars(module).items()):
            if isinstance(value, Tensor) and value.layout is not torch.strided:
                raise UnsupportedError(f"{_joined(path, name)}: found layout {value.layout}; allowed: dense tensors")


def _holds(given: tuple[list[Any], pytree.TreeSpec], leaves: tuple[list[Any], pytree.TreeSpec]) -> bool:
    """Whether containers hold the same objects as before."""
    return given[1] == leaves[1] and all(map(operator.is_, given[0], leaves[0]))


def _is_refused(error: Exception, writes: _Writes) -> bool:
    """Whether the model would refuse its inputs with values too."""
    refused = writes.is_refused_with_values() if type(error) in _REFUSALS else False
    return _is_about_shapes(error) if refused is None else refused


def _is_about_shapes(error: Exception) -> bool:
    """Whether an operator rejected the shapes or dtypes, which would also happen with values."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame.filename for frame in frames if f"{os.sep}torch{os.sep}" in frame.filename]
    # Subclasses are of tensors without values themselves, such as of outputs whose shapes depend on values.
    return type(error) in _REFUSALS and any(file.endswith(_SHAPE_CHECKS) for file in own[-_INNERMOST:])


@contextlib.contextmanager
def _unlogged() -> Iterator[None]:
    """Suppress the traceback that torch logs when an operator fails on fake tensors."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    disabled = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = disabled


def _require_apart(outputs: Any, inputs: Sequence[Tensor], owners: Mapping[int, str]) -> None:
    """Check that outputs share no element; an output may be an input, a view of another one, or be returned twice."""
    seen: dict[int, list[Tensor]] = {}
    for leaf in ModelOutputs(outputs, inputs).tensors:
        if not isinstance(leaf, FakeTensor):
            raise UnsupportedError("an output is a tensor that it keeps; allowed: outputs that are computed")
        memory = _memory(leaf)
        others = seen.setdefault(memory, [])
        if memory in owners or any(_overlap(leaf, other) for other in others):
            raise UnsupportedError(
                f"an output shares memory with {owners.get(memory, 'another output')}; allowed: outputs with "
                "memory of their own, as by clone()"
            )
        others.append(leaf)


def _overlap(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors in one memory share an element; those of one ``chunk`` do not."""
    if first.element_size() != second.element_size():
        return True
    ours, theirs = map(_places, (first, second))
    return bool(np.intersect1d(ours, theirs).size)


def _places(tensor: Tensor) -> np.ndarray:
    """Where in its memory the elements of a tensor are."""
    places = np.asarray([tensor.storage_offset()])
    for size, step in zip(tensor.shape, tensor.stride(), strict=True):
        places = np.add.outer(places, step * np.arange(size)).ravel()
    return places


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _by_memory(values: Any) -> dict[int, Tensor]:
    """The tensors without values among values, by their memory."""
    leaves = pytree.tree_leaves(values)
    return {_memory(t): t for t in leaves if isinstance(t, FakeTensor) and t.layout is torch.strided}


class _StoppedError(Exception):
    """An operator is about to write to memory that is not its own."""


class _Writes(TorchDispatchMode):
    """Stops before an operator that writes to memory outside of the call, or reads what comes of earlier inputs.

    ``owners`` says whose memory is whose, ``earlier`` is the call before; ``written_into`` has the owners of the memory
    that was written to, or of an earlier call that is read, in words.
    """

    def __init__(self, owners: Mapping[int, str], inputs: Sequence[Tensor], earlier: _Writes | None = None) -> None:
        super().__init__()
        #: Tensors that this call made, and those that it computed from its inputs, by their memory, which stays taken.
        self._made: dict[int, Tensor] = {}
        self._of_inputs = {_memory(tensor): tensor for tensor in inputs}
        self._stale = {} if earlier is None else earlier._of_inputs
        kept = {} if earlier is None else dict.fromkeys(earlier._made, "a tensor that it keeps")
        self.owners = {**kept, **owners, **dict.fromkeys(self._of_inputs, "an input")}
        self._failed: tuple[Any, Any, Any] | None = None
        self.written_into: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = func._schema
        read = _by_memory((args, kwargs))
        if any(memory in self._stale for memory in read):
            self.written_into.append("what it keeps of an earlier call")
            raise _StoppedError
        for place, argument in enumerate(schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                self._note(args[place] if place < len(args) else kwargs.get(argument.name))
        training = UPDATES_STATISTICS.get(schema.name)
        if training is not None and args[training]:
            self._note(args[3:5])
        try:
            outputs = func(*args, **kwargs)
        except Exception:
            self._failed = (func, args, kwargs)
            raise
        made = _by_memory(outputs)
        self._made |= made
        if any(memory in self._of_inputs for memory in read):
            self._of_inputs |= made
        return outputs

    def is_refused_with_values(self) -> bool | None:
        """Whether the operator that failed last also refuses zeros of these shapes and dtypes; None if not known."""
        if self._failed is None:
            return None
        func, *given = self._failed
        try:
            args, kwargs = pytree.tree_map_only(Tensor, _zeros, given)
        except Exception:  # sizes that depend on values, devices that are not here
            return None
        try:
            func(*args, **kwargs)
        except Exception as error:
            return type(error) in _REFUSALS
        return False

    def _note(self, written: Any) -> None:
        for leaf in pytree.tree_leaves(written):
            if not isinstance(leaf, Tensor):
                continue
            # What has values was there before this call.
            owner = self.owners.get(_memory(leaf)) if isinstance(leaf, FakeTensor) else "a tensor that it keeps"
            if owner is not None:
                self.written_into.append(owner)
                raise _StoppedError


def _zeros(like: Tensor) -> Tensor:
    return torch.zeros([int(size) for size in like.shape], dtype=like.dtype, device=like.device)


class _State:
    """A snapshot of the attributes, parameters, buffers and submodules of all modules, to compare and restore."""

    def __init__(self, model: nn.Module) -> None:
        self._modules = dict(model.named_modules())
        self._dicts = {path: dict(module.__dict__) for path, module in self._modules.items()}
        self._tables = {
            (path, name): dict(module.__dict__[name]) for path, module in self._modules.items() for name in _TABLES
        }
        #: Contents of lists, other containers and objects, which are changed in place.
        self._contents = {
            (path, name): _copied(_contents(value))
            for path, held in self._dicts.items()
            for name, value in held.items()
            if name not in _TABLES and (isinstance(value, list | dict | set) or is_plain_object(value))
        }

    def without_values(self, mode: FakeTensorMode) -> dict[str, Tensor]:
        """Replace parameters and buffers with fake tensors; returns these by name."""
        faked_values: dict[str, Tensor] = {}
        during: dict[tuple[str, str], dict[str, Any]] = {}
        for (path, table), entries in self._tables.items():
            faked = {
                name: mode.from_tensor(value) if isinstance(value, Tensor) else value for name, value in entries.items()
            }
            during[path, table] = faked
            kind = "parameter" if table == "_parameters" else "buffer"
            faked_values |= {
                f"{kind} {_joined(path, n)}": value for n, value in faked.items() if isinstance(value, Tensor)
            }
        self._fill(during)
        return faked_values

    def changed(self) -> list[str]:
        """What has changed, in words."""
        changes = []
        for path, before in self._dicts.items():
            after = self._modules[path].__dict__
            derived = _DERIVED if isinstance(self._modules[path], nn.RNNBase) else frozenset()
            names = [
                name
                for name in {**before, **after}
                if name not in derived and not _same(before.get(name, self), after.get(name, self))
            ]
            changes += [f"its attribute {_joined(path, name)}" for name in names]
        for (path, table), before in self._tables.items():
            after = self._modules[path].__dict__[table]
            names = [name for name in {**before, **after} if before.get(name, self) is not after.get(name, self)]
            changes += [f"its {table[1:-1]} {_joined(path, name)}" for name in names]
        for (path, name), held in self._contents.items():
            if name in _DERIVED and isinstance(self._modules[path], nn.RNNBase):
                continue
            if not _alike(held, _contents(self._dicts[path][name])):
                changes.append(f"its attribute {_joined(path, name)}")
        return changes

    def put_back(self) -> None:
        """Restore everything."""
        for path, module in self._modules.items():
            if any(module.__dict__.get(n, self) is not v for n, v in self._dicts[path].items()) or len(
                module.__dict__
            ) != len(self._dicts[path]):
                module.__dict__.clear()
                module.__dict__.update(self._dicts[path])
        self._fill(self._tables)
        for (path, name), held in self._contents.items():
            _refill(_contents(self._dicts[path][name]), held)

    def _fill(self, tables: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
        for (path, table), entries in tables.items():
            held = self._modules[path].__dict__[table]
            held.clear()
            held.update(entries)


@contextlib.contextmanager
def _restored(model: nn.Module) -> Iterator[_State]:
    """A context that restores the state of a model at its end."""
    state = _State(model)
    try:
        yield state
    finally:
        state.put_back()


def _same(before: Any, after: Any) -> bool:
    """Whether an attribute is unchanged, or was set to an equal number or text."""
    return before is after or (type(before) is type(after) and type(after) in _VALUES and bool(before == after))


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _contents(value: Any) -> Any:
    """What may change in a container, or in an object."""
    return vars(value) if is_plain_object(value) else value


def _copied(value: Any) -> Any:
    """A container with copies of nested containers; everything else is shared."""
    if isinstance(value, dict):
        return {key: _copied(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_copied(entry) for entry in value]
    return set(value) if isinstance(value, set) else value


def _alike(before: Any, after: Any) -> bool:
    """Whether a container holds the same objects as its copy."""
    if isinstance(before, dict):
        return before.keys() == after.keys() and all(_alike(entry, after[key]) for key, entry in before.items())
    if isinstance(before, list):
        return len(before) == len(after) and all(map(_alike, before, after))
    return before == after if isinstance(before, set) else before is after


def _refill(container: Any, held: Any) -> None:
    """Restore a container from its copy."""
    if _alike(held, container):
        return
    container.clear()
    container.extend(held) if isinstance(container, list) else container.update(held)
