"""The figures and tables of Opara."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hios.charts import marks
from hios.core.evaluate import evaluate, latency_ms
from hios.core.graph import Graph, GraphFile
from hios.core.problem import Problem
from hios.core.schedule import ScheduleFile, StreamPlan
from hios.formats.partition import GpuPrediction
from hios.schedulers import schedule
from hios.study import machine_rows as machines
from hios.study import predicted_rows as predicted
from hios.study import run_rows as runs
from hios.study.figure_data import FigureData, PredictedNetwork
from hios.study.gpu_predictions import predicted_problem
from hios.study.published import Comparison, comparisons, published
from hios.study.reference_networks import googlenet, synthetic_costs
from hios.study.registry import register
from hios.study.rows import Rows, grouped, measured

if TYPE_CHECKING:
    import altair as alt

# Figure 2: launch orders. Nothing here launches kernels on streams of a GPU, so they are predicted alone.
_DEPTH_FIRST, _OWN_ORDER = "depth-first order", "opara's order"
_GAIN = "gain %"


def fig2_predicted(label: str, network: PredictedNetwork, prediction: GpuPrediction) -> Rows:
    """A row for each of the paper's launch orders of Opara's streams, with what it gains over the depth-first one."""
    problem = predicted_problem(Graph.of(network.graph), prediction.target)
    plan = schedule(problem, "opara").plan(problem.graph)
    if not isinstance(plan, StreamPlan):
        raise TypeError("opara plans streams")
    orders = {_DEPTH_FIRST: _depth_first(problem), _OWN_ORDER: plan.launch}
    times = {name: latency_ms(evaluate(problem, replace(plan, launch=order))) for name, order in orders.items()}
    return [
        {
            **predicted.prediction_row(label, name, "opara", 1),
            "ms": ms,
            _GAIN: 100 * (1 - ms / times[_DEPTH_FIRST]) if ms else 0.0,
        }
        for name, ms in times.items()
    ]


def _depth_first(problem: Problem) -> tuple[int, ...]:
    """A topological order that goes on with a successor of the operator before where it can."""
    waiting = [len(row) for row in problem.predecessors]
    ready = [operator for operator in reversed(problem.order) if not waiting[operator]]
    order = []
    while ready:
        operator = ready.pop()
        order.append(operator)
        for successor, _ in reversed(problem.successors[operator]):
            waiting[successor] -= 1
            if not waiting[successor]:
                ready.append(successor)
    return tuple(order)


def fig2_comparisons(rows: Rows) -> list[Comparison]:
    """The gain of Opara's order on GoogLeNet, of GPUs alone."""
    own = [row for row in rows if row["network"] == "googlenet" and row["schedule"] == _OWN_ORDER]
    cases = published("opara_fig2")["launch_order"].cases
    gains = {gpu: row[_GAIN] for gpu in cases for row in own if gpu in row["hardware"]}
    return runs.measured_comparisons("opara_fig2", rows, {"launch_order": gains})


def fig2_finding(rows: Rows) -> str:
    """What Opara's order gains."""
    own = [row for row in rows if row["schedule"] == _OWN_ORDER]
    texts = [f"{row[_GAIN]:+.1f} % on {row['network']} ({row['hardware']})" for row in own]
    return f"Predicted gain of Opara's launch order over a depth-first one: {', '.join(texts)}." if texts else ""


register(
    "opara_fig2",
    rows=lambda data: [],
    chart=runs.bar_chart("schedule"),
    compare=fig2_comparisons,
    beside=predicted.predictions(rows=fig2_predicted, words=fig2_finding),
)

# Figure 3: operators of different kinds beside each other.
_SLOWER = "slower %"


def fig3_rows(data: FigureData) -> Rows:
    """A row for every pair of kinds: how much slower the first is while the second runs beside it."""
    return [
        {
            "network": f"{pair.image_size} px",
            "timed": pair.kinds[0],
            "pair": f"{pair.kinds[0]} beside {pair.kinds[1]}",
            "platform": file.platform.name,
            "mark": marks.MEASURED.name,
            "alone ms": pair.alone_ms,
            "beside ms": pair.beside_ms,
            _SLOWER: 100 * (pair.beside_ms / pair.alone_ms - 1),
        }
        for file in data.convolutions
        for pair in file.pairs
    ]


