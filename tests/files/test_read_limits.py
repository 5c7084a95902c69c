"""How much memory a library may take to read a file."""

from __future__ import annotations

import resource
import threading
from pathlib import Path

import pytest

from hios.errors import ArtifactError
from hios.files import read_limits


def _file(path: Path, size: int) -> Path:
    """A file of zeros that takes no room."""
    with path.open("wb") as stream:
        stream.truncate(size)
    return path


@pytest.mark.parametrize(("size", "most"), [(1, 1.0e9), (150_000_000, 1.0e9), (300_000_000, 1.8e9), (10**9, 2.0e9)])
def test_large_files_may_take_more_than_half_of_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, most: float
) -> None:
    """Six times their size, up to all of it."""
    monkeypatch.setattr(read_limits, "memory_bytes", lambda: 2 * 10**9)
    with read_limits.limited(_file(tmp_path / "file", size)) as allowed:
        assert allowed == most


def test_readers_at_once_leave_the_limit_as_it_was(tmp_path: Path) -> None:
    """The second begins after the first has ended."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    begun, entered, leave = threading.Event(), threading.Event(), threading.Event()

    def read() -> None:
        begun.set()
        with read_limits.limited(tmp_path):
            entered.set()
            leave.wait(300)

    other = threading.Thread(target=read)
    with read_limits.limited(tmp_path):
        other.start()
        assert begun.wait(300)
        assert not entered.wait(0.2)
    assert entered.wait(300)
    leave.set()
    other.join()
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_what_does_not_fit_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protobuf says the same of both; smaller ones are called damaged."""
    onnx_file = pytest.importorskip("hios.frontends.onnx_file", exc_type=ImportError)
    monkeypatch.setattr(read_limits, "memory_bytes", lambda: 300_000_000)
    with pytest.raises(ArtifactError, match=r"takes more than 0\.3 GB; the memory here is 0\.3 GB"):
        onnx_file.load(_file(tmp_path / "large.onnx", 110_000_000))
    with pytest.raises(ArtifactError, match="not an ONNX file, or cut off"):
        onnx_file.load(_file(tmp_path / "small.onnx", 1_000_000))
