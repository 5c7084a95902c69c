"""Many small branches: hios's schedules, by operators and by segments, against other runtimes with the same cores.

    python benchmarks/many_branches.py [NETWORK ...] [--rounds N]

Networks are those of `NETWORKS`, all if none is named. All ways take turns in this process, on two cores, as a user
calls them; the bound is half of the fastest way on one core. Times are the 20th percentiles and medians, milliseconds.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import torch
from torch import Tensor, nn

import hios
from hios.errors import HiosError
from hios.files.json_cache import cache_folder
from hios.machine.description import usable_cores
from hios.machine.statistics import spread
from hios.optimizing import runtimes
from hios.platforms.cpu.engine import Engine, Task
from hios.platforms.cpu.segments import Choosing

_BRANCHES, _LAYERS = 16, 3


class Branches(nn.Module):
    """Branches of one input, whose outputs are joined."""

    def __init__(self, layers: Callable[[], list[nn.Module]]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Sequential(*layers()) for _ in range(_BRANCHES))

    def forward(self, x: Tensor) -> Tensor:
        """Run all."""
        return torch.cat([branch(x) for branch in self.branches], 1)


class _LastOfGru(nn.Module):
    """The last output of a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(32, 32, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Run it."""
        output: Tensor = self.gru(x)[0][:, -1]
        return output


def _convolutions() -> list[nn.Module]:
    return [layer for _ in range(_LAYERS) for layer in (nn.Conv2d(64, 64, 1), nn.ReLU())]


def _linear() -> list[nn.Module]:
    return [layer for _ in range(_LAYERS) for layer in (nn.Linear(256, 256), nn.ReLU())]


NETWORKS: dict[str, tuple[Callable[[], list[nn.Module]], tuple[int, ...]]] = {
    "convolutions-14": (_convolutions, (1, 64, 14, 14)),
    "convolutions-7": (_convolutions, (1, 64, 7, 7)),
    "mlps-32": (_linear, (32, 256)),
    "mlps-256": (_linear, (256, 256)),
    "grus": (lambda: [_LastOfGru()], (1, 16, 32)),
}

_Way = Callable[[list[Tensor]], Sequence[Tensor]]


def compare(name: str, rounds: int) -> None:
    """Print the times of all ways to run a network."""
    torch.manual_seed(0)
    layers, shape = NETWORKS[name]
    model, x = Branches(layers).eval(), torch.randn(shape)
    cores = usable_cores()[:2]
    torch.set_num_threads(len(cores))
    program = torch.export.export(model, (x,))
    graph, weights = hios.extract(program)
    problem = hios.Problem(graph, hios.profile(graph, devices=2, repeats=3, stages_of=(), budget_s=10))
    tasks = {
        "hios-lp, 2 devices": Task(hios.schedule(problem, "hios-lp", 2).plan(graph)),
        "sequential, 1 device": Task(hios.schedule(problem, "sequential", 1).plan(graph)),
    }
    with ExitStack() as stack, torch.no_grad():
        ways: dict[str, _Way] = {}
        for kind, choosing in (("operators", None), ("segments", Choosing([x], cache_folder() / "segments"))):
            engine = stack.enter_context(Engine(graph, weights, tasks, [[core] for core in cores], choosing=choosing))
            for task in tasks:
                ways[f"{task}, {kind}"] = lambda given, engine=engine, task=task: engine.run(task, given)  # type: ignore[misc]
        ways["eager, 2 threads"] = lambda given: [model(*given)]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for kind in ("onnxruntime", "openvino", "compile"):
            for threads in (1, 2):
                file = runtimes.file(kind, folder, threads)
                try:
                    runtimes.convert(kind, program, file, threads)
                    ways[f"{kind}, {threads} threads"] = runtimes.load(kind, file, threads, [x.stride()])
                except HiosError as error:
                    print(f"  {kind}: {error}")
        _measure(name, ways, [x], rounds)


def _measure(name: str, ways: dict[str, _Way], inputs: list[Tensor], rounds: int) -> None:
    (right,) = ways["eager, 2 threads"](inputs)
    samples: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 3):
        for way, run in ways.items():
            run(inputs)  # its caches are those of back-to-back calls
            began = time.perf_counter_ns()
            (output,) = run(inputs)
            taken = (time.perf_counter_ns() - began) / 1e6
            if number < 3:
                torch.testing.assert_close(output, right, rtol=1e-4, atol=1e-4)
            else:
                samples[way].append(taken)
            time.sleep(0.002)  # threads that spin on stop
    print(f"{name}: {rounds} rounds")
    for way, own in samples.items():
        median, p20, _ = spread(own)
        print(f"  {way:<34} {p20:8.3f} {median:8.3f}")
    least = min(spread(own)[1] for way, own in samples.items() if "1 thread" in way or "1 device" in way)
    print(f"  {'bound: work of one core / 2':<34} {least / 2:8.3f}")


def main(*arguments: str) -> None:
    """Compare the networks that are named, or all."""
    rounds = int(arguments[arguments.index("--rounds") + 1]) if "--rounds" in arguments else 100
    for name in [name for name in arguments if name in NETWORKS] or NETWORKS:
        compare(name, rounds)


if __name__ == "__main__":
    main(*sys.argv[1:])
