"""Messages of the Open Inference Protocol (v2): requests as JSON, with binary tensors behind it or not, to tensors.

What a model does not take is refused, with what was found and what is allowed. `api_description` says it in OpenAPI.
"""

from __future__ import annotations

import itertools
import math
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import msgspec
import torch
from msgspec import Meta, Raw
from torch import Tensor

from hios.errors import HiosError, first_line, shown
from hios.kernels.merged import nbytes, torch_dtype, value_type
from hios.serving.scenario import ServedModel

#: Datatypes of the protocol by name of torch's dtype, and what a number of JSON is for each of them.
_DATATYPES: Mapping[str, tuple[str, Any]] = {
    "bool": ("BOOL", bool),
    "uint8": ("UINT8", Annotated[int, Meta(ge=0, le=255)]),
    **{
        f"int{bits}": (f"INT{bits}", Annotated[int, Meta(ge=-(1 << bits - 1), le=(1 << bits - 1) - 1)])
        for bits in (8, 16, 32, 64)
    },
    "float16": ("FP16", float),
    "bfloat16": ("BF16", float),
    "float32": ("FP32", float),
    "float64": ("FP64", float),
}
#: Characters of a number in JSON, with what stands around it, and of all else in a request.
_NUMBER, _AROUND = 64, 1 << 16
#: How lists within a list begin in JSON.
_NESTED = re.compile(rb"\s*\[\s*\[")
#: The only version of a model.
VERSION = "1"
#: Parameters that ask for what this server does not do; others that it does not know are without meaning to it.
_REFUSED = ("classification", "priority", "sequence_id", "shared_memory_region", "timeout")


