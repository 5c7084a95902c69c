"""What a call of an optimized module costs more than ONNX Runtime called by hand with the same file and threads.

    python benchmarks/optimize_overhead.py [MODEL ...]
    python benchmarks/optimize_overhead.py --side-by-side [--packages FOLDER] [MODEL ...]

Both take turns, once back to back and once with 30 ms between calls, in which the caches of the processor cool down.
The second table is what the guards alone cost, as networks of convolutions and batch normalizations grow. The third
is what a call of torch.compile costs for such networks beside what runs them: with a backend that does nothing, which
is what Dynamo takes, and with that of hios.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import onnxruntime
import torch
from torch import Tensor, fx, nn
from zoo import MODELS, timm_model

import hios
from hios.errors import UnsupportedError
from hios.formats.onnx_session import OnnxSession
from hios.frontends.export import build_model
from hios.optimizing import dynamo as backend
from hios.optimizing import runtimes
from hios.optimizing.module import Guards, OptimizedModule, TracedRunner
from hios.optimizing.report import Report
from hios.optimizing.tracing import ModelInputs, ModelOutputs, export

_PAUSES_S = (0.0, 0.03)
_ROUNDS = 60
#: Seconds in which a choice that was made beside other work may become final.
_SETTLING_S = 60.0
#: Networks for ``--side-by-side``; the others are of timm.
_SIDE_BY_SIDE = ("squeezenet", "googlenet", "inception_v3", "resnet50", "nasnet_mobile", "bert")
_OF_TIMM = (
    "convnext_atto",
    "efficientnet_b0",
    "hrnet_w18_small",
    "inception_next_tiny",
    "mobilenetv3_small_100",
    "res2net50_14w_8s",
    "swin_tiny_patch4_window7_224",
)


def rounds_us(calls: Mapping[str, Callable[[], object]], pause_s: float) -> dict[str, list[float]]:
    """The microseconds of calls that take turns, by name."""
    took: dict[str, list[float]] = {name: [] for name in calls}
    order, shuffle = list(calls), random.Random(0).shuffle
    for number in range(_ROUNDS + 1):
        shuffle(order)
        for name in order:
            time.sleep(pause_s)
            began = time.perf_counter()
            calls[name]()
            if number:  # the first round warms up
                took[name].append(1e6 * (time.perf_counter() - began))
    return took


def network(name: str, folder: Path) -> str:
    """The rows of one network."""
    model, inputs = build_model(name, {}, 0)
    model, inputs, threads = model.eval(), tuple(inputs), torch.get_num_threads()
    path = runtimes.file("onnxruntime", folder, threads)
    runtimes.convert("onnxruntime", export(model, inputs, {}).program, path, threads)
    given = ModelInputs(inputs, {}, model)
    with torch.no_grad():
        outputs = ModelOutputs(model(*inputs), inputs)
    outputs.forget()
    run = runtimes.load("onnxruntime", path, threads, [])
    guards = Guards(model)
    runner = TracedRunner(given, outputs, guards, run, lambda: None)
    fast = OptimizedModule(model, Report(name, "ONNX Runtime", "so"), runner)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    arrays = {value.name: tensor.numpy() for value, tensor in zip(session.get_inputs(), inputs, strict=True)}
    calls: dict[str, Callable[[], object]] = {
        "by hand": lambda: session.run(None, arrays),
        "hios": lambda: fast(*inputs),
        "guards": guards.changed,
        "inputs": lambda: given.tensors(inputs, {}),
    }
    rows = []
    for pause_s in _PAUSES_S:
        rounds = rounds_us(calls, pause_s)
        us = {name: statistics.median(times) for name, times in rounds.items()}
        more = statistics.median(a - b for a, b in zip(rounds["hios"], rounds["by hand"], strict=True))
        rows.append(
            f"{name:<16} {1e3 * pause_s:>5.0f} {us['by hand'] / 1e3:>10.3f} {us['hios'] / 1e3:>9.3f} {more:>9.0f} "
            f"{100 * more / us['by hand']:>5.1f} {us['guards']:>9.0f} {us['inputs']:>9.0f}"
        )
    return "\n".join(rows)


#: What runs by hand: the runtime, and for which one the file was converted.
_BY_HAND = {
    "ONNX Runtime": ("onnxruntime", "onnxruntime"),
    "OpenVINO": ("openvino", "openvino"),
    "OpenVINO from ONNX": ("openvino", "onnxruntime"),
}


def side_by_side(name: str, folder: Path) -> str:
    """The row of one network."""
    model, inputs = timm_model(name) if name in MODELS else build_model(name, {}, 0)
    model, inputs = model.eval(), tuple(inputs)
    missing = {}
    with contextlib.closing(hios.optimize(model, inputs, cache=False)) as fast:
        began = time.monotonic()
        while fast.report.provisional and time.monotonic() - began < _SETTLING_S:
            fast(*inputs)  # candidates take turns in these calls
        program = export(model, inputs, {}).program
        calls: dict[str, Callable[[], object]] = {"eager": lambda: model(*inputs), "hios": lambda: fast(*inputs)}
        for label, kinds in _BY_HAND.items():
            try:
                calls[label] = _bound(*kinds, program, folder, inputs)
            except UnsupportedError as error:
                missing[label] = str(error)
        rounds = rounds_us(calls, _PAUSES_S[-1])
    ms = {label: statistics.median(times) / 1e3 for label, times in rounds.items()}
    cells = [name, *(f"{ms[label]:.2f}" if label in ms else "" for label in ("eager", *_BY_HAND, "hios"))]
    cells.append(f"{fast.report.chosen}{', not settled' if fast.report.provisional else ''}")
    by_hand = [label for label in _BY_HAND if label in ms]
    if by_hand:
        pairs = list(zip(rounds["hios"], rounds[min(by_hand, key=ms.__getitem__)], strict=True))
        cells += [
            f"{statistics.median(a - b for a, b in pairs):.0f}",
            f"{statistics.median(a / b for a, b in pairs):.3f}",
        ]
    else:
        cells += ["", "no runtime by hand"]
    return "\n".join([_row(cells), *(f"{label}: {why}" for label, why in missing.items())])


def _bound(kind: str, converted_for: str, program: Any, folder: Path, inputs: Sequence[Tensor]) -> Callable[[], object]:
    """A call of a runtime by hand, with buffers for inputs and outputs that are bound once."""
    if lacking := runtimes.missing(kind):
        raise UnsupportedError(lacking)
    threads = torch.get_num_threads()
    path = runtimes.file(converted_for, folder, threads)
    if not path.exists():
        runtimes.convert(converted_for, program, path, threads)
    given = [tensor.contiguous() for tensor in inputs]
    session: Any
    if kind == "openvino":
        from hios.frontends import openvino

        session = openvino.OpenVinoSession(openvino.load(path), threads=threads)
    else:
        session = OnnxSession(path, threads=threads)
    compute: Callable[[], object] = session.bound(given, session(*given))
    return compute


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def layers(count: int) -> nn.Module:
    """A network of convolutions, batch normalizations and ReLUs."""
    parts = (nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(count))
    return nn.Sequential(*parts).eval()


def guards_alone() -> str:
    """What the guards cost in networks of some sizes."""
    rows = ["parameters modules   back to back us   with 30 ms between us"]
    for count in (25, 100, 250):
        model = layers(count)
        guards = Guards(model)
        us = [statistics.median(rounds_us({"": guards.changed}, pause_s)[""]) for pause_s in _PAUSES_S]
        parameters, modules = len(list(model.parameters())), len(list(model.modules()))
        rows.append(f"{parameters:>10} {modules:>7} {us[0]:>17.0f} {us[1]:>23.0f}")
    return "\n".join(rows)


def dynamo() -> str:
    """What torch.compile costs with a backend that does nothing, and with ours where what runs takes no time."""
    rows = ["parameters   any backend us   hios us   more us"]
    x = torch.ones(1, 8, 4, 4)

    def nothing(_: fx.GraphModule, inputs: Sequence[Tensor]) -> Callable[..., tuple[Tensor]]:
        return lambda *_: (x,)

    def ours(part: fx.GraphModule, inputs: Sequence[Tensor]) -> Callable[..., Any]:
        def at_once(bound: nn.Module, args: Sequence[Tensor], *_: Any) -> OptimizedModule:
            outputs = ModelOutputs(bound(*args), args)
            made = outputs.tensors
            outputs.forget()
            runner = TracedRunner(ModelInputs(args, {}), outputs, Guards(bound), lambda _: made, lambda: None)
            return OptimizedModule(bound, Report("a part", "nothing", "so"), runner)

        with mock.patch.object(backend, "accelerated", at_once):
            return backend.hios(part, inputs)

    for count in (25, 100):
        calls = {}
        for name, compiler in (("any", nothing), ("hios", ours)):
            torch._dynamo.reset()
            compiled = torch.compile(layers(count), backend=compiler)
            compiled(x)
            calls[name] = functools.partial(compiled, x)
        took = rounds_us(calls, 0.0)
        more = statistics.median(a - b for a, b in zip(took["hios"], took["any"], strict=True))
        us = {name: statistics.median(times) for name, times in took.items()}
        rows.append(f"{4 * count:>10} {us['any']:>16.0f} {us['hios']:>9.0f} {more:>9.0f}")
    return "\n".join(rows)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--side-by-side", action="store_true")
    parser.add_argument("--packages", type=Path, help="folder with timm")
    given = parser.parse_args()
    if given.side_by_side:
        of_timm = _OF_TIMM if given.packages is not None else ()
        print(_row(["ms", "eager", *_BY_HAND, "hios.optimize", "which is", "us more", "times the best by hand"]))
        print(_row(["---"] * (len(_BY_HAND) + 6)), flush=True)
        for name in given.models or (*_SIDE_BY_SIDE, *of_timm):
            if name in MODELS and given.packages is not None:  # not before, as other networks must not find them
                sys.path.insert(0, str(given.packages.resolve()))
            with tempfile.TemporaryDirectory() as folder, torch.no_grad():
                print(side_by_side(name, Path(folder)), flush=True)
        return
    print("network       pause ms by hand ms   hios ms   more us     %  guards us inputs us")
    for name in given.models or ("squeezenet", "googlenet"):
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            print(network(name, Path(folder)), flush=True)
    print(guards_alone(), flush=True)
    with torch.no_grad():
        print(dynamo())


if __name__ == "__main__":
    main()
