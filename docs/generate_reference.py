"""Writes the generated parts of the reference: docs/cli.md, configuration.md, artifacts.md, api.md, how-it-decides.md.

    python docs/generate_reference.py

They come from the commands, from the schemas (which come from the classes of hios/formats), from ``hios.__all__``, and
from the table of differences of other runtimes.
They stand between markers; everything else is written by hand and stays. tests/test_docs_reference.py fails while a
page is not what this makes of it.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

import hios
from hios.cli import main
from hios.files import artifacts
from hios.frontends import known_differences
from hios.frontends.models import RUNTIMES

FOLDER = Path(__file__).parent

_BEGIN, _END = "<!-- generated: {} -->", "<!-- end -->"
#: A bar within a cell of a table, in code too.
BAR = r"\|"

#: An object with at least so many keys is not repeated where another has them too.
MANY_KEYS = 8

#: The schemas of files that hios writes, and of those that users write, in the order of docs/artifacts.md.
KINDS = (
    *("graph", "costs", "schedule", "run", "partition", "figure", "simulation", "ablation", "convolutions"),
    *("predicted", "top-study", "archive", "scenario", "result", "calibration", "gpu", "link", "published"),
)

#: The public names by section of docs/api.md, in its order.
PUBLIC = {
    "stages": ("optimize", "export", "extract", "profile", "execute", "report"),
    "scheduling": ("schedule", "evaluate", "violations", "lower_bound_ms", "register"),
    "problems": ("Graph", "Operator", "Edge", "Costs", "Problem"),
    "plans": ("StagedPlan", "StreamPlan", "Solution", "Schedule", "Placement", "Parameter"),
    "results": ("load_results", "Results", "CostsFile", "Run"),
    "errors": ("HiosError", "HiosWarning"),
}
#: Public names that are values, which docs/api.md describes by hand.
VALUES = ("ALGORITHMS", "__version__")


def page_names() -> list[str]:
    """The pages with generated parts."""
    return list(_PARTS)


def generated(page: str, text: str) -> str:
    """A page with its generated parts made anew.

    Args:
        page: one of `page_names`.
        text: the page as it is.

    Raises:
        ValueError: a part is missing, or not closed.
    """
    for name, part in _PARTS[page]().items():
        begin = re.escape(_BEGIN.format(name))
        made = f"{_BEGIN.format(name)}\n{part}\n{_END}"
        text, count = re.subn(
            f"{begin}\n(?:.*?\n)??{re.escape(_END)}", lambda _, made=made: made, text, flags=re.DOTALL
        )
        if count != 1:
            raise ValueError(f"{page}: generated part {name}: found {count}; allowed: 1")
    return text


def _row(*cells: str) -> str:
    return f"| {' | '.join(' '.join(cell.split()).replace('|', BAR) for cell in cells)} |"


# Commands


def _commands() -> dict[str, str]:
    return {"commands": "\n\n".join(_command_sections(main, "hios", 2))}


def _command_sections(group: click.Group, path: str, level: int) -> Iterator[str]:
    """A section for every command of a group; those of a group within it come after the group's own."""
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        yield _command(command, f"{path} {name}", level)
        if isinstance(command, click.Group):
            yield from _command_sections(command, f"{path} {name}", level + 1)


def _command(command: click.Command, path: str, level: int) -> str:
    context = click.Context(command, info_name=path, max_content_width=100)
    usage = command.get_usage(context).removeprefix("Usage: ")
    lines = [f"{'#' * level} {path}", "", _prose(command.help or ""), "", "```text", usage, "```"]
    records = [
        record
        for parameter in command.get_params(context)
        if "--help" not in parameter.opts
        and isinstance(parameter, click.Option)
        and (record := parameter.get_help_record(context)) is not None
    ]
    if records:
        lines += ["", _row("option", "meaning"), _row("---", "---")]
        lines += [_row(f"`{names}`", meaning) for names, meaning in records]
    return "\n".join(lines)


def _prose(text: str) -> str:
    """Paragraphs as lines of at most 120 characters."""
    paragraphs = (" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    return "\n\n".join(
        textwrap.fill(paragraph, 120, break_long_words=False, break_on_hyphens=False) for paragraph in paragraphs
    )


# Schemas


def _configuration() -> dict[str, str]:
    return {"keys": "\n".join(_Tables("config", {}).lines("###"))}