register(
    "opara_fig3",
    rows=fig3_rows,
    chart=runs.bar_chart("pair", _SLOWER, "slower than alone, %"),
    finding=runs.listing("Change of the time on a core while the other core works:", "{pair} {slower %:+.1f} %"),
)

# Figure 5: speedup, SM efficiency and memory.
_MEMORY = "peak memory, MB"
_MB = 1e6
#: The paper's baseline, which runs on GPUs alone.
_GRAPH = "cudagraph"


def fig5_rows(data: FigureData) -> Rows:
    """A row for every schedule of the paper's algorithms and every other runtime, with its peak memory."""
    networks = data.variants.get("transformers", {})
    memory = {
        (label, name): size
        for label, network in networks.items()
        for name, size in [
            ("sequential", network.run.baseline.peak_memory_bytes),
            *((result.label, result.peak_memory_bytes) for result in network.run.results),
            *((reference.name, reference.peak_memory_bytes) for reference in network.run.references),
        ]
    }
    timed = runs.rows_beside_references(FigureData(networks=networks), ("sequential", "nimble", "opara"))
    return [
        {**row, _MEMORY: None if (size := memory.get((row["network"], row["schedule"]))) is None else size / _MB}
        for row in measured(timed)
    ]


def _with_graphs(rows: Rows) -> Rows:
    """Rows in which sequential schedules that are predicted as one CUDA graph stand for the paper's, which is one."""
    one = ("sequential", "graph")
    return [{**row, "algorithm": _GRAPH} if (row["algorithm"], row.get("launches")) == one else row for row in rows]


def fig5_comparisons(rows: Rows) -> list[Comparison]:
    """Speedups of Opara, and milliseconds of GoogLeNet, which the paper does not run on the A100; of GPUs alone."""
    rows = [row for row in _with_graphs(rows) if row["network"] != "googlenet" or "A100" not in row.get("hardware", "")]
    kinds = {"eager": "eager", "graph": _GRAPH, "nimble": "nimble", "opara": "opara"}
    times = {name: runs.latencies(rows, kind) for name, kind in kinds.items()}
    over = {
        f"over_{name}": {network: times[name][network] / ms for network, ms in times["opara"].items() if network in own}
        for name, own in times.items()
        if name != "opara"
    }
    bert = {name: over[f"over_{name}"]["bert"] for name in ("eager", "graph") if "bert" in over[f"over_{name}"]}
    t5 = {network: 100 * (gain - 1) for network, gain in over["over_nimble"].items() if network == "t5"}
    googlenet_ms = {
        name: own["googlenet"]
        for name, own in times.items()
        if "googlenet" in own and name in published("opara_fig5")["googlenet"].cases
    }
    numbers = {**over, "bert": bert, "t5_over_nimble": t5, "googlenet": googlenet_ms}
    return runs.measured_comparisons("opara_fig5", rows, numbers)


def fig5_finding(rows: Rows) -> str:
    """Speedups, and the memory of every schedule and runtime."""
    texts = [f"{row['schedule']} {row[_MEMORY]:.0f} MB on {row['network']}" for row in rows if row[_MEMORY] is not None]
    memory = f" Peak memory: {'; '.join(texts)}." if texts else ""
    return f"{runs.speedups(rows)}{memory}"


def fig5_why(rows: Rows) -> str:
    """What memory counts."""
    counted = (
        "what torch allocates on the GPU"
        if runs.on_gpu(rows)
        else "what the worker processes have for themselves, which on cores is nearly the same for all schedules, as "
        "those of a device share weights and process"
    )
    return f"Memory is {counted}."


def fig5_chart(rows: Rows) -> alt.TopLevelMixin:
    """Speedups, and below them the memory where it is known."""
    import altair as alt

    columns = {"speedup": "speedup over the sequential schedule", _MEMORY: _MEMORY}
    panels: list[Any] = [
        runs.bar_chart("schedule", column, title)(rows)
        for column, title in columns.items()
        if any(row[column] is not None for row in rows)
    ]
    stacked: alt.VConcatChart = alt.vconcat(*panels)
    return stacked


