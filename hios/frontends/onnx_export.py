"""Programs of torch.export as ONNX models."""

from __future__ import annotations

import contextlib
import functools
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.export import ExportedProgram

from hios.errors import UnsupportedError, first_line


def to_onnx(program: ExportedProgram) -> bytes:
    """A program, which is not changed, as a model in one file, which protobuf allows 2 GB.

    Raises:
        UnsupportedError: it cannot be converted; the message is the first line of the exporter's error.
    """
    try:
        with warnings.catch_warnings(action="ignore"), _kept_registry():
            exported = torch.onnx.export(program, dynamo=True, verbose=False)
        assert exported is not None  # noqa: S101 - it is where no file is named
        content: bytes = exported.model_proto.SerializeToString()
    except Exception as error:  # it raises many types; all mean the same to the user
        raise UnsupportedError(f"torch.onnx.export cannot export it: {first_line(error)}") from error
    return content


@contextlib.contextmanager
def _kept_registry() -> Iterator[None]:
    """Have torch keep the table of its ONNX functions, which it parses anew in every export, for one or two seconds.

    Only meanwhile, and without the logs: exports of the user may add functions of their own to the table that they get.
    """
    from torch.onnx._internal.exporter import _registration

    registry = _registration.ONNXRegistry
    levels = {log: log.level for log in map(logging.getLogger, ("torch.onnx", "onnxscript.optimizer"))}
    parsed, kept = vars(registry)["from_torchlib"], _kept_table()
    if parsed.__func__ is kept:  # another thread exports, and puts back what was there before
        yield
        return
    for log in levels:
        log.setLevel(logging.ERROR)
    setattr(registry, "from_torchlib", staticmethod(kept))  # noqa: B010 - a class method of torch
    try:
        yield
    finally:
        setattr(registry, "from_torchlib", parsed)  # noqa: B010
        for log, level in levels.items():
            log.setLevel(level)


@functools.cache
def _kept_table() -> Callable[..., Any]:
    from torch.onnx._internal.exporter import _registration

    return functools.cache(_registration.ONNXRegistry.from_torchlib)
