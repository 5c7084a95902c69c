"""The runs without values that show whether a model is pure leave no such tensor in what the model keeps."""

from __future__ import annotations

import functools
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

import hios
from hios.errors import UnsupportedError
from hios.optimizing.purity import require_pure

_KEPT: dict[str, Any] = {"table": None, "seen": []}
_TABLE: Tensor | None = None


class _Object:
    """Keeps anything."""

    inner: Any


class _Slotted:
    """Keeps one tensor, where attributes are no dictionary."""

    __slots__ = ("table",)
    table: Tensor | None


_SLOTTED = _Slotted()


@functools.cache
def _cached(size: int) -> Tensor:
    return torch.arange(size) / size


@functools.lru_cache(maxsize=2)
def _cached_inside(size: int) -> dict[str, list[Tensor]]:
    return {"tables": [_made(size)]}


@functools.cache
def _of_tensor(x: Tensor) -> Tensor:
    return x.mean(0)


def _made(size: int) -> Tensor:
    return torch.arange(size) / size


def _in_default(size: int, kept: dict[int, Tensor] = {}) -> Tensor:  # noqa: B006, as users write it
    return kept.setdefault(size, _made(size))


class _Keeping(nn.Module):
    """Adds what a function gives, which may keep it, to its input."""

    of_class: dict[int, Tensor] = {}  # noqa: RUF012, as users write it
    attribute: Tensor | None = None

    def __init__(self, table: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.table = table
        self.queue: deque[Tensor] = deque(maxlen=2)
        self.inside: tuple[Any, ...] = (SimpleNamespace(), [{"list": []}])
        self.object = _Object()
        self.object.inner = _Object()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table(self, x)


def _in_file(model: Any, x: Tensor) -> Tensor:
    global _TABLE
    if _TABLE is None:
        _TABLE = _made(4)
    return _TABLE


def _in_container_of_file(model: Any, x: Tensor) -> Tensor:
    if _KEPT["table"] is None:
        _KEPT["table"] = _made(4)
    return torch.as_tensor(_KEPT["table"])


def _in_class(model: Any, x: Tensor) -> Tensor:
    if model.attribute is None:
        type(model).attribute = _made(4)
    return torch.as_tensor(model.attribute)


def _in_queue(model: Any, x: Tensor) -> Tensor:
    if not model.queue:
        model.queue.append(_made(4))
    return torch.as_tensor(model.queue[-1])


def _in_inner_object(model: Any, x: Tensor) -> Tensor:
    inner = model.object.inner
    if not hasattr(inner, "table"):
        inner.table = _made(4)
    return torch.as_tensor(inner.table)


def _in_tuple(model: Any, x: Tensor) -> Tensor:
    tables = model.inside[1][0]["list"]
    if not tables:
        tables.append(_made(4))
    return torch.as_tensor(tables[0])


#: Where models keep what they compute once, by name.
_PLACES: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "functools.cache": lambda model, x: _cached(4),
    "containers in functools.lru_cache": lambda model, x: _cached_inside(4)["tables"][0],
    "default": lambda model, x: _in_default(4),
    "file": _in_file,
    "container of file": _in_container_of_file,
    "class": _in_class,
    "container of class": lambda model, x: model.of_class.setdefault(4, _made(4)),
    "queue": _in_queue,
    "inner object": _in_inner_object,
    "tuple": _in_tuple,
}


@pytest.mark.parametrize("place", _PLACES)
def test_what_is_kept_has_values_afterwards(place: str) -> None:
    """A model computes with values after it ran without, wherever it keeps a table that it makes once."""
    model, x = _Keeping(_PLACES[place]).eval(), torch.randn(3, 4)
    require_pure(model, (x,), {})
    output = model(x)
    assert not isinstance(output, FakeTensor)
    torch.testing.assert_close(output, x + _made(4), rtol=0, atol=0)


def test_models_with_a_cache_are_optimized() -> None:
    """A table in functools.cache is no reason to run the model itself, and stays one of values."""
    _cached.cache_clear()
    model, x = _Keeping(_PLACES["functools.cache"]).eval(), torch.randn(3, 4)
    fast = hios.optimize(model, x, cache=False, least_ms=1e6)
    assert fast.report.reason.startswith("it takes")
    for call in (fast, model):
        torch.testing.assert_close(call(x + 1), x + 1 + _made(4), rtol=0, atol=0)


