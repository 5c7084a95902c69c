"""What the speed of a model by itself depends on, beside its graph: part of what a choice against it rests on."""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Sequence

import torch
from torch import Tensor, fx, nn

#: Variables that change how threads inside operators wait and where they run.
_VARIABLES = ("GOMP_", "KMP_", "OMP_")


def eager_facts(model: nn.Module, tensors: Sequence[Tensor]) -> dict[str, object]:
    """Code of a model, memory formats of what it computes with, and what torch was told, as JSON.

    Other weights and values make no difference. Functions that the code calls outside its classes are not looked at.

    Args:
        model: in the mode it is to run in.
        tensors: example inputs.
    """
    code = hashlib.sha256()
    for path, module in model.named_modules():
        kind = type(module)
        code.update(f"{path}:{kind.__module__}.{kind.__qualname__}\n".encode())
    for text in sorted({_source(module) for module in model.modules()}):
        code.update(text.encode())
    weights = [*model.parameters(), *model.buffers()]
    return {
        "code": code.hexdigest(),
        "strides": [list(tensor.stride()) for tensor in (*weights, *tensors) if tensor.layout is torch.strided],
        "torch": {
            "onednn": torch._C._get_mkldnn_enabled(),
            "onednn_deterministic": torch._C._get_mkldnn_deterministic(),
            "nnpack": torch._C._get_nnpack_enabled(),
            "float32_matmul": torch.get_float32_matmul_precision(),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "attention": [
                torch.backends.cuda.flash_sdp_enabled(),  # for CPUs too, whatever their names say
                torch.backends.cuda.math_sdp_enabled(),
                torch.backends.cuda.mem_efficient_sdp_enabled(),
            ],
        },
        "environment": {name: os.environ[name] for name in sorted(os.environ) if name.startswith(_VARIABLES)},
    }


def _source(module: nn.Module) -> str:
    """Source of a module's class; that of torch's own is known by torch's version, which a profile notes."""
    kind = type(module)
    if isinstance(module, fx.GraphModule):
        return module.code
    if kind.__module__.startswith("torch."):
        return ""
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):  # typed in, or made by other code
        code = getattr(kind.forward, "__code__", None)
        return "" if code is None else f"{code.co_code.hex()} {code.co_names}"
