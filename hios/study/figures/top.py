"""The figures of TOP: systems on scenarios of serving (figures 14 to 17), and experiments, all simulated."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from hios.charts import marks
from hios.formats.study import (
    BATCH_THAT_FITS,
    COPIES_THAT_FIT,
    CURVE,
    DP,
    GPG_ONE_PASS,
    GPG_STEP,
    LAST_ENDING,
    LAUNCHER_STEP,
    RANDOM_SEARCH,
    TRAINED,
)
from hios.study import run_rows as runs
from hios.study import serving_rows as serving
from hios.study.figure_data import FigureData
from hios.study.published import Comparison, Published, comparisons, number, published
from hios.study.reference_networks import inception_v3, resnet50, squeezenet
from hios.study.registry import register
from hios.study.rows import Row, Rows, grouped, predicted

if TYPE_CHECKING:
    import altair as alt

_TASKS, _INPUTS, _GOODPUT = "tasks per s", "inputs per s", "goodput per s"
_OVER_SEQUENTIAL = "latency over sequential"

_STEPS = "steps"

# Figure 13: time and latency of stages by GPG and by dynamic programming.
_SUB_BLOCKS, _SEARCH_MS = "sub-blocks", "search ms"
#: Columns that are timed; the latencies beside them are computed from costs.
_TIMED = (_SEARCH_MS, "stage choice ms", "longest stage choice ms")


def times_apart(rows: Rows, timed: Collection[str], computed: Collection[str]) -> Rows:
    """Rows of columns that were timed here, and the same rows of those that are computed from costs."""
    times = [
        {key: value for key, value in row.items() if key not in computed} | {"mark": marks.MEASURED.name}
        for row in rows
        if any(key in row for key in timed)
    ]
    return times + [{key: value for key, value in row.items() if key not in timed} for row in rows]


def fig13_rows(data: FigureData) -> Rows:
    """Ways to find stages by the number of sub-blocks: rows of measured times, and rows of predicted latencies."""
    every = serving.point_rows(data, "gpg", _SUB_BLOCKS)
    ways = [row for row in every if row["system"] not in (CURVE, GPG_STEP)]
    return times_apart(ways, _TIMED, (_OVER_SEQUENTIAL, f"{_OVER_SEQUENTIAL}, all"))


def fig13_comparisons(rows: Rows) -> list[Comparison]:
    """How many times as long dynamic programming takes as a pass of GPG, with the most sub-blocks that it can do.

    The paper states the factor of growing blocks; the finding has that of every size.
    """
    slow, fast = (_by_size(rows, system, _SEARCH_MS) for system in (DP, GPG_ONE_PASS))
    most = max(slow.keys() & fast.keys(), default=None)
    return comparisons("top_fig13", {"faster": None if most is None else slow[most] / fast[most]})


def _by_size(rows: Rows, system: str, column: str) -> dict[float, float]:
    """A column of a system, for the models that the policy was trained on."""
    label = rows[0]["scenario"] if rows else ""
    return serving.by_scenario(rows, system, _SUB_BLOCKS, column).get(label, {})


def fig13_finding(rows: Rows) -> str:
    """Times and latencies by the number of sub-blocks; those of the rule that takes the last ending, too."""
    slow, fast, ruled = (_by_size(rows, system, _SEARCH_MS) for system in (DP, GPG_ONE_PASS, LAST_ENDING))
    exact, learned, last = (_by_size(rows, system, _OVER_SEQUENTIAL) for system in (DP, GPG_ONE_PASS, LAST_ENDING))
    parts = []
    for size in slow:
        part = (
            f"{size} sub-blocks {fast[size]:.3g} against {slow[size]:.3g} ms, latency "
            f"{100 * (learned[size] / exact[size] - 1):+.1f} %"
        )
        if size in ruled:
            rule = 100 * (last[size] / exact[size] - 1)
            part += f" (always the last ending, without a policy: {ruled[size]:.3g} ms, {rule:+.1f} %)"
        parts.append(part)
    return f"One pass of GPG against dynamic programming: {'; '.join(parts)}."


register(
    "top_fig13",
    rows=fig13_rows,
    chart=serving.point_lines(_SUB_BLOCKS, _SEARCH_MS, "milliseconds to find stages", lambda row: str(row["system"])),
    compare=fig13_comparisons,
    finding=fig13_finding,
)


# Figures 14 and 15: throughput of single models, and of several.
def register_throughput(name: str, over: Sequence[str], *, several: bool) -> None:
    """Register a figure of tasks completed in a second; with several models all loads count, not the highest alone."""
    register(
        name,
        rows=lambda data: serving.policy_rows(data, several=several),
        chart=serving.policy_bars(_TASKS, "tasks per second"),
        compare=lambda rows: serving.compared_gains(name, "gain", rows, _TASKS, over, all_loads=several),
        finding=lambda rows: serving.gain_finding(rows, _TASKS, over),
        explain=serving.why,
    )


register_throughput("top_fig14", serving.SINGLE, several=False)
register_throughput("top_fig15", serving.ROUNDS, several=True)

# Figure 16: utilisation.
_WORK_DONE = "work done %"


def fig16_comparisons(rows: Rows) -> list[Comparison]:
    """What top gains over IOS with one model, and over POS-like rounds with several."""
    return [
        comparison
        for several, over, key in ((False, ("ios",), "over_ios"), (True, serving.ROUNDS, "over_pos"))
        for comparison in serving.compared_gains(
            "top_fig16",
            key,
            [row for row in rows if (row["models"] > 1) is several],
            _WORK_DONE,
            over,
            all_loads=several,
        )
    ]


register(
    "top_fig16",
    rows=lambda data: serving.policy_rows(data, several=False) + serving.policy_rows(data, several=True),
    chart=serving.policy_bars(_WORK_DONE, "work done, %"),
    compare=fig16_comparisons,
    finding=lambda rows: serving.gain_finding(rows, _WORK_DONE, ("ios", *serving.ROUNDS)),
)


# Figure 17: variance of the queues' lengths.
def largest_variance(queues: int, limit: int) -> float:
    """The population variance of the lengths of queues, half of which are full and the others empty.

    No lengths from 0 to the limit have a larger one.

    Examples:
        >>> largest_variance(3, 949)
        200133.55555555556
    """
    full = queues // 2
    return limit**2 * full * (queues - full) / queues**2


def fig17_comparisons(rows: Rows) -> list[Comparison]:
    """The largest mean variance under top; nothing where queues are too short for more than what is published."""
    stated = published("top_fig17")["top"]
    own = [row["queue variance"] for row in rows if row["policy"] == serving.TOP and _reaches(row, stated)]
    return comparisons("top_fig17", {"top": max(own) if own and serving.on_gpu(rows) else None})


def _reaches(row: Row, stated: Published) -> bool:
    """Whether the queues of a result could have a variance that differs from the published one."""
    if row["queue limit"] is None or stated.most is None:
        return False
    return largest_variance(row["models"], row["queue limit"]) > stated.most * (1 + stated.tolerance)


def fig17_finding(rows: Rows) -> str:
    """The variance under every policy at the highest load."""
    most = max(row["load"] for row in rows)
    return "Mean variance of the queues at the highest load, predicted: " + "; ".join(
        f"{row['policy']} {row['queue variance']:.3g} ({row['scenario']})"
        for row in predicted(rows)
        if row["load"] == most
    )


def fig17_why(rows: Rows) -> str:
    """How far the queues' limits allow the variance to grow."""
    text = (
        "Queues here have the limit of the scenario, which bounds the variance; for those of the paper none is stated, "
        "and in overload they grow as long as tasks arrive."
    )
    stated = published("top_fig17")["top"]
    short = {row["scenario"]: row for row in rows if row["queue limit"] is not None and not _reaches(row, stated)}
    return text + "".join(
        f" In {label} the variance is at most {largest_variance(row['models'], row['queue limit']):.4g}, so it is not "
        f"compared with {stated.most:g}."
        for label, row in short.items()
    )


