"""Experiments of TOP on small networks: every figure's numbers come from a simulation that a reader can repeat."""

from __future__ import annotations

import dataclasses
import gc
import math
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import yaml

from benchmarks.networks import inception_v3, squeezenet, synthetic_costs
from hios.charts import marks
from hios.core.costs import Demand
from hios.core.problem import Problem
from hios.errors import HiosError, HiosWarning
from hios.files import artifacts
from hios.formats.config import TopStudy
from hios.formats.settings import TrainingSettings
from hios.formats.study import (
    CURVE,
    DP,
    GPG,
    GPG_ONE_PASS,
    GPG_STEP,
    JAIN,
    LAST_ENDING,
    LAUNCHER_STEP,
    NO_LAUNCHER,
    NOT_LEARNED,
    OF_MODEL,
    RANDOM_SEARCH,
    TOP,
    TRAINED,
    VARIANCE,
    TopStudyFile,
)
from hios.platforms.model import descriptions
from hios.platforms.model.devices import predicted_costs
from hios.platforms.model.kernel_work import kernels
from hios.schedulers.ios_search import SearchedBlock, block_space
from hios.schedulers.policy import training
from hios.schedulers.policy.endings import combined_problem, model_blocks
from hios.serving.scenario import Scenario
from hios.serving.simulate import simulate
from hios.serving.stage_times import Device
from hios.study import registry, top_experiments
from hios.study.figure_data import FigureData
from hios.study.published import Verdict
from hios.study.top_experiments import (
    ModelMemory,
    TopItself,
    batched,
    copied,
    memory_of,
    overloaded,
    synchronous_per_s,
)
from hios.study.top_learning import R, S, run, transitions
from tests.cli.commands import invoke, succeed
from tests.serving.scenarios import scenario, served
from tests.serving.served import networks
from tests.study.top_points import write_experiments

