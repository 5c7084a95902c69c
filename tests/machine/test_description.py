"""What hios says of the machine, and progress bars."""

from __future__ import annotations

import mmap
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hios.machine import description
from hios.machine.terminal import bar
from hios.platforms.cpu.devices import describe
from hios.report.results import hardware


def test_usable_cores_are_those_of_the_process() -> None:
    """Every core that the process may use is listed once."""
    assert sorted(description.usable_cores()) == sorted(os.sched_getaffinity(0))


def test_busy_core_is_seen() -> None:
    """A core that another process keeps busy is busy for most of the time."""
    core = description.usable_cores()[-1]
    code = f"import os\nos.sched_setaffinity(0, {{{core}}})\nprint(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        share = description.busy_share([core])
        other.kill()
    assert share > 0.5


def test_ticks_of_a_process() -> None:
    """Its user and system time, as its own clock has them; none of a process that is not there."""

    def used() -> int:
        times = os.times()
        return round((times.user + times.system) * os.sysconf("SC_CLK_TCK"))

    before = used()
    assert before <= description._ticks_of(os.getpid()) <= used()
    assert description._ticks_of(0) == 0


def test_what_workers_used_before_is_not_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a worker that runs already only later work counts as that of this process, of one that starts all of it."""
    total, idle, ticks = 5000, 3000, {7: 900}
    monkeypatch.setattr(description, "_STATISTICS", Path(__file__))
    monkeypatch.setattr(description, "_times", lambda cores: (total, idle))
    monkeypatch.setattr(description, "_ticks_of", lambda pid: ticks[pid])
    monkeypatch.setattr(description.os, "times", lambda: os.times_result((0.0,) * 5))  # type: ignore[attr-defined]
    others = description.OtherWork([0], [7])
    total, idle, ticks = total + 100, idle + 20, {7: 930, 8: 10}
    assert others.share([7, 8]) == 0.4


_TWO, _ONE = "30 23 0:28 {root} {folder} rw - cgroup2 cgroup rw", "31 23 0:29 {root} {folder} rw - cgroup cgroup {own}"


@pytest.mark.parametrize(
    ("mount", "root", "groups", "files", "expected"),
    [
        # On the machine itself the groups around count, of which none, some or all have a quota; the root has no file.
        (_TWO, "/", "0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "150000 100000"}, 1.5),
        (_TWO, "/", "0::/a/b", {"a/b/cpu.max": "50000 100000", "a/cpu.max": "150000 100000"}, 0.5),
        (_TWO, "/", "0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "max 100000", "c/cpu.max": "1 9"}, None),
        # In a container, whose own group is the root of what it sees, or is named as on the machine.
        (_TWO, "/", "0::/", {"cpu.max": "200000 100000"}, 2.0),
        (_TWO, "/pod/one", "0::/pod/one", {"cpu.max": "200000 100000"}, 2.0),
        (_TWO, "/../..", "0::/../../elsewhere", {"cpu.max": "200000 100000"}, 2.0),
        # Version 1, alone and with an empty version 2 beside it.
        (_ONE, "/", "0::/a\n4:cpu,cpuacct:/a", {"a/cpu.cfs_quota_us": "70000", "a/cpu.cfs_period_us": "100000"}, 0.7),
        (_ONE, "/", "4:cpu,cpuacct:/a", {"a/cpu.cfs_quota_us": "-1", "a/cpu.cfs_period_us": "100000"}, None),
        ("", "/", "", {}, None),
    ],
)
def test_quotas_of_all_groups_around(
    mount: str, root: str, groups: str, files: dict[str, str], expected: float | None, tmp_path: Path
) -> None:
    """The smallest of a group's and of those that it is nested in, as far as they are mounted."""
    mounts = [mount.format(root=root, folder=tmp_path / "mounted", own=own) for own in ("rw,cpu,cpuacct", "rw,memory")]
    lines = ["20 1 8:1 / / rw shared:1 - ext4 /dev/root rw", *filter(None, mounts)]
    (tmp_path / "mountinfo").write_text("\n".join(lines))
    (tmp_path / "cgroup").write_text(groups)
    for name, text in files.items():
        (tmp_path / "mounted" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mounted" / name).write_text(f"{text}\n")
    assert description.quota(tmp_path) == expected
    assert description.quota(tmp_path / "none") is None


def test_governor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The governors of the cores in use, each once; none where the system has no clock rates to set."""
    monkeypatch.setattr(description, "_CPUS", tmp_path)
    assert description.governor([0, 1]) is None
    for core, name in enumerate(["powersave", "performance", "performance", "schedutil"]):
        folder = tmp_path / f"cpu{core}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(f"{name}\n")
    assert description.governor([1, 2]) == "performance"
    assert description.governor([0, 1, 2]) == "performance, powersave"


def test_measurements_state_the_governor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The description of the platform in costs.json and run.json, and the report, name it."""
    monkeypatch.setattr(description, "governor", lambda cores: f"that of {len(cores)} core")
    described = describe(1)
    assert described.governor == "that of 1 core"
    assert hardware(described)["Frequency governor"] == "that of 1 core"


def test_processor_has_a_name() -> None:
    """The processor is named for the report."""
    assert description.processor()


def test_memory_that_was_written() -> None:
    """It is part of what a process has for itself, and grows with what it writes."""
    before = description.private_bytes(os.getpid(), written=True)
    assert 0 < before <= description.private_bytes(os.getpid())
    # New memory, as what Python allocates may be what it has written before.
    with mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
        held.write(bytes([1]) * (64 << 20))
        assert description.private_bytes(os.getpid(), written=True) - before > 48 << 20
    assert description.private_bytes(0, written=True) == 0


def test_a_bar_is_a_sentence(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done, how much of it, in which unit, for how long and for how much longer."""
    monkeypatch.delenv("COLUMNS", raising=False)  # at which older versions of tqdm cut it
    with bar(4, "measuring 2 operators", "runs") as progress:
        progress.update(4)
    printed = capsys.readouterr().err
    assert re.search(r"measuring 2 operators 100% \|\S{20}\| 4 of 4 runs, \d\d:\d\d so far, 00:00 left\s*$", printed), (
        printed
    )
