"""A scenario: models with graph, costs and blocks, and what tasks arrive for them.

When tasks arrive: periodic, Poisson or from a file; drawn once, and the same for every policy, simulated or real.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import math
import random
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hios.core.blocks import found_blocks, in_order
from hios.core.costs import Costs, CostsFile
from hios.core.graph import Graph
from hios.core.problem import Problem
from hios.core.sums import add_up
from hios.errors import ArtifactError, HiosError, shown
from hios.files import artifacts
from hios.files.yaml_file import plain, read_yaml
from hios.formats.scenario import ModelOfScenario, ScenarioFile
from hios.formats.serving_result import CalibrationFile

#: Tasks of a model in a repeat: a guard against rates and durations that would fill the memory.
MOST_TASKS = 2_000_000
_COLUMNS = ["time_s", "model"]


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model of a scenario, its files read.

    Attributes:
        label: its name in the scenario.
        settings: its entry in scenario.yaml.
        problem: graph and costs; its times are those of one lane that works alone.
        costs: the costs alone, for factors of lanes that work at once.
        blocks: operator numbers of every block in topological order; the blocks run one after another.
        rate: tasks that arrive in a second, the load of the scenario included.
        weights: weights.safetensors; None where the scenario does not name it.
        program: program.pt2 or program.onnx; None where the scenario does not name it.
    """

    label: str
    settings: ModelOfScenario
    problem: Problem
    costs: Costs
    blocks: tuple[tuple[int, ...], ...]
    rate: float
    weights: Path | None = None
    program: Path | None = None


@dataclass(frozen=True, eq=False)
class Scenario:
    """Several models on one device.

    Attributes:
        file: the contents of scenario.yaml.
        models: in the order of the file.
        gpu: whether the device is a GPU, whose stages take the times of costs.json; else it is ``lanes`` cores.
        rows: time in seconds and number of the model of every task, where arrivals come from a file; by time.
        load: what the rates of the file were multiplied by.
        source: the file's name, for messages.
        folder: what the paths in the file are relative to.
        calibration: measured constants of the machine; None where times are those of the costs.
        planned: the scenario without them, by which policies plan; None where that is this one.
    """

    file: ScenarioFile
    models: tuple[ServedModel, ...]
    gpu: bool = False
    rows: tuple[tuple[float, int], ...] | None = None
    load: float = 1.0
    source: str = "scenario"
    folder: Path = Path()
    calibration: CalibrationFile | None = None
    planned: Scenario | None = None

    @property
    def plain(self) -> Scenario:
        """The scenario as policies plan by it, without measured constants."""
        return self if self.planned is None else self.planned

    def factor(self, number: int) -> float:
        """How many times as long the operators of a model take as its costs say."""
        return 1.0 if self.calibration is None else self.calibration.models[self.models[number].label]

    @functools.cached_property
    def number(self) -> dict[str, int]:
        """Number of every model by label."""
        return {model.label: number for number, model in enumerate(self.models)}

    @property
    def files(self) -> list[Path]:
        """All files that the scenario names."""
        return [self.folder / name for name in self.file.files]

    @property
    def lanes(self) -> int:
        """Lanes of the device."""
        return self.file.lanes

    @property
    def duration_s(self) -> float:
        """How long tasks arrive and run, seconds."""
        return self.file.duration_s

    def with_settings(self, **settings: Any) -> Scenario:
        """The same with other contents of scenario.yaml."""
        return dataclasses.replace(self, file=msgspec.structs.replace(self.file, **settings))

    def with_top(self, **settings: Any) -> Scenario:
        """The same with other settings of TOP."""
        planned = None if self.planned is None else self.planned.with_top(**settings)
        changed = self.with_settings(top=msgspec.structs.replace(self.file.top, **settings))
        return dataclasses.replace(changed, planned=planned)

    def loaded(self, load: float) -> Scenario:
        """The same with all rates multiplied.

        Raises:
            HiosError: tasks arrive as a file says, or there would be too many.
        """
        if self.rows is not None:
            _require_own_load(self.file, load)
            return self
        for model in self.models:
            _require_few_tasks(self.file, load * model.rate, f"{self.source}: models.{model.label}")
        models = [dataclasses.replace(model, rate=load * model.rate) for model in self.models]
        return dataclasses.replace(self, models=tuple(models), load=load * self.load)

    def with_launcher(self, path: Path) -> Scenario:
        """The same with a trained launcher, whose file the policies learned and learned-static use."""
        return self.with_top(weights=str(path.absolute()))

    @classmethod
    def read(cls, path: str | Path, *, load: float = 1.0) -> Scenario:
        """Read scenario.yaml with the graphs and costs that it names.

        Args:
            path: the file; the paths in it are relative to its folder.
            load: what all rates are multiplied by.

        Raises:
            HiosError: a file is missing or damaged, or what they hold does not fit together: one line with file, field,
                what was found and what is allowed.
        """
        source = str(path)
        file = artifacts.parsed(plain(read_yaml(path), source, ()), ScenarioFile, source)
        return cls.of(file, Path(path).parent, source, load=load)

    @classmethod
    def of(cls, file: ScenarioFile, folder: Path, source: str = "scenario", *, load: float = 1.0) -> Scenario:
        """The scenario that a file holds, as `read`."""
        if not (math.isfinite(load) and load > 0):
            raise HiosError(f"load: found {load}; allowed: a number above 0")
        rows = None
        if file.arrivals.endswith(".csv"):
            _require_own_load(file, load)
            rows = _read_rows(folder / file.arrivals, list(file.models))
            if not any(time < file.duration_s for time, _ in rows):
                raise HiosError(
                    f"{source}: arrivals: found no task within duration_s, {file.duration_s:g} s, in {file.arrivals}; "
                    "required: one at least"
                )
        read, on_gpu = [], {}
        for label, settings in file.models.items():
            model, on_gpu[label] = _read_model(label, settings, folder, file.top.block_ms)
            read.append(model)
        unit = _rate_unit(file, read, source)
        models = []
        for number, model in enumerate(read):
            label, settings = model.label, _resolved(model.settings, model.problem, file.lanes, unit)
            rate = _rate(file, settings, rows, number, load, f"{source}: models.{label}")
            models.append(dataclasses.replace(model, settings=settings, rate=rate))
        scenario = cls(file, tuple(models), any(on_gpu.values()), rows, load, source, folder)
        for defect in _defects(scenario, on_gpu):
            raise ArtifactError(f"{source}: {defect}")
        return scenario


