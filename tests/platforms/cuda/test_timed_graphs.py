"""Arithmetic of chains: how long they are, what their times say, how many copies they go through."""

from __future__ import annotations

import pytest

from hios.platforms.cuda.timed_graphs import MOST, TARGET_MS, bytes_for_copies, copies_of, runs_of_chain, time_of_run


@pytest.mark.parametrize("each_ms", [0.0005, 0.001, 0.0067, 0.05, 0.2, 0.3, 20.0])
def test_chains_are_long_enough_and_no_longer(each_ms: float) -> None:
    """A chain takes as long as it should, with as few runs as that needs."""
    runs = runs_of_chain(each_ms)
    assert runs * each_ms >= TARGET_MS * (1 - 1e-9)
    assert runs == 1 or (runs - 1) * each_ms < TARGET_MS


@pytest.mark.parametrize(
    ("nbytes", "cache", "expected"), [(0, 1 << 20, 40), (1 << 10, 1 << 14, 40), (1 << 10, 1 << 16, 65)]
)
def test_long_chains_read_more_than_the_cache_holds(nbytes: int, cache: int, expected: int) -> None:
    """K is what the time needs, or what the cache holds and one more."""
    assert runs_of_chain(TARGET_MS / 40, nbytes, cache) == expected
    assert runs_of_chain(TARGET_MS / 40, 1, 1 << 30) == MOST


@pytest.mark.parametrize("each_ms", [0.0, 1e-9, TARGET_MS / MOST / 2])
def test_chains_end_somewhere(each_ms: float) -> None:
    """What takes no time, or nearly none, has a chain of bounded length."""
    assert runs_of_chain(each_ms) == MOST


def test_the_start_of_a_graph_does_not_count() -> None:
    """Two chains that take a constant beside their runs give the time of a run without it."""
    assert time_of_run(0.010 + 40 * 0.005, 0.010 + 80 * 0.005, 40) == pytest.approx(0.005)


def test_times_are_positive() -> None:
    """Noise where nothing runs is no negative time, and not 0, which ratios could not be taken of."""
    assert 0 < time_of_run(0.0102, 0.0098, 512) < 1e-5


@pytest.mark.parametrize(
    ("wanted", "needed", "bytes_each", "limit", "expected"),
    [
        (80, 1, 1_000, 1_000_000, 80),  # a copy for every run
        (80, 1, 100_000, 1_000_000, 10),  # as many as fit
        (80, 1, 3_000_000, 1_000_000, 1),  # one in any case
        (80, 3, 3_000_000, 1_000_000, 3),  # as many as run side by side in any case
        (2, 5, 1_000, 1_000_000, 5),
        (80, 1, 0, 100, 80),  # without weights and inputs
    ],
)
def test_copies(wanted: int, needed: int, bytes_each: int, limit: int, expected: int) -> None:
    """There are as many copies as wanted where memory allows, and as many as needed whatever they take."""
    assert copies_of(wanted, needed, bytes_each, limit) == expected


def test_copies_share_half_of_the_memory() -> None:
    """All copies of all operators on all devices of a GPU take half of what is free at most."""
    assert bytes_for_copies(free=16_000, devices=2, operators=40) == 100
    assert bytes_for_copies(free=16_000, devices=1, operators=0) == 8_000
