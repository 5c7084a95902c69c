"""Experiments of TOP on scenarios of several models, all simulated: figures 14 to 18, 20 and 23 to 27.

Times are those of costs.json: predicted for a GPU that is not here, or measured on cores. TOP is trained for every
scenario (`TopItself`). A folder of graphs is a scenario too, with costs predicted for a GPU.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hios.core.costs import Costs, CostsFile
from hios.core.graph import Graph
from hios.core.problem import Problem
from hios.core.sums import add_up
from hios.errors import HiosError, warn
from hios.formats.config import TopStudy
from hios.formats.scenario import ModelOfScenario, ScenarioFile
from hios.formats.serving_result import ResultFile
from hios.formats.settings import TrainingSettings
from hios.formats.study import (
    BATCH_THAT_FITS,
    COPIES_THAT_FIT,
    JAIN,
    NEITHER,
    NO_GPG,
    NO_LAUNCHER,
    OF_MODEL,
    TOP,
    TRAINED,
    VARIANCE,
    TopPoint,
)
from hios.platforms.model import descriptions
from hios.platforms.model.descriptions import Gpu
from hios.platforms.model.devices import predicted_costs
from hios.platforms.model.kernel_work import ELEMENT_BYTES
from hios.serving.measures import result
from hios.serving.pipeline import SubBlock
from hios.serving.policies import pipeline_of
from hios.serving.scenario import Scenario, ServedModel, pipeline_blocks
from hios.serving.simulate import simulate
from hios.serving.stage_times import least_work_s
from hios.serving.top_pipeline import stages_to_learn

if TYPE_CHECKING:
    from hios.serving.launcher.actions import Launcher

#: Systems of figures that compare them: one operator after another, stages of IOS, synchronous rounds, TOP.
SINGLE, ROUNDS = ("sequential", "ios"), "pos-relaxed"
#: How many times the device's time the tasks of an overloaded scenario need, so that no system keeps up.
_OVERLOAD = 2.0
#: Tasks of a simulation in which a device is overloaded, and of one that asks whether a system keeps up.
_TASKS, _ROUNDS_ASKED = 1500, 300
#: Halvings of the range in which the highest frequency of synchronous tasks lies, and tasks that may then still wait.
_HALVINGS, _LEFT = 8, 2


def sizes(scenarios: Mapping[str, Scenario], study: TopStudy, gpu: str) -> Iterator[TopPoint]:
    """Figure 18: throughput over the size of combined blocks, under TOP and without its parts; time of training."""
    with TopItself(study) as itself:
        for label, scenario in scenarios.items():
            given = overloaded(scenario)
            for size in range(1, study.most + 1):
                results = itself.results(given.with_top(combined=(), most=size))
                for system, found in results.items():
                    trained = {TRAINED: itself.trained_s[system]} if system in itself.trained_s else {}
                    yield _point(label, given, system, size, {**_served(found), **trained})


def systems(scenarios: Mapping[str, Scenario], study: TopStudy, gpu: str) -> Iterator[TopPoint]:
    """Figures 14 to 17: TOP and its ablations over the load; other systems are policies of `hios simulate`."""
    with TopItself(study) as itself:
        for label, scenario in scenarios.items():
            loads = study.loads
            if scenario.rows is not None and loads != (1.0,):
                warn(f"{scenario.source}: experiment systems: tasks arrive as a file says, so with load 1 alone")
                loads = (1.0,)
            for load in loads:
                given = scenario.loaded(load)
                for system, found in itself.results(given).items():
                    values = {
                        "offered per s": found.offered_per_s,
                        **_served(found),
                        "bound per s": found.bound_per_s,
                        "device busy %": 100 * found.utilisation,
                        "queue limit": float(max(own.queue or 0 for own in found.models.values())),
                        **({} if found.total.p99_ms is None else {"p99 ms": found.total.p99_ms}),
                    }
                    yield _point(label, given, system, load, values)


def copies(scenarios: Mapping[str, Scenario], study: TopStudy, gpu: str) -> Iterator[TopPoint]:
    """Figure 24: throughput over copies of a model that share its tasks, with the same block of all combined.

    `sequential`, one task at a time, stands for a framework that does not know of the copies. Numbers of copies that do
    not fit into the memory of the GPU are left out with a warning.
    """
    for label, scenario in scenarios.items():
        if len(scenario.models) > 1:
            continue
        memory_gb = descriptions.gpu(gpu).memory_gb if gpu and scenario.gpu else math.inf
        memory = memory_of(copied(scenario, 1), TOP) if memory_gb < math.inf else None
        fitting = memory.copies(memory_gb) if memory else math.inf
        for count in range(1, study.copies + 1):
            if count > fitting:
                warn(f"{scenario.source}: experiment copies: {_too_large(f'{count} copies', memory_gb, fitting)}")
                break
            room = {"memory GB": count * memory.total / 1e9, COPIES_THAT_FIT: float(fitting)} if memory else {}
            given = copied(overloaded(scenario), count)
            with TopItself(study) as itself:
                results = {"sequential": simulate(given, "sequential"), **itself.results(given, (TOP, NEITHER))}
            for system, found in results.items():
                yield _point(label, scenario, system, count, {**_served(found), **room})


def together(scenarios: Mapping[str, Scenario], study: TopStudy, gpu: str) -> Iterator[TopPoint]:
    """Figure 23: synchronous tasks, each of which all models take; the highest frequency that a system keeps up with.

    Tasks arrive periodically for all models at once, and leave their queues at that frequency. TOP has the combined
    blocks that it learned for the scenario in overload.
    """
    for label, scenario in scenarios.items():
        if len(scenario.models) == 1:
            continue
        with TopItself(study) as itself:
            learned = itself.combined(overloaded(scenario)).file.top
            given = {TOP: scenario.with_top(**msgspec.structs.asdict(learned)), NEITHER: scenario}
            found = {system: synchronous_per_s(scenario, system) for system in (*SINGLE, "pos-strict")}
            found |= {system: synchronous_per_s(own, TOP) for system, own in given.items()}
        for system, (frequency, kept) in found.items():
            values = {"synchronous tasks per s": frequency, **(_beside_gain(kept) if kept else {})}
            yield _point(label, scenario, system, len(scenario.models), values)


def batches(scenarios: Mapping[str, Scenario], study: TopStudy, gpu: str) -> Iterator[TopPoint]:
    """Figures 25 to 27: TOP's stages, throughput and utilization over the batch size, where a task is a batch.

    Costs of a batch are predicted from the graph with that many inputs at once, for the GPU of the scenario. Batches
    that do not fit into its memory are left out with a warning.
    """
    on_gpus = _on_gpus(scenarios, "batches")
    described = descriptions.gpu(gpu)
    for label, scenario in on_gpus.items():
        systems = SINGLE if len(scenario.models) == 1 else (*SINGLE, ROUNDS)
        one = memory_of(scenario, TOP) if described.memory_gb < math.inf else None
        fitting = one.batch(described.memory_gb) if one else math.inf
        for size in study.batches:
            if size > fitting:
                unfit = _too_large(f"batches of {size}", described.memory_gb, fitting)
                warn(f"{scenario.source}: experiment batches: {unfit}")
                continue
            room = (
                {"memory GB": (one.weights + size * one.values) / 1e9, BATCH_THAT_FITS: float(fitting)} if one else {}
            )
            given = overloaded(_priced(scenario, described, size))
            with TopItself(study) as itself:
                results = {system: simulate(given, system) for system in systems}
                results |= itself.results(given, (TOP, NEITHER))
                chosen = _stages_of(itself, given)
            for system, found in results.items():
                served = _served(found)
                inputs_per_s = size * served.pop("tasks per s")
                values = {
                    "inputs per s": inputs_per_s,
                    **served,
                    "filled %": 100 * _filled(given, found),
                    **(chosen if system == TOP else {}),
                    **room,
                }
                yield _point(label, given, system, size, values)


def stages(scenarios: Mapping[str, Scenario], study: TopStudy, gpu: str) -> Iterator[TopPoint]:
    """Figure 20: stages of TOP's combined blocks, and groups in each, on several described GPUs by their speed."""
    for label, scenario in _on_gpus(scenarios, "stages").items():
        for name in study.gpus:
            described = descriptions.gpu(name)
            with TopItself(study) as itself:
                values = _stages_of(itself, overloaded(_priced(scenario, described, 1)))
            yield _point(label, scenario, name, described.fp32_tflops, values)


