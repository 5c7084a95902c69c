"""What the report is made from: graph, costs and run of a model; or, where costs are predicted, its schedules.

And the environment of the results in words: hardware, load, versions, configuration, commit and command.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hios import platforms
from hios.core.costs import Costs, CostsFile, predicted_for
from hios.core.evaluate import evaluate, latency_ms
from hios.core.graph import IMAGE_DIMENSIONS, Graph
from hios.core.problem import Problem
from hios.core.schedule import Schedule
from hios.errors import ArtifactError, shown
from hios.files import artifacts, read_limits
from hios.files.base import Platform
from hios.files.text_tables import decimals_for
from hios.files.versions import checkout
from hios.formats.run import Run
from hios.frontends.models import RUNTIMES

if TYPE_CHECKING:
    from hios.formats.archive import PageOrigin


@dataclass(frozen=True)
class _ModelFiles:
    """What is known of a model before it runs."""

    name: str
    graph: Graph
    costs: CostsFile

    def type_of(self, operator: str) -> str:
        """Type of an operator."""
        return self.graph.operators[self.graph.index[operator]].type


@dataclass(frozen=True)
class ModelResults(_ModelFiles):
    """One model's results, by the name of its graph, with its folder where several folders hold the same graph."""

    run: Run

    @property
    def fastest(self) -> int | None:
        """Position of the result with the smallest measured median; None without results."""
        medians = [result.latency_ms.median for result in self.run.results]
        return medians.index(min(medians)) if medians else None

    @property
    def has_sequential(self) -> bool:
        """Whether the baseline, the sequential schedule on one device, is among the schedules."""
        return any(result.algorithm == "sequential" and result.devices == 1 for result in self.run.results)

    @property
    def decimals(self) -> int:
        """Decimals of the model's times in milliseconds: four digits of its shortest measured latency."""
        run = self.run
        latencies = [run.baseline.latency_ms]
        latencies += [entry.latency_ms for entry in run.results] + [entry.latency_ms for entry in run.references]
        shortest = min(latency.median for latency in latencies)
        return decimals_for(shortest)


def told_apart(models: Sequence[Any], marks: Iterable[object]) -> list[Any]:
    """Data classes in order, those of equal names with what marks each of them in brackets."""
    count = Counter(model.name for model in models)
    return [
        model if count[model.name] == 1 else replace(model, name=f"{model.name} ({mark})")
        for mark, model in zip(marks, models, strict=True)
    ]


def path_ends(directories: Sequence[Path]) -> list[str]:
    """The ends of paths that tell them apart, as short as possible; whole paths if nothing does."""
    parts = [directory.resolve().parts for directory in directories]
    for length in range(1, max(map(len, parts), default=0)):
        ends = ["/".join(own[-length:]) for own in parts]
        if len(set(ends)) == len(ends):
            return ends
    return list(map(str, directories))


def read_results(directories: Sequence[Path]) -> list[ModelResults]:
    """Read the results folders of a report, at least one, in the order given; errors as of `read_model`."""
    if not directories:
        raise ArtifactError("report: no results folder is given; required: at least one")
    return told_apart([read_model(directory) for directory in directories], path_ends(directories))


def read_model(directory: Path) -> ModelResults:
    """Read the folder of one network; an `ArtifactError` if files are missing, damaged or do not fit each other."""
    run = artifacts.load(directory / "run.json", Run)
    graph = Graph.read(directory / "graph.json")
    costs = artifacts.load(directory / "costs.json", CostsFile)
    return model_results(graph, costs, run, str(directory / "costs.json"), str(directory / "run.json"))


def model_results(
    graph: Graph, costs: CostsFile, run: Run, costs_source: str = "costs", run_source: str = "run"
) -> ModelResults:
    """The results of one network; an `ArtifactError` unless they are of one graph. Sources are files, for messages."""
    require_costs(graph, costs, costs_source)
    for position, result in enumerate(run.results):
        for kind, placements in (("predicted", result.predicted), ("measured", result.measured)):
            for row, placement in enumerate(placements):
                if placement.operator not in graph.index:
                    raise ArtifactError(
                        f"{run_source}: results[{position}].{kind}[{row}].operator: found "
                        f"{shown(placement.operator, quoted=False)}, which is not an operator of {graph.source}"
                    )
    return ModelResults(run.graph, graph, costs, run)


