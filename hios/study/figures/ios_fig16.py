"""IOS, figure 16: speedup of every block."""

from collections.abc import Sequence

from hios.charts import marks
from hios.formats.run_file import Run
from hios.formats.schedule_file import Placement
from hios.study import network_runs as runs
from hios.study.figure_data import FigureData
from hios.study.registry import Figure, Rows, register


def rows(data: FigureData) -> Rows:
    """A row for every block of every network that ran by the sequential schedule and IOS, from measured placements."""
    return [
        {
            "network": label,
            "block": number,
            "platform": network.run.platform.name,
            "mark": marks.MEASURED.name,
            "sequential ms": runs.span(sequential, block),
            "ios ms": runs.span(of_ios, block),
            "speedup": runs.span(sequential, block) / runs.span(of_ios, block),
        }
        for label, network in data.networks.items()
        if (sequential := _placements(network.run, "sequential")) and (of_ios := _placements(network.run, "ios"))
        for number, block in enumerate(network.graph.blocks or ())
    ]


def _placements(run: Run, algorithm: str) -> Sequence[Placement]:
    found = [result.measured for result in run.results if result.algorithm == algorithm and result.devices == 1]
    return found[0] if found else ()


def finding(rows: Rows) -> str:
    """The largest speedup of a block."""
    best = max(rows, key=lambda row: float(row["speedup"]))
    place = f"block {best['block']} of {best['network']}"
    return f"The largest speedup of a block, measured, is {best['speedup']:.2f}, of {place}."


register(
    Figure(
        id="ios_fig16",
        title="Speedup of every block",
        varies="block; time by the sequential schedule over that by IOS",
        sessions=("networks",),
        rows=rows,
        finding=finding,
        chart=runs.bar_chart("block", "speedup", "sequential over IOS"),
    )
)
