"""Whether a model is pure: it writes to none of the user's tensors and keeps no state between calls.

A model that changes its state or its inputs must run exactly as often as the user calls it. So before it runs for the
first time, it is run on fake tensors, which record every write without carrying it out.

What a first call sets once, such as flags and caches, is no change of state. So where it sets something, a second call
decides: it has to set nothing more, and to use nothing that the first one computed from its inputs. Everything is put
back afterwards, so that the model finds no tensor without values, wherever it keeps what it computes.

torch.export with functionalization cannot take the place of that (torch 2.13): it does not report numbers and lists
that a model changes, nor outputs that share memory. Without strict tracing it carries out writes into tensors that are
neither parameters nor buffers; with it, writing into the ``data`` of a parameter crashes the process.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import operator
import os
import sys
import traceback
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import CellType, FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from hios.errors import ExampleInputsError, HiosError, UnsupportedError, first_line
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
_CONTAINERS = (OrderedDict, dict, list, set, deque)
#: Containers at most that are compared for a model, and around it; entries of one whose own contents are compared too,
#: as larger ones are data; and containers in which a tensor is that a cache keeps.
_MOST, _AROUND, _ENTRIES, _NESTED = 1_000_000, 20_000, 10_000, 4


def require_pure(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a model with side effects, or whose outputs share elements otherwise than as views of one of them.

    It runs once or twice, without values; neither it nor its inputs are changed by that.

    Raises:
        ExampleInputsError: an operator refuses their shapes or dtypes.
        UnsupportedError: it cannot run without values; or it writes into an input, a parameter, a buffer or another
            tensor that it did not make in this call, or sets an attribute; or an output is in memory that another
            output that does not contain it, an input or a weight is in, as writes into one must be seen in the other.
    """
    _require_python(model)
    made: list[weakref.ref[Tensor]] = []
    with _left_behind(made):  # once nothing of the runs holds tensors
        _require_pure(model, args, kwargs, made)


def _require_pure(
    model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], made: list[weakref.ref[Tensor]]
) -> None:
    """The same; all tensors without values are added to ``made``."""
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv(), static_shapes=True)
    with _restored(model) as state, torch.inference_mode(False), torch.no_grad():
        try:
            held = state.without_values(mode)
            given = pytree.tree_map_only(Tensor, mode.from_tensor, (tuple(args), dict(kwargs)))
            with mode:
                calls = [given, pytree.tree_map_only(Tensor, torch.clone, given)]
        except Exception as error:  # torch does not support fake tensors for some subclasses
            raise UnsupportedError(f"found a tensor that cannot be examined: {first_line(error)}") from error
        owners = {_memory(tensor): f"its {what}" for what, tensor in held.items()}
        made += map(weakref.ref, _leaves((held, calls)))
        earlier: _Writes | None = None
        for own_args, own_kwargs in calls:
            leaves = pytree.tree_flatten((own_args, own_kwargs))
            inputs = [leaf for leaf in leaves[0] if isinstance(leaf, Tensor)]
            before, writes, failed, shared = _State(model), _Writes(owners, inputs, made, earlier), None, ""
            try:
                with _unlogged(), mode, writes:
                    outputs = model(*own_args, **own_kwargs)
            except Exception as error:  # whatever a user's model raises, or the error that stops it
                failed = error
            else:
                shared = _shared(outputs, inputs, writes.owners)
                del outputs
            changed = [*writes.written_into, *before.changed()]
            if not _holds(pytree.tree_flatten((own_args, own_kwargs)), leaves):
                changed.append("a list or dictionary among its inputs")
            if failed is None and writes.are_kept():
                changed.append("what it keeps between calls")
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
    if shared:
        raise UnsupportedError(shared)


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


def _shared(outputs: Any, inputs: Sequence[Tensor], owners: Mapping[int, str]) -> str:
    """What an output shares, in words; it may be an input, a view of another output, or be returned twice."""
    seen: dict[int, list[Tensor]] = {}
    for leaf in ModelOutputs(outputs, inputs).tensors:
        if not isinstance(leaf, FakeTensor):
            return "an output is a tensor that it keeps; allowed: outputs that are computed"
        memory = _memory(leaf)
        others = seen.setdefault(memory, [])
        if memory in owners or any(_overlap(leaf, other) for other in others):
            return (
                f"an output shares memory with {owners.get(memory, 'another output')}; allowed: outputs with "
                "memory of their own, as by clone()"
            )
        others.append(leaf)
    return ""


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


