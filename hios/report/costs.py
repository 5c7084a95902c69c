"""What predictions rest on: the numbers of costs.json, each with its unit and with what it means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hios.artifacts import Json
from hios.report.captions import counted


class CostFact(NamedTuple):
    """A measured number in words, and what it means to someone who sees it for the first time."""

    name: str
    value: str
    meaning: str


def cost_facts(costs: Json) -> list[CostFact]:
    """All that costs.json says of how it was measured and of the models in it; files by hand say less.

    Args:
        costs: contents of costs.json.
    """
    return [
        _operators(costs),
        *_probe(costs),
        *_effort(costs),
        *_stages(costs),
        *_contention(costs),
        *_corun(costs),
        *_link(costs),
    ]


def _operators(costs: Json) -> CostFact:
    times = [entry["time_ms"] for entry in costs["operators"].values()]
    return CostFact(
        "Operators",
        f"{len(times)}, {sum(times):.4g} ms one after another",
        "t(v), the time of each alone on one device, added up; equal operators are measured once",
    )


def _probe(costs: Json) -> Iterator[CostFact]:
    probe = costs.get("probe")
    if probe is not None:
        compute, copies = (probe["speed"][part]["value"] for part in ("compute_ms", "copy_ms"))
        yield CostFact(
            "Probe",
            f"convolutions {compute:.4g} ms, copies {copies:.4g} ms",
            "a fixed piece of work, timed while operators were measured and again in runs: what it takes longer there "
            f"is drift of the machine; copies count {probe['copy_share']:.0%}, the share of the network's time in "
            "operators that memory limits",
        )


def _effort(costs: Json) -> Iterator[CostFact]:
    profile = costs.get("profile")
    if profile is None:
        return
    certain = f"{profile['precision']:.0%}"
    wide = f"{profile['imprecise']} not certain" if profile["imprecise"] else "all certain"
    yield CostFact(
        "Repeats",
        f"{profile['repeats']} at least; {wide} within {certain}",
        f"a median is certain when its 95 % interval is narrower than {certain} of it; more repeats make it so",
    )
    yield CostFact(
        "Measuring took",
        f"{profile['seconds']:.0f} s, budget {profile['budget_s']:g} s",
        "when the budget is spent, repeating ends and stages are left to the contention model",
    )
    yield CostFact("Measurements", _cached(profile), "the cache keeps those of this hardware, software and code")
    if "drift" in profile:
        yield CostFact(
            "Drift",
            f"{profile['drift']:.3f} times the time in the cache",
            "operators that the cache knows, measured again; too far from 1, all are measured anew",
        )


def _cached(profile: Json) -> str:
    text, cached = f"{profile['measured']} in this profile", profile["cached"]
    if cached:
        share = cached / (profile["measured"] + cached)
        ends = list(dict.fromkeys(profile[key][:10] for key in ("cached_from", "cached_until")))
        text += f", {cached} ({share:.0%}) from the cache, made {' to '.join(ends)}"
    else:
        text += ", none from the cache"
    return text if profile.get("kept", True) else f"{text}; not kept, as other work kept the cores busy"


def _stages(costs: Json) -> Iterator[CostFact]:
    modelled = costs.get("profile", {}).get("modelled", 0)
    measured = [counted(len(costs[kind]), kind[:-1]) for kind in ("stages", "merges") if costs.get(kind)]
    if measured or modelled:
        left = f"; {modelled} left to models" if modelled else ""
        yield CostFact(
            "Stages",
            f"{' and '.join(measured) or 'none'} measured{left}",
            "t(S) of operators beside each other on one device, and operators merged into one, as algorithms asked for",
        )


def _contention(costs: Json) -> Iterator[CostFact]:
    contention = costs.get("contention")
    if contention is None or contention["kind"] != "blend":
        return
    error = contention.get("error")
    off = (
        f"; off by {error['median']:.1%} (median; p90 {error['p90']:.1%}) on {error['stages']} stages held out"
        if error
        else "; not checked against stages"
    )
    yield CostFact(
        "Contention",
        f"alpha {contention.get('alpha', 0.5):.3g}{off}",
        "stages that were not measured: with alpha 1 operators beside each other take as long as one after another, "
        "with 0 they share the device as far as each leaves room",
    )


def _corun(costs: Json) -> Iterator[CostFact]:
    factors = []
    for entry in costs.get("corun", ()):
        ends = "" if "interval" not in entry else " (95 % {:.3f} to {:.3f})".format(*entry["interval"])
        factors.append(f"{entry['devices']} devices {entry['factor']:.3f} times as long{ends}")
    if factors:
        yield CostFact(
            "Devices at once",
            "; ".join(factors),
            "devices share memory and caches: in schedules for so many of them, operators are predicted to take longer "
            "by this factor; 1 where the interval holds 1",
        )


def _link(costs: Json) -> Iterator[CostFact]:
    link = costs["transfers"] if isinstance(costs["transfers"], dict) else costs.get("link")
    if link is None:
        return
    latency_ms, gbps = link["latency_ms"], link["bandwidth_gbps"]
    error = link.get("error")
    off = (
        f"; off by {error['median']:.0%} (median; largest {error['largest']:.0%}) over {error['sizes']} sizes"
        if error
        else ""
    )
    yield CostFact(
        "Link between devices",
        f"{1e3 * latency_ms:.3g} µs and {gbps:.3g} Gbit/s{off}",
        f"handing a value over: one of 1 MB takes {latency_ms + 8 / gbps:.3g} ms",
    )
