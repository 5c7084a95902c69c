"""Writes the parts of docs/algorithms.md that come from the registry of algorithms.

    python docs/generate_algorithms.py

They stand between markers: the table of all algorithms, and the head of the section of each. Everything else is
written by hand and stays. An algorithm without a section gets one at the end of the file, with the questions that
its text has to answer. tests/test_docs.py fails while the file is not what this makes of it.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from hios.schedulers import ALGORITHMS, Algorithm

PAGE = Path(__file__).with_name("algorithms.md")

#: What the text of a section says, each in an item of its own that begins with these words.
QUESTIONS = ("Idea.", "Complexity.", "Ignores.", "Use it")

_BEGIN = "<!-- from the registry: {} -->"
_END = "<!-- end -->"


def generated(text: str) -> str:
    """The page with its generated parts made anew.

    Args:
        text: the page as it is.

    Raises:
        ValueError: a part is of an algorithm that is not in the registry, or is not closed.
    """
    parts = {"table": _table(), **{name: _head(algorithm) for name, algorithm in ALGORITHMS.items()}}
    for name in parts:
        if _BEGIN.format(name) not in text:
            items = "".join(f"- **{question}** ...\n" for question in QUESTIONS)
            text = f"{text.rstrip()}\n\n{_BEGIN.format(name)}\n{_END}\n\n{items}"

    def filled(match: re.Match[str]) -> str:
        if match["name"] not in parts:
            raise ValueError(f"{PAGE.name}: found a part for {match['name']}; allowed: {', '.join(parts)}")
        return f"{_BEGIN.format(match['name'])}\n{parts[match['name']]}\n{_END}"

    pattern = re.escape(_BEGIN).replace(r"\{\}", r"(?P<name>\S+)") + rf"\n(?:(?!<!--).*\n)*{re.escape(_END)}"
    done, count = re.subn(pattern, filled, text)
    if count != text.count(_BEGIN.partition("{}")[0]):
        raise ValueError(f"{PAGE.name}: every part from the registry must end with a line {_END}")
    return done


def _table() -> str:
    rows = [_row("algorithm", "devices", "parameters and their defaults", "from"), _row(*["---"] * 4)]
    for algorithm in ALGORITHMS.values():
        parameters = ", ".join(f"`{parameter.name}` {parameter.default_text}" for parameter in algorithm.parameters)
        link = f"[`{algorithm.name}`](#{algorithm.name})"
        rows.append(_row(link, _devices(algorithm), parameters or "none", algorithm.paper))
    return "\n".join(rows)


def _head(algorithm: Algorithm) -> str:
    summary = algorithm.summary[:1].upper() + algorithm.summary[1:]
    code = f"code: `{algorithm.run.__module__}`"
    demand = f" Demand: {algorithm.demand}." if algorithm.demand else ""
    text = f"{summary}. From {algorithm.paper}; devices: {_devices(algorithm)}; {code}.{demand}"
    lines = [
        f"### {algorithm.name}",
        "",
        textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False),
    ]
    if algorithm.parameters:
        lines += ["", _row("parameter", "default", "allowed", "meaning"), _row(*["---"] * 4)]
        lines += [_row(f"`{p.name}`", p.default_text, p.allowed, p.help) for p in algorithm.parameters]
    return "\n".join(lines)


def _row(*cells: object) -> str:
    return f"| {' | '.join(str(cell).replace('|', '&#124;') for cell in cells)} |"


def _devices(algorithm: Algorithm) -> str:
    return "any number" if algorithm.several_devices else "one"


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
