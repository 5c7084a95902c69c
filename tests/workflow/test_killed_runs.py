"""The real pipeline, killed in the middle of every stage: the same command again completes it, and nothing is lost.

Then the configuration asks for more: a schedule over ranks, and scenarios that also run, with a learned policy.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import yaml

from hios.files import artifacts
from hios.formats.run import Run
from hios.formats.serving_result import ResultFile
from hios.verify import verify
from tests.workers.processes import eventually, running
from tests.workflow import snakemake_server
from tests.workflow.conftest import Checkout
from tests.workflow.networks import OWN_NETWORK

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two devices need two cores"),
]

CONFIG = {
    "models": OWN_NETWORK,
    "devices": [1, 2],
    "algorithms": {"sequential": {}, "hios-lp": {}},
    "profile": {"repeats": 3, "budget": 0, "cache": False},
    "execute": {"runs": 3, "warmup": 1},
    "study": {"sessions": []},
}
#: What is asked for at last.
MORE = {
    "distribute": {"algorithms": ["hios-lp"]},
    "serving": {
        "policies": ["learned", "auto"],
        "loads": [0.1],
        "measure": True,
        "training": "small",
        "duration_s": 2,
    },
}
#: What each stage leaves.
ARTIFACTS = {
    "export": ["program.pt2"],
    "extract": ["graph.json", "weights.safetensors"],
    "profile": ["costs.json"],
    "schedule": ["schedules/*.json"],
    "execute": ["run.json"],
    "report": ["../report.html"],
}
#: What has a command or a worker that $HOLDS names wait until it is killed, and write its process ID into $HELD.
_HOLD = """


def _hold(*names):
    import os, sys, time

    if os.environ.get("HOLDS") in (names or sys.argv[1:2]):
        with open(os.environ["HELD"], "w") as file:
            file.write(str(os.getpid()))
        while True:
            time.sleep(1)
