"""The platform cuda on real GPUs."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hios import ALGORITHMS, Costs, Graph, Problem, schedule
from hios.core.schedule import Plan, StagedPlan
from hios.errors import HiosError
from hios.files import artifacts
from hios.platforms.cuda import cuda_reference
from hios.platforms.cuda import worker as device
from hios.platforms.cuda.backend import CudaBackend
from hios.platforms.cuda.compiled_network import Network as Placed
from hios.platforms.cuda.executor import Executor
from hios.platforms.cuda.plan import Lane
from hios.platforms.cuda.precision import exactly
from hios.platforms.cuda.segments import INDUCTOR
from tests.frontends.small_networks import Files, Network, write_network
from tests.gpu_marker import needs_two_gpus, requires_gpu
from tests.platforms.cuda import limited
from tests.platforms.cuda.test_cuda_segments import use_in_place_of_inductor
from tests.platforms.cuda.test_executor import plans, shared, squeezenet
from tests.problems import briefly
from tests.runtime.schedules import one_by_one, random_plan, random_streams, run_schedules, write_schedules
from tests.runtime.small import branches

#: Cycles that a GPU is kept busy ahead of an operator at most.
_CYCLES = 200_000
#: Algorithms; hios-opt needs packages that a machine with a GPU may lack.
_HAS_OPT = all(map(find_spec, ("numba", "ortools")))
_ALGORITHMS = {name: own for name, own in ALGORITHMS.items() if name != "hios-opt" or _HAS_OPT}


class _Delayed(CudaBackend):
    """Streams that are late at random, so that whoever does not wait shows."""

    def __init__(self, gpus: list[int]) -> None:
        super().__init__(gpus)
        self._delay = random.Random(0)

    def run(self, lane: Any, function: Callable[..., Any], arguments: list[Any], outputs: int) -> list[Any]:
        """Launch, behind some idling."""

        def late(*values: Tensor) -> Any:
            torch.cuda._sleep(self._delay.randrange(_CYCLES))
            return function(*values)

        return super().run(lane, late, arguments, outputs)


def _executor(network: Network, backend: CudaBackend, gpus: list[int]) -> Executor:
    placed = Placed(network.graph, network.tensors, [torch.device("cuda", gpu) for gpu in gpus])
    placed.write(network.inputs)
    return Executor(placed, backend, lambda _: None)


def _check_all(network: Network, gpus: list[int], *, by_segments: bool = False) -> None:
    """Outputs of many plans, replayed and launched, are those of eager PyTorch on the CPU."""
    expected, name = network.eager(), "plan"
    with torch.inference_mode(), exactly():
        executor = _executor(network, _Delayed(gpus), gpus)
        for plan in plans(network.graph):
            executor.prepare(name, [plan])
            if by_segments:
                assert {result.runtime for result in executor.use_segments(name)} <= {INDUCTOR}
            assert executor.why(name) == ""
            executor.run(name)
            for outputs in (executor.outputs(name), executor.run_exactly(name)):
                for output, own in zip(outputs, expected, strict=True):
                    torch.testing.assert_close(output.cpu(), own, rtol=1e-4, atol=1e-3)


@requires_gpu
@pytest.mark.parametrize("network", [shared, squeezenet], ids=["shared", "squeezenet"])
def test_late_streams_are_waited_for(network: Callable[[], Network]) -> None:
    """On virtual devices of one GPU nothing is read too early, or overwritten while it is read."""
    _check_all(network(), [0, 0, 0])


@requires_gpu
@pytest.mark.parametrize("network", [shared, squeezenet], ids=["shared", "squeezenet"])
def test_late_segments_are_waited_for(network: Callable[[], Network], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where all that a stream runs between two waits is one launch."""
    use_in_place_of_inductor(monkeypatch, lambda _, by_operators: by_operators)
    _check_all(network(), [0, 0, 0], by_segments=True)


@requires_gpu
def test_segments_are_part_of_the_graph() -> None:
    """What inductor makes of segments is captured with the rest, and computes the same."""
    network = squeezenet()
    with torch.inference_mode(), exactly():
        executor = _executor(network, CudaBackend([0]), [0])
        plans_of: dict[str, Plan] = {"one": one_by_one(network.graph)}
        plans_of["two"] = random_streams(network.graph, 1, 2, seed=0)
        for name, plan in plans_of.items():
            executor.prepare(name, [plan])
            results = executor.use_segments(name)
            assert executor.why(name) == ""
            assert any(INDUCTOR in result.latency_ms for result in results), results
            executor.run(name)
            for outputs in (executor.outputs(name), executor.run_exactly(name)):
                for output, own in zip(outputs, network.eager(), strict=True):
                    torch.testing.assert_close(output.cpu(), own, rtol=1e-4, atol=1e-3)
            assert sorted(row[0] for row in executor.rows(name)[0]) == sorted(network.graph.index)


@requires_gpu
@needs_two_gpus
@pytest.mark.parametrize("network", [shared, squeezenet], ids=["shared", "squeezenet"])
def test_gpus_wait_for_each_other(network: Callable[[], Network]) -> None:
    """The same across GPUs, in one CUDA graph."""
    _check_all(network(), [0, 1, 0])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """A small network with two branches."""
    return write_network(tmp_path_factory.mktemp("branches"), branches())