register(
    "top_fig17",
    rows=lambda data: serving.policy_rows(data, several=True),
    chart=serving.policy_bars("queue variance", "variance of the queues' lengths"),
    compare=fig17_comparisons,
    finding=fig17_finding,
    explain=fig17_why,
)


# Figures 18, 26 and 27 compare where throughput saturates, of the scenario in which it does so last, on the A100.
def saturation(rows: Rows, x: str, column: str, stated: float) -> float | None:
    """Where throughput under top saturates last; None where that is not followed far enough, or not of the A100."""
    curves = serving.by_scenario(rows, serving.TOP, x, column).values()
    places = serving.settled(curves, serving.saturation, stated)
    return max(places) if places and serving.on_gpu(rows, "A100") else None


def _beside(rows: Iterable[Row], x: str) -> str:
    """What the models get at points behind a gain."""
    return serving.beside_gains(rows, lambda row: f"{row['scenario']}, {x} {row[x]:g}, {row['system']}")


def _ends(rows: Rows, x: str, *systems: str) -> str:
    """The same where gains are those between the least and the most of what is varied, or there."""
    curves = grouped([row for row in rows if row["system"] in systems], _scenario_and_system).values()
    ordered = [sorted(own, key=lambda row: float(row[x])) for own in curves]
    return _beside([row for own in ordered for row in own[:: max(1, len(own) - 1)]], x)


