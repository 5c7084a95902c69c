"""Servers: outputs of every policy, requests from many threads, queues, and that closing leaves nothing behind."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from hios.errors import HiosError
from hios.serving import lane_worker, policies
from hios.serving.admission import DeadlineError, QueueFullError, TaskFailedError
from hios.serving.instances import LiveRun
from hios.serving.lane import Answer
from hios.serving.policies import POLICIES
from hios.serving.scenario import Scenario
from hios.serving.server import Server
from tests.scripts import ROOT
from tests.serving import lane_faults
from tests.serving.open_models import WORDS, open_scenario
from tests.serving.served import (
    COMBINED,
    ask_both,
    inputs,
    require_nothing_held,
    require_right,
    scenario,
    scenario_file,
    with_widths,
)
from tests.workers.processes import children, eventually, killed, running

_QUICK = ("top", "hios-lp")
#: Those that are tested below, by test_server_faults or by test_load.
_ELSEWHERE = ("top-open", "shortest-first", "one-per-lane", "pos-strict", "pos-strict-per-lane")
_SLOW = [name for name in POLICIES if name not in {*_QUICK, *_ELSEWHERE}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for tests that leave it as it is."""
    given = scenario(tmp_path_factory.mktemp("served"), top={"combined": COMBINED})
    before = set(children())
    with Server(given, "top-open", virtual=True) as made:
        yield made
    assert set(children()) <= before


def _ask_all(server: Server, count: int, threads: int = 3) -> None:
    """Ask for both models from several threads at once; every answer is right."""

    def ask(first: int) -> None:
        for number in range(first, first + count):
            ask_both(server, 1, number)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(ask, range(0, 1000 * threads, 1000)))  # raises what a thread has raised


def _require_served(given: Scenario, name: str) -> None:
    before = set(children())
    with Server(given, name, virtual=True) as server:
        assert all(map(running, server.process_ids))
        _ask_all(server, 8)
        assert sum(counts.completed for counts in server.counts.values()) == 48
        assert server.busy_s > 0
        require_nothing_held(server)
    assert set(children()) <= before


@pytest.mark.parametrize("name", [*_QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in _SLOW)])
def test_every_policy_computes_what_the_models_do(name: str, tmp_path: Path) -> None:
    """Every output is that of the model alone, whatever runs beside it; nothing is held afterwards, no process left."""
    _require_served(scenario(tmp_path, top={"combined": COMBINED}), name)