register(
    "opara_fig5",
    rows=fig5_rows,
    chart=fig5_chart,
    compare=fig5_comparisons,
    finding=fig5_finding,
    explain=fig5_why,
    beside=predicted.predictions(chart=runs.bar_chart("schedule", "speedup", "speedup over the sequential schedule")),
)


# Figures 6 and 7: predicted timelines of operators that could run side by side, and their launch order.
_START, _FINISH = "start ms", "finish ms"
_WIDTH, _STEP = 330, 20


def timelines_of(*networks: str) -> Callable[[str, PredictedNetwork, GpuPrediction], Rows]:
    """Makes rows of networks whose labels begin with one of these: a row for an operator of the segment and schedule.

    The segment is the most operators that depend on the same ones; of several such sets the first. In GoogLeNet they
    begin the branches of its first block. Rows are in the order of launches, and times begin with the segment.
    """

    def made(label: str, network: PredictedNetwork, prediction: GpuPrediction) -> Rows:
        segment = frozenset(_segment(network.graph)) if label.startswith(networks) else frozenset()
        schedules = prediction.schedules.items() if segment else ()
        return [row for name, schedule in schedules for row in _timeline(label, name, schedule, segment)]

    return made


def _segment(graph: GraphFile) -> list[str]:
    """The operators whose timeline is shown; empty where none depends on another."""
    before: dict[str, set[str]] = {}
    for edge in graph.edges:
        before.setdefault(edge.target, set()).add(edge.source)
    alike: dict[frozenset[str], list[str]] = {}
    for operator in graph.operators:
        if operator.id in before:
            alike.setdefault(frozenset(before[operator.id]), []).append(operator.id)
    return max(alike.values(), key=len, default=[])


def _timeline(label: str, name: str, schedule: ScheduleFile, segment: frozenset[str]) -> Rows:
    own = [row for row in schedule.placements if row.operator in segment]
    begin = min(row.start_ms for row in own)
    about = {
        **predicted.prediction_row(label, name, schedule.algorithm, schedule.devices),
        "ms": schedule.latency_ms,
        "streams": len({row.stream for row in schedule.placements}),
    }
    return [
        {
            **about,
            "operator": row.operator,
            "stream": row.stream,
            _START: row.start_ms - begin,
            _FINISH: row.finish_ms - begin,
        }
        for row in own
    ]


def _at_once(rows: Rows) -> dict[str, float]:
    """The most operators of the segment that run at the same time, by algorithm; none where rows have no timeline."""
    return {
        algorithm: float(max(sum(row[_START] <= at[_START] < row[_FINISH] for row in own) for at in own))
        for algorithm, own in grouped([row for row in rows if _START in row], "algorithm").items()
    }


def timeline_words(rows: Rows) -> str:
    """For every GPU and network: how many operators of the segment run at once, and which is launched first."""
    sentences = []
    for (gpu, network), own in grouped(rows, lambda row: (row["hardware"], row["network"])).items():
        by_algorithm = grouped(own, "algorithm")
        count = len(next(iter(by_algorithm.values())))
        texts = [
            f"{most:g} by {name} ({by_algorithm[name][0]['ms']:.3g} ms in all, first "
            f"{by_algorithm[name][0]['operator']})"
            for name, most in _at_once(own).items()
        ]
        sentences.append(
            f"Predicted for {gpu}: of the {count} operators of {network} that could run side by side, depending on "
            f"the same ones, so many run at once: {', '.join(texts)}."
        )
    return " ".join(sentences)


def timeline_chart(rows: Rows) -> alt.TopLevelMixin:
    """A bar for every operator of the segment, from its start to its finish, on its stream."""
    import altair as alt

    shown = [
        {
            **row,
            "place": f"{row['network']}, {row['schedule']}, stream {row['stream']}",
            "description": f"{row['network']}, {row['schedule']}, stream {row['stream']}: {row['operator']} from "
            f"{row[_START]:.4g} to {row[_FINISH]:.4g} ms, {row['mark']}",
        }
        for row in rows
    ]
    places = list(dict.fromkeys(row["place"] for row in shown))
    looks = marks.colors(list(dict.fromkeys(row["operator"] for row in shown)), "operator")
    drawn: alt.Chart = (
        marks.inline(shown)
        .mark_bar(strokeWidth=1.2)
        .encode(
            alt.X(f"{_START}:Q", title="time since the first of them began, ms"),
            alt.X2(f"{_FINISH}:Q"),
            alt.Y("place:N", sort=places, title=None, axis=alt.Axis(labelLimit=260)),
            *looks.values(),
            marks.dash(shown, legend=True),
            marks.fill(shown),
            alt.Description("description:N"),
        )
        .properties(width=_WIDTH, height=alt.Step(_STEP))
    )
    return drawn


