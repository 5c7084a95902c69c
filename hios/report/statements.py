"""Results in words: sentences on runs and how reliable they are, and what the costs behind predictions are based on.

The three numbers of the summary are made here too. Costs are a list with meanings, and short lines.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from hios.core.costs import DEFAULT_ALPHA, CostsFile, LinkModel, ProfileSummary, predicted_for
from hios.core.drift import Estimate
from hios.core.graph import Graph
from hios.formats.run import Baseline, ReferenceResult, ScheduleResult
from hios.machine.description import BUSY
from hios.machine.statistics import Interval, speedup_interval, tells
from hios.report.graph_svg import counted
from hios.report.results import ModelResults, virtual_text
from hios.report.tables import reference_rows
from hios.runtime import predictions

#: Share of the number of devices below which devices are not independent.
FULL_CEILING = 0.9

#: Share of the measured latency from which on the error of a prediction is large.
LARGE_ERROR = 0.1

#: Entries of run.json that have latencies.
_Timed = Baseline | ReferenceResult | ScheduleResult


def cautions(models: Sequence[ModelResults]) -> list[str]:
    """Sentences on measurements that other programs or shared hardware disturbed, or that are of other hardware."""
    sentences = []
    for model in models:
        sentences += _virtual_cautions(model)
        said = (
            predictions.change_in_words(model.costs.probe, f"the profile of {model.name}"),
            predictions.change_in_words(model.run.probe, f"the runs of {model.name}"),
            predictions.other_hardware_in_words(model.run, model.name),
            predictions.other_work_in_words(model.run, model.name),
        )
        sentences += [sentence for sentence in said if sentence is not None]
        sentences += [
            f"{ceiling.devices} independent copies of {model.name} reached only "
            f"{ceiling.throughput_ratio:.2f} times the throughput of one: the cores share hardware, "
            "or a neighbor was busy."
            for ceiling in model.run.ceilings
            if ceiling.throughput_ratio < FULL_CEILING * ceiling.devices
        ]
        sentences += _large_errors(model)
    return sentences


def _large_errors(model: ModelResults) -> list[str]:
    """On predictions that are far from what was measured."""
    large = [result for result in model.run.results if abs(result.prediction_error) > LARGE_ERROR]
    if not large:
        return []
    errors = ", ".join(f"{result.label} {result.prediction_error:+.1%}" for result in large)
    cut = any(result.segments for result in large)
    why = "they are of single operators, where devices ran segments, so " if cut else ""
    return [
        f"{len(large)} of {len(model.run.results)} predictions of {model.name} are more than {LARGE_ERROR:.0%} off "
        f"what was measured ({errors}): {why}the cost model may rank these schedules wrongly, and their lower bounds "
        "hold for the model only."
    ]


def _virtual_cautions(model: ModelResults) -> list[str]:
    """On runs and costs whose devices share hardware; one sentence where it is the same."""
    costs = model.costs.platform
    both = virtual_text(model.run.platform), None if costs is None else virtual_text(costs)
    if both[0] == both[1] is not None:
        return [f"{model.name} was profiled and run on {both[0]}."]
    done = f"{model.name} was run on", f"The costs of {model.name} were measured on"
    return [f"{what} {text}." for what, text in zip(done, both, strict=True) if text is not None]


def ceiling_sentences(model: ModelResults) -> list[str]:
    """The largest throughput of the machine, as the measured ceilings show it."""
    decimals = model.decimals
    return [
        f"Ceiling: {ceiling.devices} independent copies of the model, one per device, had "
        f"{ceiling.throughput_ratio:.2f} times the throughput of one copy ({ceiling.devices} on a machine that "
        f"shares nothing); each took {ceiling.latency_ms.median:.{decimals}f} ms "
        f"(p20 {ceiling.latency_ms.p20:.{decimals}f}, p80 {ceiling.latency_ms.p80:.{decimals}f})."
        for ceiling in model.run.ceilings
    ]


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
    bounds = _interval(baseline, reference)
    meaning = "what the engine itself costs (above 1) or saves (below 1)"
    if segments := predictions.runtimes_in_words(baseline.segments or ()):
        meaning = f"what {segments} cost (above 1) or save (below 1)"
    if bounds is not None and not tells(bounds):
        meaning = "the two are statistically tied"
    return (
        f"The engine's sequential schedule on one device takes {ratio:.3f} times as long as "
        f"{reference.name}{_in_words(bounds, 3)}: {meaning}."
    )


def fastest_sentence(model: ModelResults) -> str | None:
    """The fastest schedule, what is statistically tied with it, and faster references; None without results."""
    if model.fastest is None:
        return None
    results = model.run.results
    best = results[model.fastest]
    parts = [
        f"Fastest schedule as measured: {best.label}, {best.latency_ms.median:.{model.decimals}f} ms, {_gain(best)}."
    ]
    others = [result for result in results if result is not best]
    tied = [result.label for result in others if _tied(result, best)]
    if tied:
        parts.append(f"Statistically tied with it: {', '.join(tied)}.")
    unsure = [
        result.label
        for result in others
        if result.latency_ms.p20 <= best.latency_ms.p80 and _interval(result, best) is None
    ]
    if unsure:
        parts.append(f"Its range from p20 to p80 overlaps with {', '.join(unsure)}: the order may be noise.")
    if equal := [label for label, ends in _references_against(model, best) if ends is not None and not tells(ends)]:
        parts.append(f"References statistically tied with it: {', '.join(equal)}.")
    if faster := faster_references(model):
        parts.append(f"Faster than every schedule: {', '.join(faster)}.")
    return " ".join(parts)


def fastest_way_sentence(model: ModelResults) -> str | None:
    """The fastest way of all to run a network: schedules, the sequential one, other runtimes; None without results."""
    if not model.run.results:
        return None
    timed = _ways(model)
    label = _fastest(timed)
    best = timed[label]
    sentence = f"Fastest of all {len(timed)} ways: {label}, {best.latency_ms.median:.{model.decimals}f} ms"
    return f"{sentence}{_ties(timed, label)}."


def _ways(model: ModelResults) -> dict[str, _Timed]:
    """Every way that a network was run, by its label; the sequential schedule is the engine's baseline once more."""
    run = model.run
    labels = [row["label"] for row in reference_rows(model) if row["kind"] == "reference"]
    return {
        **dict(zip(labels, run.references, strict=True)),
        "sequential on one device": run.baseline,
        **{result.label: result for result in run.results if (result.algorithm, result.devices) != ("sequential", 1)},
    }


