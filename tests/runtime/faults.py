"""What tests do to operators inside workers."""

from __future__ import annotations

import dataclasses
import os
import time
from typing import Any

from hios.platforms.worker import Worker


def spoil(worker: Worker, operator: str, how: str) -> None:
    """Have an operator fail, hang, or end its process, in programs that are prepared from now on."""
    operators = worker.state["operators"]

    def run(*_: Any) -> None:
        if how == "hang":
            time.sleep(600)
        elif how == "die":
            os._exit(3)
        raise ValueError("no such kernel\nsecond line")

    operators[operator] = dataclasses.replace(operators[operator], run=run)
