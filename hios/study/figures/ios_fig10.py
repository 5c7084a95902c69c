"""IOS, figure 10: schedules of Inception-v3's last block for batch 1 and 32."""

from __future__ import annotations

from hios.blocks import found_blocks
from hios.charts import marks
from hios.formats.run_file import ScheduleResult
from hios.graph import Graph
from hios.study import network_runs as runs
from hios.study.figure_data import FigureData, Network
from hios.study.published import published
from hios.study.registry import Figure, Row, Rows, reason, register
from hios.study.verdicts import Comparison

_ID = "ios_fig10"
#: Batch sizes that the paper compares.
_BATCHES = (1, 32)


def rows(data: FigureData) -> Rows:
    """A row for every batch size and every schedule by IOS that ran with it: stages and time of the last block."""
    return [
        _row(label, network, result, block)
        for label, network in data.variants.get("batches", {}).items()
        if (block := last_block(network))
        for result in network.run.results
        if result.algorithm == "ios"
    ]


def last_block(network: Network) -> frozenset[str]:
    """The last block of several operators: behind it there may be a pool. Empty where there is none."""
    blocks = network.graph.blocks or found_blocks(Graph.of(network.graph))
    return next((frozenset(block) for block in reversed(blocks) if len(block) > 1), frozenset())


def _row(label: str, network: Network, result: ScheduleResult, block: frozenset[str]) -> Row:
    name, batch, made_for = runs.batches_of(label, result.label)
    return {
        "network": name,
        "batch": batch,
        "made for batch": made_for,
        "schedule": f"batch {batch}, schedule for {made_for}",
        "platform": network.run.platform.name,
        "mark": marks.MEASURED.name,
        "operators": len(block),
        "stages": len({row.stage for row in result.predicted if row.operator in block}),
        "block ms": runs.span(result.measured, block),
    }


def _longer(rows: Rows) -> dict[tuple[str, int, int], float]:
    """By how much the block takes longer with the schedule for another batch size than with the own one, in per cent.

    By network, batch size, and the one that the schedule is for.
    """
    times = {(row["network"], row["batch"], row["made for batch"]): row["block ms"] for row in rows}
    return {
        (network, batch, other): 100 * (time / times[network, batch, batch] - 1)
        for (network, batch, other), time in times.items()
        if batch != other and times.get((network, batch, batch))
    }


def compare(rows: Rows) -> list[Comparison]:
    """Stages of the own schedule, and how much faster it is than the other; of GPUs alone, whose times decide both."""
    if not runs.on_gpu(rows):
        return []
    stated, longer = published(_ID), _longer(rows)
    stages = {
        f"batch {row['batch']}": float(row["stages"])
        for row in rows
        if row["network"] == "inception_v3" and row["batch"] == row["made for batch"] and row["batch"] in _BATCHES
    }
    faster = {
        f"batch {batch}": longer["inception_v3", batch, other]
        for batch, other in (_BATCHES, _BATCHES[::-1])
        if ("inception_v3", batch, other) in longer
    }
    pairs = (("stages", stages), ("faster", faster))
    return [Comparison(stated[name], numbers) for name, numbers in pairs if numbers]


def finding(rows: Rows) -> str:
    """The stages of every network and batch size, and what the schedules for others take longer."""
    own = [row for row in rows if row["batch"] == row["made for batch"]]
    stages = [f"{row['stages']} of {row['network']} with batch {row['batch']}" for row in own]
    changes = [
        f"{change:+.1f} % for {network} with batch {batch} by the schedule for {other}"
        for (network, batch, other), change in _longer(rows).items()
    ]
    compared = (
        f" Its time relative to the schedule made for the same batch size: {', '.join(changes)}." if changes else ""
    )
    return f"Stages of the last block: {', '.join(stages)}.{compared}"


register(
    Figure(
        id=_ID,
        title="Schedules of the last block of Inception-v3, optimized for batch 1 and 32",
        varies="batch size that a schedule by IOS is made for and that it runs with; stages and time of the last block",
        sessions=("batches",),
        rows=rows,
        chart=runs.bar_chart("schedule", "block ms", "time of the last block, ms"),
        compare=compare,
        finding=finding,
        reason=reason(
            "The time of the block runs from its first start to its last finish: on cores in the run with the median "
            "latency, on a GPU in a separate run whose operators are timed by events. Its stages include the "
            "concatenation at its end, which the paper's figure does not show."
        ),
    )
)