# Figure 6: streams of GoogLeNet.
def fig6_rows(data: FigureData) -> Rows:
    """A row for Opara and Nimble: their streams depend on the graph alone."""
    graph = googlenet()
    problem = Problem(graph, synthetic_costs(graph))
    return [
        {
            "network": graph.name,
            "algorithm": algorithm,
            "operators": len(graph.operators),
            "streams": len({row.stream for row in schedule(problem, algorithm).placements}),
        }
        for algorithm in ("opara", "nimble")
    ]


def fig6_comparisons(rows: Rows) -> list[Comparison]:
    """The number of streams, and of operators of a block that run at once, which predictions alone have."""
    own = [row for row in rows if row["network"] == "googlenet"]
    numbers = {"googlenet_streams": {row["algorithm"]: float(row["streams"]) for row in own}}
    if most := _at_once(own):
        numbers["at_once"] = most
    return comparisons("opara_fig6", numbers)


register(
    "opara_fig6",
    rows=fig6_rows,
    compare=fig6_comparisons,
    beside=predicted.predictions(rows=timelines_of("googlenet"), chart=timeline_chart, words=timeline_words),
)

# Figure 7: streams of T5 and BERT. Table I: time of stream allocation.
_ALLOCATING = ("opara", "nimble")
_NETWORKS = ("bert", "t5", "googlenet", "inception_v3")


def fig7_rows(data: FigureData) -> Rows:
    """A row for every network and algorithm: the streams of its schedule.

    They depend on the graph alone, so that schedules of networks that did not run count too, of any GPU.
    """
    ran = data.variants.get("transformers", {})
    made = {
        label: (network.graph, [(result.algorithm, result.predicted) for result in network.run.results])
        for label, network in ran.items()
    }
    for label, network in data.predictions.get("transformers", {}).items():
        if label not in ran and network.file.predictions:
            schedules = network.file.predictions[0].schedules.values()
            made[label] = (network.graph, [(schedule.algorithm, schedule.placements) for schedule in schedules])
    return [
        {
            "network": label,
            "algorithm": algorithm,
            "operators": len(graph.operators),
            "streams": len({(row.device, row.stream) for row in placements}),
        }
        for label, (graph, schedules) in made.items()
        for algorithm, placements in schedules
        if algorithm in _ALLOCATING
    ]


def fig7_comparisons(rows: Rows) -> list[Comparison]:
    """Streams of T5 and BERT in full size; timelines, which are predicted for a GPU, say nothing more of them."""
    streams = {
        network: {row["algorithm"]: float(row["streams"]) for row in own}
        for network, own in grouped([row for row in rows if _START not in row], "network").items()
    }
    bert = streams.get("bert", {})
    equal = bert["opara"] / bert["nimble"] if bert.keys() >= {"opara", "nimble"} else None
    return comparisons("opara_fig7", {"t5_streams": streams.get("t5"), "bert_streams": equal})


def fig7_finding(rows: Rows) -> str:
    """The streams of every network."""
    texts = []
    for network, own in grouped(rows, "network").items():
        streams = [f"{row['streams']} by {row['algorithm']}" for row in own]
        texts.append(f"{network} {' and '.join(streams)}")
    return f"Streams: {'; '.join(texts)}."


register(
    "opara_fig7",
    rows=fig7_rows,
    compare=fig7_comparisons,
    finding=fig7_finding,
    beside=predicted.predictions(rows=timelines_of("t5", "bert"), chart=timeline_chart, words=timeline_words),
)


#: One inference, operator by operator, is all that Opara profiles.
_INFERENCE = "inference ms"


