"""ONNX Runtime on the CPU with torch tensors, without the package onnx, which is slow to import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import onnxruntime
import torch
from torch import Tensor

from hios.errors import UnsupportedError, first_line


class OnnxSession:
    """An ONNX file, or contents in its place, in ONNX Runtime on the CPU, called with tensors.

    Threads work inside an operator; if parallel, they run operators concurrently instead, each with one.
    """

    def __init__(
        self, path: str | Path, content: bytes | None = None, *, threads: int = 1, parallel: bool = False
    ) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = (1, threads) if parallel else (threads, 1)
        if parallel:
            options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
        options.add_session_config_entry("session.force_spinning_stop", "1")  # others use its cores in turn
        # Not its own format, whatever the first bytes are.
        options.add_session_config_entry("session.load_model_format", "ONNX")
        options.log_severity_level = 3  # errors only; warnings are about its own optimizations
        try:
            self._session = onnxruntime.InferenceSession(
                content or str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # it raises many types; all mean the same to the user
            raise UnsupportedError(f"{path}: ONNX Runtime cannot load it: {first_line(error)}") from error
        self._names = [value.name for value in self._session.get_inputs()]

    @property
    def shapes(self) -> list[list[int | str | None]]:
        """The shapes of the outputs as far as they are known before a run; none of those whose rank is not known."""
        return [list(value.shape) for value in self._session.get_outputs()]

    def bound(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Callable[[], object]:
        """A function that computes from contiguous tensors into others, without copies."""
        binding = self._session.io_binding()
        names = [value.name for value in self._session.get_outputs()]
        bound = [*zip(self._names, inputs, strict=True), *zip(names, outputs, strict=True)]
        for place, (name, tensor) in enumerate(bound):
            bind = binding.bind_input if place < len(inputs) else binding.bind_output
            bind(name, "cpu", 0, tensor.numpy().dtype.type, tuple(tensor.shape), tensor.data_ptr())
        run, binding_ = self._session._sess.run_with_iobinding, binding._iobinding

        def compute(kept: object = (self, bound)) -> None:  # the session and the tensors live as long as this function
            run(binding_, None)

        return compute

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        """Outputs for inputs in the order of the file."""
        given = {name: value.numpy() for name, value in zip(self._names, inputs, strict=True)}
        return [torch.from_numpy(value) for value in self._session.run(None, given)]
