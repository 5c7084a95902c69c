"""hios.optimize: what it returns, when the model itself runs instead, and what it keeps."""

from __future__ import annotations

import copy
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import hios
from hios import HiosError, HiosWarning
from hios.optimizing import autotune, optimize, preparation
from hios.optimizing.module import OptimizedModule
from hios.optimizing.options import Options
from hios.optimizing.report import Report
from tests.optimizing.optimized_models import (
    DEVICES,
    OWN,
    Pair,
    Structured,
    Unsupported,
    as_optimized,
    image,
    require_equal,
    scheduled,
)
from tests.refusals import refused
from tests.runtime.small import Branches
from tests.workers.processes import children


@pytest.fixture
def fresh(cache: Path) -> Iterator[OptimizedModule]:
    """A small network that the engine runs, for a test that changes it."""
    yield from _running(cache)


@pytest.fixture(scope="module")
def fast(cache: Path) -> Iterator[OptimizedModule]:
    """A small network that the engine runs, for tests that leave it as it is."""
    yield from _running(cache)


def _running(cache: Path) -> Iterator[OptimizedModule]:
    torch.manual_seed(0)
    with warnings.catch_warnings(action="error", category=HiosWarning):
        made = scheduled(Branches(), image(0), cache)
    assert made.report.chosen == f"hios-lp, {DEVICES} device{'s' if DEVICES > 1 else ''}"
    yield made
    made.close()


def _require_equal(fast: nn.Module, model: nn.Module, x: Tensor) -> None:
    """As `require_equal`, but what is optimized is called from this file, which warnings name."""
    require_equal(lambda value: fast(value), model, x)


def _runs_itself(fast: OptimizedModule, run: Callable[[], Any], why: str) -> None:
    """A call has the model run itself, with one warning at the first time that is raised at this file."""
    with pytest.warns(HiosWarning, match=why) as caught:
        run()
    assert [Path(own.filename) for own in caught if issubclass(own.category, HiosWarning)] == [Path(__file__)]
    with warnings.catch_warnings(action="error", category=HiosWarning):
        run()


def test_outputs_are_those_of_the_model(fast: OptimizedModule) -> None:
    """Five random inputs give what the model gives, without a warning, and no call changes the outputs of another."""
    model = fast.original
    with warnings.catch_warnings(action="error", category=HiosWarning):
        outputs = [fast(image(seed)) for seed in range(5)]
    for seed, output in enumerate(outputs):
        with torch.no_grad():
            torch.testing.assert_close(output, model(image(seed)), rtol=1e-4, atol=1e-4)
        assert not output.requires_grad


def test_other_inputs_run_the_model_itself(fast: OptimizedModule) -> None:
    """Another batch size, dtype or number of inputs is right, or fails as the model does, after one warning."""
    _runs_itself(fast, lambda: _require_equal(fast, fast.original, image(1, batch=3)), r"\[3, 3, 16, 16\], the example")
    with pytest.raises(RuntimeError, match="double"):
        fast(image(1).double())
    with pytest.raises(TypeError):
        fast(image(1), image(2))
    require_equal(fast, fast.original, image(2))


def test_gradients_run_the_model_itself(fast: OptimizedModule) -> None:
    """An input that requires a gradient gets one where gradients are on, and changes nothing where they are off."""
    x = image(1).requires_grad_()
    with torch.no_grad(), warnings.catch_warnings(action="error", category=HiosWarning):
        assert not fast(x).requires_grad
    _runs_itself(fast, lambda: fast(x).sum().backward(), "requires a gradient")
    assert x.grad is not None


def test_train_mode_runs_the_model_itself(fresh: OptimizedModule) -> None:
    """In train mode batch statistics count; in eval mode again with changed statistics too."""
    fresh.train()
    assert fresh.original.training
    _runs_itself(fresh, lambda: fresh(image(1)), r"the mode \(train or eval\) of the model was set")
    fresh.eval()
    require_equal(fresh, fresh.original, image(2))


