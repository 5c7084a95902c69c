"""How well the platform ``model`` predicts the speedups of schedules over sequential ones that papers print.

Part of benchmarks/model_validation.py, which prints it with ``--concurrent``. Two models are compared: contention
``blend`` with alpha 0.5 and no overheads, and ``resources``, whose three parameters (FITTED) are fitted to rows of
IOS, LIOS and Opara at once, none to a network, a GPU or an algorithm. Nimble's rows are a user's measurements and are
never fitted, nor are those that came after the fit. The rows of every paper, and of every network, are also predicted
with these parameters fitted without them; those of sequential latencies stay, fitted to all papers. A GPU is that of
one paper in all fitted rows. Speedups are compared, so that errors of the sequential latencies do not count. Two
schedules of a network form a pair if their published latencies differ by more than 2 %. Of a published range any number
is right, and errors are those from its nearer end. NETWORK-PIXELS is a network with images of another size than its
own.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from msgspec import structs

from hios import ALGORITHMS, Graph, Problem, evaluate, schedule
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
#: HIOS's networks as its statements name them, by image size. Which size its largest is, the text of it does not say.
_HIOS_NETWORKS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("inception", "Inception-v3", {"inception_v3": "small images", "inception_v3-1024": "large images"}),
    ("nasnet", "NASNet", {"nasnet_large": "small images", "nasnet_large-1024": "large images"}),
)


class Graphs(Protocol):
    """The graphs of networks, by batch size."""

    def graph(self, network: str, batch: int) -> Graph:
        """The graph of a network."""


@dataclass(frozen=True)
class Row:
    """A published speedup of a schedule, over the sequential one unless ``over`` names another; or a range of it.

    The plan is that of another GPU or batch size where ``plan_for`` names one, in the same order.
    """

    paper: str
    gpu: str
    network: str
    batch: int
    launch_us: float
    algorithm: str
    published: float
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    fitted: bool = True
    most: float | None = None
    over: str = "sequential"
    devices: int = 1
    plan_for: tuple[str, int] | None = None

    @property
    def name(self) -> str:
        """The schedule in words."""
        words = [self.algorithm, *(f"{name}={value}" for name, value in self.parameters.items())]
        gpu, batch = self.plan_for or (self.gpu, self.batch)
        words += [f"for {gpu}"] * (gpu != self.gpu) + [f"for {batch}"] * (batch != self.batch)
        return " ".join([*words, *([] if self.over == "sequential" else ["over", self.over])])

    @property
    def text(self) -> str:
        """What is published."""
        return f"{self.published:.2f}" + ("" if self.most is None else f"-{self.most:.2f}")

    def error(self, found: float) -> float:
        """A speedup over the nearest published one, less 1."""
        return found / min(max(found, self.published), self.most or self.published) - 1


def rows() -> list[Row]:
    """All rows."""
    return [*_ios(), *_ios_later(), *_lios(), *_opara(), *_opara_later(), *_nimble(), *_hios()]


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


def _ios_later() -> Iterator[Row]:
    """What the fit does not know: the sample network, pruned searches of NASNet, schedules for other batch sizes."""
    later = functools.partial(Row, "IOS", launch_us=STREAM_LAUNCH_US, fitted=False)
    v100 = functools.partial(later, "v100-sxm2")
    sample = published("ios_fig2")
    sequential = sample["sample_network"].cases["sequential"]
    yield v100("ios_sample", 1, algorithm="ios", published=sequential / sample["sample_network"].cases["ios"])
    yield v100("ios_sample", 1, algorithm="greedy", published=sequential / number("ios_fig2.latency_ms", "least"))
    nasnet = published("ios_fig6")["sequential"].cases["nasnet_large"]
    for key, latency in published("ios_fig9")["nasnet_ms"].cases.items():
        if key != "r3 s8":
            r, s = (int(part[1:]) for part in key.split())
            pruned = {"r": r, "s": s}
            yield v100("nasnet_large", 1, algorithm="ios", published=nasnet / latency, parameters=pruned)
    table = published("ios_tab3")
    sequential_ms = {**published("ios_fig11")["sequential"].cases, "1": number("ios_fig6.sequential", "inception_v3")}
    for batch, other in itertools.permutations((1, 32, 128), 2):
        speedup = sequential_ms[str(batch)] / table[f"batch_{batch}"].cases[f"for {other}"]
        plan_for = ("v100-sxm2", other)
        yield v100("inception_v3", batch, algorithm="ios", published=speedup, plan_for=plan_for)
    speedup = sequential_ms["1"] / table["v100"].cases["for K80"]
    yield v100("inception_v3", 1, algorithm="ios", published=speedup, plan_for=("k80", 1))
    gain = published("ios_text")["resnet"]
    for network in ("resnet34", "resnet50"):
        least, most = (1 / (1 - gain.numbers[end] / 100) for end in ("least", "most"))
        yield v100(network, 1, algorithm="ios", published=least, most=most)
    turing = published("ios_fig14")["speedup"].numbers
    for network in published("ios_fig6")["sequential"].cases:
        yield later("rtx2080-ti", network, 1, algorithm="ios", published=turing["least"], most=turing["most"])


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


def _opara_later() -> Iterator[Row]:
    a100 = functools.partial(Row, "Opara", "a100-pcie-40gb", launch_us=GRAPH_LAUNCH_US, algorithm="opara", fitted=False)
    range_ = published("opara_fig9")["over_nimble"].numbers
    for batch in (1, 8):
        yield a100("inception_v3", batch, published=range_["least"], most=range_["most"], over="nimble")
    yield a100("bert", 1, published=number("opara_fig5.bert", "graph"))
    yield a100("t5", 1, published=1 + number("opara_fig5.t5_over_nimble") / 100, over="nimble")


def _nimble() -> Iterator[Row]:
    for batch, key in ((1, "nimble_issue_22"), (8, "nimble_issue_22_batch_8")):
        cases = published("failures_text")[key].cases
        speedup = cases["one stream"] / cases["several streams"]
        yield Row("Nimble", "rtx2080-super", "inception_v3", batch, GRAPH_LAUNCH_US, "nimble", speedup, fitted=False)


def _hios() -> Iterator[Row]:
    """HIOS on two A40, by image size.

    Figure 12 has ranges over all sizes of what HIOS-LP cuts of other latencies, so that HIOS-MR over sequential is a
    range too. Figure 13 says of the smallest and the largest images how many times as much as IOS HIOS-LP cuts, and
    which part of that is its inter-GPU part's.
    """
    for word, in_words, sizes in _HIOS_NETWORKS:
        cuts = {}
        for other in ("sequential", "ios", "mr"):
            below = published("hios_fig12")[f"{word}_below_{other}"].numbers
            most = below.get("most", below.get("value", 0.0))  # "up to" is a value
            cuts[other] = [cut / 100 for cut in (below.get("least", 0.0), most)]
        for network, case in sizes.items():
            row = functools.partial(Row, "HIOS", "a40", network, 1, STREAM_LAUNCH_US, fitted=False, devices=2)
            least, most = cuts["sequential"]
            yield row("hios-lp", 1 / (1 - least), most=1 / (1 - most))
            if network == "nasnet_large":
                yield row("hios-lp", 1 / (1 + number("hios_fig13.nasnet_331_over_ios") / 100), over="ios")
            else:
                yield row("hios-lp", 1 / (1 - cuts["ios"][0]), most=1 / (1 - cuts["ios"][1]), over="ios")
            low, high = cuts["mr"]
            yield row("hios-lp", 1 / (1 - low), most=1 / (1 - high), over="hios-mr")
            yield row("hios-mr", (1 - high) / (1 - least), most=(1 - low) / (1 - most))
            part = 1.0 if word == "nasnet" else number("hios_fig13.inter_part", case) / 100
            yield row("hios-lp-inter", 1 / (1 - part * least), most=1 / (1 - part * most))
            if times := published("hios_fig13")["cut_over_ios"].cases.get(f"{in_words}, {case}"):
                yield row("ios", 1 / (1 - least / times), most=1 / (1 - most / times))


class Speedups:
    """Predicted speedups of rows. Plans are those of the parameters as shipped, also when others are tried."""

    def __init__(self, graphs: Graphs, *, shared: bool) -> None:
        self._graphs, self._shared = graphs, shared
        self._costs: dict[Any, CostsFile] = {}
        self._plans: dict[Any, Plan] = {}
        self._found: dict[tuple[Row, Efficiency], float] = {}

    def _problem(self, place: tuple[str, str, int, float, int], efficiency: Efficiency) -> Problem:
        name, network, batch, launch_us, devices = place
        graph = self._graphs.graph(network, batch)
        if place not in self._costs:
            known, own = gpu(name), replace(DEFAULT_EFFICIENCY, launch_us=launch_us, memory_pressure=1.0)
            self._costs[place] = predicted_costs(graph, known, link(None, known), devices, own, shared=self._shared)
        return Problem(graph, _with(self._costs[place], efficiency) if self._shared else self._costs[place])

    def of(self, rows: Sequence[Row], efficiency: Efficiency = DEFAULT_EFFICIENCY) -> list[float]:
        """The speedup of every row."""
        problems: dict[Any, Problem] = {}
        for row in rows:
            if (row, efficiency) in self._found:  # fits start from the same parameters
                continue
            place = (row.gpu, row.network, row.batch, row.launch_us, row.devices)
            if place not in problems:
                problems[place] = self._problem(place, efficiency)
            problem = problems[place]
            taken, other = (
                latency_ms(evaluate(problem, self._plan(row, algorithm, parameters)))
                for algorithm, parameters in ((row.algorithm, row.parameters), (row.over, {}))
            )
            self._found[row, efficiency] = other / taken
        return [self._found[row, efficiency] for row in rows]

    def _plan(self, row: Row, algorithm: str, parameters: Mapping[str, Any]) -> Plan:
        name, batch = (row.plan_for if algorithm == row.algorithm else None) or (row.gpu, row.batch)
        place = (name, row.network, batch, row.launch_us, row.devices)
        key = (place, algorithm, *parameters.items())
        if key not in self._plans:
            shipped = self._problem(place, DEFAULT_EFFICIENCY)
            devices = row.devices if ALGORITHMS[algorithm].several_devices else 1
            made = schedule(shipped, algorithm, devices, dict(parameters))
            self._plans[key] = made.plan(shipped.graph)
        return self._plans[key]


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


def without(speedups: Speedups, rows: Sequence[Row], key: Callable[[Row], str]) -> list[float]:
    """The speedup of every row, by parameters fitted to the rows of other keys."""
    found: dict[int, float] = {}
    for group in dict.fromkeys(map(key, rows)):
        own = [row for row in rows if key(row) == group]
        others = [row for row in rows if key(row) != group and row.fitted]
        # Without a fitted row of the group, the fit is the shipped one.
        fitted = fit(speedups, others) if any(row.fitted for row in own) else DEFAULT_EFFICIENCY
        found.update(zip(map(id, own), speedups.of(own, fitted), strict=True))
    return [found[id(row)] for row in rows]


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
    error = statistics.median(abs(row.error(speedup)) for row, speedup in rated)
    sides, orders = [], []
    groups: dict[Any, list[tuple[float, float]]] = defaultdict(lambda: [(1.0, 1.0)])  # with the sequential schedule
    for row, speedup in rated:
        if row.most is not None and row.published < 1 < row.most:  # on both sides of 1
            continue
        if row.over != "sequential":
            orders.append((speedup > 1) == ((row.most or row.published) > 1))
            continue
        if abs((row.most or row.published) - 1) > _EQUAL:
            sides.append((speedup > 1) == ((row.most or row.published) > 1))
        if row.most is None:
            groups[row.paper, row.gpu, row.network, row.batch].append((row.published, speedup))
    orders += [
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
    resources = Speedups(graphs, shared=True)
    columns = {
        "blend": Speedups(graphs, shared=False).of(every),
        "resources": resources.of(every),
        "resources without the row's paper": without(resources, every, lambda row: row.paper),
        "resources without the row's network": without(resources, every, lambda row: row.network.partition("-")[0]),
    }
    print("speedup over the sequential schedule, or another: published, predicted by blend, by resources, and by")
    print("resources with parameters fitted to other papers, and to other networks")
    print(
        f"{'paper':<7} {'GPU':<14} {'network':<17} {'batch':>5} {'schedule':<20} {'published':>9} {'blend':>6} "
        f"{'resources':>9} {'without paper':>13} {'without network':>15}"
    )
    for row, *found in zip(every, *columns.values(), strict=True):
        values = (f"{value:>{width}.2f}" for value, width in zip(found, (6, 9, 13, 15), strict=True))
        print(
            f"{row.paper:<7} {row.gpu:<14} {row.network:<17} {row.batch:>5} {row.name:<20} {row.text:>9} "
            + " ".join(values)
            + ("" if row.fitted else "  never fitted"),
            flush=True,
        )
    _print_apart(graphs)
    print(f"\n{len(every)} rows, of these fitted: {sum(row.fitted for row in every)}")
    for what, column in columns.items():
        print(f"{what}: {summary(every, column)}")
        unfitted = [(row, value) for row, value in zip(every, column, strict=True) if not row.fitted]
        print(f"  of rows never fitted: {summary(*zip(*unfitted, strict=True))}")
