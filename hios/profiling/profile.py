"""Measuring a graph on a platform: t(v), t(S), merged operators and t(u,v), to costs.json."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hios import artifacts, platforms
from hios.costs import Costs
from hios.errors import HiosWarning
from hios.graph import Graph
from hios.kernels.executable import require_executable
from hios.platforms.protocol import Description
from hios.profiling import contention, links, transfers
from hios.profiling.cache import Cache, Measured
from hios.profiling.contention import Contention
from hios.profiling.measurements import Session
from hios.profiling.requests import Questions
from hios.schedulers import find
from hios.statistics import FEWEST, PRECISION, interval, is_precise, spread
from hios.versions import versions

#: How often algorithms are asked again after new stages were measured; each answer may bring new questions.
_STAGE_PASSES = 3
#: Shares of the budget after which operators, transfers and devices at once are no longer repeated.
_OPERATORS, _TRANSFERS, _CORUN = 0.3, 0.4, 0.5
#: Share of the time left that merges may take.
_MERGES = 0.3
#: Share of the cores' time spent on other work above which nothing is kept for later.
_BUSY = 0.1
#: Seconds that measuring takes by default, where the least number of repeats does not need more.
DEFAULT_BUDGET_S = 120.0


def profile(
    graph: str | Path,
    output: str | Path,
    *,
    devices: int,
    repeats: int,
    stages_of: Sequence[str],
    budget_s: float = DEFAULT_BUDGET_S,
    cache: str | Path | None = None,
    platform: str = "cpu",
    virtual: bool = False,
    options: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Measure a graph on the devices of a platform and write costs.json; returns its contents.

    A platform on which nothing runs predicts the costs instead, and what is said here of measuring does not apply.

    Operators with equal signature are measured once. t(S) and the times of merged operators are measured for the stages
    and merges that the named algorithms ask for on 1 to ``devices`` devices, given the times found so far. Everything
    is repeated until the interval of its median is narrow (``statistics.PRECISION``), the budget is spent, or it was
    repeated five times as often as asked. Stages that the budget leaves out take the time of the contention model,
    fitted to those that were measured.

    Args:
        graph: graph.json, with calls and shapes.
        output: costs.json to write.
        devices: number of devices; they take turns in measuring.
        repeats: least number of measurements of all that is measured.
        stages_of: algorithms whose stages and merges are measured; others use models.
        budget_s: seconds for repeating beyond ``repeats``, and for stages and merges.
        cache: folder of measurements that are used, and added to unless other work kept the cores busy right before;
            None for neither.
        platform: one of ``PLATFORMS``.
        virtual: whether devices may share cores or GPUs.
        options: of the platform, by name.

    Raises:
        HiosError: bad graph, unknown algorithm, too many devices, a cache that cannot be written, or a worker failed.
    """
    known = Graph.read(graph)
    executes = platforms.entry(platform).executes
    if executes:
        require_executable(known)
    artifacts.require_writable(output)
    algorithms = [find(name).name for name in stages_of]
    described = platforms.describe(platform, devices, virtual=virtual, **(options or {}))
    if executes:
        folder = None if cache is None else Path(cache)
        costs = _measured(known, str(graph), described, repeats, algorithms, budget_s, folder)
    else:
        costs = platforms.predicting(platform).costs(known, described)
    data = {
        "graph": known.name,
        "graph_fingerprint": known.fingerprint,
        "platform": described,
        "versions": versions(),
        **costs,
    }
    artifacts.write(output, "costs", data)
    return data


def _measured(
    graph: Graph,
    path: str,
    platform: Description,
    repeats: int,
    algorithms: Sequence[str],
    budget_s: float,
    cache: Path | None,
) -> dict[str, Any]:
    """What costs.json says of measurements; arguments are those of `profile`, checked."""
    measuring = platforms.measuring(platform["name"])
    quiet = platform["busy_share"] <= _BUSY
    kept = Cache(cache, measuring.environment(platform), keep=quiet)
    began = time.monotonic()
    with measuring.bench(graph, path, platform) as bench:
        session = Session(graph, bench, repeats, kept)
        session.measure_operators(began + _OPERATORS * budget_s)
        transfers.measure_transfers(session, began + _TRANSFERS * budget_s)
        transfers.measure_corun(session, began + _CORUN * budget_s)
        asked = Questions(graph, session.stand_in)
        for _ in range(_STAGE_PASSES):
            before = len(asked.stages) + len(asked.merges)
            asked.ask(algorithms, bench.devices, Costs.from_json(_costs(session, asked)))
            if len(asked.stages) + len(asked.merges) == before:
                break
            # Merges are few; stages may take all the time that there is.
            session.measure_merges(asked, time.monotonic() + _MERGES * (began + budget_s - time.monotonic()))
            session.measure_stages(asked, began + budget_s)
        session.find_resources()  # in the end: what traces kernels may stay with the process, and slow what follows
        for remark in bench.remarks():
            warnings.warn(remark, HiosWarning, stacklevel=2)
    return {
        **_costs(session, asked),
        "profile": {
            **_summary(session, asked, repeats, budget_s, time.monotonic() - began),
            **({} if cache is None else {"kept": quiet}),
        },
    }


