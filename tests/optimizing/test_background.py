"""hios.optimize(..., wait=False): another process looks for the fastest way while the model itself runs."""

from __future__ import annotations

import copy
import functools
import gc
import os
import re
import signal
import stat
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

import hios
from hios import HiosError, HiosWarning
from hios.optimizing import autotune, optimize
from hios.optimizing import background as backgrounds
from hios.optimizing.autotune import Autotune, Tuned
from hios.optimizing.background import Background, Found
from hios.optimizing.candidates import in_runtime, itself
from hios.optimizing.choice_cache import set_torch, torch_settings
from hios.optimizing.module import OptimizedModule, torch_threads
from hios.optimizing.optimize import _Optimizer
from hios.optimizing.options import Options
from hios.optimizing.other_inputs import InputsComparison
from hios.optimizing.preparation import Preparation, Subject
from hios.optimizing.race import Race
from hios.optimizing.report import Report
from tests.optimizing.optimized_models import as_optimized, image
from tests.platforms.torch_precision import float32_precision
from tests.runtime.small import Branches
from tests.scripts import python
from tests.workers.processes import children, eventually

_KEYWORDS: dict[str, Any] = {"way": "openvino", "least_ms": 0.0, "wait": False}


class _Counting(nn.Module):
    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Count the calls."""
        self.calls += 1
        return x * 2


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that the other process waits for before it begins."""
    file = tmp_path / "go"
    waits = f"while os.getppid() == {os.getpid()} and not os.path.exists({str(file)!r}): time.sleep(0.05)"
    monkeypatch.setattr(backgrounds, "_WORK", f"import os, time\n{waits}\n{backgrounds._WORK}")
    return file


def test_another_process_finds_the_way(tmp_path: Path, go: Path) -> None:
    """The model itself runs until the way is there, which the next start finds in the cache.

    The other process computes with the settings of torch that this one has, so that its choice is one for this process.
    """
    pytest.importorskip("openvino")
    model, x, before = Branches().eval(), image(0), torch_settings()
    torch.set_float32_matmul_precision("high")
    torch.use_deterministic_algorithms(True)
    try:
        _found_elsewhere(model, x, tmp_path, go)
    finally:
        set_torch(before)
    assert torch_settings() == before


def _found_elsewhere(model: nn.Module, x: torch.Tensor, tmp_path: Path, go: Path) -> None:
    fast = hios.optimize(model, x, cache=tmp_path, **_KEYWORDS)
    assert (fast.runner, fast.report.chosen) == (None, "the model itself")
    assert "still to come: the fastest way" in str(fast.report)

    def settled() -> bool:
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)
        return not fast.report.pending

    go.touch()
    with torch.no_grad():
        assert eventually(settled, every_s=0.05)  # leaves the cores to the process
        assert fast.report.chosen.startswith("OpenVINO")
        with warnings.catch_warnings(action="error", category=HiosWarning):
            torch.testing.assert_close(fast(image(1)), model(image(1)), rtol=1e-4, atol=1e-4)
    fast.close()
    assert eventually(lambda: not list(tmp_path.glob("background-*")))
    if not fast.report.provisional:
        again = hios.optimize(model, x, cache=tmp_path, **{**_KEYWORDS, "wait": True})
        assert again.report.cached
        again.close()


@pytest.mark.parametrize("where", ["cuda.matmul", "mkldnn.matmul", "mkldnn.conv"])
def test_precision_set_by_operator(where: str) -> None:
    """It is one of the settings, though torch then refuses to say what the precision of matrix products is."""
    before = torch_settings()
    with float32_precision(where, "tf32"):
        changed = torch_settings()
        assert changed != before
    assert torch_settings() == before
    with float32_precision(where, "none"):
        set_torch(changed)
        assert torch_settings() == (before if where == "cuda.matmul" else changed)
    assert torch_settings() == before


