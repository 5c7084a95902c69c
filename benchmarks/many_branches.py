"""Many small branches: hios's schedules, by operators and by segments, against other runtimes with the same cores.

    python benchmarks/many_branches.py [NETWORK ...] [--engines ENGINE ...] [--algorithms NAME ...]
        [--baselines NAME ...] [--runs N] [--tensorflow FOLDER]

Networks are those of `NETWORKS`, all of them if none is named, or of models/. For each engine there is one session of
`hios.execute`, in which all ways take turns on the same two cores. Times are 20th percentiles and medians,
milliseconds; the bound is half of the fastest way on one core, or what two independent copies of the network leave of
that. Goals by segments: the sequential schedule on one core within 2 % of the fastest runtime with one thread; on two
cores at most 0.85 of the fastest other way for branches of convolutions and GRUs, 0.95 for MLPs, and at least 0.75 of
what the second bound allows for Inception-v3, 0.9 for NASNet-large and RandWire. These ratios are printed for every
algorithm. A runtime that takes too long for a large network can be left out of --baselines.

With --tensorflow, networks of `NETWORKS` also run in TensorFlow (inter_op 2, intra_op 1; tensorflow_branches.py), half
of the runs right before the session and half right after it. FOLDER takes an environment for it (some 1.5 GB; the first
run needs the package index).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from networks import environment
from torch import Tensor, nn

import hios
from hios.frontends.export import build_model
from hios.machine.statistics import spread

_BRANCHES, _LAYERS = 16, 3
_ENGINES = ("operators", "segments")
_ALGORITHMS = ("hios-lp",)
_BASELINES = ("eager", "compile", "onnxruntime", "openvino")
_TENSORFLOW = ("tensorflow-cpu==2.21.0", "keras==3.15.1", "numpy==2.4.6")


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


def build(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A network of `NETWORKS` or of models/, with example inputs."""
    if name not in NETWORKS:
        return build_model(name, {}, 0)
    torch.manual_seed(0)
    layers, shape = NETWORKS[name]
    return Branches(layers).eval(), (torch.randn(shape),)


def in_tensorflow(home: Path, module: nn.Module, x: Tensor, runs: int) -> list[float]:
    """Milliseconds of runs of branches, as `tensorflow_branches.py` has them."""
    file = home / "branches.npz"
    with torch.no_grad():
        arrays = {"x": x, "y": module(x), **module.state_dict()}
    np.savez(file, **{name: value.numpy() for name, value in arrays.items()})
    script = Path(__file__).with_name("tensorflow_branches.py")
    command = [str(home / "bin" / "python"), str(script), str(file), str(runs)]
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONPATH": ""}
    made = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environ)
    taken: list[float] = json.loads(made.stdout.splitlines()[-1])
    return taken


def compare(
    name: str,
    engines: Sequence[str],
    runs: int,
    tensorflow: Path | None,
    algorithms: Sequence[str],
    baselines: Sequence[str],
) -> None:
    """Print the times of all ways to run a network, in a session for each engine."""
    module, inputs = build(name)
    program = torch.export.export(module, inputs)
    graph, weights = hios.extract(program)
    problem = hios.Problem(graph, hios.profile(graph, devices=2, repeats=3, stages_of=(), budget_s=10))
    schedules = [hios.schedule(problem, algorithm, 2) for algorithm in algorithms]
    schedules.append(hios.schedule(problem, "sequential"))
    print(f"{name}: {len(graph.operators)} operators, {runs} runs")
    for engine in engines:
        home = tensorflow if name in NETWORKS else None
        there = in_tensorflow(home, module, inputs[0], (runs + 1) // 2) if home else []
        run = hios.execute(
            graph, weights, schedules, program=program, engine=engine, runs=runs, baselines=baselines, timeout_s=600
        )
        print(f"  engine: {engine}; load average at the start {run.platform.load_average}")
        ways = {entry.label: entry.latency_ms for entry in run.results}
        ways |= {entry.name: entry.latency_ms for entry in run.references}
        for way, latency in ways.items():
            print(f"    {way:<34} {latency.p20:8.3f} {latency.median:8.3f}")
        if home:
            median, p20, _ = spread(there + in_tensorflow(home, module, inputs[0], (runs + 1) // 2))
            print(f"    {'TensorFlow, inter_op 2, intra_op 1':<34} {p20:8.3f} {median:8.3f}")
        for entry in run.results:
            used = Counter(segment.runtime for segment in entry.segments or ())
            print(f"    {entry.label}: {', '.join(f'{count} segments in {kind}' for kind, count in used.items())}")
        one, two = (
            min(entry.latency_ms.p20 for entry in run.references if entry.name.endswith(threads))
            for threads in ("1 thread", "2 threads")
        )
        least, (ceiling,) = min(one, ways["sequential-1"].p20), run.ceilings
        bound = least / ceiling.throughput_ratio
        for what, value in {
            "sequential-1 / best with 1 thread": ways["sequential-1"].p20 / one,
            **{f"{own}-2 / best with 2 threads": ways[f"{own}-2"].p20 / two for own in algorithms},
            "throughput of 2 copies / 1": ceiling.throughput_ratio,
            "bound: fastest on one core / 2": least / 2,
            "bound: the same / 2 copies": bound,
            **{f"that bound / {own}-2": bound / ways[f"{own}-2"].p20 for own in algorithms},
        }.items():
            print(f"    {what:<34} {value:8.3f}", flush=True)


def main() -> None:
    """Compare the networks that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=NETWORKS, metavar="NETWORK")
    parser.add_argument("--engines", nargs="+", choices=_ENGINES, default=_ENGINES, help="default: both, one by one")
    parser.add_argument(
        "--algorithms", nargs="+", default=_ALGORITHMS, metavar="NAME", help="on two devices (default: hios-lp)"
    )
    parser.add_argument(
        "--baselines", nargs="+", choices=_BASELINES, default=_BASELINES, help="other runtimes (default: all)"
    )
    parser.add_argument("--runs", type=int, default=36, metavar="N", help="runs of every way (default: 36)")
    parser.add_argument("--tensorflow", type=Path, metavar="FOLDER", help="compare with TensorFlow too")
    given = parser.parse_args()
    if given.tensorflow:
        environment(given.tensorflow, _TENSORFLOW)
    for name in given.networks:
        compare(name, given.engines, given.runs, given.tensorflow, given.algorithms, given.baselines)


if __name__ == "__main__":
    main()