def _costs(session: Session, asked: Questions) -> dict[str, Any]:
    """What was measured so far, as costs.json states it."""
    graph, alone = session.graph, session.median_ms()
    sizes: dict[tuple[str, str], int] = {}
    for edge in graph.edges:
        ends = (edge.source, edge.target)
        sizes[ends] = max(sizes.get(ends, 0), edge.bytes or 0)
    fitted = contention.fit(
        {
            stage: statistics.median(found.samples) * sum(alone[operator] for group in stage for operator in group)
            for stage, found in session.stages.items()
        },
        alone,
    )
    link = links.fit({size: statistics.median(found.samples) for size, found in session.transfers.items()})
    return {
        "operators": {
            operator.id: {
                **_entry(session.operators[session.stand_in[operator.id]]),
                **_utilization(fitted, session.stand_in[operator.id]),
                **_resources(session, session.stand_in[operator.id]),
            }
            for operator in graph.operators
        },
        "transfers": [
            {"source": source, "target": target, **_entry(session.transfers[size])}
            for (source, target), size in sizes.items()
        ],
        **({} if link is None else {"link": _link(link)}),
        "stages": [
            {
                "groups": [list(group) for group in groups],
                **_ratio_entry(session.stages[alike], alone, (operator for group in alike for operator in group)),
            }
            for groups, alike in sorted(asked.stages.items())
            if alike in session.stages
        ],
        "merges": [
            {"operators": list(merge), **_ratio_entry(session.merges[alike], alone, alike)}
            for merge, alike in sorted(asked.merges.items())
            if alike in session.merges
        ],
        "contention": _contention(fitted),
        **({"corun": [_corun(devices, found) for devices, found in session.corun.items()]} if session.corun else {}),
    }


def _entry(found: Measured, scale: float = 1.0) -> dict[str, Any]:
    median, p20, p80 = (number * scale for number in spread(found.samples))
    low, high = (number * scale for number in interval(found.samples))
    return {
        "time_ms": median,
        "p20_ms": p20,
        "p80_ms": p80,
        "interval_ms": [low, high],
        "repeats": len(found.samples),
    }


def _ratio_entry(found: Measured, alone: dict[str, float], operators: Iterable[str]) -> dict[str, Any]:
    """t(S) as the operators' own times by the ratio of the stage to its operators one after another; so for merges.

    The two were taken right after each other, t(v) at another time: their plain comparison would take drift
    for a gain. A ratio that the interval of its median does not tell from 1 counts as 1, and so does one below 1 with
    too few samples for an interval: their range lies below it by chance too often.
    """
    total = sum(alone[operator] for operator in operators)
    low, high = interval(found.samples)
    told = low > 1.0 or (high < 1.0 and len(found.samples) >= FEWEST)
    entry = _entry(found, total)
    return entry if told else {**entry, "time_ms": total}


def _utilization(fitted: Contention, operator: str) -> dict[str, float]:
    return {"utilization": fitted.utilization[operator]} if operator in fitted.utilization else {}


def _resources(session: Session, operator: str) -> dict[str, Any]:
    return {"resources": session.resources[operator]} if operator in session.resources else {}


def _contention(fitted: Contention) -> dict[str, Any]:
    entry: dict[str, Any] = {"kind": "blend", "alpha": fitted.alpha}
    if fitted.median_error is not None:
        error = {"median": fitted.median_error, "p90": fitted.p90_error, "stages": fitted.held_out}
        entry["error"] = error
    return entry


def _link(link: links.FittedLink) -> dict[str, Any]:
    return {
        "latency_ms": link.model.latency_ms,
        "bandwidth_gbps": link.model.bandwidth_gbps,
        "error": {"median": link.median_error, "largest": link.largest_error, "sizes": link.sizes},
    }


def _corun(devices: int, found: Measured) -> dict[str, Any]:
    """The factor of devices that run at once; one that its interval does not tell from 1 counts as 1."""
    low, high = interval(found.samples)
    factor = 1.0 if low <= 1.0 else statistics.median(found.samples)
    return {"devices": devices, "factor": factor, "interval": [low, high], "repeats": len(found.samples)}


def _summary(session: Session, asked: Questions, repeats: int, budget_s: float, seconds: float) -> dict[str, Any]:
    """How much was measured, how well, and what came from the cache."""
    kinds = (session.operators, session.transfers, session.stages, session.merges, session.corun)
    everything: list[Measured] = [found for kind in kinds for found in kind.values()]
    cached = sorted(found.measured_at for found in everything if found.cached)
    open_stages = set(asked.stages.values()) - session.stages.keys()
    open_merges = set(asked.merges.values()) - session.merges.keys()
    return {
        "seconds": round(seconds, 1),
        "budget_s": budget_s,
        "repeats": repeats,
        "precision": PRECISION,
        "measured": len(everything) - len(cached),
        "imprecise": sum(not is_precise(found.samples) for found in everything),
        "modelled": len(open_stages) + len(open_merges),
        "cached": len(cached),
        **({"cached_from": cached[0], "cached_until": cached[-1]} if cached else {}),
        **({} if session.drift is None else {"drift": session.drift}),
    }
