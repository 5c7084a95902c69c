"""Progress bars."""

from __future__ import annotations

import re

import pytest

from hios.machine.terminal import bar


def test_a_bar_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """What is done, how much of it, in which unit, for how long and for how much longer."""
    with bar(4, "measuring 2 operators", "runs") as progress:
        progress.update(4)
    printed = capsys.readouterr().err
    assert re.search(r"measuring 2 operators 100% \|\S{20}\| 4 of 4 runs, \d\d:\d\d so far, 00:00 left\s*$", printed), (
        printed
    )
