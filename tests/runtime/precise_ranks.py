"""hios as a rank; timed runs of rank 1 are off by a share, as if it alone had TF32: ``precise_ranks.py SHARE ...``.

Times of operators are recorded in runs apart, as on GPUs.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hios.cli import main
from hios.frontends.tolerances import TF32
from hios.platforms.cpu import distributing
from hios.workers.worker import Worker

_SHARE = float(sys.argv.pop(1))


class _Core(distributing.Core):
    """A core whose operators are that far off, unless full precision is asked for."""

    reduced, precise = TF32, False

    @contextmanager
    def exactly(self) -> Iterator[None]:  # type: ignore[override]
        """A context of full precision."""
        self.precise = True
        yield
        self.precise = False

    def load(self, worker: Worker, *given: Any) -> None:
        """As always, and worse."""
        super().load(worker, *given)
        operators = worker.state["operators"]
        for name, operator in operators.items():
            operators[name] = dataclasses.replace(operator, run=self._rounded(operator.run))

    def _rounded(self, run: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *values: run(*values) * (1 if self.precise else 1 + _SHARE)


if __name__ == "__main__":
    distributing.Core.apart = True
    if os.environ["RANK"] == "1":
        distributing.Core = _Core  # type: ignore[misc]
    main()
