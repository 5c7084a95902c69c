"""Serving on a GPU: whole servers whose GPU is streams of this machine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from hios.core.costs import CostsFile
from hios.errors import HiosError, HiosWarning
from hios.files import artifacts
from hios.files.base import Platform
from hios.platforms.cuda import devices
from hios.platforms.model import descriptions
from hios.platforms.model.devices import predicted_costs
from hios.serving import gpu_lane
from hios.serving.admission import TaskFailedError
from hios.serving.gpu_lane import GpuLane, LaneGpu
from hios.serving.load import load
from hios.serving.scenario import Scenario
from hios.serving.server import Server
from tests.cli.commands import invoke
from tests.platforms.cuda.host import HostBackend, PooledBackend
from tests.serving.served import (
    COMBINED,
    ask_both,
    inputs,
    networks,
    require_nothing_held,
    require_right,
    scenario,
    scenario_file,
    wait_for_answers,
)

_FREE = 1_000_000
_PLATFORM = Platform(name="cuda", devices=1, gpus=("NVIDIA H100 80GB HBM3",))


def on_gpu(backend: HostBackend, free_bytes: Callable[[], int] = lambda: _FREE) -> GpuLane:
    """A GPU that is this machine."""
    return GpuLane(LaneGpu(backend, torch.device("cpu"), free_bytes, _PLATFORM))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Settings of the models."""
    return predicted(tmp_path_factory.mktemp("gpu"))


def predicted(folder: Path) -> dict[str, dict[str, Any]]:
    """Settings of the models with costs that are predicted for a GPU."""
    gpu = descriptions.gpu("a100-pcie-40gb")
    settings = {}
    for label, network in networks().items():
        path = folder / f"{label}.costs.json"
        artifacts.write(path, "costs", predicted_costs(network.graph, gpu, descriptions.link(None, gpu), 1))
        settings[label] = {"costs": str(path), "slo_ms": 1000.0}
    return settings


@pytest.fixture
def given(models: dict[str, dict[str, Any]], tmp_path: Path) -> Scenario:
    """Both models on one GPU."""
    return scenario(tmp_path, models, lanes=1, top={"combined": COMBINED})


