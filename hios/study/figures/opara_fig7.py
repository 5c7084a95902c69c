"""Opara, figure 7: timelines of T5 and BERT."""

from __future__ import annotations

from hios.formats.run_file import Run, ScheduleResult
from hios.study.figure_data import FigureData
from hios.study.published import published
from hios.study.registry import Figure, Rows, register
from hios.study.verdicts import Comparison

_ID = "opara_fig7"
_ALGORITHMS = ("opara", "nimble")


def rows(data: FigureData) -> Rows:
    """A row for every network and algorithm: the streams of its schedule, which depend on the graph alone."""
    session = data.variants.get("transformers", {})
    return [
        {
            "network": label,
            "algorithm": result.algorithm,
            "operators": len(network.graph.operators),
            "streams": len({(row.device, row.stream) for row in result.predicted}),
        }
        for label, network in session.items()
        for result in _results(network.run)
    ]


def _results(run: Run) -> list[ScheduleResult]:
    return [result for result in run.results if result.algorithm in _ALGORITHMS]


def compare(rows: Rows) -> list[Comparison]:
    """Streams of T5 in full size."""
    streams = {row["algorithm"]: float(row["streams"]) for row in rows if row["network"] == "t5"}
    return [Comparison(published(_ID)["t5_streams"], streams)] if streams else []


def finding(rows: Rows) -> str:
    """The streams of every network."""
    texts = []
    for network in dict.fromkeys(row["network"] for row in rows):
        own = [f"{row['streams']} by {row['algorithm']}" for row in rows if row["network"] == network]
        texts.append(f"{network} {' and '.join(own)}")
    return f"Streams: {'; '.join(texts)}."


register(
    Figure(
        id=_ID,
        title="Streams of T5 and BERT",
        varies="model and algorithm; number of streams (the paper: timelines on a GPU)",
        sessions=("transformers",),
        rows=rows,
        compare=compare,
        finding=finding,
    )
)
