"""Shape and dtype of a tensor, and how messages name them."""

from __future__ import annotations

import torch

#: Shape and dtype of a tensor.
TensorType = tuple[tuple[int, ...], torch.dtype]


def type_text(tensor_type: TensorType) -> str:
    """Such as ``float32 [1, 3, 224, 224]``."""
    shape, dtype = tensor_type
    return f"{str(dtype).removeprefix('torch.')} {list(shape)}"