def tab1_rows(data: FigureData) -> Rows:
    """A row for every network and algorithm: stream allocation alone, and all of the algorithm."""
    return [
        {
            "network": label,
            "operators": len(network.graph.operators),
            "edges": len(network.graph.edges),
            "algorithm": result.algorithm,
            "platform": network.run.platform.name,
            "mark": marks.MEASURED.name,
            "allocation ms": 1000 * result.allocation_time_s,
            "scheduling ms": 1000 * result.scheduling_time_s,
            _INFERENCE: next((own.latency_ms.median for own in network.run.references if own.kind == "eager"), None),
        }
        for label, network in data.variants.get("transformers", {}).items()
        for result in network.run.results
        if result.algorithm in _ALLOCATING and result.allocation_time_s is not None
    ]


def tab1_finding(rows: Rows) -> str:
    """The times of every network, and how many times as long Nimble takes."""
    texts = []
    for network, timed in grouped(rows, "network").items():
        times = {row["algorithm"]: row["allocation ms"] for row in timed}
        own = {name: times[name] for name in _ALLOCATING if name in times}
        text = f"{network} {' and '.join(f'{time:.2f} ms by {name}' for name, time in own.items())}"
        if own.get("opara") and "nimble" in own:
            text += f" ({own['nimble'] / own['opara']:.1f} times as long)"
        texts.append(text)
    return f"Stream allocation takes here: {'; '.join(texts)}."


def predicted_inferences(label: str, network: PredictedNetwork, prediction: GpuPrediction) -> Rows:
    """A row for the sequential schedule: one inference, without the time of the host."""
    return [{**row, _INFERENCE: row["ms"]} for row in predicted.latencies_of("sequential")(label, network, prediction)]


def tab1_comparisons(rows: Rows) -> list[Comparison]:
    """One inference by eager PyTorch, as a mean over the paper's networks; of GPUs alone.

    Predictions have no host, whose time eager PyTorch takes too. Allocation is timed on other graphs.
    """
    eager = runs.on_gpu(rows) and not any("launches" in row for row in rows)
    return comparisons("opara_tab1", {"profiling": _mean_inference(rows) if eager else None})


def _mean_inference(rows: Rows) -> float | None:
    # Of a network on two GPUs the last counts: GoogLeNet on the RTX 2080 Super, where the paper runs it.
    times = {row["network"]: row[_INFERENCE] for row in rows if row[_INFERENCE] is not None}
    return statistics.fmean(map(times.__getitem__, _NETWORKS)) if times.keys() >= set(_NETWORKS) else None


def predicted_profiling(rows: Rows) -> str:
    """One inference by network as predicted, and their mean."""
    texts = [f"{row[_INFERENCE]:.3g} ms of {row['network']} ({row['hardware']})" for row in rows]
    mean = _mean_inference(rows)
    said = "" if mean is None else f", {mean:.3g} ms in the mean"
    return f"Predicted time of one inference, which is what Opara profiles: {', '.join(texts)}{said}." if texts else ""


def tab1_why(rows: Rows) -> str:
    """The sizes of graphs."""
    sizes = dict.fromkeys(f"{row['operators']} of {row['network']}" for row in rows)
    return f"Operators here: {', '.join(sizes)}."


register(
    "opara_tab1",
    rows=tab1_rows,
    compare=tab1_comparisons,
    finding=tab1_finding,
    explain=tab1_why,
    beside=predicted.predictions(
        rows=predicted_inferences, chart=runs.bar_chart("schedule", _INFERENCE), words=predicted_profiling
    ),
)

# Figure 8: throughput over batch sizes.
_FIG8_ALGORITHMS = ("sequential", "opara")


def predicted_batches(label: str, network: PredictedNetwork, prediction: GpuPrediction) -> Rows:
    """A row for every batch size of the sequential schedule and Opara on the GPU of a prediction."""
    return list(map(runs.with_batch, predicted.latencies_of(*_FIG8_ALGORITHMS)(label, network, prediction)))


def fig8_comparisons(rows: Rows) -> list[Comparison]:
    """Throughput of Opara over that of the CUDA graph, by batch size; of GPUs alone."""
    graph, opara = (runs.by_batch(_with_graphs(rows), name) for name in (_GRAPH, "opara"))
    gains = {batch: graph[batch] / opara[batch] for batch in opara if batch in graph}
    return runs.measured_comparisons("opara_fig8", rows, {"over_graph": gains})


