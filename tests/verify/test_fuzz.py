"""Every reader of data takes a file or refuses it in one short line, whatever is in it.

A document that is valid is changed at random, in its values, as text and as bytes. ``make fuzz`` tries a million, by
atheris where it installs (tests/verify/guided_fuzz.py).
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from hios import Schedule
from hios.errors import HiosError
from tests.verify import fuzzed_readers
from tests.verify.fuzzed_readers import Reader, changed

#: Files to try, over all readers; ``make fuzz`` sets it.
_FILES = int(os.environ.get("HIOS_FUZZ", "2500"))
#: Files of one example of hypothesis: it remembers examples, a million of them would fill the memory.
_OF_AN_EXAMPLE = 1 if _FILES < 100_000 else 100


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reader]:
    """All readers, with a document each."""
    return fuzzed_readers.readers(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.parametrize("name", fuzzed_readers.NAMES)
def test_whatever_is_in_a_file(readers: dict[str, Reader], tmp_path: Path, name: str) -> None:
    """Nothing but a `HiosError` of one short line comes out of a reader, and some changes do no harm."""
    reader = readers[name]
    path = tmp_path / f"file.{'yaml' if reader.yaml else 'json'}"
    taken = 0

    @settings(
        max_examples=max(_FILES // len(readers) // _OF_AN_EXAMPLE, 1),
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
        derandomize=_OF_AN_EXAMPLE == 1,
    )
    @given(seed=st.integers(0, 2**64 - 1))
    def check(seed: int) -> None:
        nonlocal taken
        chance = random.Random(seed)
        for _ in range(_OF_AN_EXAMPLE):
            data = changed(reader.document, chance, as_yaml=reader.yaml)
            try:
                taken += reader.check(path, data)
            except Exception as error:
                raise AssertionError(f"seed {seed}: {data[:3000]!r}") from error

    check()
    assert taken > 0  # the measure measures: some changes do no harm


@pytest.mark.parametrize(("key", "value"), [("devices", 10**15), ("device", 10**15), ("stream", 10**15)])
def test_sizes_are_limited_before_they_are_used(tmp_path: Path, key: str, value: int) -> None:
    """Numbers of devices and streams that no machine has are refused where they are read."""
    row = {"operator": "a", "device": 0, "stream": 0, "stage": None, "start_ms": 0, "finish_ms": 1}
    made = {"algorithm": "mine", "parameters": {}, "devices": 1, "latency_ms": 1, "lower_bound_ms": 0}
    made |= {"scheduling_time_s": 0, "placements": [row]}
    (made if key == "devices" else row)[key] = value
    (tmp_path / "schedule.json").write_text(json.dumps(made), encoding="utf-8")
    with pytest.raises(HiosError, match=f"{key}: found {value}; allowed: at most"):
        Schedule.read(tmp_path / "schedule.json")
