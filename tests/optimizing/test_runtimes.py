"""Other runtimes of the whole model: what they refuse, and conversions that the budget ends."""

from __future__ import annotations

import gc
import logging
import os
import re
import threading
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hios.errors import PlatformError
from hios.optimizing import runtimes
from hios.optimizing.runtimes import Conversion
from tests.openvino_marker import needs_openvino
from tests.scripts import printed


def test_errors_of_runtimes_are_ours() -> None:
    """Whatever a runtime raises in a call is an error of ours in one line, upon which the model itself runs."""

    def failing(inputs: list[Tensor]) -> list[Tensor]:
        raise ValueError("no memory\nand more")

    with pytest.raises(PlatformError, match=r"^OpenVINO: no memory$"):
        runtimes._guarded("openvino", failing)([])


def test_forked_processes_have_no_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a forked process, which has none of the threads, a runtime is not called."""
    run = runtimes._guarded("openvino", lambda inputs: inputs)
    assert run([]) == []
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(PlatformError, match=r"^OpenVINO: it belongs to process \d+"):
        run([])


_SIGNALLED = """
import os, signal, sys, torch
from pathlib import Path
from hios.frontends import openvino

program = torch.export.export(torch.nn.ReLU(), (torch.ones(2, 3),))
openvino.save(openvino.converted(program, "the model"), Path(sys.argv[1]))
sessions = [openvino.OpenVinoSession(openvino.load(Path(sys.argv[1])), threads=1) for _ in range(2)]
while sessions:
    sessions.pop(0)
signal.signal(signal.SIGUSR1, lambda *_: print("handled", flush=True))
signal.raise_signal(signal.SIGUSR1)
if (child := os.fork()) == 0:
    signal.alarm(300)
    sys.exit(0)
sys.exit(os.waitpid(child, 0)[1])
"""


@needs_openvino
def test_signals_and_forks_after_openvino(tmp_path: Path) -> None:
    """Sessions that are released in the order in which they were made leave a stack for signals (needs AMX to fail).

    A forked process ends, without waiting for threads that it does not have.
    """
    assert printed("-c", _SIGNALLED, tmp_path / "relu.xml") == "handled\n"


def test_compiled_code_gets_the_strides_that_it_relies_on() -> None:
    """A tensor of other strides is copied into these, one of the same is not; repeated elements hold no others."""
    value = torch.arange(6.0).reshape(2, 3)
    assert runtimes._laid_out(value, (3, 1)) is value
    made = runtimes._laid_out(value.t().contiguous().t(), (3, 1))
    assert made.stride() == (3, 1)
    assert torch.equal(made, value)
    with pytest.raises(RuntimeError, match="single memory location"):
        runtimes._laid_out(value, (0, 1))


class _Passing(nn.Module):
    """Some outputs are inputs, one of them twice."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """As above."""
        return x.clone(), x + y, functional.dropout(y, training=self.training), y.detach(), torch.relu(y)


@needs_openvino
def test_other_threads_log_while_openvino_converts(caplog: pytest.LogCaptureFixture) -> None:
    """What OpenVINO says of decompositions is not heard; what others say is, in this thread and in others."""
    openvino = pytest.importorskip("hios.frontends.openvino")

    def say(text: str, folder: str = "user") -> None:
        record = logging.LogRecord("root", logging.WARNING, f"/site-packages/{folder}/code.py", 1, text, (), None)
        logging.getLogger().handle(record)

    with openvino._quiet():
        say("of openvino", "openvino")
        say("of this thread")
        thread = threading.Thread(target=say, args=("of another", "openvino"))
        thread.start()
        thread.join()
    say("afterwards", "openvino")
    assert caplog.messages == ["of this thread", "of another", "afterwards"]


@needs_openvino
def test_outputs_that_are_inputs(tmp_path: Path) -> None:
    """OpenVINO leaves inputs as they are, and gives them as outputs, in calls and with tensors that are bound."""
    from hios.frontends import openvino

    inputs = torch.randn(2, 3), torch.randn(2, 3)
    before = [value.clone() for value in inputs]
    module = _Passing().eval()
    path = tmp_path / "passing.xml"
    runtimes.convert("openvino", torch.export.export(module, inputs), path, 1)
    session = openvino.OpenVinoSession(openvino.load(path), threads=1)
    bound = [torch.full((2, 3), 7.0) for _ in module(*inputs)]
    compute = session.bound(inputs, bound)
    for _ in range(2):
        called = session(*inputs)
        compute()
        for made in (called, bound):
            assert all(map(torch.equal, made, module(*before)))
        assert all(map(torch.equal, inputs, before))
        assert not {value.data_ptr() for value in called} & {value.data_ptr() for value in inputs}


def test_missing_runtimes_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason stands in the report without the words of hios execute."""
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert runtimes.missing("compile").startswith("torch.compile needs a C++ compiler")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert runtimes.missing("openvino") == "needs openvino, which is not installed: pip install 'hios[openvino]'"


def test_a_conversion_ends_with_the_budget(tmp_path: Path) -> None:
    """At the deadline its process is gone and nothing is left of what it wrote; a failing one says why."""
    path = tmp_path / "model.onnx"
    conversion = Conversion("onnxruntime", path, 1)
    try:
        why = conversion.finish(time.monotonic())
        assert re.match(r"not prepared within \d+ s, which the budget", why)
        assert conversion._process.poll() is not None
    finally:
        conversion.end()
    failing = Conversion("onnxruntime", path, 1)
    copy = os.dup(failing._process.stdin.fileno())  # type: ignore[union-attr]  # as a process forked meanwhile has it
    try:
        failing.begin(tmp_path / "two\nlines" / "program.pt2")
        assert "program.pt2: cannot be read: no such file" in failing.finish(time.monotonic() + 600)
    finally:
        failing.end()
        os.close(copy)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("before", "meanwhile"), [(700, 500_000), (0, 0), (10**6, 10**6)])
def test_garbage_is_looked_for_as_before_afterwards(before: int, meanwhile: int) -> None:
    """Rarely while converting, and never more often than the user has it."""
    own = gc.get_threshold()
    gc.set_threshold(before, *own[1:])
    try:
        first, second = runtimes.rare_collections(), runtimes.rare_collections()
        first.__enter__()
        with second:
            first.__exit__(None, None, None)  # of another thread, which may end before
            assert gc.get_threshold() == (meanwhile, *own[1:])
        assert gc.get_threshold() == (before, *own[1:])
    finally:
        gc.set_threshold(*own)