def _rate(
    file: ScenarioFile,
    settings: ModelOfScenario,
    rows: tuple[tuple[float, int], ...] | None,
    number: int,
    load: float,
    where: str,
) -> float:
    if rows is not None:
        return sum(model == number and time < file.duration_s for time, model in rows) / file.duration_s
    if settings.rate is None and settings.share is not None:
        raise ArtifactError(
            f"{where}.share: found {settings.share:g} with operators that take 0 ms by {settings.costs}; required: "
            "costs above 0, or rate"
        )
    if settings.rate is None:
        raise ArtifactError(
            f"{where}: rate is missing; required with arrivals {file.arrivals}: rate, tasks per second, or share"
        )
    _require_few_tasks(file, settings.rate * load, where)
    return settings.rate * load


def _require_own_load(file: ScenarioFile, load: float) -> None:
    if load != 1.0:
        raise HiosError(f"load: found {load:g} with arrivals from {file.arrivals}; allowed: 1")


def _require_few_tasks(file: ScenarioFile, rate: float, where: str) -> None:
    if not rate * file.duration_s <= MOST_TASKS:
        raise ArtifactError(
            f"{where}.rate: found {rate:g} tasks/s for {file.duration_s:g} s; allowed: at most {MOST_TASKS:,} tasks"
        )


def _rate_unit(file: ScenarioFile, models: Sequence[ServedModel], source: str) -> float:
    """Tasks per second that a rate of 1 stands for."""
    if file.rates == "per-second":
        return 1.0
    asked_s = add_up((model.settings.rate or 0.0) * add_up(model.problem.time) / 1e3 for model in models)
    if asked_s <= 0:
        raise ArtifactError(
            f"{source}: rates: found {file.rates} with operators that take no time; allowed: per-second"
        )
    return file.lanes / asked_s


def _resolved(settings: ModelOfScenario, problem: Problem, lanes: int, unit: float) -> ModelOfScenario:
    """Settings with the rate in tasks per second, and the SLO, that they stand for."""
    alone_ms = add_up(problem.time)
    changes: dict[str, float | None] = {} if settings.rate is None else {"rate": settings.rate * unit}
    if settings.share is not None and alone_ms > 0:
        changes |= {"rate": settings.share * lanes * 1e3 / alone_ms, "share": None}
    if settings.slo_scale is not None and alone_ms > 0:
        changes |= {"slo_ms": settings.slo_scale * alone_ms, "slo_scale": None}
    return msgspec.structs.replace(settings, **changes)


