"""Opara, figure 6: streams of GoogLeNet."""

from hios.problem import Problem
from hios.schedulers import schedule
from hios.study.figure_data import FigureData
from hios.study.published import published
from hios.study.reference_networks import googlenet, synthetic_costs
from hios.study.registry import Figure, Rows, register
from hios.study.verdicts import Comparison

_ID = "opara_fig6"


def rows(data: FigureData) -> Rows:
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


def compare(rows: Rows) -> list[Comparison]:
    """The number of streams."""
    return [Comparison(published(_ID)["googlenet_streams"], {row["algorithm"]: float(row["streams"]) for row in rows})]


register(
    Figure(
        id=_ID,
        title="Streams of GoogLeNet",
        varies="algorithm; number of streams (the paper: timelines on a GPU)",
        seconds=2,
        rows=rows,
        compare=compare,
    )
)
