"""Published instances are found, downloaded whole, or missed with a message that says what to do."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from benchmarks import published_data
from benchmarks.networks import RANDWIRE_FILES


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of two files, which are the expected ones."""
    folder = tmp_path / "server"
    folder.mkdir()
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text(name)
    expected = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("a.txt", "b.txt")}
    monkeypatch.setattr(published_data, "RANDWIRE_SHA256", expected)
    return f"{folder.as_uri()}/"


def test_every_file_of_randwire_has_a_checksum() -> None:
    """What is downloaded is what the benchmark's network reads."""
    assert tuple(published_data.RANDWIRE_SHA256) == RANDWIRE_FILES


def test_download(server: str, tmp_path: Path) -> None:
    """All files are written under their names."""
    published_data.fetch_randwire(tmp_path / "randwire", server)
    assert {file.name: file.read_text() for file in (tmp_path / "randwire").iterdir()} == {
        "a.txt": "a.txt",
        "b.txt": "b.txt",
    }


def test_another_file_is_refused(server: str, tmp_path: Path) -> None:
    """A file with another checksum is refused by name, and nothing is written."""
    (tmp_path / "server" / "b.txt").write_text("other")
    with pytest.raises(ValueError, match=r"b\.txt: SHA-256 is [0-9a-f]{64}, expected"):
        published_data.fetch_randwire(tmp_path / "randwire", server)
    assert not (tmp_path / "randwire").exists()


def test_a_missing_file_is_refused(server: str, tmp_path: Path) -> None:
    """A file that cannot be downloaded is an OSError, and nothing is written."""
    (tmp_path / "server" / "b.txt").unlink()
    with pytest.raises(OSError, match=r"b\.txt"):
        published_data.fetch_randwire(tmp_path / "randwire", server)
    assert not (tmp_path / "randwire").exists()


def test_missing_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says where the set was looked for and how to get it."""
    monkeypatch.setenv("HIOS_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=f"'randwire' not found in {tmp_path}: `make data` downloads it"):
        published_data.data_folder("randwire")
    (tmp_path / "randwire").mkdir()
    assert published_data.data_folder("randwire") == tmp_path / "randwire"