def _stages_of(itself: TopItself, scenario: Scenario) -> dict[str, float]:
    """The form of the stages that TOP finds for a scenario, means."""
    pipeline = pipeline_of(itself.combined(scenario), TOP)
    every = [stage for own in pipeline.stages for stage in own]
    operators = sum(len(group) for stage in every for _, group in stage)
    return {
        "stages of a combined block": len(every) / len(pipeline.stages),
        "groups of a stage": sum(map(len, every)) / len(every),
        "operators of a stage": operators / len(every),
    }


#: Finds the points of an experiment: scenarios by label, what is varied, and the GPU that costs of batches are for.
Experimenting = Callable[[Mapping[str, Scenario], TopStudy, str], Iterator[TopPoint]]

#: The experiments that ask what TOP achieves, by name.
SIMULATED: dict[str, Experimenting] = {
    "systems": systems,
    "sizes": sizes,
    "copies": copies,
    "together": together,
    "batches": batches,
    "stages": stages,
}


#: Experiments for which costs of cores have nothing to predict from.
GPU_ONLY = ("batches", "stages")


def overloaded(scenario: Scenario) -> Scenario:
    """The scenario with its shares of the tasks at a rate that no system keeps up with, for some tasks."""
    asked = add_up(model.rate * least_work_s(model, gpu=scenario.gpu) for model in scenario.models)
    if asked <= 0:
        raise HiosError(f"{scenario.source}: found no operator that takes any time; required: at least one")
    factor = _OVERLOAD * scenario.lanes / asked
    duration_s = _TASKS / add_up(model.rate * factor for model in scenario.models)
    return at_rates(scenario, [model.rate * factor for model in scenario.models], duration_s, launcher="open")