def test_segments_compute_what_the_models_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block, and what each lane has of a run on all lanes, in ONNX Runtime; outputs are those of the models."""
    given = scenario(tmp_path, top={"combined": COMBINED}, engine="segments")
    monkeypatch.setenv("HIOS_CACHE", str(tmp_path / "cache"))  # its choices are no measurements
    monkeypatch.setattr(lane_worker, "prepare", lane_faults.prepare_in_onnxruntime)
    _require_served(given, "top-open")


def test_segments_refuse_what_operators_refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No runtime that takes words beyond the vocabulary has the segment that looks them up."""
    given = Scenario.read(open_scenario(tmp_path, {"words": {}}, engine="segments"))
    monkeypatch.setenv("HIOS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(lane_worker, "prepare", lane_faults.prepare_in_runtimes)
    with Server(given, "sequential", virtual=True) as server:
        for word in (-1, WORDS):
            with pytest.raises(HiosError, match="out of range"):
                server.infer("words", [torch.full((4, 3), word), torch.ones(1)], timeout_s=60)


def test_stages_by_gpg_compute_what_the_models_do(tmp_path: Path) -> None:
    """Combined blocks of both models, in stages that GPG chose for all their blocks together."""
    _require_served(scenario(tmp_path, top={"combined": COMBINED, "stages": "gpg"}), "top")


def test_joined_blocks_compute_what_the_models_do(tmp_path: Path) -> None:
    """Short blocks run as one; operators take 0.2 ms here."""
    given, plain = scenario(tmp_path, top={"block_ms": 0.5}), scenario(tmp_path)
    assert all(len(few.blocks) < len(many.blocks) for few, many in zip(given.models, plain.models, strict=True))
    _require_served(given, "top-open")


@pytest.mark.parametrize("name", ["top-open", "shortest-first"])
def test_threads_compute_what_the_models_do(name: str, tmp_path: Path) -> None:
    """A task alone runs in the worker with a thread on every lane, others on lanes; if killed, that worker is back."""
    seen: set[int] = set()

    def watch(lane: int, run: LiveRun, places: tuple[int, ...], answer: Answer) -> None:
        seen.add(lane)

    given = scenario(tmp_path, with_widths(tmp_path, every=True))
    with Server(given, name, virtual=True, watch=watch) as server:
        assert server.pipeline.has_threads
        assert len(server.process_ids) == 3
        one = inputs("blocks", 1)
        require_right("blocks", one, server.infer("blocks", one, timeout_s=60))
        assert seen == {2}
        assert server.busy_s > 0
        _ask_all(server, 8, threads=6)
        if name == "top-open":  # few tasks take all lanes one after another with shortest-first
            assert seen == {0, 1, 2}
        victim = server.process_ids[2]
        os.kill(victim, signal.SIGKILL)
        assert eventually(lambda: server.process_ids[2] not in (0, victim))
        _ask_all(server, 4)
        assert server.lanes_up == 2
        require_nothing_held(server)


@pytest.mark.parametrize(("name", "worker"), [("threads", 0), ("top-open", 2)])
def test_threads_keep_to_their_cores(name: str, worker: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads of a worker for all cores never share one: OpenMP pins each of them to a core of its own."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs 2 cores")
    for variable in ("OMP_PROC_BIND", "OMP_PLACES"):  # the user's go first
        monkeypatch.delenv(variable, raising=False)
    with Server(scenario(tmp_path, with_widths(tmp_path, every=True)), name) as server:
        server.infer("blocks", inputs("blocks", 1), timeout_s=60)
        tasks = Path(f"/proc/{server.process_ids[worker]}/task")
        masks = {int(task.name): os.sched_getaffinity(int(task.name)) for task in tasks.iterdir()}
        cores = set(itertools.chain(*server.cores))
    assert len(cores) == 2
    pinned = [mask for mask in masks.values() if len(mask) == 1]
    assert {frozenset(mask) for mask in pinned} >= {frozenset({core}) for core in cores}


@pytest.mark.parametrize(("name", "taken"), [("threads", 2), ("sequential", 1)])
def test_a_worker_keeps_the_lanes_of_its_cores_busy(name: str, taken: int, tmp_path: Path) -> None:
    """Under threads, a run on all cores keeps all lanes busy, though a single worker runs it."""
    ran_ns = []

    def watch(lane: int, run: LiveRun, places: tuple[int, ...], answer: Answer) -> None:
        ran_ns.append(answer.ended_ns - answer.began_ns)

    given = scenario(tmp_path, with_widths(tmp_path, every=True), lanes=2)
    with Server(given, name, virtual=True, watch=watch) as server:
        server.infer("blocks", inputs("blocks", 1), timeout_s=60)
        assert server.busy_s == pytest.approx(taken * sum(ran_ns) / 1e9)


def test_a_strict_round_waits_for_all_models(tmp_path: Path) -> None:
    """pos-strict answers nobody until every model has a task; what then still waits fails when the server closes.

    Also if that is more than there are places: closing does not wait for rounds.
    """
    with Server(scenario(tmp_path, lanes=1), "pos-strict", virtual=True) as server:
        given = inputs("blocks", 1)
        first = server.submit("blocks", given)
        with pytest.raises(TimeoutError):
            first.result(0.3)
        server.submit("branches", inputs("branches", 1)).result(60)
        require_right("blocks", given, first.result(60))
        left = [server.submit("blocks", given) for _ in range(server.pipeline.slots + 3)]
    assert all("not run: the server is closed" in str(answer.exception(0)) for answer in left)


def test_example_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python of docs/serving.md serves a model of a scenario in the working folder."""
    (block,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "serving.md").read_text("utf-8"), re.M | re.S)
    scenario_file(tmp_path / "scenario.yaml", {"blocks": {}}, lanes=1)
    monkeypatch.chdir(tmp_path)
    (image,) = inputs("blocks", 1)
    names: dict[str, Any] = {"image": image}
    exec(block.replace("squeezenet", "blocks"), names)  # noqa: S102
    require_right("blocks", [image], names["outputs"])


def test_many_threads_at_once(server: Server) -> None:
    """Requests of many threads each get the outputs of their own inputs, which belong to them."""
    _ask_all(server, 10, threads=6)
    given = inputs("branches", 7)
    (kept,) = server.infer("branches", given)
    copy = kept.clone()
    server.infer("branches", inputs("branches", 8))
    assert torch.equal(kept, copy)


def test_inputs_need_not_be_contiguous(server: Server) -> None:
    """Inputs with another memory layout are read correctly."""
    (plain,) = inputs("blocks", 3)
    for value in (plain.contiguous(memory_format=torch.channels_last), torch._neg_view(-plain)):
        require_right("blocks", [plain], server.infer("blocks", [value]))


def test_inputs_without_memory_fail_alone(server: Server) -> None:
    """A tensor whose memory was freed fails its task; reading it would end the server's process."""
    given = inputs("blocks", 3)
    given[0].untyped_storage().resize_(0)
    with pytest.raises(TaskFailedError, match=r"^model blocks: inputs: found a tensor without memory"):
        server.infer("blocks", given)
    ask_both(server, 1)
    require_nothing_held(server)


def test_wrong_requests_are_refused(server: Server) -> None:
    """Unknown models and other inputs are refused in one line, and count for nothing."""
    before = server.counts
    with pytest.raises(HiosError, match=r"^model: found other; allowed: branches, blocks$"):
        server.submit("other", [])
    with pytest.raises(HiosError) as error:
        server.submit("blocks", [torch.zeros(1, 3, 12, 13)])
    assert str(error.value) == (
        "model blocks: inputs: found float32 [1, 3, 12, 13]; allowed: float32 [1, 3, 12, 12], on the CPU"
    )
    with pytest.raises(HiosError, match=r"^model blocks: inputs: found ndarray; allowed: tensors of torch$"):
        server.submit("blocks", [torch.zeros(1, 3, 12, 12).numpy()])  # type: ignore[list-item]
    assert server.counts == before


def _without_ticks(patch: pytest.MonkeyPatch) -> None:
    """Have launchers tick at the start and then never again."""
    patch.setattr(policies, "launcher_intervals_s", lambda scenario, launcher: [600.0] * len(scenario.models))


def _after_the_first_tick(server: Server) -> None:
    dispatcher = server._dispatcher
    assert eventually(lambda: all(tick > dispatcher._began_s for tick in dispatcher._ticks))


def _launch_at_once(server: Server) -> None:
    """Have what waits run without ticks from now on."""
    server._dispatcher._intervals_s[:] = [0.0] * len(server._dispatcher._intervals_s)


def test_queues_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full queue rejects the newest request or drops the oldest; requests expire on time even if nothing runs."""
    models: dict[str, dict[str, Any]] = {
        "branches": {"queue": 2},
        "blocks": {"queue": 2, "overflow": "drop-oldest", "deadline_ms": 100},
    }
    _without_ticks(monkeypatch)
    with Server(scenario(tmp_path, models, launcher="fixed"), "sequential", virtual=True) as server:
        _after_the_first_tick(server)
        with server.without_deadlines():  # until the queues are full
            answers = {label: [server.submit(label, inputs(label, number)) for number in range(4)] for label in models}
        for place in (2, 3):
            with pytest.raises(QueueFullError, match="model branches: the queue is full, 2 requests wait"):
                answers["branches"][place].result(0)
        for place in (0, 1):
            with pytest.raises(QueueFullError):
                answers["blocks"][place].result(0)
        for place in (2, 3):
            with pytest.raises(DeadlineError, match="the deadline passed after 100 ms in the queue"):
                answers["blocks"][place].result(60)
        assert [answer.done() for answer in answers["branches"][:2]] == [False, False]
        _launch_at_once(server)
    assert [len(answer.result(0)) for answer in answers["branches"][:2]] == [1, 1]  # close answered them
    assert [counts.dropped for counts in server.counts.values()] == [2, 2]
    assert [counts.expired for counts in server.counts.values()] == [0, 2]
    require_nothing_held(server)


def test_the_task_that_is_due_first_leaves_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the launcher deadline, one task at a time leaves the queues here: first those that are due earlier."""
    models: dict[str, dict[str, Any]] = {"branches": {"slo_ms": 60_000}, "blocks": {"slo_ms": 1000}}
    _without_ticks(monkeypatch)
    order: list[str] = []
    in_flight: list[int] = []

    def watch(lane: int, run: LiveRun, places: tuple[int, ...], answer: Answer) -> None:
        order.append(list(models)[run.tasks[0].model])
        in_flight.append(busy._dispatcher.instances.in_flight)

    with Server(scenario(tmp_path, models, launcher="deadline"), "sequential", virtual=True, watch=watch) as busy:
        _after_the_first_tick(busy)
        # The first tick found no task and is lost: all six wait.
        answers = [busy.submit(label, inputs(label, number)) for label in models for number in range(3)]
        assert eventually(lambda: sum(counts.waiting for counts in busy.counts.values()) == 6)
        _launch_at_once(busy)
        busy._dispatcher.bell.ring()
        for answer in answers:
            answer.result(60)
    assert order == ["blocks"] * 3 + ["branches"] * 3
    assert set(in_flight) == {1}


@pytest.mark.slow
def test_a_caller_may_give_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is given up leaves its place to another, and is never run; a closed server takes none."""
    given = scenario(tmp_path, {"blocks": {"queue": 1}}, launcher="fixed")
    _without_ticks(monkeypatch)
    with Server(given, "sequential", virtual=True) as server:
        _after_the_first_tick(server)
        assert server.submit("blocks", inputs("blocks", 1)).cancel()
        with pytest.raises(TimeoutError):
            server.infer("blocks", inputs("blocks", 2), timeout_s=0.0)
        _launch_at_once(server)
        value = inputs("blocks", 3)
        require_right("blocks", value, server.infer("blocks", value))
        counts = server.counts["blocks"]
        assert (counts.offered, counts.completed, counts.dropped) == (3, 1, 2)
        require_nothing_held(server)
    server.close()  # once more does nothing
    with pytest.raises(HiosError, match="model blocks: not taken: the server is closed"):
        server.submit("blocks", inputs("blocks", 0))


@pytest.mark.parametrize(
    ("models", "policy_name", "message"),
    [
        ({"blocks": {}}, "fastest", "policy: found fastest; allowed: sequential, "),
        ({"blocks": {"weights": "branches.safetensors"}}, "sequential", "branches.safetensors"),
    ],
)
def test_what_cannot_be_served_is_refused(
    models: dict[str, dict[str, str]], policy_name: str, message: str, tmp_path: Path
) -> None:
    """An unknown policy, and weights of another model, are refused in one line, and no process is left."""
    before = set(children())
    with pytest.raises(HiosError) as error:
        Server(scenario(tmp_path, models), policy_name, virtual=True)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert set(children()) <= before


_PROCESS = """
import sys, time
from hios.serving.scenario import Scenario
from hios.serving.server import Server
server = Server(Scenario.read(sys.argv[1]), "top", virtual=True)
print(*server.process_ids, flush=True)
time.sleep(600)
"""


def _shared_memory(pid: int) -> set[Path]:
    """Files of shared memory that a process has mapped; others come and go with what else runs here."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {Path(line[line.index("/dev/shm/") :]) for line in lines if "/dev/shm/" in line}  # noqa: S108


@pytest.mark.slow
def test_lanes_end_with_a_killed_process(tmp_path: Path) -> None:
    """Workers of a process that is killed are gone, and leave no shared memory with a name."""
    path = scenario_file(tmp_path / "scenario.yaml")
    command = [sys.executable, "-c", _PROCESS, str(path)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with killed(process) as workers:
        shared = [file for pid in (process.pid, *workers) for file in _shared_memory(pid)]
    assert not [file for file in shared if file.exists()]
