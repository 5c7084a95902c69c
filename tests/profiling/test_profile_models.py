"""Models fitted to measurements: contention on one device, and the link between two."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from hios.platforms.timer import Stage
from hios.profiling import contention, transfers
from hios.profiling.contention import Contention

TIMES = {name: 1.0 + number for number, name in enumerate("abcdefgh")}
STAGES: list[Stage] = [
    *(((first,), (second,)) for first, second in combinations(TIMES, 2)),
    *(((first, second), (third,)) for first, second, third in combinations(TIMES, 3)),
]


def test_a_planted_model_is_found() -> None:
    """Stages that follow a model are predicted by the fitted one, those that it has not seen too."""
    planted = Contention(0.3, {name: 0.4 + 0.05 * number for number, name in enumerate(TIMES)})
    model = contention.fit({stage: planted.time_ms(stage, TIMES) for stage in STAGES}, TIMES)
    assert model.error is not None
    assert model.error.median <= model.error.p90 < 0.03
    assert model.error.stages == round(0.25 * len(STAGES))
    for stage in STAGES:
        assert model.time_ms(stage, TIMES) == pytest.approx(planted.time_ms(stage, TIMES), rel=0.1)
    assert 0 <= model.alpha < 1
    assert all(0 < utilization <= 1 for utilization in model.utilization.values())


def test_noise_is_no_gain() -> None:
    """Stages that take the sum of their operators, apart from noise, keep the plain model, with its error."""
    noise = random.Random(1)
    measured = {
        stage: sum(TIMES[name] for group in stage for name in group) * noise.gauss(1.0, 0.02) for stage in STAGES
    }
    model = contention.fit(measured, TIMES)
    assert (model.alpha, model.utilization) == (1.0, {})
    assert model.error is not None
    assert model.error.median == pytest.approx(0.0135, abs=0.008)


@pytest.mark.parametrize("count", [20, 30, 60])
@pytest.mark.parametrize("noise", [0.01, 0.03])
def test_noise_is_hardly_ever_a_gain(count: int, noise: float) -> None:
    """Of many graphs whose stages take the sum of their operators but for noise, few are fitted anything."""
    draw, cases = random.Random(0), 60
    fitted = sum(_fitted_alpha(draw, count, noise, Contention()) < 1 for _ in range(cases))
    assert fitted <= 0.05 * cases


def test_gains_are_seen_through_noise() -> None:
    """Of many graphs whose stages gain a quarter at most, noise hides the gain of few."""
    draw, cases = random.Random(0), 40
    planted = Contention(0.5, dict.fromkeys(TIMES, 0.5))
    fitted = sum(_fitted_alpha(draw, 60, 0.02, planted) < 1 for _ in range(cases))
    assert fitted >= 0.9 * cases


def _fitted_alpha(draw: random.Random, count: int, noise: float, planted: Contention) -> float:
    """What is fitted to some stages of operators of random length that follow a model but for noise."""
    times = {name: draw.uniform(0.2, 3.0) for name in TIMES}
    stages = draw.sample(STAGES, count)
    measured = {stage: planted.time_ms(stage, times) * draw.lognormvariate(0, noise) for stage in stages}
    return contention.fit(measured, times).alpha


def test_few_stages_tell_nothing() -> None:
    """With too few stages nothing is fitted and no error is claimed."""
    assert contention.fit(dict.fromkeys(STAGES[:19], 1.0), TIMES) == Contention()


def test_operators_without_time() -> None:
    """Stages of operators that take no time are fitted without an error."""
    times = dict.fromkeys(TIMES, 0.0)
    assert contention.fit(dict.fromkeys(STAGES, 0.0), times).alpha == 1.0


def test_a_link_is_found() -> None:
    """Transfers that follow latency and bandwidth give them back, without error."""
    link = transfers.fit_link({size: 0.005 + 8 * size / (40 * 1e6) for size in (0, 1024, 4096, 50_000, 1_000_000)})
    assert link is not None
    assert link.error is not None
    assert link.latency_ms == pytest.approx(0.005)
    assert link.bandwidth_gbps == pytest.approx(40)
    assert link.error.largest == pytest.approx(0, abs=1e-9)
    assert link.error.sizes == 4  # below 1 KB there is only latency


def test_residuals_are_of_the_fit() -> None:
    """A time that does not fit shows as the largest error, and leaves the median small."""
    times = {size: 0.005 + 8 * size / (40 * 1e6) for size in range(1024, 1_000_000, 10_000)}
    times[1024] *= 1.5
    link = transfers.fit_link(times)
    assert link is not None
    assert link.error is not None
    assert link.error.median < 0.05 < link.error.largest < 0.5


def test_latency_is_not_negative() -> None:
    """Times that grow faster than sizes have no latency."""
    link = transfers.fit_link({1024: 0.0001, 4096: 0.001, 16384: 0.01})
    assert link is not None
    assert link.latency_ms == 0
    assert link.bandwidth_gbps > 0


@pytest.mark.parametrize(
    "times", [{}, {1024: 1.0}, {1: 1.0, 2: 2.0}, {1024: 2.0, 2048: 1.0, 4096: 0.5}, {1024: 0.0, 2048: 0.0}]
)
def test_no_link(times: dict[int, float]) -> None:
    """Too few sizes, or times that fall with them, tell no bandwidth."""
    assert transfers.fit_link(times) is None


def test_ladder() -> None:
    """Sizes go from 1 KB to the largest edge; smaller graphs have none."""
    assert transfers.sizes_to_fit(10_000) == [1024, 4096, 10_000]
    assert transfers.sizes_to_fit(4096) == [1024, 4096]
    assert transfers.sizes_to_fit(1024) == transfers.sizes_to_fit(0) == []