"""
#: Lines of hios after which they wait: a command once its first output is written, before that replaces what was there,
#: and a worker in a call.
_PLACES = {
    "hios/files/artifacts.py": ("        yield temporary\n", "        _hold()\n"),
    "hios/workers/worker.py": (
        '    module, _, function = name.partition(":")\n',
        '    _hold(f"worker {worker.number}")\n',
    ),
}
#: Seconds for whatever a run does, however busy the machine is.
_LONG_S = 600.0
#: Stage, who is killed in its middle, and how. Snakemake alone can end nobody; the group is all that a terminal runs.
KILLS = [
    ("export", "group", signal.SIGKILL),
    ("extract", "snakemake", signal.SIGKILL),
    ("profile", "command", signal.SIGKILL),
    ("profile", "group", signal.SIGINT),
    ("schedule", "group", signal.SIGKILL),
    ("execute", "worker", signal.SIGKILL),
    ("execute", "group", signal.SIGTERM),
    ("report", "group", signal.SIGKILL),
]


def _words(process: int) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().decode().split("\0")
    return []


def _inside(folder: Path) -> list[int]:
    """Processes whose current folder is this one."""
    pids = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):
                if (path / "cwd").readlink() == folder:
                    pids.append(int(path.name))
    return pids


def _let_wait(folder: Path) -> None:
    """Put `_HOLD` into the hios of a checkout."""
    for name, (line, more) in _PLACES.items():
        before, found, after = (folder / name).read_text(encoding="utf-8").partition(line)
        assert found
        definition, main, end = after.partition('\n\nif __name__ == "__main__":')
        (folder / name).write_text(f"{before}{line}{more}{definition}{_HOLD}{main}{end}", encoding="utf-8")


def _is_held(held: Path, snakemake: int) -> bool:
    """Whether a process waits in its middle, or never will."""
    return (held.is_file() and held.read_text() != "") or not running(snakemake)


def _finished(folder: Path, stage: str) -> dict[Path, int]:
    """When each artifact of the stages before one was written."""
    before = list(ARTIFACTS).index(stage)
    patterns = [pattern for patterns in list(ARTIFACTS.values())[:before] for pattern in patterns]
    files = [file for pattern in patterns for file in (folder / "results" / "net").glob(pattern)]
    assert len(files) >= len(patterns), files
    return {file: file.stat().st_mtime_ns for file in files}


def _kill(checkout: Checkout, stage: str, victim: str, number: signal.Signals) -> None:
    """Run the pipeline until the middle of a stage, and end it there; it leaves neither processes nor a traceback."""
    folder, log, held = checkout.path, checkout.path.parent / "log", checkout.path.parent / "held"
    held.unlink(missing_ok=True)
    here, holds = f"{stage}, {victim}, {number.name}", "worker 0" if victim == "worker" else stage
    with log.open("wb") as printed:
        environment = checkout.environment(HOLDS=holds, HELD=str(held))
        run = snakemake_server.start(["--cores", "2"], folder, environment, printed, own_group=True)
    try:
        assert eventually(partial(_is_held, held, run), _LONG_S), here
        assert running(run), f"{here}: {log.read_text()}"
        if victim == "group":
            os.killpg(run, number)
        else:
            os.kill(run if victim == "snakemake" else int(held.read_text()), number)
        assert eventually(lambda: not running(run), _LONG_S), here
    except BaseException:
        os.killpg(run, signal.SIGKILL)
        raise
    assert snakemake_server.wait() != 0, here
    text = log.read_text()
    assert "Traceback" not in text, f"{here}: {text}"
    if victim == "worker":
        assert "died by signal SIGKILL" in text, f"{here}: {text}"
    gone = eventually(lambda: not _inside(folder), _LONG_S)
    assert gone, f"{here}: {[_words(process) for process in _inside(folder)]}"


@dataclass(frozen=True)
class Completed:
    """A pipeline that was killed again and again, and was then completed.

    Args:
        checkout: where it ran.
        finished: when the artifacts that the kills left were written.
    """

    checkout: Checkout
    finished: dict[Path, int]

    @property
    def results(self) -> Path:
        """The folder of all artifacts."""
        return self.checkout.path / "results"


@pytest.fixture(scope="module")
def completed(new_checkout: Callable[..., Checkout], tmp_path_factory: pytest.TempPathFactory) -> Completed:
    """Every run goes on where the one before was; the last one, of the longer configuration, comes to its end."""
    checkout = new_checkout(tmp_path_factory.mktemp("killed") / "checkout", stand_in=False)
    folder, config = checkout.path, checkout.path / "config.yaml"
    checkout.add_own_network()
    config.write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
    module = folder / "hios" / "serving" / "calibrate.py"
    module.write_text(re.sub(r"^BUDGET_S = .*$", "BUDGET_S = 3.0", module.read_text(), flags=re.MULTILINE))
    _let_wait(folder)
    finished: dict[Path, int] = {}
    for stage, victim, number in KILLS:
        _kill(checkout, stage, victim, number)
        kept = _finished(folder, stage)
        assert {path: kept.get(path) for path in finished} == finished, (stage, victim, number)
        finished = kept
    config.write_text(yaml.safe_dump({**CONFIG, **MORE}), encoding="utf-8")
    checkout.succeed()
    return Completed(checkout, finished)


def test_nothing_is_lost(completed: Completed) -> None:
    """What was finished stays as it was, every artifact is right, and there is nothing to do."""
    assert {path: path.stat().st_mtime_ns for path in completed.finished} == completed.finished
    assert [problem for file in verify(completed.results) for problem in file.problems] == []
    assert completed.checkout.planned() == {}


def test_distributed_run(completed: Completed) -> None:
    """A schedule over two ranks of torchrun."""
    run = artifacts.load(completed.results / "net" / "distributed" / "run.json", Run)
    assert [result.label for result in run.results] == ["hios-lp-2"]
    assert (run.platform.transport, run.platform.devices, run.runs) == ("gloo", 2, 3)


def test_a_scenario_that_runs_is_calibrated_first(completed: Completed) -> None:
    """Predictions and the choice of auto rest on the calibration; auto compares what was learned."""
    served = {
        (kind, policy): artifacts.load(
            completed.results / "serving" / "networks" / kind / f"{policy}-0.1.json", ResultFile
        )
        for kind in ("simulated", "measured")
        for policy in ("learned", "auto")
    }
    for (kind, _), result in served.items():
        assert (result.simulated, result.calibrated) == (kind == "simulated",) * 2
        assert result.total.completed > 0
    for kind in ("simulated", "measured"):
        compared = {entry.policy for entry in served[kind, "auto"].candidates if entry.left_out is None}
        assert {"learned", "learned-static", "top", "one-per-lane"} <= compared
    # Both choose by the same simulations of other traces.
    assert served["simulated", "auto"].candidates == served["measured", "auto"].candidates
    page = (completed.results / "report.html").read_text(encoding="utf-8")
    assert "Predictions are calibrated" in page
