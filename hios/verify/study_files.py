"""Whether the files of figures and of their sessions are consistent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hios.errors import HiosError
from hios.formats.convolutions_file import ConvolutionsFile
from hios.formats.figure_file import FigureFile
from hios.formats.simulation_file import AblationFile, Instance, SimulationFile
from hios.study import cards, registry
from hios.study.figure_data import FigureData
from hios.study.figure_files import compared, table_text
from hios.verify.schema_check import contents

#: Relative difference that is rounding in floating point.
_ROUNDING = 1e-9


def study_problems(root: Path) -> Iterator[tuple[Path, str, list[str]]]:
    """File, kind and problems of figures and study in a folder of results.

    Sessions are checked against their schema, and simulated latencies against bounds. The table and the verdicts
    of a figure are computed again from its data, and its CSV file is compared with them.
    """
    for path in sorted((root / "study" / "simulation").glob("*.json")):
        problems: list[str] = []
        if (simulation := contents(path, SimulationFile, problems)) is not None:
            problems += [problem for instance in simulation.instances for problem in _instance_problems(instance)]
        yield path, "simulation", problems
    for path in sorted((root / "study" / "ablation").glob("*.json")):
        problems = []
        contents(path, AblationFile, problems)
        yield path, "ablation", problems
    for path in sorted((root / "study").glob("convolutions.json")):
        problems = []
        contents(path, ConvolutionsFile, problems)
        yield path, "convolutions", problems
    for path in sorted((root / "figures").glob("*.json")):
        problems = []
        if (record := contents(path, FigureFile, problems)) is not None:
            problems += _figure_problems(record, path, root)
        yield path, "figure", problems


def _instance_problems(instance: Instance) -> Iterator[str]:
    for name, latency in instance.latency_ms.items():
        if latency < instance.bound_ms * (1 - _ROUNDING):
            bound = f"{instance.bound_ms}, the bound"
            yield f"instance {instance.seed}: {name}: found {latency} ms; allowed: at least {bound}"


def _figure_problems(record: FigureFile, path: Path, root: Path) -> Iterator[str]:
    """Where a figure contradicts its data."""
    try:
        figure = registry.figure(record.id)
        data = FigureData.read(_found(file, root) for file in record.data)
    except HiosError as error:
        yield str(error)
        return
    rows = figure.rows(data)
    comparisons = compared(figure, figure.compare(rows) if rows else ())
    rows = rows or cards.rows(figure)
    if rows != list(record.rows):
        yield "rows: they are not what the data give; draw the figure again"
    if list(record.comparisons) != comparisons:
        keys = [entry.key for entry, own in zip(record.comparisons, comparisons, strict=False) if entry != own]
        yield f"comparisons: {keys[0] if keys else 'their number'}: not what the data give; draw the figure again"
    table = path.with_suffix(".csv")
    if not table.is_file() or table.read_bytes() != table_text(record.rows).encode():
        yield f"{table.name}: not the rows of {path.name}; draw the figure again"


def _found(file: str, root: Path) -> Path:
    """Where a file of a figure is now: as it was named, or in a folder of results that was moved or renamed."""
    path = Path(file)
    tails = [root.joinpath(*path.parts[start:]) for start in range(1, len(path.parts))]
    return next((place for place in tails if place.is_file()), path)
