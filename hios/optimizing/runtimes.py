"""Converting the whole model for another runtime, OpenVINO, ONNX Runtime or TorchInductor, and running it there.

Each converts an exported program into files, which the cache keeps, and loads it from them in tenths of a second.
torch.compile takes part as AOTInductor, which makes the same kernels ahead of time and keeps them in a file.

A conversion runs in a process of its own, which is stopped when the budget ends: ``python -m hios.optimizing.runtimes
KIND FILE THREADS`` gets the path of the program by its standard input, as a line of JSON.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

import torch
from torch import Tensor

from hios import platforms
from hios.errors import FailedCallError, HiosError, PlatformError, UnsupportedError, first_line
from hios.frontends.models import RUNTIMES
from hios.frontends.program_interface import user_inputs
from hios.workers.pool import import_folders

if TYPE_CHECKING:
    from torch.export import ExportedProgram

#: From the input tensors to the output tensors, which no later call overwrites.
Run = Callable[[list[Tensor]], list[Tensor]]


def missing(kind: str) -> str:
    """What a runtime lacks here and what to install; empty if it is usable."""
    try:
        platforms.executing("cpu").require_runtime(kind)
    except PlatformError as error:
        return str(error).removeprefix(f"baseline {kind}: ")
    return ""


def file(kind: str, folder: Path, threads: int) -> Path:
    """The path of a converted program; for TorchInductor it depends on the number of threads."""
    names = {"openvino": "openvino.xml", "onnxruntime": "model.onnx", "compile": f"inductor-{threads}.pt2"}
    return folder / names[kind]


def convert(kind: str, program: ExportedProgram, path: Path, threads: int) -> None:
    """Write a program, which is not changed, in the format that a runtime loads (`file` names the path).

    The kind is ``openvino``, ``onnxruntime`` or ``compile``, threads are those inside operators of TorchInductor.

    Raises:
        UnsupportedError: the runtime cannot convert it; the message is the first line of the runtime's error.
    """
    if kind == "openvino":
        from hios.frontends import openvino

        openvino.save(openvino.converted(program, "the model"), path)
        return
    if kind == "onnxruntime":
        from hios.frontends.onnx_export import to_onnx

        path.write_bytes(to_onnx(program))
        return
    try:
        with warnings.catch_warnings(action="ignore"):
            _to_inductor(program, path, threads)
    except Exception as error:  # it raises many types; all mean the same to the user
        reason = first_line(getattr(error, "inner_exception", error))
        raise UnsupportedError(f"it cannot be converted: {reason}") from error


def _to_inductor(program: ExportedProgram, path: Path, threads: int) -> None:
    from torch._inductor import aoti_compile_and_package

    if program.example_inputs is None:  # it was read from a file
        inputs = [node.meta["val"] for node in user_inputs(program)]
        zeros = [torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).zero_() for value in inputs]
        program.example_inputs = (tuple(zeros), {})
    before = torch.get_num_threads()
    torch.set_num_threads(threads)  # which its loops then have
    try:
        aoti_compile_and_package(program, package_path=str(path))
    finally:
        torch.set_num_threads(before)


def load(kind: str, path: Path, threads: int, strides: Sequence[Sequence[int]]) -> Run:
    """Load the output of `convert`; compiled code relies on the strides of the inputs.

    Raises:
        UnsupportedError: the runtime cannot load it.
    """
    if kind == "openvino":
        from hios.frontends import openvino

        session = openvino.OpenVinoSession(openvino.load(path), threads=threads)
        return _guarded(kind, lambda inputs: session(*inputs))
    if kind == "onnxruntime":
        from hios.formats.onnx_session import OnnxSession

        runtime = OnnxSession(path, threads=threads)
        return _guarded(kind, lambda inputs: runtime(*(value.detach().contiguous() for value in inputs)))
    return _guarded(kind, _inductor(path, [tuple(own) for own in strides]))


def _guarded(kind: str, run: Run) -> Run:
    """A function that raises our errors and refuses to run in a forked process, where its threads are missing."""
    process = os.getpid()

    def guarded(inputs: list[Tensor]) -> list[Tensor]:
        if os.getpid() != process:
            raise PlatformError(f"{RUNTIMES[kind]}: it belongs to process {process}; allowed: to use it there")
        try:
            return run(inputs)
        except Exception as error:  # runtimes raise many types
            raise FailedCallError(f"{RUNTIMES[kind]}: {first_line(error)}") from error

    return guarded


def _inductor(path: Path, strides: Sequence[tuple[int, ...]]) -> Run:
    from torch._inductor import aoti_load_package

    try:
        compiled = aoti_load_package(str(path))
    except Exception as error:  # a file of another machine or version of torch
        raise UnsupportedError(f"{path}: torch cannot load it: {first_line(error)}") from error

    def run(inputs: list[Tensor]) -> list[Tensor]:
        with torch.inference_mode(False), torch.no_grad():
            given = [_laid_out(value.detach(), own) for value, own in zip(inputs, strides, strict=True)]
            outputs = compiled(*given)
        return [outputs] if isinstance(outputs, Tensor) else list(outputs)

    return run


def _laid_out(value: Tensor, stride: tuple[int, ...]) -> Tensor:
    """A tensor with the strides that compiled code expects, itself if it has them; refused for repeated elements."""
    if value.stride() == stride:
        return value
    return torch.empty_strided(value.shape, stride, dtype=value.dtype).copy_(value)


#: New objects after which Python looks for garbage while converting; what it was before that, of conversions that run.
_RARELY, _BEFORE, _LOCK = 500_000, list[tuple[int, int, int]](), threading.Lock()
#: Maximum number of characters of an error line that is passed on.
_LONGEST = 300


class Conversion:
    """A process that converts; the arguments are those of `hios.optimizing.runtimes.convert`, the program a file."""

    def __init__(self, kind: str, path: Path, threads: int) -> None:
        self._began, self.begun = time.monotonic(), False
        #: Seconds that it took, or after which it was stopped.
        self.took_s = 0.0
        self._path, self._partial = path, path.with_name(f"partial-{path.name}")
        command = [sys.executable, "-P", "-m", "hios.optimizing.runtimes"]
        self._errors: IO[str] = tempfile.TemporaryFile(  # noqa: SIM115 - `end` closes it
            "w+", encoding="utf-8", errors="replace"
        )
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [*command, kind, str(self._partial), str(threads)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(import_folders())},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,  # so that compilers it starts end with it
        )

    def begin(self, program: Path) -> None:
        """Convert a program, once what that needs is loaded."""
        self._began, self.begun = time.monotonic(), True
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        with contextlib.suppress(BrokenPipeError), self._process.stdin as given:  # one that has failed says why
            given.write(f"{json.dumps(str(program))}\n".encode())

    @property
    def runs(self) -> bool:
        """Whether it converts."""
        return self.begun and self._process.poll() is None

    def finish(self, deadline: float) -> str:
        """Wait for the result, until the deadline by ``time.monotonic``; why there is none, or an empty text."""
        try:
            code = self._process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.end()
            self.took_s = time.monotonic() - self._began
            return f"not prepared within {self.took_s:.0f} s, which the budget (budget_s) had for it"
        if code == 0:
            # Not the current time, as the result may be older than this call. All processes share this clock.
            self.took_s = float(self._lines()[-1]) - self._began
            self._partial.replace(self._path)
            return ""
        self.took_s = time.monotonic() - self._began
        lines = self._lines()
        return lines[-1][:_LONGEST] if lines else f"its conversion ended with exit status {code}"

    def _lines(self) -> list[str]:
        """The lines it printed."""
        self._errors.seek(0)
        return [line.strip() for line in self._errors.read().splitlines() if line.strip()]

    def end(self) -> None:
        """Stop it and its child processes."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, 9)
            self._process.wait()
        self._errors.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._partial.unlink(missing_ok=True)


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Have Python look for garbage rarely, which by default takes a good part of the time of a conversion.

    Several threads may do so at once; the last one puts back what was there before the first.
    """
    with _LOCK:
        first, *more = before = gc.get_threshold()
        _BEFORE.append(before)
        gc.set_threshold(first and max(first, _RARELY), *more)  # 0 is never
    try:
        yield
    finally:
        with _LOCK:
            before = _BEFORE[0]
            _BEFORE.pop()
            if not _BEFORE:
                gc.set_threshold(*before)


@rare_collections()
def main(arguments: list[str]) -> None:
    """Convert; the last line on standard error is an error, or the time of completion (``time.monotonic``)."""
    kind, path, threads = arguments
    from hios.frontends import program as programs
    from hios.workers.process_settings import end_with_parent

    end_with_parent(os.getppid())
    torch.set_num_threads(int(threads))
    try:
        if kind == "onnxruntime":  # loads what it needs, which takes seconds, while the program is still made
            convert(kind, torch.export.export(torch.nn.ReLU(), (torch.ones(1),)), Path(path), int(threads))
        if line := sys.stdin.buffer.readline():  # not to its end: a process forked meanwhile may hold it open
            convert(kind, programs.load(json.loads(line), trusted=True), Path(path), int(threads))  # we wrote it
    except HiosError as error:
        sys.exit(str(error))
    sys.stderr.write(f"\n{time.monotonic()}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
