"""Which operators an ONNX file may have."""

from __future__ import annotations

import re
from typing import Any

#: The names of ONNX's own domain.
STANDARD = ("", "ai.onnx")
#: Operators of ONNX Runtime's own that its quantization to 8 bits writes into files.
_QUANTIZED = re.compile(r"com\.microsoft\.(DynamicQuantize(LSTM|MatMul)|MatMulIntegerToFloat|QGemm|QLinear\w+)")


def is_known(node: Any) -> bool:
    """Whether a node (``onnx.NodeProto``) is of ONNX's own operators, or of what ONNX Runtime quantizes them to."""
    return node.domain in STANDARD or _QUANTIZED.fullmatch(f"{node.domain}.{node.op_type}") is not None