def fig8_finding(rows: Rows) -> str:
    """What Opara gains over the sequential schedule with every batch size, as measured."""
    gains = _gains(measured(rows))
    return f"Throughput of Opara over that of the sequential schedule, measured: {gains}." if gains else ""


def predicted_gains(rows: Rows) -> str:
    """The same for every GPU that rows are of."""
    gains = {name: _gains(own) for name, own in grouped(rows, "hardware").items()}
    return " ".join(f"Predicted for {name}: {text}." for name, text in gains.items() if text)


def _gains(rows: Rows) -> str:
    return ", ".join(
        f"{row['speedup']:.2f} for {row['network']} with batch {row['batch']}"
        for row in rows
        if row["algorithm"] == "opara" and row["speedup"]
    )


def fig8_why(rows: Rows) -> str:
    """What stands for the paper's CUDA graph."""
    return (
        "On a core the sequential schedule stands for the paper's CUDA graph: both replay a list of operators that was "
        "prepared in advance."
    )


register(
    "opara_fig8",
    rows=lambda data: runs.own_batch_rows(data, _FIG8_ALGORITHMS, (_GRAPH,)),
    chart=runs.throughput_chart,
    compare=fig8_comparisons,
    finding=fig8_finding,
    explain=runs.on_cores(fig8_why),
    beside=predicted.predictions(rows=predicted_batches, chart=runs.throughput_chart, words=predicted_gains),
)


# Figure 9: another GPU, and batches up to a size.
_FIG9_BATCH = 8


def _over_nimble(data: FigureData) -> Rows:
    """A row for every network and schedule by Opara or Nimble, of networks that ran with both."""
    rows = runs.schedule_rows(data, _ALLOCATING, devices=1)
    nimble, opara = (runs.latencies(rows, name) for name in _ALLOCATING[::-1])
    return [
        {**row, "over nimble": nimble[row["network"]] / row["ms"]}
        for row in rows
        if row["network"] in nimble.keys() & opara.keys()
    ]


def predicted_over_nimble(label: str, network: PredictedNetwork, prediction: GpuPrediction) -> Rows:
    """A row for Opara and Nimble with every batch size on the GPU of a prediction."""
    rows = predicted.latencies_of(*_ALLOCATING)(label, network, prediction)
    nimble = next((row["ms"] for row in rows if row["algorithm"] == "nimble"), None)
    return [
        {**row, "machine": predicted.hardware(prediction), "over nimble": nimble / row["ms"]}
        for row in rows
        if nimble and row["ms"]
    ]


def fig9_comparisons(rows: Rows) -> list[Comparison]:
    """Speedup of Opara over Nimble on Inception-v3, with the paper's batch sizes, on every machine with GPUs."""
    own = [
        row
        for row in rows
        if row["network"].partition("-")[0] == "inception_v3" and runs.batches_of(row["network"], "")[1] <= _FIG9_BATCH
    ]
    return machines.comparisons(
        "opara_fig9", "over_nimble", own, lambda rows: runs.latencies(rows, "opara", "over nimble")
    )


def fig9_finding(rows: Rows) -> str:
    """Speedup of Opara over Nimble by network."""
    texts = [f"{row['over nimble']:.2f} on {row['network']}" for row in rows if row["algorithm"] == "opara"]
    return f"Speedup of Opara over Nimble: {'; '.join(texts)}."


register(
    "opara_fig9",
    rows=lambda data: machines.machine_rows(data, _over_nimble),
    chart=lambda rows: machines.panels(rows, "over nimble", "speedup over Nimble"),
    compare=fig9_comparisons,
    finding=machines.findings(fig9_finding),
    explain=machines.hardware,
    beside=predicted.predictions(
        rows=predicted_over_nimble,
        chart=runs.bar_chart("schedule", "over nimble", "speedup over Nimble"),
        words=lambda rows: " ".join(
            f"Predicted for {name}: {fig9_finding(own)}" for name, own in grouped(rows, "machine").items()
        ),
    ),
)
