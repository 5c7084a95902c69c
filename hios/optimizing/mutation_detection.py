"""Whether dictionaries, objects and tensors are untouched, found by comparing words of their memory natively.

CPython and torch count writes: each dictionary has a version, each tensor a counter that it shares with its views. To
ask for one by a call takes 50 to 200 ns, half a millisecond for a network of 1,000 parameters; numpy gathers the same
words from memory in a tenth of that. Each step reads only through pointers that the step before has found unchanged,
and what these point to is kept alive here, so that nothing that was freed is read. Whether the words are where they are
expected to be is tried once per process, by writing, and compared for every tensor with what torch says; where that
fails, tensors are asked. CPython from 3.13 on does not count all writes into dictionaries; there torch does, and is
asked; on 3.13.0 it misses some too, and what dictionaries hold is compared.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sysconfig
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._C._dynamo.guards import dict_version

_WORD = 8
#: The memory of this process from its second word on; never to be copied or printed as a whole.
_MEMORY: Any = (ctypes.c_char * (2**48 - 2**12)).from_address(_WORD)
#: Bytes from the begin of a dictionary to its version, of an object to its type, of a tensor to its implementation,
_VERSION, _TYPE, _IMPLEMENTATION = 24, 8, 16
#: of an implementation to its storage and its counter, of these to the address of the data and the number of writes.
_STORAGE, _COUNTER, _DATA, _WRITES = 16, 40, 16, 16
#: Words of an implementation from that of its counter on, with its sizes, strides, offset, dtype and dispatch keys, and
#: the most dimensions for which sizes and strides are among them.
_LAYOUT, _DIMENSIONS = 18, 5

#: Numbers of words in memory, how many are read at each, and what they are.
_Words = tuple[np.ndarray, int, bytes]


def _places(addresses: Any) -> np.ndarray:
    """The numbers of words in memory."""
    return np.asarray(addresses, np.int64) // _WORD - 1


def _read(places: np.ndarray, count: int = 1) -> np.ndarray:
    """The words from each place on, which has to be in a living object."""
    return np.ndarray(2**45 - 2**12, f"V{_WORD * count}", _MEMORY, strides=(_WORD,))[places]


def _numbers(addresses: Any) -> np.ndarray:
    return _read(_places(addresses)).view(np.int64)


def told(tensor: Tensor) -> tuple[Any, ...]:
    """What torch says about writes into a tensor, its memory, and how that is read."""
    writes = None if tensor.is_inference() else tensor._version
    read = tensor.shape, tensor.stride(), tensor.dtype, tensor.is_conj(), tensor.is_neg()
    return writes, tensor.data_ptr(), *read


class Untouched:
    """Whether some dictionaries, objects and tensors are as they were, as far as counters and addresses say.

    Where `holds` is true, the dictionaries have the same entries, the objects are of the same types, and what `told`
    returns for the tensors is the same. Where it is false, that may be so too.
    """

    def __init__(
        self, dictionaries: Sequence[dict[Any, Any]], objects: Sequence[Any], tensors: Sequence[Tensor]
    ) -> None:
        self._subjects = (dictionaries, objects, tensors)
        #: Storages and counters live as long as these, whatever memory the tensors are given.
        self._owners = [tensor.detach() for tensor in tensors]
        small = [tensor for tensor in tensors if tensor.dim() <= _DIMENSIONS]
        self._words = _found(dictionaries if are_counted() else (), objects, small) if is_readable() else []
        self._large = [tensor for tensor in tensors if tensor.dim() > _DIMENSIONS]
        self._kept = [list(own.values()) for own in dictionaries] if _version() is _held else []
        self._answers = self._asked()

    def holds(self) -> bool:
        """Whether nothing was touched."""
        return _are_same(self._words) and self._asked() == self._answers

    def _asked(self) -> tuple[list[Any], ...]:
        """What the words do not say."""
        dictionaries, objects, tensors = self._subjects
        if not self._words:
            return list(map(_version(), dictionaries)), list(map(type, objects)), list(map(told, tensors))
        return list(map(told, self._large)), [] if are_counted() else list(map(_version(), dictionaries))


def _found(dictionaries: Sequence[dict[Any, Any]], objects: Sequence[Any], tensors: Sequence[Tensor]) -> list[_Words]:
    """The words, in the order in which they may be read; none where they do not say what torch says about a tensor."""
    pointers = [id(tensor) + _IMPLEMENTATION for tensor in tensors]
    implementations = np.asarray([tensor._cdata for tensor in tensors], np.int64)
    counted = [not tensor.is_inference() for tensor in tensors]
    storages = [tensor.untyped_storage() for tensor in tensors]
    data = np.asarray([storage._cdata for storage in storages], np.int64) + _DATA
    writes = _numbers(implementations + _COUNTER)[counted] + _WRITES
    try:
        addresses = [storage.data_ptr() for storage in storages]
    except RuntimeError:  # a tensor around others has none
        return []
    said: list[tuple[Any, Any]] = [
        (_numbers(pointers), implementations),
        (_numbers(implementations + _STORAGE) + _DATA, data),
        (_numbers(data), addresses),
        (_numbers(writes) % 2**32, [tensor._version for tensor in tensors if not tensor.is_inference()]),
    ]
    if not all(np.array_equal(word, told) for word, told in said):
        return []
    first = [*(id(own) + _VERSION for own in dictionaries), *(id(own) + _TYPE for own in objects), *pointers]
    steps = [(first, 1), (implementations + _STORAGE, 1), (implementations + _COUNTER, _LAYOUT)]
    places = [(_places(begins), count) for begins, count in (*steps, (np.concatenate([writes, data]), 1))]
    return [(own, count, _read(own, count).tobytes()) for own, count in places]


def _are_same(words: Sequence[_Words]) -> bool:
    return all(_read(places, count).tobytes() == before for places, count, before in words)


@functools.cache
def are_counted() -> bool:
    """Whether CPython counts every kind of write into a dictionary."""
    return _follows(lambda table: _read(_places([id(table) + _VERSION])).tobytes())


@functools.cache
def _version() -> Callable[[dict[Any, Any]], Any]:
    """What tells of writes into a dictionary where CPython does not."""
    return dict_version if _follows(dict_version) else _held


def _held(table: dict[Any, Any]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """Which objects a dictionary has: `Untouched` keeps them, so that no other has the identity of one of them."""
    return tuple(table), tuple(map(id, table.values()))


def _follows(look: Callable[[dict[Any, Any]], Any]) -> bool:
    """Whether every kind of write into a dictionary gives another answer; tried on an own one."""
    module = nn.ReLU()
    table = vars(module)
    answers = {look(table)}
    writes = (lambda: setattr(module, "inplace", True), lambda: table.update(fresh=1), lambda: table.pop("fresh"))
    for write in (*writes, table.clear):
        write()
        answers.add(look(table))
    return len(answers) == len(writes) + 2


@functools.cache
@torch.inference_mode(mode=False)
@torch.no_grad()
def is_readable() -> bool:
    """Whether words are where they are expected to be, and follow every kind of write; tried on own objects."""
    if sysconfig.get_config_var("Py_GIL_DISABLED") or struct.calcsize("P") != _WORD:
        return False
    module, tensor, other = nn.ReLU(), torch.zeros(2, 2), torch.zeros(2, 2)
    alias = tensor.detach()
    counters = _numbers([own._cdata + _COUNTER for own in (tensor, alias, other)])
    if len(set(counters[:2])) != 1 or counters[0] == counters[2] or any((counters <= 0) | (counters % _WORD != 0)):
        return False  # not pointers to counters, which views share
    writes = (
        lambda: setattr(module, "__class__", nn.ReLU6),
        lambda: tensor.add_(1),
        lambda: alias.add_(1),
        lambda: setattr(tensor, "data", tensor.data.t()),
        lambda: setattr(tensor, "data", tensor.data.view(torch.int32)),
        lambda: setattr(tensor, "data", torch._neg_view(other.data)),
        lambda: setattr(tensor, "data", other.data),
        lambda: torch.utils.swap_tensors(tensor, torch.zeros(2, 2)),
    )
    for write in writes:
        words = _found((), [module], [tensor, other])
        if not words or not _are_same(words):
            return False
        write()
        if _are_same(words):
            return False
    return True
