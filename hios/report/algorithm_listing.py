"""The registry of algorithms in words: a list, one algorithm in full, and the help of its parameters."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator

from hios.schedulers import ALGORITHMS, Algorithm, Parameter
from hios.schedulers.registry import AUTO

#: Sections of docstrings for those who call the function.
_FOR_CALLERS = ("Args:", "Returns:", "Raises:", "Attributes:")


def listing(width: int, problems: Iterable[str] = ()) -> str:
    """Every registered algorithm with a line on what it does and one on where it comes from, wrapped at a width.

    ``problems`` say why algorithms of other distributions are missing.
    """
    indent = max(map(len, ALGORITHMS)) + 2
    lines = []
    for algorithm in ALGORITHMS.values():
        options = "".join(f"; {option(parameter)} {parameter.default_text}" for parameter in algorithm.parameters)
        lines += _wrapped(f"{algorithm.name:<{indent}}{algorithm.summary}", width, " " * indent)
        devices = "any number of devices" if algorithm.several_devices else "one device"
        source = f"; from {algorithm.distribution}" if algorithm.distribution else ""
        origin = f"{algorithm.paper}; {devices}{options}{source}"
        lines += _wrapped(" " * indent + origin, width, " " * indent)
    for problem in problems:
        lines += ["", *_wrapped(f"Not available: {problem}", width)]
    chosen = f"{AUTO}, the fastest of all as measured, is chosen in hios execute --auto."
    return "\n".join([*lines, "", *_wrapped(chosen, width), "hios algorithms NAME tells more about one."])


def described(algorithm: Algorithm, width: int) -> str:
    """One algorithm in full: paper, devices, parameters, and the docstrings of its code, wrapped at a width."""
    lines = [
        *_wrapped(f"{algorithm.name}: {algorithm.summary}", width),
        "",
        *_wrapped(f"Paper    {algorithm.paper}", width, " " * 9),
        f"Devices  {'any number' if algorithm.several_devices else 'one'}",
        *_wrapped(f"Demand   {algorithm.demand or 'not used'}", width, " " * 9),
        f"Code     {algorithm.run.__module__}",
        *([f"From     {algorithm.distribution}"] if algorithm.distribution else []),
        "",
        "Parameters, on the command line and in config.yaml:" if algorithm.parameters else "No parameters.",
    ]
    for parameter in algorithm.parameters:
        lines.append(f"  {option(parameter)}, {parameter.name}: {parameter.default_text}")
        lines += _wrapped(
            f"      {parameter.help} (default {parameter.default_text}; {parameter.allowed})", width, " " * 6
        )
    lines += ["", *_paragraphs(algorithm.run, width)]
    for name, code in _named(algorithm):
        lines += ["", f"{name}:", *("  " + line if line else "" for line in _paragraphs(code, width - 2))]
    return "\n".join(lines)


def option(parameter: Parameter) -> str:
    """The option of the command line that sets a parameter."""
    return f"--{parameter.name.replace('_', '-')}"


def parameters() -> dict[str, list[tuple[Algorithm, Parameter]]]:
    """The parameters of all algorithms by name, each with those that have it."""
    users: dict[str, list[tuple[Algorithm, Parameter]]] = {}
    for algorithm in ALGORITHMS.values():
        for parameter in algorithm.parameters:
            users.setdefault(parameter.name, []).append((algorithm, parameter))
    return users


def parameter_help(users: Iterable[tuple[Algorithm, Parameter]]) -> str:
    """Help of a parameter, with the algorithms that have it; where they differ, what each takes it for."""
    sharing: dict[Parameter, list[str]] = {}
    for algorithm, parameter in users:
        sharing.setdefault(parameter, []).append(algorithm.name)
    texts = [
        f"{parameter.help}; {parameter.allowed}, default {parameter.default_text} ({', '.join(names)})"
        for parameter, names in sharing.items()
    ]
    return "; or: ".join(texts)


def _named(algorithm: Algorithm) -> Iterator[tuple[str, object]]:
    """The code of algorithms that a docstring names, which in turn holds what it says about its part."""
    # The package of the algorithm: hios.schedulers, or that of another distribution.
    package = algorithm.run.__module__.rpartition(".")[0] or algorithm.run.__module__
    for name in dict.fromkeys(re.findall(r"``([\w.]+)``", inspect.getdoc(algorithm.run) or "")):
        value: object = algorithm.run.__globals__.get(name.partition(".")[0])
        for part in name.split(".")[1:]:
            value = getattr(value, part, None)
        if callable(value) and str(getattr(value, "__module__", "")).startswith(package):
            yield name, value


def _paragraphs(code: object, width: int) -> list[str]:
    """A docstring wrapped at a width, without what only callers need and without markup."""
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", inspect.getdoc(code) or ""):
        if paragraph.startswith(_FOR_CALLERS):
            continue
        for item in re.split(r"\n(?=- |\d+\. )", paragraph.replace("``", "'")):
            bullet = re.match(r"- |\d+\. ", item)
            lines += _wrapped(" ".join(item.split()), width, " " * len(bullet.group()) if bullet else "")
        lines.append("")
    return lines[:-1]


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