_SMALL = TopStudy(
    most=2,
    copies=2,
    batches=(1, 8),
    gpus=("rtx3080", "h100-sxm"),
    steps=3,
    samples=2,
    transitions=10_000,
    loads=(1.0,),
    launcher_steps=5,
)
_GPU = "a100-pcie-40gb"
#: Seconds that training of a policy seems to take.
_POLICY_S = 1000.0
#: Two fire modules, an Inception A and an E block.
_BLOCKS = (("squeezenet", 1), ("squeezenet", 3), ("inception_v3", 1), ("inception_v3", 10))


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Scenarios of two small networks with costs predicted for a GPU, by label."""
    folder = tmp_path_factory.mktemp("top")
    gpu = descriptions.gpu(_GPU)
    entries = {}
    for label, network in networks().items():
        network.graph.write(folder / f"{label}.graph.json")
        costs = predicted_costs(network.graph, gpu, descriptions.link(None, gpu), 1)
        artifacts.write(folder / f"{label}.costs.json", "costs", costs)
        entries[label] = {"graph": f"{label}.graph.json", "costs": f"{label}.costs.json", "rate": 100.0}
    scenarios = {"mix": entries, "blocks": {"blocks": entries["blocks"]}}
    for name, models in scenarios.items():
        settings = {"lanes": 1, "duration_s": 1.0, "models": models, "top": {"most": 2}}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    return {name: folder / f"{name}.yaml" for name in scenarios}


def test_transitions_of_combined_blocks() -> None:
    """Fire modules and Inception A blocks: what a search finds, and what the specification says of larger ones."""
    by_name = {}
    for graph in (inception_v3(), squeezenet()):
        by_name[graph.name] = model_blocks(graph.name, Problem(graph, synthetic_costs(graph)))
    fire, other, a, e = (by_name[name][number] for name, number in _BLOCKS)
    for blocks, states, expected in (((fire, a), 949, 64_391), ((fire, other), 169, 3_431)):
        union = combined_problem(blocks)
        searched = block_space(SearchedBlock.of(union.order, [[u for u, _ in row] for row in union.predecessors]), R, S)
        assert (searched.states, searched.transitions) == (states, expected)
        assert transitions(blocks) == expected
    for block, count, about in ((a, 2, 1.18e6), (a, 3, 1.29e9), (e, 2, 2.3e7), (e, 4, 5.3e14)):
        assert transitions([block] * count) == pytest.approx(about, rel=0.01)


def _run(experiment: str, given: dict[str, Path]) -> TopStudyFile:
    return run(experiment, {name: Scenario.read(path) for name, path in given.items()}, _SMALL, _GPU)  # type: ignore[arg-type]


def test_sizes_and_copies(given: dict[str, Path]) -> None:
    """Larger combined blocks and more copies never complete less than a tenth less, and copies are of single models."""
    sizes = _run("sizes", given)
    assert {point.system for point in sizes.points if point.scenario == "mix"} == {
        *("top", "top, launcher off", "top, GPG off", "top, both off"),
    }
    assert {(point.scenario, point.x) for point in sizes.points} == {(name, x) for name in given for x in (1.0, 2.0)}
    assert sizes.device == "gpu"
    assert {point.system for point in sizes.points if point.values.get(TRAINED, 0.0) > 0} == {"top", "top, GPG off"}
    assert all({f"{OF_MODEL}blocks", JAIN, VARIANCE} <= point.values.keys() for point in sizes.points)
    copies = _run("copies", given)
    assert all(f"{OF_MODEL}blocks-{int(point.x) - 1}" in point.values for point in copies.points)
    assert {point.scenario for point in copies.points} == {"blocks"}
    by_count = {point.x: point.values["tasks per s"] for point in copies.points if point.system == "top"}
    assert by_count[2.0] > 0.9 * by_count[1.0] > 0


def test_top_is_trained(given: dict[str, Path]) -> None:
    """TOP learns launcher and stages, and its ablations stand beside it; both off is the policy top."""
    study = _run("systems", given)
    by_system = {point.system: point.values for point in study.points if point.scenario == "mix"}
    assert list(by_system) == ["top", "top, launcher off", "top, GPG off", "top, both off"]
    fixed = simulate(Scenario.read(given["mix"]), "top")
    assert by_system["top, both off"]["tasks per s"] == fixed.done_per_s
    assert all(0 < values["tasks per s"] <= values["bound per s"] for values in by_system.values())
    data = FigureData(top={"systems": study}, serving={"mix": (fixed,)})
    rows = registry.figure("top_fig15").rows(data)
    assert [row["policy"] for row in rows] == list(by_system)
    assert {row["tasks per s by model"].count(",") for row in rows} == {len(networks()) - 1}
    with TopItself(_SMALL) as itself:
        (held,) = itself.combined(overloaded(Scenario.read(given["blocks"]))).file.top.combined[:1]
    assert 1 <= sum(map(len, held.values())) <= 2


def test_policies_are_kept_for_what_they_are_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other rates need no other policy of GPG; another size of combined blocks does, and so do other overheads.

    The time of training one is part of that of TOP where it was kept, too.
    """
    trained: list[int] = []
    clock = SimpleNamespace(process_time=lambda: time.process_time() + _POLICY_S * len(trained))
    monkeypatch.setattr(top_experiments, "time", clock)

    def counted(problems: Mapping[str, Problem], settings: TrainingSettings, *more: Any) -> training.Trained:
        trained.append(settings.most)
        return train(problems, settings, *more)

    train = training.train
    monkeypatch.setattr(training, "train", counted)

    def of(rate: float, most: int, **overheads: float) -> Scenario:
        models = served("one", [[1.0, 2.0], [2.0, 1.0]], rate), served("two", [[4.0, 1.0]], 3 * rate)
        return scenario(*models, lanes=2, duration_s=1.0, top={"most": most}, overheads=overheads)

    with TopItself(_SMALL) as itself:
        for given in (of(10.0, 2), of(20.0, 2), of(10.0, 3), of(10.0, 2), of(10.0, 2, stage_ms=0.5)):
            itself.results(given, (NO_LAUNCHER,))
        itself.results(of(20.0, 2), (TOP,))
        assert itself.trained_s[TOP] > _POLICY_S
    assert trained == [2, 3, 2]