def _read_model(label: str, settings: ModelOfScenario, folder: Path, block_ms: float) -> tuple[ServedModel, bool]:
    """A model, and whether its costs are those of a GPU; its rate is left open, and short blocks are joined."""
    graph = Graph.read(folder / settings.graph)
    source = str(folder / settings.costs)
    costs_file = artifacts.load(source, CostsFile)
    costs = Costs.of(costs_file, source)
    blocks = pipeline_blocks(graph)
    if block_ms:
        blocks = joined_blocks(blocks, Problem(graph, costs).time, block_ms)
    # Stages are searched block by block, so blocks that were found count as stated.
    ids = tuple(tuple(graph.operators[operator].id for operator in block) for block in blocks)
    problem = Problem(dataclasses.replace(graph, blocks=ids), costs)
    platform = costs_file.platform
    weights = None if settings.weights is None else folder / settings.weights
    program = None if settings.program is None else folder / settings.program
    model = ServedModel(label, settings, problem, costs, blocks, 0.0, weights, program)
    return model, platform is not None and platform.name in ("cuda", "model")


def pipeline_blocks(graph: Graph) -> tuple[tuple[int, ...], ...]:
    """Operator numbers of the blocks that run one after another and hold every operator.

    Stated blocks, or those that cut vertices give where a graph states none; operators between stated blocks are
    blocks, too, each run of them one. ArtifactError if the blocks cannot run one after another.
    """
    if not any(graph.blocks):
        graph = dataclasses.replace(graph, blocks=found_blocks(graph))
    blocks: list[list[int]] = []
    loose = False
    for operators, stated in in_order(graph):
        if not stated and loose:
            blocks[-1] += operators
        else:
            blocks.append(list(operators))
        loose = not stated
    return tuple(map(tuple, blocks))


def joined_blocks(
    blocks: Sequence[tuple[int, ...]], time_ms: Sequence[float], least_ms: float
) -> tuple[tuple[int, ...], ...]:
    """Neighboring blocks joined into ones that take at least so long, except where the whole model is shorter.

    Examples:
        >>> joined_blocks([(0,), (1,), (2,)], [3.0, 1.0, 1.0], 2.0)
        ((0,), (1, 2))
        >>> joined_blocks([(0,), (1,), (2,)], [1.0, 1.0, 1.0], 2.0)
        ((0, 1, 2),)
    """
    joined: list[tuple[int, ...]] = []
    for block in blocks:
        if joined and add_up(time_ms[v] for v in joined[-1]) < least_ms:
            joined[-1] += block
        else:
            joined.append(block)
    if len(joined) > 1 and add_up(time_ms[v] for v in joined[-1]) < least_ms:
        joined[-2:] = [joined[-2] + joined[-1]]
    return tuple(joined)


def _defects(scenario: Scenario, on_gpu: dict[str, bool]) -> Iterator[str]:
    """What the parts of a scenario, each valid by itself, contradict each other in."""
    if len(set(on_gpu.values())) > 1:
        first = {kind: label for label, kind in reversed(on_gpu.items())}
        yield (
            f"models.{first[True]}.costs: found costs of a GPU beside those of cores (models.{first[False]}.costs); "
            "allowed: costs of one device"
        )
    kinds = {model.costs.contention == "resources": model.label for model in scenario.models}
    if scenario.gpu and len(kinds) > 1:
        yield (
            f"models.{kinds[True]}.costs: found contention resources beside costs without it (models.{kinds[False]}"
            ".costs); allowed: the same for all models of a GPU"
        )
    if scenario.gpu and scenario.lanes > 1:
        yield f"lanes: found {scenario.lanes} with costs of a GPU; allowed: 1, a GPU is one device"
    if scenario.gpu and scenario.file.engine == "segments":
        yield "engine: found segments with costs of a GPU; allowed: operators"
    if scenario.file.top.combined and scenario.file.top.most is not None:
        yield f"top.most: found {scenario.file.top.most} beside top.combined; allowed: one of them"
    if scenario.file.top.combined and scenario.file.top.block_ms:
        yield (
            f"top.block_ms: found {scenario.file.top.block_ms:g} beside top.combined, which counts the blocks of "
            "graph.json; allowed: one of them"
        )
    for model in scenario.models:
        if model.settings.slo_scale is not None:  # it could not be resolved
            yield (
                f"models.{model.label}.slo_scale: found {model.settings.slo_scale:g} with operators that take 0 ms by "
                f"{model.settings.costs}; required: costs above 0, or slo_ms"
            )
    yield from _defects_of_combined(scenario)