def test_a_choice_that_is_not_taken_is_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report does not give the reasons of another choice for the model itself."""
    pytest.importorskip("openvino")
    monkeypatch.setattr(_Optimizer, "taken", lambda *_: None)
    fast = hios.optimize(Branches().eval(), image(0), **_KEYWORDS)
    assert eventually(lambda: not fast.report.pending)
    assert fast.report.chosen == "the model itself"
    assert re.fullmatch(r"OpenVINO.* was chosen \(.*\), but is not faster here, or .*", fast.report.reason)
    fast.close()


def test_what_is_quick_is_used_until_the_fastest_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime runs the model while schedules are still to come; what fails then takes nothing away."""
    pytest.importorskip("openvino")
    monkeypatch.setattr(Race, "_first", lambda self, way: (self.call(way), 1.0))
    took = {"eager": 3.0, "openvino": 2.0, "schedule": 1.5}
    monkeypatch.setattr(Race, "_timed", lambda _, way: 1.0 if way.label == "sequential, 1 core" else took[way.kind])
    monkeypatch.setattr(autotune, "_EARLY_S", 3600.0)
    monkeypatch.setattr(optimize, "outruns", lambda *_: True)
    model, x, seen, settle = Branches().eval(), image(0), list[tuple[str, str]](), OptimizedModule.settle

    def settled(module: OptimizedModule, final: OptimizedModule) -> None:
        settle(module, final)
        seen.append((module.report.chosen, module.report.pending))
        torch.testing.assert_close(module(x), model(x), rtol=1e-4, atol=1e-4)

    def here(
        background: Background, request: Sequence[Any], found: Callable[[Found], None], failed: Callable[[str], None]
    ) -> None:
        given, args, kwargs, options, _, _ = request
        telling = replace(options, told=lambda report: found(Found(report, [])))
        final = optimize.accelerated(copy.deepcopy(given), args, kwargs, telling)  # as in another process
        final.close()
        found(Found(final.report, []))
        with pytest.warns(HiosWarning, match="no faster way is looked for: it was killed"):
            failed("it was killed")
        background.discard()

    monkeypatch.setattr(OptimizedModule, "settle", settled)
    monkeypatch.setattr(Background, "start", here)
    ways = {"way": ("openvino", "schedule"), "devices": 1, "budget_s": 3600.0}
    with torch.no_grad():
        fast = hios.optimize(model, x, cache=False, **{**_KEYWORDS, **ways})
        ((first, pending), (last, nothing)) = seen
        assert (first.partition(",")[0], pending, nothing) == ("OpenVINO", "schedules", "")
        assert last == fast.report.chosen == "sequential, 1 core"
        torch.testing.assert_close(fast(image(1)), model(image(1)), rtol=1e-4, atol=1e-4)
    fast.close()


def _searched(monkeypatch: pytest.MonkeyPatch) -> list[Report]:
    """What is told early of a search in this process, for which one runtime is prepared, which runs the model."""
    run, told = Subject.run_model, list[Report]()

    def prepare(preparation: Preparation) -> None:
        runs = functools.partial(run, preparation.subject, preparation.subject.threads)
        for candidate in (itself(preparation.subject.threads), in_runtime("openvino", len(preparation.everything))):
            preparation._add(candidate, runs, 0.0, 0.0)
        preparation.early(["compile"])

    monkeypatch.setattr(Preparation, "prepare", prepare)
    monkeypatch.setattr(_Optimizer, "_require_pure", lambda _: None)
    monkeypatch.setattr(Race, "_first", lambda self, way: (self.call(way), 1.0))
    monkeypatch.setattr(Race, "_timed", lambda _, way: {"eager": 3.0, "openvino": 1.0}[way.kind])
    options = Options(devices=1, least_ms=0.0, budget_s=3600.0, cache=False, told=told.append)
    optimize.accelerated(Branches().eval(), (image(0),), {}, options).close()
    return told


