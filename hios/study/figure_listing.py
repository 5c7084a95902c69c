"""The registry of figures in words: a list, and one figure with its published numbers."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path

from hios.artifacts import Json
from hios.csv_tables import aligned
from hios.study.figure_data import SESSION_TIMES
from hios.study.registry import Figure
from hios.study.undrawn_figures import source_text

_COLUMNS = 100


def state(figure: Figure, results: Path) -> str:
    """Whether a figure is there, how to get it, or what is missing.

    Args:
        figure: of the registry.
        results: folder of results.
    """
    if figure.state != "drawn":
        return figure.state
    written = results / "figures" / f"{figure.id}.svg"
    return str(written) if written.is_file() else f"snakemake {figure.id}"


def contents(figure: Figure, results: Path) -> Json:
    """What the list says of a figure, as JSON has it."""
    return {
        "id": figure.id,
        "paper": figure.paper,
        "number": figure.number,
        "title": figure.title,
        "varies": figure.varies,
        "needs": list(figure.needs),
        "sessions": list(figure.sessions),
        "seconds": figure.seconds,
        "state": state(figure, results),
        "missing": figure.missing,
        "command": figure.command,
        "published": {
            entry.key: {"what": entry.what, "unit": entry.unit, **entry.numbers} for entry in figure.published.values()
        },
    }


def listing(figures: Iterable[Figure], results: Path) -> str:
    """A line for every figure, as a table: id, needs, sessions, seconds and state."""
    rows = [("figure", "needs", "sessions", "time", "state")]
    for figure in figures:
        seconds = "" if figure.missing else f"{figure.seconds:g} s"
        needs, sessions = ", ".join(figure.needs), ", ".join(figure.sessions) or "none"
        rows.append((figure.id, needs, "" if figure.missing else sessions, seconds, state(figure, results)))
    return "\n".join(
        [
            *aligned(rows, "<"),
            "",
            "Time is that of drawing, once the sessions are there. These take on two idle cores:",
            *(f"  {session}: {time}" for session, time in SESSION_TIMES.items()),
            "hios figures ID tells more about one.",
        ]
    )


def explained(figure: Figure, results: Path) -> str:
    """One figure: what it shows, what it needs, and what is published."""
    lines = [
        f"{figure.id}: {figure.paper}, {figure.number}",
        *textwrap.wrap(f"{figure.title}. {figure.varies[:1].upper()}{figure.varies[1:]}.", _COLUMNS),
        "",
        f"Needs     {', '.join(figure.needs)}",
        f"Sessions  {', '.join(figure.sessions) or 'none'}",
        f"State     {state(figure, results)}",
        *textwrap.wrap(figure.missing, _COLUMNS, initial_indent=" " * 10, subsequent_indent=" " * 10),
        *([f"Command   {figure.command}"] if figure.command else []),
        "",
        "Published:" if figure.published else "No number is published in words.",
    ]
    for entry in figure.published.values():
        lines += textwrap.wrap(
            f"{entry.what}: {entry.text} [{entry.unit}]", _COLUMNS, initial_indent="  ", subsequent_indent="    "
        )
        lines += textwrap.wrap(
            f"{entry.hardware}; {source_text(entry)}; tolerance {entry.tolerance:.0%}",
            _COLUMNS,
            initial_indent="    ",
            subsequent_indent="    ",
        )
    return "\n".join(lines)