def test_autocast_runs_the_model_itself(fast: OptimizedModule) -> None:
    """Under autocast outputs have the precision that the model's have."""
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        _runs_itself(fast, lambda: fast(image(1)), "autocast")
        assert fast(image(1)).dtype is torch.bfloat16


def test_changed_weights_run_the_model_itself(fresh: OptimizedModule) -> None:
    """When weights are changed after optimizing, outputs are those of the model as it is then."""
    before = fresh(image(1))
    with torch.no_grad():
        next(fresh.original.parameters()).mul_(2)
    _runs_itself(fresh, lambda: _require_equal(fresh, fresh.original, image(1)), "since it was optimized")
    assert not torch.allclose(fresh(image(1)), before, rtol=1e-3, atol=1e-3)


def test_parameters_are_those_of_the_model(fresh: OptimizedModule) -> None:
    """State, parameters, submodules and other attributes are the model's own, by the same names."""
    fast, model = fresh, fresh.original
    assert list(fast.state_dict()) == list(model.state_dict())
    assert all(ours is theirs for ours, theirs in zip(fast.parameters(), model.parameters(), strict=True))
    assert [name for name, _ in fast.named_modules()] == [name for name, _ in model.named_modules()]
    assert fast.stem is model.stem
    model.note = "kept"
    assert fast.note == "kept"
    with pytest.raises(AttributeError, match="nothing"):
        _ = fast.nothing
    with pytest.raises(HiosError, match="cannot be copied or pickled"):
        copy.deepcopy(fast)


def test_attributes_are_set_on_the_model(fresh: OptimizedModule) -> None:
    """What is set or deleted on the module is set or deleted on the model, and counts."""
    fresh.note = "kept"
    assert fresh.original.note == "kept"
    del fresh.note
    assert not hasattr(fresh.original, "note")
    fresh.right = nn.Conv2d(8, 8, 3, padding=1)
    assert fresh.original.right is fresh.right
    _runs_itself(
        fresh,
        lambda: _require_equal(fresh, fresh.original, image(1)),
        "its submodule right was set or replaced since it was optimized; undo that, or call",
    )
    fresh.compile(backend="eager")
    require_equal(fresh, fresh.original, image(1))
    fresh.forward = lambda x: x * 2  # type: ignore[misc]
    assert torch.equal(fresh(image(1)), image(1) * 2)


def test_a_choice_stays(fresh: OptimizedModule) -> None:
    """Tools of torch used on the model leave the workers in charge; what is set does not, until it is set back."""
    model = fresh.original
    run_by_workers = lambda: not fresh(image(1)).requires_grad  # noqa: E731 - outputs of the model itself have gradients
    with warnings.catch_warnings(action="error", category=HiosWarning):
        torch.compile(model, backend="eager")(image(1))
        torch.export.export(model, (image(1),))
        with torch.profiler.profile(with_modules=True):
            model(image(1))
        assert run_by_workers()
    for name in ("note", "other"):
        setattr(model.left, name, 1)
        why = rf"^Branches runs as it was before .*: its attribute left\.{name} was set or .*; undo that, or call hios"
        _runs_itself(fresh, lambda: fresh(image(1)), why)
        delattr(model.left, name)
        with warnings.catch_warnings(action="error", category=HiosWarning):
            assert run_by_workers()


def test_optimized_modules_may_be_nested() -> None:
    """Modules that run with other numbers of threads may be within each other, also across threads."""
    report, results = Report("Linear", "the model itself", "so"), []

    class Waiting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            """Run the inner module in another thread and in this one."""
            other = threading.Thread(target=lambda: results.append(inner(x)), daemon=True)
            other.start()
            other.join(30)
            results.append(torch.get_num_threads())
            return inner(x)

    before = torch.get_num_threads()
    inner = OptimizedModule(nn.Linear(4, 4), report, threads=before + 1)
    outer = OptimizedModule(Waiting(), report, threads=before + 2)
    x = torch.ones(2, 4)
    expected = outer(x)
    assert torch.equal(results[0], expected)
    assert results[1:] == [before + 2]
    assert torch.get_num_threads() == before