class RefusedError(HiosError):
    """A request that is not answered; ``status`` is that of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Input(msgspec.Struct):
    name: str
    shape: list[int]
    datatype: str
    parameters: dict[str, Any] = {}
    data: Raw | msgspec.UnsetType = msgspec.UNSET


class _Output(msgspec.Struct):
    name: str
    parameters: dict[str, Any] = {}


class _Request(msgspec.Struct):
    inputs: list[_Input]
    outputs: list[_Output] = []
    id: str = ""
    parameters: dict[str, Any] = {}


@dataclass(frozen=True)
class TensorInterface:
    """An input or output of a model as clients see it."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name} ({self.datatype} {list(self.shape)})"

    @property
    def datatype(self) -> str:
        """Its datatype by the name that the protocol has for it."""
        return _DATATYPES[self.dtype][0]

    @property
    def metadata(self) -> dict[str, Any]:
        """What the protocol says about it."""
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}

    @cached_property
    def _decoders(self) -> tuple[msgspec.json.Decoder, msgspec.json.Decoder]:
        """Of all values in one list, and in lists within lists."""

        def listed(of: Any, size: int) -> Any:
            return Annotated[list[of], Meta(min_length=size, max_length=size)]

        number = _DATATYPES[self.dtype][1]
        nested = number
        for size in reversed(self.shape or (1,)):
            nested = listed(nested, size)
        return msgspec.json.Decoder(listed(number, math.prod(self.shape))), msgspec.json.Decoder(nested)

    def of_json(self, data: Raw, where: str) -> Tensor:
        """The tensor of values in JSON."""
        flat, nested = self._decoders
        depth = len(self.shape) if _NESTED.match(memoryview(data)) else 1
        try:
            values = (nested if depth > 1 else flat).decode(data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise RefusedError(400, f"{where}.data: {first_line(error)}; allowed: values of {self}") from None
        for _ in range(depth - 1):
            values = itertools.chain.from_iterable(values)
        dtype = torch_dtype(self.dtype)
        code = "d" if dtype.is_floating_point else "q"
        wide = torch.frombuffer(array(code, values), dtype=torch.float64 if code == "d" else torch.int64)
        tensor = wide.to(dtype).reshape(self.shape)
        if code == "d" and tensor.isinf().any():
            raise RefusedError(400, f"{where}.data: found a number beyond {self.datatype}; allowed: values of {self}")
        return tensor

    def of_binary(self, data: memoryview, where: str) -> Tensor:
        """The tensor of its bytes, which are copied."""
        if self.dtype == "bool" and data.nbytes and max(data) > 1:
            raise RefusedError(400, f"{where}: found a byte {max(data)} in BOOL; allowed: 0 and 1")
        return torch.frombuffer(bytearray(data), dtype=torch_dtype(self.dtype)).reshape(self.shape)


@dataclass(frozen=True)
class InferRequest:
    """A request that a model takes: its inputs in order; by output that is asked for, its number and whether binary."""

    inputs: list[Tensor]
    outputs: dict[int, bool]
    id: str = ""


class ModelInterface:
    """The inputs and outputs of a model, by the names that clients use: outputs are output_0, output_1 and so on."""

    def __init__(self, model: ServedModel) -> None:
        graph = model.problem.graph
        made = [value_type(graph, value.external) for value in graph.outputs if value.external is not None]
        self.label = model.label
        self.inputs = {entry.name: TensorInterface(entry.name, entry.shape, entry.dtype) for entry in graph.inputs}
        self.outputs = {
            f"output_{number}": TensorInterface(f"output_{number}", shape, dtype)
            for number, (shape, dtype) in enumerate(made)
        }
        for tensor in (*self.inputs.values(), *self.outputs.values()):
            if tensor.dtype not in _DATATYPES or not math.prod(tensor.shape):
                raise HiosError(
                    f"model {self.label}: {tensor.name}: found {tensor.dtype} {list(tensor.shape)}; allowed to serve: "
                    f"{', '.join(_DATATYPES)}, without sizes of 0"
                )
        #: Bytes of a request in JSON, and of the tensors of a binary one, at most.
        self.most_json = _AROUND + _NUMBER * sum(math.prod(entry.shape) for entry in self.inputs.values())
        self.most_binary = sum(nbytes(entry.shape, entry.dtype) for entry in self.inputs.values())

    @property
    def metadata(self) -> dict[str, Any]:
        """What GET /v2/models/NAME answers."""
        tensors = {"inputs": self.inputs, "outputs": self.outputs}
        described = {key: [entry.metadata for entry in own.values()] for key, own in tensors.items()}
        return {"name": self.label, "versions": [VERSION], "platform": "hios", **described}

    @property
    def configuration(self) -> dict[str, Any]:
        """What GET /v2/models/NAME/config answers to Triton's tools; shapes are whole, so it has no batches."""
        described = {
            key: [{"name": own.name, "data_type": f"TYPE_{own.datatype}", "dims": list(own.shape)} for own in tensors]
            for key, tensors in (("input", self.inputs.values()), ("output", self.outputs.values()))
        }
        return {"name": self.label, "platform": "hios", "max_batch_size": 0, **described}

    def decode(self, body: bytes | bytearray, header_length: int | None = None) -> InferRequest:
        """The request of a body, whose JSON is as long as Inference-Header-Content-Length says, or all of it.

        Raises:
            RefusedError: the model takes other inputs, or the body is no request.
        """
        end = len(body) if header_length is None else header_length
        try:
            request = msgspec.json.decode(memoryview(body)[:end], type=_Request)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            found = "nesting that is too deep" if isinstance(error, RecursionError) else first_line(error)
            raise RefusedError(400, f"body: {found}; NaN and infinite numbers need binary tensors") from None
        given = {entry.name: entry for entry in request.inputs}
        if len(given) < len(request.inputs) or given.keys() != self.inputs.keys():
            raise RefusedError(
                400,
                f"model {self.label}: inputs: found {shown([entry.name for entry in request.inputs])}; allowed: "
                f"{', '.join(map(str, self.inputs.values()))}, each once",
            )
        _require_known(request.parameters, "parameters")
        tensors, rest = {}, memoryview(body)[end:]
        for entry in request.inputs:
            tensors[entry.name], rest = self._tensor(entry, rest)
        if rest.nbytes:
            raise RefusedError(400, f"body: found {rest.nbytes} bytes behind the tensors; allowed: none")
        return InferRequest([tensors[name] for name in self.inputs], self._asked(request), request.id)

    def _tensor(self, entry: _Input, rest: memoryview) -> tuple[Tensor, memoryview]:
        """An input, and what is left of the binary tensors."""
        where, own = f"model {self.label}: inputs.{entry.name}", self.inputs[entry.name]
        if (entry.datatype, tuple(entry.shape)) != (own.datatype, own.shape):
            found = f"{shown(entry.datatype, quoted=False)} {shown(entry.shape)}"
            raise RefusedError(400, f"{where}: found {found}; allowed: {own.datatype} {list(own.shape)}")
        _require_known(entry.parameters, where)
        size = entry.parameters.get("binary_data_size")
        if (size is None) == (entry.data is msgspec.UNSET):
            found = "neither" if size is None else "both"
            raise RefusedError(400, f"{where}: found {found}; required: data, or the parameter binary_data_size")
        if entry.data is not msgspec.UNSET:
            return own.of_json(entry.data, where), rest
        need = nbytes(own.shape, own.dtype)
        if size != need or isinstance(size, float) or rest.nbytes < need:
            raise RefusedError(
                400,
                f"{where}: found binary_data_size {shown(size)} and {rest.nbytes} bytes behind the JSON; required: "
                f"{need}, and Inference-Header-Content-Length, the length of the JSON",
            )
        return own.of_binary(rest[:need], where), rest[need:]

    def _asked(self, request: _Request) -> dict[int, bool]:
        """The outputs that a request asks for by number, all if it names none, and whether each is to be binary."""
        binary = _flag(request.parameters, "binary_data_output", False)
        numbers = {name: number for number, name in enumerate(self.outputs)}
        asked = {}
        for entry in request.outputs or [_Output(name) for name in self.outputs]:
            if entry.name not in numbers or numbers[entry.name] in asked:
                found = shown([other.name for other in request.outputs])
                raise RefusedError(
                    400, f"model {self.label}: outputs: found {found}; allowed: {', '.join(self.outputs)}, each once"
                )
            _require_known(entry.parameters, f"outputs.{entry.name}")
            asked[numbers[entry.name]] = _flag(entry.parameters, "binary_data", binary)
        return asked

    def encode(self, request: InferRequest, outputs: Sequence[Tensor]) -> tuple[list[bytes], int | None]:
        """The answer: JSON, then binary tensors; and the length of the JSON where tensors follow.

        Raises:
            RefusedError: an output that was not asked for as binary holds what JSON cannot hold.
        """
        described, parts = [], []
        for number, binary in request.outputs.items():
            own, value = self.outputs[f"output_{number}"], outputs[number]
            entry = own.metadata
            if binary:
                parts.append(value.reshape(-1).view(torch.uint8).numpy().tobytes())
                entry["parameters"] = {"binary_data_size": len(parts[-1])}
            elif value.dtype.is_floating_point and not value.isfinite().all():
                raise RefusedError(
                    406,
                    f"model {self.label}: {own.name}: found NaN or infinite numbers, which JSON cannot hold; "
                    "ask for it with the parameter binary_data",
                )
            else:
                entry["data"] = value.reshape(-1).tolist()
            described.append(entry)
        answer = {"model_name": self.label, "model_version": "1", "outputs": described}
        head = msgspec.json.encode({**answer, "id": request.id} if request.id else answer)
        return [head, *parts], len(head) if parts else None


def _require_known(parameters: Mapping[str, Any], where: str) -> None:
    for name in _REFUSED:
        if name in parameters:
            raise RefusedError(
                400,
                f"{where}: found the parameter {name}; allowed: binary_data_size of an input, "
                "binary_data of an output, binary_data_output",
            )


def _flag(parameters: Mapping[str, Any], name: str, default: bool) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise RefusedError(400, f"parameters.{name}: found {shown(value)}; allowed: true, false")
    return value


_ANSWERS = {
    400: "other inputs than the model has; the message says which it has",
    403: "a request of a web page, while the server listens on a loopback address",
    406: "an output that JSON cannot hold",
    413: "a body larger than the inputs need",
    415: "a body that is compressed",
    422: "values that an operator of the model refuses",
    429: "the queue is full; Retry-After says when to come back",
    503: "a lane died, or the server is not ready",
    504: "the deadline passed in the queue",
}


def api_description(models: Mapping[str, ModelInterface], version: str) -> dict[str, Any]:
    """The OpenAPI description of a server with these models."""
    paths: dict[str, dict[str, Any]] = {
        "/v2": {"get": _operation("Name, version and extensions of the server")},
        "/v2/health/live": {"get": _operation("Whether the server answers", 503)},
        "/v2/health/ready": {"get": _operation("Whether models can be run", 503)},
        "/metrics": {"get": _operation("Metrics in the text format of Prometheus", media="text/plain")},
        "/openapi.json": {"get": _operation("This description")},
    }
    for label, model in models.items():
        for where in (f"/v2/models/{label}", f"/v2/models/{label}/versions/{VERSION}"):
            paths[where] = {"get": _operation(f"Inputs and outputs of {label}")}
            paths[f"{where}/config"] = {"get": _operation(f"The same of {label} in the words of Triton")}
            paths[f"{where}/ready"] = {"get": _operation(f"Whether {label} can be run", 503)}
            paths[f"{where}/infer"] = {"post": _inference(model)}
    info = {"title": f"hios: {', '.join(models)}", "version": version}
    return {"openapi": "3.1.0", "info": info, "paths": paths}


def _inference(model: ModelInterface) -> dict[str, Any]:
    entries = [_input(entry) for entry in model.inputs.values()]
    binary = _object({"binary_data": {"type": "boolean"}})
    asked = _object({"name": {"enum": list(model.outputs)}, "parameters": binary}, "name")
    properties = {
        "id": {"type": "string"},
        "inputs": {"type": "array", "prefixItems": entries, "items": False, "minItems": len(entries)},
        "outputs": {"type": "array", "items": asked},
        "parameters": _object({"binary_data_output": {"type": "boolean"}}),
    }
    length = {
        "name": "Inference-Header-Content-Length",
        "in": "header",
        "description": "Length of the JSON, where binary tensors follow it",
        "schema": {"type": "integer", "minimum": 0},
    }
    return {
        **_operation(f"Run {model.label}; tensors as JSON, or binary behind it", *_ANSWERS),
        "parameters": [length],
        "requestBody": {"required": True, "content": {"application/json": {"schema": _object(properties, "inputs")}}},
    }


def _input(entry: TensorInterface) -> dict[str, Any]:
    size = math.prod(entry.shape)
    kind = "boolean" if entry.datatype == "BOOL" else "number" if "F" in entry.datatype else "integer"
    data = {"type": "array", "items": {"type": kind}, "minItems": size, "maxItems": size}
    stated = {key: {"const": value} for key, value in entry.metadata.items()}
    return _object({**stated, "data": data}, *stated)


def _object(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": list(required)}


def _operation(summary: str, *errors: int, media: str = "application/json") -> dict[str, Any]:
    fine = {"description": summary, "content": {media: {}}}
    return {"summary": summary, "responses": {"200": fine, **{str(code): _answer(_ANSWERS[code]) for code in errors}}}


def _answer(text: str) -> dict[str, Any]:
    schema = _object({"error": {"type": "string"}}, "error")
    return {"description": text, "content": {"application/json": {"schema": schema}}}
