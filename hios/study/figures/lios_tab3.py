"""LIOS, table III: the worked example."""

from hios.costs import Costs
from hios.graph import Edge, Graph, Operator
from hios.problem import Problem
from hios.schedulers import schedule
from hios.schedulers.lios import steps
from hios.study.figure_data import FigureData
from hios.study.published import published
from hios.study.registry import Figure, Rows, reason, register
from hios.study.verdicts import Comparison

_ID = "lios_tab3"
_STREAMS = 3
#: The CNN latency model of figure 3.
_TIMES = {"v1": 3, "v2": 5, "v3": 5, "v4": 5, "v5": 8, "v6": 15, "v7": 10, "v8": 7, "v9": 13, "v10": 2}
_EDGES = "v1 v2, v1 v3, v1 v4, v1 v5, v2 v6, v3 v6, v4 v7, v5 v8, v6 v9, v7 v9, v8 v9, v9 v10"


def _problem() -> Problem:
    pairs = [tuple(edge.split()) for edge in _EDGES.split(", ")]
    operators = tuple(Operator(name, "conv") for name in _TIMES)
    graph = Graph("example", operators, tuple(Edge(source, target) for source, target in pairs))
    costs = {
        "operators": {name: {"time_ms": time} for name, time in _TIMES.items()},
        "transfers": [{"source": source, "target": target, "time_ms": 0} for source, target in pairs],
        "contention": {"kind": "none"},
    }
    return Problem(graph, Costs.from_json(costs))


def rows(data: FigureData) -> Rows:
    """A row for every step of the algorithm."""
    problem = _problem()
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


def compare(rows: Rows) -> list[Comparison]:
    """The last finish, and the sum of all times."""
    stated = published(_ID)
    sequential = schedule(_problem(), "sequential").latency_ms
    return [
        Comparison(stated["latency"], max(float(row["finish"]) for row in rows)),
        Comparison(stated["sequential"], sequential),
    ]


register(
    Figure(
        id=_ID,
        title="The worked example, step by step",
        varies="step; wait list, operator, stream, start and finish",
        seconds=2,
        rows=rows,
        compare=compare,
        reason=reason("The paper prints a finish of 13 in the tuple of v6, a misprint: its EFT in the same row is 23."),
    )
)
