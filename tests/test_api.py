"""The stages as functions on objects."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import doctest
import inspect
import io
import math
import pickle
import re
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hios
from hios import CostsFile, Graph, HiosError, Run, Schedule
from hios.formats.settings import Settings
from hios.frontends.export import build_model
from hios.frontends.program import Program
from tests.frontends.small_networks import Model
from tests.runtime.small import Branches
from tests.scripts import ROOT, printed


@dataclasses.dataclass(frozen=True)
class Stages:
    """What each stage returned for one network, and what was printed and written."""

    program: Program
    graph: Graph
    weights: dict[str, Tensor]
    costs: CostsFile
    schedules: list[Schedule]
    run: Run
    printed: str
    page: str


def _image() -> Tensor:
    return torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def _snippet(document: str, heading: str) -> str:
    """The first Python block below a heading."""
    text = ("\n" + (ROOT / document).read_text(encoding="utf-8")).partition(f"\n{heading}\n")[2]
    return text.partition("```python\n")[2].partition("```")[0]


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Stages:
    """The stages in docs/python.md as they stand, here with little measuring.

    They write nothing but the report into the working folder, and their temporary files elsewhere are gone.
    """
    folder, temporary = tmp_path_factory.mktemp("stages"), tmp_path_factory.mktemp("temporary")
    made: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        patch.setenv("TMPDIR", str(temporary))
        patch.setattr("tempfile.tempdir", str(temporary))
        patch.chdir(folder)
        patch.setattr(hios, "profile", partial(hios.profile, repeats=2, budget_s=0, cache=False, virtual=True))
        patch.setattr(hios, "execute", partial(hios.execute, runs=12, warmup=1, auto=True, virtual=True))
        exec(compile(_snippet("docs/python.md", "# From Python"), "docs/python.md", "exec"), made)  # noqa: S102
    assert list(folder.rglob("*")) == [folder / "report.html"]
    assert list(temporary.rglob("*.json")) == []
    objects = {name: made[name] for name in ("program", "graph", "weights", "costs", "schedules", "run")}
    return Stages(**objects, printed=printed.getvalue(), page=(folder / "report.html").read_text(encoding="utf-8"))


def test_stages_in_python(stages: Stages) -> None:
    """A network of models/ is built with its options and gives its name to the graph; rows and page are of its run."""
    assert (stages.graph.name, stages.graph.inputs[0].shape) == ("squeezenet", (1, 3, 64, 64))
    assert [line.split()[0] for line in stages.printed.splitlines()] == ["heft-2", "hios-lp-2"]
    assert "<html" in stages.page


def test_a_tensor_is_one_input() -> None:
    """It is not taken apart along its first dimension, though the parts would fit too."""
    (values,), _ = hios.export(torch.nn.Linear(3, 2), torch.ones(1, 3)).exported.example_inputs
    assert values.shape == (1, 3)


@pytest.mark.slow
def test_objects_are_those_of_the_files(stages: Stages, tmp_path: Path) -> None:
    """What the functions return is what the commands write and read."""
    stages.program.write(tmp_path / "program.pt2")
    graph, weights = hios.extract(tmp_path / "program.pt2", name="squeezenet")
    assert graph == stages.graph
    assert {name: tensor.tolist() for name, tensor in weights.items()} == {
        name: tensor.tolist() for name, tensor in stages.weights.items()
    }
    hios.files.artifacts.write(tmp_path / "costs.json", "costs", stages.costs)
    assert hios.Costs.read(tmp_path / "costs.json").time_ms == hios.Costs.of(stages.costs).time_ms
    hios.files.artifacts.write(tmp_path / "run.json", "run", stages.run)
    assert hios.files.artifacts.load(tmp_path / "run.json", Run) == stages.run


def test_run(stages: Stages) -> None:
    """Every schedule ran as often as asked, with the outputs of the program, and under the label of its kind."""
    run = stages.run
    assert [result.label for result in run.results] == ["heft-2", "hios-lp-2"]
    assert {len(result.latency_ms.runs) for result in run.results} == {12}
    assert run.checked_against == "eager"
    assert run.chosen is not None
    assert all(result.largest_difference <= run.tolerance for result in run.results)
    assert [result.predicted for result in run.results] == [schedule.placements for schedule in stages.schedules]


def test_report(stages: Stages, tmp_path: Path) -> None:
    """The page and the tables of a run, as the command makes them from files."""
    report = hios.report((stages.graph, stages.costs, stages.run))
    assert report.latencies["label"].tolist()[:2] == ["heft-2", "hios-lp-2"]
    assert report.operators["operator"].tolist() == [operator.id for operator in stages.graph.operators]
    report.write(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == report.html
    folder = tmp_path / "network"
    stages.graph.write(folder / "graph.json")
    hios.files.artifacts.write(folder / "costs.json", "costs", stages.costs)
    hios.files.artifacts.write(folder / "run.json", "run", stages.run)
    from hios.report import write_report

    write_report([folder], tmp_path / "other.html", tmp_path)
    assert (tmp_path / "other.html").read_text(encoding="utf-8") == report.html
    assert (tmp_path / "latency.csv").read_text() == report.latencies.to_csv(index=False)
    twice = hios.report(*[(stages.graph, stages.costs, stages.run)] * 2)
    assert set(twice.latencies["model"]) == {"squeezenet (1)", "squeezenet (2)"}


@pytest.mark.slow
def test_programs_of_torch(stages: Stages) -> None:
    """A program of torch.export is taken as it is, for the graph and as the reference; so is a module with an input."""
    module, inputs = build_model("squeezenet", {"image_size": 64}, seed=0)
    exported = torch.export.export(module.eval(), inputs)
    graph, weights = hios.extract(exported, name="squeezenet")
    exported_by_hios, _ = hios.extract(hios.export(module, *inputs))
    assert graph.fingerprint == exported_by_hios.fingerprint == stages.graph.fingerprint
    schedule = hios.schedule(hios.Problem(graph, hios.Costs.of(stages.costs)), "sequential")
    run = hios.execute(graph, weights, {"mine": schedule}, program=exported, runs=1, warmup=0)
    assert [result.label for result in run.results] == ["mine"]
    assert run.checked_against == "eager"


@pytest.mark.slow
def test_programs_of_torch_stay_as_they_are(stages: Stages) -> None:
    """Neither `extract` nor `execute` changes the program of the caller: graph, signature, structure of the outputs."""
    # None among the outputs is what hios leaves out for itself.
    structured = Model(lambda _, x: {"sum": x + 1, "nothing": None, "product": x * 2})
    exported = torch.export.export(structured, (torch.ones(2, 3),))
    before = (str(exported), exported.call_spec, exported.example_inputs, sorted(exported.state_dict))
    graph, weights = hios.extract(exported, name="structured")
    assert len(graph.outputs) == 2
    assert (str(exported), exported.call_spec, exported.example_inputs, sorted(exported.state_dict)) == before
    schedule = hios.schedule(hios.Problem(graph, hios.Costs(dict.fromkeys(graph.index, 1.0), {})), "sequential")
    run = hios.execute(graph, weights, schedule, program=exported, runs=1, warmup=0)
    assert run.checked_against == "eager"
    assert (str(exported), exported.call_spec, exported.example_inputs, sorted(exported.state_dict)) == before
    assert list(exported.module()(torch.ones(2, 3))) == ["sum", "nothing", "product"]


class _Dynamic(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


def _dynamic() -> Any:
    sizes = {"x": {0: torch.export.Dim("batch", min=2, max=9)}}
    return torch.export.export(_Dynamic(), (torch.ones(3, 2),), dynamic_shapes=sizes)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: hios.export(Branches()), "export: found a module without inputs, or with options"),
        (lambda s: hios.export("squeezenet", (_image(),)), "export: inputs: found with the model squeezenet"),
        (lambda s: hios.export("nothing"), "unknown model nothing; allowed: "),
        (lambda s: hios.export(Branches(), (torch.ones(1),)), "model Branches: cannot be run with its defaults: "),
        (lambda s: hios.export("net.onnx"), "net.onnx: found a model in ONNX, which needs no export"),
        (lambda s: hios.extract(_dynamic()), "program: has dimensions that are not fixed, "),
        (
            lambda s: hios.execute(s.graph, s.weights, s.schedules[0], program=_dynamic()),
            "program: has dimensions that are not fixed, ",
        ),
        (
            lambda s: hios.extract(cast("Any", 3)),
            "^program: found a int; allowed: what hios.export or torch.export.export ",
        ),
        (
            lambda s: hios.optimize(Branches(), _image(), devices=10_000),
            r"^optimize: devices: found 10000; allowed: 1 to \d+, the cores that this process may run on, or None$",
        ),
        (lambda s: hios.profile(s.graph, platform="tpu"), "unknown platform tpu; allowed: cpu, "),
        (
            lambda s: hios.profile(s.graph, platform="cpu", options={"gpu": "a40"}),
            "^platform cpu: found --gpu; allowed: with the options --contention$",
        ),
        (
            lambda s: hios.report((s.graph, s.costs, s.schedules)),
            "^report: squeezenet: found schedules with measured costs; required: the run ",
        ),
        (lambda s: hios.profile(s.graph, stages_of=["magic"]), "unknown algorithm magic; allowed: "),
        (lambda s: hios.execute(s.graph, s.weights, []), "execute: schedules: found none; required: at least one"),
        (
            lambda s: hios.execute(s.graph, s.weights, s.schedules[:1] * 2),
            "execute: schedules: found 2 named heft-2; allowed: one, or give them labels in a dict",
        ),
        (
            lambda s: hios.execute(s.graph, {}, s.schedules[0]),
            "weights: .*: found none; required: float32 of shape .*, as graph squeezenet states",
        ),
        (lambda s: hios.execute(s.graph, s.weights, s.schedules[1], devices=0), "devices: found"),
        (lambda s: hios.execute(s.graph, s.weights, s.schedules, runs=0), "^execute: runs: found 0; allowed: "),
        (lambda s: hios.execute(s.graph, s.weights, s.schedules, warmup=-1), "^execute: warmup: found -1; allowed: "),
        (lambda s: hios.execute(s.graph, s.weights, s.schedules, tolerance=0), "^execute: tolerance: found 0; allow"),
        (
            lambda s: hios.execute(s.graph, s.weights, s.schedules, run=3),
            r"^execute: unknown key run \(did you mean runs\?\)",
        ),
        (lambda s: hios.profile(s.graph, repeats=0), "^profile: repeats: found 0; allowed: "),
        (
            lambda s: hios.profile(s.graph, budget_s=-1.0),
            "budget_s: found -1.0; allowed: integer, at least 0 or number, at least 0$",
        ),
        (
            lambda s: hios.execute(s.graph, s.weights, s.schedules, tolerance=math.nan),
            "^execute: tolerance: found nan; ",
        ),
        (
            lambda s: hios.execute(s.graph, s.weights, s.schedules, timeout_s=np.float64(-1)),
            "^execute: timeout_s: found -1.0; allowed: more than 0",
        ),
        (
            lambda s: hios.execute(s.graph, s.weights, s.schedules, cores_per_device="x"),
            '^execute: cores_per_device: found "x"; allowed: integer or null$',
        ),
        (lambda s: hios.report(), "report: found no network; required: at least one"),
        (
            lambda s: hios.report((Graph("other", (hios.Operator("z", "conv"),), ()), s.costs, s.run)),
            "costs: operators: no entry for operator z of graph; ",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(stages: Stages, call: Any, message: str) -> None:
    """Wrong arguments are named, with what is allowed."""
    with pytest.raises(HiosError, match=message) as caught:
        call(stages)
    assert "\n" not in str(caught.value)


def test_import_binds_functions() -> None:
    """The names of the stages are functions, whatever modules of hios are imported first."""
    code = (
        "import hios.report.page, hios.core.schedule, hios.profiling.profile, hios\n"
        "print([callable(getattr(hios, name)) for name in "
        "('export', 'extract', 'profile', 'schedule', 'execute', 'report')])"
    )
    assert printed("-c", code) == f"{[True] * 6}\n"


@pytest.mark.parametrize("name", [name for name in hios.__all__ if name not in ("ALGORITHMS", "__version__")])
def test_docstrings(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every public function and class has an example, of which those that take no time are run, and can be pickled."""
    function = getattr(hios, name)
    for algorithm in list(hios.ALGORITHMS):  # what the example registers is gone afterwards
        monkeypatch.setitem(hios.ALGORITHMS, algorithm, hios.ALGORITHMS[algorithm])
    before = dict(hios.ALGORITHMS)
    try:
        examples = doctest.DocTestFinder(recurse=False).find(function, name, globs={})
        assert sum(len(test.examples) for test in examples) >= 2
        results = [doctest.DocTestRunner(verbose=False).run(test) for test in examples]
    finally:
        hios.ALGORITHMS.clear()
        hios.ALGORITHMS.update(before)
    assert sum(result.failed for result in results) == 0
    assert pickle.loads(pickle.dumps(function)) is function  # noqa: S301
    documented = inspect.getdoc(function) or ""
    if inspect.isfunction(function):
        assert all(parameter in documented for parameter in inspect.signature(function).parameters)


def test_execute_documents_its_settings() -> None:
    """The docstring names every setting of a session with its default."""
    documented = inspect.getdoc(hios.execute) or ""
    for field in msgspec.structs.fields(Settings):
        if field.name != "devices":  # an argument of its own
            _, name, text = documented.partition(f"``{field.name}`` (")
            stated = re.match(r"`*(\([^)]*\)|[^)`:]+)", text)
            assert name
            assert stated
            assert field.default is None or ast.literal_eval(stated[1]) == field.default
