"""Schedules over the ranks of real launchers: torchrun and mpirun, two and three ranks on this host."""

from __future__ import annotations

import ctypes
import math
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from hios import Graph, Schedule
from hios.core.schedule import Plan, StagedPlan, StreamPlan
from hios.errors import PlatformError
from hios.files import artifacts
from hios.machine import description
from hios.runtime.distributed import transports
from hios.runtime.distributed.control_channel import ProgressState, RankPlace, shared
from hios.runtime.distributed.monitor import RankMonitor, longest_silent
from hios.runtime.distributed.rank_runner import Peers, Tags
from tests.frontends.small_networks import Files, Model, write_files, write_network
from tests.gpu_marker import needs_two_gpus, requires_gpu
from tests.runtime.conftest import DEVICES
from tests.runtime.schedules import random_plan, random_streams, random_wide, schedule_of, write_schedules
from tests.runtime.small import Amplifying, alternating, branches
from tests.scripts import ROOT, python
from tests.workers.processes import eventually, running

RANKS = ROOT / "tests" / "runtime" / "ranks.py"
#: Seconds after which a rank that hangs is given up; less where one does, though enough for one that only is slow.
TIMEOUT_S, SHORT_TIMEOUT_S = 300, 60


def _over(transport: str, *more: object, marks: Iterable[pytest.MarkDecorator] = ()) -> Any:
    """Parameters of a test over a transport; `make test` starts some combinations, `make test-all` all of them."""
    missing = pytest.mark.skipif(
        transport == "mpi" and (shutil.which("mpirun") is None or find_spec("mpi4py") is None),
        reason="mpirun or mpi4py is not there: hios[mpi]",
    )
    return pytest.param(transport, *more, marks=(missing, *marks))


_SLOW = (pytest.mark.slow,)
TRANSPORTS = [_over("gloo"), _over("mpi")]


def _launcher(transport: str, ranks: int) -> list[str]:
    if transport == "gloo":
        return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return ["mpirun", *root, "--oversubscribe", "-n", str(ranks), sys.executable]


def _command(
    transport: str, ranks: int, files: Files, schedule: Path, *more: object, program: Iterable[object] = ("-m", "hios")
) -> list[str]:
    return [
        *_launcher(transport, ranks),
        *map(str, program),
        "distribute",
        *map(str, (files.graph, files.weights, schedule)),
        *("--transport", transport, "--output", str(schedule.parent / "run.json"), "--runs", "2", "--warmup", "1"),
        *map(str, more),
    ]


def _start(command: list[str], **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
            **environment,
        },
        start_new_session=True,
    )


def _run(command: list[str], **environment: str) -> tuple[int, str]:
    with _start(command, **environment) as launcher:
        printed, _ = launcher.communicate(timeout=600)
    return launcher.returncode, printed


def _finished(command: list[str], schedule: Path) -> tuple[dict[str, Any], str]:
    """run.json of a command that comes to its end, and what it prints."""
    code, printed = _run(command)
    assert code == 0, printed
    return artifacts.read(schedule.with_name("run.json"), "run"), printed


def _failed(command: list[str], schedule: Path) -> str:
    """The only line of errors of a command that fails, and writes nothing."""
    code, printed = _run(command)
    assert code != 0
    (line,) = [line for line in printed.splitlines() if line.startswith(("Error", "Aborted"))]
    assert not schedule.with_name("run.json").exists()
    return line


