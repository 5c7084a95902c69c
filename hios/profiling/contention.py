"""How operators and devices slow each other: devices at once are measured, and a model is fitted to stages."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hios.core.costs import ContentionError, Demand
from hios.machine.statistics import is_precise
from hios.machine.terminal import Meter
from hios.platforms.timer import Stage
from hios.profiling.cache import Measured, now
from hios.profiling.measurements import Effort, Session, sample

_Array = NDArray[np.float64]

#: Least number of measured stages for a fit, and the share of them that is held out to estimate the error.
_FEWEST, _HELD_OUT = 20, 0.25
#: Shares of serialization that are tried.
_ALPHAS = tuple(step / 20 for step in range(21))
#: Weight of an operator's utilization staying 1, against one stage: those in few stages are not read out of noise.
_PRIOR = 0.05
_LEAST_UTILIZATION = 0.01
_ITERATIONS = 8
#: Share of the error of the plain sum that the fitted model must stay below on stages that it has not seen, and the
#: chance with which it may be closer in as many of them if it is no better.
_BETTER, _LUCK = 0.9, 0.05
#: Minimum number of measurements of devices that run at once.
_CORUNS = 10


@dataclass(frozen=True, slots=True)
class Contention:
    """The model t(S) = a*sum(t) + (1-a)*max(sum(t*u), longest group).

    The error is that of stages that it was not fitted to; None where too few were measured. By default concurrent
    operators take their sum, as on a device that is one core, which every operator keeps busy.
    """

    alpha: float = 1.0
    utilization: Mapping[str, float] = field(default_factory=dict)
    error: ContentionError | None = None

    def time_ms(self, stage: Stage, time_ms: Mapping[str, float]) -> float:
        """t(S) by the model."""
        sums = [sum(time_ms[operator] for operator in group) for group in stage]
        work = sum(time_ms[operator] * self.utilization.get(operator, 1.0) for group in stage for operator in group)
        return self.alpha * sum(sums) + (1 - self.alpha) * max(work, *sums)


def fit(measured: Mapping[Stage, float], time_ms: Mapping[str, float], seed: int = 0) -> Contention:
    """Fit the model to measured stages by least squares of relative errors.

    It is taken only if it predicts stages that it was not fitted to better than the plain sum does, in so many of them
    that it is not luck (sign test): an algorithm looks for the stages that a model makes too short, so noise must not
    become a gain. Times are in milliseconds; operators have the name of the stand-in that was measured. ``seed``
    chooses the stages that are held out.
    """
    # In a fixed order, as floating-point sums depend on it.
    measured = {stage: measured[stage] for stage in sorted(measured) if measured[stage] > 0}
    stages = sorted(measured)
    plain = Contention()
    if len(stages) < _FEWEST:
        return plain
    random.Random(seed).shuffle(stages)
    count = round(_HELD_OUT * len(stages))
    unseen, seen = stages[:count], stages[count:]
    errors = [
        [abs(model.time_ms(stage, time_ms) / measured[stage] - 1) for stage in unseen]
        for model in (plain, _fitted({stage: measured[stage] for stage in seen}, time_ms))
    ]
    better = _is_better(*errors)
    model = _fitted(measured, time_ms) if better else plain
    own = errors[better]
    p90 = statistics.quantiles(own, n=10, method="inclusive")[-1]
    return Contention(model.alpha, model.utilization, ContentionError(statistics.median(own), p90, len(unseen)))


def _is_better(plain: Sequence[float], fitted: Sequence[float]) -> bool:
    """Whether errors on the same stages are significantly smaller, and in more of the stages than chance explains."""
    closer = sum(theirs < ours for ours, theirs in zip(plain, fitted, strict=True))
    differ = sum(theirs != ours for ours, theirs in zip(plain, fitted, strict=True))
    luck = sum(math.comb(differ, number) for number in range(closer, differ + 1)) / 2**differ
    return luck <= _LUCK and statistics.median(fitted) < _BETTER * statistics.median(plain)


def _fitted(measured: Mapping[Stage, float], time_ms: Mapping[str, float]) -> Contention:
    """The best fit over all alphas; for each alpha the utilizations are fitted by least squares.

    Relative to sum(t), the part that the stages of which sum(t*u) is the larger part of the maximum add to the model
    is linear in u. Which stages these are is found by repetition, from u = 1 on, where it is all of them.
    """
    operators = sorted({operator for stage in measured for group in stage for operator in group})
    column = {operator: number for number, operator in enumerate(operators)}
    shares = np.zeros((len(measured), len(operators)))
    longest, ratio = np.zeros(len(measured)), np.zeros(len(measured))
    for row, (stage, measured_ratio) in enumerate(measured.items()):
        sums = [sum(time_ms[operator] for operator in group) for group in stage]
        total = sum(sums)
        for operator in (operator for group in stage for operator in group):
            shares[row, column[operator]] += time_ms[operator] / total
        longest[row], ratio[row] = max(sums) / total, measured_ratio / total
    best = Contention()
    least = float(np.sum((1 - ratio) ** 2))
    for alpha in _ALPHAS[:-1]:
        utilization = _utilization(shares, longest, (ratio - alpha) / (1 - alpha))
        modeled = alpha + (1 - alpha) * np.maximum(shares @ utilization, longest)
        loss = float(np.sum((modeled - ratio) ** 2))
        if loss < least:
            least = loss
            best = Contention(alpha, dict(zip(operators, map(float, utilization), strict=True)))
    return best


def _utilization(shares: _Array, longest: _Array, target: _Array) -> _Array:
    """Utilizations in (0, 1] with shares @ u near the target, where that exceeds the longest group."""
    count = shares.shape[1]
    utilization = np.ones(count)
    for _ in range(_ITERATIONS):
        active = shares @ utilization >= longest
        rows, wanted = shares[active], target[active]
        normal = rows.T @ rows + _PRIOR * np.eye(count)
        after = np.linalg.solve(normal, rows.T @ wanted + _PRIOR * np.ones(count)).clip(_LEAST_UTILIZATION, 1.0)
        if np.array_equal(after, utilization):
            break
        utilization = after
    return utilization


def demands(session: Session, utilization: Mapping[str, float]) -> dict[str, Demand]:
    """What operators take of a device, by the FLOPs and bytes per millisecond of the probe; empty if it was not timed.

    Room is that of the kernels which were traced, otherwise what stages tell of utilization, by default all of it.
    """
    probe = session.profiled()
    if probe is None:
        return {}
    known = {operator.id: operator for operator in session.graph.operators}
    flop_ms = probe.speed.compute_ms.value / session.timer.probe_flops
    byte_ms = probe.speed.copy_ms.value / session.timer.probe_bytes
    traced = {name: session.timer.slots(asked) for name, asked in session.resources.items()}
    return {
        name: Demand.over(
            time_ms,
            (traced.get(name) or utilization.get(name, 1.0)) * time_ms,
            (known[name].flops or 0) * flop_ms,
            (known[name].bytes or 0) * byte_ms,
        )
        for name, time_ms in session.median_ms().items()
    }


def measure_corun(session: Session, deadline: float) -> None:
    """How much longer a network takes on a device while others run it too, for each number of devices."""
    network = [session.stand_in[session.graph.operators[number].id] for number in session.graph.order]
    session.load(Counter(network))
    most = session.timer.devices
    for devices in range(2, most + 1):
        share = (deadline - time.monotonic()) / (most + 1 - devices)
        effort = Effort(min(session.repeats, _CORUNS), time.monotonic() + share)
        what = {"operators": [session.digest[operator] for operator in network], **session.timer.ends(devices)}
        known = session.known("corun", what, effort)
        if known is None or not effort.is_settled(known.samples):
            known = _at_once(session, network, devices, effort)
        session.corun[devices] = known
        if is_precise(known.samples):  # otherwise other programs may have affected it
            session.cache.put("corun", what, known)


def _at_once(session: Session, network: list[str], devices: int, effort: Effort) -> Measured:
    """Ratios of inferences on all devices at once to inferences on one of them; the devices take turns."""
    alone_ms = sum(map(session.median_ms().__getitem__, network))

    def run(keys: list[int], rounds: int) -> dict[int, list[float]]:
        session.probe.take_if_due()
        ratios = [session.timer.corun(next(session.turns), devices, network, alone_ms) for _ in range(rounds)]
        return dict.fromkeys(keys, ratios)

    with Meter(effort.repeats, f"measuring {devices} devices at once", "runs", effort.deadline) as meter:
        samples = sample([devices], run, effort, meter)[devices]
    return Measured(samples, now())
