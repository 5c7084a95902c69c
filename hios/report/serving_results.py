"""The serving part of a report: tables, charts and sentences on scenarios under policies, predicted and measured."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hios.charts import marks
from hios.charts.rendering import to_svg
from hios.errors import ArtifactError
from hios.files import artifacts
from hios.formats.serving_result import ComparedPolicy, ResultFile
from hios.report.tables import View
from hios.serving.objective import WORDS, brief, candidate_of, order
from hios.serving.strict_rounds import rounds_notes

#: Columns that predictions are compared with measurements in, by name.
_COMPARED = ("done", "p50", "p90", "p99")
#: Pixels: the plot, and a bar.
_WIDTH, _BAR, _HEIGHT = 760, 16, 260
_BOUND = "no policy can pass"
_RESULT = re.compile(r"[^/.][^/]*/(simulated|measured)/[^/]+\.json")
#: The launcher of policies that were trained.
_LEARNED = "learned"


@dataclass(frozen=True, slots=True)
class ServedPolicy:
    """A policy, "POLICY in RUNTIME" where that is not hios, at one load (what the rates were multiplied by)."""

    policy: str
    load: float
    predicted: ResultFile | None
    measured: ResultFile | None

    @property
    def results(self) -> list[ResultFile]:
        """What there is, measured first."""
        return [result for result in (self.measured, self.predicted) if result is not None]


@dataclass(frozen=True, slots=True)
class ServedScenario:
    """A scenario by its label in the configuration, with its results by load and policy."""

    label: str
    policies: tuple[ServedPolicy, ...]


def read_serving(folder: Path, chosen: Sequence[str] = ()) -> list[ServedScenario]:
    """The scenarios LABEL/simulated/*.json and LABEL/measured/*.json, or those of them that are chosen.

    Raises:
        ArtifactError: there is none, one that is chosen is missing, or one is damaged.
    """
    files = [path for kind in ("simulated", "measured") for path in folder.glob(f"*/{kind}/*.json")]
    if chosen:
        for name in chosen:
            if not _RESULT.fullmatch(name):
                raise ArtifactError(
                    f"--served: found {name}; allowed: SCENARIO/simulated/POLICY-LOAD.json, or measured"
                )
        files = [folder / name for name in chosen]
    by_scenario: dict[str, list[Path]] = {}
    for path in sorted(files):
        by_scenario.setdefault(path.parent.parent.name, []).append(path)
    if not by_scenario:
        raise ArtifactError(f"{folder}: found no result; required: SCENARIO/simulated/POLICY-LOAD.json of one at least")
    return [_scenario(label, paths) for label, paths in by_scenario.items()]


def _scenario(label: str, paths: Sequence[Path]) -> ServedScenario:
    simulated, measured = (
        _results(path for path in paths if path.parent.name == kind) for kind in ("simulated", "measured")
    )
    keys = sorted({*simulated, *measured}, key=lambda key: (key[1], key[0]))
    return ServedScenario(label, tuple(ServedPolicy(*key, simulated.get(key), measured.get(key)) for key in keys))


def _results(paths: Iterable[Path]) -> dict[tuple[str, float], ResultFile]:
    results = [artifacts.load(path, ResultFile) for path in paths]
    return {(f"{own.policy} in {own.runtime}" if own.runtime else own.policy, own.load): own for own in results}


def serving_rows(scenario: ServedScenario) -> list[View]:
    """A row for every policy, load and kind: rates in tasks per second, times in milliseconds, shares from 0 to 1."""
    return [_row(served, result) for served in scenario.policies for result in served.results]


def _row(served: ServedPolicy, result: ResultFile) -> View:
    total, done = result.total, result.done_per_s
    return {
        "policy": served.policy,
        "chosen": _chosen(result),
        "load": served.load,
        "mark": "predicted" if result.simulated else "measured here",
        "offered": result.offered_per_s,
        "goodput": result.goodput_per_s,
        "done": done,
        "lost": (total.dropped + total.expired + total.failed) / total.offered if total.offered else 0.0,
        "p50": total.p50_ms,
        "p90": total.p90_ms,
        "p99": total.p99_ms,
        "jain": result.jain,
        "utilisation": result.utilisation,
        "bound": result.bound_per_s,
        "gap": 1 - done / result.bound_per_s if result.bound_per_s > 0 else 0.0,
    }


def _chosen(result: ResultFile) -> str:
    """The policy and the launcher that auto chose, as far as it chose them; empty if it did not."""
    several = len(_launchers(result)) > 1
    return ", ".join(filter(None, [result.chosen, f"launcher {result.launcher}" if several else None]))


def _launchers(result: ResultFile) -> set[str]:
    """The launchers that were compared, apart from those that are trained."""
    return {entry.launcher for entry in result.candidates if entry.launcher not in (None, _LEARNED)}


def gap_rows(scenario: ServedScenario) -> list[View]:
    """Predictions over measurements less 1, where there are both: done, p50, p90 and p99."""
    return [
        {
            "policy": served.policy,
            "load": served.load,
            **{name: _over(predicted[name], measured[name]) for name in _COMPARED},
        }
        for served in scenario.policies
        if served.predicted is not None and served.measured is not None
        for predicted, measured in [(_row(served, served.predicted), _row(served, served.measured))]
    ]


def _over(predicted: float | None, measured: float | None) -> float | None:
    return predicted / measured - 1 if predicted is not None and measured else None


def setting_sentence(scenario: ServedScenario) -> str:
    """What arrived, for how long, and on what."""
    first = scenario.policies[0].results[0]
    time = first.duration_s * first.repeats
    offered = ", ".join(f"{label} {served.offered / time:.3g}/s" for label, served in first.models.items())
    lanes = "one lane" if first.lanes == 1 else f"{first.lanes} lanes"
    launcher = "auto" if len(_launchers(first)) > 1 else first.launcher
    return (
        f"{offered} at load {first.load:g}; arrivals {first.arrivals}; {lanes}; {first.repeats} x "
        f"{first.duration_s:g} s; seed {first.seed}; launcher {launcher}."
    )


def calibration_sentence(scenario: ServedScenario) -> str:
    """What the predictions rest on; empty if there are none."""
    predicted = [served.predicted for served in scenario.policies if served.predicted is not None]
    if not predicted:
        return ""
    if all(result.calibrated for result in predicted):
        return (
            "Predictions are calibrated: short runs of these models on this machine, before those compared here, gave "
            "the simulator factors, overheads and jitter (calibration.json)."
        )
    return "Predictions are not calibrated: they are by costs.json alone, without what a server takes beyond it."


def findings(scenario: ServedScenario) -> Iterator[str]:
    """Of each load: the best policy by the objective, what auto chose and why, and what limits rounds."""
    for load in dict.fromkeys(served.load for served in scenario.policies):
        own = [served for served in scenario.policies if served.load == load]
        results = _compared(own)
        yield _best(results, load)
        yield from (_choice(served.results[0], load) for served in own if served.results[0].chosen is not None)
        if notes := rounds_notes(results):
            yield f"At load {load:g}, {'; '.join(notes)}."


def _compared(policies: Sequence[ServedPolicy]) -> dict[str, ResultFile]:
    """Results of one kind by policy: measured ones if there are any, else predicted ones."""
    measured = {served.policy: served.measured for served in policies if served.measured is not None}
    return measured or {served.policy: served.predicted for served in policies if served.predicted is not None}


def _best(results: Mapping[str, ResultFile], load: float) -> str:
    candidates = list(map(candidate_of, results.values()))
    objective = next(iter(results.values())).objective
    place = order(candidates, objective)[0]
    name, best = list(results.items())[place]
    how = "predicted" if best.simulated else "measured"
    return (
        f"At load {load:g}, {name} serves best, {how}, by {WORDS[objective]}: of {best.offered_per_s:.3g} tasks/s it "
        f"answers within their SLO {brief(candidates[place])}."
    )


def _choice(result: ResultFile, load: float) -> str:
    """What auto chose among how many, and what the others would have had: the next, or learned and static ones."""
    candidates = [entry for entry in result.candidates if entry.left_out is None]
    launchers = len(_launchers(result))
    under = f", each under {launchers} launchers," if launchers > 1 else ""
    said = (
        f"At load {load:g}, auto is {_chosen(result)}: the best of {len({entry.policy for entry in candidates})} "
        f"policies{under} in simulations of other traces"
    )
    shown = [_simulated(entry, launchers > 1) for entry in _rivals(candidates)]
    if len(shown) < 2:
        return f"{said}."
    return f"{said}, by {WORDS[result.objective]}: {'; '.join(shown)}."


def _rivals(candidates: Sequence[ComparedPolicy]) -> list[ComparedPolicy]:
    """The best candidate of each way to decide, best first; the two best ones where only one way was compared."""
    firsts = {_way(entry): entry for entry in reversed(candidates)}
    if len(firsts) < 2:
        return list(candidates[:2])
    return [entry for entry in candidates if firsts[_way(entry)] is entry]


def _way(candidate: ComparedPolicy) -> str:
    """How a policy decides: as it learned, by the best fixed decision of its training, or by a rule."""
    return candidate.policy if candidate.launcher == _LEARNED else "rule"


def _simulated(candidate: ComparedPolicy, several: bool) -> str:
    by = f", launcher {candidate.launcher}" if several and candidate.launcher != _LEARNED else ""
    p99 = "" if candidate.p99_ms is None else f", p99 {candidate.p99_ms:.3g} ms"
    return f"{candidate.policy}{by} {brief(candidate)}{p99}"


def serving_charts(scenario: ServedScenario, identity: str) -> list[str]:
    """Charts as SVG: goodput, and p99 over load where there are several loads."""
    rows = serving_rows(scenario)
    charts = [_goodput(scenario.label, rows, f"{identity}-goodput")]
    if len({row["load"] for row in rows}) > 1 and any(row["p99"] is not None for row in rows):
        charts.append(_percentiles(scenario.label, rows, f"{identity}-p99"))
    return charts


def _goodput(label: str, rows: Sequence[View], identity: str) -> str:
    import altair as alt

    shown = [
        {
            "place": f"{row['policy']}, load {row['load']:g}",
            "policy": row["policy"],
            "goodput": row["goodput"],
            "mark": row["mark"],
            "description": f"{row['policy']}, load {row['load']:g}\n{row['mark']}: {row['goodput']:.3g} tasks/s within "
            f"their SLO",
        }
        for row in rows
    ]
    bounds = {row["load"]: row["bound"] for row in rows}
    shown += [
        {
            "place": f"{_BOUND}, load {load:g}",
            "policy": _BOUND,
            "goodput": bound,
            "mark": marks.BOUND.name,
            "description": f"no policy completes more than {bound:.3g} tasks/s at load {load:g}",
        }
        for load, bound in bounds.items()
    ]
    # Policies of a load, then its bound.
    names = {load: [*(row["policy"] for row in rows if row["load"] == load), _BOUND] for load in bounds}
    places = list(dict.fromkeys(f"{name}, load {load:g}" for load, own in names.items() for name in own))
    beside = alt.YOffset("mark:N", scale=alt.Scale(domain=[mark.name for mark in marks.used(shown)]))
    y = alt.Y("place:N", title=None, sort=None, scale=alt.Scale(domain=places), axis=alt.Axis(labelLimit=320))
    chart = marks.bars(
        shown,
        x=alt.X("goodput:Q", title="tasks within their SLO, per second", axis=alt.Axis(tickCount=8)),
        y=y,
        series="policy",
        beside=beside,
    )
    return _drawn(chart, f"Tasks within their SLO of every policy, scenario {label}", identity, len(shown) * _BAR)


def _percentiles(label: str, rows: Sequence[View], identity: str) -> str:
    loads = sorted({row["load"] for row in rows})
    draw = marks.line_chart(
        "load",
        "p99",
        series=lambda row: str(row["policy"]),
        words=lambda row: f"{row['policy']}, load {row['load']:g}\n{row['mark']}: {row['p99']:.4g} ms",
        x_axis=lambda _: {"title": "load", "scale": {"zero": False, "padding": 20}, "axis": {"values": loads}},
        y_axis={"title": "99th percentile, ms", "scale": {"type": "log"}},
    )
    chart = draw([row for row in rows if row["p99"] is not None and row["p99"] > 0])
    return _drawn(chart, f"99th percentile of the latency over load, scenario {label}", identity, _HEIGHT)


def _drawn(chart: Any, description: str, identity: str, height: int) -> str:
    return to_svg(chart.properties(width=_WIDTH, height=height, description=description), identity)