@pytest.mark.parametrize(("converting", "expected"), [(1, 1), (0, 2)])
def test_the_model_has_one_thread_only_beside_a_conversion(
    converting: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there are few cores; once nothing is converted any more, outputs are compared by all threads."""
    used, run = set[int](), Subject.run_model

    def recorded(subject: Subject, threads: int, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        used.add(threads)
        return run(subject, threads, tensors)

    def comparison(tuning: Autotune, tolerance: float, model: Any, *more: Any) -> InputsComparison:
        monkeypatch.setattr(Subject, "run_model", recorded)  # which the comparison calls, and the race no more
        return compared(tuning, tolerance, model, *more)

    compared = Autotune.comparison
    monkeypatch.setattr(Autotune, "comparison", comparison)
    monkeypatch.setattr(Preparation, "concurrent", converting)
    monkeypatch.setattr(autotune, "_FEW_CORES", sys.maxsize)
    with torch_threads(2):
        _searched(monkeypatch)
    assert used == {expected}


def test_a_budget_that_is_spent_keeps_what_was_taken_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """The final choice needs no time of its own, and the report has the rounds of the early one."""
    pytest.importorskip("openvino")
    took, told, prepare = {"eager": 3.0, "openvino": 1.0, "schedule": 2.0}, list[Report](), Preparation.prepare

    def spent(preparation: Preparation) -> None:
        prepare(preparation)
        preparation.budget.seconds = 0.0

    monkeypatch.setattr(Race, "_first", lambda self, way: (self.call(way), took[way.kind]))
    monkeypatch.setattr(Race, "_timed", lambda _, way: took[way.kind])
    monkeypatch.setattr(Preparation, "prepare", spent)
    monkeypatch.setattr(autotune, "_EARLY_S", 3600.0)
    ways = {"way": ("openvino", "schedule"), "devices": 1, "budget_s": 3600.0}
    options = Options(cache=False, told=told.append, **{**_KEYWORDS, **ways})
    fast = optimize.accelerated(Branches().eval(), (image(0),), {}, options)
    assert told[0].chosen.startswith("OpenVINO")
    assert (fast.report.chosen, fast.report.pending) == (told[0].chosen, "")
    (row,) = [way for way in fast.report.ways if way.label == fast.report.chosen]
    assert (row.outcome, row.speedup) == ("raced", 3.0)
    assert row.runs > 0
    fast.close()


def test_comparing_outputs_takes_no_time_of_an_early_race(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that only comparing moves, by more than an early race has, and less than the budget."""
    now_s, difference = [time.monotonic()], InputsComparison.difference

    def slowly(*given: Any, **options: Any) -> Any:
        now_s[0] += 100.0
        return difference(*given, **options)

    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(InputsComparison, "difference", slowly)
    (early,) = _searched(monkeypatch)
    assert early.chosen.startswith("OpenVINO")


@pytest.mark.usefixtures("go")
def test_an_earlier_choice_is_taken_at_once(tmp_path: Path) -> None:
    """No process looks for what the cache holds, but for what it holds for other weights."""
    pytest.importorskip("openvino")
    model, x = Branches().eval(), image(0)
    hios.optimize(model, x, cache=tmp_path, **{**_KEYWORDS, "wait": True}).close()
    fast = hios.optimize(model, x, cache=tmp_path, **_KEYWORDS)
    assert (fast.background, fast.report.cached, fast.report.pending) == (None, True, "")
    assert fast.report.chosen.startswith("OpenVINO")
    torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)
    fast.close()
    with torch.no_grad():
        next(model.parameters()).mul_(2)
    other = hios.optimize(model, x, cache=tmp_path, **_KEYWORDS)
    assert (other.runner, other.background is None) == (None, False)
    other.close()


def _said(told: Sequence[warnings.WarningMessage]) -> list[str]:
    """What hios warned of; a library that is imported only now may have warnings of its own."""
    return [str(own.message) for own in told if issubclass(own.category, HiosWarning)]


def _require_left_alone(model: nn.Module, change: Callable[[], None] = lambda: None) -> None:
    """A model that changes, here or elsewhere, while it is optimized runs itself, and one warning says so."""
    with warnings.catch_warnings(record=True) as told:
        fast = hios.optimize(model, image(0), cache=False, **_KEYWORDS)
        change()
        assert eventually(lambda: not fast.report.pending)
    (said,) = _said(told)
    assert "changed while it was optimized; call hios.optimize again" in said
    assert fast.runner is None
    torch.testing.assert_close(fast(image(1)), model(image(1)))
    fast.close()


@pytest.mark.slow
def test_a_model_that_changes_meanwhile_runs_itself(go: Path) -> None:
    """What was found for other weights is not taken, and one warning says so."""
    pytest.importorskip("openvino")
    model = Branches().eval()

    def change() -> None:
        with torch.no_grad():
            next(model.parameters()).mul_(2)
        go.touch()

    _require_left_alone(model, change)


