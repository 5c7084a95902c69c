"""Nodes of ONNX files that ONNX Runtime runs, on a device that is not the CPU."""

from __future__ import annotations

from typing import Any

import onnx
import torch
from onnx import helper
from torch import Tensor

from hios.kernels import build
from hios.kernels.table.onnx_node import attributes_of


class _Elsewhere(Tensor):
    """A tensor on a GPU, as far as reading it goes."""

    def numpy(self, *_: Any, **__: Any) -> Any:
        """As torch has it."""
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor")

    def cpu(self, *_: Any, **__: Any) -> Tensor:
        """Its values where they can be read."""
        return self.as_subclass(Tensor)


def test_tensors_on_a_gpu_are_read_on_the_cpu() -> None:
    """ONNX Runtime computes there, whatever the device."""
    matrix = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 2])
    number = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [])
    graph = helper.make_graph([helper.make_node("Det", ["x"], ["y"])], "graph", [matrix], [number])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    run = build("onnx.Det", attributes_of(model), "det")
    x = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
    for given in (x, x.as_subclass(_Elsewhere)):
        assert run(given).item() == 5.0
