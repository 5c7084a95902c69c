"""What is loaded when, and which module may import which."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hios
from benchmarks.house import chain, imported, modules, packages
from hios import ALGORITHMS
from tests.problems import problem, write_files

ROOT = Path(hios.__file__).resolve().parent
#: Packages that only some commands need: slow to import, or not installed in every environment.
HEAVY = {
    "torch",
    "tvm",
    "numpy",
    "pandas",
    "altair",
    "vl_convert",
    "jinja2",
    "safetensors",
    "tqdm",
    "snakemake",
    "starlette",
    "uvicorn",
    "h11",
}

_REPORT = "; import sys, json; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
_RUN = "from hios.cli import main; main({arguments!r}, standalone_mode=False)"


def _loaded(code: str, folder: Path) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after running some code."""
    done = subprocess.run(
        [sys.executable, "-c", code + _REPORT],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT.parent), "PATH": ""},
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a graph, costs and a schedule of two operators."""
    two = problem({"a": 1.0, "b": 2.0}, {("a", "b"): 0.5})
    write_files(two, tmp_path)
    hios.schedule(two, "sequential").write(tmp_path / "schedule.json")
    return tmp_path


@pytest.mark.parametrize(
    "module",
    [
        "hios",
        "hios.cli",
        "hios.pipeline.config",
        "hios.platforms.cpu.devices",
        "hios.platforms.cuda.devices",
        "hios.workers.fork_server",
        "hios.platforms.cuda.plan",
        "hios.charts.marks",
        "hios.charts.rendering",
    ],
)
def test_imports_are_light(module: str, tmp_path: Path) -> None:
    """Importing what every command needs loads neither torch nor TVM nor Altair."""
    loaded = _loaded(f"import {module}", tmp_path)
    assert "hios" in loaded
    assert loaded & HEAVY == set()


@pytest.mark.parametrize("algorithm", ["sequential", "hios-lp"])
def test_scheduling_is_light(algorithm: str, files: Path) -> None:
    """Scheduling from files loads nothing heavy."""
    arguments = ["schedule", "graph.json", "costs.json", "--algorithm", algorithm, "--output", "found.json"]
    assert _loaded(_RUN.format(arguments=arguments), files) & HEAVY == set()
    assert json.loads((files / "found.json").read_text())["latency_ms"] == 3.0


@pytest.mark.parametrize(
    "arguments",
    [
        ["evaluate", "graph.json", "costs.json", "schedule.json"],
        ["show", "schedule.json"],
        ["draw", "graph.json"],
        ["algorithms"],
        ["algorithms", "hios-lp"],
        ["figures"],
        ["figures", "hios_fig9"],
        ["schedule", "--help"],
        ["serve", "--help"],
    ],
)
def test_looking_is_light(arguments: list[str], files: Path) -> None:
    """Evaluating or drawing a schedule, drawing a graph, listing the algorithms and help load nothing heavy."""
    assert _loaded(_RUN.format(arguments=arguments), files) & HEAVY == set()


def test_learned_launchers_serve_without_torch(tmp_path: Path) -> None:
    """Deciding and simulating load numpy, but neither torch nor TVM."""
    loaded = _loaded("import hios.serving.launcher.online_launcher, hios.serving.simulate", tmp_path)
    assert "numpy" in loaded
    assert loaded & {"torch", "tvm"} == set()


def test_a_start_from_the_cache_is_light(tmp_path: Path) -> None:
    """hios.optimize loads torch, but not Dynamo, which loads sympy, before it exports."""
    loaded = _loaded("import hios.optimizing.optimize", tmp_path)
    assert "torch" in loaded
    assert loaded & {"sympy", "tvm", "openvino", "onnxruntime"} == set()


@pytest.mark.slow
def test_what_is_heavy_would_be_found(tmp_path: Path) -> None:
    """The measure measures: a module that needs torch is seen to load it."""
    assert {"torch", "safetensors"} <= _loaded("import hios.platforms.workloads", tmp_path)


def _places() -> dict[str, int]:
    """First parts of module names in the order of the docstring of hios: layer by layer, left to right."""
    lines = [line.strip() for line in (hios.__doc__ or "").splitlines() if line.startswith("    ")]
    names = [name for line in lines for name in line.partition("  ")[0].split()]
    return {name: place for place, name in enumerate([*names, "__main__"])}


#: Packages in the longest chain of imports.
_MOST_LEVELS = 13
_PLACE = _places()
_MODULES = modules(ROOT)
#: What every module imports.
_IMPORTS = {name: imported(path, _MODULES) for name, path in _MODULES.items()}


def test_every_module_has_a_layer() -> None:
    """The docstring of hios names every module, and no name in it is without a module."""
    assert {name.partition(".")[0] for name in _MODULES} == set(_PLACE)


@pytest.mark.parametrize("module", sorted(_MODULES))
def test_modules_import_from_above_only(module: str) -> None:
    """A module imports from the layers above its own, and within its layer from what stands to its left."""
    own = _PLACE[module.partition(".")[0]]
    below = [name for name in _IMPORTS[module] if _PLACE[name.partition(".")[0]] > own]
    assert below == []


def test_nothing_imports_in_a_circle() -> None:
    """No module imports itself through others, wherever in their code the imports are."""
    assert chain(_IMPORTS)[1] == set()


def test_chains_of_packages_are_short() -> None:
    """What has to be known to follow an import to its end: a chain of a few packages."""
    assert chain(packages(_IMPORTS))[0] <= _MOST_LEVELS


def test_imports_are_found() -> None:
    """The measure measures: imports at the top, in functions and for type checkers are all seen."""
    of_problem = _IMPORTS["core.problem"]
    assert {"core.graph", "core.costs"} <= of_problem
    assert {name.partition(".")[0] for name in of_problem} <= set(_PLACE)
    assert "charts.marks" in _IMPORTS["study.figures.hios"]  # a module of a package by name
    assert "runtime.session" in _IMPORTS["cli.files"]  # inside a function
    assert "workers.arena" in _IMPORTS["workers.worker"]  # for type checkers


def test_algorithms_do_not_import_each_other_through_the_registry() -> None:
    """Every algorithm is a module of its own that the registry does not know."""
    assert not any(name.startswith("schedulers.") for name in _IMPORTS["schedulers.registry"])
    for algorithm in ALGORITHMS.values():
        assert algorithm.run.__module__.startswith("hios.schedulers.")
        assert importlib.import_module(algorithm.run.__module__).__doc__


def test_lists_of_modules_are_complete() -> None:
    """A package that says what its modules are leaves none out, and names none that is not there."""
    for init in sorted(ROOT.rglob("__init__.py")):
        said = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
        listed = set(re.findall(r"^(\w+)  +\S", said, re.MULTILINE))
        if init.parent == ROOT or len(listed) < 3:
            continue
        parts = {
            path.stem for path in init.parent.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()
        }
        assert (parts - {"__init__"} - set(re.findall(r"\w+", said)), listed - parts) == (set(), set()), init
