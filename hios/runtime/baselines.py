"""What else runs the model: eager PyTorch, torch.compile, ONNX Runtime; each in workers of its own."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from hios.errors import PlatformError
from hios.machine import usable_cores
from hios.models import CPU_RUNTIMES, CUDA_RUNTIMES, PLATFORMS, RUNTIMES
from hios.platforms.cpu.platform import all_cores

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
        gpu: the GPU that it runs on; None on cores.
        compile_time_s: what it took to compile the model; None where nothing is compiled.
        latencies_ms: of every measured run.
        difference: largest difference of any output from what outputs are compared with.
    """

    name: str
    worker: int
    cores: list[int]
    kind: str = "eager"
    parallel: bool = False
    gpu: int | None = None
    compile_time_s: float | None = None
    latencies_ms: list[float] = field(default_factory=list)
    difference: float = 0.0

    @property
    def threads(self) -> int:
        """Threads inside an operator; of a GPU the one that launches."""
        return len(self.cores) if self.gpu is None else 1


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


def gpu_references(runtime: str, baselines: Collection[str]) -> list[Reference]:
    """The model itself on the first GPU, each in a worker of its own behind the one that holds all GPUs.

    The first one is what outputs are compared with, as in `references`; an ONNX file runs in ONNX Runtime on cores.

    Args:
        runtime: of the program, one of ``RUNTIMES``.
        baselines: names of ``RUNTIMES``.
    """
    cores = usable_cores()
    if runtime != "eager":
        return [Reference(f"{RUNTIMES[runtime]}, {len(cores)} threads", 1, cores, runtime)]
    kinds = [kind for kind in RUNTIMES if kind == runtime or kind in baselines]
    return [Reference(RUNTIMES[kind], 1 + number, cores, kind, gpu=0) for number, kind in enumerate(kinds)]


def require(baselines: Collection[str], runtime: str | None, platform: str = "cpu") -> None:
    """Refuse baselines that cannot run here.

    Args:
        baselines: names of ``RUNTIMES``.
        runtime: of the program, one of ``RUNTIMES``; None where there is no program.
        platform: one of ``PLATFORMS``.

    Raises:
        PlatformError: one is for another platform, no program, no C++ compiler, or a package is missing.
    """
    for name, elsewhere in (("cpu", CUDA_RUNTIMES), ("cuda", CPU_RUNTIMES)):
        wrong = [kind for kind in baselines if platform == name and kind in elsewhere]
        if wrong:
            (other,) = set(PLATFORMS) - {name}
            raise PlatformError(
                f"--baselines: found {wrong[0]}, which is for platform {other}; allowed on platform {name}: "
                f"{', '.join(kind for kind in RUNTIMES if kind not in elsewhere)}"
            )
    more = [name for name in baselines if name != "eager"]
    if more and runtime is None:
        raise PlatformError(
            f"--baselines: found {more[0]}; allowed with --program only: a baseline runs the model itself"
        )
    if runtime != "eager":
        return
    compiled = [name for name in baselines if name.startswith("compile")]
    if compiled and shutil.which(compiler := os.environ.get("CXX", "g++")) is None:
        raise PlatformError(
            f"baseline {compiled[0]}: torch.compile needs a C++ compiler, and there is no {compiler}; install g++, "
            "name another one in CXX, or leave the baseline out"
        )
    if compiled and platform == "cuda" and importlib.util.find_spec("triton") is None:
        raise PlatformError(
            f"baseline {compiled[0]}: torch.compile needs triton for GPUs, which is not installed; install it for this "
            "torch, or leave the baseline out"
        )
    if "tensorrt" in baselines and importlib.util.find_spec("torch_tensorrt") is None:
        raise PlatformError(
            "baseline tensorrt: needs torch_tensorrt, which is not installed; install it for this torch, or leave the "
            "baseline out"
        )
    if "onnxruntime" in baselines:
        for package in _ONNX_PACKAGES:
            if importlib.util.find_spec(package) is None:
                raise PlatformError(
                    f"baseline onnxruntime: needs {package}, which is not installed: pip install 'hios[onnx]'"
                )
