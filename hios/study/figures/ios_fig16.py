"""IOS, figure 16: speedup of every block."""

from collections.abc import Sequence

from hios.charts import marks
from hios.formats.prediction_file import GpuPrediction
from hios.formats.run_file import Run
from hios.formats.schedule_file import Placement
from hios.study import network_runs as runs
from hios.study import predicted_rows as predicted
from hios.study.figure_data import FigureData, PredictedNetwork
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
    measured = [result.measured for result in run.results if result.algorithm == algorithm and result.devices == 1]
    return measured[0] if measured else ()


def finding(rows: Rows) -> str:
    """The largest speedup of a block."""
    best = max(rows, key=lambda row: float(row["speedup"]))
    place = f"block {best['block']} of {best['network']}"
    return f"The largest speedup of a block, measured, is {best['speedup']:.2f}, of {place}."


def predicted_rows(label: str, network: PredictedNetwork, prediction: GpuPrediction) -> Rows:
    """A row for every block by the schedules that are predicted for the paper's GPU."""
    sequential, of_ios = (predicted.first_of(prediction, name) for name in ("sequential", "ios"))
    if sequential is None or of_ios is None:
        return []
    return [
        {
            "network": label,
            "block": number,
            "platform": prediction.platform.name,
            "mark": marks.PREDICTED.name,
            "sequential ms": before,
            "ios ms": after,
            "speedup": before / after,
        }
        for number, block in enumerate(network.graph.blocks or ())
        for before, after in [(runs.span(sequential.placements, block), runs.span(of_ios.placements, block))]
        if after
    ]


_chart = runs.bar_chart("block", "speedup", "sequential over IOS")

register(
    predicted.beside(
        Figure(
            id="ios_fig16",
            title="Speedup of every block",
            varies="block; time by the sequential schedule over that by IOS",
            sessions=("networks",),
            rows=rows,
            finding=finding,
            chart=_chart,
        ),
        ("ios",),
        rows=predicted_rows,
        chart=_chart,
    )
)
