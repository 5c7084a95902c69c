"""IOS, figure 6: schedules on one device."""

from hios.formats.prediction_file import GpuPrediction
from hios.study import network_runs as runs
from hios.study import predicted_rows as predicted
from hios.study import run_findings
from hios.study.figure_data import FigureData, PredictedNetwork
from hios.study.registry import Figure, Rows, register
from hios.study.verdicts import Comparison

_ID = "ios_fig6"


def rows(data: FigureData) -> Rows:
    """A row for every schedule, with its throughput over that of the network's best."""
    modes = {
        (label, result.label): str(result.parameters.get("mode", ""))
        for label, network in data.networks.items()
        for result in network.run.results
    }
    timed = [
        {**row, "mode": modes.get((row["network"], row["schedule"]), "")}
        for row in runs.schedule_rows(data, ("sequential", "greedy", "ios"), devices=1)
    ]
    return runs.with_throughput(timed)


def compare(rows: Rows) -> list[Comparison]:
    """Milliseconds of the schedules, and the speedup of IOS."""
    numbers = {name: runs.latencies(rows, name) for name in ("sequential", "greedy")}
    for mode in ("both", "merge", "parallel"):
        numbers[mode] = runs.latencies([row for row in rows if row["mode"] == mode], "ios")
    numbers["speedup"] = runs.latencies(rows, "ios", "speedup")
    return runs.comparisons(_ID, rows, numbers)


def predicted_rows(label: str, network: PredictedNetwork, prediction: GpuPrediction) -> Rows:
    """A row for every schedule that is predicted for the paper's GPU, alike."""
    return runs.with_throughput(predicted.latency_rows(label, network, prediction))


_chart = runs.bar_chart("schedule", "normalized throughput", "throughput over the best")

register(
    predicted.beside(
        Figure(
            id=_ID,
            title="Schedules of one device, normalized to the best",
            varies="network and schedule; throughput over that of the best schedule",
            sessions=("networks",),
            rows=rows,
            finding=run_findings.speedups,
            chart=_chart,
            compare=compare,
            reason=run_findings.on_cores(run_findings.one_operator_fills_a_core),
        ),
        ("ios",),
        rows=predicted_rows,
        chart=_chart,
    )
)
