"""No small file makes a reader take gigabytes: it is refused in one line, in a process that could not have them."""

from __future__ import annotations

import pytest

from tests.scripts import printed


@pytest.mark.parametrize("part", ["light", pytest.param("programs", marks=pytest.mark.slow)])
def test_bombs(part: str) -> None:
    """Each of tests/verify/bombs.py, apart from pytest and its threads, as it forks."""
    if part == "programs":
        pytest.importorskip("torch")
        pytest.importorskip("onnx", reason="needs the extra onnx")
    lines = printed("-m", "tests.verify.bombs", part).splitlines()
    assert len(lines) > 5
    assert not [line for line in lines if line.startswith("WRONG")]
