"""How well the platform ``model`` predicts the speedups of schedules over sequential ones that papers print.

Part of benchmarks/model_validation.py, which prints it with ``--concurrent``. Two models are compared: contention
``blend`` with alpha 0.5 and no overheads, and ``resources``, whose three parameters (FITTED) are fitted to all rows of
IOS, LIOS and Opara at once, none to a network, a GPU or an algorithm. Nimble's rows are a user's measurements and are
never fitted. The rows of every paper are also predicted with parameters fitted without them. Speedups are compared, so
that errors of the sequential latencies do not count. Two schedules of a network form a pair if their published
latencies differ by more than 2 %.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from msgspec import structs

from hios import Graph, Problem, evaluate, schedule
from hios.core.costs import CostOverheads, CostsFile
from hios.core.evaluate import latency_ms
from hios.core.schedule import Plan
from hios.platforms.model.descriptions import gpu, link
from hios.platforms.model.devices import predicted_costs
from hios.platforms.model.roofline import DEFAULT_EFFICIENCY, GRAPH_LAUNCH_US, STREAM_LAUNCH_US, Efficiency
from hios.study.published import number, published

#: The parameters that are fitted.
FITTED = ("stage_us", "sync_us", "memory_pressure")
#: Factors of the steps of the fit, one after another.
_STEPS = (1.4, 1.1)
#: Published latencies closer than this are equal.
_EQUAL = 0.02


class Graphs(Protocol):
    """The graphs of networks, by batch size."""

    def graph(self, network: str, batch: int) -> Graph:
        """The graph of a network."""


@dataclass(frozen=True)
class Row:
    """A published speedup of a schedule over the sequential one."""

    paper: str
    gpu: str
    network: str
    batch: int
    launch_us: float
    algorithm: str
    published: float
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    fitted: bool = True

    @property
    def name(self) -> str:
        """The schedule in words."""
        return " ".join([self.algorithm, *(f"{name}={value}" for name, value in self.parameters.items())])


def rows() -> list[Row]:
    """All rows."""
    return [*_ios(), *_lios(), *_opara(), *_nimble()]


def _ios() -> Iterator[Row]:
    v100, launch = "v100-sxm2", STREAM_LAUNCH_US
    figure = published("ios_fig6")
    for network, sequential in figure["sequential"].cases.items():
        ways: list[tuple[str, str, dict[str, Any]]] = [
            ("greedy", "greedy", {}),
            ("both", "ios", {}),
            ("parallel", "ios", {"mode": "parallel"}),
            ("merge", "ios", {"mode": "merge"}),
        ]
        for key, algorithm, parameters in ways:
            speedup = sequential / figure[key].cases[network]
            yield Row("IOS", v100, network, 1, launch, algorithm, speedup, parameters)
    sequential = figure["sequential"].cases["inception_v3"]
    for key, latency in published("ios_fig9")["inception_ms"].cases.items():
        if key != "r3 s8":  # the defaults, in another run
            r, s = (int(part[1:]) for part in key.split())
            yield Row("IOS", v100, "inception_v3", 1, launch, "ios", sequential / latency, {"r": r, "s": s})
    batches = published("ios_fig11")
    for batch, latency in batches["ios"].cases.items():
        if batch != "1":
            speedup = batches["sequential"].cases[batch] / latency
            yield Row("IOS", v100, "inception_v3", int(batch), launch, "ios", speedup)


def _lios() -> Iterator[Row]:
    figure = published("lios_fig7")
    squeezenet = number("lios_fig7.squeezenet_sequential") / published("lios_tab7")["lios"].cases["squeezenet"]
    speedups = {**figure["speedup"].cases, "squeezenet": squeezenet}
    for network, speedup in speedups.items():
        yield Row("LIOS", "rtx3080", network, 1, STREAM_LAUNCH_US, "lios", speedup)
    for algorithm, key in (("ios", "ios_nasnet"), ("greedy", "greedy")):
        speedup = number(f"lios_fig7.{key}")
        yield Row("LIOS", "rtx3080", "nasnet_large", 1, STREAM_LAUNCH_US, algorithm, speedup)


def _opara() -> Iterator[Row]:
    latency = published("opara_fig5")["googlenet"].cases
    over_graph = published("opara_fig8")["over_graph"].cases
    speedups = {("googlenet", 1): latency["graph"] / latency["opara"]}
    speedups |= {("inception_v3", int(batch)): speedup for batch, speedup in over_graph.items()}
    for (network, batch), speedup in speedups.items():
        yield Row("Opara", "rtx2080-super", network, batch, GRAPH_LAUNCH_US, "opara", speedup)


def _nimble() -> Iterator[Row]:
    for batch, key in ((1, "nimble_issue_22"), (8, "nimble_issue_22_batch_8")):
        cases = published("failures_text")[key].cases
        speedup = cases["one stream"] / cases["several streams"]
        yield Row("Nimble", "rtx2080-super", "inception_v3", batch, GRAPH_LAUNCH_US, "nimble", speedup, fitted=False)


class Speedups:
    """Predicted speedups of rows. Plans are those of the parameters as shipped, also when others are tried."""

    def __init__(self, graphs: Graphs, *, shared: bool) -> None:
        self._graphs, self._shared = graphs, shared
        self._costs: dict[Any, CostsFile] = {}
        self._plans: dict[Any, Plan] = {}

    def _problem(self, row: Row, efficiency: Efficiency) -> Problem:
        graph = self._graphs.graph(row.network, row.batch)
        place = (row.gpu, row.network, row.batch, row.launch_us)
        if place not in self._costs:
            known, own = gpu(row.gpu), replace(DEFAULT_EFFICIENCY, launch_us=row.launch_us, memory_pressure=1.0)
            self._costs[place] = predicted_costs(graph, known, link(None, known), 1, own, shared=self._shared)
        return Problem(graph, _with(self._costs[place], efficiency) if self._shared else self._costs[place])

    def of(self, rows: Sequence[Row], efficiency: Efficiency = DEFAULT_EFFICIENCY) -> list[float]:
        """The speedup of every row."""
        problems: dict[Any, Problem] = {}
        found = []
        for row in rows:
            place = (row.gpu, row.network, row.batch, row.launch_us)
            if place not in problems:
                problems[place] = self._problem(row, efficiency)
            problem = problems[place]
            if (place, row.name) not in self._plans:
                shipped = self._problem(row, DEFAULT_EFFICIENCY)
                made = schedule(shipped, row.algorithm, 1, dict(row.parameters))
                self._plans[place, row.name] = made.plan(shipped.graph)
            taken = latency_ms(evaluate(problem, self._plans[place, row.name]))
            found.append(sum(problem.time) / taken)
        return found


def _with(costs: CostsFile, efficiency: Efficiency) -> CostsFile:
    """Costs, predicted with a memory pressure of 1, as other parameters of FITTED make them."""
    operators = {}
    for operator, cost in costs.operators.items():
        demand = cost.demand
        if demand is not None:
            pressed = min(1.0, demand.memory * efficiency.memory_pressure)
            cost = structs.replace(cost, demand=structs.replace(demand, memory=pressed))
        operators[operator] = cost
    launch_ms = 0.0 if costs.overheads is None else costs.overheads.launch_ms
    overheads = CostOverheads(launch_ms, efficiency.sync_us / 1e3, efficiency.stage_us / 1e3)
    return structs.replace(costs, operators=operators, overheads=overheads)


def fit(speedups: Speedups, rows: Sequence[Row], start: Efficiency = DEFAULT_EFFICIENCY) -> Efficiency:
    """Least squares of the logarithms of predicted over published, by coordinate descent."""

    def loss(candidate: Efficiency) -> float:
        pairs = zip(speedups.of(rows, candidate), rows, strict=True)
        return sum(math.log(found / row.published) ** 2 for found, row in pairs)

    best, least = start, loss(start)
    for step in _STEPS:
        improved = True
        while improved:
            improved = False
            for name, factor in itertools.product(FITTED, (step, 1 / step)):
                candidate = replace(best, **{name: getattr(best, name) * factor})
                if (its_loss := loss(candidate)) < least:
                    best, least, improved = candidate, its_loss, True
    return best


def without_own_paper(speedups: Speedups, rows: Sequence[Row]) -> list[float]:
    """The speedup of every row, by parameters fitted to the rows of other papers."""
    found: dict[int, float] = {}
    for paper in dict.fromkeys(row.paper for row in rows):
        own = [row for row in rows if row.paper == paper]
        fitted = fit(speedups, [row for row in rows if row.paper != paper and row.fitted])
        found.update(zip(map(id, own), speedups.of(own, fitted), strict=True))
    return [found[id(row)] for row in rows]


def _print_hios(graphs: Graphs) -> None:
    """HIOS-LP on two A40 beside the ranges that HIOS prints over all image sizes; here the default size."""
    figure, a40 = published("hios_fig12"), gpu("a40")
    print("\nHIOS-LP on 2 x A40, NVLink, default size: percent below, published over all sizes, by blend, by resources")
    for network, word in (("inception_v3", "inception"), ("nasnet_large", "nasnet")):
        for other, algorithm, devices in (("sequential", "sequential", 1), ("ios", "ios", 1), ("mr", "hios-mr", 2)):
            stated = figure[f"{word}_below_{other}"]
            text = f"{network:<13} {other:<11} {stated.least or '':>5} to {stated.most:>5}"
            for shared in (False, True):
                graph, linked = graphs.graph(network, 1), link("nvlink", a40)
                problem = Problem(graph, predicted_costs(graph, a40, linked, 2, shared=shared))
                best, than = schedule(problem, "hios-lp", 2), schedule(problem, algorithm, devices)
                text += f" {100 * (1 - best.latency_ms / than.latency_ms):>7.1f}"
            print(text)


def _print_apart(graphs: Graphs) -> None:
    """What algorithms come to on Inception-v3 on an RTX 3080, which blend hardly tells apart."""
    graph, known = graphs.graph("inception_v3", 1), gpu("rtx3080")
    print("\nInception-v3 on an RTX 3080, ms by blend and by resources")
    problems = [
        Problem(graph, predicted_costs(graph, known, link(None, known), 1, shared=shared)) for shared in (False, True)
    ]
    for algorithm in ("sequential", "greedy", "ios", "lios", "lios-rand1", "lios-rand2", "nimble", "opara"):
        found = [schedule(problem, algorithm, 1).latency_ms for problem in problems]
        print(f"{algorithm:<11} {found[0]:>6.3f} {found[1]:>6.3f}")


def summary(rows: Sequence[Row], found: Iterable[float]) -> str:
    """Median error, share on the right side of 1, share of pairs in the right order."""
    rated = list(zip(rows, found, strict=True))
    error = statistics.median(abs(speedup / row.published - 1) for row, speedup in rated)
    sides = [(speedup > 1) == (row.published > 1) for row, speedup in rated if abs(row.published - 1) > _EQUAL]
    groups: dict[Any, list[tuple[float, float]]] = defaultdict(lambda: [(1.0, 1.0)])  # with the sequential schedule
    for row, speedup in rated:
        groups[row.paper, row.gpu, row.network, row.batch].append((row.published, speedup))
    orders = [
        (one[0] - two[0]) * (one[1] - two[1]) > 0
        for group in groups.values()
        for one, two in itertools.combinations(group, 2)
        if abs(one[0] / two[0] - 1) > _EQUAL
    ]
    return (
        f"median error {error:.1%} (goal 10 %), right side of 1 {sum(sides)}/{len(sides)} = "
        f"{sum(sides) / len(sides):.0%} (goal 90 %), pairs in order {sum(orders)}/{len(orders)} = "
        f"{sum(orders) / len(orders):.0%} (goal 85 %)"
    )


def print_fit(graphs: Graphs) -> None:
    """The fitted parameters."""
    tuned = fit(Speedups(graphs, shared=True), [row for row in rows() if row.fitted])
    for name in FITTED:
        print(f"{name} = {getattr(tuned, name):.3g}, in roofline.py {getattr(DEFAULT_EFFICIENCY, name):g}")


def print_concurrent(graphs: Graphs) -> None:
    """The table, and what each model is worth."""
    every = rows()
    blend, resources = Speedups(graphs, shared=False).of(every), Speedups(graphs, shared=True)
    shipped = resources.of(every)
    held_out = without_own_paper(resources, every)
    print("speedup over the sequential schedule: published, predicted by blend, by resources, and by resources with")
    print("parameters fitted to other papers")
    print(
        f"{'paper':<7} {'GPU':<14} {'network':<13} {'batch':>5} {'schedule':<18} {'published':>9} {'blend':>6} "
        f"{'resources':>9} {'without paper':>13}"
    )
    for row, old, new, without in zip(every, blend, shipped, held_out, strict=True):
        print(
            f"{row.paper:<7} {row.gpu:<14} {row.network:<13} {row.batch:>5} {row.name:<18} {row.published:>9.2f} "
            f"{old:>6.2f} {new:>9.2f} {without:>13.2f}" + ("" if row.fitted else "  never fitted")
        )
    _print_hios(graphs)
    _print_apart(graphs)
    print(f"\n{len(every)} rows")
    for what, found in (("blend", blend), ("resources", shipped), ("resources without the row's paper", held_out)):
        print(f"{what}: {summary(every, found)}")