def test_a_closed_module_runs_the_model_itself(cache: Path) -> None:
    """After close there are no workers, and outputs are still right."""
    before = set(children())
    torch.manual_seed(0)  # as the other tests, whose measurements count
    model = Branches()
    fast = scheduled(model, image(0), cache)
    assert set(children()) - before
    fast.close()
    assert set(children()) <= before
    require_equal(fast, model, image(1))


def _in_a_fork(run: Callable[[], object]) -> str:
    """What a function returns in a forked process, as text; the process is ended if it does not get there."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(600)
        os.write(writing, str(run()).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        said = stream.read()
    assert os.waitpid(child, 0)[1] == 0, "the forked process hung or failed"
    return said


def test_a_forked_process_runs_the_model_itself(fast: OptimizedModule) -> None:
    """A forked process has no workers, and no threads of torch: the model itself runs with one, which a warning says.

    The parent has used all its threads before, so that the child would wait for them.
    """
    x = torch.ones(1, 3, 16, 16)

    def run() -> object:
        with warnings.catch_warnings(record=True, action="always") as caught:
            outputs = [fast(x) for _ in range(2)]
        return [str(warning.message) for warning in caught], torch.allclose(outputs[1], expected, atol=1e-4)

    with torch.no_grad():
        torch.ones(1 << 20).exp()
        expected = fast.original(x)
        said = _in_a_fork(run)
    assert "belongs to process" in said
    assert "one thread" in said
    assert said.endswith("], True)")
    require_equal(fast, fast.original, image(1))


def test_a_forked_process_waits_for_no_threads() -> None:
    """Where the model itself with all threads was chosen, it runs with one in a forked process."""
    model = nn.Linear(512, 512)
    fast = OptimizedModule(model, Report("Linear", "the model itself", "so"), threads=2)
    x = torch.ones(512, 512)
    with torch.no_grad():
        expected = fast(x)[0, :4].tolist()
        assert _in_a_fork(lambda: fast(x)[0, :4].tolist() == pytest.approx(expected, rel=1e-4)) == "True"


class _Optimizing(Dataset[Tensor]):
    """Items that a model makes, which is optimized where they are made."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, number: int) -> Tensor:
        signal.alarm(600)
        model = _wide()
        with torch.no_grad():
            fast = hios.optimize(model, image(0), cache=False, least_ms=0.0, way=OWN, budget_s=5.0)
            outputs = fast(image(1))
            fast.close()
            return torch.stack([outputs, model(image(1))])


def _wide() -> nn.Module:
    """A network in which torch uses all its threads."""
    torch.manual_seed(0)
    return nn.Sequential(Branches(), nn.Conv2d(16, 64, 3), nn.Upsample(scale_factor=8)).eval()


def test_workers_of_a_data_loader_may_optimize() -> None:
    """In a process of a DataLoader, forked and daemonic, a model is optimized although its parent has used threads."""
    with torch.no_grad():
        _wide()(image(0))
    (items,) = DataLoader(_Optimizing(), num_workers=1)
    outputs, expected = items[0]
    torch.testing.assert_close(outputs, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_structures_are_kept(cache: Path) -> None:
    """Nested inputs and outputs, named tuples, repeated and given tensors, and other values are as in the model."""
    torch.manual_seed(0)
    model = Structured()
    images = {"left": image(1), "right": image(2)}
    fast = scheduled(model, ({"left": image(3), "right": image(4)}, 0.5), cache, {"offset": torch.ones(1)}, devices=1)
    try:
        with torch.no_grad(), warnings.catch_warnings(action="error", category=HiosWarning):
            output, expected = (m(images, 0.5, offset=torch.full((1,), 2.0)) for m in (fast, model))
        torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-4)
        assert isinstance(output["pair"], Pair)
        assert output["given"] is images["left"]
        assert output["again"][0] is output["again"][1]
        with torch.no_grad(), pytest.warns(HiosWarning, match=r"found 2\.0 as an input, the example has 0\.5"):
            torch.testing.assert_close(
                fast(images, 2.0, offset=torch.ones(1)), model(images, 2.0, offset=torch.ones(1))
            )
        with torch.no_grad(), warnings.catch_warnings():
            torch.testing.assert_close(fast(images, 0.5), model(images, 0.5))  # another structure: no tensor as offset
    finally:
        fast.close()


