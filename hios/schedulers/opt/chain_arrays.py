"""What chains of simulated annealing over stages and over operators have in common: arrays and temperatures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hios.problem import Problem
from hios.schedulers.opt.search_kernel.shared_moves import DEVICE, EDGE

#: Temperatures at the beginning and at the end, in mean times of an operator; chosen by measurement.
_HOTTEST, _COLDEST = 0.2, 0.001
#: Operators timed between two looks at the clock, roughly: a few milliseconds.
_SLICE = 1_000_000


def temperature_ms(problem: Problem, progress: float) -> float:
    """The temperature at a progress between 0 (hottest) and 1; beyond 0 it is hotter still."""
    return sum(problem.time) / len(problem) * _HOTTEST * float((_COLDEST / _HOTTEST) ** progress)


def moves_at_once(problem: Problem) -> int:
    """Moves between two looks at the clock."""
    return max(1, _SLICE // len(problem))


def edges_of(operators: Any, problem: Problem) -> tuple[Any, Any]:
    """Arrays of all edges by consumer and by producer; sets where those of each operator begin.

    Args:
        operators: n+1 records with the fields ``first_input`` and ``first_output``.
        problem: graph and costs.
    """
    operators["first_input"][1:] = _ends(problem.predecessors)
    operators["first_output"][1:] = _ends(problem.successors)
    return tuple(  # type: ignore[return-value]
        np.array([pair for row in rows for pair in row], EDGE) for rows in (problem.predecessors, problem.successors)
    )


def _ends(rows: Sequence[Sequence[Any]]) -> Any:
    return np.cumsum([len(row) for row in rows])


def devices_of(count: int) -> Any:
    """An array of devices."""
    return np.zeros(count, DEVICE)


def first_random(seed: int) -> int:
    """The state in which random numbers begin: any but 0 will do; neighboring seeds are set far apart."""
    return (seed * 0x9E3779B97F4A7C15 + 0xD1B54A32D192ED03) % 2**64 or 1