def fig18_rows(data: FigureData) -> Rows:
    """Systems by the size of combined blocks: rows of measured times of training, and of predicted throughput."""
    computed = (_TASKS, _WORK_DONE, *serving.BESIDE)
    return times_apart(serving.point_rows(data, "sizes", _SUB_BLOCKS), (TRAINED,), computed)


def fig18_comparisons(rows: Rows) -> list[Comparison]:
    """The size at which throughput saturates, of the A100's statement."""
    size = saturation(rows, _SUB_BLOCKS, _TASKS, number("top_fig18.saturation", "A100"))
    return comparisons("top_fig18", {"saturation": {} if size is None else {"A100": size}})


def _training(rows: Rows) -> dict[str, dict[float, float]]:
    return serving.by_scenario(rows, serving.TOP, _SUB_BLOCKS, TRAINED)


def fig18_finding(rows: Rows) -> str:
    """Where throughput saturates, and what the best size gains over H = 1."""
    best = {system: serving.by_scenario(rows, system, _SUB_BLOCKS, _TASKS) for system in grouped(rows, "system")}
    of_top = best.pop(serving.TOP, {})
    parts = [
        f"{scenario} saturates at H = {serving.saturation(over):g}, "
        f"{100 * (max(over.values()) / over[1] - 1):+.0f} % over H = 1"
        for scenario, over in of_top.items()
    ]
    for system, scenarios in best.items():
        for scenario, over in scenarios.items():
            gain = 100 * (max(over.values()) / max(of_top[scenario].values()) - 1)
            parts.append(f"{scenario}, {system} {gain:+.1f} % over top at their best sizes")
    trained = [
        f"{scenario} {over[min(over)]:.3g} s with H = {min(over):g}, {over[max(over)]:.3g} s with H = {max(over):g}"
        for scenario, over in _training(rows).items()
    ]
    times = f" Training, processor time of this machine: {'; '.join(trained)}." if trained else ""
    simulated = [row for row in rows if _TASKS in row]
    behind = [row for row in simulated if row["system"] == serving.TOP and row[_SUB_BLOCKS] == 1]
    best_of_each = grouped(simulated, _scenario_and_system).values()
    behind += [row for own in best_of_each if (row := max(own, key=lambda row: float(row[_TASKS]))) not in behind]
    return f"Predicted, overloaded: {'; '.join(parts)}.{times}{_beside(behind, _SUB_BLOCKS)}"


def _scenario(row: Row) -> str:
    return str(row["scenario"])


def _scenario_and_system(row: Row) -> str:
    return f"{row['scenario']}, {row['system']}"


def fig18_chart(rows: Rows) -> alt.TopLevelMixin:
    """Throughput, and below it the time of training, both over the size."""

    def lines(column: str, title: str) -> alt.TopLevelMixin:
        return serving.point_lines(
            _SUB_BLOCKS,
            column,
            title,
            lambda row: _scenario(row) if row["system"] == serving.TOP else _scenario_and_system(row),
        )([row for row in rows if column in row])

    panels = [("Throughput", "", lines(_TASKS, "tasks per second"))]
    if _training(rows):
        panels.append(("Training", "", lines(TRAINED, "seconds of processor time")))
    return marks.panels(panels)


register("top_fig18", rows=fig18_rows, chart=fig18_chart, compare=fig18_comparisons, finding=fig18_finding)

