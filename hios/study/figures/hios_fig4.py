"""HIOS, figure 4: the worked example of Algorithm 1."""

from hios.costs import Costs
from hios.graph import Edge, Graph, Operator
from hios.problem import Problem
from hios.schedulers.hios_lp import ValidPaths, map_longest_paths
from hios.study.figure_data import FigureData
from hios.study.registry import Figure, Rows, reason, register

#: The figure's edges e1 to e9; its times are not printed as numbers, these are ours.
_EDGES = "v1 v2, v1 v3, v2 v4, v3 v5, v4 v6, v5 v6, v5 v7, v6 v8, v7 v8"
_TIMES = {"v1": 2, "v2": 3, "v3": 2, "v4": 3, "v5": 2, "v6": 3, "v7": 2, "v8": 3}
_TRANSFER = 1


def rows(data: FigureData) -> Rows:
    """A row for every longest valid path: its operators, and the GPU that they are mapped to."""
    pairs = [tuple(edge.split()) for edge in _EDGES.split(", ")]
    graph = Graph(
        "figure 4",
        tuple(Operator(name, "conv") for name in _TIMES),
        tuple(Edge(source, target) for source, target in pairs),
    )
    costs = {
        "operators": {name: {"time_ms": time} for name, time in _TIMES.items()},
        "transfers": [{"source": source, "target": target, "time_ms": _TRANSFER} for source, target in pairs],
    }
    problem = Problem(graph, Costs.from_json(costs)).on(2)
    plan = map_longest_paths(problem, 2)
    home = {operator: gpu for gpu, row in enumerate(plan.devices, 1) for ((operator,),) in row}
    valid = ValidPaths(problem)
    paths: Rows = []
    while path := valid.longest():
        valid.remove(path)
        names = " ".join(problem.ids[operator] for operator in path)
        paths.append({"path": f"P{len(paths) + 1}", "operators": names, "GPU": home[path[0]]})
    return paths


def finding(rows: Rows) -> str:
    """The GPU of every path."""
    texts = [f"{row['path']} ({row['operators']}) to GPU {row['GPU']}" for row in rows]
    return f"Paths are mapped as follows: {', '.join(texts)}."


register(
    Figure(
        id="hios_fig4",
        title="The worked example of Algorithm 1: paths and the GPUs that they are mapped to",
        varies="longest valid path; its operators and its GPU",
        seconds=2,
        rows=rows,
        finding=finding,
        reason=reason("The times of the figure are not printed as numbers; with ours the same three paths come out."),
    )
)
