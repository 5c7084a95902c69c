"""Progress bars of long measurements."""

from __future__ import annotations

import sys
from typing import Never

from tqdm import tqdm


def bar(total: int, what: str, unit: str) -> tqdm[Never]:
    """A progress bar with an estimate of the time left; redrawn seldom where it goes into a log."""
    return tqdm(total=total, desc=what, unit=unit, mininterval=0.1 if sys.stderr.isatty() else 2.0)
