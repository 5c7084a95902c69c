"""auto: the policy that is best on traces that it is not judged by."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from hios.errors import HiosError
from hios.formats.serving_result_file import Candidate
from hios.serving.measures import Outcome
from hios.serving.policies import policies_of
from hios.serving.scenario import Scenario

#: Repeats that no result is made of, as their numbers are larger than any that a scenario asks for.
HELD_OUT = range(1_000_000, 1_000_003)
#: Goodput within this share of the best counts as equal; then the mean latency decides.
_EQUAL = 1e-3


def compare(
    scenario: Scenario, run: Callable[[str, Sequence[int]], list[Outcome]], names: Iterable[str] | None = None
) -> list[Candidate]:
    """All policies on held-out traces, best first: by tasks within their SLO, of equals by mean latency.

    Arrivals from a file are the same in every repeat: then nothing is held out.

    Args:
        scenario: what is offered.
        run: gives the outcomes of a policy, one for each of the repeats.
        names: of the policies; if None all, those of a trained launcher included where the scenario names one.

    Raises:
        HiosError: no policy can run the scenario.
    """
    candidates, left_out = [], []
    for name in policies_of(scenario) if names is None else names:
        try:
            candidates.append(_candidate(scenario, name, run(name, HELD_OUT)))
        except HiosError as error:
            left_out.append(Candidate(policy=name, goodput_per_s=0.0, left_out=str(error)))
    if not candidates:
        raise HiosError(f"{scenario.source}: policy auto: no policy can run this; {left_out[0].left_out}")
    best = max(entry.goodput_per_s for entry in candidates)
    return sorted(candidates, key=lambda entry: order_key(entry.goodput_per_s, entry.mean_ms, best)) + left_out


def order_key(goodput_per_s: float, mean_ms: float | None, best_per_s: float) -> tuple[float, float]:
    """What policies are sorted by, the best one first."""
    goodput = best_per_s if goodput_per_s >= best_per_s * (1 - _EQUAL) else goodput_per_s
    return -goodput, math.inf if mean_ms is None else mean_ms


def _candidate(scenario: Scenario, name: str, outcomes: Sequence[Outcome]) -> Candidate:
    slos = [math.inf if model.settings.slo_ms is None else model.settings.slo_ms for model in scenario.models]
    timed = [
        (latency, slo)
        for outcome in outcomes
        for tally, slo in zip(outcome.tallies, slos, strict=True)
        for latency in tally.latencies_ms
    ]
    good = sum(latency <= slo for latency, slo in timed)
    mean = sum(latency for latency, _ in timed) / len(timed) if timed else None
    return Candidate(policy=name, goodput_per_s=good / (scenario.duration_s * len(outcomes)), mean_ms=mean)
