"""Writes the JSON Schemas of this folder from the classes of hios/formats.

    python schemas/generate.py

tests/test_schemas.py fails while a file is not what this makes of its class.
"""

from __future__ import annotations

import inspect
import json
from collections import Counter
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

import msgspec
import yaml
from msgspec import inspect as types

from hios.core.costs import CostsFile
from hios.core.graph import GraphFile
from hios.core.schedule import ScheduleFile
from hios.files.base import END, meanings
from hios.formats.archive import ArchiveFile
from hios.formats.config import Config
from hios.formats.descriptions import GpuFile, LinkFile
from hios.formats.partition import PartitionFile, PredictionFile
from hios.formats.run import Run
from hios.formats.scenario import ScenarioFile
from hios.formats.serving_result import CalibrationFile, ResultFile
from hios.formats.study import AblationFile, ConvolutionsFile, FigureFile, PublishedFile, SimulationFile, TopStudyFile

FOLDER = Path(__file__).parent
CLASSES: dict[str, type[msgspec.Struct]] = {
    "graph": GraphFile,
    "costs": CostsFile,
    "schedule": ScheduleFile,
    "run": Run,
    "partition": PartitionFile,
    "config": Config,
    "gpu": GpuFile,
    "link": LinkFile,
    "simulation": SimulationFile,
    "ablation": AblationFile,
    "convolutions": ConvolutionsFile,
    "top-study": TopStudyFile,
    "predicted": PredictionFile,
    "published": PublishedFile,
    "figure": FigureFile,
    "archive": ArchiveFile,
    "calibration": CalibrationFile,
    "scenario": ScenarioFile,
    "result": ResultFile,
}

_WHOLE_NUMBERS = (
    "Integers are written without a fraction: hios refuses 1.0 where this schema says integer, though JSON Schema "
    "itself takes it for one."
)
_SIMPLE = {
    types.BoolType: "boolean",
    types.IntType: "integer",
    types.FloatType: "number",
    types.StrType: "string",
    types.NoneType: "null",
}
_LIMITS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "pattern": "pattern",
    "min_length": "minLength",
    "max_length": "maxLength",
}


def schema(kind: str) -> dict[str, Any]:
    """The JSON Schema of an artifact kind."""
    return _Schema(kind).document