def test_copies_share_the_tasks() -> None:
    """Copies have the same blocks and together the rate of the model."""
    alone = scenario(served("only", [[1.0], [2.0]], 90.0), lanes=1, gpu=True, duration_s=1.0, arrivals="periodic")
    three = copied(alone, 3)
    assert sum(model.rate for model in three.models) == pytest.approx(90.0)
    assert len(three.file.top.combined) == 2
    assert simulate(three, "top").total.offered == simulate(alone, "top").total.offered


def test_copies_take_the_gpu_from_each_other() -> None:
    """Two copies in one stage take twice as long, also where they share the costs and a measured stage."""
    resources = {"contention": "resources", "demand": {"b0v0": Demand(1.0, 1.0, 1.0), "b0v1": Demand(1.0, 1.0, 1.0)}}
    measured: dict[str, Any] = {"stages": {frozenset({("b0v0",), ("b0v1",)}): 1.2}, "alpha": 1.0}
    for changes in (resources, measured):
        alone = scenario(served("only", [[1.0, 1.0]], 90.0), lanes=1, gpu=True, duration_s=1.0, arrivals="periodic")
        (model,) = alone.models
        costs = dataclasses.replace(model.costs, **changes)
        model = dataclasses.replace(model, costs=costs, problem=Problem(model.problem.graph, costs))
        two = copied(dataclasses.replace(alone, models=(model,)), 2)
        stage = [(number, (v,)) for number in (0, 1) for v in (0, 1)]
        assert Device(two, shared=False).stage_ms(stage, 1) == pytest.approx(4.0)


def test_loads_that_no_scenario_takes(given: dict[str, Path], tmp_path: Path) -> None:
    """Arrivals from a file have load 1 alone, with a warning, and there are at most so many tasks."""
    (tmp_path / "tasks.csv").write_text("time_s,model\n0.1,blocks\n")
    document = yaml.safe_load(given["blocks"].read_text()) | {"arrivals": str(tmp_path / "tasks.csv")}
    from_file = given["blocks"].with_name("from-file.yaml")
    from_file.write_text(yaml.safe_dump(document))
    heavy = msgspec.structs.replace(_SMALL, loads=(1e5,))
    with pytest.warns(HiosWarning, match="tasks arrive as a file says, so with load 1 alone"):
        found = run("systems", {"blocks": Scenario.read(from_file)}, heavy, _GPU)
    assert {point.x for point in found.points} == {1.0}
    message = r"models\.blocks\.rate: found 1e\+07 tasks/s for 1 s; allowed: at most 2,000,000 tasks$"
    with pytest.raises(HiosError, match=message):
        run("systems", {"blocks": Scenario.read(given["blocks"])}, heavy, _GPU)


def test_no_system_keeps_up_with_an_overload() -> None:
    """Twice what the device can do at best arrives, in the shares of the scenario."""
    models = served("one", [[1.0]], 10.0), served("two", [[4.0]], 30.0)
    given = overloaded(scenario(*models, lanes=2, duration_s=60.0))
    assert given.models[1].rate == pytest.approx(3 * given.models[0].rate)
    assert sum(model.rate * work for model, work in zip(given.models, (1e-3, 4e-3), strict=True)) == pytest.approx(4.0)
    assert simulate(given, "one-per-lane").total.completed < 0.6 * simulate(given, "one-per-lane").total.offered