def _run(files: Files, folder: Path, plan_of: dict[str, Plan], devices: int, **changes: Any) -> dict[str, Any]:
    paths = write_schedules(folder, Graph.read(files.graph), plan_of)
    asked = {"devices": devices, "runs": 3, "warmup": 1, "platform": "cuda", "virtual": True, **changes}
    run_schedules(files, paths, program=True, **asked)
    return artifacts.read(folder / "run.json", "run")


@requires_gpu
@pytest.mark.parametrize("devices", [1, 2])
def test_every_algorithm_runs(files: Files, tmp_path: Path, devices: int) -> None:
    """Schedules of all algorithms compute what eager PyTorch does, as CUDA graphs, with a row for every operator."""
    graph, choose = Graph.read(files.graph), random.Random(0)
    times = {operator: choose.uniform(0.1, 2.0) for operator in graph.index}
    costs = Costs(times, {(edge.source, edge.target): choose.uniform(0.0, 0.1) for edge in graph.edges})
    plan_of = {}
    for name, algorithm in _ALGORITHMS.items():
        count = devices if algorithm.several_devices else 1
        plan_of[name] = schedule(Problem(graph, costs), name, count, briefly(name)).plan(graph)
    run = _run(files, tmp_path, plan_of, devices)
    assert len(run["results"]) == len(_ALGORITHMS)
    for result in run["results"]:
        assert result["launch"] == "graph"
        assert result["largest_difference"] < 1e-3
        assert sorted(row["operator"] for row in result["measured"]) == sorted(graph.index)
        assert all(row["start_ms"] <= row["finish_ms"] for row in result["measured"])


@requires_gpu
def test_runtimes(files: Files, tmp_path: Path) -> None:
    """PyTorch itself, in a CUDA graph, and compiled, take turns with a schedule; outputs are checked."""
    kinds = ("eager", "compile", "cudagraph", "compile-reduce-overhead", "compile-max-autotune")
    plan = random_plan(Graph.read(files.graph), 1, seed=0)
    run = _run(files, tmp_path, {"random": plan}, 1, baselines=kinds)
    assert [entry["kind"] for entry in run["references"]] == list(kinds)
    for entry in run["references"]:
        assert len(entry["latency_ms"]["runs"]) == 3
        assert ("compile_time_s" in entry) == entry["kind"].startswith("compile")


@requires_gpu
def test_out_of_memory(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU without memory ends the run with device, operator and stage in one line."""
    monkeypatch.setattr(device, "load", limited.load)
    plan = random_plan(Graph.read(files.graph), 1, seed=0)
    with pytest.raises(
        HiosError, match=r"^platform cuda: device 0, operator \S+, stage \d+: out of memory: a smaller batch "
    ) as caught:
        _run(files, tmp_path, {"random": plan}, 1)
    assert "\n" not in str(caught.value)


@requires_gpu
def test_a_failed_capture_spoils_no_later_one() -> None:
    """What waits for the GPU cannot be captured; the next capture from the same pool can."""
    backend, value = CudaBackend([0]), torch.ones(1, device="cuda")
    with pytest.raises(RuntimeError):
        backend.capture((Lane(0),), lambda: backend.run(Lane(0), lambda x: x.item(), [value], 1))
    replay, (captured,) = backend.capture((Lane(0),), lambda: backend.run(Lane(0), lambda x: x + 1, [value], 1))
    replay()
    backend.synchronize(0)
    assert captured.item() == 2


@requires_gpu
def test_sequential_schedules_need_no_more_memory_than_eager() -> None:
    """The values of the sequential schedule take at most twice what they take in eager PyTorch."""
    network = squeezenet()
    module = copy.deepcopy(network.module).cuda()
    with torch.inference_mode(), exactly():  # workspaces of libraries depend on the precision
        inputs = [value.cuda() for value in network.inputs]
        eager = _needed(lambda: module(*inputs))
        executor = _executor(network, CudaBackend([0]), [0])
        plan = StagedPlan((tuple(((place,),) for place in network.graph.order),))
        executor.prepare("sequential", [plan])
        assert _needed(lambda: executor.run_exactly("sequential")) <= 2 * eager


def _needed(function: Callable[[], Any]) -> int:
    """Bytes that a call needs at most beyond what there was, the second time."""
    function()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    function()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


@requires_gpu
def test_a_captured_module_reads_its_inputs() -> None:
    """The model in a CUDA graph computes with what is in its inputs when it is replayed."""
    network = squeezenet()
    module = copy.deepcopy(network.module).cuda()
    with torch.inference_mode(), exactly():
        inputs = [torch.zeros_like(value, device="cuda") for value in network.inputs]
        replay = cuda_reference.in_graph(module, inputs)
        for buffer, value in zip(inputs, network.inputs, strict=True):
            buffer.copy_(value)
        output = replay(*inputs).cpu()
    torch.testing.assert_close(output, network.eager()[0], rtol=1e-4, atol=1e-3)
