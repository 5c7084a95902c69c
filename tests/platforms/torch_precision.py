"""Torch's precision of float32 by operator, which pytest's monkeypatch cannot set back."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator
from typing import Any

import torch


@contextlib.contextmanager
def float32_precision(where: str, value: str) -> Iterator[None]:
    """A context with ``torch.backends.WHERE.fp32_precision``; of all operators without one of their own if empty."""
    backend: Any = operator.attrgetter(where)(torch.backends) if where else torch.backends
    before = backend.fp32_precision
    backend.fp32_precision = value
    try:
        yield
    finally:
        backend.fp32_precision = before