def _leaves(values: Any) -> list[FakeTensor]:
    """The tensors without values among values."""
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, FakeTensor)]


def _by_memory(tensors: Iterable[Tensor]) -> dict[int, Tensor]:
    return {_memory(tensor): tensor for tensor in tensors if tensor.layout is torch.strided}


def _alive(tensors: Iterable[weakref.ref[Tensor]]) -> list[Tensor]:
    return [tensor for reference in tensors if (tensor := reference()) is not None]


class _StoppedError(Exception):
    """An operator is about to write to memory that is not its own."""


class _Writes(TorchDispatchMode):
    """Stops before an operator that writes to memory outside of the call, or reads what comes of earlier inputs.

    ``owners`` says whose memory is whose, ``earlier`` is the call before; ``written_into`` has the owners of the memory
    that was written to, or of an earlier call that is read, in words. All tensors that it makes are added to ``made``.
    """

    def __init__(
        self,
        owners: Mapping[int, str],
        inputs: Sequence[Tensor],
        made: list[weakref.ref[Tensor]],
        earlier: _Writes | None = None,
    ) -> None:
        super().__init__()
        self._all, self._first = made, len(made)
        #: Tensors that this call made, and those that it computed from its inputs, by their memory, which stays taken.
        self._made: dict[int, Tensor] = {}
        self._inputs = {_memory(tensor): tensor for tensor in inputs}
        self._of_inputs = dict(self._inputs)
        self._stale = {} if earlier is None else earlier._of_inputs
        kept = {} if earlier is None else dict.fromkeys(earlier._made, "a tensor that it keeps")
        self.owners = {**kept, **owners, **dict.fromkeys(self._of_inputs, "an input")}
        self._failed: tuple[Any, Any, Any] | None = None
        self.written_into: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = func._schema
        read = _by_memory(_leaves((args, kwargs)))
        if any(memory in self._stale for memory in read):
            self.written_into.append("what it keeps of an earlier call")
            raise _StoppedError
        if any(isinstance(leaf, torch.Generator) for leaf in pytree.tree_leaves((args, kwargs))):
            self.written_into.append("a random generator of its own")
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
        leaves = _leaves(outputs)
        self._all += map(weakref.ref, leaves)
        made = _by_memory(leaves)
        self._made |= made
        if any(memory in self._of_inputs for memory in read):
            self._of_inputs |= made
        return outputs

    def are_kept(self) -> bool:
        """Whether tensors that it made are kept after the call, without its outputs; only these are known from now."""
        of_inputs = set(self._of_inputs)
        self._made, self._of_inputs = {}, dict(self._inputs)
        if not self._kept():
            return False
        gc.collect()  # those of cycles
        self._made = self._kept()
        self._of_inputs |= {memory: tensor for memory, tensor in self._made.items() if memory in of_inputs}
        return bool(self._made)

    def _kept(self) -> dict[int, Tensor]:
        alive = _by_memory(_alive(self._all[self._first :]))
        return {memory: tensor for memory, tensor in alive.items() if memory not in self.owners}

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
    """A snapshot of the attributes, parameters, buffers and submodules of all modules, to compare and restore.

    With ``around``, tensors without values are also taken out of the classes of modules and of their files.
    """

    def __init__(self, model: nn.Module, *, around: bool = False) -> None:
        self._modules = dict(model.named_modules())
        self._dicts = {path: dict(module.__dict__) for path, module in self._modules.items()}
        self._tables = {
            (path, name): dict(module.__dict__[name]) for path, module in self._modules.items() for name in _TABLES
        }
        #: What containers and objects hold that are changed in place, by their number: whose it is, itself, a copy.
        self._contents: dict[int, tuple[str, Any, Any]] = {}
        for path, held in self._dicts.items():
            derived = _DERIVED if isinstance(self._modules[path], nn.RNNBase) else ()
            for name, value in held.items():
                if name not in _TABLES and name not in derived:
                    _add(self._contents, _MOST, f"its attribute {_joined(path, name)}", value)
        #: The same of the classes of modules and of their files, which may change meanwhile by other hands.
        self._classes: dict[type, dict[str, Any]] = {}
        self._around: dict[int, tuple[str, Any, Any]] = {}
        if around:
            kinds = {kind for module in self._modules.values() for kind in type(module).__mro__[:-1]}
            self._classes = {kind: dict(vars(kind)) for kind in kinds if not _is_of_libraries(kind)}
            files = {kind.__module__ for kind in self._classes} & sys.modules.keys()
            for held in (*(vars(sys.modules[name]) for name in files), *self._classes.values()):
                _add(self._around, _AROUND, "", held)

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
        changes += [what for what, held, before in self._contents.values() if not _alike(before, held)]
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
        for _, held, before in self._contents.values():
            _refill(held, before)
        for _, held, before in self._around.values():
            _take_back(held, before)
        for kind, attributes in self._classes.items():
            for name, value in dict(vars(kind)).items():
                if value is not attributes.get(name, self) and _has_fakes(value):
                    setattr(kind, name, attributes[name]) if name in attributes else delattr(kind, name)

    def _fill(self, tables: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
        for (path, table), entries in tables.items():
            held = self._modules[path].__dict__[table]
            held.clear()
            held.update(entries)


@contextlib.contextmanager
def _restored(model: nn.Module) -> Iterator[_State]:
    """A context that restores the state of a model at its end."""
    state = _State(model, around=True)
    try:
        yield state
    finally:
        state.put_back()


def _same(before: Any, after: Any) -> bool:
    """Whether an attribute is unchanged, or was set to an equal number or text."""
    return before is after or (type(before) is type(after) and type(after) in _VALUES and bool(before == after))


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _add(into: dict[int, tuple[str, Any, Any]], most: int, what: str, value: Any) -> None:
    """Copy what a value holds, through containers and objects, by their number: whose it is, itself, its copy."""
    found, tuples = deque([value]), set[int]()
    while found and len(into) < most:
        value = found.popleft()
        kind = type(value)
        if issubclass(kind, _VALUES):
            continue
        if issubclass(kind, tuple):
            if id(value) not in tuples:
                tuples.add(id(value))
                found.extend(tuple.__iter__(value))
        elif (held := _contents(value)) is not None and id(held) not in into:
            copy = _copied(held)
            into[id(held)] = what, held, copy
            if len(copy) <= _ENTRIES:
                found.extend(_entries(held, copy))


def _contents(value: Any) -> Any:
    """What may change in a container or an object; None for anything else."""
    if issubclass(type(value), _CONTAINERS):
        return value
    return vars(value) if not _is_of_libraries(type(value)) and is_plain_object(value) else None


def _is_of_libraries(kind: type) -> bool:
    """Whether a class is of Python or torch, whose objects, such as locks and queues, others change too."""
    top = kind.__module__.partition(".")[0]
    return top == "torch" or (top in sys.stdlib_module_names and top != "__main__")


def _kind(container: Any) -> Any:
    """The built-in type of a container, whose methods run no code of users."""
    return next(kind for kind in _CONTAINERS if issubclass(type(container), kind))


def _copied(container: Any) -> Any:
    """What a container holds: a set, or a list; of a dictionary pairs of keys and values."""
    kind = _kind(container)
    if kind is set:
        return set.union(set(), container)
    return list(kind.items(container) if issubclass(kind, dict) else kind.__iter__(container))


def _entries(container: Any, copy: Any) -> Iterable[Any]:
    """The values in the copy of a container."""
    return [value for _, value in copy] if issubclass(_kind(container), dict) else copy


def _alike(before: Any, container: Any) -> bool:
    """Whether a container holds the same as its copy, in its order."""
    after = _copied(container)
    if len(before) != len(after) or isinstance(before, set):
        return bool(before == after)
    if issubclass(_kind(container), dict):
        return all(_same(a, c) and _same(b, d) for (a, b), (c, d) in zip(before, after, strict=True))
    return all(map(operator.is_, before, after)) or all(map(_same, before, after))


def _refill(container: Any, held: Any) -> None:
    """Restore a container from its copy."""
    if _alike(held, container):
        return
    kind = _kind(container)
    kind.clear(container)
    if issubclass(kind, dict):
        for key, value in held:
            kind.__setitem__(container, key, value)
    else:
        (set.update if kind is set else kind.extend)(container, held)


def _take_back(container: Any, held: Any) -> None:
    """Restore what of a container is tensors without values now."""
    if _alike(held, container):
        return
    kind, after = _kind(container), _copied(container)
    if not issubclass(kind, dict):
        if any(map(_has_fakes, after)):
            _refill(container, held)
        return
    for key, value in after:
        if _has_fakes(value):
            before = [value for own, value in held if own is key]
            if before:
                kind.__setitem__(container, key, before[0])
            else:
                kind.__delitem__(container, key)


def _has_fakes(value: Any, depth: int = _NESTED) -> bool:
    """Whether a value is a tensor without values, or has one within containers."""
    kind = type(value)
    if issubclass(kind, FakeTensor) or not depth:
        return issubclass(kind, FakeTensor)
    if issubclass(kind, tuple):
        return any(_has_fakes(entry, depth - 1) for entry in tuple.__iter__(value))
    if not issubclass(kind, _CONTAINERS):
        return False
    copy = _copied(value)
    return len(copy) <= _ENTRIES and any(_has_fakes(entry, depth - 1) for entry in _entries(value, copy))


@contextlib.contextmanager
def _left_behind(made: list[weakref.ref[Tensor]]) -> Iterator[None]:
    """A context that takes tensors that were made in it out of caches that are still there at its end.

    Raises:
        UnsupportedError: they are kept somewhere else.
    """
    failed: HiosError | None = None
    try:
        yield
    except HiosError as error:
        failed = error
        cause: BaseException | None = error
        while cause is not None:  # tracebacks hold tensors too
            traceback.clear_frames(cause.__traceback__)
            cause = cause.__cause__ or cause.__context__
    if _alive(made):
        gc.collect()
        frozen = gc.get_freeze_count() > 0
        gc.unfreeze()  # else what is frozen is not found
        others: list[str] = []
        try:
            for release in (_clear_cache, _clear_entries):
                _each_holder(made, release)
            _each_holder(made, lambda holder: None if _is_container(holder) else others.append(type(holder).__name__))
        finally:
            if frozen:
                gc.freeze()
        if failed is not None:  # functions within functions that failed may hold some
            others = [name for name in others if name != CellType.__name__]
        if others:
            raise UnsupportedError(
                f"it keeps tensors that it computes in an object of {others[0]}, where they cannot be taken back from, "
                "so that it has to be made again; allowed: models that keep tensors as attributes or in functools.cache"
            ) from failed
    if failed is not None:
        raise failed


def _is_container(holder: Any) -> bool:
    return issubclass(type(holder), (tuple, *_CONTAINERS))


def _clear_cache(holder: Any) -> None:
    if issubclass(type(holder), functools._lru_cache_wrapper):
        holder.cache_clear()


def _clear_entries(holder: Any) -> None:
    """Delete tensors without values from a dictionary, unless it is that of the attributes of an object."""
    if issubclass(type(holder), dict) and not any(_has_attributes(owner, holder) for owner in gc.get_referrers(holder)):
        _take_back(holder, [])


def _has_attributes(owner: Any, attributes: Any) -> bool:
    """Whether a dictionary is that of the attributes of an object or a class."""
    try:
        return issubclass(type(owner), type) or vars(owner) is attributes
    except Exception:  # objects without attributes, and whatever those of users raise
        return False


def _each_holder(made: Sequence[weakref.ref[Tensor]], act: Callable[[Any], None]) -> None:
    """Call a function with everything that holds tensors that are still there, through containers."""
    found: list[Any] = []
    inner: list[Any] = list(_alive(made))
    outer = inner
    for _ in range(_NESTED):
        ours = [id(own) for own in (found, inner, outer)]
        outer = [holder for holder in gc.get_referrers(*inner) if id(holder) not in ours]
        found += (holder for holder in outer if not issubclass(type(holder), FrameType))
        inner = list(filter(_is_container, outer))
    for holder in found:
        act(holder)