def test_a_model_that_changes_while_the_result_is_loaded_runs_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that change after the first look at them, and before the result has guards of its own, count too."""
    pytest.importorskip("openvino")
    model, is_right = Branches().eval(), _Optimizer._is_right

    def changing(optimizer: _Optimizer, tuned: Tuned, expected: list[torch.Tensor]) -> bool:
        right = is_right(optimizer, tuned, expected)
        with torch.no_grad():
            next(model.parameters()).mul_(2)
        return right

    monkeypatch.setattr(_Optimizer, "_is_right", changing)
    _require_left_alone(model)


def test_folders_of_processes_that_ended_are_deleted(tmp_path: Path) -> None:
    """Whether they were killed or exited; those of living ones stay, which only their user can read."""
    given = "import os, pathlib, sys; from hios.optimizing.background import Background\n"
    given += "own = Background(pathlib.Path(sys.argv[1])); (own.folder / 'request.pt').touch(); "
    assert python("-c", f"{given} os.kill(os.getpid(), 9)", tmp_path).returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1
    first = Background(tmp_path)
    assert list(tmp_path.iterdir()) == [first.folder]
    assert stat.S_IMODE(first.folder.stat().st_mode) == stat.S_IRWXU
    second = Background(tmp_path)
    assert set(tmp_path.iterdir()) == {first.folder, second.folder}
    second.discard()
    assert python("-c", given, tmp_path).returncode == 0
    assert list(tmp_path.iterdir()) == [first.folder]
    first.discard()


def test_what_is_found_after_the_end_is_closed() -> None:
    """No runner is set whose workers end with the search."""
    closed: list[str] = []
    model, x = Branches().eval(), image(0)
    fast, final = as_optimized(model, (x,), lambda tensors: tensors), as_optimized(model, (x,), lambda tensors: tensors)
    final.runner = replace(final.runner, close=lambda: closed.append("final"))
    fast.close()
    fast.settle(final)
    assert (fast.runner, final.runner, closed) == (None, None, ["final"])
    torch.testing.assert_close(fast(x), model(x))


def test_what_is_called_is_forgotten_after_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the model and its runtime."""
    monkeypatch.setattr(backgrounds, "_WORK", "")
    background, told = Background(tmp_path), lambda what: None
    forgotten = weakref.ref(told)
    background.start((), told, told)
    del told
    assert eventually(lambda: gc.collect() >= 0 and forgotten() is None)
    background.end()


def test_the_search_has_an_example_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user may write other numbers into the tensors of the example meanwhile."""
    sent: list[Any] = []
    monkeypatch.setattr(Background, "start", lambda self, request, *told: sent.extend(request))
    x = image(0)
    fast = hios.optimize(Branches(), x, cache=False, wait=False)
    assert torch.equal(sent[1][0], x)
    assert sent[1][0].data_ptr() != x.data_ptr()
    fast.close()


#: A process that reports an early choice, and a final one once it is told to go on.
_REPORTING = """
import sys, time
from pathlib import Path
from hios.optimizing.background import Found, report
from hios.optimizing.report import Report
folder = Path(sys.argv[1])
report(folder, Found(Report("Net", "quick", "", pending="more"), []))
while not (folder / "go").exists():
    time.sleep(0.01)
report(folder, Found(Report("Net", "best", ""), []))
(folder / "reported").touch()
"""


def _watched(background: Background, found: Callable[[Found], None]) -> list[str]:
    """Why a process failed, once it has ended and what it found was looked at."""
    why: list[str] = []
    background.start((), found, why.append)
    assert eventually(lambda: not background.folder.exists())
    background.end()
    return why


def test_a_choice_that_is_reported_while_one_is_read_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The final choice takes the place of the early one between reading that and the next look."""
    monkeypatch.setattr(backgrounds, "_WORK", _REPORTING)
    background, seen, decode = Background(tmp_path), list[str](), msgspec.json.decode

    def decoded(text: bytes, **keywords: Any) -> Any:
        (background.folder / "go").touch()
        assert eventually((background.folder / "reported").exists)
        return decode(text, **keywords)

    monkeypatch.setattr(backgrounds, "msgspec", SimpleNamespace(json=SimpleNamespace(decode=decoded)))
    assert _watched(background, lambda what: seen.append(what.report.chosen)) == []
    assert seen == ["quick", "best"]


