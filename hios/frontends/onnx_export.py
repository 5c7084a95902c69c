"""Programs of torch.export as ONNX models."""

from __future__ import annotations

import functools
import logging
import warnings

import torch
from torch.export import ExportedProgram

from hios.errors import UnsupportedError, first_line


def to_onnx(program: ExportedProgram) -> bytes:
    """A program, which is not changed, as a model in one file, which protobuf allows 2 GB.

    Raises:
        UnsupportedError: it cannot be converted; the message is the first line of the exporter's error.
    """
    _keep_registry()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exported = torch.onnx.export(program, dynamo=True, verbose=False)
        assert exported is not None  # noqa: S101 - it is where no file is named
        content: bytes = exported.model_proto.SerializeToString()
    except Exception as error:  # it raises many types; all mean the same to the user
        raise UnsupportedError(f"torch.onnx.export cannot export it: {first_line(error)}") from error
    return content


@functools.cache
def _keep_registry() -> None:
    """Make torch keep the table of its ONNX functions, which it parses anew in every export, for one or two seconds."""
    from torch.onnx._internal.exporter import _registration

    registry = _registration.ONNXRegistry
    registry.from_torchlib = staticmethod(functools.cache(registry.from_torchlib))  # type: ignore[method-assign]
