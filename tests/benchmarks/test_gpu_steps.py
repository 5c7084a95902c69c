"""The steps of the benchmark on a GPU: what they keep, and that they need neither TVM nor weights."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

import benchmarks.networks
from hios.cli.files import extract
from hios.files import versions
from hios.files.base import Platform
from hios.frontends.export import build_model
from hios.frontends.program import export
from hios.platforms.cuda import gpu_settings
from tests.few_packages import with_only
from tests.scripts import ROOT, printed, python

NETWORK = "ios_sample"


@pytest.fixture(scope="module")
def gpu() -> Iterator[ModuleType]:
    """The script, which imports the module beside it as a script does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(benchmarks.networks.__file__).parent))
        yield importlib.import_module("gpu")


@pytest.fixture(scope="module")
def prepared(gpu: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of four narrow convolutions, prepared."""
    folder = tmp_path_factory.mktemp("prepared")
    gpu.prepare([NETWORK], folder, channels=16)
    return folder


def test_recipes_make_the_weights(gpu: ModuleType) -> None:
    """Weights of a network with batch norms are made from its seed, bit by bit; others have no recipe."""
    recipes = importlib.import_module("weight_recipes")
    module, inputs = build_model("resnet34", {"image_size": 32}, 0)
    import hios

    graph, tensors = hios.extract(export(module, inputs))
    recipe = recipes.recipe_of(tensors, module)
    assert any(norm is not None for norm in recipe.values())
    again, _ = build_model("resnet34", {"image_size": 32}, 0)
    made = recipes.weights_of(json.loads(json.dumps(recipe)), again)
    assert made.keys() == tensors.keys() == {entry.name for entry in graph.weights}
    assert all(torch.equal(made[name], tensor) for name, tensor in tensors.items())
    name = next(iter(tensors))
    assert recipes.recipe_of({name: tensors[name] + 1}, module) == {}
    assert recipes.recipe_of({name: tensors[name].sum()}, module) == {}  # a single number, as in RandWire


@pytest.mark.slow
def test_steps_run_with_few_packages(
    gpu: ModuleType, prepared: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Prepared networks are profiled, scheduled and executed, here on cores; later steps use the costs of the race."""
    few = with_only(["torch", "numpy", "safetensors", "msgspec", "tqdm"], tmp_path_factory.mktemp("few"))
    code = (
        f"import sys; sys.path.insert(0, {str(Path(str(gpu.__file__)).parent)!r})\n"
        "from pathlib import Path; import gpu\n"
        f"steps = gpu.Steps(gpu.Facts(Path({str(tmp_path)!r})), 'cpu', Path({str(prepared)!r}))\n"
        f"steps.race({NETWORK!r}); steps.compiled({NETWORK!r}); steps.segments({NETWORK!r})\n"
    )
    printed("-c", code, **few)
    facts = gpu.Facts(tmp_path).all()
    raced = {fact["name"] for fact in facts if fact["step"] == "race" and fact.get("kind") == "schedule"}
    assert raced == set(gpu.ALGORITHMS)
    (compiled,) = [fact for fact in facts if fact["step"] == "compiled" and fact.get("kind") == "schedule"]
    assert compiled["name"] in raced
    assert any(fact.get("sum_of_operators_ms", 0) > 0 for fact in facts)
    both = {fact["name"]: fact for fact in facts if fact["step"] == "segments" and fact.get("kind") == "schedule"}
    assert {"sequential", f"sequential{gpu.BY_SEGMENTS}"} <= both.keys()
    assert sum(both[f"sequential{gpu.BY_SEGMENTS}"]["segments"].values()) == 1


def test_facts_of_the_machine_name_hios(gpu: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its version and commit, as hios need not be installed there, and what could not be asked of the GPU."""
    import hios

    monkeypatch.setattr(hios.platforms, "describe", lambda *_: Platform("cuda", 1))
    monkeypatch.setattr(versions, "checkout", lambda: "commit 1")
    monkeypatch.setattr(gpu_settings, "asked", lambda uuids: ("Default\n", ["compute_mode"]))

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no GPU")

    monkeypatch.setattr(torch, "randn", refuse)
    facts = gpu.Facts(tmp_path)
    with pytest.raises(RuntimeError, match="no GPU"):
        gpu.Steps(facts).machine("")
    (fact,) = facts.all()
    assert (fact["hios"], fact["commit"], fact["torch"]) == (hios.__version__, "commit 1", torch.__version__)
    (clocks,) = fact["settings"]["clocks"]
    assert (clocks["compute_mode"], clocks["power.limit"]) == ("Default", "unknown")


def test_steps_that_fail_cost_themselves(gpu: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every step is tried, its end is kept with what it said, and a later run tries again only what failed."""
    facts, commands = gpu.Facts(tmp_path), list[list[str]]()

    def start(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if command[3] == "capture":
            raise subprocess.TimeoutExpired(command, 60, stderr=b"still")
        return subprocess.CompletedProcess(command, int(command[3] == "layouts"), "", "no such call\n")

    gpu.run(facts, 600.0, ["googlenet"], start)
    kept = {tuple(fact["ran"]): fact["status"] for fact in facts.all()}
    assert [fact["said"] for fact in facts.all() if "said" in fact] == ["still", "no such call\n"]
    assert [command[3] for command in commands] == [step for step, _ in (*gpu.MACHINE, *gpu.NETWORK)]
    assert {step for (step, _), status in kept.items() if status != "0"} == {"capture", "layouts"}
    commands.clear()
    gpu.run(facts, 600.0, ["googlenet"], start)
    assert [command[3] for command in commands] == ["capture", "layouts"]
    commands.clear()
    gpu.run(facts, 10.0, ["squeezenet"], start)
    assert commands == []
    said = capsys.readouterr().out
    assert "layouts: not finished (1)" in said
    assert "capture: not finished (time-out)" in said
    assert facts.all()[-1]["status"] == "no time"


def test_a_line_that_was_cut_off_is_no_fact(gpu: ModuleType, tmp_path: Path) -> None:
    """A machine that is taken away in the middle of a line leaves the facts before it."""
    facts = gpu.Facts(tmp_path)
    facts.add("machine", torch="2.11")
    with (tmp_path / "facts.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": "race", "med')
    assert facts.all() == [{"step": "machine", "torch": "2.11"}]
    facts.add("capture", after=2)
    assert [fact["step"] for fact in facts.all()] == ["machine", "capture"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu(gpu: ModuleType, tmp_path: Path) -> None:
    """A step says so, in its own process."""
    done = python(gpu.__file__, "step", "machine", tmp_path)
    assert done.returncode != 0
    assert "platform cuda: " in done.stderr


@pytest.mark.parametrize("name", ["googlenet", "inception_v3", "nasnet_large", "squeezenet", "bert", "randwire"])
def test_prepared_networks(gpu: ModuleType, name: str) -> None:
    """What is committed names every weight of its graph, or has it, and is small."""
    from safetensors.torch import load_file

    import hios

    assert name in gpu.NETWORKS
    folder = gpu.PREPARED / name
    graph = hios.Graph.read(folder / "graph.json")
    recipe = json.loads((folder / "recipe.json").read_text(encoding="utf-8"))
    rest = load_file(folder / gpu.REST) if (folder / gpu.REST).exists() else {}
    assert recipe["weights"].keys() | rest.keys() == {entry.name for entry in graph.weights}
    assert not recipe["weights"].keys() & rest.keys()
    assert sum(path.stat().st_size for path in folder.iterdir()) < 1e6


def test_the_prepared_squeezenet_is_what_is_extracted(gpu: ModuleType, tmp_path: Path) -> None:
    """The graph that is committed is that of today's extraction."""
    import hios

    hios.export("squeezenet").write(tmp_path / "program.pt2")
    extract(tmp_path / "program.pt2", tmp_path / "graph.json", tmp_path / "weights.safetensors", "squeezenet")
    assert (tmp_path / "graph.json").read_bytes() == (gpu.PREPARED / "squeezenet" / "graph.json").read_bytes()


def test_facts_are_shown_as_documented(gpu: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """What docs/gpus.md says of an H100 is what the facts of one say."""
    gpu.show(gpu.Facts(gpu.PREPARED.with_name("gpu_facts") / "h100"))
    page = (ROOT / "docs" / "gpus.md").read_text(encoding="utf-8")
    fitted = re.compile(r", [\d.]+ ms by blend.*")  # by least squares, whose last digits are those of the machine
    said, *blocks = (fitted.sub("", text) for text in (capsys.readouterr().out, *page.split("```\n")[1::2]))
    assert len(blocks) == 2
    assert all(block in said for block in blocks)
