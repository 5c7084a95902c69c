"""IOS, figure 9: pruning of the search."""

from __future__ import annotations

from hios.graph import Graph
from hios.schedulers.ios import search_space
from hios.study import network_runs as runs
from hios.study import run_findings
from hios.study.figure_data import FigureData, Network
from hios.study.published import published
from hios.study.registry import Figure, Row, Rows, register
from hios.study.verdicts import Comparison

_ID = "ios_fig9"
#: Statements of latency and speedup by the label of the network that they are about.
_LATENCIES = {"inception_ms": "inception_v3", "nasnet_ms": "nasnet_large"}


def rows(data: FigureData) -> Rows:
    """A row for every network, r and s, measured and predicted, with what the search went through."""
    return [row for label, network in data.pruning.items() for row in _of_network(label, network)]


def _of_network(label: str, network: Network) -> Rows:
    graph = Graph.of(network.graph)
    results = {result.label: result for result in network.run.results}
    pruned: Rows = []
    for row in runs.schedule_rows(FigureData(networks={label: network}), ("ios",), devices=1):
        result = results[row["schedule"]]
        r, s = (int(result.parameters[name]) for name in ("r", "s"))
        space = search_space(graph, r=r, s=s)
        more: Row = {"r": r, "s": s, "transitions": space.transitions, "search s": result.scheduling_time_s}
        pruned.append({**row, **more, "pruning": f"r{r} s{s}"})
    return pruned


def compare(rows: Rows) -> list[Comparison]:
    """Milliseconds by r and s, and the speedup with r 1 and s 8; of GPUs alone."""
    if not runs.on_gpu(rows):
        return []
    measured, stated = run_findings.measured(rows), published(_ID)
    comparisons = [
        Comparison(stated[name], values)
        for name, label in _LATENCIES.items()
        if (values := {row["pruning"]: row["ms"] for row in measured if row["network"] == label})
    ]
    quick = {row["network"]: row["speedup"] for row in measured if row["pruning"] == "r1 s8"}
    return [*comparisons, *([Comparison(stated["r1_s8_over_sequential"], quick)] if quick else [])]


def finding(rows: Rows) -> str:
    """Latency, search and transitions of the tightest and of the widest pruning."""
    texts = []
    for network in dict.fromkeys(row["network"] for row in rows):
        own = [row for row in run_findings.measured(rows) if row["network"] == network]
        ends = (min(own, key=lambda row: row["transitions"]), max(own, key=lambda row: row["transitions"]))
        parts = [
            f"{row['ms']:.3g} ms ({row['pruning']}: {row['search s']:.2g} s, {row['transitions']:,} transitions)"
            for row in ends
        ]
        texts.append(f"{network} {' and '.join(parts)}")
    return f"With the tightest and the widest pruning: {'; '.join(texts)}."


register(
    Figure(
        id=_ID,
        title="Trade-off between latency and cost of the search",
        varies="r and s; latency by IOS, seconds of the search and its transitions, which no machine changes",
        sessions=("pruning",),
        seconds=20,
        rows=rows,
        finding=finding,
        chart=runs.bar_chart("pruning"),
        compare=compare,
        reason=run_findings.on_cores(run_findings.one_operator_fills_a_core),
    )
)