# Figure 19: what a step of training takes; and the overheads of section VI-F.
_PART, _MS, _SHARE = "part", "ms", "share of the step %"
#: Of what the launcher does online: neither is a part of a step.
_INFERENCE = "inference"


def fig19_rows(data: FigureData) -> Rows:
    """The parts of a step of training, with their shares of it; and how long a trained launcher takes to decide."""
    rows = []
    for row in [*serving.point_rows(data, "gpg", _STEPS), *serving.point_rows(data, "launcher", _STEPS)]:
        if row["system"] not in (GPG_STEP, LAUNCHER_STEP):
            continue
        parts = {key.removesuffix(f" {_MS}"): value for key, value in row.items() if key.endswith(f" {_MS}")}
        known = {key: value for key, value in row.items() if key.removesuffix(f" {_MS}") not in parts}
        whole = sum(value for part, value in parts.items() if part != _INFERENCE)
        for part, value in parts.items():
            share = {} if part == _INFERENCE else {_SHARE: 100 * value / whole}
            rows.append({**known, "mark": marks.MEASURED.name, _PART: part, _MS: value, **share})
    return rows


def fig19_finding(rows: Rows) -> str:
    """All parts of the steps, with their shares."""
    parts = []
    for (step, scenario), own in grouped(rows, lambda row: (row["system"], row["scenario"])).items():
        shown = [
            f"{row[_PART]} {row[_MS]:.3g} ms" + (f" ({row[_SHARE]:.0f} %)" if _SHARE in row else "") for row in own
        ]
        parts.append(f"{step} ({scenario}): {', '.join(shown)}")
    return f"On this machine, {'; '.join(parts)}."


register(
    "top_fig19",
    rows=fig19_rows,
    chart=serving.point_bars(
        lambda row: f"{row['system']}, {row['scenario']}: {row[_PART]}", _SHARE, "share of a step, %"
    ),
    finding=fig19_finding,
)

# Figure 20: stages of combined blocks on several GPUs.
_TFLOPS, _STAGES, _GROUPS = "TFLOPS", "stages of a combined block", "groups of a stage"


def forms(rows: Rows, x: str, name: Callable[[Row], str]) -> str:
    """Stages and groups at the least and the most of what is varied, by scenario."""
    parts = []
    for scenario, of_scenario in grouped(rows, "scenario").items():
        own = sorted(of_scenario, key=lambda row: float(row[x]))
        ends = [f"{name(row)} {row[_STAGES]:.2f} stages with {row[_GROUPS]:.2f} groups" for row in (own[0], own[-1])]
        parts.append(f"{scenario}: {', '.join(ends)}")
    return f"means over combined blocks: {'; '.join(parts)}."


register(
    "top_fig20",
    rows=lambda data: serving.point_rows(data, "stages", _TFLOPS),
    chart=serving.point_bars(_scenario_and_system, _GROUPS, "groups of a stage, mean"),
    finding=lambda rows: f"Predicted, slowest and fastest GPU, {forms(rows, _TFLOPS, lambda row: str(row['system']))}",
)

# Figures 21 and 22: convergence of GPG and of MADDPG.


def steps_compared(figure: str, rows: Rows, column: str, *, falls: bool) -> list[Comparison]:
    """Steps until learning curves stay within a per cent of their best, where there is anything to learn."""
    curves = serving.by_scenario(rows, CURVE, _STEPS, column).values()
    steps = serving.settled(curves, partial(serving.convergence, falls=falls), number(f"{figure}.{_STEPS}", "most"))
    return comparisons(figure, {_STEPS: max(steps) if steps and serving.on_gpu(rows) else None})


def _too_short(figure: str, rows: Rows, column: str, key: str) -> str:
    """Why learning curves have no verdict; empty if they have one, or are not of a GPU."""
    curves = serving.by_scenario(rows, CURVE, _STEPS, column).values()
    return serving.unsettled(curves, number(f"{figure}.{_STEPS}", "most"), key) if serving.on_gpu(rows) else ""


def fig21_finding(rows: Rows) -> str:
    """Where the curve begins and ends."""
    parts = [
        f"{over[min(over)]:.3f} before learning, {min(over.values()):.3f} at best, within a per cent of that from step "
        f"{serving.convergence(over, falls=True):g} of {max(over):g} on"
        for over in serving.by_scenario(rows, CURVE, _STEPS, _OVER_SEQUENTIAL).values()
    ]
    short = _too_short("top_fig21", rows, _OVER_SEQUENTIAL, "steps")
    return f"Mean latency of one pass over the sequential one: {'; '.join(parts)}.{short}"


