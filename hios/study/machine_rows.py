"""Shared by figures of several machines: the rows of every machine, and a panel for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hios.charts import marks
from hios.study import network_runs as runs
from hios.study.figure_data import FigureData, Network
from hios.study.published import published
from hios.study.verdicts import Comparison

if TYPE_CHECKING:
    import altair as alt

    from hios.study.registry import Rows

#: The name of this machine in the column `machine`.
HERE = "this machine"
_UNKNOWN = "unknown hardware"


def machine_rows(data: FigureData, rows: Callable[[FigureData], Rows]) -> Rows:
    """The measured rows of this machine and of every archive; none without an archive.

    Args:
        data: with networks and other machines.
        rows: makes the rows of one machine, each with its network.
    """
    if not data.machines:
        return []
    own = _of_machine(HERE, _UNKNOWN, data.networks, rows)
    others = [
        row
        for name, machine in data.machines.items()
        for row in _of_machine(name, machine.processor, machine.networks, rows)
    ]
    return own + others


def _of_machine(name: str, processor: str, networks: Mapping[str, Network], rows: Callable[[FigureData], Rows]) -> Rows:
    """Rows with machine and hardware: what run.json says that it ran on, else the processor."""
    return [
        {"machine": name, "hardware": networks[row["network"]].run.platform.hardware or processor, **row}
        for row in rows(FigureData(networks=networks))
        if row["mark"] == marks.MEASURED.name
    ]


def by_machine(rows: Rows) -> dict[str, Rows]:
    """Rows by machine."""
    return {name: [row for row in rows if row["machine"] == name] for name in dict.fromkeys(r["machine"] for r in rows)}


def comparisons(
    figure: str, statement: str, rows: Rows, values: Callable[[Rows], Mapping[str, float]]
) -> list[Comparison]:
    """A published range beside what each machine with GPUs reached; other machines are named.

    Args:
        figure: id in published.yaml.
        statement: its name there.
        rows: of the figure.
        values: numbers of one machine, by network.
    """
    entry = published(figure)[statement]
    compared = []
    for name, own in by_machine(rows).items():
        if runs.on_gpu(own) and (numbers := values(own).values()):
            ends = (min(numbers), max(numbers))
            compared.append(Comparison(entry, ends) if name == HERE else Comparison(entry, ends, f"archive {name}"))
    return compared


def findings(finding: Callable[[Rows], str]) -> Callable[[Rows], str]:
    """Makes the sentences of a finding for every machine, with its name before each."""

    def of_machines(rows: Rows) -> str:
        return " ".join(f"On {name}: {finding(own)}" for name, own in by_machine(rows).items())

    return of_machines


def hardware(rows: Rows) -> str:
    """One sentence: the hardware of every machine, and where the rows of others are from."""
    texts = [
        f"{name} ({', '.join(dict.fromkeys(row['hardware'] for row in own))})" for name, own in by_machine(rows).items()
    ]
    return f"Each machine has a panel; other machines are from the archives of their runs: {', '.join(texts)}."


def panels(rows: Rows, column: str, title: str) -> alt.TopLevelMixin:
    """Bars of a column by network and schedule, a panel for every machine.

    Args:
        rows: with machine and hardware.
        column: length of the bars.
        title: of their axis.
    """
    import altair as alt

    drawn: list[Any] = [_panel(name, own, column, title) for name, own in by_machine(rows).items()]
    stacked: alt.VConcatChart = alt.vconcat(*drawn).resolve_scale(
        y="independent",
        stroke="independent",
        fill="independent",
        strokeDash="independent",
        fillOpacity="independent",
    )
    return stacked


def _panel(name: str, rows: Rows, column: str, title: str) -> alt.TopLevelMixin:
    import altair as alt

    heading = alt.TitleParams(name, subtitle=", ".join(dict.fromkeys(row["hardware"] for row in rows)), anchor="start")
    return runs.bar_chart("schedule", column, title)(rows).properties(title=heading)
