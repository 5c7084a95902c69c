"""What makes a policy better than another: for ``auto``, for what a training keeps, and for reports.

``fair``, the default, looks at the worst-served model first; total goodput alone would let a policy starve a model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hios.formats.scenario import Objective
from hios.formats.serving_result import ComparedPolicy, ModelOfCandidate, ResultFile

#: What is compared, in words.
WORDS: dict[Objective | None, str] = {
    "fair": "the worst-served model first, then the next ones, then goodput by work",
    "throughput": "tasks within their SLO",
    "reward": "the reward of TOP",
}
WORDS[None] = WORDS["throughput"]
#: A model starves below this part of the share that another policy gives it.
STARVED = 0.5
#: A model is served equally well by two policies within this part of its share; so are all tasks together.
_EQUALLY_FAIR, _EQUAL = 1e-2, 1e-3


def candidate_of(result: ResultFile) -> ComparedPolicy:
    """What is compared of a result; one of older files has no shares of its models."""
    time = result.duration_s * result.repeats
    models = {
        label: ModelOfCandidate(
            goodput_per_s=served.goodput / time, fair_share=served.fair_share, mean_ms=served.mean_ms
        )
        for label, served in result.models.items()
        if served.fair_share is not None
    }
    return ComparedPolicy(
        policy=result.policy,
        launcher=result.launcher,
        goodput_per_s=result.goodput_per_s,
        mean_ms=result.total.mean_ms,
        p99_ms=result.total.p99_ms,
        models=models or None,
        good_work_share=result.good_work_share,
        jain=result.jain,
        queue_variance=result.queue_variance,
        utilisation=result.utilisation,
    )


def worst_share(candidate: ComparedPolicy) -> float:
    """The share of the worst-served model; 1 where the shares are not known."""
    return min((own.fair_share for own in (candidate.models or {}).values()), default=1.0)


def by_model(rates: Mapping[str, float]) -> str:
    """Tasks per second of each model, in words."""
    return ", ".join(f"{label} {rate:.4g}" for label, rate in rates.items())


def evenness(jain: float | None, variance: float | None) -> str:
    """How evenly the models are served, in words; with `by_model` it stands beside every gain."""
    return f"Jain's index {jain:.3f}, variance {variance:.3g}"


def brief(candidate: ComparedPolicy) -> str:
    """How a candidate serves the models, in words: goodput of all and of each, the worst share, Jain's index."""
    goodput = f"{candidate.goodput_per_s:.4g} tasks/s"
    if not candidate.models:
        return goodput
    own = by_model({label: model.goodput_per_s for label, model in candidate.models.items()})
    even = evenness(candidate.jain, candidate.queue_variance)
    return f"{goodput} ({own}), worst-served model {worst_share(candidate):.1%}, {even}"


def order(candidates: Sequence[ComparedPolicy], objective: Objective | None) -> list[int]:
    """Positions of candidates for the same tasks, the best one first; none of them is left out.

    ``fair``: as `fair_keys` says. ``throughput``, or None: goodput. ``reward``: (2) of TOP, with z-scores over the
    candidates. Of equals, the one with the lowest 99th percentile, then the lowest mean latency, comes first.
    """
    if objective == "fair":
        keys = fair_keys(_shares(candidates), [own.good_work_share or own.goodput_per_s for own in candidates])
    elif objective == "reward":
        keys = [(-reward,) for reward in _rewards(candidates)]
    else:
        keys = _levelled([False] * len(candidates), [([own.goodput_per_s for own in candidates], _EQUAL)])
    return sorted(range(len(candidates)), key=lambda n: (*keys[n], *_times(candidates[n])))


def fair_keys(shares: Sequence[Sequence[float]], work: Sequence[float]) -> list[tuple[float, ...]]:
    """What to sort candidates by, the best one first, given the fair shares that each gives the models.

    Those that starve a model come last. Then the worst-served model counts, then the next one and so on, so that a
    model that nothing serves decides nothing; then goodput by work.
    """
    most = [max(column) for column in zip(*shares, strict=True)]
    starving = [any(share < STARVED * best for share, best in zip(own, most, strict=True)) for own in shares]
    columns = zip(*map(sorted, shares), strict=True)
    return _levelled(starving, [*((column, _EQUALLY_FAIR) for column in columns), (work, _EQUAL)])


def _levelled(late: Sequence[bool], columns: Sequence[tuple[Sequence[float], float]]) -> list[tuple[float, ...]]:
    """Keys of candidates: those that are late last, then the largest value of each column in turn.

    Values that are less by a column's part than the best one of those that lead so far, or above it, count as that.
    """
    leading = [number for number, own in enumerate(late) if own == min(late)]
    keys: list[Sequence[float]] = [late]
    for values, equal in columns:
        best = max((values[number] for number in leading), default=0.0)
        keys.append([-best if value >= best * (1 - equal) else -value for value in values])
        leading = [number for number in leading if keys[-1][number] == -best]
    return list(zip(*keys, strict=True))


def _shares(candidates: Sequence[ComparedPolicy]) -> list[list[float]]:
    """The shares of all models in each candidate; 1 where they are not known."""
    labels = dict.fromkeys(label for entry in candidates for label in entry.models or {})
    own = [{label: model.fair_share for label, model in (entry.models or {}).items()} for entry in candidates]
    return [[shares.get(label, 1.0) for label in labels] for shares in own]


def _times(candidate: ComparedPolicy) -> tuple[float, float]:
    p99_ms, mean_ms = candidate.p99_ms, candidate.mean_ms
    return math.inf if p99_ms is None else p99_ms, math.inf if mean_ms is None else mean_ms


def _rewards(candidates: Sequence[ComparedPolicy]) -> list[float]:
    """The launcher's reward (2) of TOP for each candidate."""
    import numpy as np

    from hios.serving.launcher.rewards import Scores, rewards

    latencies = [[model.mean_ms for model in (own.models or {}).values()] for own in candidates]
    # A model of which nothing is completed counts as slow as the slowest.
    slowest = max((mean for row in latencies for mean in row if mean is not None), default=0.0)
    measures = np.array(
        [
            [own.utilisation or 0.0, *(slowest if mean is None else mean for mean in row), own.queue_variance or 0.0]
            for own, row in zip(candidates, latencies, strict=True)
        ]
    )
    return [float(row[0]) for row in rewards(Scores.of(measures).normalized(measures, 0.0))]
