"""What predictions are based on: the numbers of costs.json in words, a list with meanings and short lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hios.core.costs import DEFAULT_ALPHA, CostsFile, LinkModel, ProfileSummary, predicted_for
from hios.core.drift import Estimate
from hios.report.graph_svg import counted


class CostEntry(NamedTuple):
    """A measured number in words, and what it means to someone who sees it for the first time."""

    name: str
    value: str
    meaning: str


def cost_summary(costs: CostsFile) -> list[CostEntry]:
    """Everything that costs.json states on how it was measured and on its models; handwritten files state less."""
    return [
        _operators(costs),
        *_probe(costs),
        *_effort(costs),
        *_stages(costs),
        *_contention(costs),
        *_corun(costs),
        *_link(costs),
    ]


def _operators(costs: CostsFile) -> CostEntry:
    times = [entry.time_ms for entry in costs.operators.values()]
    if (words := predicted_for(costs.platform)) is not None:
        return CostEntry(
            "Operators, predicted",
            f"{len(times)}, {sum(times):.4g} ms one after another",
            f"t(v), the time of each alone on one device, added up; {words}",
        )
    return CostEntry(
        "Operators",
        f"{len(times)}, {sum(times):.4g} ms one after another",
        "t(v), the time of each alone on one device, added up; equal operators are measured once",
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
    parts = [
        *([] if costs.profile is None else _profile_effort(costs.profile)),
        *_not_kept(costs),
    ]
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


def _not_kept(costs: CostsFile) -> list[str]:
    if costs.platform is None or costs.profile is None or costs.profile.kept is not False:
        return []
    return [f"none kept in the cache, as other work took {costs.platform.busy_share:.0%} of the cores' time before"]


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