def _ranks_of(schedule: Path) -> list[int]:
    """Processes that run a schedule, launchers left out."""
    pids = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and running(int(path.name)):
            try:
                words = (path / "cmdline").read_bytes().split(b"\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if str(schedule).encode() in words:
                pids.append(int(path.name))
    return pids


def _written(graph: Graph, plan: Plan, folder: Path) -> Path:
    return write_schedules(folder, graph, {"random": plan})[0]


@pytest.fixture(scope="module")
def small_files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """A network of four operators."""
    return write_network(tmp_path_factory.mktemp("branches"), branches())


@pytest.fixture
def small_schedule(tmp_path: Path) -> Path:
    """Its operators in turn on two ranks."""
    return _written(branches().graph, alternating(), tmp_path)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_squeezenet_equals_eager(files: Files, graph: Graph, tmp_path: Path, transport: str) -> None:
    """Outputs are those of eager PyTorch; run.json says who ran where, and has a row for every operator.

    The time-out is longer than sockets and queues can wait. Over Gloo, every rank has two cores if there are two, and
    as many threads.
    """
    plan, each = random_plan(graph, 2, seed=2), DEVICES if transport == "gloo" else 1
    schedule = _written(graph, plan, tmp_path)
    command = _command(transport, 2, files, schedule, "--program", files.program, "--timeout", 1e15)
    run, printed = _finished([*command, "--cores-per-device", str(each)], schedule)
    platform = run["platform"]
    assert platform["cores_per_device"] == each
    assert all(len(own) == each for own in platform["cores"])
    assert [reference["threads"] for reference in run["references"]] == [each]
    assert (platform["transport"], platform["devices"], len(platform["hosts"])) == (transport, 2, 2)
    assert platform["clocks"] == "shared"
    assert platform["virtual"] or len({core for own in platform["cores"] for core in own}) >= 2
    assert platform["allocation"]["cores"] == sorted(os.sched_getaffinity(0))  # not those that a rank is pinned to
    assert run["checked_against"] == "eager"
    (result,) = run["results"]
    assert 0 <= result["largest_difference"] < 1e-3  # outputs are up to 460 in size
    expected = {row.operator: (row.device, row.stage, row.stream) for row in schedule_of(graph, plan).placements}
    at = {row["operator"]: row for row in result["measured"]}
    assert {name: (row["device"], row["stage"], row["stream"]) for name, row in at.items()} == expected
    for edge in graph.edges:
        assert at[edge.source]["finish_ms"] <= at[edge.target]["start_ms"]
    assert "sequential on one device" in printed
    assert "2 independent copies (ceiling)" in printed
    assert ("virtual devices: times say little" in printed) == platform["virtual"]
    assert all(entry["kind"] != "engine" for entry in run["references"])  # no device has the cores of all ranks


def _branches(_: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Two inputs, two outputs, a truth value and a value without elements that cross ranks."""
    a, b = torch.relu(x), torch.sigmoid(y)
    c, empty = a > 0.5, torch.relu(x[:, :0])
    return torch.where(c, a + b, a * b), torch.cat([empty, a, b], 1)


def _deeper(model: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    for _ in range(3):
        x, both = _branches(model, x, y)
        y = both[:, :3] * both[:, 3:]
    return x, y


@pytest.mark.slow
def test_ranks_on_other_hardware(small_files: Files, small_schedule: Path) -> None:
    """A schedule of rank 0's hardware is refused where another rank has other hardware."""
    here = description.processor()
    replace(Schedule.read(small_schedule), hardware=here).write(small_schedule)
    command = _command("gloo", 2, small_files, small_schedule, program=(RANKS, "elsewhere", "There 2"))
    error = f"Error: {small_schedule}: hardware: found costs of {here}; allowed: {here}, There 2, the hardware here"
    assert _failed(command, small_schedule).startswith(error)


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_branches_without_a_program(tmp_path: Path, transport: str) -> None:
    """Operators on ranks in turn, one stream a rank, and on random ones: outputs are those of the sequential schedule.

    Over Gloo, only the order of messages identifies values, as in NCCL, and rank 1 has other hardware than the one that
    schedules are for: where asked, they run, and that is told.
    """
    files = write_files(tmp_path, Model(_deeper), (torch.randn(1, 3, 8, 8), torch.randn(1, 3, 8, 8)))
    graph, here = Graph.read(files.graph), description.processor()
    rows = tuple((tuple(graph.order[place::3]),) for place in range(3))
    plans: dict[str, Plan] = {"turns": StreamPlan(rows, tuple(graph.order))}
    plans |= {f"random-{seed}": random_plan(graph, 3, seed) for seed in range(3)}
    schedules = write_schedules(tmp_path, graph, plans)
    for schedule in schedules:
        replace(Schedule.read(schedule), hardware=here).write(schedule)
    is_other = transport == "gloo"
    program = (RANKS, "ordered", "elsewhere", "There 2") if is_other else ("-m", "hios")
    command = _command(transport, 3, files, schedules[0], *schedules[1:], "--other-hardware", program=program)
    run, printed = _finished(command, schedules[0])
    assert run["checked_against"] == "sequential"
    assert {result["label"]: result["largest_difference"] for result in run["results"]} == dict.fromkeys(plans, 0.0)
    assert (run["platform"]["devices"], len(run["platform"]["hosts"])) == (3, 3)
    assert "3 independent copies (ceiling)" in printed
    there = f"{here}, There 2" if is_other else here
    assert (run.get("profiled_on"), run["platform"]["processor"]) == (here if is_other else None, there)
    assert (f"were measured on {here}, its schedules ran on {there}" in printed) == is_other


def test_ranks_run_segments(tmp_path: Path) -> None:
    """What a rank runs between two hand-overs is one call of a runtime; outputs are those of eager PyTorch."""
    files = write_files(tmp_path, Model(_branches), (torch.randn(1, 3, 8, 8), torch.randn(1, 3, 8, 8)))
    graph = Graph.read(files.graph)
    halves = [graph.order[place::2] for place in range(2)]
    plan = StreamPlan(tuple((tuple(half),) for half in halves), tuple(graph.order))
    schedule = _written(graph, plan, tmp_path)
    command = _command("gloo", 2, files, schedule, "--program", files.program, "--engine", "segments")
    run, _ = _finished(command, schedule)
    assert (run["engine"], run["checked_against"]) == ("segments", "eager")
    (result,) = run["results"]
    assert 0 <= result["largest_difference"] <= run["tolerance"]
    assert {row["operator"] for row in result["measured"]} == set(graph.index)
    ran = result["segments"]
    for rank, half in enumerate(halves):
        own = {name for segment in ran if segment["device"] == rank for name in segment["operators"]}
        assert own == {graph.operators[operator].id for operator in half}
    assert all(min(own["latency_ms"], key=own["latency_ms"].get) == own["runtime"] for own in ran)
    (whole,) = run["baseline"]["segments"]
    assert set(whole["operators"]) == set(graph.index)
    installed = {name for name in ("onnxruntime", "openvino") if find_spec(name)}
    assert installed <= {*whole["latency_ms"], *whole.get("refused", ())}


@pytest.mark.slow
def test_less_precise_runs_are_checked_once_in_full(small_files: Files, small_schedule: Path) -> None:
    """Where a rank is timed in TF32, the difference stated is that of a run in full float32; more than 2 % is wrong.

    Where recording slows runs down, as there, operators' times are those of a run after the timed ones.
    """
    at = {placement.operator: placement.device for placement in Schedule.read(small_schedule).placements}
    assert at[branches().graph.operators[-1].id] == 1  # makes the output
    command = _command("gloo", 2, small_files, small_schedule, "--program", small_files.program)
    place = command.index("-m", command.index("torch.distributed.run"))
    worse = [*command[:place], str(RANKS.with_name("precise_ranks.py")), "0.3", *command[place + 2 :]]
    error = r"Error: rank 1 on \S+: .+: output 0 differs from the reference by up to \S+; allowed: 0\.02 of its "
    assert re.match(rf"{error}largest value, in TF32$", _failed(worse, small_schedule))
    worse[place + 1] = "0.0002"
    run, _ = _finished(worse, small_schedule)
    (result,) = run["results"]
    assert 0 <= result["largest_difference"] < 1e-3
    assert {row["operator"] for row in result["measured"]} == set(Graph.read(small_files.graph).index)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="the engine computes as eager PyTorch does")
@pytest.mark.parametrize("tolerance", [1e-4, pytest.param(1e-5, marks=_SLOW)])
def test_a_model_that_amplifies_rounding_runs(tmp_path: Path, tolerance: float) -> None:
    """What rounding explains is allowed on every rank, and run.json states it; a stricter tolerance is meant."""
    torch.manual_seed(0)  # whichever tests ran before: the weights decide how large the difference is
    files = write_files(tmp_path, Amplifying(), (torch.randn(64, 512),))
    graph = Graph.read(files.graph)
    first, *others = (((operator,),) for operator in graph.order)
    schedule = _written(graph, StagedPlan(((first,), tuple(others))), tmp_path)
    command = _command("gloo", 2, files, schedule, "--program", files.program, "--tolerance", tolerance)
    if tolerance < 1e-4:
        assert re.match(
            r"Error: rank 0 on \S+: sequential on one device: output 0 differs from the reference by up to \S+; "
            "allowed: 1e-05 absolute plus relative$",
            _failed(command, schedule),
        )
        return
    run, printed = _finished(command, schedule)
    (result,) = run["results"]
    assert {row["device"] for row in result["measured"]} == {0, 1}
    assert 1e-4 < result["largest_difference"] <= run["rounding"] <= 1e-2
    assert "which rounding explains" in printed


@pytest.mark.parametrize(("breaks_s", "error"), [(math.inf, TimeoutError), (1e-3, ConnectionError)])
def test_gloo_waits_until_the_deadline(
    monkeypatch: pytest.MonkeyPatch, breaks_s: float, error: type[Exception]
) -> None:
    """Torch takes whole milliseconds, and raises one error for all: at the deadline, none says that a rank is gone."""
    now_s = [0.0]
    monkeypatch.setattr(transports, "time", SimpleNamespace(monotonic=lambda: now_s[0]))

    def wait(longest: timedelta) -> None:
        now_s[0] += min(longest // timedelta(milliseconds=1) / 1e3, breaks_s)
        raise RuntimeError("the message did not come")

    with pytest.raises(error):
        transports.GlooRequest(SimpleNamespace(wait=wait)).wait(0.0125004)


@pytest.mark.parametrize("launcher", [_over("mpi")])
def test_an_mpi_without_cuda_is_refused_on_gpus(launcher: str) -> None:
    """One line says so, and what to do, before it reads the address of a GPU as one of its own."""
    program = """
import torch
from hios.errors import PlatformError
from hios.runtime.distributed.transports import connect
torch.cuda.is_initialized = lambda: True
try:
    connect("mpi", "cuda", 60.0).channel(0.0)
except PlatformError as error:
    print(error, flush=True)
"""
    code, printed = _run([*_launcher(launcher, 1), "-c", program])
    assert code == 0
    assert re.search(
        r"(?m)^transport mpi: Open MPI .* is built without CUDA .*; start the ranks with torchrun", printed
    )


@pytest.mark.parametrize(("answer", "aware"), [(1, True), (0, False), (None, True)])
def test_an_mpi_is_asked_for_cuda(monkeypatch: pytest.MonkeyPatch, answer: int | None, aware: bool) -> None:
    """What it answers counts; one that cannot be asked is believed."""
    library = SimpleNamespace(**{} if answer is None else {"MPIX_Query_cuda_support": lambda: answer})
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    assert transports.is_cuda_aware("libmpi.so") == aware


@requires_gpu
@needs_two_gpus
@pytest.mark.parametrize("seed", range(3))
def test_ranks_with_gpus(files: Files, graph: Graph, tmp_path: Path, seed: int) -> None:
    """Over NCCL, with a GPU a rank, outputs are those of eager PyTorch, and every operator has its time."""
    plan = random_plan(graph, 2, seed=seed)
    schedule = _written(graph, plan, tmp_path)
    command = _command("gloo", 2, files, schedule, "--program", files.program)
    command[command.index("--transport") + 1] = "nccl"
    run, _ = _finished([*command, "--platform", "cuda"], schedule)
    assert (run["platform"]["name"], run["platform"]["transport"], run["checked_against"]) == ("cuda", "nccl", "eager")
    (result,) = run["results"]
    assert 0 <= result["largest_difference"] < 1e-3
    at = {row["operator"]: row for row in result["measured"]}
    assert set(at) == set(graph.index)
    assert all(row["finish_ms"] > row["start_ms"] for row in at.values())


@pytest.mark.slow
@pytest.mark.parametrize(("transport", "what"), [_over("gloo", "seed"), _over("mpi", "graph")])
def test_ranks_that_differ(small_files: Files, small_schedule: Path, tmp_path: Path, transport: str, what: str) -> None:
    """Another option or another file on a rank is said in one line before anything runs."""
    graph, other = small_files.graph, tmp_path / "other.json"
    other.write_text(graph.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    words = ("11", "12") if what == "seed" else (graph, other)
    program = (RANKS, "differing", *words)
    line = _failed(_command(transport, 2, small_files, small_schedule, "--seed", 11, program=program), small_schedule)
    difference = "seed, 12 and 11" if what == "seed" else f"{re.escape(str(graph))}: its contents"
    assert re.match(
        rf"Error: (rank 0 on \S+: )?.*rank 1 on \S+ and rank 0 on \S+ differ in {difference}; all ranks need", line
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("transport", "how"),
    [_over("gloo", "raise"), _over("gloo", "die"), _over("gloo", "stop"), _over("mpi", "die"), _over("mpi", "hang")],
)
def test_a_failing_rank_ends_all(small_files: Files, small_schedule: Path, transport: str, how: str) -> None:
    """One line names rank, host, schedule, operator and stage; nobody is left over and nothing is written."""
    operator = branches().graph.operators[branches().graph.order[3]].id
    timeout_s = SHORT_TIMEOUT_S if how in ("hang", "stop") else TIMEOUT_S
    program = (RANKS, "spoilt", 1, operator, how)
    command = _command(transport, 2, small_files, small_schedule, "--timeout", timeout_s, program=program)
    line = _failed(command, small_schedule)
    place = re.escape(f"operator {operator}, stage 1")
    assert re.match(
        {
            "raise": rf"Error: rank 1 on \S+: random: {place}: no such kernel$",
            "hang": rf"Error: rank 1 on \S+ did not go on within the time-out: random: {place}$",
            "stop": r"Error: rank 1 on \S+ has been silent for \d+ s; last seen: random",
            # Who waits for it is told where that is known in time.
            "die": r"Error: rank 1 on \S+ died; last seen: random[^;]*(; rank 0 on \S+: (random: waiting for the "
            r"output of operator \S+, stage \d+|.*waiting for rank 1 to .*))?$",
        }[how],
        line,
    )
    assert eventually(lambda: not _ranks_of(small_schedule))


@pytest.mark.slow
def test_rank_0_hangs_at_the_end(small_files: Files, small_schedule: Path) -> None:
    """Other ranks, which wait for it, are not named."""
    command = _command(
        "gloo", 2, small_files, small_schedule, "--timeout", SHORT_TIMEOUT_S, program=(RANKS, "unwritten")
    )
    line = _failed(command, small_schedule)
    assert re.match(r"Error: rank 0 on \S+ did not go on within the time-out: writing run\.json$", line)


@pytest.mark.parametrize(
    ("transport", "number"),
    [
        _over("gloo", signal.SIGINT),
        _over("mpi", signal.SIGTERM),
        _over("gloo", signal.SIGTERM, marks=_SLOW),
        _over("mpi", signal.SIGINT, marks=_SLOW),
    ],
)
def test_an_ended_launcher_leaves_nobody(small_files: Files, small_schedule: Path, transport: str, number: int) -> None:
    """When the launcher is told to end, the ranks end with it, long before the time-out."""
    operator = branches().graph.operators[branches().graph.order[3]].id
    program = (RANKS, "spoilt", 1, operator, "hang")
    command = _command(transport, 2, small_files, small_schedule, "--timeout", 600, program=program)
    with _start(command) as launcher:
        assert eventually(lambda: len(_ranks_of(small_schedule)) > 2)
        launcher.send_signal(number)
        launcher.communicate(timeout=300)
    assert launcher.returncode != 0
    assert eventually(lambda: not _ranks_of(small_schedule))


@pytest.mark.slow
@pytest.mark.parametrize(("transport", "what"), [_over("gloo", "wide"), _over("mpi", "streams")])
def test_refusals_are_said_once(small_files: Files, tmp_path: Path, transport: str, what: str) -> None:
    """A schedule with operators on several devices, or with several streams on one: rank 0 refuses it in one line."""
    graph = branches().graph
    plan = random_wide(graph, 2, seed=0) if what == "wide" else random_streams(graph, 2, 3, seed=3)
    schedule = _written(graph, plan, tmp_path)
    line = _failed(_command(transport, 2, small_files, schedule), schedule)
    if what == "wide":
        assert "found 2 devices; allowed where devices are ranks: one; schedule with costs without wide_ms" in line
    else:
        start = f"Error: {schedule}: placements: found 3 streams on device 0; allowed over ranks: one stream per device"
        assert line.startswith(start)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_without_a_launcher(small_files: Files, small_schedule: Path, tmp_path: Path, transport: str) -> None:
    """Started by hand, the command says how to start it, and leaves no shared memory."""
    memory = tmp_path / "memory"  # not where MPI puts that of other tests, whose ranks may be killed
    memory.mkdir()
    command = _command(transport, 2, small_files, small_schedule)
    start = len(command) - 1 - command[::-1].index("-m")
    code, printed = _run([sys.executable, *command[start:]], OMPI_MCA_btl_sm_backing_directory=str(memory))
    assert code == 1
    reason = {"gloo": "RANK is not set", "mpi": "found no launcher"}[transport]
    launcher = {"gloo": "torchrun", "mpi": "mpirun"}[transport]
    assert printed.startswith(f"Error: transport {transport}: {reason}; start the ranks with {launcher}, such as: ")
    assert eventually(lambda: not list(memory.iterdir()))


#: A launcher of some name, which may not listen, and ends when all that it started have ended.
_LAUNCHER = """
import os, signal, subprocess, sys
name, jobs, listens, rank = sys.argv[1:]
with open("/proc/self/comm", "w") as file:
    file.write(name)
if not listens:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
reading, writing = os.pipe()
subprocess.run([sys.executable, "-c", rank, jobs], pass_fds=[writing])
os.close(writing)
os.read(reading, 1)
"""
#: A rank that fails under it.
_FAILING_RANK = """
import os, sys
from hios.cli import execution
execution._WAIT_S = execution._AGAIN_S = execution._HOLD_S = 0.0
os.environ["PMIX_NAMESPACE"] = sys.argv[1]
execution.guard()
sys.exit(1)
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="this build of Python cannot name another process safely")
@pytest.mark.parametrize(
    ("name", "jobs", "listens", "code"),
    [
        ("prterun", "prterun-host-1@1", "yes", -signal.SIGTERM),
        ("prted", "prterun-host-1@1", "", -signal.SIGKILL),
        ("prted", "prte-host-1@2", "yes", 0),
        ("slurmstepd", "", "yes", 0),
    ],
)
def test_a_launcher_that_goes_on_without_its_ranks(name: str, jobs: str, listens: str, code: int) -> None:
    """Those of mpirun, which wait for hosts that are out of reach, are ended; others, which may stay, are not."""
    assert python("-c", _LAUNCHER, name, jobs, listens, _FAILING_RANK).returncode == code


@dataclass
class _Request:
    memory: Tensor
    queue: queue.SimpleQueue[Tensor] | None

    def wait(self, _: float) -> None:
        if self.queue is not None:
            self.memory.copy_(self.queue.get(timeout=120))


class _Threads:
    """Messages between two threads."""

    def __init__(self, rank: int, queues: dict[Any, queue.SimpleQueue[Tensor]]) -> None:
        self.rank, self._queues = rank, queues

    def send(self, memory: Tensor, destination: int, tag: int) -> _Request:
        self._queues.setdefault((destination, tag), queue.SimpleQueue()).put(memory.clone())
        return _Request(memory, None)

    def receive(self, memory: Tensor, source: int, tag: int) -> _Request:
        return _Request(memory, self._queues.setdefault((self.rank, tag), queue.SimpleQueue()))


def test_clocks_are_compared() -> None:
    """A clock that is an hour ahead is found so, as exactly as the ping says."""
    hour, queues, tags = 3600 * 10**9, {}, Tags(64, 1 << 15)  # type: ignore[var-annotated]
    deadline = time.monotonic() + 120

    def there() -> None:
        transport: Any = _Threads(1, queues)
        clock = lambda: time.perf_counter_ns() + hour  # noqa: E731
        assert Peers(transport, tags, ProgressState()).offsets(1, [1], deadline, clock) == {}

    thread = threading.Thread(target=there)
    thread.start()
    here: Any = _Threads(0, queues)
    ((rank, (offset, uncertainty)),) = Peers(here, tags, ProgressState()).offsets(1, [1], deadline).items()
    thread.join()
    assert rank == 1
    assert abs(offset - hour) <= uncertainty


def test_tags_differ_within_two_epochs() -> None:
    """Messages of a run and the next have tags of their own, within the limit, also where numbers begin again."""
    tags = Tags(10, 57)
    for epoch in range(20):
        tags_drawn = {tags.of(number, place) for number in (epoch, epoch + 1) for place in range(10)}
        assert len(tags_drawn) == 20
        assert max(tags_drawn) < 57
    with pytest.raises(PlatformError, match=r"transfers 10 values; allowed: 9 with the tags of this MPI$"):
        Tags(10, 19)


def test_the_silent_rank_is_found() -> None:
    """A rank is silent when it missed many of its messages; of several, the first one that fell silent is to blame."""
    assert longest_silent({0: 99.9, 1: 98.0, 2: 99.8}, 100.0) is None
    assert longest_silent({0: 99.9, 1: 70.0, 2: 69.5}, 100.0) == 2
    assert longest_silent({}, 100.0) is None


def test_who_waits_for_a_dead_rank_is_told() -> None:
    """Beside what the dead rank did last stands the first rank that waits for it, and for what, if one does."""
    monitor: Any = object.__new__(RankMonitor)
    monitor._places = [RankPlace(host, host, (0,)) for host in "abc"]
    monitor._dead, monitor._lines = [1], dict.fromkeys((0, 2))
    waits = "random: waiting for the output of operator x, stage 1"
    monitor._at = {0: ("random: operator y, stage 2", None), 1: ("random: operator x, stage 1", None), 2: (waits, 1)}
    died = "rank 1 on b died; last seen: random: operator x, stage 1"
    assert monitor._last_words() == f"{died}; rank 2 on c: {waits}"
    del monitor._at[2]
    assert monitor._last_words() == died


def test_shared_cores_are_noticed() -> None:
    """Ranks of one host on one core are virtual devices; the same number on another host is another core."""
    one, other = RankPlace("a", "1", (0, 1)), RankPlace("b", "2", (0, 1))
    assert shared([one, one], [[0], [0]])
    assert not shared([one, one], [[0], [1]])
    assert not shared([one, other], [[0], [0]])
