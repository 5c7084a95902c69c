"""Whether the files of figures and of their sessions are consistent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hios.errors import HiosError
from hios.formats.convolutions_file import ConvolutionsFile
from hios.formats.figure_file import FigureFile
from hios.formats.prediction_file import PredictionFile
from hios.formats.simulation_file import AblationFile, SimulationFile
from hios.formats.top_study_file import TopStudyFile
from hios.graph import Graph
from hios.schedule import Schedule
from hios.study import registry
from hios.study.figure_data import FigureData, located
from hios.study.figure_files import stated, table_text
from hios.study.gpu_predictions import predicted_problem
from hios.study.gpu_targets import TARGETS
from hios.verify.consistency import schedule_problems
from hios.verify.schema_check import FileRule

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