def _defects_of_combined(scenario: Scenario) -> Iterator[str]:
    """Blocks of combined blocks that do not exist, or are in several."""
    home: dict[tuple[str, int], int] = {}
    for position, combined in enumerate(scenario.file.top.combined):
        for label, blocks in combined.items():
            field = f"top.combined[{position}].{label}"
            if label not in scenario.number:
                yield f"{field}: found this model; allowed: {', '.join(scenario.number)}"
                continue
            count = len(scenario.models[scenario.number[label]].blocks)
            for block in blocks:
                if block >= count:
                    yield f"{field}: found block {block}; allowed: 0 to {count - 1}"
                if (other := home.setdefault((label, block), position)) != position:
                    yield f"{field}: found block {block}, which top.combined[{other}] holds; allowed: every block once"


def _read_rows(path: Path, labels: list[str]) -> tuple[tuple[float, int], ...]:
    """Arrivals of a CSV file with the columns time_s and model, by time; ArtifactError where it is not one."""
    number = {label: position for position, label in enumerate(labels)}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file)
            if (header := next(reader, [])) != _COLUMNS:
                raise ArtifactError(f"{path}: line 1: found {shown(','.join(header))}; allowed: {','.join(_COLUMNS)}")
            rows = [_row(row, number, f"{path}: line {reader.line_num}") for row in reader if row]
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ArtifactError(f"{path}: not a CSV file in UTF-8: {error}") from error
    return tuple(sorted(rows))


def _row(row: list[str], number: dict[str, int], where: str) -> tuple[float, int]:
    if len(row) != len(_COLUMNS):
        raise ArtifactError(f"{where}: found {len(row)} columns; allowed: {len(_COLUMNS)}, {','.join(_COLUMNS)}")
    time = _number(row[0])
    if not 0 <= time < math.inf:
        raise ArtifactError(f"{where}: time_s: found {shown(row[0])}; allowed: a number of at least 0")
    if row[1] not in number:
        raise ArtifactError(f"{where}: model: found {shown(row[1])}; allowed: {', '.join(number)}")
    return time, number[row[1]]


def _number(text: str) -> float:
    """A number as text has it; NaN where it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def slos_ms(scenario: Scenario) -> list[float]:
    """By model, the latency up to which a task counts as goodput; infinite without an SLO."""
    return [math.inf if model.settings.slo_ms is None else model.settings.slo_ms for model in scenario.models]


def settings_of(scenario: Scenario) -> artifacts.Json:
    """What result.json repeats of a scenario."""
    file = scenario.file
    return {
        "lanes": file.lanes,
        "device": "gpu" if scenario.gpu else "lanes",
        "duration_s": file.duration_s,
        "seed": file.seed,
        "repeats": file.repeats,
        "arrivals": file.arrivals,
        "load": scenario.load,
        "objective": file.objective,
    }


#: Distance of the seeds of two repeats; a scenario's own seed and its neighbors then give other traces.
_SEED_STEP = 1_000_003


@dataclass(frozen=True)
class Trace:
    """Tasks in the order in which they arrive; the number of a task is its place.

    Attributes:
        times_s: when each arrives, in seconds from the start; ascending, less than the duration.
        models: number of its model in the scenario.
    """

    times_s: array[float]
    models: array[int]

    def __len__(self) -> int:
        return len(self.times_s)


def draw(scenario: Scenario, repeat: int = 0) -> Trace:
    """The tasks of a scenario in one of its repeats, from 0; any number gives a trace.

    Each model has random numbers of its own, from the scenario's seed, the number of the repeat and the model's label:
    other models, their order and the policy change nothing. A file gives the same tasks in every repeat. Tasks of one
    moment come in the order of their models' labels.
    """
    label = [model.label for model in scenario.models]
    if scenario.rows is not None:
        rows = [(time, number) for time, number in scenario.rows if time < scenario.duration_s]
    else:
        rows = [
            (time, number)
            for number, model in enumerate(scenario.models)
            for time in _times(scenario, model, scenario.file.seed + _SEED_STEP * repeat)
        ]
    rows.sort(key=lambda row: (row[0], label[row[1]]))
    return Trace(array("d", (time for time, _ in rows)), array("q", (number for _, number in rows)))


def _times(scenario: Scenario, model: ServedModel, seed: int) -> list[float]:
    """Arrivals of one model: every 1 / rate seconds from 0, or with exponential distances."""
    times: list[float] = []
    if scenario.file.arrivals == "periodic":
        # As ticks of a launcher with this interval are computed: a tick rounded to before its task would be lost.
        interval_s = 1 / model.rate
        while (time := len(times) * interval_s) < scenario.duration_s:
            times.append(time)
        return times
    gaps = random.Random(f"{seed}/{model.label}")
    time = gaps.expovariate(model.rate)
    while time < scenario.duration_s:
        times.append(time)
        time += gaps.expovariate(model.rate)
    return times
