"""Handing values over."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.testing._internal.two_tensor import TwoTensor

from hios.errors import HiosError, PlatformError
from hios.platforms.workloads import copy_alone, deliver


def test_fitting_value_is_copied() -> None:
    """A value of the stated shape and dtype arrives in its buffer."""
    buffer = torch.zeros(2, 3)
    deliver(torch.ones(2, 3), buffer)
    assert bool((buffer == 1).all())


@pytest.mark.parametrize("value", [torch.ones(3), torch.ones(1, 3), torch.ones(2, 3, dtype=torch.float64)])
def test_other_shape_or_dtype_is_refused(value: torch.Tensor) -> None:
    """What copy_ would broadcast or convert is refused, and the buffer stays as it was."""
    buffer = torch.zeros(2, 3)
    with pytest.raises(PlatformError, match=r"the graph states \(2, 3\) and torch\.float32"):
        deliver(value, buffer)
    assert bool((buffer == 0).all())


def _cut(value: Tensor, size: int) -> Tensor:
    """The tensor with so many bytes of memory left."""
    value.untyped_storage().resize_(size)
    return value


def _fake() -> Tensor:
    with FakeTensorMode():
        return torch.zeros(4, 3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: _cut(torch.zeros(4, 3), 0),
        lambda: _cut(torch.zeros(4, 3), 44),
        lambda: _cut(torch.zeros(5, 3)[1:], 48),
        lambda: _cut(torch.zeros(3, 4).t(), 0),
        lambda: _cut(torch.zeros(3, 4).t(), 44),
        lambda: TwoTensor(torch.zeros(4, 3), torch.zeros(4, 3)),
        lambda: torch._efficientzerotensor((4, 3)),
        pytest.param(_fake, marks=pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")),
    ],
    ids=["freed", "short", "offset", "freed transposed", "short transposed", "wrapper", "zeros", "fake"],
)
def test_tensors_without_memory_are_refused(make: Callable[[], Tensor]) -> None:
    """Copying from memory that is not there would end the process."""
    with pytest.raises(HiosError, match="found a tensor without memory"):
        copy_alone(make(), torch.ones(4, 3))


@pytest.mark.parametrize(
    "value",
    [torch.rand(4, 3), torch.rand(5, 3)[1:], torch.rand(3, 4).t(), torch.rand(3).expand(4, 3), torch.rand(0, 3)],
    ids=["plain", "offset", "transposed", "expanded", "empty"],
)
def test_other_layouts_are_copied(value: Tensor) -> None:
    """The smallest memory that a layout needs is enough."""
    assert torch.equal(copy_alone(value, torch.ones(value.shape)), value)