def test_synchronous_tasks_of_a_server_are_its_capacity() -> None:
    """One operator after another keeps up with one task of both models every 5 ms."""
    models = served("one", [[1.0]], 10.0), served("two", [[4.0]], 30.0)
    rate, found = synchronous_per_s(scenario(*models, lanes=1, duration_s=60.0), "sequential")
    assert rate == pytest.approx(200.0, rel=0.03)
    assert found is not None
    assert list(found.done_by_model.values()) == pytest.approx([rate, rate], rel=0.02)


def test_synchronous_tasks_of_the_systems(given: dict[str, Path]) -> None:
    """Beside the frequency of every system stands that each model gets about as many tasks."""
    study = _run("together", given)
    assert [point.system for point in study.points] == ["sequential", "ios", "pos-strict", "top", "top, both off"]
    for point in study.points:
        rates = [point.values[f"{OF_MODEL}{label}"] for label in networks()]
        assert rates == pytest.approx([point.values["synchronous tasks per s"]] * 2, rel=0.05)
        assert point.values[JAIN] > 0.99


def test_batches(given: dict[str, Path]) -> None:
    """Larger batches complete more inputs a second, and never fill more than 100 % of the GPU."""
    result = _run("batches", given)
    for name in given:
        own = {point.x: point.values for point in result.points if (point.scenario, point.system) == (name, "top")}
        assert own[8.0]["inputs per s"] > own[1.0]["inputs per s"] > 0
        assert 0 < own[1.0]["filled %"] <= own[8.0]["filled %"] <= 100
        for values in own.values():
            assert 1 <= values["groups of a stage"] <= values["operators of a stage"]
            assert values["stages of a combined block"] >= 1


def test_memory_holds_weights_and_values(given: dict[str, Path]) -> None:
    """Copies need their own weights and values; of a batch only values grow; the batch that fits is the largest one."""
    alone = Scenario.read(given["blocks"])
    one, three = memory_of(copied(alone, 1), "top"), memory_of(copied(alone, 3), "top")
    assert one is not None
    assert three is not None
    (model,) = alone.models
    assert one.weights == sum(4 * math.prod(entry.shape) for entry in model.problem.graph.weights)
    assert one.values > sum(4 * math.prod(entry.shape) for entry in model.problem.graph.inputs)
    assert (three.weights, three.values) == (3 * one.weights, 3 * one.values)
    assert one.copies((3 * one.total) / 1e9) == 3
    assert one.copies((3 * one.total - 1) / 1e9) == 2
    assert (one.copies(math.inf), one.batch(math.inf)) == (math.inf, math.inf)
    assert ModelMemory(weights=400, values=100).batch(1e-6) == 6
    assert ModelMemory(weights=4000, values=100).batch(1e-6) == 0
    # A graph that states no shapes has no memory to compute.
    assert memory_of(scenario(served("only", [[1.0], [2.0]], 90.0), lanes=1, gpu=True), "top") is None


def test_what_does_not_fit_is_left_out(given: dict[str, Path], tmp_path: Path) -> None:
    """On a GPU with room for one copy and a batch of one, others are left out with a warning that says what fits."""
    alone = Scenario.read(given["blocks"])
    described = yaml.safe_load(descriptions.gpu(_GPU).path.read_text(encoding="utf-8"))
    tiny = tmp_path / "tiny.yaml"

    def limit_to(memory: ModelMemory | None) -> None:
        assert memory is not None
        described["memory_gb"]["value"] = 1.5 * memory.total / 1e9
        tiny.write_text(yaml.safe_dump(described), encoding="utf-8")

    limit_to(memory_of(copied(alone, 1), "top"))
    with pytest.warns(HiosWarning, match=r"found 2 copies, left out: they do not fit into .* GB; allowed: at most 1"):
        copies = run("copies", {"blocks": alone}, _SMALL, str(tiny))
    assert {point.x for point in copies.points} == {1.0}
    assert {point.values["copies that fit"] for point in copies.points} == {1.0}
    limit_to(memory_of(alone, "top"))
    with pytest.warns(HiosWarning, match=r"found batches of 8, left out: they do not fit into .* GB; allowed: at most"):
        batches = run("batches", {"blocks": alone}, _SMALL, str(tiny))
    assert {point.x for point in batches.points} == {1.0}
    # Costs of batches are predicted for the GPU that was asked for, those of the others are as they were.
    assert (batches.gpu, copies.gpu) == (str(tiny), _GPU)
    named = {"tasks per s", "work done %", "tasks per s of blocks-0", "Jain's index", "queue variance"}
    assert run("copies", {"blocks": alone}, _SMALL).points[0].values.keys() == named


