"""What was run and how far it can be trusted, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from hios.formats.run_file import Baseline, Ceiling, ReferenceResult, Run, ScheduleResult
from hios.graph import Graph
from hios.models import RUNTIMES
from hios.report.hardware import hardware, virtual_text
from hios.report.results import ModelResults
from hios.report.tables import reference_rows
from hios.runtime import predictions
from hios.statistics import Interval, speedup_interval, tells

#: Share of the number of devices below which devices are not independent.
FULL_CEILING = 0.9

#: What has latencies in run.json.
_Timed = Baseline | ReferenceResult | ScheduleResult

_UNKNOWN = "not recorded"
#: The longest fact, which stands by itself behind the others.
_LAST = "Software"
#: Batch, channels, height, width.
_IMAGE_DIMENSIONS = 4


def facts(models: Sequence[ModelResults]) -> list[tuple[str, str]]:
    """Name and text of every fact; where models differ, the text says which model has which."""
    described = {model.name: _described(model) for model in models}
    named = dict.fromkeys(fact for texts in described.values() for fact in texts)
    return [(fact, _merged(fact, described)) for fact in sorted(named, key=_LAST.__eq__)]


def _described(model: ModelResults) -> dict[str, str]:
    run = model.run
    versions = run.versions
    return {
        "Measured": _date(run),
        "Input": input_text(model.graph),
        **hardware(run.platform),
        "Runs of every competitor": f"{run.runs} measured, after {run.warmup} to warm up",
        "Seed": str(run.seed),
        "Outputs compared with": _check(run),
        _LAST: ", ".join(f"{name} {version}" for name, version in sorted(versions.items())) or _UNKNOWN,
    }


def _date(run: Run) -> str:
    if run.measured_at is None:
        return _UNKNOWN
    return f"{datetime.fromisoformat(run.measured_at):%Y-%m-%d %H:%M} UTC"


def input_text(graph: Graph) -> str:
    """What the network takes; batch and image size for images."""
    inputs = graph.inputs
    if len(inputs) == 1 and len(inputs[0].shape) == _IMAGE_DIMENSIONS:
        batch, channels, height, width = inputs[0].shape
        return f"batch {batch}, {height} x {width} pixels, {channels} channels, {inputs[0].dtype}"
    return ", ".join(f"{entry.dtype} {list(entry.shape)}" for entry in inputs) or _UNKNOWN


def _check(run: Run) -> str:
    checked = RUNTIMES.get(run.checked_against or "", "the sequential schedule")
    allowed = f"allowed {run.tolerance:g} absolute plus relative"
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


def cautions(models: Sequence[ModelResults]) -> list[str]:
    """Sentences on measurements that other programs or shared hardware disturbed."""
    found = []
    for model in models:
        found += _virtual_cautions(model)
        found += _changes(model)
        if (busy := predictions.other_work_in_words(model.run, model.name)) is not None:
            found.append(busy)
        found += [
            f"{ceiling.devices} independent copies of {model.name} reached only "
            f"{ceiling.throughput_ratio:.2f} times the throughput of one: the cores share hardware, "
            "or a neighbour was busy."
            for ceiling in model.run.ceilings
            if ceiling.throughput_ratio < FULL_CEILING * ceiling.devices
        ]
    return found


def _changes(model: ModelResults) -> list[str]:
    """On sessions in which the speed of the machine changed."""
    said = (
        predictions.change_in_words(model.costs.probe, f"the profile of {model.name}"),
        predictions.change_in_words(model.run.probe, f"the runs of {model.name}"),
    )
    return [sentence for sentence in said if sentence is not None]


def _virtual_cautions(model: ModelResults) -> list[str]:
    """On runs and costs whose devices share hardware; one sentence where it is the same."""
    costs = model.costs.platform
    both = virtual_text(model.run.platform), None if costs is None else virtual_text(costs)
    if both[0] == both[1] is not None:
        return [f"{model.name} was profiled and run on {both[0]}."]
    done = f"{model.name} was run on", f"The costs of {model.name} were measured on"
    return [f"{what} {text}." for what, text in zip(done, both, strict=True) if text is not None]


def ceiling_sentences(model: ModelResults) -> list[str]:
    """What the machine gives at most, as the ceilings measured it."""
    return [_ceiling_sentence(ceiling, model.decimals) for ceiling in model.run.ceilings]


def _ceiling_sentence(ceiling: Ceiling, decimals: int) -> str:
    devices, latency = ceiling.devices, ceiling.latency_ms
    return (
        f"Ceiling: {devices} independent copies of the model, one per device, had "
        f"{ceiling.throughput_ratio:.2f} times the throughput of one copy ({devices} on a machine that "
        f"shares nothing); each took {latency.median:.{decimals}f} ms "
        f"(p20 {latency.p20:.{decimals}f}, p80 {latency.p80:.{decimals}f})."
    )


def engine_sentence(model: ModelResults) -> str | None:
    """How the engine compares with plain PyTorch at equal means; None without a reference of one thread."""
    single = [
        reference for reference in model.run.references if reference.threads == 1 and reference.latency_ms.median > 0
    ]
    if not single:
        return None
    reference = min(single, key=lambda entry: "eager" not in entry.name.lower())
    baseline = model.run.baseline
    ratio = baseline.latency_ms.median / reference.latency_ms.median
    found = _interval(baseline, reference)
    meaning = "what the engine itself costs (above 1) or saves (below 1)"
    if found is not None and not tells(found):
        meaning = "no difference that these runs can tell"
    return (
        f"The engine's sequential schedule on one device takes {ratio:.3f} times as long as "
        f"{reference.name}{_in_words(found, 3)}: {meaning}."
    )


def fastest_sentence(model: ModelResults) -> str | None:
    """Which schedule is fastest, what the measurement cannot tell from it, and what is faster; None without results."""
    if model.fastest is None:
        return None
    results = model.run.results
    best = results[model.fastest]
    parts = [f"Fastest as measured: {best.label}, {best.latency_ms.median:.{model.decimals}f} ms, {_gain(best)}."]
    others = [result for result in results if result is not best]
    near = [result.label for result in others if (found := _interval(result, best)) and not tells(found)]
    if near:
        parts.append(f"Not to be told from it by these runs: {', '.join(near)}.")
    unsure = [
        result.label
        for result in others
        if _interval(result, best) is None and result.latency_ms.p20 <= best.latency_ms.p80
    ]
    if unsure:
        parts.append(f"Its range from p20 to p80 overlaps with {', '.join(unsure)}: the order may be noise.")
    if equal := [label for label, found in _references_against(model, best) if found is not None and not tells(found)]:
        parts.append(f"As fast, as far as these runs can tell: {', '.join(equal)}.")
    if faster := faster_references(model):
        parts.append(f"Faster than every schedule: {', '.join(faster)}.")
    return " ".join(parts)


def fastest_way_sentence(model: ModelResults) -> str | None:
    """The fastest way of all to run a network: schedules, the sequential one, other runtimes; None without results."""
    run = model.run
    if not run.results:
        return None
    labels = [row["label"] for row in reference_rows(model) if row["kind"] == "reference"]
    timed: dict[str, _Timed] = {
        **dict(zip(labels, run.references, strict=True)),
        "sequential on one device": run.baseline,
        **{result.label: result for result in run.results},
    }
    label = min(timed, key=lambda name: timed[name].latency_ms.median)
    best = timed[label]
    sentence = f"Fastest of all {len(timed)} ways: {label}, {best.latency_ms.median:.{model.decimals}f} ms"
    tied = [name for name, own in timed.items() if name != label and (e := _interval(own, best)) and not tells(e)]
    return f"{sentence}; statistically tied: {', '.join(tied)}." if tied else f"{sentence}."


def slower_sentence(model: ModelResults) -> str | None:
    """Which schedules are slower than the sequential one on one device beyond doubt; None if none is."""
    slower = [
        f"{result.label} ({result.speedup:.2f})"
        for result in model.run.results
        if result.speedup_interval is not None and result.speedup_interval[1] < 1
    ]
    if not slower:
        return None
    return f"Slower than the sequential schedule on one device: {', '.join(slower)}."


def cut_sentence(model: ModelResults) -> str | None:
    """Which schedules come from a search that cut the graph into pieces; None if none does."""
    cut = [f"{result.label} ({result.cuts})" for result in model.run.results if result.cuts]
    if not cut:
        return None
    return (
        f"Searched in pieces, number of cuts in brackets: {', '.join(cut)}. Such a schedule is the best of those in "
        "which no stage crosses a cut; a larger states may find a better one."
    )


def faster_references(model: ModelResults) -> list[str]:
    """References that are faster than the fastest schedule, with medians; by intervals if there are any."""
    if model.fastest is None:
        return []
    best = model.run.results[model.fastest]
    sure = {label for label, found in _references_against(model, best) if found is None or tells(found)}
    best_ms = best.latency_ms.median
    return [
        f"{row['label']} ({row['measured_median_ms']:.{model.decimals}f} ms)"
        for row in reference_rows(model)
        if row["label"] in sure and row["measured_median_ms"] < best_ms
    ]


def _gain(result: ScheduleResult) -> str:
    """The speedup of a schedule over the sequential one, or that there is none to be told."""
    speedup, ends = result.speedup, result.speedup_interval
    if ends == (1.0, 1.0):
        return "which is the sequential schedule on one device"
    if ends is not None and not tells((ends[0], ends[1])):
        return (
            f"not to be told from the sequential schedule on one device by these runs (speedup {speedup:.2f}, 95 % "
            f"interval {ends[0]:.2f} to {ends[1]:.2f})"
        )
    return f"{speedup:.2f} times as fast as the sequential schedule on one device{_in_words(ends, 2)}"


def _references_against(model: ModelResults, result: ScheduleResult) -> list[tuple[str, Interval | None]]:
    """Labels of the references, and the interval of their speedup over a schedule."""
    rows = [row for row in reference_rows(model) if row["kind"] == "reference"]
    return [
        (row["label"], _interval(result, reference)) for row, reference in zip(rows, model.run.references, strict=True)
    ]


def _interval(slower: _Timed, faster: _Timed) -> Interval | None:
    return speedup_interval(slower.latency_ms.runs, faster.latency_ms.runs)


def _in_words(found: Sequence[float] | None, decimals: int) -> str:
    return "" if found is None else f" (95 % interval {found[0]:.{decimals}f} to {found[1]:.{decimals}f})"
