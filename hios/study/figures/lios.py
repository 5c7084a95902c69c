"""The figures and tables of LIOS."""

from __future__ import annotations

from collections.abc import Collection

from hios.charts import marks
from hios.core.problem import Problem
from hios.schedulers import schedule
from hios.schedulers.lios import steps
from hios.study import predicted_rows as predicted
from hios.study import run_rows as runs
from hios.study.figure_data import FigureData
from hios.study.gpu_targets import LIOS_VARIANTS
from hios.study.published import Comparison, comparisons
from hios.study.reference_networks import benchmark, worked_example
from hios.study.registry import register
from hios.study.rows import Rows

_COMPARED = ("sequential", "greedy", "nimble", "ios", "lios")

# Figures 4, 7, 8 and 9, and table VII: latencies of schedules of one device.
register(
    "lios_fig4",
    rows=lambda data: runs.schedule_rows(data, ("ios",), devices=1),
    chart=runs.box_plot,
    finding=runs.spreads,
)


def fig7_comparisons(rows: Rows) -> list[Comparison]:
    """Speedups, and the time of SqueezeNet; of GPUs alone."""
    speedup = {name: runs.latencies(rows, name, "speedup") for name in ("lios", "ios", "greedy")}
    numbers = {
        "speedup": speedup["lios"],
        "squeezenet_sequential": runs.of_network("squeezenet", runs.latencies(rows, "sequential")),
        "ios_nasnet": runs.of_network("nasnet_large", speedup["ios"]),
        "greedy": runs.of_network("nasnet_large", speedup["greedy"]),
    }
    return runs.measured_comparisons("lios_fig7", rows, numbers)


register(
    "lios_fig7",
    rows=lambda data: runs.schedule_rows(data, _COMPARED, devices=1),
    chart=runs.box_plot,
    compare=fig7_comparisons,
    finding=runs.speedups,
    explain=runs.on_cores(runs.one_operator_fills_a_core),
    beside=predicted.predictions(rows=predicted.latencies_of(*_COMPARED)),
)


def fig8_comparisons(rows: Rows) -> list[Comparison]:
    """How many times as long as LIOS the fastest of its variants takes, and LIOS-Rand1 the faster of the others.

    By network; of GPUs alone.
    """
    over = {name: runs.over_fastest(rows, name, others) for name, *others in (LIOS_VARIANTS, LIOS_VARIANTS[1:])}
    over["lios-rand1"].pop("squeezenet", None)
    return runs.measured_comparisons("lios_fig8", rows, {"variants": over["lios"], "rand1": over["lios-rand1"]})


register(
    "lios_fig8",
    rows=lambda data: runs.schedule_rows(data, LIOS_VARIANTS, devices=1),
    chart=runs.box_plot,
    compare=fig8_comparisons,
    finding=runs.spreads,
    beside=predicted.predictions(rows=predicted.latencies_of(*LIOS_VARIANTS)),
)
register(
    "lios_fig9",
    rows=lambda data: runs.rows_beside_references(data, ("lios",)),
    chart=runs.box_plot,
    compare=lambda rows: runs.measured_comparisons(
        "lios_fig9",
        rows,
        {"tensorrt_squeezenet": runs.of_network("squeezenet", runs.latencies(rows, "tensorrt", "speedup"))},
    ),
    finding=runs.speedups,
    explain=lambda rows: runs.stand_ins(rows, "TensorRT"),
)
register(
    "lios_tab7",
    rows=lambda data: runs.rows_beside_references(data, ("lios",)),
    chart=runs.bar_chart("schedule"),
    compare=lambda rows: runs.measured_comparisons(
        "lios_tab7", rows, {name: runs.latencies(rows, name) for name in ("lios", "tensorrt")}
    ),
    finding=runs.speedups,
    explain=lambda rows: runs.stand_ins(rows, "TensorRT and Apollo"),
    beside=predicted.predictions(rows=predicted.latencies_of("lios")),
)

# Table II: how the time of operators changes from run to run, by more than these per cent.
_CHANGES = (1, 5, 10)


