"""What makes a policy better than another: the worst-served model first; nobody starves by default."""

from __future__ import annotations

import random

import msgspec
import pytest

from hios.formats.scenario import Objective
from hios.formats.serving_result import ComparedPolicy, ModelOfCandidate
from hios.serving.objective import STARVED, order, worst_share
from hios.serving.scenario import Scenario
from hios.serving.simulate import simulate
from hios.serving.stage_times import fair_rates
from tests.serving.scenarios import scenario, served


def _candidate(name: str, *shares: float, work: float = 0.5, utilisation: float = 0.5) -> ComparedPolicy:
    models = {
        f"m{number}": ModelOfCandidate(goodput_per_s=100 * share, fair_share=share, mean_ms=10.0)
        for number, share in enumerate(shares)
    }
    goodput = sum(own.goodput_per_s for own in models.values())
    return ComparedPolicy(
        policy=name,
        goodput_per_s=goodput,
        p99_ms=20.0,
        models=models,
        good_work_share=work,
        queue_variance=1.0,
        utilisation=utilisation,
    )


def _best(objective: Objective | None, *candidates: ComparedPolicy) -> str:
    return candidates[order(candidates, objective)[0]].policy


def test_the_worst_served_model_comes_first() -> None:
    """Then goodput by work, then the 99th percentile; a hundredth of the worst share decides nothing."""
    even, uneven = _candidate("even", 0.8, 0.8, work=0.4), _candidate("uneven", 0.7, 1.0, work=0.9)
    assert _best("fair", uneven, even) == "even"
    assert _best("throughput", uneven, even) == _best(None, uneven, even) == "uneven"
    nearly = _candidate("nearly", 0.795, 0.9, work=0.5)
    assert _best("fair", even, nearly) == "nearly"
    quick = msgspec.structs.replace(nearly, policy="quick", p99_ms=10.0)
    assert _best("fair", nearly, quick, even) == _best("throughput", nearly, quick, even) == "quick"


def test_the_reward_of_the_paper() -> None:
    """Utilisation raises it, latency and variance of the queues lower it, whatever the models get."""
    busy, idle = _candidate("busy", 0.1, 0.1, utilisation=0.9), _candidate("idle", 1.0, 1.0, utilisation=0.2)
    long = msgspec.structs.replace(busy, policy="long", queue_variance=50.0)
    assert _best("reward", idle, long, busy) == "busy"
    assert _best("fair", idle, long, busy) == "idle"


def test_a_starving_candidate_is_last() -> None:
    """Whatever candidates there are, one that starves a model which another serves is chosen only if all do."""
    chance = random.Random(0)
    chosen_starving = 0
    for _ in range(500):
        own = [
            _candidate(str(n), *(chance.choice([0.0, 0.3, 0.6, 0.9, 1.0]) for _ in range(3)), work=chance.random())
            for n in range(4)
        ]
        shares = [[model.fair_share for model in (entry.models or {}).values()] for entry in own]
        starving = _starving(shares)
        best = order(own, "fair")[0]
        chosen_starving += starving[best]
        assert not starving[best] or all(starving)
    assert 0 < chosen_starving < 500


def _starving(shares: list[list[float]]) -> list[bool]:
    best = [max(column) for column in zip(*shares, strict=True)]
    return [any(share < STARVED * most for share, most in zip(row, best, strict=True)) for row in shares]


def test_a_hopeless_model_decides_nothing() -> None:
    """Where no candidate serves a model, the others are served as fairly as they would be without it."""
    greedy, even = _candidate("greedy", 0.0, 0.02, 0.98, work=0.62), _candidate("even", 0.0, 0.9, 0.9, work=0.60)
    assert _best("fair", greedy, even) == "even"
    high, low = _candidate("high", 0.0, 0.6, 0.9, work=0.5), _candidate("low", 0.0, 0.4, 0.9, work=0.6)
    assert _best("fair", low, high) == "high"  # neither starves a model
    chance = random.Random(1)
    for _ in range(300):
        rows = [([chance.choice([0.0, 0.3, 0.8, 0.9]) for _ in range(3)], chance.random()) for _ in range(4)]
        place = chance.randrange(4)
        without = [_candidate(str(n), *row, work=work) for n, (row, work) in enumerate(rows)]
        hopeless = [
            _candidate(str(n), *row[:place], 0.0, *row[place:], work=work) for n, (row, work) in enumerate(rows)
        ]
        assert order(hopeless, "fair") == order(without, "fair")
        starving = _starving([row for row, _ in rows])
        assert not starving[order(hopeless, "fair")[0]] or all(starving)


def _overloaded(seed: int, objective: Objective) -> Scenario:
    """A large and a small model that together ask for more than the lanes; one launcher holds the large one back."""
    large = served("large", [[30.0], [30.0]], 20.0, slo_ms=400.0, deadline_ms=300.0, interval_s=1.0)
    small = served("small", [[10.0]], 150.0, slo_ms=60.0, deadline_ms=50.0)
    return scenario(large, small, lanes=2, duration_s=2.0, seed=seed, launcher="auto", objective=objective)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("objective", "starves"), [("fair", False), ("throughput", True)])
def test_auto_starves_no_model(objective: Objective, starves: bool, seed: int) -> None:
    """Total throughput lets the large model starve, which another policy serves; the default objective does not."""
    result = simulate(_overloaded(seed, objective), "auto")
    candidates = [entry for entry in result.candidates if entry.left_out is None]
    shares = [{label: own.fair_share for label, own in (entry.models or {}).items()} for entry in candidates]
    assert (shares[0]["large"] < STARVED * max(own["large"] for own in shares)) is starves
    assert (worst_share(candidates[0]) >= 0.99 * max(map(worst_share, candidates))) is not starves


def test_fair_share_by_work() -> None:
    """Models share the lanes' time evenly; what one does not ask for is left to the others."""
    models = served("large", [[10.0]], 10.0), served("small", [[1.0]], 10.0), served("other", [[1.0]], 10.0)
    given = scenario(*models, lanes=1)
    assert fair_rates(given, [10.0, 100.0, 100.0]) == [10.0, 100.0, 100.0]
    assert fair_rates(given, [100.0, 100.0, 1000.0]) == pytest.approx([45.0, 100.0, 450.0])
    assert fair_rates(given, [0.0, 2000.0, 100.0]) == pytest.approx([0.0, 900.0, 100.0])


def test_the_share_in_a_result() -> None:
    """Goodput over the smaller of what was offered and the fair share, by hand: 50 of 50, and 50 of 100 in time."""
    left, right = served("left", [[10.0]], 60.0), served("right", [[10.0]], 60.0, slo_ms=5.0)
    result = simulate(scenario(left, right, lanes=1, duration_s=10.0, arrivals="periodic"), "sequential")
    time = result.duration_s
    assert result.models["left"].fair_share == min(1.0, result.models["left"].goodput / (50 * time))
    assert result.models["right"].fair_share == 0.0
    assert result.good_work_share == pytest.approx(0.01 * result.models["left"].goodput / time)
