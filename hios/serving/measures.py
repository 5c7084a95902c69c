"""Outcome of the tasks of a scenario: counts, percentiles with confidence, fairness, utilisation.

Simulated and real executions hand in the same `RepeatOutcome`, one for each repeat.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from hios.core.sums import add_up
from hios.formats.serving_result import ResultFile, ServedResult
from hios.machine.statistics import LEAST_ROUNDS, Interval
from hios.serving.scenario import Scenario, settings_of, slos_ms
from hios.serving.stage_times import bound_per_s, fair_rates, least_works_s

#: Resamples of the bootstrap, and the share that each end of the interval leaves out.
_RESAMPLES, _LEFT_OUT = 2000, 0.025
#: The estimate of LoadGen's early stopping misses the percentile with at most this probability.
_MISS = 0.01
#: What is counted of tasks.
_COUNTS = ("offered", "completed", "dropped", "expired", "failed", "waiting", "in_flight")


@dataclass
class Tally:
    """What became of the tasks of one model in one repeat, up to its end.

    Attributes:
        dropped: that a full queue turned away or pushed out.
        expired: whose deadline passed in the queue.
        latencies_ms: of the completed tasks, from their scheduled arrival, in the order of completion.
        queued_s: integral over time of the number of tasks in the queue, seconds.
        present_s: integral over time of the number of tasks in the queue or in flight, seconds.
    """

    offered: int = 0
    dropped: int = 0
    expired: int = 0
    failed: int = 0
    waiting: int = 0
    in_flight: int = 0
    latencies_ms: list[float] = field(default_factory=list)
    queued_s: float | None = None
    present_s: float | None = None

    @property
    def completed(self) -> int:
        """Tasks that were answered."""
        return len(self.latencies_ms)

    @property
    def unaccounted(self) -> int:
        """Tasks that arrived and are not accounted for; anything but 0 is an error."""
        left = self.waiting + self.in_flight
        return self.offered - self.completed - self.dropped - self.expired - self.failed - left


@dataclass
class RepeatOutcome:
    """One repeat of a scenario under a policy.

    Attributes:
        tallies: by the models of the scenario in their order.
        busy_s: time that lanes were busy, all lanes together, seconds.
        queue_variance: mean over time of the population variance of the lengths of the queues.
        promoted: runs that went first as they had waited longer than ``max_wait_ms``.
        block_runs: blocks that ran, an instance each.
    """

    tallies: list[Tally]
    busy_s: float
    queue_variance: float
    promoted: int = 0
    block_runs: int = 0


def result(
    scenario: Scenario, policy: str, launcher: str, outcomes: Sequence[RepeatOutcome], *, simulated: bool, **more: Any
) -> ResultFile:
    """The contents of result.json, from an outcome for every repeat.

    ``more`` are further keys of ``ResultFile``, such as what only a real run knows.
    """
    repeats, lanes = len(outcomes), scenario.lanes
    time = scenario.duration_s * repeats
    by_model = [[outcome.tallies[number] for outcome in outcomes] for number in range(len(scenario.models))]
    slos = slos_ms(scenario)
    offered = [sum(tally.offered for tally in tallies) / time for tallies in by_model]
    models = {}
    for model, tallies, slo, fair in zip(scenario.models, by_model, slos, fair_rates(scenario, offered), strict=True):
        served = _served([[tally] for tally in tallies], [slo], scenario.duration_s, model.settings.queue)
        share = min(1.0, served.goodput / (fair * time)) if fair else 1.0
        models[model.label] = msgspec.structs.replace(served, fair_share=share)
    works = list(zip(least_works_s(scenario), models.values(), strict=True))
    return ResultFile(
        policy=policy,
        launcher=launcher,  # type: ignore[arg-type]
        simulated=simulated,
        **{**settings_of(scenario), "repeats": repeats},
        utilisation=min(1.0, add_up(outcome.busy_s for outcome in outcomes) / (lanes * time)),
        models=models,
        total=_served([outcome.tallies for outcome in outcomes], slos, scenario.duration_s),
        queue_variance=add_up(outcome.queue_variance for outcome in outcomes) / repeats,
        jain=jain([row.completed / row.offered for row in models.values() if row.offered]),
        work_share=add_up(least_s * served.completed for least_s, served in works) / (lanes * time),
        good_work_share=add_up(least_s * served.goodput for least_s, served in works) / (lanes * time),
        bound_per_s=bound_per_s(scenario, offered),
        promoted=sum(outcome.promoted for outcome in outcomes) or None,
        block_runs=sum(outcome.block_runs for outcome in outcomes) or None,
        **more,
    )


def _served(
    repeats: Sequence[Sequence[Tally]], slos: Sequence[float], duration_s: float, queue: int | None = None
) -> ServedResult:
    """Counts and latencies of some models together, from a row for each repeat with a tally for each model."""
    tallies = [tally for row in repeats for tally in row]
    by_repeat = [sorted(latency for tally in row for latency in tally.latencies_ms) for row in repeats]
    latencies = sorted(latency for row in by_repeat for latency in row)
    good = [
        float(sum(latency <= slo for tally, slo in zip(row, slos, strict=True) for latency in tally.latencies_ms))
        for row in repeats
    ]
    time = duration_s * len(repeats)
    queued, present = [tally.queued_s for tally in tallies], [tally.present_s for tally in tallies]
    return ServedResult(
        **{name: sum(getattr(tally, name) for tally in tallies) for name in _COUNTS},
        goodput=int(sum(good)),
        p50_ms=percentile(latencies, 0.5),
        p90_ms=percentile(latencies, 0.9),
        p99_ms=percentile(latencies, 0.99),
        mean_ms=add_up(latencies) / len(latencies) if latencies else None,
        p99_bound_ms=early_stopping_estimate(latencies),
        goodput_interval=bootstrap(good),
        p50_interval_ms=_interval_of(by_repeat, 0.5),
        p99_interval_ms=_interval_of(by_repeat, 0.99),
        mean_waiting=None if None in queued else add_up(filter(None, queued)) / time,
        mean_in_system=None if None in present else add_up(filter(None, present)) / time,
        queue=queue,
    )


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """The smallest value that at least this share of the values does not exceed, as LoadGen has it; None of none."""
    if not ordered:
        return None
    # Rounding first: 0.99 * 100 is more than 99 in floating point.
    return ordered[max(0, math.ceil(round(share * len(ordered), 9)) - 1)]


def early_stopping_estimate(ordered: Sequence[float], share: float = 0.99) -> float | None:
    """A value that the percentile does not exceed, with a probability of 99 %: LoadGen's early stopping.

    With t the largest number of tasks for which at most t of n would be above the true percentile with a probability
    of at most 1 %, it is the t-th largest of the latencies, which ascend. Below 662 tasks there is no such t of at
    least 1 for the 99th percentile, and no estimate.

    References:
        MLCommons, LoadGen, ``early_stopping.cc``; its rules, "Early Stopping Criterion".
    """
    over = most_over(len(ordered), share)
    return ordered[len(ordered) - over] if over >= 1 else None


def most_over(count: int, share: float = 0.99) -> int:
    """The largest t for which P(at most t of ``count`` exceed the percentile) is at most 1 %; -1 if there is none."""
    above, log_below = 1 - share, math.log(share)
    log_above, total = math.log(above), 0.0
    whole = math.lgamma(count + 1)
    for over in range(count + 1):
        ways = whole - math.lgamma(over + 1) - math.lgamma(count - over + 1)
        total += math.exp(ways + over * log_above + (count - over) * log_below)
        if total > _MISS:
            return over - 1
    return count


def bootstrap(values: Sequence[float]) -> Interval | None:
    """95 % interval of the mean over repeats (Efron's percentile bootstrap); None below six repeats.

    The draws depend on the number of repeats alone, so the same values give the same interval.
    """
    if len(values) < LEAST_ROUNDS:
        return None
    draw = random.Random(0)
    means = sorted(add_up(draw.choices(values, k=len(values))) / len(values) for _ in range(_RESAMPLES))
    left_out = round(_LEFT_OUT * _RESAMPLES)
    return means[left_out], means[-1 - left_out]


def _interval_of(repeats: Sequence[Sequence[float]], share: float) -> Interval | None:
    """Interval of a percentile; None where a repeat completed nothing."""
    values = [percentile(row, share) for row in repeats]
    known = [value for value in values if value is not None]
    return bootstrap(known) if len(known) == len(values) else None


def jain(shares: Sequence[float]) -> float:
    """Jain's fairness index, (sum x)^2 / (n sum x^2): 1 where all are equal, 1/n where one has all.

    References:
        Jain, Chiu, Hawe: A Quantitative Measure of Fairness, DEC-TR-301 (1984).
    """
    squares = add_up(share * share for share in shares)
    return min(1.0, add_up(shares) ** 2 / (len(shares) * squares)) if squares > 0 else 1.0


def variance(lengths: Sequence[float]) -> float:
    """Population variance of the lengths of the queues (TOP's sigma)."""
    mean = add_up(lengths) / len(lengths)
    return add_up((length - mean) ** 2 for length in lengths) / len(lengths)