def at_rates(scenario: Scenario, rates: Sequence[float], duration_s: float, *, launcher: str) -> Scenario:
    """The scenario with other rates, periodic arrivals and another launcher."""
    models = tuple(dataclasses.replace(model, rate=rate) for model, rate in zip(scenario.models, rates, strict=True))
    entries = {
        model.label: msgspec.structs.replace(model.settings, rate=model.rate, interval_s=None, deadline_ms=None)
        for model in models
    }
    file = msgspec.structs.replace(
        scenario.file, models=entries, duration_s=duration_s, arrivals="periodic", launcher=launcher, repeats=1
    )
    return dataclasses.replace(
        scenario,
        file=file,
        models=tuple(dataclasses.replace(model, settings=entries[model.label]) for model in models),
        rows=None,
    )


def copied(scenario: Scenario, count: int) -> Scenario:
    """So many copies of the only model, which share its tasks, with the same block of all copies combined."""
    (model,) = scenario.models
    labels = [f"{model.label}-{number}" for number in range(count)]
    rate = model.rate / count
    combined = tuple(dict.fromkeys(labels, (block,)) for block in range(len(model.blocks)))
    entries = {label: msgspec.structs.replace(model.settings, rate=rate) for label in labels}
    models = tuple(dataclasses.replace(model, label=label, settings=entries[label], rate=rate) for label in labels)
    top = msgspec.structs.replace(scenario.file.top, combined=combined, most=None)
    file = msgspec.structs.replace(scenario.file, models=entries, top=top)
    return dataclasses.replace(scenario, file=file, models=models)


def synchronous_per_s(scenario: Scenario, system: str) -> tuple[float, ResultFile | None]:
    """The highest frequency of tasks for all models at once at which no queue grows, with its result; 0 with none."""
    work = add_up(least_work_s(model, gpu=scenario.gpu) for model in scenario.models)
    low, high = 0.0, 1.2 * scenario.lanes / work
    kept = None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        given = at_rates(
            scenario,
            [middle] * len(scenario.models),
            _ROUNDS_ASKED / middle,
            launcher="fixed" if middle >= 1 else "open",
        )
        result = simulate(given, system)
        if all(own.waiting <= _LEFT and not own.dropped for own in result.models.values()):
            low, kept = middle, result
        else:
            high = middle
    return low, kept


