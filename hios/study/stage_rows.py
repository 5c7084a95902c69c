"""What every stage of a block computes under schedules of one device, and how fast (IOS, figure 2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from hios.charts import marks
from hios.core.blocks import found_blocks
from hios.core.graph import Graph, GraphFile
from hios.core.schedule import Placement
from hios.formats.partition import GpuPrediction
from hios.platforms.model import descriptions
from hios.study import predicted_rows as predicted
from hios.study import run_rows as runs
from hios.study.figure_data import FigureData, PredictedNetwork
from hios.study.gpu_targets import TARGETS
from hios.study.published import Comparison
from hios.study.rows import Row, Rows, grouped

if TYPE_CHECKING:
    import altair as alt

_ALGORITHMS = ("sequential", "greedy", "ios")
_SAMPLE = "ios_sample"
_RATE, _SHARE = "GFLOP/s", "% of peak"
_GIGA, _MS_PER_S = 1e9, 1000.0
_WIDTH, _HEIGHT = 330, 70


def measured_stages(data: FigureData) -> Rows:
    """A row for every stage of a block, by the sequential schedule, greedy and IOS on one device, as measured."""
    return [
        {**row, "platform": network.run.platform.name, "mark": marks.MEASURED.name, _SHARE: None}
        for label, network in data.networks.items()
        if (block := sample_block(network.graph))
        for algorithm in _ALGORITHMS
        if (placements := runs.measured_placements(network.run, algorithm))
        for row in _stages(label, algorithm, placements, network.graph, block)
    ]


def predicted_stages(label: str, network: PredictedNetwork, prediction: GpuPrediction) -> Rows:
    """The same for the GPU of a prediction, whose peak is known: with the share of it that a stage reaches."""
    block = sample_block(network.graph)
    peak_gflops = 1000 * descriptions.gpu(TARGETS[prediction.target].gpu).fp32_tflops
    return [
        {
            **row,
            "platform": prediction.platform.name,
            "mark": marks.PREDICTED.name,
            _SHARE: None if row[_RATE] is None else 100 * row[_RATE] / peak_gflops,
        }
        for algorithm in _ALGORITHMS
        if block and (schedule := predicted.first_of(prediction, algorithm))
        for row in _stages(label, algorithm, schedule.placements, network.graph, block)
    ]


def sample_block(graph: GraphFile) -> frozenset[str]:
    """Of the blocks with branches, the one with the most operations; the first of several that have as many.

    Empty where no operator states its operations or no block has branches.
    """
    flops = {operator.id: operator.flops or 0 for operator in graph.operators}
    blocks = [frozenset(block) for block in graph.blocks or found_blocks(Graph.of(graph))]
    branched = [block for block in blocks if _has_branches(graph, block)]
    largest = max(branched, key=lambda block: sum(flops[name] for name in block), default=frozenset[str]())
    return largest if any(flops[name] for name in largest) else frozenset()


def _has_branches(graph: GraphFile, block: Collection[str]) -> bool:
    """Whether operators of a block can run side by side: several begin it, or several follow one of them."""
    inside = {(edge.source, edge.target) for edge in graph.edges if edge.source in block and edge.target in block}
    followed = [source for source, _ in inside]
    return len(block) - len({target for _, target in inside}) > 1 or len(followed) > len(set(followed))


def _stages(
    label: str, algorithm: str, placements: Iterable[Placement], graph: GraphFile, block: Collection[str]
) -> Rows:
    """Stages of a block in the order in which they start, with its own operators; times begin with the block.

    Operators of other blocks that run meanwhile count for the first stage that ends after they have begun.
    """
    flops = {operator.id: operator.flops or 0 for operator in graph.operators}
    by_stage: dict[int | None, list[Placement]] = {}
    ordered = sorted(placements, key=lambda row: row.start_ms)
    own = [row for row in ordered if row.operator in block]
    for row in own:
        by_stage.setdefault(row.stage, []).append(row)
    finishes = [max(row.finish_ms for row in stage) for stage in by_stage.values()]
    others = Counter(
        next(number for number, finish in enumerate(finishes, start=1) if row.start_ms < finish)
        for row in ordered
        if row.operator not in block and row.finish_ms > own[0].start_ms and row.start_ms < max(finishes)
    )
    made: Rows = []
    for number, stage in enumerate(by_stage.values(), start=1):
        start, finish = min(row.start_ms for row in stage), max(row.finish_ms for row in stage)
        gflop = sum(flops[row.operator] for row in stage) / _GIGA
        made.append(
            {
                "network": label,
                "algorithm": algorithm,
                "stage": number,
                "operators": len(stage),
                "operators of other blocks": others[number],
                "start ms": start - own[0].start_ms,
                "finish ms": finish - own[0].start_ms,
                "GFLOP": gflop,
                _RATE: _MS_PER_S * gflop / (finish - start) if finish > start else None,
            }
        )
    return made


def sample_comparisons(rows: Rows) -> list[Comparison]:
    """Time of the paper's sample network, where it is among the networks, of GPUs alone; in predictions its share too.

    Nothing measures the peak that it is a share of.
    """
    stages = grouped([row for row in rows if row["network"] == _SAMPLE], "algorithm")
    times = {name: float(max(row["finish ms"] for row in own)) for name, own in stages.items()}
    shares = {
        name: sum((row["finish ms"] - row["start ms"]) * (row[_SHARE] or 0) for row in own) / times[name]
        for name, own in stages.items()
        if any(row[_SHARE] for row in own)
    }
    numbers = {"sample_network": times}
    for name, values in (("latency_ms", times), ("utilisation", shares)):
        numbers[name] = {own: values[own] for own in ("sequential", "greedy") if own in values}
    for name, values in (("ios_ms", times), ("ios_utilisation", shares)):
        numbers[name] = {own: values[own] for own in ("ios",) if own in values}
    if not shares:
        del numbers["utilisation"], numbers["ios_utilisation"]
    return runs.measured_comparisons("ios_fig2", rows, numbers)


def finding(rows: Rows) -> str:
    """For every network and platform: time of the block, operations a second, and the share of the peak if known."""
    sentences = []
    for (network, gpu), own in grouped(rows, lambda row: (row["network"], row.get("hardware", ""))).items():
        by_algorithm = grouped(own, "algorithm")
        one, *_ = by_algorithm.values()
        gflop, operators = sum(row["GFLOP"] for row in one), sum(row["operators"] for row in one)
        texts = [_of_schedule(by_algorithm[name]) for name in _ALGORITHMS if name in by_algorithm]
        sentences.append(
            f"The block of {operators} operators with the most operations of {network} ({gflop:.3g} GFLOP), "
            f"{f'predicted for {gpu}' if gpu else 'measured'}: {'; '.join(texts)}."
        )
    return " ".join(sentences)


def _of_schedule(stages: Rows) -> str:
    time_ms = max(row["finish ms"] for row in stages)
    rate = _MS_PER_S * sum(row["GFLOP"] for row in stages) / time_ms if time_ms else 0.0
    peaks = [row[_RATE] / (row[_SHARE] / 100) for row in stages if row[_SHARE]]
    share = f", {100 * rate / peaks[0]:.0f} % of the peak" if peaks else ""
    count = f"{len(stages)} stage{'s' if len(stages) != 1 else ''}"
    others = sum(row["operators of other blocks"] for row in stages)
    beside = f", {others} operators of other blocks beside and between them" if others else ""
    return f"{stages[0]['algorithm']} {time_ms:.3g} ms in {count} with {rate:.4g} GFLOP/s{share}{beside}"


def chart(rows: Rows) -> alt.TopLevelMixin:
    """A panel a network and schedule: stages as wide as their time and as high as their rate, so areas are work."""
    import altair as alt

    shown = [_described(row) for row in rows if row[_RATE] is not None]
    columns: list[Any] = [
        alt.vconcat(*_panels(own), spacing=8).properties(title=alt.TitleParams(name, anchor="start"))
        for name, own in grouped(shown, "network").items()
    ]
    return alt.hconcat(*columns) if len(columns) > 1 else columns[0]


def _described(row: Row) -> Row:
    share = "" if row[_SHARE] is None else f", {row[_SHARE]:.0f} % of the peak"
    return {
        **row,
        "zero": 0,
        "description": f"{row['network']}, {row['algorithm']}, stage {row['stage']}: {row['operators']} operators, "
        f"{row['finish ms'] - row['start ms']:.3g} ms, {row['GFLOP']:.3g} GFLOP, {row[_RATE]:.4g} GFLOP/s{share}, "
        f"{row['mark']}",
    }


def _panels(shown: Rows) -> list[Any]:
    """A panel for each schedule of a network, all with the same axes."""
    import altair as alt

    x = alt.Scale(domain=[0, max(row["finish ms"] for row in shown)], nice=False)
    y = alt.Scale(domain=[0, max(row[_RATE] for row in shown)])
    drawn = []
    names = [name for name in _ALGORITHMS if any(row["algorithm"] == name for row in shown)]
    looks = marks.colors(names, "algorithm")
    for name in names:
        own = [row for row in shown if row["algorithm"] == name]
        drawn.append(
            marks.inline(own)
            .mark_bar(strokeWidth=1.2)
            .encode(
                alt.X("start ms:Q", title="time since the block began, ms" if name == names[-1] else None, scale=x),
                alt.X2("finish ms:Q"),
                alt.Y("zero:Q", title=_RATE, scale=y),
                alt.Y2(f"{_RATE}:Q"),
                *looks.values(),
                marks.dash(shown, legend=True),
                marks.fill(shown),
                alt.Description("description:N"),
            )
            .properties(width=_WIDTH, height=_HEIGHT)
        )
    return drawn
