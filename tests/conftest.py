"""Settings of all tests."""

import atexit
import collections
import faulthandler
import gc
import math
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Nothing is timed in tests: imports, compilation and busy neighbors would fail them at random.
settings.register_profile("hios", deadline=None)
settings.load_profile("hios")

# Measurements of tests are no measurements for anyone else, processes that tests start included.
os.environ["HIOS_CACHE"] = tempfile.mkdtemp(prefix="hios-tests-")
atexit.register(shutil.rmtree, os.environ["HIOS_CACHE"], ignore_errors=True)

# What processes of pytest-xdist prepare once for all of them (tests/frontends/small_networks.py).
if "HIOS_TESTS_SHARED" not in os.environ:
    os.environ["HIOS_TESTS_SHARED"] = tempfile.mkdtemp(prefix="hios-tests-shared-")
    atexit.register(shutil.rmtree, os.environ["HIOS_TESTS_SHARED"], ignore_errors=True)

# Two threads of BLAS wait for each other where other processes of tests use the cores: ten times slower.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# So do threads of torch that spin while they wait: they take the cores that the others need to get there.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# A shell starts what it runs in the background with Ctrl-C ignored, and its children inherit that; tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """More processes than cores: tests wait for processes that they start, and for time-outs, a fifth of their time."""
    return math.ceil(1.25 * len(os.sched_getaffinity(0)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The scheduler of ``--dist loadfile``."""
    from tests.distribution import Files  # pytest-xdist is not everywhere

    return Files(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_sessionstart(session: pytest.Session) -> None:
    """A process of pytest-xdist that crashes leaves where it was in a file."""
    if process := getattr(session.config, "workerinput", {}).get("workerid"):
        from tests.distribution import trace

        folder = Path(os.environ["HIOS_TESTS_SHARED"])
        faulthandler.enable(trace(folder, process).open("w", encoding="utf-8"))  # open as long as the process runs


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(report: pytest.TestReport) -> None:
    """A test that ended its process fails with how that ended: a native library, a test, or a lack of memory."""
    from tests.distribution import ending

    report.longrepr = f"{report.longrepr}: {ending(report.node, Path(os.environ['HIOS_TESTS_SHARED']))}"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run in several processes that ended before all tests had fails; whether it did is noted for `.ci/run`."""
    processes = session.config.pluginmanager.getplugin("dsession")
    if processes is None:
        return
    scheduler, ended = processes.sched, session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    is_complete = ended and scheduler is not None and bool(scheduler.collection) and not scheduler.has_pending
    if session.config.pluginmanager.hasplugin("cacheprovider"):
        session.config.cache.set("hios/complete", is_complete)
    if session.exitstatus == pytest.ExitCode.OK and not is_complete:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


#: Files that take longest, the longest first: begun last, one of them would keep a process at work while others wait.
LONGEST = (
    "workflow/test_killed_runs.py",
    "workflow/test_slurm.py",
    "runtime/test_distributed.py",
    "frontends/test_extract_models.py",
    "optimizing/test_optimize_choice.py",
    "runtime/test_hosts.py",
    "workflow/test_top_example.py",
    "platforms/cuda/test_sessions.py",
    "serving/test_load.py",
    "serving/test_server.py",
    "frontends/test_networks.py",
    "optimizing/test_optimize.py",
    "report/test_page_size.py",
    "workflow/test_dry_run.py",
    "test_api.py",
    "platforms/cpu/test_cpu_segments.py",
    "runtime/test_failures.py",
    "optimizing/test_dynamo.py",
    "frontends/test_onnx_file.py",
    "optimizing/test_background.py",
    "platforms/cpu/test_engine.py",
    "runtime/test_wide.py",
    "profiling/test_cached.py",
    "serving/test_server_faults.py",
    "runtime/test_devices.py",
    "optimizing/test_known_differences.py",
    "platforms/cuda/test_cuda_segments.py",
    "workflow/test_prediction_rules.py",
    "runtime/test_session.py",
    "runtime/test_baselines.py",
    "report/test_report.py",
    "workflow/test_figure_rules.py",
    "workflow/test_run.py",
    "optimizing/test_cached_start.py",
    "serving/launcher/test_launcher_training.py",
    "workers/test_pool.py",
    "study/test_figures.py",
    "frontends/test_torch_converters.py",
    "frontends/test_opaque_calls.py",
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """``-m gpu`` imports only files with such tests: the others may need what a machine with GPUs lacks."""
    if config.option.markexpr == "gpu" and collection_path.name.startswith("test_"):
        return True if "gpu_marker" not in collection_path.read_text(encoding="utf-8") else None
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest first: processes take files in this order."""
    place = {Path(__file__).parent / file: number for number, file in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: the garbage collector, which takes half a second for them, leaves them out."""
    gc.collect()
    gc.freeze()


#: How reasons of skips begin where something is not at hand; what their tests check is not checked on such a machine.
_MISSING = ("needs ", "published data", "no CUDA device", "no Slurm", "no PMIx", "no file system", "/etc/slurm")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in the last lines what was not checked, as it needs what this machine lacks: skips are easily overlooked."""
    reasons = collections.Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple) and report.longrepr[2].removeprefix("Skipped: ").startswith(_MISSING)
    )
    if reasons:
        terminalreporter.section("not checked on this machine", yellow=True)
        for reason, count in sorted(reasons.items()):
            terminalreporter.line(f"{count} test{'s' * (count > 1)}: {reason}")