def batched(graph: Graph, count: int) -> Graph:
    """The graph for so many times as many inputs at once: the first dimension of all values but weights grows.

    The network treats its inputs one by one, and its graph states shapes.

    Raises:
        HiosError: an operator has no shapes, or one whose first dimension is not that of the inputs.
    """
    if count == 1:
        return graph
    sizes = {entry.shape[:1] for entry in graph.inputs}

    def grown(shape: tuple[int, ...], where: str) -> tuple[int, ...]:
        if len(sizes) != 1 or shape[:1] not in sizes:
            raise HiosError(
                f"{graph.source}: {where}: found shape {list(shape)}; allowed for other batch sizes: a first dimension "
                "that is the batch size of the inputs"
            )
        return (count * shape[0], *shape[1:])

    operators = []
    for operator in graph.operators:
        shapes = operator.shapes
        if shapes is None or not operator.calls:
            raise HiosError(
                f"{graph.source}: operator {operator.id}: states no calls with shapes; required for batches"
            )
        where = f"operator {operator.id}"
        grown_shapes = msgspec.structs.replace(
            shapes,
            inputs=tuple(grown(shape, where) for shape in shapes.inputs),
            outputs=tuple(grown(shape, where) for shape in shapes.outputs),
        )
        operators.append(msgspec.structs.replace(operator, shapes=grown_shapes, flops=None, bytes=None))
    inputs = tuple(
        msgspec.structs.replace(entry, shape=grown(entry.shape, f"input {entry.name}")) for entry in graph.inputs
    )
    edges = tuple(
        edge if edge.bytes is None else msgspec.structs.replace(edge, bytes=count * edge.bytes) for edge in graph.edges
    )
    return dataclasses.replace(graph, operators=tuple(operators), inputs=inputs, edges=edges)


def _priced(scenario: Scenario, gpu: Gpu, batch: int) -> Scenario:
    """The scenario with costs predicted for a GPU and a batch size."""
    return dataclasses.replace(scenario, models=tuple(_priced_model(model, gpu, batch) for model in scenario.models))


def _priced_model(model: ServedModel, gpu: Gpu, batch: int) -> ServedModel:
    graph = batched(model.problem.graph, batch)
    file: CostsFile = predicted_costs(graph, gpu, descriptions.link(None, gpu), 1)
    costs = Costs.of(file, f"{model.label}, {gpu.name}, batch {batch}")
    return dataclasses.replace(model, problem=Problem(graph, costs), costs=costs)


def _on_gpus(scenarios: Mapping[str, Scenario], experiment: str) -> dict[str, Scenario]:
    """The scenarios with costs of a GPU; others are left out with a warning, as kernels of batches are those of GPUs.

    Raises:
        HiosError: there is none.
    """
    needed = "costs of a GPU, as `hios profile --platform model` predicts them"
    chosen = {label: scenario for label, scenario in scenarios.items() if scenario.gpu}
    if not chosen:
        sources = ", ".join(scenario.source for scenario in scenarios.values())
        raise HiosError(f"{sources}: experiment {experiment}: found costs of cores; required: {needed}")
    for label, scenario in scenarios.items():
        if label not in chosen:
            warn(f"{scenario.source}: experiment {experiment} leaves {label} out: costs of cores; required: {needed}")
    return chosen


def _served(result: ResultFile) -> dict[str, float]:
    return {"tasks per s": result.done_per_s, "work done %": 100 * result.work_share, **_beside_gain(result)}


def _beside_gain(result: ResultFile) -> dict[str, float]:
    """What each model gets, and how evenly they are served."""
    by_model = {f"{OF_MODEL}{label}": rate for label, rate in result.done_by_model.items()}
    return {**by_model, JAIN: result.jain, VARIANCE: result.queue_variance}


def _filled(scenario: Scenario, result: ResultFile) -> float:
    """Share of the device that kernels of the completed tasks filled over time: sum of t(v) u(v)."""
    total = 0.0
    for model in scenario.models:
        problem = model.problem
        work_s = add_up(time * used for time, used in zip(problem.time, problem.utilization, strict=True)) / 1e3
        total += result.models[model.label].completed * work_s
    return total / (result.duration_s * result.repeats)


def _too_large(what: str, memory_gb: float, most: float) -> str:
    return f"found {what}, left out: they do not fit into {memory_gb:g} GB; allowed: at most {most:g}"


def _point(label: str, scenario: Scenario, system: str, x: float, values: dict[str, float]) -> TopPoint:
    return TopPoint(label, len(scenario.models), system, float(x), values)