def _artifacts() -> dict[str, str]:
    described: dict[str, tuple[str, str]] = {}
    return {kind: "\n".join(_Tables(kind, described).lines("###")) for kind in KINDS}


class _Tables:
    """The objects of a schema as tables of their keys: the file itself, then those within it.

    An object that an earlier schema of the page has as well gets a link to its table there.

    Args:
        kind: of the schema.
        described: heading and description of the objects that have a table on the page, by what they contain; objects
            of this schema are added.
    """

    def __init__(self, kind: str, described: dict[str, tuple[str, str]]) -> None:
        self._described = described
        self._kind_of_file = kind
        self._schema = artifacts.schema(kind)
        self._has_defaults = kind == "config"
        #: Before the path of an object, as several files have objects of the same name.
        self._prefix = "" if self._has_defaults else f"{kind}."
        self._waiting: list[tuple[str, Mapping[str, Any]]] = []
        self._seen: set[str] = set()

    def lines(self, mark: str) -> Iterator[str]:
        """Description and table of the file, then a heading with a table for every object within it."""
        description = _prose(self._schema["description"])
        self._described.setdefault(self._content(self._schema), (f"{self._kind_of_file}.json", description))
        yield description
        yield from self._table("", self._schema)
        while self._waiting:
            path, rule = self._waiting.pop(0)
            yield ""
            yield f"{mark} `{self._prefix}{path}`"
            yield ""
            yield _prose(rule.get("description", ""))
            yield from self._table(path, rule)

    def _table(self, path: str, rule: Mapping[str, Any]) -> Iterator[str]:
        required = rule.get("required", ())
        heads = ["key", "value", "default" if self._has_defaults else "required", "meaning"]
        base, known = self._base(path, rule) if path else ("", set())
        yield ""
        if base:
            yield f"The keys of [`{base}`](#{_anchor(base)}), and:"
            yield ""
        yield _row(*heads)
        yield _row(*["---"] * len(heads))
        for name, value in rule.get("properties", {}).items():
            if name in known:
                continue
            place = f"{path}.{name}" if path else name
            third = self._default(value, name in required) if self._has_defaults else "yes" if name in required else ""
            yield _row(f"`{name}`", self._value(place, value), third, value.get("description", ""))
        more = rule.get("additionalProperties")
        if isinstance(more, dict):
            place = f"{path}.NAME" if path else "NAME"
            yield _row("any other", self._value(place, more), "", more.get("description", ""))

    @staticmethod
    def _default(rule: Mapping[str, Any], required: bool) -> str:
        if required:
            return "required"
        default = rule.get("default")
        if default is None or isinstance(default, dict):
            return ""
        if isinstance(default, bool):
            return f"`{str(default).lower()}`"
        if isinstance(default, list):
            return f"`[{', '.join(map(str, default))}]`"
        return f"`{default}`"

    def _value(self, path: str, rule: Mapping[str, Any]) -> str:
        """What a value may be, in words; objects wait for tables of their own."""
        if "$ref" in rule:
            name = rule["$ref"].rpartition("/")[2]
            return self._object(name, self._schema["$defs"][name])
        if "enum" in rule:
            return " or ".join(f"`{value}`" for value in rule["enum"])
        if "const" in rule:
            return f"`{rule['const']}`"
        kinds = rule.get("type", [])
        kinds = [kinds] if isinstance(kinds, str) else kinds
        return " or ".join(self._kind(path, kind, rule) for kind in kinds) or "anything"

    def _kind(self, path: str, kind: str, rule: Mapping[str, Any]) -> str:
        if kind == "array":
            return self._list(path, rule)
        if kind == "object" and "properties" in rule:
            return self._object(path, rule)
        if kind == "object":
            more = rule.get("additionalProperties", {})
            return f"mapping to {self._value(f'{path}.NAME', more)}"
        words = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}
        return words.get(kind, kind) + (_limits(rule) if kind in ("integer", "number") else "")

    def _object(self, path: str, rule: Mapping[str, Any]) -> str:
        """A link to the table of an object, which waits for one if no schema had it yet."""
        if path not in self._seen:
            description = rule.get("description", "")
            heading, stated = self._described.setdefault(self._content(rule), (self._prefix + path, description))
            is_key = not path.endswith(("[]", "NAME"))  # the description of a key stands in its row
            if heading != self._prefix + path and (is_key or stated == description):
                return f"object [`{heading}`](#{_anchor(heading)})"
            self._seen.add(path)
            self._waiting.append((path, rule))
        return f"object [`{path}`](#{_anchor(self._prefix + path)})"

    def _content(self, rule: Mapping[str, Any]) -> str:
        """The keys of an object, to compare it with others."""
        parts = ("properties", "required", "additionalProperties")
        return json.dumps({part: self._resolved(rule.get(part)) for part in parts}, sort_keys=True)

    def _base(self, path: str, rule: Mapping[str, Any]) -> tuple[str, set[str]]:
        """Heading and keys of an object on the page with many keys, all of which this one has as well."""
        mine = json.loads(self._content(rule))
        for content, (heading, _) in self._described.items():
            other = json.loads(content)
            keys = set(other["properties"] or ())
            if (
                heading not in (self._prefix + path, f"{self._kind_of_file}.json")
                and len(keys) >= MANY_KEYS
                and all(mine["properties"].get(key) == value for key, value in other["properties"].items())
                and set(other["required"] or ()) == keys.intersection(mine["required"] or ())
            ):
                return heading, keys
        return "", set()

    def _resolved(self, rule: Any) -> Any:
        """A rule with definitions in place of references to them."""
        if isinstance(rule, list):
            return [self._resolved(item) for item in rule]
        if not isinstance(rule, dict):
            return rule
        if "$ref" in rule:
            return self._resolved(self._schema["$defs"][rule["$ref"].rpartition("/")[2]])
        return {key: self._resolved(value) for key, value in rule.items()}

    def _list(self, path: str, rule: Mapping[str, Any]) -> str:
        least, most = rule.get("minItems"), rule.get("maxItems")
        count = f" of {least}" if least is not None and least == most else f" of at least {least}" if least else ""
        item = self._value(f"{path}[]", rule.get("items", {}))
        return f"list{count}: {item}" if count else f"list of {item}"


