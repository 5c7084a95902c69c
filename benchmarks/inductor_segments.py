"""Networks as one segment in inductor, beside the runtimes that segments may run in; one thread.

    python benchmarks/inductor_segments.py NETWORK[:LAYERS] ... [--runs N]

Networks are those of many_branches.py, or of models/, a transformer with so many layers. Inductor compiles ahead of
time, with weights as constants that it may lay out anew (freezing), or without if that fails. All runtimes take turns
on one core. Printed are 20th percentiles in milliseconds, with the seconds until each was ready, and inductor over the
fastest of the others.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence

import torch
from many_branches import NETWORKS, Branches
from torch import Tensor, nn
from torch.export import ExportedProgram

import hios
from hios.formats.onnx_session import OnnxSession
from hios.frontends import openvino
from hios.frontends.export import build_model
from hios.frontends.onnx_export import to_onnx
from hios.frontends.tolerances import beyond
from hios.kernels.segment_module import exported
from hios.machine.description import usable_cores
from hios.machine.statistics import spread

INDUCTOR, WARMUP = "inductor", 5
Compute = Callable[[], object]


def in_onnx_runtime(program: ExportedProgram, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Compute:
    """What computes from tensors into others."""
    return OnnxSession("a segment", to_onnx(program), threads=1).bound(inputs, outputs)


def in_openvino(program: ExportedProgram, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Compute:
    """What computes from tensors into others."""
    return openvino.OpenVinoSession(openvino.converted(program, "a segment"), threads=1).bound(inputs, outputs)


def in_inductor(program: ExportedProgram, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Compute:
    """What computes from tensors into others."""
    from torch._inductor import aoti_compile_and_package, aoti_load_package, config
    from torch._inductor.exc import InductorError

    config.compile_threads = 1
    with torch.no_grad(), warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        path = f"{folder}/segment.pt2"
        try:
            aoti_compile_and_package(program, package_path=path, inductor_configs={"freezing": True})
        except InductorError:  # of what it cannot freeze
            aoti_compile_and_package(program, package_path=path)
        run = aoti_load_package(path).loader.run

    def compute() -> None:
        for output, made in zip(outputs, run(list(inputs)), strict=True):
            output.copy_(made)

    return compute


RUNTIMES = {"ONNX Runtime": in_onnx_runtime, "OpenVINO": in_openvino, INDUCTOR: in_inductor}


def compare(name: str, module: nn.Module, inputs: tuple[Tensor, ...], runs: int) -> None:
    """Print a line on a network."""
    graph, weights = hios.extract(torch.export.export(module, inputs))
    operators = [graph.operators[place] for place in graph.order]
    given = {("input", entry.name, 0): value for entry, value in zip(graph.inputs, inputs, strict=True)}
    program = exported(operators, given, [own.external for own in graph.outputs if own.external], weights)
    with torch.no_grad():
        right = list(program.module()(*inputs))
    ways: dict[str, Compute] = {}
    ready_s: dict[str, float] = {}
    for runtime, prepare in RUNTIMES.items():
        began, outputs = time.monotonic(), [torch.zeros_like(value).contiguous() for value in right]
        ways[runtime] = prepare(program, inputs, outputs)
        ways[runtime]()
        ready_s[runtime] = time.monotonic() - began
        if (off := beyond(outputs, right, 1e-4)) is not None:
            print(f"  {runtime}: an output differs by {off:.3g} of its largest value")
    samples: dict[str, list[float]] = {runtime: [] for runtime in ways}
    for _ in range(WARMUP + runs):
        for runtime, run in ways.items():
            began_ns = time.perf_counter_ns()
            run()
            samples[runtime].append((time.perf_counter_ns() - began_ns) / 1e6)
    known_ms = {runtime: spread(own[WARMUP:])[1] for runtime, own in samples.items()}
    ratio = known_ms[INDUCTOR] / min(own for runtime, own in known_ms.items() if runtime != INDUCTOR)
    times = ", ".join(
        f"{runtime} {own:.3f} ms (ready after {ready_s[runtime]:.1f} s)" for runtime, own in known_ms.items()
    )
    print(f"{name}: {times}; {ratio:.2f}; load average {os.getloadavg()[0]:.1f}", flush=True)


def main() -> None:
    """Compare all networks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="+", metavar="NETWORK")
    parser.add_argument("--runs", type=int, default=36, metavar="N", help="runs of every runtime (default: 36)")
    given = parser.parse_args()
    os.sched_setaffinity(0, usable_cores()[-1:])
    torch.set_num_threads(1)
    for wanted in given.networks:
        torch.manual_seed(0)
        name, _, layers = wanted.partition(":")
        if name in NETWORKS:
            made, shape = NETWORKS[name]
            compare(wanted, Branches(made).eval(), (torch.randn(shape),), given.runs)
        else:
            compare(wanted, *build_model(name, {"layers": int(layers)} if layers else {}, 0), given.runs)


if __name__ == "__main__":
    main()