def require_costs(graph: Graph, costs: CostsFile, source: str) -> None:
    """Refuse costs of another graph, which lack an operator, by an `ArtifactError`."""
    for operator in graph.index:
        if operator not in costs.operators:
            raise ArtifactError(
                f"{source}: operators: no entry for operator {shown(operator, quoted=False)} of {graph.source}; the "
                "two must be of the same graph"
            )


@dataclass(frozen=True)
class ModelPredictions(_ModelFiles):
    """What is predicted of one model, named as in `ModelResults`; labels of schedules are names of their files."""

    schedules: Mapping[str, Schedule]


def is_predicted(directory: Path) -> bool:
    """Whether the costs of a results folder are predicted; False where there are none."""
    path = directory / "costs.json"
    if not path.is_file():
        return False
    return predicted_for(artifacts.load(path, CostsFile).platform) is not None


def read_predictions(directories: Sequence[Path], labels: Sequence[str] = ()) -> list[ModelPredictions]:
    """Read folders with graph.json, costs.json and schedules/LABEL.json, of all labels if none is given, in order.

    Raises:
        ArtifactError: a file is missing, damaged or does not fit the others.
    """
    return told_apart([_read(directory, labels) for directory in directories], path_ends(directories))


def _read(directory: Path, labels: Sequence[str]) -> ModelPredictions:
    graph = Graph.read(directory / "graph.json")
    costs = artifacts.load(directory / "costs.json", CostsFile)
    folder = directory / "schedules"
    files = [folder / f"{label}.json" for label in labels] or sorted(folder.glob("*.json"))
    if not files:
        raise ArtifactError(f"{folder}: found no schedule; required: at least one, by `hios schedule`")
    schedules = {path.stem: Schedule.read(path) for path in files}
    return model_predictions(graph, costs, schedules, str(directory / "costs.json"))


def model_predictions(
    graph: Graph, costs: CostsFile, schedules: Mapping[str, Schedule], costs_source: str = "costs"
) -> ModelPredictions:
    """What is predicted of one network; ``costs_source`` is a file, for messages.

    Raises:
        ArtifactError: they are not of the same graph, or a schedule was made with other costs.
    """
    require_costs(graph, costs, costs_source)
    problem = Problem(graph, Costs.of(costs, costs_source))
    for schedule in schedules.values():
        latency = latency_ms(evaluate(problem, schedule.plan(graph)))
        if not math.isclose(latency, schedule.latency_ms, rel_tol=1e-6):
            raise ArtifactError(
                f"{schedule.source}: latency_ms: found {schedule.latency_ms:.6g}; with {costs_source} it is "
                f"{latency:.6g}: the schedule was made with other costs, make it again"
            )
    return ModelPredictions(graph.name, graph, costs, schedules)


def sequential_ms(graph: Graph, costs: CostsFile) -> float:
    """Latency of the sequential schedule on one device under the cost model."""
    launch_ms = 0.0 if costs.overheads is None else costs.overheads.launch_ms
    # Costs may also have operators that the graph lacks.
    times = (costs.operators[operator].time_ms for operator in graph.index)
    return sum(time_ms + launch_ms for time_ms in times if time_ms)


_UNKNOWN = "not recorded"
#: The longest fact, which is shown last, on a line of its own.
_LAST = "Software"
#: Name of the metadata of a page that says how it was made.
ORIGIN = "hios-origin"


def papers_page(page: str | Path) -> Path:
    """The page of the papers beside that of a report, by its name: report.html has papers.html."""
    page = Path(page)
    return page.with_name("papers.html" if page.name == "report.html" else f"{page.stem}-papers.html")


@dataclass(frozen=True, slots=True)
class Provenance:
    """How a page was made, which it carries along, apart from its results; None and empty where that is not known."""

    origin: PageOrigin | None = None
    configuration: str = ""


#: For pages that were made without the pipeline.
NOT_RECORDED = Provenance()


def read_configuration(path: Path) -> str:
    """The text of a configuration.

    Raises:
        ArtifactError: it cannot be read, or is too long.
    """
    try:
        return read_limits.read_text(path, read_limits.MOST_BYTES_OF_YAML)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ArtifactError(f"{path}: cannot be read: found bytes that are not UTF-8; required: YAML") from None


