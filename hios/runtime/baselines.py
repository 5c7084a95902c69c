"""What else runs the model: eager PyTorch, torch.compile, ONNX Runtime; each in workers of its own."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from hios.errors import PlatformError
from hios.models import RUNTIMES

#: Packages of the extra ``onnx`` by which ONNX Runtime runs a program of torch.export.
_ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")


@dataclass
class Reference:
    """The model itself in another runtime, in a worker of its own.

    Attributes:
        name: in run.json.
        worker: number of its worker.
        cores: cores of its worker, one a thread.
        kind: one of ``RUNTIMES``.
        parallel: whether the threads run operators beside each other (ORT_PARALLEL), not parts of one operator.
        compile_time_s: what it took to compile the model; None where nothing is compiled.
        latencies_ms: of every measured run.
        difference: largest difference of any output from what outputs are compared with.
    """

    name: str
    worker: int
    cores: list[int]
    kind: str = "eager"
    parallel: bool = False
    compile_time_s: float | None = None
    latencies_ms: list[float] = field(default_factory=list)
    difference: float = 0.0


def references(cores: Sequence[list[int]], runtime: str, baselines: Collection[str]) -> list[Reference]:
    """The model itself with one thread, and with one on every core; workers come after those of the engine.

    The first one is what outputs are compared with: the program's own runtime, which always takes part.

    Args:
        cores: of every device.
        runtime: of the program, one of ``RUNTIMES``. An ONNX file runs in ONNX Runtime only.
        baselines: names of ``RUNTIMES``.
    """
    everything = all_cores(cores)
    first = len(cores) + (len(everything) > 1)  # devices, and the one of all cores
    kinds = [kind for kind in RUNTIMES if kind == runtime or (kind in baselines and runtime == "eager")]
    found: list[Reference] = []
    for kind in kinds:
        ways = [(list(cores[0]), False)]
        if len(everything) > 1:
            ways += [(everything, False)]
            ways += [(everything, True)] if kind == "onnxruntime" and kind in baselines else []
        for own, parallel in ways:
            threads = f"{len(own)} thread{'s' if len(own) > 1 else ''}"
            name = f"{RUNTIMES[kind]}, {'parallel, ' if parallel else ''}{threads}"
            found.append(Reference(name, first + len(found), own, kind, parallel))
    return found


def all_cores(cores: Sequence[Sequence[int]]) -> list[int]:
    """The cores of all devices together; virtual devices share some."""
    return list(dict.fromkeys(core for own in cores for core in own))


def require(baselines: Collection[str], runtime: str | None) -> None:
    """Refuse baselines that cannot run here.

    Args:
        baselines: names of ``RUNTIMES``.
        runtime: of the program, one of ``RUNTIMES``; None where there is no program.

    Raises:
        PlatformError: no program, no C++ compiler, or a package is missing.
    """
    more = [name for name in baselines if name != "eager"]
    if more and runtime is None:
        raise PlatformError(
            f"--baselines: found {more[0]}; allowed with --program only: a baseline runs the model itself"
        )
    if runtime != "eager":
        return
    if "compile" in baselines and shutil.which(compiler := os.environ.get("CXX", "g++")) is None:
        raise PlatformError(
            f"baseline compile: torch.compile needs a C++ compiler, and there is no {compiler}; install g++, name "
            "another one in CXX, or leave the baseline out"
        )
    if "onnxruntime" in baselines:
        for package in _ONNX_PACKAGES:
            if importlib.util.find_spec(package) is None:
                raise PlatformError(
                    f"baseline onnxruntime: needs {package}, which is not installed: pip install 'hios[onnx]'"
                )