register(
    "top_fig21",
    rows=lambda data: [row for row in serving.point_rows(data, "gpg", _STEPS) if row["system"] == CURVE],
    chart=serving.point_lines(_STEPS, _OVER_SEQUENTIAL, "latency over sequential", _scenario),
    compare=lambda rows: steps_compared("top_fig21", rows, _OVER_SEQUENTIAL, falls=True),
    finding=fig21_finding,
)


def fig22_finding(rows: Rows) -> str:
    """Where curves begin and end, and which policy is best on held-out traces."""
    parts = []
    for scenario, over in serving.by_scenario(rows, CURVE, _STEPS, _GOODPUT).items():
        ends = [row for row in rows if row["scenario"] == scenario and row["system"] != CURVE]
        best = max(ends, key=lambda row: float(row[_GOODPUT]))
        first, last, most = over[min(over)], over[max(over)], max(over.values())
        curve = f"from {first:.4g} to {last:.4g} a second"
        if most > last:
            curve += f", at most {most:.4g}"
        if serving.is_flat(over):
            curve += " (hardly any change, so where it converges means nothing)"
        drawn = ", ".join(f"{row[_GOODPUT]:.4g}" for row in ends if row["system"] == RANDOM_SEARCH)
        beside = f", random search with as many steps has {drawn}" if drawn and best["system"] != RANDOM_SEARCH else ""
        parts.append(f"{scenario} {curve}; best on other traces is {best['system']} with {best[_GOODPUT]:.4g}{beside}")
    short = _too_short("top_fig22", rows, _GOODPUT, "launcher_steps")
    return f"Goodput of the learned launcher while it learns, simulated: {'; '.join(parts)}.{short}"


# Goodput after a number of steps on traces that judge; that of all policies on held-out traces at the end.
register(
    "top_fig22",
    rows=lambda data: [row for row in serving.point_rows(data, "launcher", _STEPS) if row["system"] != LAUNCHER_STEP],
    chart=serving.point_lines(_STEPS, _GOODPUT, "goodput per second", _scenario_and_system),
    compare=lambda rows: steps_compared("top_fig22", rows, _GOODPUT, falls=False),
    finding=fig22_finding,
)

# Figure 23: several models on the same input.
_SYNCHRONOUS, _AT_ONCE = "synchronous tasks per s", "models at once"


def fig23_finding(rows: Rows) -> str:
    """What TOP gains over synchronous rounds."""
    parts = []
    for scenario, own in grouped(rows, "scenario").items():
        values = {row["system"]: row[_SYNCHRONOUS] for row in own}
        others = [
            f"{100 * (values[serving.TOP] / values[system] - 1):+.1f} % over {words}"
            for system, words in (("pos-strict", "pos-strict (POS-like)"), ("ios", "ios"), ("sequential", "sequential"))
            if values.get(system)
        ]
        parts.append(f"{scenario}: top {values[serving.TOP]:.4g} a second, {', '.join(others)}")
    return f"Predicted: {'; '.join(parts)}.{_beside(rows, _AT_ONCE)}"


register(
    "top_fig23",
    rows=lambda data: serving.point_rows(data, "together", _AT_ONCE),
    chart=serving.point_bars(_scenario_and_system, _SYNCHRONOUS, "synchronous tasks per second"),
    finding=fig23_finding,
)

# Figure 24: copies of one model.
_COPIES = "copies"


def fig24_finding(rows: Rows) -> str:
    """What the most copies gain over one."""
    parts = []
    for system in ("sequential", serving.TOP):
        for scenario, over in serving.by_scenario(rows, system, _COPIES, _TASKS).items():
            gain = 100 * (over[max(over)] / over[min(over)] - 1)
            parts.append(f"{scenario} under {system} {gain:+.1f} % with {max(over):g} copies")
    parts += serving.fitting(rows, COPIES_THAT_FIT, "copies")
    return f"Predicted, overloaded: {'; '.join(parts)}.{_ends(rows, _COPIES, 'sequential', serving.TOP)}"