def test_what_cannot_be_taken_runs_itself(cache: Path) -> None:
    """A model with an operator that cannot be taken is wrapped as it is, with one warning that names it."""
    model = Unsupported()
    with pytest.warns(HiosWarning, match=r"Unsupported is left as it is: .*segment_reduce") as caught:
        fast = hios.optimize(model, image(0), cache=cache, least_ms=0.0, way="schedule", budget_s=600.0)
    assert [issubclass(own.category, HiosWarning) for own in caught].count(True) == 1
    assert "segment_reduce" in fast.report.reason
    assert fast.report.candidates == ()
    torch.testing.assert_close(fast(image(1)), model(image(1)))


def test_small_models_are_left_alone(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With auto, a model that takes less than least_ms is not even exported; the report says so."""
    monkeypatch.setattr(autotune.Autotune, "raced", None)
    fast = hios.optimize(Branches(), image(0), cache=cache, least_ms=1e6)
    assert fast.report.chosen == "the model itself"
    assert "below 1e+06 ms (least_ms)" in fast.report.reason


class _Named(nn.Module):
    """A model whose members have the names of attributes of an optimized module."""

    def __init__(self) -> None:
        super().__init__()
        self.background, self.runner = nn.Parameter(torch.ones(3)), nn.ReLU()
        self.threads = self.report = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Uses all of them."""
        return self.report(self.threads(self.runner(x + self.background)))


@torch.no_grad()
def test_members_may_have_any_name() -> None:
    """Weights and submodules stay the model's, whatever happens to the optimized module."""
    model, x = _Named(), torch.arange(3.0)
    before, expected = dict(model.named_modules()), model(x)
    fast = as_optimized(model, (x,), lambda tensors: [tensors[0] + 1])
    assert torch.equal(fast(x), expected)
    fast.settle(OptimizedModule(model, Report("_Named", "the model itself", "so")))
    fast.close()
    assert (fast.runner, fast.report.chosen) == (None, "the model itself")
    assert dict(model.named_modules()) == before
    assert torch.equal(fast(x), expected)
    assert torch.equal(model(x), expected)


def test_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several threads, one traces its model; the others wait."""
    at_once, most = [0], [0]

    def counted(*_: Any) -> None:
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        threading.Event().wait(0.01)
        at_once[0] -= 1

    monkeypatch.setattr(optimize, "accelerated", counted)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: hios.optimize(nn.ReLU(), torch.ones(1)), range(8)))
    assert most == [1]


@pytest.mark.slow
def test_auto_chooses_among_what_it_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report names every way that took part with its numbers, and the choice is the model or one of them."""
    # By measured costs, a schedule for two devices may be the sequential one; of all others, two are enough.
    few = ("sequential, 1 core", "heft, ")
    monkeypatch.setattr(
        preparation, "distinct", lambda found, graph: [way for way in found if way.label.startswith(few)]
    )
    before = set(children())
    model = Branches()
    fast = hios.optimize(model, image(0), devices=DEVICES, cache=tmp_path, least_ms=0.0, way=OWN, budget_s=600.0)
    report = fast.report
    labels = [candidate.label for candidate in report.candidates]
    assert labels[0].startswith("the model itself, ")
    assert report.chosen in labels
    for entry in report.candidates:
        assert 0 < (entry.p20_ms or 0) <= (entry.median_ms or 0) <= (entry.p80_ms or 0)
        assert 0 < entry.low <= (entry.speedup or 0) <= (entry.high or 0)
        assert entry.runs >= 6
        assert entry.equal
    schedules = [way for way in report.ways if way.kind == "schedule"]
    assert all(way.memory_mb and way.prepare_s for way in schedules)
    assert {way.label for way in schedules} >= {"sequential, 1 core"}
    for label in [*(way.label for way in report.ways), report.reason, report.chosen]:
        assert label in repr(report)
    require_equal(fast, model, image(1))
    fast.close()
    assert set(children()) <= before


@pytest.mark.slow
def test_nothing_is_kept_if_so_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With cache=False nothing is written; else $HIOS_CACHE says where."""
    monkeypatch.setenv("HIOS_CACHE", str(tmp_path / "given"))
    scheduled(Branches(), image(0), False, devices=1).close()
    assert not (tmp_path / "given").exists()
    hios.optimize(Branches(), image(0), way=("eager",), least_ms=0.0).close()
    assert len(list((tmp_path / "given" / "choices").rglob("*.json"))) == 1


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    """Where the cache cannot be written, a warning says so, and the model is optimized all the same."""
    (tmp_path / "file").write_text("")
    with pytest.warns(HiosWarning, match="is not kept: .*not a folder"):
        fast = scheduled(Branches(), image(0), tmp_path / "file", devices=1)
    assert fast.report.chosen.startswith("hios-lp")
    fast.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "fastest"}, "fastest"),
        ({"algorithm": "hios-lp", "parameters": {"windows": 3}}, "unknown parameter windows"),
        ({"parameters": {"window": 3}}, "parameters: found some for algorithm auto"),
        ({"platform": "tpu"}, "platform: found 'tpu'; allowed: 'cpu'"),
        ({"units": "layer"}, "units: found 'layer'"),
        ({"devices": 0}, "devices: found 0"),
        ({"tolerance": 0.0}, "tolerance: found 0.0; allowed: more than 0"),
        ({"budget_s": "a"}, "budget_s: found 'a'; allowed: more than 0"),
        ({"least_ms": -1}, "least_ms: found -1; allowed: at least 0"),
        ({"devices": "two"}, "devices: found 'two'; allowed: a whole number, or None"),
        ({"devices": True}, "devices: found True; allowed: a whole number, or None"),
        ({"cache": True}, "cache: found True"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    """An option that is not allowed is an error in one line, not a warning."""
    with refused("", message):
        hios.optimize(Branches(), image(0), **options)


def test_options_are_those_of_the_function() -> None:
    """The options that torch.compile passes on have the names and defaults of hios.optimize."""
    import inspect

    parameters = inspect.signature(hios.optimize).parameters
    keywords = {name: p.default for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    defaults = {name: getattr(Options(), name) for name in Options.__slots__ if name != "told"}
    assert {**keywords, "parameters": {}} == defaults


@pytest.mark.parametrize("model", [torch.relu, torch.jit.ScriptModule()])
def test_other_models_are_refused(model: Any) -> None:
    """What is no module in Python is refused in one line."""
    with pytest.raises(HiosError, match=r"model: found a .*; allowed: an nn\.Module in Python"):
        hios.optimize(model, image(0))


def test_torch_compile_goes_around(fast: OptimizedModule) -> None:
    """torch.compile leaves what is optimized already to its workers."""
    with torch.no_grad(), warnings.catch_warnings(action="error", category=HiosWarning):
        found = torch.compile(fast, backend="eager")(image(1))
    assert torch.equal(found, fast(image(1)))


def test_two_inputs_by_position_are_explained() -> None:
    """A second tensor where the keywords belong is an easy mistake: the message says how to give both."""
    with pytest.raises(HiosError, match=r"example_keywords: found a Tensor; allowed: .*optimize\(model, \(a, b\)\)"):
        hios.optimize(nn.Identity(), torch.ones(2), torch.ones(2))  # type: ignore[arg-type]
