"""Opara, table I: time of stream allocation."""

from __future__ import annotations

from hios.charts import marks
from hios.study.figure_data import FigureData
from hios.study.registry import Figure, Rows, register

_ALGORITHMS = ("opara", "nimble")


def rows(data: FigureData) -> Rows:
    """A row for every network and algorithm: stream allocation alone, and all of the algorithm."""
    return [
        {
            "network": label,
            "operators": len(network.graph.operators),
            "edges": len(network.graph.edges),
            "algorithm": result.algorithm,
            "mark": marks.MEASURED.name,
            "allocation ms": 1000 * result.allocation_time_s,
            "scheduling ms": 1000 * result.scheduling_time_s,
        }
        for label, network in data.variants.get("transformers", {}).items()
        for result in network.run.results
        if result.algorithm in _ALGORITHMS and result.allocation_time_s is not None
    ]


def finding(rows: Rows) -> str:
    """The times of every network, and how many times as long Nimble takes."""
    times = {(row["network"], row["algorithm"]): row["allocation ms"] for row in rows}
    texts = []
    for network in dict.fromkeys(row["network"] for row in rows):
        own = {name: times[network, name] for name in _ALGORITHMS if (network, name) in times}
        text = f"{network} {' and '.join(f'{time:.2f} ms by {name}' for name, time in own.items())}"
        if own.get("opara") and "nimble" in own:
            text += f" ({own['nimble'] / own['opara']:.1f} times as long)"
        texts.append(text)
    return f"Stream allocation takes here: {'; '.join(texts)}."


def why(rows: Rows) -> str:
    """What is timed, and what is not compared."""
    sizes = dict.fromkeys(f"{row['operators']} of {row['network']}" for row in rows)
    return (
        f"Allocation is timed once, in Python on one core, on graphs that differ from the paper's (here "
        f"{', '.join(sizes)}), so the milliseconds have no verdict. Profiling is left out, as it measures more "
        "here than Opara needs."
    )


register(
    Figure(
        id="opara_tab1",
        title="Stream allocation time",
        varies="model; milliseconds of stream allocation by Opara and Nimble, without the order of launches",
        sessions=("transformers",),
        rows=rows,
        finding=finding,
        reason=why,
    )
)