class _Schema:
    """The schema of one file; objects that occur several times are definitions."""

    def __init__(self, kind: str) -> None:
        self._defaults = kind in ("config", "scenario")
        root = cast(types.StructType, types.type_info(CLASSES[kind]))
        #: Choices in the order of the classes, which msgspec does not keep.
        self._choices: dict[frozenset[Any], list[Any]] = {}
        self._count: Counter[type] = Counter()
        self._tally(root)
        self._definitions: dict[str, Any] = {}
        body = self._object(root)
        self.document = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": f"hios/{kind}",
            "$comment": _WHOLE_NUMBERS,
            "title": kind,
            **body,
            **({"$defs": dict(sorted(self._definitions.items()))} if self._definitions else {}),
        }

    def _tally(self, kind: types.Type) -> None:
        """Count where each class occurs, looking into each once."""
        if isinstance(kind, types.StructType):
            self._count[kind.cls] += 1
            if self._count[kind.cls] == 1:
                for hint in get_type_hints(kind.cls, include_extras=True).values():
                    self._note_choices(hint)
                for field in kind.fields:
                    self._tally(field.type)
        elif isinstance(kind, types.Metadata):
            self._tally(kind.type)
        elif isinstance(kind, types.UnionType):
            for member in kind.types:
                self._tally(member)
        elif isinstance(kind, types.DictType):
            self._tally(kind.value_type)
        elif isinstance(kind, types.VarTupleType):
            self._tally(kind.item_type)

    def _note_choices(self, hint: Any) -> None:
        if get_origin(hint) is Literal:
            self._choices[frozenset(get_args(hint))] = list(get_args(hint))
        else:
            for part in get_args(hint):
                self._note_choices(part)

    def _rule(self, kind: types.Type) -> dict[str, Any]:
        """The schema of a type."""
        if isinstance(kind, types.Metadata):
            return _ordered({**self._rule(kind.type), **(kind.extra_json_schema or {})})
        if isinstance(kind, types.StructType):
            if self._count[kind.cls] == 1:
                return self._object(kind)
            name = kind.cls.__name__.lower()
            self._definitions.setdefault(name, self._object(kind))
            return {"$ref": f"#/$defs/{name}"}
        if isinstance(kind, types.AnyType):
            return {}
        if isinstance(kind, types.LiteralType):
            values = self._choices[frozenset(kind.values)]
            return {"type": "integer", "const": values[0]} if values == [1] else {"enum": values}
        if isinstance(kind, types.UnionType):
            return self._union(kind)
        if isinstance(kind, types.DictType):
            return self._mapping(kind)
        if isinstance(kind, types.VarTupleType):
            return {"type": "array", "items": self._rule(kind.item_type), **_sizes(kind, "Items")}
        if isinstance(kind, types.TupleType):
            length, item = len(kind.item_types), self._rule(kind.item_types[0])
            return {"type": "array", "items": item, "minItems": length, "maxItems": length}
        return {"type": _SIMPLE[type(kind)], **_limits(kind)}

    def _union(self, kind: types.UnionType) -> dict[str, Any]:
        """Types side by side: each keyword of JSON Schema speaks of one type only, so that they do not mix."""
        merged: dict[str, Any] = {}
        names: list[str] = []
        for member in kind.types:
            rule = self._rule(member)
            if "enum" in rule:  # of text, beside other types
                rule = {"type": "string", "pattern": f"^({'|'.join(rule['enum'])}){END}"}
            names.append(rule.pop("type"))
            merged.update(rule)
        if "number" in names and "integer" in names:
            names.remove("integer")
        return {"type": sorted(names, key=_TYPE_ORDER.index), **merged}

    def _mapping(self, kind: types.DictType) -> dict[str, Any]:
        rule: dict[str, Any] = {"type": "object"}
        keys = self._rule(kind.key_type)
        keys.pop("type")
        if keys:
            rule["propertyNames"] = keys
        if value := self._rule(kind.value_type):
            rule["additionalProperties"] = value
        return {**rule, **_sizes(kind, "Properties")}

    def _object(self, kind: types.StructType) -> dict[str, Any]:
        fields = sorted(kind.fields, key=lambda field: field.name != "format_version")
        texts = meanings(kind.cls)
        properties = {field.encode_name: self._property(field, texts.get(field.name)) for field in fields}
        required = [field.encode_name for field in kind.fields if field.required]
        text = " ".join((inspect.getdoc(kind.cls) or "").partition("\n\nExamples:")[0].split())
        extra = getattr(kind.cls, "schema_extra", {})
        return {
            "type": "object",
            "description": text,
            "properties": properties,
            **({"required": required} if required else {}),
            "additionalProperties": False,
            **extra,
        }

    def _property(self, field: types.Field, meaning: str | None) -> dict[str, Any]:
        rule = self._rule(field.type)
        if meaning is not None:
            rule = _ordered({**rule, "description": meaning})
        if self._defaults and field.default not in (msgspec.NODEFAULT, None):
            rule["default"] = msgspec.to_builtins(field.default)
        elif self._defaults and field.default_factory is not msgspec.NODEFAULT:
            rule["default"] = msgspec.to_builtins(field.default_factory())
        return rule


_TYPE_ORDER = ["array", "object", "integer", "number", "string", "boolean", "null"]
_FIRST = ("type", "enum", "const", "description")


def _ordered(rule: dict[str, Any]) -> dict[str, Any]:
    """Type and description first, as people look for them there."""
    return {**{key: rule[key] for key in _FIRST if key in rule}, **rule}


def _limits(kind: Any) -> dict[str, Any]:
    limits = {word: getattr(kind, name, None) for name, word in _LIMITS.items()}
    return {
        word: int(limit) if isinstance(limit, float) and limit.is_integer() else limit
        for word, limit in limits.items()
        if limit is not None
    }


def _sizes(kind: Any, of: str) -> dict[str, Any]:
    return {} if kind.min_length is None else {f"min{of}": kind.min_length}


def text(kind: str) -> str:
    """The schema as its file holds it."""
    if kind == "config":
        return yaml.safe_dump(schema(kind), sort_keys=False, width=118, allow_unicode=True)
    return json.dumps(schema(kind), indent=2, ensure_ascii=False) + "\n"


def path(kind: str) -> Path:
    """The file of a schema."""
    return FOLDER / f"{kind}.schema.{'yaml' if kind == 'config' else 'json'}"


if __name__ == "__main__":
    for name in CLASSES:
        path(name).write_text(text(name), encoding="utf-8")