def origin(provenance: Provenance) -> list[tuple[str, str]]:
    """Name and text of every fact on the code and the command that wrote the page."""
    return [
        ("Code", checkout() or "an installed package, no checkout"),
        *([("Command", provenance.origin.command)] if provenance.origin else []),
    ]


def facts(models: Sequence[ModelResults]) -> list[tuple[str, str]]:
    """Name and text of every fact; where models differ, the text says which model has which."""
    described = {model.name: _described(model) for model in models}
    named = dict.fromkeys(fact for texts in described.values() for fact in texts)
    return [(fact, _merged(fact, described)) for fact in sorted(named, key=_LAST.__eq__)]


def _described(model: ModelResults) -> dict[str, str]:
    run = model.run
    measured_at = run.measured_at and f"{datetime.fromisoformat(run.measured_at):%Y-%m-%d %H:%M} UTC"
    return {
        "Measured": measured_at or _UNKNOWN,
        "Input": input_text(model.graph),
        **hardware(run.platform),
        "Runs of every competitor": f"{run.runs} measured, after {run.warmup} to warm up",
        "Seed": str(run.seed),
        "Outputs compared with": _check(run),
        _LAST: ", ".join(f"{name} {version}" for name, version in sorted(run.versions.items())) or _UNKNOWN,
    }


def input_text(graph: Graph) -> str:
    """What the network takes; batch and image size for images."""
    inputs = graph.inputs
    if len(inputs) == 1 and len(inputs[0].shape) == IMAGE_DIMENSIONS:
        batch, channels, height, width = inputs[0].shape
        return f"batch {batch}, {height} x {width} pixels, {channels} channels, {inputs[0].dtype}"
    return ", ".join(f"{entry.dtype} {list(entry.shape)}" for entry in inputs) or _UNKNOWN


def _check(run: Run) -> str:
    checked = RUNTIMES.get(run.checked_against or "", "the sequential schedule")
    allowed = f"allowed {run.tolerance:g} absolute plus relative"
    if run.rounding is not None:
        allowed += f", and {run.rounding:.2g}, which rounding explains"
    if not run.results:
        return f"{checked}; {allowed}"
    largest = max(result.largest_difference for result in run.results)
    return f"{checked}; largest difference {largest:.2g}, {allowed}"


def _merged(fact: str, described: Mapping[str, Mapping[str, str]]) -> str:
    holders: dict[str, list[str]] = {}
    for name, texts in described.items():
        if fact in texts:
            holders.setdefault(texts[fact], []).append(name)
    text, names = next(iter(holders.items()))
    if len(names) == len(described):
        return text
    return "; ".join(f"{text} ({', '.join(names)})" for text, names in holders.items())


def hardware(platform: Platform) -> dict[str, str]:
    """Name and text of every fact of a platform; which facts there are depends on its kind."""
    busy = platform.busy_share
    return {
        "Platform": platform.name,
        "Processor": platform.processor or _UNKNOWN,
        "Devices": f"{platform.devices or _UNKNOWN}{', virtual' if platform.virtual else ''}",
        **_own_facts(platform),
        **({} if platform.governor is None else {"Frequency governor": platform.governor}),
        "Other work on the cores before": _UNKNOWN if busy is None else f"{busy:.0%} of their time",
        "Load average before": _UNKNOWN if platform.load_average is None else f"{platform.load_average:.2f}",
    }


def predicted_hardware(platform: Platform) -> list[tuple[str, str]]:
    """Name and text of every fact of a platform that predicts."""
    return [("Platform", f"{platform.name}: predicted, nothing was measured or run"), *_own_facts(platform).items()]


def _own_facts(platform: Platform) -> dict[str, str]:
    return platforms.reporting(platform.name).facts(platform) if platform.name in platforms.PLATFORMS else {}


def virtual_text(platform: Platform) -> str | None:
    """What to say of devices that share hardware; None where they do not."""
    if not platform.virtual:
        return None
    known = platform.name in platforms.PLATFORMS
    shared = platforms.reporting(platform.name).shared(platform) if known else "hardware"
    return f"virtual devices: {platform.devices or 'several'} of them share {shared}, so times say little"