register(
    "top_fig24",
    rows=lambda data: serving.point_rows(data, "copies", _COPIES),
    chart=serving.point_lines(_COPIES, _TASKS, "tasks per second", _scenario_and_system),
    finding=fig24_finding,
)

# Figures 25 to 27: stages, throughput, utilisation and systems over the batch size.
_BATCH, _FILLED = "batch", "filled %"


register(
    "top_fig25",
    rows=lambda data: [row for row in serving.point_rows(data, "batches", _BATCH) if row.get(_STAGES) is not None],
    chart=serving.point_lines(_BATCH, _GROUPS, "groups of a stage, mean", _scenario, log=True),
    finding=lambda rows: f"Predicted, {forms(rows, _BATCH, lambda row: f'batch {row[_BATCH]:g}')}",
)


def fig26_rows(data: FigureData) -> Rows:
    """Scenarios of several models under top."""
    return [
        row for row in serving.point_rows(data, "batches", _BATCH) if row["models"] > 1 and row["system"] == serving.TOP
    ]


def fig26_comparisons(rows: Rows) -> list[Comparison]:
    """Where throughput saturates, and how full the GPU is with the largest batch."""
    size = saturation(rows, _BATCH, _INPUTS, number("top_fig26.saturation"))
    filled = [over[max(over)] for over in serving.by_scenario(rows, serving.TOP, _BATCH, _FILLED).values()]
    share = max(filled) if filled and serving.on_gpu(rows, "A100") else None
    return comparisons("top_fig26", {"saturation": size, "utilisation": share})


def fig26_finding(rows: Rows) -> str:
    """Throughput and utilization of the smallest and largest batch."""
    parts = []
    for scenario, over in serving.by_scenario(rows, serving.TOP, _BATCH, _INPUTS).items():
        filled = serving.by_scenario(rows, serving.TOP, _BATCH, _FILLED)[scenario]
        ends = [
            f"batch {size:g} {over[size]:.4g} inputs/s, {filled[size]:.0f} % filled" for size in (min(over), max(over))
        ]
        parts.append(f"{scenario}: {', '.join(ends)}")
    parts += serving.fitting(rows, BATCH_THAT_FITS, "inputs of a batch")
    return f"Predicted, overloaded: {'; '.join(parts)}.{_ends(rows, _BATCH, serving.TOP)}"


register(
    "top_fig26",
    rows=fig26_rows,
    chart=serving.point_lines(_BATCH, _INPUTS, "inputs per second", _scenario, log=True),
    compare=fig26_comparisons,
    finding=fig26_finding,
)


def fig27_comparisons(rows: Rows) -> list[Comparison]:
    """Where throughput saturates, of the model that does so last."""
    return comparisons("top_fig27", {"saturation": saturation(rows, _BATCH, _INPUTS, number("top_fig27.saturation"))})


def fig27_finding(rows: Rows) -> str:
    """What TOP gains over IOS with the smallest and the largest batch."""
    parts = []
    for scenario, over in serving.by_scenario(rows, serving.TOP, _BATCH, _INPUTS).items():
        others = serving.by_scenario(rows, "ios", _BATCH, _INPUTS)[scenario]
        ends = [
            f"{100 * (over[size] / others[size] - 1):+.1f} % with batch {size:g}" for size in (min(over), max(over))
        ]
        parts.append(f"{scenario} {', '.join(ends)}, saturates at {serving.saturation(over):g}")
    parts += serving.fitting(rows, BATCH_THAT_FITS, "inputs of a batch")
    return f"top over ios, predicted, overloaded: {'; '.join(parts)}.{_ends(rows, _BATCH, serving.TOP, 'ios')}"


register(
    "top_fig27",
    rows=lambda data: [row for row in serving.point_rows(data, "batches", _BATCH) if row["models"] == 1],
    chart=serving.point_bars(
        lambda row: f"{row['scenario']}, batch {row[_BATCH]}, {row['system']}", _INPUTS, "inputs per second"
    ),
    compare=fig27_comparisons,
    finding=fig27_finding,
)

# Table II: the networks.
register(
    "top_tab2",
    rows=lambda data: runs.size_rows((inception_v3(), resnet50(pooled=True), squeezenet())),
    compare=lambda rows: runs.columns_compared("top_tab2", rows),
)
