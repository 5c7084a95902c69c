"""A result in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from hios.files.text_tables import aligned
from hios.formats.serving_result import CalibrationFile, ComparedPolicy, ResultFile, ServedResult
from hios.serving.objective import candidate_of, worst_share
from hios.serving.simulate import PolicyGrid
from hios.serving.strict_rounds import rounds_notes

#: Share of tasks sent late from which on the machine was too busy to measure.
_LATE = 0.05
_HEADING = (
    "",
    "offered/s",
    "done/s",
    "goodput/s",
    "p50 ms",
    "p90 ms",
    "p99 ms",
    "dropped",
    "expired",
    "failed",
    "left",
)
#: Of a grid; the models with their tasks a second stand in between.
_GRID_HEADING = (
    ("policy", "launcher", "done/s"),
    ("goodput/s", "worst-served", "p50 ms", "p99 ms", "lost", "left", "work done", "Jain", "variance"),
)
#: A worst-served model is named below this share.
_SERVED = 0.99


def result_table(result: ResultFile) -> str:
    """A line for each model and one for all, and what holds for the device, aligned under a heading."""
    time = result.duration_s * result.repeats
    rows = [_HEADING, *(_row(label, served, time) for label, served in result.models.items())]
    if len(result.models) > 1:
        rows.append(_row("all", result.total, time))
    text = "\n".join(aligned(rows, "<>"))
    return "\n".join([text, *_notes(result)])


def grid_table(grid: PolicyGrid) -> str:
    """A line for each policy and launcher, then what no policy can pass and what could not run."""
    any_result = next(iter(grid.results.values()))
    first, last = _GRID_HEADING
    heading = (*first, *(f"{label}/s" for label in _done_of_several(any_result)), *last)
    rows = [heading, *(_grid_row(*chosen, result) for chosen, result in grid.results.items())]
    notes = [
        f"load {any_result.load:g}, {any_result.lanes} lane(s), {any_result.repeats} x {any_result.duration_s:g} s, "
        f"simulated, so predicted; no policy can do more than {any_result.bound_per_s:.4g} tasks/s"
    ]
    left_out = [f"{name}: {reason}" for name, reason in grid.left_out.items()]
    rounds = rounds_notes({f"{name}, launcher {launcher}": result for (name, launcher), result in grid.results.items()})
    return "\n".join([*aligned(rows, "<>"), *notes, *rounds, *left_out])


def calibration_table(calibration: CalibrationFile) -> str:
    """The measured constants of the machine, one per line."""
    overheads = calibration.overheads
    lines = [f"{label}: operators take {factor:.3f} x their costs" for label, factor in calibration.models.items()]
    lines += [f"{label} with threads: {factor:.3f} x as long" for label, factor in calibration.threads.items()]
    lines += [f"{pair.model} beside {pair.beside}: {pair.factor:.3f} x as long" for pair in calibration.corun]
    lines.append(
        f"per task {overheads.task_ms:.3f} ms, run {overheads.run_ms:.3f} ms, stage {overheads.stage_ms:.3f} ms, "
        f"hand-over {overheads.hand_over_ms:.3f} ms, run with threads {overheads.threads_run_ms:.3f} ms more"
    )
    shares = [calibration.jitter[round(share * (len(calibration.jitter) - 1))] for share in (0.5, 0.9, 0.99)]
    lines.append("times over their median: p50 {:.3f}, p90 {:.3f}, p99 {:.3f}".format(*shares))
    return "\n".join([*lines, f"{calibration.lanes} lane(s), measured in {calibration.seconds:.0f} s"])


def _row(label: str, served: ServedResult, time: float) -> tuple[str, ...]:
    rates = (f"{count / time:.4g}" for count in (served.offered, served.completed, served.goodput))
    latencies = (_known(value, ".4g") for value in (served.p50_ms, served.p90_ms, served.p99_ms))
    left = served.waiting + served.in_flight
    return (label, *rates, *latencies, *map(str, (served.dropped, served.expired, served.failed, left)))


def _done_of_several(result: ResultFile) -> dict[str, float]:
    """Completed tasks per second by model; empty for one model, whose tasks are all there are."""
    return result.done_by_model if len(result.models) > 1 else {}


def _grid_row(name: str, launcher: str, result: ResultFile) -> tuple[str, ...]:
    total = result.total
    return (
        name if result.chosen is None else f"{name} ({result.chosen})",
        launcher,
        f"{result.done_per_s:.4g}",
        *(f"{rate:.4g}" for rate in _done_of_several(result).values()),
        f"{result.goodput_per_s:.4g}",
        f"{worst_share(candidate_of(result)):.1%}",
        _known(total.p50_ms, ".4g"),
        _known(total.p99_ms, ".4g"),
        str(total.dropped + total.expired + total.failed),
        str(total.waiting + total.in_flight),
        f"{result.work_share:.1%}",
        f"{result.jain:.3f}",
        f"{result.queue_variance:.3g}",
    )


def _known(value: float | None, how: str) -> str:
    return "-" if value is None else format(value, how)


def _notes(result: ResultFile) -> list[str]:
    chosen = f" (chosen: {result.chosen})" if result.chosen else f" in {result.runtime}" if result.runtime else ""
    how = "simulated, so predicted" if result.simulated else "measured"
    limit = "no policy can do" if result.simulated else "by the costs no policy can do"
    if result.runtime:  # the costs are those of hios's operators
        limit = "by the costs of hios's operators no policy can do"
    bound = result.total.p99_bound_ms
    notes = [
        f"policy {result.policy}{chosen}, launcher {result.launcher}, {result.lanes} lane(s), load {result.load:g}, "
        f"{result.repeats} x {result.duration_s:g} s, {how}",
        f"lanes busy {result.utilisation:.1%}, work done {result.work_share:.1%}, {limit} more than "
        f"{result.bound_per_s:.4g} tasks/s, Jain's index {result.jain:.3f}, variance of queues "
        f"{result.queue_variance:.4g}",
    ]
    candidate = candidate_of(result)
    if (worst := worst_share(candidate)) < _SERVED:
        label, _ = min((candidate.models or {}).items(), key=lambda entry: entry[1].fair_share)
        notes.append(f"worst served: {label}, {worst:.1%} of the smaller of what it offered and its fair share in time")
    if result.late is not None and result.late.share > _LATE:
        notes.append(
            f"{result.late.share:.0%} of the tasks were sent late, by up to {result.late.most_ms:.3g} ms: the machine "
            "was busy with something else, so the numbers mean little; repeat it when nothing else runs"
        )
    if bound is not None:
        notes.append(f"99th percentile at most {bound:.4g} ms, with 99 % (early stopping)")
    if result.candidates:
        by = f", best first by {result.objective}" if result.objective else ""
        notes += [f"compared on other traces{by}:", *(f"  {line}" for line in candidates_table(result.candidates))]
    return notes


def candidates_table(candidates: Sequence[ComparedPolicy]) -> list[str]:
    """A line for each policy that was compared: how it served the models, each with its goodput; then those left out.

    Candidates of older files have no numbers of their models.
    """
    shown = [entry for entry in candidates if entry.left_out is None]
    labels = list(dict.fromkeys(label for entry in shown for label in entry.models or {}))
    heading = ("policy", "launcher", "worst-served", "good work", "goodput/s", *(f"{own}/s" for own in labels))
    rows = [(*heading, "p99 ms", "Jain", "variance")]
    for entry in shown:
        models = entry.models or {}
        rows.append(
            (
                entry.policy,
                entry.launcher or "-",
                _known(worst_share(entry) if models else None, ".1%"),
                _known(entry.good_work_share, ".1%"),
                f"{entry.goodput_per_s:.4g}",
                *(_known(models[label].goodput_per_s if label in models else None, ".4g") for label in labels),
                _known(entry.p99_ms, ".4g"),
                _known(entry.jain, ".3f"),
                _known(entry.queue_variance, ".3g"),
            )
        )
    return aligned(rows, "<>") + [f"{entry.policy}: {entry.left_out}" for entry in candidates if entry.left_out]
