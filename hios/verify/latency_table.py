"""tables/latency.csv, which `hios report` writes, against the files that it is made from."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hios.costs import predicted_for
from hios.csv_tables import unguarded
from hios.errors import ArtifactError, first_line, shown
from hios.formats.costs_file import CostsFile
from hios.formats.run_file import Run
from hios.graph import Graph
from hios.report.model_results import model_results
from hios.report.tables import LATENCY_COLUMNS, Row, latency_rows, prediction_rows
from hios.schedule import Schedule

#: Relative difference between a stated and a recomputed number that rounding explains.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class CheckedNetwork:
    """The artifacts from which the rows of one network follow.

    Attributes:
        folder: name of the folder of the network.
        graph: its graph.
        costs: its costs.json.
        run: its run.json; None where nothing ran.
        schedules: by label.
    """

    folder: str
    graph: Graph
    costs: CostsFile
    run: Run | None
    schedules: Mapping[str, Schedule]


def table_problems(path: Path, networks: Sequence[CheckedNetwork]) -> list[str]:
    """Errors in latency.csv. Rows of networks other than the given ones are not checked.

    Args:
        path: the table.
        networks: those whose files are in the folder and valid.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            rows = [
                {name: unguarded(cell) if isinstance(cell, str) else cell for name, cell in row.items()}
                for row in reader
            ]
            columns = reader.fieldnames or ()
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        return [f"cannot be read as CSV: {first_line(error)}"]
    if unknown := [column for column in columns if column not in LATENCY_COLUMNS]:
        return [f"header: found column {shown(unknown[0], quoted=False)}; allowed: {', '.join(LATENCY_COLUMNS)}"]
    if absent := [column for column in ("model", "kind", "label") if column not in columns]:
        return [f"header: no column {absent[0]}; required: model, kind and label, which name a row"]
    problems: list[str] = []
    for name, network in _by_name(networks).items():
        stated = [(number, row) for number, row in enumerate(rows, start=1) if row["model"] == name]
        if stated:
            problems += _network_problems(name, network, stated)
    return problems


def _by_name(networks: Sequence[CheckedNetwork]) -> dict[str, CheckedNetwork]:
    """Networks by the names that a report may use: with the folder if several have the same name."""
    names = [network.graph.name if network.run is None else network.run.graph for network in networks]
    count = Counter(names)
    by_name = {f"{name} ({network.folder})": network for name, network in zip(names, networks, strict=True)}
    return by_name | {name: network for name, network in zip(names, networks, strict=True) if count[name] == 1}


def _network_problems(
    name: str, network: CheckedNetwork, stated: Sequence[tuple[int, dict[str, str]]]
) -> Iterator[str]:
    expected = _expected(network)
    if expected is None:
        return
    rows = {(row["kind"], row["label"]): row for row in expected}
    for number, row in stated:
        place = f"row {number}, {shown(row['label'])}"
        computed = rows.pop((row["kind"], row["label"]), None)
        if computed is None:
            yield f"{place}: found kind {shown(row['kind'])}; the files have no row of this kind and label, or one only"
            continue
        for column in LATENCY_COLUMNS:
            value = computed.get(column)
            if column in row and column != "model" and not _agrees(row[column], value):
                words = "empty" if value is None else f"{value:.9g}" if isinstance(value, float) else shown(value)
                yield f"{place}: {column}: found {shown(row[column])}; recomputed from the files: {words}"
    # A report of predictions may be of some schedules only.
    for kind, label in rows if network.run is not None else ():
        yield f"no row for {kind} {shown(label)} of {shown(name)}; required: one for every latency in run.json"


def _expected(network: CheckedNetwork) -> list[Row] | None:
    """The rows of a network; None if its files contradict each other, which is reported there."""
    if network.run is not None:
        try:
            return latency_rows(model_results(network.graph, network.costs, network.run))
        except ArtifactError:
            return None
    if (
        predicted_for(network.costs.platform) is None
        or not network.graph.index.keys() <= network.costs.operators.keys()
    ):
        return None
    return prediction_rows(network.graph.name, network.schedules, network.costs)


def _agrees(text: str | None, value: object) -> bool:
    """Whether a cell holds a value, as far as rounding allows; an empty one holds None, or False."""
    if not text:
        return value is None or value is False or value == ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return text == str(value)
    try:
        return math.isclose(float(text), value, rel_tol=_ROUNDING, abs_tol=1e-9)
    except ValueError:
        return False