def test_a_graph_of_a_batch_does_the_work_of_its_inputs() -> None:
    """Kernels of eight inputs have eight times the elements and operations; weights are read once."""
    graph = networks()["blocks"].graph
    one, eight = kernels(graph), kernels(batched(graph, 8))
    assert one.keys() == eight.keys()
    for operator in one:
        for alone, many in zip(one[operator], eight[operator], strict=True):
            assert alone.bytes <= many.bytes <= 8 * alone.bytes
    assert batched(graph, 1) is graph
    other = dataclasses.replace(graph, inputs=(msgspec.structs.replace(graph.inputs[0], shape=(7, 3)),))
    with pytest.raises(HiosError, match="allowed for other batch sizes: a first dimension"):
        batched(other, 2)


def test_stages_on_several_gpus(given: dict[str, Path]) -> None:
    """Every GPU has a row for every scenario, by its speed."""
    result = _run("stages", given)
    assert [point.system for point in result.points] == list(_SMALL.gpus) * len(given)
    assert all(point.values["groups of a stage"] >= 1 for point in result.points)
    assert len({point.x for point in result.points}) == len(_SMALL.gpus)
    assert result.gpu is None


@pytest.fixture(scope="module")
def gpg(given: dict[str, Path]) -> TopStudyFile:
    """The experiment of GPG."""
    gc.collect()
    gc.freeze()  # garbage is collected before each search, which takes as long as there are modules
    return _run("gpg", given)


def test_gpg_learns_and_is_compared(gpg: TopStudyFile) -> None:
    """A curve of the training, and one row for each way and number of sub-blocks."""
    curve = [point for point in gpg.points if point.system == CURVE]
    assert [point.x for point in curve] == [0.0, 3.0]
    ways = {(point.system, point.x) for point in gpg.points if point.system != CURVE}
    assert {(DP, 1.0), (GPG_ONE_PASS, 1.0), (DP, 2.0), (GPG_ONE_PASS, 2.0)} <= ways
    exact = {point.x: point.values for point in gpg.points if point.system == DP}
    (step,) = (point.values for point in gpg.points if point.system == GPG_STEP)
    assert list(step) == ["execution ms", "encoding ms", "decision ms", "endings ms", "update ms"]
    assert min(step.values()) > 0
    for point in gpg.points:
        if point.system not in (CURVE, GPG_STEP):
            assert point.values["latency over sequential"] >= exact[point.x]["latency over sequential"] - 1e-9


def test_gpg_is_compared_with_the_rule_that_learns_nothing(gpg: TopStudyFile) -> None:
    """Every way is timed by itself, the last ending without a policy too; choosing a stage is timed as well."""
    by_way = {
        point.system: point.values for point in gpg.points if point.x == 2.0 and point.system not in (CURVE, GPG_STEP)
    }
    assert by_way.keys() == {DP, GPG, GPG_ONE_PASS, NOT_LEARNED, LAST_ENDING}
    for way, values in by_way.items():
        assert values["search ms"] > 0
        assert ("latency over sequential, all" in values) == (way != DP)
    assert len({values["search ms"] for values in by_way.values()}) == len(by_way)
    # One pass of the same rule is never better than the passes that begin with it.
    assert by_way[NOT_LEARNED]["latency over sequential"] <= by_way[LAST_ENDING]["latency over sequential"]
    once = by_way[GPG_ONE_PASS]
    assert 0 < once["stage choice ms"] <= once["longest stage choice ms"]