def test_cudnn_tries_its_algorithms(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that serves convolves as one whose operators `hios profile` measures."""
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    monkeypatch.setattr(devices, "describe", lambda _: _PLATFORM)
    gpu_lane.first_gpu()
    assert torch.backends.cudnn.benchmark


@pytest.mark.parametrize(
    ("backend", "capturing"),
    [(HostBackend, True), (lambda: HostBackend(capturing=False), False), (PooledBackend, True)],
    ids=["captured", "launched", "one-pool"],
)
@pytest.mark.parametrize("policy", ["top", "ios", "nimble", "pos-relaxed"])
def test_every_output_is_that_of_the_model_alone(
    policy: str, backend: Callable[[], HostBackend], capturing: bool, given: Scenario
) -> None:
    """Combined blocks, stages and streams, captured or launched: requests beside each other get their own answers.

    Graphs have places of their own for all that they make, or share a pool, where each overwrites what others left.
    Every set of sub-blocks that can run is captured before the first request, so that none is in a measurement.
    """
    gpu = backend()
    with Server(given, policy, gpu=on_gpu(gpu)) as server:
        sets = sum(2 ** len(members) - 1 for members in server.pipeline.combined)
        assert gpu.captures == (sets if capturing else 0)
        for number in range(3):
            ask_both(server, 6, 10 * number)
        assert sum(counts.completed for counts in server.counts.values()) == 36
        assert server.busy_s > 0
        assert gpu.captures == (sets if capturing else 0)
        assert not isinstance(gpu, PooledBackend) or gpu.taken_again > 0
        assert set(server.streamed.values()) == (
            set() if capturing else {"operation not permitted when stream is capturing"}
        )
        require_nothing_held(server)


def test_a_lane_serves_again(given: Scenario) -> None:
    """A later server replays no graph of an earlier one, that is of its policy and weights."""
    gpu = HostBackend()
    lane = on_gpu(gpu)
    for policy in ("nimble", "ios"):
        before = gpu.captures
        with Server(given, policy, gpu=lane) as server:
            ask_both(server, 2)
            assert gpu.captures - before == sum(2 ** len(members) - 1 for members in server.pipeline.combined)
    zeros = {
        label: {name: torch.zeros_like(weight) for name, weight in own.tensors.items()}
        for label, own in networks().items()
    }
    with Server(given, "nimble", gpu=lane, weights=zeros) as server:
        assert not any(output.any() for label in zeros for output in server.infer(label, inputs(label, 0)))


class _Hasty(HostBackend):
    """A GPU that notes copies into places that another stream may be filling still."""

    filling, early = False, 0

    def run(self, lane: Any, function: Any, arguments: list[Any], outputs: int) -> list[Any]:
        """Launch."""
        self.early += self.filling
        return super().run(lane, function, arguments, outputs)

    def synchronize(self, device: int) -> None:
        """Wait for all streams, the one that fills places too."""
        super().synchronize(device)
        self.filling = False


def test_a_run_begins_when_its_places_are_made(given: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are filled on another stream than the run is launched on."""
    gpu, zeros = _Hasty(), GpuLane._zeros

    def fill(lane: GpuLane, own: Any) -> Any:
        gpu.filling = True
        return zeros(lane, own)

    monkeypatch.setattr(GpuLane, "_zeros", fill)
    with Server(given, "nimble", gpu=on_gpu(gpu)) as server:
        ask_both(server, 1)
    assert gpu.early == 0


class _Full(HostBackend):
    """A GPU that has no memory for graphs."""

    def capture(self, lanes: Any, launch: Any) -> Any:
        """Run out of memory at the end of a capture."""
        super().capture(lanes, launch)
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")


def test_a_capture_without_memory_is_dropped(given: Scenario) -> None:
    """The runs are launched on streams from then on, and the server says why."""
    with Server(given, "top", gpu=on_gpu(_Full())) as server:
        ask_both(server, 12)
        assert server.streamed
        assert all("out of memory. Tried to allocate 2.00 GiB" in why for why in server.streamed.values())
        require_nothing_held(server)


def test_graphs_keep_to_their_budget(given: Scenario) -> None:
    """Half of the free memory is for graphs: with one that takes all of that, no other is captured."""
    backend = HostBackend()
    with Server(given, "top", gpu=on_gpu(backend, lambda: _FREE - backend.captures * _FREE // 2)) as server:
        assert backend.captures == 1, "before the first request"
        ask_both(server, 12)
        assert backend.captures == 1
        assert set(server.streamed.values()) == {"the memory for graphs is used up"}


class _Refusing(HostBackend):
    """A GPU on which launches fail as long as a test says so, by what is launched; replays would not fail."""

    def __init__(self) -> None:
        super().__init__(capturing=False)
        self.refused: Callable[[list[Any]], bool] = lambda arguments: False

    def run(self, lane: Any, function: Any, arguments: list[Any], outputs: int) -> list[Any]:
        """Launch, or run out of memory."""
        if function is not gpu_lane._copy and self.refused(arguments):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB.\nmore")
        return super().run(lane, function, arguments, outputs)


def test_a_failed_task_fails_alone(given: Scenario) -> None:
    """An operator that cannot be launched fails its task, and none of those that run beside it, or later."""
    backend = _Refusing()
    with Server(given, "top", gpu=on_gpu(backend)) as server:
        ask_both(server, 1)
        shape = inputs("branches", 0)[0].shape
        backend.refused = lambda arguments: any(getattr(own, "shape", None) == shape for own in arguments)
        bad, good = server.submit("branches", inputs("branches", 1)), inputs("blocks", 1)
        answer = server.submit("blocks", good)
        with pytest.raises(
            TaskFailedError, match=r"^model branches: device 0, operator .*: CUDA out of memory\. Tried"
        ):
            bad.result(60)
        require_right("blocks", good, answer.result(60))
        backend.refused = lambda arguments: False
        ask_both(server, 6, 10)
        assert (server.counts["branches"].failed, server.counts["blocks"].failed) == (1, 0)
        require_nothing_held(server)


class _Breaking(HostBackend):
    """A GPU that reports an error of a kernel where the host waits, and ever after, as CUDA does."""

    broken = False

    def synchronize(self, device: int) -> None:
        """Wait, or fail."""
        if self.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")
        super().synchronize(device)


def test_an_error_of_the_gpu_ends_serving(given: Scenario) -> None:
    """No request waits for ever, and later ones are told why."""
    backend = _Breaking()
    with Server(given, "top", gpu=on_gpu(backend)) as server:
        ask_both(server, 1)
        backend.broken = True
        with pytest.raises(TaskFailedError, match="illegal memory access"):
            server.submit("blocks", inputs("blocks", 0)).result(60)
        for number in range(4):
            with pytest.raises(HiosError, match="illegal memory access"):
                server.submit("blocks", inputs("blocks", number)).result(60)
        assert server.lost == "the GPU failed: CUDA error: an illegal memory access was encountered"


def test_a_gpu_that_hangs_is_given_up(given: Scenario) -> None:
    """A run that takes longer than allowed fails, and the server says that it can serve no more."""
    backend, go_on = HostBackend(), threading.Event()
    with Server(given, "top", gpu=on_gpu(backend), timeout_s=20.0) as server:
        ask_both(server, 1)
        backend.synchronize = lambda device: go_on.wait(120)  # type: ignore[method-assign, assignment]
        with pytest.raises(TaskFailedError, match="did not end within 20 s"):
            server.submit("blocks", inputs("blocks", 0)).result(60)
        assert "the GPU hangs" in server.lost
        go_on.set()


def test_load_on_a_gpu(models: dict[str, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same admission, checks and results as on cores; costs of another GPU, and what is not a graph, are told."""
    wait_for_answers(monkeypatch)
    elsewhere = {}
    for label, own in models.items():
        costs = msgspec.structs.replace(
            artifacts.load(own["costs"], CostsFile), platform=Platform("cuda", gpus=("NVIDIA A100-PCIE-40GB",))
        )
        elsewhere[label] = {**own, "costs": str(tmp_path / f"{label}.costs.json")}
        artifacts.write(elsewhere[label]["costs"], "costs", costs)
    path = scenario_file(tmp_path / "scenario.yaml", elsewhere, lanes=1, duration_s=1.0, top={"combined": COMBINED})
    given = Scenario.read(path)
    with pytest.warns(HiosWarning) as told:
        report = load(given, "top", gpu=on_gpu(HostBackend(capturing=False)))
    said = [str(warning.message) for warning in told]
    assert any("launched on streams, not as a CUDA graph: operation not permitted" in text for text in said)
    assert any("costs were measured on NVIDIA A100-PCIE-40GB, this is NVIDIA H100 80GB HBM3" in text for text in said)
    result = report.result
    assert (result.simulated, result.device, result.platform) == (False, "gpu", _PLATFORM)
    assert result.total.failed == 0 < result.total.completed
    assert report.wrong == ""
    with pytest.raises(HiosError, match="runtime: found eager on a GPU; allowed: on cores"):
        load(given, "top", gpu=on_gpu(HostBackend()), runtime="eager")
    with pytest.raises(HiosError, match="virtual: found True on a GPU; allowed: on cores"):
        load(given, "top", gpu=on_gpu(HostBackend()), virtual=True)


def test_costs_have_to_be_those_of_the_platform(given: Scenario, tmp_path: Path) -> None:
    """Costs of cores do not say what to run on a GPU, nor the other way round; nor is there a GPU here."""
    with pytest.raises(
        HiosError, match="found costs of a GPU; allowed to run for real on cores: costs of platform cpu"
    ):
        Server(given, "top")
    cores = scenario(tmp_path, lanes=1)
    with pytest.raises(
        HiosError, match="found costs of cores; allowed to run for real on a GPU: costs of platform cuda"
    ):
        Server(cores, "top", gpu=on_gpu(HostBackend()))
    arguments = ["load", str(tmp_path / "scenario.yaml"), "--output", str(tmp_path / "result.json")]
    done = invoke(*arguments, "--calibrate", "--platform", "cuda")
    assert "--platform: found with --calibrate; allowed: one of them" in done.stderr
    if not torch.cuda.is_available():
        done = invoke(*arguments, "--policy", "top", "--platform", "cuda")
        assert done.exit_code == 1
        assert "platform cuda: " in done.stderr
