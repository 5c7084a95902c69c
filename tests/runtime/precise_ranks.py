"""hios as a rank whose timed runs are off by a share, as they are in TF32: ``python precise_ranks.py SHARE ...``."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hios.cli import main
from hios.frontends.tolerances import TF32
from hios.platforms.cpu import distributing
from hios.workers.worker import Worker

_SHARE = float(sys.argv.pop(1))


class _Core(distributing.Core):
    """A core whose first operator is that far off, unless full precision is asked for."""

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
        name, operators = worker.state["graph"].operators[0].id, worker.state["operators"]
        run = operators[name].run

        def rounded(*values: Any) -> Any:
            return run(*values) * (1 if self.precise else 1 + _SHARE)

        operators[name] = dataclasses.replace(operators[name], run=rounded)


if __name__ == "__main__":
    distributing.Core = _Core  # type: ignore[misc]
    main()