def test_gpg_of_a_folder_of_graphs(tmp_path: Path) -> None:
    """Costs are predicted; models that the policy was not trained on are compared by themselves."""
    for label, network in networks().items():
        (tmp_path / "graphs" / label).mkdir(parents=True)
        network.graph.write(tmp_path / "graphs" / label / "graph.json")
    first, *rest = networks()
    output = tmp_path / "study" / "top" / "gpg.json"
    small = ["--steps", "2", "--samples", "1", "--transitions", "10000"]
    arguments = ["study", "top", "gpg", str(tmp_path / "graphs"), "--gpu", _GPU, *small, "--output", str(output)]
    done = succeed(*arguments, "--train-on", first)
    study = artifacts.load(output, TopStudyFile)
    assert study.device == "gpu"
    assert study.gpu is not None
    assert {point.scenario for point in study.points if point.system == CURVE} == {first}
    assert {point.scenario for point in study.points if point.system == GPG} == {first, "+".join(sorted(rest))}
    done = invoke(*arguments, "--train-on", "nobody")
    assert "--train-on: found nobody; allowed: " in done.stderr
    (tmp_path / "others" / first).mkdir(parents=True)
    networks()[rest[0]].graph.write(tmp_path / "others" / first / "graph.json")
    done = invoke(*arguments, tmp_path / "others")
    assert f"found the model {first} with other costs than before" in done.stderr
    arguments[2] = "sizes"
    done = invoke(*arguments)
    assert "found a folder; required for sizes: scenario.yaml" in done.stderr


def test_times_are_measured_and_latencies_predicted(tmp_path: Path) -> None:
    """In figure 13 no row has numbers of both kinds."""
    (path,) = write_experiments(tmp_path)["top/gpg"]
    rows = registry.figure("top_fig13").rows(FigureData.read([path]))
    for row in rows:
        assert ("search ms" in row) == (row["mark"] == marks.MEASURED.name)
        assert ("latency over sequential" in row) == (row["mark"] == marks.PREDICTED.name)
    assert {row["mark"] for row in rows} == {marks.MEASURED.name, marks.PREDICTED.name}


@pytest.mark.slow
def test_the_launcher_also_learns_in_overload(given: dict[str, Path]) -> None:
    """A curve at the rates of the scenario, and one where not all tasks can be completed."""
    settings = msgspec.structs.replace(_SMALL, launcher_steps=30, launcher_seeds=2)
    result = run("launcher", {"mix": Scenario.read(given["mix"])}, settings, _GPU)
    assert {point.x for point in result.points if point.system in (RANDOM_SEARCH, "learned")} == {30.0}
    steps = [point.values for point in result.points if point.system == LAUNCHER_STEP]
    assert [values.keys() >= {"decision ms", "stages ms", "execution ms", "inference ms"} for values in steps] == [
        True
    ] * 2
    for point in result.points:
        if point.system == LAUNCHER_STEP:
            continue
        mean = point.values["goodput per s"]
        assert point.values.get("least goodput per s", mean) <= mean <= point.values.get("largest goodput per s", mean)
    learned = {point.system for point in result.points if "least goodput per s" in point.values}
    assert learned
    assert learned <= {CURVE, "learned", "learned-static", RANDOM_SEARCH}
    assert {point.scenario for point in result.points} == {"mix", "mix, overloaded"}
    heavy = overloaded(Scenario.read(given["mix"]))
    offered = sum(model.rate for model in heavy.models)
    goodputs = [
        point.values.get("goodput per s", 0.0) for point in result.points if point.scenario == "mix, overloaded"
    ]
    assert 0 < max(goodputs) < 0.9 * offered


