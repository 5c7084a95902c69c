"""Whether the files of figures, of their sessions, and of serving are consistent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hios.core.graph import Graph
from hios.core.schedule import Schedule
from hios.errors import HiosError
from hios.files import artifacts
from hios.files.validation import schema_errors
from hios.files.yaml_file import plain, read_yaml
from hios.formats.partition import PredictionFile
from hios.formats.serving_result import CalibrationFile, ResultFile, ServedResult
from hios.formats.study import AblationFile, ConvolutionsFile, FigureFile, SimulationFile, TopStudyFile
from hios.study import registry
from hios.study.figure_data import FigureData, located
from hios.study.figure_files import stated, table_text
from hios.study.gpu_predictions import predicted_problem
from hios.study.gpu_targets import TARGETS
from hios.verify.consistency import schedule_problems
from hios.verify.schema_check import FileRule, contents

#: What a figure says of itself and of its data, in words.
_WORDS = ("title", "caption", "state", "missing", "reason", "finding")
#: Relative difference that is rounding in floating point.
_ROUNDING = 1e-9


def _prediction_problems(file: PredictionFile, path: Path, root: Path) -> Iterator[str]:
    """Where predicted schedules contradict the graph beside them and the costs that are predicted for it again."""
    try:
        graph = Graph.read(path.with_name("graph.json"))
    except HiosError:
        yield "cannot be checked: its folder has no valid graph.json"
        return
    if file.graph_fingerprint != graph.fingerprint:
        yield f"graph_fingerprint: found {file.graph_fingerprint}; graph.json has {graph.fingerprint}"
        return
    for entry in file.predictions:
        if entry.target not in TARGETS:
            yield f"predictions: target: found {entry.target}; allowed: {', '.join(TARGETS)}"
            continue
        problem = predicted_problem(graph, entry.target)
        for label, schedule in entry.schedules.items():
            for text in schedule_problems(Schedule.of(schedule, label), graph, problem):
                yield f"{entry.target}: {label}: {text}"


def _simulation_problems(simulation: SimulationFile, path: Path, root: Path) -> Iterator[str]:
    for instance in simulation.instances:
        for name, latency in instance.latency_ms.items():
            if latency < instance.bound_ms * (1 - _ROUNDING):
                bound = f"{instance.bound_ms}, the bound"
                yield f"instance {instance.seed}: {name}: found {latency} ms; allowed: at least {bound}"


def _figure_problems(record: FigureFile, path: Path, root: Path) -> Iterator[str]:
    """Where a figure contradicts its data."""
    try:
        figure = registry.figure(record.id)
        data = FigureData.read(located(file, root) for file in record.data)
    except HiosError as error:
        yield str(error)
        return
    _, own = stated(figure, data)
    for field in (*_WORDS, "columns", "rows"):
        if getattr(record, field) != getattr(own, field):
            yield f"{field}: not what the data give; draw the figure again"
    if record.comparisons != own.comparisons:
        pairs = zip(record.comparisons, own.comparisons, strict=False)
        keys = [entry.key for entry, computed in pairs if entry != computed]
        yield f"comparisons: {keys[0] if keys else 'their number'}: not what the data give; draw the figure again"
    table = path.with_suffix(".csv")
    if not table.is_file() or table.read_bytes() != table_text(record.rows).encode():
        yield f"{table.name}: not the rows of {path.name}; draw the figure again"


#: Sessions are checked against their schema, simulated latencies against bounds, and predicted schedules against the
#: costs that are predicted again. Table, words and verdicts of a figure are computed again from its data, and its CSV
#: file is compared with them.
STUDY_FILES = (
    FileRule(SimulationFile, ("study/simulation/*.json",), _simulation_problems),
    FileRule(AblationFile, ("study/ablation/*.json",)),
    FileRule(ConvolutionsFile, ("study/convolutions.json",)),
    FileRule(TopStudyFile, ("study/top/*.json",)),
    FileRule(PredictionFile, ("**/predicted.json",), _prediction_problems),
    FileRule(FigureFile, ("figures/*.json",), _figure_problems),
)


#: Share by which the mean of drawn jitter may differ from that of its distribution.
_JITTER = 0.01
#: Folders of the pipeline's results, and whether they are simulated.
_KINDS = {"simulated": True, "measured": False}
#: Files of the pipeline, which hold what their name and folder say.
_NAMED = tuple(f"serving/*/{kind}/*.json" for kind in _KINDS)
_CALIBRATION = "calibration.json"
#: States of tasks at the end.
_ENDS = ("completed", "dropped", "expired", "failed", "waiting", "in_flight")


def scenario_problems(path: Path) -> Iterator[str]:
    """Errors in a scenario that the pipeline wrote."""
    try:
        yield from schema_errors(plain(read_yaml(path), path.name, ()), artifacts.schema("scenario"))
    except HiosError as error:
        yield str(error).removeprefix(f"{path}: ").removeprefix(f"{path.name}: ")


def _result_problems(result: ResultFile, path: Path, root: Path) -> Iterator[str]:
    yield from _contradictions(result)
    if any(path.relative_to(root).match(pattern) for pattern in _NAMED):
        yield from _misplaced(result, path)


def _misplaced(result: ResultFile, path: Path) -> Iterator[str]:
    if path.stem != (name := "-".join(filter(None, (result.policy, f"{result.load:g}", result.runtime)))):
        yield f"policy, load: found {name}; allowed: {path.stem}, as the file is called"
    if result.simulated != _KINDS[path.parent.name]:
        yield f"simulated: found {str(result.simulated).lower()} in the folder {path.parent.name}"
    if result.calibrated:
        yield from _miscalibrated(result, path.parents[1] / _CALIBRATION)


def _miscalibrated(result: ResultFile, file: Path) -> Iterator[str]:
    """What the calibration of a scenario cannot have been used for; what is wrong with itself is said elsewhere."""
    if not file.exists():
        yield f"calibrated: found true; allowed: false, as there is no {_CALIBRATION} in the scenario's folder"
    elif (calibration := contents(file, CalibrationFile, [])) is not None:
        if calibration.lanes != result.lanes:
            yield f"lanes: found {result.lanes}; allowed: {calibration.lanes}, as in {_CALIBRATION}"
        if unknown := result.models.keys() - calibration.models.keys():
            yield f"models: found {min(unknown)}; allowed: {', '.join(calibration.models)}, as in {_CALIBRATION}"


def _contradictions(result: ResultFile) -> Iterator[str]:
    for label, served in (
        *((f"models.{label}", served) for label, served in result.models.items()),
        ("total", result.total),
    ):
        yield from _miscounted(label, served)
    for key in ("offered", *_ENDS, "goodput"):
        total = sum(getattr(served, key) for served in result.models.values())
        if (stated := getattr(result.total, key)) != total:
            yield f"total.{key}: found {stated}; allowed: {total}, the sum of the models"
    per_second = result.done_per_s
    if result.calibrated and not result.simulated:
        yield "calibrated: found true with simulated false; allowed: false, as nothing was simulated"
    # Real lanes may be faster than costs.json; the bound of a calibrated simulation counts jitter by its mean.
    if result.simulated and per_second > result.bound_per_s * (1 + (_JITTER if result.calibrated else _ROUNDING)):
        yield f"total.completed: found {per_second:.6g} tasks/s; allowed: at most {result.bound_per_s:.6g}, bound_per_s"
    if (result.chosen is not None) != (result.policy == "auto"):
        yield f"chosen: found {result.chosen} with policy {result.policy}; allowed: with policy auto, and only there"


def _miscounted(label: str, served: ServedResult) -> Iterator[str]:
    ends = sum(getattr(served, key) for key in _ENDS)
    if served.offered != ends:
        yield f"{label}.offered: found {served.offered}; allowed: {ends}, the sum of {', '.join(_ENDS)}"
    if served.goodput > served.completed:
        yield f"{label}.goodput: found {served.goodput}; allowed: at most {served.completed}, as completed"
    known = [value for value in (served.p50_ms, served.p90_ms, served.p99_ms) if value is not None]
    if known != sorted(known):
        yield f"{label}: found percentiles {', '.join(f'{value:g}' for value in known)} ms; allowed: ascending"


#: Every task is counted once, the total is the sum of the models, no more is completed than the work bound allows, and
#: a file of the pipeline holds what its name and folder say. A calibrated one needs the calibration of its models in
#: that folder.
SERVING_FILES = (
    FileRule(
        ResultFile,
        ("**/result.json", "**/serving/*.json", *(f"**/{pattern}" for pattern in _NAMED)),
        _result_problems,
        but=_CALIBRATION,
    ),
    FileRule(CalibrationFile, (f"**/{_CALIBRATION}",)),
)
