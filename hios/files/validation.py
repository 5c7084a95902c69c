"""Schema violations of an artifact in words, by the reference validator of JSON Schema.

Reading goes by the classes of ``hios.formats``; this is for what they refuse, and for ``hios verify``.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from hios.errors import shown, suggestion
from hios.files.read_limits import MOST_PROBLEMS

#: Keys named in one message at most.
_MOST_KEYS = 8
#: Keywords that limit numbers.
_BOUNDS = ("minimum", "exclusiveMinimum", "maximum")
#: The end of patterns (``hios.files.base.END``) that says nothing to a reader.
_NO_LINE_BREAK = r"(?!\n)"


def schema_errors(data: Any, schema: Mapping[str, Any]) -> list[str]:
    """All violations of a schema, one line each: field, value, allowed values; the first ones if there are too many.

    Those nearest to the top come first: what is wrong with the whole says more than what is wrong with a part. Of an
    object unknown keys come before missing ones: one may be the misspelling of the other.
    """
    errors = sorted(
        itertools.islice(_validator_class()(schema).iter_errors(data), MOST_PROBLEMS),
        key=lambda error: (len(error.absolute_path), error.validator == "required"),
    )
    return [_explained(error) for error in errors]


def field_name(place: Iterable[str | int]) -> str:
    """The name of a field in messages, such as ``operators[3].id``."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{shown(part, quoted=False)}"
    return text.lstrip(".") or "(whole file)"


@functools.cache
def _validator_class() -> Any:
    """The validator of Draft 2020-12, except that 1.0 is not an integer: only what is read as an integer is one."""
    from jsonschema import Draft202012Validator, validators  # slow to import, and needed for refusals only

    checker = Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "integer": lambda checker, value: isinstance(value, int) and not isinstance(value, bool),
            "array": lambda checker, value: isinstance(value, list | tuple),  # objects that are not yet written
        }
    )
    return validators.extend(Draft202012Validator, type_checker=checker)


def _explained(error: Any) -> str:
    rule, keyword, value = error.schema, error.validator, error.instance
    where = field_name(error.absolute_path)
    if keyword == "additionalProperties":
        known = rule.get("properties", {})
        unknown = sorted(set(value) - set(known))
        similar = suggestion(unknown[0], sorted(known.keys() - value.keys()))
        return f"{where}: unknown key {_listed(unknown)}{similar}; allowed: {', '.join(sorted(known))}"
    if keyword == "required":
        missing = [key for key in rule["required"] if key not in value]
        verb = "is" if len(missing) == 1 else "are"
        return f"{where}: {', '.join(missing)} {verb} missing; required: {', '.join(rule['required'])}"
    meaning = rule.get("not", rule) if keyword == "not" else rule
    text = f" ({meaning['description'].rstrip('.')})" if "description" in meaning else ""
    value_text = f"the key {shown(value)}" if "propertyNames" in error.absolute_schema_path else shown(value)
    if keyword == "enum" and isinstance(value, str):
        value_text += suggestion(value, (allowed for allowed in rule["enum"] if isinstance(allowed, str)))
    return f"{where}: found {value_text}; allowed: {_allowed(keyword, rule, error.message)}{text}"


def _listed(keys: list[str]) -> str:
    more = f" and {len(keys) - _MOST_KEYS} more" if len(keys) > _MOST_KEYS else ""
    return ", ".join(shown(key, quoted=False) for key in keys[:_MOST_KEYS]) + more


def _allowed(keyword: str, rule: Mapping[str, Any], message: str) -> str:
    """What a rule allows, in words; the validator's own message for keywords without words here."""
    bound = rule.get(keyword)
    if keyword == "enum":
        return "one of " + ", ".join(map(shown, rule["enum"]))
    if keyword == "not" and "enum" in rule["not"]:
        return "anything but " + ", ".join(map(shown, rule["not"]["enum"]))
    if keyword == "anyOf" and all("type" in option for option in rule["anyOf"]):
        return " or ".join(
            ", ".join([option["type"], *(_allowed(bound, option, "") for bound in _BOUNDS if bound in option)])
            for option in rule["anyOf"]
        )
    if keyword == "type":
        return bound if isinstance(bound, str) else " or ".join(rule["type"])
    words = {
        "const": shown(bound),
        "minimum": f"at least {bound}",
        "exclusiveMinimum": f"more than {bound}",
        "maximum": f"at most {bound}",
        "minLength": f"at least {bound} character(s)",
        "minItems": f"at least {bound} item(s)",
        "maxItems": f"at most {bound} item(s)",
        "minProperties": f"at least {bound} key(s)",
        "uniqueItems": "items that differ from each other",
        "pattern": f"text matching {str(bound).removesuffix(_NO_LINE_BREAK)}",
    }
    return words.get(keyword, shown(message, quoted=False))
