"""JSON files by key in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hios import HiosError
from hios.files.json_cache import JsonCache

KEY = {"of": ("a", 1)}


def _value(entry: Any) -> int:
    return int(entry["value"])


def test_entries_come_back(tmp_path: Path) -> None:
    """An entry is found by its key, tuples as lists, and by no other."""
    JsonCache(tmp_path / "made", "").put(KEY, {"value": 3})
    cache = JsonCache(tmp_path / "made", "")
    assert cache.get({"of": ["a", 1]}, _value) == 3
    assert cache.get({"of": ("a", 2)}, _value) is None


@pytest.mark.parametrize(
    "text", ["", "[]", '{"key": {"of": ["a", 1]}}', '{"key": {"of": []}, "value": 3}', "[" * 10**6]
)
def test_damaged_entries_are_absent_and_replaced(text: str, tmp_path: Path) -> None:
    """A file that is not an entry of its key is not used, and the next entry takes its place."""
    cache = JsonCache(tmp_path, "")
    cache.put(KEY, {"value": 3})
    (file,) = tmp_path.rglob("*.json")
    assert json.loads(file.read_text()) == {"key": {"of": ["a", 1]}, "value": 3}
    file.write_text(text)
    assert cache.get(KEY, _value) is None
    cache.put(KEY, {"value": 4})
    assert cache.get(KEY, _value) == 4
    assert list(tmp_path.rglob("*.json")) == [file]


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    """A file in the place of the folder is refused when the cache is opened."""
    (tmp_path / "file").touch()
    with pytest.raises(HiosError, match="file is not a folder that may be written"):
        JsonCache(tmp_path / "file", "")


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an entry cannot be written, the message has the file, the reason and what to do, and nothing is left."""

    def write_bytes(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    cache = JsonCache(tmp_path, "choose another folder")
    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    with pytest.raises(HiosError, match=r"\.json: cannot be written: No space left on device; choose another folder"):
        cache.put(KEY, {"value": 3})
    assert list(tmp_path.rglob("*.json")) == []