def test_an_early_choice_that_cannot_be_taken_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning says why, and the final one is taken."""
    monkeypatch.setattr(backgrounds, "_WORK", _REPORTING)
    background, seen = Background(tmp_path), list[str]()

    def found(what: Found) -> None:
        if what.report.pending:
            (background.folder / "go").touch()
            raise RuntimeError("no memory")
        seen.append(what.report.chosen)

    with pytest.warns(HiosWarning, match="^Net: an early choice, quick, is left out: no memory$"):
        assert _watched(background, found) == []
    assert seen == ["best"]


def test_nothing_is_left_of_a_search_that_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it was begun or not, Python calls nothing of it at the end of the process, and keeps nothing for that."""
    monkeypatch.setattr(backgrounds, "_WORK", "")
    begun, never = Background(tmp_path), Background(tmp_path)
    _watched(begun, lambda what: None)
    assert begun._thread is not None
    begun._thread.join()
    never.discard()
    left = [weakref.ref(begun), weakref.ref(never)]
    del begun, never
    gc.collect()
    assert [own() for own in left] == [None, None]


def test_a_process_that_ends_without_a_final_choice_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even with status 0."""
    monkeypatch.setattr(backgrounds, "_WORK", "")
    why = _watched(Background(tmp_path), lambda what: None)
    assert why == ["the process ended with status 0, before its choice was final"]


#: A program that ends while a choice is being taken, in native code that needs Python's lock again at its end.
_ENDING = """
import pathlib, sys, threading, torch
from hios.optimizing import background
background._WORK = sys.argv[2]
began = threading.Event()

def found(what):
    began.set()
    for _ in range(400):
        torch.linalg.svd(torch.ones(80, 80))

def failed(why):
    print(why)
    began.set()

background.Background(pathlib.Path(sys.argv[1])).start((), found, failed)
began.wait()
"""

#: A program of which a fork ends, with the functions that Python calls at its end, while the search goes on.
_FORKING = """
import os, pathlib, sys
from hios.optimizing import background
background._WORK = sys.argv[2]
own = background.Background(pathlib.Path(sys.argv[1]))

def found(what):
    print(what.report.chosen, flush=True)
    if what.report.pending:
        if (child := os.fork()) == 0:
            own._leave(os.getppid())
            os._exit(0)
        os.waitpid(child, 0)
        (own.folder / "go").touch()

own.start((), found, print)
while own.folder.exists():
    own._closed.wait(0.05)
"""


@pytest.mark.parametrize(("program", "printed"), [(_ENDING, ""), (_FORKING, "quick\nbest\n")])
def test_a_program_or_a_fork_ends_during_the_search(program: str, printed: str, tmp_path: Path) -> None:
    """The thread that takes what is found is waited for: Python would stop it in native code, which aborts the program.

    A fork leaves the search to the process that began it.
    """
    ended = python("-W", "ignore::DeprecationWarning", "-c", program, tmp_path, _REPORTING)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, printed, "")
    assert list(tmp_path.iterdir()) == []


def test_what_fails_in_the_process_is_told_once() -> None:
    """A warning says why the model stays as it is."""
    pytest.importorskip("openvino")
    with warnings.catch_warnings(record=True) as told:
        fast = hios.optimize(_Counting(), image(0), cache=False, **_KEYWORDS)
        assert eventually(lambda: not fast.report.pending)
    (said,) = _said(told)
    assert "Counting is left as it is: it changes its attribute calls" in said
    assert fast.runner is None


def test_models_that_cannot_be_sent_are_left_alone() -> None:
    """A class that another process cannot import is refused at once."""

    class Local(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    with pytest.warns(HiosWarning, match="Local is left as it is: it cannot be sent to another process: .*wait=True"):
        fast = hios.optimize(Local(), image(0), cache=False, **_KEYWORDS)
    assert fast.report.pending == ""
    with pytest.raises(HiosError, match="wait: found 1; allowed: True or False"):
        hios.optimize(Local(), image(0), cache=False, wait=1)  # type: ignore[arg-type]


@pytest.mark.usefixtures("go")
def test_closing_ends_the_process() -> None:
    """Nothing is left of a search that nobody waits for."""
    before = set(children())  # of which those of tests before may end meanwhile
    fast = hios.optimize(Branches().eval(), image(0), cache=False, **_KEYWORDS)
    assert eventually(lambda: bool(set(children()) - before))
    fast.close()
    assert eventually(lambda: set(children()) <= before)
    assert isinstance(fast, OptimizedModule)
    torch.testing.assert_close(fast(image(0)), fast.original(image(0)))
