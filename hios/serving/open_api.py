"""The OpenAPI description of what a server answers, with the inputs of its own models."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hios.serving.open_inference import VERSION, ModelInterface, TensorInterface

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


def described(models: Mapping[str, ModelInterface], version: str) -> dict[str, Any]:
    """The description of a server with these models."""
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