def _limits(rule: Mapping[str, Any]) -> str:
    words = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    given = [f"{word} {rule[key]}" for key, word in words.items() if key in rule]
    return f", {', '.join(given)}" if given else ""


def _anchor(heading: str) -> str:
    """The anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


# Public names


def _api() -> dict[str, str]:
    listed = sorted([*VALUES, *(name for names in PUBLIC.values() for name in names)])
    if listed != sorted(hios.__all__):
        unlike = sorted(set(listed) ^ set(hios.__all__))
        raise ValueError(f"api.md: found {', '.join(unlike)} in hios.__all__ or in PUBLIC alone; allowed: in both")
    return {section: _directives(names) for section, names in PUBLIC.items()}


def _directives(names: tuple[str, ...]) -> str:
    return "\n".join(["```{eval-rst}", *(line for name in names for line in _directive(name)), "```"])


def _directive(name: str) -> list[str]:
    """The lines for a public name: a class with its documented members, but for those that mirror a file."""
    public = getattr(hios, name)
    if not isinstance(public, type):
        return [f".. autofunction:: hios.{name}", ""]
    if issubclass(public, Exception) or name in ("CostsFile", "Run"):
        return [f".. autoclass:: hios.{name}", ""]
    return [f".. autoclass:: hios.{name}", "   :members:", ""]


# Differences of other runtimes


def _differences() -> dict[str, str]:
    table = known_differences.read()
    names = ", ".join(f"{name} {version}" for name, version in table["versions"].items())
    lines = [f"Of {table['runs']:,} runs, with {names}:", "", _row("runtime", "values", "operators that differ")]
    lines.append(_row("---", "---", "---"))
    for runtime, kinds in table["differences"].items():
        for kind, operators in kinds.items():
            cells = (f"`{operator}` ({', '.join(dtypes)})" for operator, dtypes in operators.items())
            lines.append(_row(RUNTIMES[runtime], kind, "; ".join(cells)))
    return {"differences": "\n".join(lines)}


_PARTS: dict[str, Callable[[], dict[str, str]]] = {
    "cli.md": _commands,
    "configuration.md": _configuration,
    "artifacts.md": _artifacts,
    "api.md": _api,
    "how-it-decides.md": _differences,
}


if __name__ == "__main__":
    for page in page_names():
        file = FOLDER / page
        file.write_text(generated(page, file.read_text(encoding="utf-8")), encoding="utf-8")
