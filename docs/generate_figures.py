"""Writes the parts of docs/reproducing.md that come from the registry of figures and from published.yaml.

    python docs/generate_figures.py

They stand between markers; everything else is written by hand and stays. tests/study/test_reproducing.py fails while
the file is not what this makes of it.
"""

from __future__ import annotations

import functools
import re
import textwrap
from collections import Counter
from pathlib import Path

from hios.charts.marks import explanation
from hios.study.cards import source_text
from hios.study.figure_data import SESSION_TIMES, FigureData
from hios.study.figure_files import stated
from hios.study.published import all_published
from hios.study.registry import NEEDS, PAPERS, Figure, figure, figures

PAGE = Path(__file__).with_name("reproducing.md")

_BEGIN, _END = "<!-- generated: {} -->", "<!-- end -->"


def generated(text: str) -> str:
    """The page with its generated parts made anew.

    Args:
        text: the page as it is.

    Raises:
        ValueError: a part is missing, or not closed.
    """
    for name, part in {"marks": _wrapped(explanation()), "figures": _figures(), "published": _published()}.items():
        begin = re.escape(_BEGIN.format(name))
        text, count = re.subn(f"{begin}\n.*?{re.escape(_END)}", _filled(name, part), text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"{PAGE.name}: generated part {name}: found {count}; allowed: 1")
    return text


def _filled(name: str, part: str) -> str:
    return f"{_BEGIN.format(name)}\n{part}\n{_END}".replace("\\", "\\\\")


def _figures() -> str:
    rows = [_row("command", "figure", "what it shows", "needs", "drawn from", "time", "verdict"), _row(*["---"] * 7)]
    for entry in figures():
        time = f"{entry.seconds:g} s" if not entry.missing else ""
        source = ", ".join(entry.sessions) if not entry.missing else _why(entry)
        needs = ", ".join(entry.needs)
        place = (f"`snakemake {entry.id}`", entry.number, entry.title, needs)
        rows.append(_row(*place, source or "the code", time, _verdicts(entry.id)))
    needs = "; ".join(f"{name}: {meaning}" for name, meaning in NEEDS.items())
    times = "; ".join(f"{session}: {time}" for session, time in SESSION_TIMES.items())
    drawing = "Time is that of drawing, once the data are there. Sessions take on two idle cores"
    verdicts = (
        "Verdicts are listed where they are the same on every machine: for figures that are computed from the code and "
        "for those that are not drawn, with the number of published statements. All others depend on the sessions; "
        "ID.json and the report state them."
    )
    parts = [f"Needs are {needs}.", f"{drawing}: {times}.", verdicts]
    return "\n".join([*rows, *(line for part in parts for line in ("", _wrapped(part)))])


@functools.cache
def _verdicts(name: str) -> str:
    """The verdicts on the published statements of a figure with how many have each, if no session decides them."""
    own = figure(name)
    if not own.published:
        return "nothing to compare"
    if own.sessions:
        return "by its sessions"
    counts = Counter(entry.verdict for entry in stated(own, FigureData())[1].comparisons)
    return ", ".join(f"{verdict} ({count})" for verdict, count in counts.items())


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _why(figure: Figure) -> str:
    command = f" (`{figure.command}`)" if figure.command else ""
    return f"not drawn: {figure.missing}{command}"


def _published() -> str:
    lines = []
    for group, entries in all_published().items():
        if not entries:
            continue
        paper = PAPERS.get(group.partition("_")[0], "Threads of users")
        lines += [f"#### {group}", "", f"{paper}.", ""]
        lines += [_row("published", "value", "unit", "on", "source", "tolerance"), _row(*["---"] * 6)]
        lines += [
            _row(
                entry.what + (f" ({entry.note})" if entry.note else ""),
                entry.text,
                entry.unit,
                entry.hardware,
                source_text(entry),
                f"{entry.tolerance:.0%}",
            )
            for entry in entries.values()
        ]
        lines.append("")
    return "\n".join(lines).rstrip()


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