def tab2_rows(data: FigureData) -> Rows:
    """A row for every network: operators whose 20th and 80th percentile differ by more than a share of the median."""
    return [
        {
            "network": label,
            "platform": network.run.platform.name,
            "mark": marks.MEASURED.name,
            "operators": len(spreads),
            **{f"above {change} %": sum(spread > change / 100 for spread in spreads) for change in _CHANGES},
        }
        for label, network in data.networks.items()
        if (
            spreads := [
                (cost.p80_ms - cost.p20_ms) / cost.time_ms
                for cost in network.costs.operators.values()
                if cost.p20_ms is not None and cost.p80_ms is not None and cost.time_ms > 0
            ]
        )
    ]


def tab2_comparisons(rows: Rows) -> list[Comparison]:
    """The share of NASNet's operators that change by more than 1 %; of GPUs alone."""
    changed = {row["network"]: 100 * row["above 1 %"] / row["operators"] for row in rows}
    return runs.measured_comparisons("lios_tab2", rows, {"changed": runs.of_network("nasnet_large", changed)})


register(
    "lios_tab2",
    rows=tab2_rows,
    compare=tab2_comparisons,
    finding=runs.listing("The time changes by more than 1 % for", "{above 1 %} of {operators} operators of {network}"),
)

# Table III: the worked example, of the CNN latency model of figure 3.
_STREAMS = 3
_TIMES = {"v1": 3, "v2": 5, "v3": 5, "v4": 5, "v5": 8, "v6": 15, "v7": 10, "v8": 7, "v9": 13, "v10": 2}
_EDGES = "v1 v2, v1 v3, v1 v4, v1 v5, v2 v6, v3 v6, v4 v7, v5 v8, v6 v9, v7 v9, v8 v9, v9 v10"


def _example() -> Problem:
    return worked_example("example", _EDGES, _TIMES, 0, "none")


def tab3_rows(data: FigureData) -> Rows:
    """A row for every step of the algorithm."""
    problem = _example()
    return [
        {
            "wait list": " ".join(problem.ids[operator] for operator in step.waiting),
            "operator": problem.ids[step.operator],
            "stream": step.stream + 1,
            "start": step.start_ms,
            "finish": step.finish_ms,
        }
        for step in steps(problem, _STREAMS)
    ]


def tab3_comparisons(rows: Rows) -> list[Comparison]:
    """The last finish, and the sum of all times."""
    latency = max((float(row["finish"]) for row in rows), default=None)
    return comparisons("lios_tab3", {"latency": latency, "sequential": schedule(_example(), "sequential").latency_ms})


register("lios_tab3", rows=tab3_rows, compare=tab3_comparisons)


# Table IV: the networks.
def tab4_rows(data: FigureData) -> Rows:
    """A row for every network."""
    return [
        {"network": graph.name, "operators": len(graph.operators), "edges": len(graph.edges)} for graph in benchmark()
    ]


register("lios_tab4", rows=tab4_rows, compare=lambda rows: runs.columns_compared("lios_tab4", rows, ("edges",)))


# Tables V and VI: time of scheduling.
def scheduling_rows(data: FigureData, algorithms: Collection[str]) -> Rows:
    """A row for every network and algorithm of one device: the algorithm alone, without profiling."""
    return [
        {
            "network": label,
            "algorithm": result.algorithm,
            "platform": network.run.platform.name,
            "mark": marks.MEASURED.name,
            "scheduling s": result.scheduling_time_s,
        }
        for label, network in data.networks.items()
        for result in network.run.results
        if result.algorithm in algorithms and result.devices == 1
    ]


_times = runs.listing("Scheduling takes here:", "{algorithm} {scheduling s:.3g} s on {network}", between="; ")
register("lios_tab5", rows=lambda data: scheduling_rows(data, ("ios", "lios")), finding=_times)
register(
    "lios_tab6",
    rows=lambda data: scheduling_rows(data, ("sequential", "greedy", "nimble", *LIOS_VARIANTS)),
    finding=_times,
)