def test_what_fails_leaves_nothing_in_caches() -> None:
    """Caches are cleared where the model cannot run without values, too."""
    _cached.cache_clear()
    model = _Keeping(lambda model, x: x if _cached(4).sum() > 1 else -x).eval()
    with pytest.raises(UnsupportedError, match="cannot run on tensors without values"):
        require_pure(model, (torch.ones(4),), {})
    assert not isinstance(_cached(4), FakeTensor)
    torch.testing.assert_close(model(torch.ones(4)), torch.full((4,), 2.0))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (lambda model, x: (_KEPT["seen"].append(x * 2), x)[1], "it changes what it keeps between calls when it runs"),
        (lambda model, x: _of_tensor(x), "it changes what it keeps between calls when it runs"),
        (lambda model, x: _KEPT.setdefault("input", x * 2), "it changes what it keeps of an earlier call when it runs"),
        (lambda model, x: (model.queue.append(x * 2), x)[1], "it changes its attribute queue when it runs"),
        (
            lambda model, x: (setattr(model.object.inner, "calls", getattr(model.object.inner, "calls", 0) + 1), x)[1],
            "it changes its attribute object when it runs",
        ),
    ],
)
def test_what_grows_with_every_call_is_refused(table: Callable[[Any, Tensor], Tensor], message: str) -> None:
    """What each call adds to, or takes from the one before, is refused; nothing of it stays."""
    model = _Keeping(table).eval()
    with pytest.raises(UnsupportedError, match=message):
        require_pure(model, (torch.ones(2, 4),), {})
    assert _KEPT["seen"] == []
    assert "input" not in _KEPT
    assert not model.queue
    assert not vars(model.object.inner)
    assert _of_tensor.cache_info().currsize == 0


class _Recent(OrderedDict[str, Any]):
    """A cache as in the documentation of Python, whose copies take arguments, and which reading reorders."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def __getitem__(self, key: str) -> Any:
        self.move_to_end(key)
        return super().__getitem__(key)


def test_containers_of_users_run_no_code_of_theirs() -> None:
    """What a model holds is looked at without the methods of its classes, however large, or in circles, it is."""
    recent, circle = _Recent(3), dict[str, Any]()
    for name in "abc":
        OrderedDict.__setitem__(recent, name, name)
    circle["self"] = [circle, circle]
    nested: tuple[Any, ...] = (1,)
    for _ in range(40):
        nested = (nested, nested)
    model = _Keeping(lambda model, x: _made(4)).eval()
    model.held = [recent, circle, nested, list(range(1_000_000))]
    _KEPT["around"] = [_Recent(2), circle, nested, list(range(1_000_000))]
    try:
        require_pure(model, (torch.ones(4),), {})
    finally:
        del _KEPT["around"]
    assert list(recent.keys()) == ["a", "b", "c"]


class _Tables:
    """Keeps tables in a dictionary."""

    def __init__(self) -> None:
        self.tables: dict[int, Tensor] = {}


_TABLES = _Tables()


def test_what_other_objects_keep_is_put_back() -> None:
    """A table that an object of the file keeps is taken out of its dictionary, or gives way to the one before."""
    before = _TABLES.tables[3] = torch.zeros(0)

    def table(model: Any, x: Tensor) -> Tensor:
        if not _TABLES.tables[3].numel():
            _TABLES.tables[3] = _made(4)
        return _TABLES.tables[3] + _TABLES.tables.setdefault(4, _made(4))

    require_pure(_Keeping(table).eval(), (torch.ones(4),), {})
    assert _TABLES.tables[3] is before
    assert list(_TABLES.tables) == [3]


def test_equal_values_are_no_change() -> None:
    """Numbers and sizes that every call sets again, in objects and containers within others, are equal each time."""

    def table(model: Any, x: Tensor) -> Tensor:
        model.object.inner.scale = x.shape[-1] ** -0.5
        model.inside[1][0]["size"] = x.shape
        return x * model.object.inner.scale

    require_pure(_Keeping(table).eval(), (torch.ones(2, 4),), {})


def test_the_order_of_a_dictionary_is_state() -> None:
    """What takes the first entry and puts it last gives other outputs in every call."""
    weights = {"a": 1.0, "b": 2.0}

    def table(model: Any, x: Tensor) -> Tensor:
        first = next(iter(model.held))
        model.held[first] = model.held.pop(first)
        return x * model.held[first]

    model = _Keeping(table).eval()
    model.held = weights
    with pytest.raises(UnsupportedError, match="it changes its attribute held"):
        require_pure(model, (torch.ones(2, 4),), {})
    assert list(weights) == ["a", "b"]


def test_references_that_are_gone_are_left_alone() -> None:
    """Proxies among what a file holds, of objects that are no more too, are no containers."""
    gone = _Tables()
    _KEPT["proxies"] = [weakref.proxy(_TABLES), weakref.proxy(gone)]
    del gone
    try:
        require_pure(_Keeping(lambda model, x: _made(4)).eval(), (torch.ones(4),), {})
    finally:
        del _KEPT["proxies"]


def test_what_cannot_be_taken_back_is_said() -> None:
    """A tensor without values that stays is named."""

    def keep(model: Any, x: Tensor) -> Tensor:
        if not hasattr(_SLOTTED, "table"):
            _SLOTTED.table = _made(4)
        return x

    with pytest.raises(UnsupportedError, match="keeps tensors that it computes in an object of _Slotted"):
        require_pure(_Keeping(keep).eval(), (torch.ones(4),), {})
    del _SLOTTED.table
