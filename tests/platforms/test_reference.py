"""The model itself as what outputs are compared with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from hios.frontends.extraction_check import rounding_errors
from hios.frontends.program import export
from hios.platforms import reference
from hios.workers.worker import Worker
from tests.runtime.small import Branches


class _Counting(reference.Place):
    """A host that is asked for full precision, and notes whether it gives it."""

    exact = False

    @contextlib.contextmanager
    def exactly(self) -> Iterator[None]:
        """Full precision."""
        self.exact = True
        yield
        self.exact = False


def test_rounding_is_judged_in_full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """What rounding explains is the error of float32, and not that of TF32, which is a thousand times as large."""
    place, inputs, exact = _Counting(), (torch.randn(1, 3, 8, 8),), list[bool]()

    def judged(*given: Any) -> list[float] | None:
        exact.append(place.exact)
        return rounding_errors(*given)

    monkeypatch.setattr(reference, "rounding_errors", judged)
    state = {"place": place, "program": export(Branches().eval(), inputs), "inputs": list(inputs)}
    errors = reference.rounding(cast("Worker", SimpleNamespace(state=state)))
    assert errors is not None
    assert 0 < errors[0] < 1e-5
    assert (exact, place.exact) == ([True], False)
