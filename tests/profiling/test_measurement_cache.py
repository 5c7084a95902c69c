"""The cache of measurements."""

from __future__ import annotations

import contextlib
import json
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hios.core.drift import Estimate, Speed
from hios.platforms.cpu.environment import cache_bytes, settings
from hios.profiling.cache import Cache, Measured, default_folder, now
from tests.refusals import refused

MEASURED = Measured([1.0, 1.5, 1.25], "2025-01-02T03:04:05Z")
SETTINGS = {"processor": "one", "code": "abc"}


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_entries_come_back(tmp_path: Path) -> None:
    """What was kept comes back as it was, marked as cached, also to another process's cache, tuples as keys too."""
    Cache(tmp_path, SETTINGS).put("stage", [("a", "b"), ("c",)], MEASURED)
    entry = Cache(tmp_path, SETTINGS).get("stage", [["a", "b"], ["c"]])
    assert entry == Measured(MEASURED.samples, MEASURED.measured_at, cached=True)


def test_speed_of_the_session_is_kept(tmp_path: Path) -> None:
    """An entry is read with the machine speed that it was written with; if that is damaged, there is no entry."""
    speed = Speed(Estimate(1.5, 1.25, 1.75), Estimate(1.0, 1.0, 1.0))
    Cache(tmp_path, SETTINGS).put("operator", "conv", replace(MEASURED, speed=speed))
    kept = Cache(tmp_path, SETTINGS).get("operator", "conv")
    assert kept is not None
    assert kept.speed == speed
    (file,) = _files(tmp_path)
    entry = json.loads(file.read_text())
    for wrong in (None, {}, {**entry["speed"], "copy_ms": {"value": "1", "low": 1, "high": 1}}, {"compute_ms": 1}):
        file.write_text(json.dumps({**entry, "speed": wrong}))
        assert Cache(tmp_path, SETTINGS).get("operator", "conv") is None


def test_entries_of_other_keys_are_not_found(tmp_path: Path) -> None:
    """Another kind, signature or setting is another entry."""
    Cache(tmp_path, SETTINGS).put("operator", "conv", MEASURED)
    assert Cache(tmp_path, SETTINGS).get("operator", "relu") is None
    assert Cache(tmp_path, SETTINGS).get("merge", "conv") is None
    for name in SETTINGS:
        assert Cache(tmp_path, {**SETTINGS, name: "other"}).get("operator", "conv") is None


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"key": ',
        b'{"key": {}, "samples": [1.0], "measured_at": "2025-01-02T03:04:05Z"}',
        *(
            json.dumps({"samples": samples, "measured_at": at}).encode()
            for samples, at in [
                ([], MEASURED.measured_at),
                (["1"], MEASURED.measured_at),
                ([-1.0], MEASURED.measured_at),
                ([float("nan")], MEASURED.measured_at),
                ([True], MEASURED.measured_at),
                ([1.0], "yesterday"),
                ([1.0], 5),
                (1.0, MEASURED.measured_at),
            ]
        ),
    ],
)
def test_damaged_entries_are_measured_anew(damaged: bytes, tmp_path: Path) -> None:
    """What is not an entry of this key counts as absent, and the next measurement takes its place."""
    cache = Cache(tmp_path, SETTINGS)
    cache.put("operator", "conv", MEASURED)
    (file,) = _files(tmp_path)
    key = json.loads(file.read_text())["key"]
    with contextlib.suppress(ValueError, TypeError):
        damaged = json.dumps({"key": key, **json.loads(damaged)}).encode()
    file.write_bytes(damaged)
    assert cache.get("operator", "conv") is None
    cache.put("operator", "conv", MEASURED)
    assert cache.get("operator", "conv") is not None
    assert _files(tmp_path) == [file]


def test_cached_entries_are_not_written_again(tmp_path: Path) -> None:
    """What came from the cache keeps its date."""
    cache = Cache(tmp_path, SETTINGS)
    cache.put("operator", "conv", Measured([2.0], "2025-01-02T03:04:05Z", cached=True))
    assert _files(tmp_path) == []


def test_no_folder_keeps_nothing() -> None:
    """Without a folder nothing is found and nothing written."""
    cache = Cache(None, SETTINGS)
    cache.put("operator", "conv", MEASURED)
    assert cache.get("operator", "conv") is None


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    """A file in the place of the folder is refused before anything is measured, in one line."""
    (tmp_path / "file").touch()
    with refused("", "file is not a folder that may be written"):
        Cache(tmp_path / "file", SETTINGS)


def _write(folder: Path, number: int) -> int:
    cache = Cache(folder, SETTINGS)
    whole = 0
    for _ in range(50):
        cache.put("operator", "conv", Measured([float(number)] * 100, MEASURED.measured_at))
        entry = cache.get("operator", "conv")
        whole += entry is not None and len(entry.samples) == 100 and len(set(entry.samples)) == 1
    return whole


def test_several_processes_share_a_folder(tmp_path: Path) -> None:
    """Processes that write and read one entry at once never see half of one."""
    with ProcessPoolExecutor(4) as pool:
        assert list(pool.map(_write, [tmp_path] * 4, range(4))) == [50] * 4
    assert len(_files(tmp_path)) == 1


def test_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """HIOS_CACHE counts, then an absolute XDG_CACHE_HOME, then ~/.cache."""
    monkeypatch.setenv("HIOS_CACHE", "/a")
    assert default_folder() == Path("/a/measurements")
    monkeypatch.delenv("HIOS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert default_folder() == Path("/b/hios/measurements")
    monkeypatch.setenv("HOME", str(tmp_path))
    for ignored in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert default_folder() == tmp_path / ".cache/hios/measurements"


def test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key names processor, versions and code; variables that change kernels change it, the number of cores not."""
    core = min(os.sched_getaffinity(0))
    before: dict[str, Any] = settings([[core]])
    assert before["processor"]["name"]
    assert before["torch"]
    assert before["code"]
    assert settings([[core], [core]]) == before
    assert settings([[core, core]]) != before
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert settings([[core]]) != before
    assert json.loads(json.dumps(before)) == before


def test_cache_size_of_the_machine() -> None:
    """The size is that of a processor's cache, or 0 where the system does not tell."""
    assert 0 <= cache_bytes(min(os.sched_getaffinity(0))) < 1 << 32


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("hios.platforms.cpu.environment.metadata.version", lambda package: "0.0"),
        ("hios.platforms.cpu.environment.platform.release", lambda: "another kernel"),
        ("hios.platforms.cpu.environment.platform.python_version", lambda: "3.99"),
        ("hios.platforms.cpu.environment.processor", lambda: "another processor"),
        ("hios.platforms.cpu.environment.quota", lambda: 0.25),
        ("hios.platforms.cpu.environment._processor_fields", lambda: {"microcode": "0xff"}),
        ("hios.platforms.cpu.environment._caches", lambda cores: ["3 Unified 1K"]),
        ("hios.platforms.cpu.environment.system_text", lambda path: "1" if path.name == "no_turbo" else "powersave"),
        ("hios.platforms.cpu.environment.code_hash", lambda modules: "edited"),
    ],
)
def test_what_changed_makes_measurements_stale(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str, value: object
) -> None:
    """After a change of library, device, clock or code, nothing that was kept is found."""
    core = min(os.sched_getaffinity(0))
    before = Cache(tmp_path, settings([[core]]))
    before.put("operator", "a", Measured([1.0], now()))
    assert before.get("operator", "a") is not None
    monkeypatch.setattr(place, value)
    assert Cache(tmp_path, settings([[core]])).get("operator", "a") is None
