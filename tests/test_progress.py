"""Progress bars."""

from __future__ import annotations

import pytest

from hios.progress import bar


def test_a_bar_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """What is done, how much of it, in which unit, for how long and for how much longer."""
    with bar(4, "measuring 2 operators", "runs") as progress:
        progress.update(4)
    last = capsys.readouterr().err.split("\r")[-1].strip()
    assert last.startswith("measuring 2 operators 100% |")
    assert last.endswith("| 4 of 4 runs, 00:00 so far, 00:00 left")
