"""Nodes of ONNX files that Relax cannot import: ONNX Runtime runs each as a model of one node, on the CPU.

A call in graph.json names the operator as ``onnx.NAME``; its attribute ``model`` is that model, in base64, with the
types of its tensors and with small constants. The file may come from strangers: the model has one node, of operators
that `is_known` allows, draws no random numbers and has no data in other files.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from hios.errors import UnsupportedError, shown
from hios.formats.onnx_operators import is_known

#: What the names of such operators start with in graph.json.
PREFIX = "onnx."


def attributes_of(model: Any) -> dict[str, Any]:
    """The attributes of a call from a model (``onnx.ModelProto``) of one node."""
    return {"model": base64.b64encode(model.SerializeToString()).decode()}


def build(function: str, attributes: Mapping[str, Any]) -> Callable[..., Any]:
    """The function of a node: from its tensors, in order, to its result, or a tuple of its results.

    Tensors on a GPU go to the CPU and back, so no CUDA graph can hold it.

    Raises:
        UnsupportedError: it is no model of one node of this operator, or ONNX Runtime cannot load it.
    """
    from hios.formats.onnx_session import OnnxSession  # its package is an extra of its own

    try:
        content = base64.b64decode(attributes["model"], validate=True)
    except (binascii.Error, TypeError) as error:
        raise UnsupportedError(f"its model is not in base64: {error}") from None
    _require_one_node(content, function.removeprefix(PREFIX))
    session = OnnxSession(function, content)  # one thread: each session has its own, and graphs have many such nodes

    def run(*tensors: Tensor) -> Any:
        made = session(*(tensor.cpu() for tensor in tensors))
        if tensors:
            made = [value.to(tensors[0].device) for value in made]
        return made[0] if len(made) == 1 else tuple(made)

    return run


def _require_one_node(content: bytes, name: str) -> None:
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load_model_from_string(content)
    except DecodeError as error:
        raise UnsupportedError(f"its model is damaged: {error}") from None
    found = [node.op_type for node in model.graph.node]
    if found != [name] or model.functions:
        raise UnsupportedError(f"its model has the nodes {shown(found)}; allowed: one {name}")
    for part in _parts(model):
        if isinstance(part, onnx.NodeProto):
            if not is_known(part):
                raise UnsupportedError(
                    f"its model has {shown(f'{part.domain}.{part.op_type}')}; allowed: operators of ONNX itself, and "
                    "those that ONNX Runtime's quantization makes of them"
                )
            if is_random(part):
                raise UnsupportedError(f"{part.op_type} draws random numbers; allowed: the same outputs in every run")
        elif isinstance(part, onnx.TensorProto) and (part.data_location or part.external_data):
            raise UnsupportedError("its model has data in other files; allowed: in the model")


def is_random(node: Any) -> bool:
    """Whether a node (``onnx.NodeProto``) draws random numbers; Dropout does if an input says so."""
    return (
        node.op_type.startswith("Random")
        or node.op_type in ("Bernoulli", "Multinomial")
        or (node.op_type == "Dropout" and len(node.input) > 2 and bool(node.input[2]))
    )


def _parts(message: Any) -> Iterator[Any]:
    """A message of protobuf, and all that it consists of."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in [value] if hasattr(value, "ListFields") else value:
                yield from _parts(part)
