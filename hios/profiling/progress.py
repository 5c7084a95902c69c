"""Progress bars of long measurements."""

from __future__ import annotations

import sys
from typing import Never

from tqdm import tqdm


def bar(total: int, what: str, unit: str) -> tqdm[Never]:
    """A progress bar with an estimate of the time left; redrawn seldom where it goes into a log.

    Args:
        total: how many units there are.
        what: what is being done, such as ``measuring 42 operators``.
        unit: what is counted, in the plural.
    """
    return tqdm(
        total=total,
        desc=what,
        unit=unit,
        bar_format="{desc} {percentage:3.0f}% |{bar:20}| {n_fmt} of {total_fmt} {unit}, {elapsed} so far, "
        "{remaining} left",
        mininterval=0.1 if sys.stderr.isatty() else 2.0,
    )