def scenario_of_graphs(folder: Path, gpu: str) -> Scenario:
    """The models of all ``folder/MODEL/graph.json`` on one of `hios profile --gpu`, one task of each per second.

    Raises:
        HiosError: no such GPU, no graph in the folder, or a graph whose costs cannot be predicted.
    """
    described = descriptions.gpu(gpu)
    models = []
    for path in sorted(folder.glob("*/graph.json")):
        graph = Graph.read(path)
        file = predicted_costs(graph, described, descriptions.link(None, described), 1)
        costs = Costs.of(file, f"{path}, {described.name}")
        label = path.parent.name
        entry = ModelOfScenario(graph=f"{label}/graph.json", costs=f"{label}/costs.json", rate=1.0)
        models.append(ServedModel(label, entry, Problem(graph, costs), costs, pipeline_blocks(graph), 1.0))
    if not models:
        raise HiosError(f"{folder}: found no graph; required: MODEL/graph.json, as hios extract writes it")
    entries = {model.label: model.settings for model in models}
    return Scenario(ScenarioFile(models=entries, lanes=1), tuple(models), True, source=str(folder), folder=folder)


@dataclasses.dataclass(frozen=True)
class ModelMemory:
    """Bytes on one device.

    Every copy of a model has its own weights; values are inputs, outputs and everything between operators, as `hios
    load` reserves it.
    """

    weights: int
    values: int

    @property
    def total(self) -> int:
        """Weights and values."""
        return self.weights + self.values

    def copies(self, memory_gb: float) -> float:
        """How many times all of it fits into a memory of so many 10^9 bytes; infinite if that is."""
        return _times(memory_gb * 1e9, self.total)

    def batch(self, memory_gb: float) -> float:
        """The largest batch that fits, if these are the values of a single input: only those grow with it."""
        return _times(memory_gb * 1e9 - self.weights, self.values)


def _times(room: float, size: int) -> float:
    return math.inf if room == math.inf or not size else max(0, math.floor(room / size))


def memory_of(scenario: Scenario, system: str) -> ModelMemory | None:
    """Memory of all models of a scenario under a policy with blocks; None if a graph does not state its shapes.

    Values between blocks have the slots of the policy. Those inside of blocks are counted for the largest blocks that
    may run at once, without reusing memory within a block, and without workspaces of libraries: convolutions that need
    one take more, allocators that reuse memory take less.
    """
    from hios.serving.lane_program import BlockValues, Handovers
    from hios.workers.arena import Layout

    graphs = [model.problem.graph for model in scenario.models]
    if not all(map(_states_shapes, graphs)):
        return None
    pipeline = pipeline_of(scenario, system)
    layout, values, first = Layout(), [], 0
    for model, graph in zip(scenario.models, graphs, strict=True):
        blocks = [[graph.operators[number].id for number in block] for block in model.blocks]
        made = BlockValues(model.label, graph, blocks, waiting=pipeline.slots, running=1, layout=layout, first=first)
        values.append(made)
        first += len(made.slots)
    handovers = Handovers(layout.size, 0)
    handovers.reserve(values, max(map(len, pipeline.combined)))
    weights = sum(
        math.prod(entry.shape) * ELEMENT_BYTES.get(entry.dtype, 4) for graph in graphs for entry in graph.weights
    )
    return ModelMemory(weights, handovers.size)


def _states_shapes(graph: Graph) -> bool:
    return bool(graph.outputs) and all(operator.output_types and operator.calls for operator in graph.operators)


ABLATIONS = (NO_LAUNCHER, NO_GPG, NEITHER)
_LEARNS, _GPG = (TOP, NO_GPG), (TOP, NO_LAUNCHER)
#: Tasks that arrive in a step of training, at most; the longest step is that of the size of the training.
_STEP_TASKS = 150
LEAST_STEP_S = 0.001