def test_scenarios_of_cores_are_left_out_of_batches(given: dict[str, Path]) -> None:
    """A warning names the scenario and what it lacks; the others are carried out, and the device is a GPU."""
    cores = scenario(served("only", [[1.0]], 10.0), lanes=2)
    scenarios = {"cores": cores, "blocks": Scenario.read(given["blocks"])}
    with pytest.warns(
        HiosWarning, match="experiment stages leaves cores out: costs of cores; required: costs of a GPU"
    ):
        result = run("stages", scenarios, _SMALL, _GPU)
    assert {point.scenario for point in result.points} == {"blocks"}
    assert result.device == "gpu"
    with pytest.warns(HiosWarning, match="experiment batches leaves cores out"):
        assert {point.scenario for point in run("batches", scenarios, _SMALL, _GPU).points} == {"blocks"}


def test_costs_of_cores_have_no_batches() -> None:
    """What is predicted from kernels of a GPU is refused for cores."""
    given = {"only": scenario(served("only", [[1.0]], 10.0), lanes=2)}
    for experiment in ("batches", "stages"):
        with pytest.raises(HiosError, match="found costs of cores; required: costs of a GPU"):
            run(experiment, given, _SMALL, _GPU)


def test_the_command(given: dict[str, Path], tmp_path: Path) -> None:
    """`hios study top` writes what verify accepts, and wants a label for each scenario."""
    output = tmp_path / "study" / "top" / "sizes.json"
    small = ("--most", 1, "--steps", 3, "--launcher-steps", 5)
    arguments = ["study", "top", "sizes", given["blocks"], *small, "--output", output]
    done = succeed(*arguments)
    points = artifacts.load(output, TopStudyFile).points
    systems = ["top", "top, launcher off", "top, GPG off", "top, both off"]
    assert [(point.scenario, point.system) for point in points] == [("blocks", system) for system in systems]
    done = invoke(*arguments, "--label", "a", "--label", "b")
    assert "--label: found a, b; required: a label of its own for each scenario" in done.stderr


def test_the_largest_combination_is_compared(tmp_path: Path) -> None:
    """Where GPG is not ten times as fast with the most sub-blocks, figure 13 differs; one alone does not decide."""
    (path,) = write_experiments(tmp_path)["top/gpg"]
    figure = registry.figure("top_fig13")
    rows = figure.rows(FigureData.read([path]))
    for size, verdict in ((1, Verdict.AGREES), (2, Verdict.DIFFERS)):
        slower = [
            row | {"search ms": 10 * row["search ms"]}
            if (row["system"], row["sub-blocks"]) == (GPG_ONE_PASS, size) and "search ms" in row
            else row
            for row in rows
        ]
        (compared,) = figure.compare(slower)
        assert compared.verdict is verdict


@pytest.mark.parametrize(("name", "key"), [("top_fig21", "steps"), ("top_fig22", "launcher_steps")])
def test_short_curves_say_what_to_set(name: str, key: str, tmp_path: Path) -> None:
    """A curve that ends before the paper's convergence has no verdict, and the finding names the setting."""
    figure = registry.figure(name)
    (path,) = write_experiments(tmp_path)[figure.sessions[0]]
    rows = figure.rows(FigureData.read([path]))
    short = [row for row in rows if row["system"] != CURVE or row["steps"] <= 3000]
    assert [figure.compare(made)[0].found is not None for made in (rows, short)] == [True, False]
    assert [f"(study: top: {key}: " in figure.finding(made) for made in (rows, short)] == [False, True]


def test_a_flat_curve_is_not_compared(tmp_path: Path) -> None:
    """Where nothing is learned, the step from which on a curve stays near its best means nothing."""
    (path,) = write_experiments(tmp_path)["top/launcher"]
    figure = registry.figure("top_fig22")
    rows = figure.rows(FigureData.read([path]))
    flat = [row | {"goodput per s": 3.0} for row in rows]
    assert [figure.compare(made)[0].found is not None for made in (rows, flat)] == [True, False]
    assert [figure.finding(made).count("means nothing") for made in (rows, flat)] == [0, 1]
