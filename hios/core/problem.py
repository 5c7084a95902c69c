"""A scheduling problem: a graph with its costs, by operator number, ready for algorithms."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from hios.core.costs import Costs, CostsFile, Demand
from hios.core.graph import Graph
from hios.core.merging import MERGEABLE, convolutions, merged_kernel
from hios.core.sharing import DemandShares, memory_level, together_ms
from hios.core.sums import add_up
from hios.errors import ArtifactError

#: Operators that run one after another, by number.
Group = tuple[int, ...]
#: Groups that run concurrently on one device.
Stage = tuple[Group, ...]
#: What takes several devices: an operator by number, or a merge by the numbers of its operators.
_Key = TypeVar("_Key", int, frozenset[int])


class Problem:
    """A graph and its costs in the form that algorithms work on.

    Operators are numbers 0..n-1 in the order of the graph; parallel edges count once.

    Times are those of one device that works alone. In a schedule for M devices, whether or not all of them get work,
    the times of operators, stages and merges are multiplied by the co-run factor of M (``Costs.corun_factor``), as
    devices share memory and caches; transfer times are not. ``on(M)`` is the problem with those times. Evaluator,
    checker, bounds and ``Algorithm.solve`` call it themselves; the functions of algorithms receive its result.

    Overheads of the costs are part of the times: an operator takes t(v) and its launch, during which it takes nothing
    of the device, so that its shares are smaller in proportion; t(u,v) holds the synchronization.

    Attributes:
        graph: the graph.
        ids: operator ids by number.
        time: t(v) in milliseconds by number.
        utilization: u(v) in (0, 1] by number; the shares of slots if operators share ``resources``.
        resources: resource demands by number; None where no profile gave them.
        predecessors: for every operator, (predecessor, t(u,v) in milliseconds) pairs in topological order.
        successors: for every operator, (successor, t(u,v) in milliseconds) pairs in topological order.
        order: operator numbers in topological order.
        place: place of every operator in that order, by number.
        demand: shares of slots, arithmetic and memory bandwidth by number; empty unless operators share ``resources``.
        alpha: share of serialization of the contention model; None without contention. If operators share
            ``resources``, 0: by alpha and utilization alone, as some bounds and searches have it, times are too short.
        launch_ms, sync_ms, barrier_ms: time of a launch, of a wait for another stream or device, and of every group of
            a stage beyond the first; milliseconds.
        convolutions: by number, what merging an operator needs to know; None if it cannot be merged.
        measured_merges: measured times of merged operators, milliseconds.
        wide_ms: t(v, k) in milliseconds by operator number and number of devices k, for the operators that may take
            several devices at once; at most as many as ``on`` was asked for.
        merge_wide_ms: the same of merged operators, by the operators.
        predicted_for: the GPUs that costs are predicted for, in words; empty if they were measured.
        disturbed: in words, that other processes kept the cores busy while costs were measured; empty if they did not.
        devices: number of devices whose co-run factor the times hold; 0 if it is left to ``on``.
        probe: speed of the machine when the times were measured; None if unknown.
        cores_per_device: cores of each device that times were measured on; None if unknown.
        hardware: kind of hardware that times were measured on; None if unknown.

    Raises:
        ArtifactError: an operator or edge has no cost, the costs are those of another graph, they have a merge of
            operators that cannot be merged, or a time on several devices for fewer than two.

    Examples:
        >>> import hios
        >>> graph = hios.Graph("pair", (hios.Operator("a", "conv"), hios.Operator("b", "conv")), (hios.Edge("a", "b"),))
        >>> problem = hios.Problem(graph, hios.Costs({"a": 1.0, "b": 2.0}, {("a", "b"): 0.5}, corun={2: 1.1}))
        >>> problem.time, problem.successors
        ([1.0, 2.0], [[(1, 0.5)], []])
        >>> problem.on(2).time  # with the co-run factor of two devices
        [1.1, 2.2]
    """

    def __init__(self, graph: Graph, costs: Costs | CostsFile) -> None:
        costs = Costs.of(costs) if isinstance(costs, CostsFile) else costs
        self.graph = graph
        self.devices = 0
        self.predicted_for = costs.predicted_for
        self.disturbed = costs.disturbed
        self._corun_factor = costs.corun_factor
        self.probe = costs.probe
        self.cores_per_device = costs.cores_per_device
        self.hardware = costs.hardware
        _refuse_other_graph(graph, costs)
        if not graph.operators:
            raise ArtifactError(f"{graph.source}: operators: found none; allowed: at least one")
        self.ids = [operator.id for operator in graph.operators]
        self.time = [costs.operator_ms(operator) for operator in self.ids]
        self.utilization = [costs.utilization.get(operator, 1.0) for operator in self.ids]
        self.resources = [costs.resources.get(operator) for operator in self.ids]
        overheads = costs.overheads
        self.launch_ms, self.sync_ms, self.barrier_ms = overheads.launch_ms, overheads.sync_ms, overheads.stage_ms
        self.demand: list[DemandShares] = []
        if costs.contention == "resources":
            self.demand = [
                _shares(costs.demand.get(operator), share)
                for operator, share in zip(self.ids, self.utilization, strict=True)
            ]
            self.utilization = [slots for slots, _, _ in self.demand]
        transfers: dict[tuple[int, int], float] = {}
        for edge in graph.edges:
            ends = (graph.index[edge.source], graph.index[edge.target])
            # If two operators exchange several values, the largest counts, as they are sent at the same time.
            transfers[ends] = max(transfers.get(ends, 0.0), costs.transfer_ms(edge) + self.sync_ms)
        _require_finite([*self.time, *transfers.values()], costs)
        self.predecessors: list[list[tuple[int, float]]] = [[] for _ in self.ids]
        self.successors: list[list[tuple[int, float]]] = [[] for _ in self.ids]
        for (source, target), transfer in transfers.items():
            self.predecessors[target].append((source, transfer))
            self.successors[source].append((target, transfer))
        self.order = graph.order
        self.place = place = positions(graph.order)
        for neighbors in (*self.predecessors, *self.successors):
            neighbors.sort(key=lambda neighbor: place[neighbor[0]])
        self.alpha = {"blend": costs.alpha, "resources": 0.0}.get(costs.contention)
        for stage in costs.stages:
            for operator in (operator for group in stage for operator in group):
                if operator not in graph.index:
                    raise ArtifactError(
                        f"{costs.source}: stages: found operator {operator}, which is not in {graph.source}"
                    )
        self.measured: dict[frozenset[Group], float] = {
            frozenset(tuple(graph.index[operator] for operator in group) for group in stage): time
            for stage, time in costs.stages.items()
        }
        self.convolutions = convolutions(graph)
        self.measured_merges = {self._merge(merge, costs.source): time for merge, time in costs.merges.items()}
        self.wide_ms = _wide_times(graph, costs)
        self.merge_wide_ms = {
            self._merge(merge, costs.source): dict(sorted(times.items()))
            for merge, times in costs.merge_wide_ms.items()
            if times
        }
        if self.launch_ms:
            self.wide_ms = {v: {k: t + self.launch_ms for k, t in row.items()} for v, row in self.wide_ms.items()}
            self._lengthen([time + self.launch_ms if time else 0.0 for time in self.time], 1.0)

    def _lengthen(self, times: list[float], factor: float) -> None:
        """Give operators other times, of which they keep the device busy for a factor of what they did before."""
        shares = [factor * before / after if after else 1.0 for before, after in zip(self.time, times, strict=True)]
        self.time = times
        self.utilization = [min(1.0, share * used) for share, used in zip(shares, self.utilization, strict=True)]
        if self.demand:
            scaled = zip(shares, self.demand, strict=True)
            self.demand = [(share * slots, share * ops, share * bytes_) for share, (slots, ops, bytes_) in scaled]

    def _merge(self, merge: frozenset[str], source: str) -> frozenset[int]:
        index = self.graph.index
        for operator in sorted(merge - index.keys()):
            raise ArtifactError(f"{source}: merges: found operator {operator}, which is not in {self.graph.source}")
        numbers = frozenset(index[operator] for operator in merge)
        if not self.can_merge(numbers):
            raise ArtifactError(
                f"{source}: merges: found {', '.join(sorted(merge))}, which cannot run as one by {self.graph.source}; "
                f"allowed: {MERGEABLE}"
            )
        return numbers

    @classmethod
    def read(cls, graph: str | Path, costs: str | Path) -> Problem:
        """Read a problem from graph.json and costs.json."""
        return cls(Graph.read(graph), Costs.read(costs))

    def __len__(self) -> int:
        return len(self.ids)

    def on(self, devices: int) -> Problem:
        """The problem with the times that operators, stages and merges have in a schedule for so many devices.

        A problem that already has them is returned unchanged: a plan for fewer devices leaves the others idle.
        """
        if self.devices:
            return self
        problem = copy.copy(self)
        problem.devices = devices
        factor = self._corun_factor(devices)
        if factor != 1.0 and self.demand:
            problem._share_memory(factor)
        elif factor != 1.0:
            if self.launch_ms:
                idle = (factor - 1) * self.launch_ms
                problem._lengthen([factor * time - idle if time else 0.0 for time in self.time], factor)
            else:
                problem.time = [factor * time for time in self.time]
            problem.measured = {stage: factor * time for stage, time in self.measured.items()}
            problem.measured_merges = {merge: factor * time for merge, time in self.measured_merges.items()}
        problem.wide_ms = self._wide_on(self.wide_ms, devices, lambda operator: [operator], self.launch_ms)
        problem.merge_wide_ms = self._wide_on(self.merge_wide_ms, devices, sorted, 0.0)
        return problem

    def _share_memory(self, factor: float) -> None:
        """Give operators the times that they have while other devices take memory bandwidth: ``factor`` on average.

        Operators slow down by what they ask for beyond the bandwidth that is left to each device; launches do not.
        """
        before, level, slower = self._beside(factor)
        self.measured = {
            stage: time * _mean(slower, before, [operator for group in stage for operator in group])
            for stage, time in self.measured.items()
        }
        self.measured_merges = {
            merge: time * _mean(slower, before, merge) for merge, time in self.measured_merges.items()
        }
        times = [
            own * more + self.launch_ms if time else 0.0
            for time, own, more in zip(self.time, before, slower, strict=True)
        ]
        shares = [time / after if after else 1.0 for time, after in zip(self.time, times, strict=True)]
        self.demand = [
            (min(1.0, slots * share * more), compute * share, min(1.0, used * share / level))
            for (slots, compute, used), share, more in zip(self.demand, shares, slower, strict=True)
        ]
        self.time, self.utilization = times, [slots for slots, _, _ in self.demand]

    def _beside(self, factor: float) -> tuple[list[float], float, list[float]]:
        """Operators while other devices take memory bandwidth, so that they take ``factor`` times as long on average.

        Returns their times without launches, the share of the bandwidth that is left to each, and how many times as
        long each takes.
        """
        before = [max(0.0, time - self.launch_ms) for time in self.time]
        memory = [
            used * time / own if own else used
            for time, own, (_, _, used) in zip(self.time, before, self.demand, strict=True)
        ]
        level = memory_level(tuple(memory), tuple(before), factor)
        return before, level, [max(1.0, share / level) for share in memory]

    def _wide_on(
        self,
        wide_ms: Mapping[_Key, Mapping[int, float]],
        devices: int,
        operators_of: Callable[[_Key], Sequence[int]],
        launch_ms: float,
    ) -> dict[_Key, dict[int, float]]:
        """t(v, k) in schedules for so many devices, for the k that are possible.

        t(v, k) was measured with k devices busy, so what of it is no launch is multiplied by what all devices slow the
        operators down over what k devices do.
        """

        @functools.cache
        def beside(busy: int) -> tuple[list[float], float, list[float]]:
            return self._beside(self._corun_factor(busy))

        def slowdown(key: _Key, busy: int) -> float:
            factor = self._corun_factor(busy)
            if factor == 1.0 or not self.demand:
                return factor
            before, _, slower = beside(busy)
            return _mean(slower, before, operators_of(key))

        allowed = {
            key: {
                width: (time - launch_ms) * max(1.0, slowdown(key, devices) / slowdown(key, width)) + launch_ms
                for width, time in times.items()
                if width <= devices
            }
            for key, times in wide_ms.items()
        }
        return {key: times for key, times in allowed.items() if times}

    @property
    def has_widths(self) -> bool:
        """Whether some operator, merged or not, may take several devices at once."""
        return bool(self.wide_ms or self.merge_wide_ms)

    def time_on(self, operator: int, width: int) -> float:
        """t(v, k): time of an operator on ``width`` devices at once, one of those that are allowed; milliseconds."""
        return self.time[operator] if width == 1 else self.wide_ms[operator][width]

    def stage_ms(self, stage: Stage) -> float:
        """t(S) of a stage in milliseconds.

        One group takes the sum of its operators. Several groups take the measured time if there is one, else
        a*sum(t) + (1-a)*max(sum(t*u), longest group), or the longest group without contention, or the time that it
        takes them to share resources (`hios.core.sharing`), launched in topological order; and every group but one the
        time of a barrier.
        """
        if len(stage) == 1:
            return add_up(self.time[operator] for operator in stage[0])
        measured = self.measured.get(frozenset(stage))
        return self.modeled_stage_ms(stage) if measured is None else measured

    def modeled_stage_ms(self, stage: Stage) -> float:
        """t(S) of a stage of several groups by the contention model alone, in milliseconds."""
        return self._together_ms(stage) + (len(stage) - 1) * self.barrier_ms

    @property
    def blends(self) -> bool:
        """Whether the blend, or the longest group, is all that t(S) of a stage that was not measured consists of."""
        return not self.demand and not self.barrier_ms

    def _together_ms(self, stage: Stage) -> float:
        if self.demand:
            return together_ms(stage, self.time, self.demand, self.place)
        longest = max(add_up(self.time[operator] for operator in group) for group in stage)
        if self.alpha is None:
            return longest
        operators = [operator for group in stage for operator in group]
        total = add_up(self.time[operator] for operator in operators)
        work = add_up(self.time[operator] * self.utilization[operator] for operator in operators)
        return self.alpha * total + (1 - self.alpha) * max(work, longest)

    def can_merge(self, operators: Iterable[int]) -> bool:
        """Whether operators can run as one convolution with the same results (IOS, operator merge)."""
        return merged_kernel([self.convolutions[operator] for operator in operators]) is not None

    def merge_ms(self, operators: Iterable[int]) -> float | None:
        """Time of operators merged into one, in milliseconds: the measured one, else the modeled one.

        None where they cannot be merged.
        """
        key = frozenset(operators)
        measured = self.measured_merges.get(key)
        return self.modeled_merge_ms(key) if measured is None else measured

    def modeled_merge_ms(self, operators: Iterable[int]) -> float | None:
        """Time of operators merged into one by a model alone, in milliseconds; None where they cannot be merged.

        Padding an operator's kernel from area k to the merged area K multiplies its operations, and so its time, by
        g = K / k. The merged operator is a single kernel, so nothing of it is serialized: it takes the device time
        of all its parts, and as long as its longest part: max(sum(t*g*u), max(t*g)), or max(t*g) without
        contention. If operators share resources, u is each of their shares in turn; the merged operator is launched
        once. That the input is read once instead of several times is not credited.
        """
        members = [(operator, self.convolutions[operator]) for operator in operators]
        merged = merged_kernel([member for _, member in members])
        if merged is None:
            return None
        growth = {operator: member.growth(merged.kernel) for operator, member in members if member is not None}
        grown = {operator: self.time[operator] * factor for operator, factor in growth.items()}
        longest = max(0.0, *(grown[operator] - self.launch_ms * (factor - 1) for operator, factor in growth.items()))
        if self.alpha is None:
            return longest
        shares: list[Sequence[float]] = list(zip(*self.demand, strict=True)) or [self.utilization]
        work = max(add_up(time * used[operator] for operator, time in sorted(grown.items())) for used in shares)
        return max(longest, work + self.launch_ms)


def _mean(slower: Sequence[float], times: Sequence[float], operators: Iterable[int]) -> float:
    """How many times as long operators take together of which each takes so many times as long."""
    own = list(operators)
    total = add_up(times[operator] for operator in own)
    return add_up(times[operator] * slower[operator] for operator in own) / total if total else 1.0


def _shares(demand: Demand | None, otherwise: float) -> DemandShares:
    return (otherwise,) * 3 if demand is None else (demand.slots, demand.compute, demand.memory)


def _wide_times(graph: Graph, costs: Costs) -> dict[int, dict[int, float]]:
    """t(v, k) by operator number, ascending k."""
    for operator, times in costs.wide_ms.items():
        for width in times:
            if width < 2:
                raise ArtifactError(
                    f"{costs.source}: operators.{operator}.wide_ms: found {width} devices; allowed: at least 2, as "
                    "time_ms is the time on one"
                )
    return {
        graph.index[operator]: dict(sorted(times.items()))
        for operator, times in costs.wide_ms.items()
        if operator in graph.index and times
    }


def _require_finite(times: Sequence[float], costs: Costs) -> None:
    """Refuse times whose sum floating point cannot hold: latencies and bounds would be infinite."""
    longest = max(costs.corun.values(), default=1.0) * (add_up(times) + len(times) * costs.overheads.launch_ms)
    if not math.isfinite(longest):
        raise ArtifactError(f"{costs.source}: found times with an infinite sum; allowed: a finite one")


def _refuse_other_graph(graph: Graph, costs: Costs) -> None:
    if graph.name and costs.graph and graph.name != costs.graph:
        raise ArtifactError(
            f"{costs.source}: graph: found {costs.graph}; allowed: {graph.name}, the name of {graph.source}"
        )
    if costs.graph_fingerprint not in ("", graph.fingerprint):
        raise ArtifactError(
            f"{costs.source}: graph_fingerprint: found {costs.graph_fingerprint}; allowed: {graph.fingerprint}, that "
            f"of {graph.source}: these are costs of another graph, such as of another image size; profile this one"
        )


def upward_ranks(problem: Problem, times: Sequence[float] | None = None) -> list[float]:
    """Priority indicator p(v): longest path from v to the last operator, operators and transfers counted.

    HIOS section IV-A; the upward rank of HEFT for equal devices. Milliseconds. ``times`` are those of operators, if not
    the problem's.
    """
    times = problem.time if times is None else times
    ranks = [0.0] * len(problem)
    for operator in reversed(problem.order):
        below = max((transfer + ranks[successor] for successor, transfer in problem.successors[operator]), default=0.0)
        ranks[operator] = times[operator] + below
    return ranks


def priority_order(problem: Problem, times: Sequence[float] | None = None) -> list[int]:
    """Operators by descending priority indicator; ties in topological order, so that it always is one."""
    ranks = upward_ranks(problem, times)
    return sorted(problem.order, key=lambda operator: (-ranks[operator], problem.place[operator]))


def positions(order: Sequence[int]) -> list[int]:
    """Place of every operator number in an order."""
    place = [0] * len(order)
    for index, operator in enumerate(order):
        place[operator] = index
    return place


def reachable(order: Iterable[int], neighbors: Sequence[Sequence[tuple[int, float]]]) -> list[int]:
    """For every operator those that its neighbors lead to, as bits; ``order`` has all after their neighbors."""
    found = [0] * len(neighbors)
    for operator in order:
        for neighbor, _ in neighbors[operator]:
            found[operator] |= found[neighbor] | 1 << neighbor
    return found


def members(mask: int) -> list[int]:
    """The positions that are in a set, in ascending order."""
    positions = []
    while mask:
        low = mask & -mask
        positions.append(low.bit_length() - 1)
        mask ^= low
    return positions