class TopItself:
    """TOP on a scenario, a launcher of MADDPG and stages of GPG, both trained for it; and TOP without one of them.

    GPG chooses stages in one pass, as published. Without the launcher, combined blocks are those that the scenario
    states, or neighboring blocks of a model, and tasks leave their queues as soon as there is room; without GPG, stages
    are those of IOS beside each other.

    Policies of GPG are kept for other scenarios that differ in nothing that they are trained on, as in rates; a
    launcher is trained for every scenario, and keeps what is best by its ``objective``, the reward (2) in the paper. A
    context manager, as policies are files.

    Attributes:
        trained_s: processor time of training for what `results` returned last, by system, seconds; of systems with a
            launcher. That of a policy that was kept counts again.
    """

    def __init__(self, study: TopStudy, seed: int = 0) -> None:
        self._study, self._seed = study, seed
        self._folder = tempfile.TemporaryDirectory()
        #: Files of policies, each with what it was trained on and the processor time of that.
        self._policies: list[tuple[tuple[Any, ...], str, float]] = []
        self.trained_s: dict[str, float] = {}

    def __enter__(self) -> TopItself:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def results(self, scenario: Scenario, systems: Iterable[str] = (TOP, *ABLATIONS)) -> dict[str, ResultFile]:
        """What becomes of the tasks under TOP and its ablations, by system."""
        results = {}
        for system in systems:
            given, stages_s = self._with_stages(scenario, system)
            if system in _LEARNS:
                from hios.serving.launcher.online_launcher import OnlineLauncher

                began = time.process_time()
                launcher = self._launcher(given)
                self.trained_s[system] = stages_s + time.process_time() - began
                online = OnlineLauncher(given, launcher)
                outcomes = online.outcomes(range(given.file.repeats))
                results[system] = result(given, TOP, "learned", outcomes, simulated=True)
            else:
                results[system] = simulate(given.with_settings(launcher="open"), TOP)
        return results

    def combined(self, scenario: Scenario) -> Scenario:
        """The scenario with the combined blocks that a launcher learned for it, held, and stages of GPG."""
        given, _ = self._with_stages(scenario, TOP)
        return given.with_top(combined=_stated(given, self._launcher(given).static.combined), most=None)

    def _with_stages(self, scenario: Scenario, system: str) -> tuple[Scenario, float]:
        """The scenario with the stages of a system, and the processor time that training for them took."""
        if system not in _GPG:
            return scenario.with_top(stages="ios", stage_policy=""), 0.0
        path, trained_s = self._policy(scenario)
        return scenario.with_top(stages="gpg", stage_policy=path, stage_passes=1), trained_s

    def _policy(self, scenario: Scenario) -> tuple[str, float]:
        """The file of a policy of GPG for a scenario, which is trained if there is none, and how long that took."""
        from hios.schedulers.policy.network import write_policy
        from hios.schedulers.policy.training import train

        top, plain = scenario.file.top, scenario.plain
        most = top.most or 2
        models = [(model.label, model.problem.graph, model.costs) for model in scenario.models]
        by = (models, scenario.gpu, scenario.lanes, plain.file.overheads, most, top.r, top.s)
        for known, path, trained_s in self._policies:
            if known == by:
                return path, trained_s
        began = time.process_time()
        problems, stage_time = stages_to_learn(scenario)
        settings = TrainingSettings(steps=self._study.steps, most=most, r=top.r, s=top.s, seed=self._seed)
        trained = train(problems, settings, None, stage_time)
        path = str(Path(self._folder.name) / f"stages-{len(self._policies)}.safetensors")
        write_policy(path, trained.weights, trained.facts)
        trained_s = time.process_time() - began
        self._policies.append((by, path, trained_s))
        return path, trained_s

    def _launcher(self, scenario: Scenario) -> Launcher:
        from hios.serving.launcher.launcher_settings import settings_of
        from hios.serving.launcher.training import train_launcher

        settings = settings_of(
            self._study.launcher_size,
            {},
            steps=self._study.launcher_steps,
            seed=self._seed,
            device="top",
            most=max(scenario.file.top.most or 2, *map(_most, scenario.file.top.combined or ({},))),
        )
        step_s = min(settings.step_s, _STEP_TASKS / sum(model.rate for model in scenario.models))
        settings = dataclasses.replace(settings, step_s=max(LEAST_STEP_S, step_s))
        return train_launcher(scenario, settings, compared=False)


def _most(combined: dict[str, tuple[int, ...]]) -> int:
    """Sub-blocks of a combined block; 1 at least."""
    return max(1, sum(map(len, combined.values())))


def _stated(scenario: Scenario, combined: Sequence[Sequence[SubBlock]]) -> tuple[dict[str, tuple[int, ...]], ...]:
    """Combined blocks as a scenario states them."""
    stated = []
    for members in combined:
        by_label: dict[str, tuple[int, ...]] = {}
        for number, block in sorted(members):
            label = scenario.models[number].label
            by_label[label] = (*by_label.get(label, ()), block)
        stated.append(by_label)
    return tuple(stated)