def _ties(timed: Mapping[str, _Timed], label: str) -> str:
    """What is statistically tied with a way, as it follows in a sentence on that."""
    tied = [name for name, own in timed.items() if name != label and _tied(own, timed[label])]
    return f"; statistically tied: {', '.join(tied)}" if tied else ""


def _fastest(timed: Mapping[str, _Timed]) -> str:
    return min(timed, key=lambda name: timed[name].latency_ms.median)


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do with a model after a run: what is fastest, and the line of Python that gives it, if there is one."""

    anchor: str
    name: str
    sentence: str
    line: str


def advice(models: Sequence[ModelResults]) -> list[Advice]:
    """What to do with each model that was run on cores of its own; others are left out."""
    return [
        _advice(f"model-{number}", model)
        for number, model in enumerate(models, start=1)
        if model.run.results and model.run.platform.name == "cpu" and not model.run.platform.virtual
    ]


def _advice(anchor: str, model: ModelResults) -> Advice:
    """The fastest way, compared with PyTorch as it is, and whether branches could make a schedule faster."""
    timed = _ways(model)
    label = _fastest(timed)
    way = timed[label]
    sentence = f"{label}, {way.latency_ms.median:.{model.decimals}f} ms"
    eager = {name: own for name, own in timed.items() if isinstance(own, ReferenceResult) and own.kind == "eager"}
    if eager and label not in eager:
        other = _fastest(eager)
        ratio = eager[other].latency_ms.median / way.latency_ms.median
        sentence += f", {ratio:.2f} times as fast as {other}{_in_words(_interval(eager[other], way), 2)}"
    sentence += _ties(timed, label)
    sentence += f"{chain_note(model.graph, model.costs)}."
    # An ONNX file is checked against ONNX Runtime; hios.optimize takes only torch modules.
    line = "" if model.run.checked_against == "onnxruntime" else _line(way)
    return Advice(anchor, model.name, f"{sentence} Nothing to do." if label in eager else sentence, line)


def chain_note(graph: Graph, costs: CostsFile) -> str:
    """What is said of a graph whose operators each wait for the one before, also where edges skip some; else empty."""
    edges = {(edge.source, edge.target) for edge in graph.edges}
    one_by_one = edges.issuperset(pairwise(graph.operators[place].id for place in graph.order))
    # An operator on several devices gains all the same.
    is_wide = any(cost.wide_ms for cost in costs.operators.values())
    return "; a chain: no schedule gains" if one_by_one and not is_wide else ""


def _line(way: _Timed) -> str:
    """What runs a model in that way; empty where PyTorch itself does, or `hios.optimize` lacks the way."""
    if isinstance(way, ScheduleResult) and (way.algorithm, way.devices) != ("sequential", 1):
        return f'fast = hios.optimize(model, inputs, algorithm="{way.algorithm}", devices={way.devices})'
    kind = way.kind if isinstance(way, ReferenceResult) else "engine"
    is_parallel = isinstance(way, ReferenceResult) and ", parallel, " in way.name  # operators of ONNX Runtime
    if kind in _WAYS and not is_parallel:
        return f'fast = hios.optimize(model, inputs, way="{_WAYS[kind]}")'
    return ""


#: Values of `hios.optimize`'s ``way`` by kinds of references.
_WAYS = {"engine": "schedule", "compile": "compile", "onnxruntime": "onnxruntime", "openvino": "openvino"}


def slower_sentence(model: ModelResults) -> str | None:
    """Schedules that are certainly slower than the sequential one on one device; None if there are none."""
    slower = [
        f"{result.label} ({result.speedup:.2f})"
        for result in model.run.results
        if result.speedup_interval is not None and result.speedup_interval[1] < 1
    ]
    if not slower:
        return None
    return f"Slower than the sequential schedule on one device: {', '.join(slower)}."


def cut_sentence(model: ModelResults) -> str | None:
    """Schedules from a search that cut the graph into pieces; None if there are none."""
    cut = [f"{result.label} ({result.cuts})" for result in model.run.results if result.cuts]
    if not cut:
        return None
    return (
        f"Searched in pieces, number of cuts in brackets: {', '.join(cut)}. Such a schedule is the best of those in "
        "which no stage crosses a cut; a larger value of the parameter states may find a better one."
    )


def faster_references(model: ModelResults) -> list[str]:
    """References that are faster than the fastest schedule, with medians; by intervals if there are any."""
    if model.fastest is None:
        return []
    best = model.run.results[model.fastest]
    sure = {label for label, ends in _references_against(model, best) if ends is None or tells(ends)}
    best_ms = best.latency_ms.median
    return [
        f"{row['label']} ({row['measured_median_ms']:.{model.decimals}f} ms)"
        for row in reference_rows(model)
        if row["label"] in sure and row["measured_median_ms"] < best_ms
    ]


def _gain(result: ScheduleResult) -> str:
    """The speedup of a schedule over the sequential one, or that the two are tied."""
    speedup, ends = result.speedup, result.speedup_interval
    if ends == (1.0, 1.0):
        return "which is the sequential schedule on one device"
    if ends is not None and not tells((ends[0], ends[1])):
        return (
            f"statistically tied with the sequential schedule on one device (speedup {speedup:.2f}, 95 % "
            f"interval {ends[0]:.2f} to {ends[1]:.2f})"
        )
    slower = ", slower than it" if speedup < 1 else ""
    return f"{speedup:.2f} times as fast as the sequential schedule on one device{slower}{_in_words(ends, 2)}"


def _references_against(model: ModelResults, result: ScheduleResult) -> list[tuple[str, Interval | None]]:
    """Labels of baseline and references, and the interval of their speedup over a schedule.

    The baseline is left out where it is one of the schedules.
    """
    timed: list[_Timed] = [model.run.baseline, *model.run.references]
    pairs = zip(reference_rows(model), timed, strict=True)
    return [
        (row["label"], _interval(result, entry))
        for row, entry in pairs
        if row["kind"] == "reference" or not model.has_sequential
    ]


def _interval(slower: _Timed, faster: _Timed) -> Interval | None:
    return speedup_interval(slower.latency_ms.runs, faster.latency_ms.runs)


def _tied(one: _Timed, other: _Timed) -> bool:
    """Whether the interval of their ratio contains 1; it cannot where all runs of one are slower, so none is drawn."""
    ours, theirs = one.latency_ms.runs, other.latency_ms.runs
    if ours and theirs and (min(ours) > max(theirs) or max(ours) < min(theirs)):
        return False
    bounds = _interval(one, other)
    return bounds is not None and not tells(bounds)


def _in_words(bounds: Sequence[float] | None, decimals: int) -> str:
    return "" if bounds is None else f" (95 % interval {bounds[0]:.{decimals}f} to {bounds[1]:.{decimals}f})"


@dataclass(frozen=True, slots=True)
class Headline:
    """A number with its unit, what it says, of which results, and the identity of the row that shows it."""

    name: str
    value: str
    sentence: str
    anchor: str


def row_anchor(table: str, model: int, position: int) -> str:
    """Identity of a row of a table of schedules: ``measured`` or ``predicted``; models are counted from 1."""
    return f"{table}-{model}-{position}"


def headlines(models: Sequence[ModelResults]) -> list[Headline]:
    """Best speedup, certified gap and prediction error; those that the results do not have are left out."""
    rows = [
        (number, position, model, result)
        for number, model in enumerate(models, start=1)
        for position, result in enumerate(model.run.results)
    ]
    return [*_speedup(rows), *_gap(models), *_error(rows)]


#: Number of the model, position in its results, the model, the result.
_Row = tuple[int, int, ModelResults, ScheduleResult]


def _speedup(rows: Sequence[_Row]) -> Iterator[Headline]:
    if not rows:
        return
    number, position, model, best = max(rows, key=lambda row: row[3].speedup)
    ends = best.speedup_interval
    interval = "" if ends is None else f", 95 % interval {ends[0]:.2f} to {ends[1]:.2f}"
    if best.algorithm == "sequential" and best.devices == 1:
        sentence = f"no schedule was faster than the sequential one on one device{interval}"
    else:
        sentence = (
            f"the largest measured speedup over the sequential schedule on one device: {best.label} on "
            f"{model.name}{interval}"
        )
    if ends is not None and not tells((ends[0], ends[1])):
        sentence += "; statistically tied, so no schedule is known to be faster"
    elif best.speedup < 1:
        sentence += "; below 1, so every schedule is slower"
    busy = model.run.platform.busy_share
    if busy is not None and busy > BUSY:
        sentence += f"; measured while other work took {busy:.0%} of the cores' time, so not to be relied on"
    if model.run.platform.virtual:
        sentence += "; on virtual devices, whose times say little"
    yield Headline("Best speedup", f"{best.speedup:.2f} times", sentence, row_anchor("measured", number, position))


def _gap(models: Sequence[ModelResults]) -> Iterator[Headline]:
    """Of the schedules with the lowest predicted latency of their models, the one farthest above its lower bound."""
    best = []
    for number, model in enumerate(models, start=1):
        bounded = [entry for entry in enumerate(model.run.results) if entry[1].lower_bound_ms > 0]
        if bounded:
            position, result = min(bounded, key=lambda entry: entry[1].predicted_ms)
            best.append((result.predicted_ms / result.lower_bound_ms - 1, number, position, model, result))
    if not best:
        return
    gap, number, position, model, result = max(best, key=lambda entry: entry[0])
    yield Headline(
        "Certified gap",
        f"{100 * max(gap, 0.0):.1f} %",
        "the fastest predicted schedule of every model is at most this far above its lower bound, and under the "
        f"measured costs no schedule is below that bound; the largest gap is that of {result.label} on {model.name}",
        row_anchor("predicted", number, position),
    )


def _error(rows: Sequence[_Row]) -> Iterator[Headline]:
    if not rows:
        return
    errors = [abs(result.prediction_error) for _, _, _, result in rows]
    number, position, model, worst = max(rows, key=lambda row: abs(row[3].prediction_error))
    yield Headline(
        "Prediction error",
        f"{100 * statistics.median(errors):.1f} %",
        f"in the median of {len(rows)} schedule{'s' * (len(rows) != 1)}, predicted against measured latency; at most "
        f"{100 * max(errors):.1f} %, {worst.label} on {model.name}",
        row_anchor("predicted", number, position),
    )


class CostEntry(NamedTuple):
    """A measured number in words, and what it means to someone who sees it for the first time."""

    name: str
    value: str
    meaning: str


def cost_summary(costs: CostsFile, graph: Graph | None = None) -> list[CostEntry]:
    """Everything that costs.json states on how it was measured and on its models; handwritten files state less.

    Of operators that ``graph`` lacks nothing is said.
    """
    return [
        _operators(costs, graph),
        *_probe(costs),
        *_effort(costs),
        *_stages(costs),
        *_contention(costs),
        *_corun(costs),
        *_link(costs),
    ]


def _operators(costs: CostsFile, graph: Graph | None) -> CostEntry:
    times = [entry.time_ms for name, entry in costs.operators.items() if graph is None or name in graph.index]
    words = predicted_for(costs.platform)
    return CostEntry(
        "Operators" if words is None else "Operators, predicted",
        f"{len(times)}, {sum(times):.4g} ms one after another",
        f"t(v), the time of each alone on one device, added up; {words or 'equal operators are measured once'}",
    )


def _probe(costs: CostsFile) -> Iterator[CostEntry]:
    if costs.probe is not None:
        speed = costs.probe.speed
        yield CostEntry(
            "Probe",
            f"convolutions {speed.compute_ms.value:.4g} ms, copies {speed.copy_ms.value:.4g} ms",
            "a fixed piece of work, timed while operators were measured and again in runs: what it takes longer there "
            f"is drift of the machine; copies count {costs.probe.copy_share:.0%}, the share of the network's time in "
            "operators that memory limits",
        )


def _effort(costs: CostsFile) -> Iterator[CostEntry]:
    profile = costs.profile
    if profile is None:
        return
    certain = f"{profile.precision:.0%}"
    wide = f"{profile.imprecise} not certain" if profile.imprecise else "all certain"
    yield CostEntry(
        "Repeats",
        f"{profile.repeats} at least; {wide} within {certain}",
        f"a median is certain when its 95 % interval is narrower than {certain} of it; more repeats make it so",
    )
    yield CostEntry(
        "Measuring took",
        f"{profile.seconds:.0f} s, budget {profile.budget_s:g} s",
        "when the budget is spent, repeating ends and stages are left to the contention model",
    )
    yield CostEntry("Measurements", _cached(profile), "the cache keeps those of this hardware, software and code")
    if profile.drift is not None:
        yield CostEntry(
            "Drift",
            f"{profile.drift:.3f} times the time in the cache",
            "operators that the cache knows, measured again; too far from 1, all are measured anew",
        )


def _cached(profile: ProfileSummary) -> str:
    text, cached = f"{profile.measured} in this profile", profile.cached
    if cached:
        share = cached / (profile.measured + cached)
        ends = dict.fromkeys(moment[:10] for moment in (profile.cached_from, profile.cached_until) if moment)
        text += f", {cached} ({share:.0%}) from the cache, made {' to '.join(ends) or 'at a time not recorded'}"
    else:
        text += ", none from the cache"
    return text if profile.kept is not False else f"{text}; not kept, as other work kept the cores busy"


def _stages(costs: CostsFile) -> Iterator[CostEntry]:
    modelled = 0 if costs.profile is None else costs.profile.modelled
    measured = [counted(len(kind), name) for name, kind in (("stage", costs.stages), ("merge", costs.merges)) if kind]
    if measured or modelled:
        left = f"; {modelled} left to models" if modelled else ""
        yield CostEntry(
            "Stages",
            f"{' and '.join(measured) or 'none'} measured{left}",
            "t(S) of operators beside each other on one device, and operators merged into one, as algorithms asked for",
        )


def _contention(costs: CostsFile) -> Iterator[CostEntry]:
    contention, overheads = costs.contention, costs.overheads
    if overheads is not None:
        yield CostEntry(
            "Overheads",
            f"{1e3 * overheads.launch_ms:.3g} µs a launch, {1e3 * overheads.sync_ms:.3g} µs a synchronization, "
            f"{1e3 * overheads.stage_ms:.3g} µs a further group of a stage",
            "beyond the times of operators: for each of them, each value that another stream or device made, and each "
            "group of a stage but one",
        )
    if contention is not None and contention.kind == "resources":
        yield CostEntry(
            "Contention",
            "operators share slots, arithmetic and memory bandwidth",
            "stages that were not measured, and streams: each operator gets its max-min fair share of what is scarce; "
            "where slots are full, earlier launches come first",
        )
    if contention is None or contention.kind != "blend":
        return
    error = contention.error
    off = (
        f"; off by {error.median:.1%} (median; p90 {error.p90:.1%}) on {error.stages} stages held out"
        if error
        else "; not checked against stages"
    )
    yield CostEntry(
        "Contention",
        f"alpha {DEFAULT_ALPHA if contention.alpha is None else contention.alpha:.3g}{off}",
        "stages that were not measured: with alpha 1 operators beside each other take as long as one after another, "
        "with 0 they share the device as far as each leaves room",
    )


def _corun(costs: CostsFile) -> Iterator[CostEntry]:
    factors = []
    for entry in costs.corun:
        ends = "" if entry.interval is None else " (95 % {:.3f} to {:.3f})".format(*entry.interval)
        beside = ", measured beside other work" if entry.beside_other_work else ""
        factors.append(f"{entry.devices} devices {entry.factor:.3f} times as long{ends}{beside}")
    if factors:
        yield CostEntry(
            "Devices at once",
            "; ".join(factors),
            "devices share memory and caches: in schedules for so many of them, operators are predicted to take longer "
            "by this factor",
        )


def _link(costs: CostsFile) -> Iterator[CostEntry]:
    link = costs.transfers if isinstance(costs.transfers, LinkModel) else costs.link
    if link is None:
        return
    latency_ms, gbps = link.latency_ms, link.bandwidth_gbps
    error = None if isinstance(link, LinkModel) else link.error
    off = f"; off by {error.median:.0%} (median; largest {error.largest:.0%}) over {error.sizes} sizes" if error else ""
    yield CostEntry(
        "Link between devices",
        f"{1e3 * latency_ms:.3g} µs and {gbps:.3g} Gbit/s{off}",
        f"handing a value over: one of 1 MB takes {latency_ms + 8 / gbps:.3g} ms",
    )


def profile_summary(costs: CostsFile) -> str:
    """What costs.json holds, in one line: numbers of operators, stages, merges and transfers, and the sum of t(v)."""
    transfers = 0 if isinstance(costs.transfers, LinkModel) else len(costs.transfers)
    predicted = "" if (words := predicted_for(costs.platform)) is None else f"{words}; "
    total_ms = sum(entry.time_ms for entry in costs.operators.values())
    return (
        f"{predicted}{len(costs.operators)} operators, {len(costs.stages)} stages, {len(costs.merges)} merges and "
        f"{transfers} transfers; all operators one after another take {total_ms:.4g} ms"
    )


def profile_details(costs: CostsFile) -> list[str]:
    """How much was measured, how much came from the cache, and how precise both are: a line each."""
    parts = [] if costs.profile is None else _profile_effort(costs.profile)
    if costs.platform is not None and costs.profile is not None and costs.profile.kept is False:
        busy = costs.platform.busy_share
        parts.append(f"none kept in the cache, as other work took {busy:.0%} of the cores' time before")
    if costs.probe is not None:
        speed = costs.probe.speed
        parts.append(
            f"probe of the machine's speed {_certain(speed.compute_ms)} ms of convolutions, "
            f"{_certain(speed.copy_ms)} ms of copies"
        )
    contention = costs.contention
    if contention is not None and (error := contention.error) is not None:
        parts.append(
            f"contention model with alpha {contention.alpha:g}, off by {error.median:.1%} (median; p90 "
            f"{error.p90:.1%}) on {error.stages} stages held out"
        )
    if costs.corun:
        factors = ", ".join(f"{entry.devices} devices {entry.factor:.3f}" for entry in costs.corun)
        parts.append(f"co-run factor of {factors}")
    if (link := costs.link) is not None and (fit := link.error) is not None:
        parts.append(
            f"link of {1000 * link.latency_ms:.3g} us and {link.bandwidth_gbps:.3g} Gbit/s, off by "
            f"{fit.median:.0%} (median; largest {fit.largest:.0%})"
        )
    if costs.platform is not None and costs.platform.virtual:
        parts.append("virtual devices: times say little")
    return parts


def _certain(estimate: Estimate) -> str:
    """A time with half the width of its interval in per cent."""
    return f"{estimate.value:.4g} (+-{(estimate.high - estimate.low) / (2 * estimate.value):.1%})"


def _profile_effort(profile: ProfileSummary) -> list[str]:
    parts = [f"{profile.measured} measurements in {profile.seconds:.0f} s"]
    if profile.cached:
        ends = dict.fromkeys(moment[:10] for moment in (profile.cached_from, profile.cached_until) if moment)
        parts.append(f"{profile.cached} taken from the cache, made {' to '.join(ends)}")
    elif profile.drift is not None:
        parts.append(f"operators took {profile.drift:.2f} times as long as the cache says, so all were measured anew")
    if profile.imprecise:
        parts.append(f"{profile.imprecise} not certain within {profile.precision:.0%}")
    if profile.modelled:
        parts.append(f"{profile.modelled} stages or merges left to the models, as the budget was spent")
    return parts
