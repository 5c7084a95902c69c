"""Sums of floats that are the same on every Python, to the last digit."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Iterable

#: Adds from left to right and rounds each time, as compiled searches do. So did `sum` before Python 3.12, which
#: compensates for rounding; one last digit is enough for another schedule among equal ones.
add_up: Callable[[Iterable[float]], float] = (
    sum if sys.version_info < (3, 12) else lambda values: functools.reduce(operator.add, values, 0)
)
#: A gain below this share is rounding in floating point, not a gain.
ROUNDING = 1e-12
