"""Profiling a graph on a platform: t(v), t(S), merged operators and t(u,v)."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from hios import platforms
from hios.core.costs import (
    ContentionModel,
    CorunFactor,
    CostOverheads,
    Costs,
    CostsFile,
    MergeCost,
    OperatorCost,
    ProfileSummary,
    StageCost,
    TransferCost,
)
from hios.core.graph import Graph
from hios.errors import HiosWarning, PlatformError
from hios.files import option_defaults
from hios.files.base import Platform
from hios.files.versions import versions
from hios.kernels.executable import require_executable
from hios.machine.description import BUSY
from hios.machine.statistics import FEWEST, PRECISION, interval, is_precise, spread
from hios.platforms.timer import Merge
from hios.profiling import contention, transfers
from hios.profiling.cache import Cache, Measured
from hios.profiling.measurements import Session
from hios.profiling.stage_requests import StageRequests
from hios.schedulers import find
from hios.workers.arena import memory_file

#: How often algorithms are run again after new stages were measured, as they may request more.
_STAGE_PASSES = 3
#: Shares of the budget after which measurements of operators, of wide operators, of transfers and of co-run factors are
#: no longer repeated.
_OPERATORS, _WIDE, _TRANSFERS, _CORUN = 0.3, 0.4, 0.45, 0.55
#: Share of the time left that merges may take.
_MERGES = 0.3

_Key = TypeVar("_Key", str, Merge)


def profile(
    graph: Graph,
    *,
    devices: int,
    repeats: int,
    stages_of: Sequence[str],
    budget_s: float = option_defaults.PROFILE_BUDGET_S,
    cache: str | Path | None = None,
    platform: str = "cpu",
    virtual: bool = False,
    cores_per_device: int | None = None,
    widths: Sequence[int] = (),
    warn_of_drift: bool = True,
    options: Mapping[str, str] | None = None,
) -> CostsFile:
    """Measure a graph on the devices of a platform; returns the contents of costs.json.

    Operators with equal signature are measured once. t(S) and the times of merged operators are measured for the stages
    and merges that the named algorithms ask for on 1 to ``devices`` devices, given the times found so far. Everything
    is repeated until the interval of its median is narrow (``statistics.PRECISION``), the budget is spent, or there are
    five times ``repeats`` measurements. Stages that the budget leaves out get their time from the contention model,
    which is fitted to the measured ones. Devices take turns in measuring; they may share cores or GPUs if ``virtual``.
    ``repeats`` is the minimum number of measurements of everything, ``budget_s`` the seconds for repeating beyond that,
    and for stages and merges. The folder of cached measurements is extended unless other processes kept the cores busy
    just before; there is no cache if it is None. ``cores_per_device``, 1 if None, is also the number of threads inside
    operators. ``widths`` are numbers of devices that operators, and convolutions of one value merged, are measured on
    at once, where devices are cores. With the option ``contention`` of the platform ``resources``, operators have
    demands and overheads are measured. `hios.profiling.predict` is for platforms on which no schedule runs.

    Raises:
        HiosError: bad graph, unknown algorithm, too many devices, a cache that cannot be written, or a worker failed.
    """
    require_executable(graph)
    algorithms = [find(name).name for name in stages_of]
    described = platforms.describe(
        platform, devices, virtual=virtual, cores_per_device=cores_per_device, options=options
    )
    check_widths(widths, described)
    measuring = platforms.measuring(described.name)
    quiet = (described.busy_share or 0.0) <= BUSY
    environment = dict(measuring.environment(described))
    if widths and (described.cores_per_device or 1) > 1:
        environment["teams"] = True  # threads of all operators wait for less long, as others need their cores
    kept = Cache(None if cache is None else Path(cache), environment, keep=quiet)
    began = time.monotonic()
    with memory_file(graph.to_bytes()) as path, measuring.timer(graph, path, described, widths) as timer:
        session = Session(graph, timer, repeats, kept)
        session.measure_operators(began + _OPERATORS * budget_s)
        session.measure_wide(widths, began + _WIDE * budget_s)
        transfers.measure_transfers(session, began + _TRANSFERS * budget_s)
        contention.measure_corun(session, began + _CORUN * budget_s)
        if described.contention == platforms.RESOURCES:
            session.overheads = _overheads(timer.overheads(), session)
        asked = StageRequests(graph, session.stand_in)
        if widths:
            asked.ask_merges()
            session.measure_merges(asked, _share_of_rest(_MERGES, began + budget_s))
            session.measure_wide_merges(asked, widths, _share_of_rest(_MERGES, began + budget_s))
        for _ in range(_STAGE_PASSES):
            before = len(asked.stages) + len(asked.merges)
            asked.ask(algorithms, timer.devices, Costs.of(_costs(session, asked)))
            if len(asked.stages) + len(asked.merges) == before:
                break
            # Merges are few; stages may take all the remaining time.
            session.measure_merges(asked, _share_of_rest(_MERGES, began + budget_s))
            session.measure_stages(asked, began + budget_s)
        session.probe.take_at_end()
        if warn_of_drift:
            session.probe.warn(f"profiling {graph.name}")
        session.find_resources()  # last: tracing of kernels may stay active and slow later measurements
        for remark in timer.remarks():
            warnings.warn(remark, HiosWarning, stacklevel=2)
    summary = _summary(session, asked, repeats, budget_s, time.monotonic() - began)
    return msgspec.structs.replace(
        _costs(session, asked, quiet),
        graph=graph.name,
        graph_fingerprint=graph.fingerprint,
        platform=described,
        versions=versions(),
        profile=msgspec.structs.replace(summary, kept=None if cache is None else quiet),
        probe=session.profiled(),
    )


def _share_of_rest(share: float, deadline: float) -> float:
    """When a share of the time left until a deadline is over."""
    return time.monotonic() + share * (deadline - time.monotonic())


def _costs(session: Session, asked: StageRequests, quiet: bool = True) -> CostsFile:
    """The measurements so far, as costs.json states them."""
    graph, alone = session.graph, session.median_ms()
    sizes: dict[tuple[str, str], int] = {}
    for edge in graph.edges:
        ends = (edge.source, edge.target)
        sizes[ends] = max(sizes.get(ends, 0), edge.bytes or 0)
    fitted = contention.fit(
        {
            stage: statistics.median(measured.samples) * sum(alone[operator] for group in stage for operator in group)
            for stage, measured in session.stages.items()
        },
        alone,
    )
    overheads = session.overheads
    demands = {} if overheads is None else contention.demands(session, fitted.utilization)
    return CostsFile(
        operators={
            operator.id: OperatorCost(
                **_timing(session.operators[alike])._asdict(),
                utilization=fitted.utilization.get(alike),
                demand=demands.get(alike),
                resources=session.resources.get(alike),
                wide_ms=_wide_ms(session.wide, alike, alone[alike]),
            )
            for operator, alike in ((operator, session.stand_in[operator.id]) for operator in graph.operators)
        },
        transfers=tuple(
            TransferCost(source=source, target=target, **_transfer(session.transfers[size], overheads)._asdict())
            for (source, target), size in sizes.items()
        ),
        stages=tuple(
            StageCost(
                groups=groups,
                **_ratio_timing(
                    session.stages[alike], alone, (operator for group in alike for operator in group)
                )._asdict(),
            )
            for groups, alike in sorted(asked.stages.items())
            if alike in session.stages
        ),
        merges=tuple(
            _merge_cost(session, merge, alike, alone)
            for merge, alike in sorted(asked.merges.items())
            if alike in session.merges
        ),
        contention=ContentionModel("blend", fitted.alpha, fitted.error)
        if overheads is None
        else ContentionModel("resources"),
        overheads=overheads,
        corun=tuple(_corun(devices, measured, quiet) for devices, measured in session.corun.items()),
        link=transfers.fit_link(
            {size: _transfer(measured, overheads).time_ms for size, measured in session.transfers.items()}
        ),
    )


class _Timing(NamedTuple):
    """What costs.json states of each measurement."""

    time_ms: float
    p20_ms: float
    p80_ms: float
    interval_ms: tuple[float, float]
    repeats: int


def _timing(measured: Measured, scale: float = 1.0) -> _Timing:
    median, p20, p80 = (number * scale for number in spread(measured.samples))
    low, high = (number * scale for number in interval(measured.samples))
    return _Timing(median, p20, p80, (low, high), len(measured.samples))


def _overheads(measured: CostOverheads, session: Session) -> CostOverheads:
    """Overheads with a synchronization no longer than the quickest hand-over between devices, which contains one."""
    between = session.transfers.values() if session.timer.devices > 1 else ()
    quickest = (statistics.median(own.samples) for own in between)
    return msgspec.structs.replace(measured, sync_ms=min([measured.sync_ms, *quickest]))


def _transfer(measured: Measured, overheads: CostOverheads | None) -> _Timing:
    """t(u,v): a hand-over without the synchronization, where overheads have that."""
    timing, sync = _timing(measured), 0.0 if overheads is None else overheads.sync_ms
    time, p20, p80, low, high = (
        max(0.0, number - sync) for number in (timing.time_ms, timing.p20_ms, timing.p80_ms, *timing.interval_ms)
    )
    return _Timing(time, p20, p80, (low, high), timing.repeats)


def _ratio_timing(measured: Measured, alone: dict[str, float], operators: Iterable[str]) -> _Timing:
    """t(S) or the time of a merge: the sum of t(v) times its measured ratio to its operators one after another.

    Stage and operators were timed right after each other, t(v) at another time: comparing t(S) with t(v) directly would
    take drift for a gain. A ratio counts as 1 if the interval of its median contains 1, and also if it is below 1 with
    too few samples for an interval, which happens by chance too often.
    """
    total = sum(alone[operator] for operator in operators)
    low, high = interval(measured.samples)
    told = low > 1.0 or (high < 1.0 and len(measured.samples) >= FEWEST)
    timing = _timing(measured, total)
    return timing if told else timing._replace(time_ms=total)


def _wide_ms(ratios: Mapping[tuple[int, _Key], Measured], key: _Key, alone_ms: float) -> dict[str, float]:
    """Times on k devices by k where they are significantly below the time on one.

    An operator or a merge should not run on more devices without a gain.
    """
    return {
        str(width): alone_ms * statistics.median(measured.samples)
        for (width, name), measured in sorted(ratios.items())
        if name == key and len(measured.samples) >= FEWEST and interval(measured.samples)[1] < 1.0
    }


def _merge_cost(session: Session, operators: Merge, alike: Merge, alone: dict[str, float]) -> MergeCost:
    """Times of a merge on one device, and on those numbers of devices on which it gains."""
    timing = _ratio_timing(session.merges[alike], alone, alike)
    times = _wide_ms(session.wide_merges, alike, sum(alone[operator] for operator in alike))
    gaining = {width: time_ms for width, time_ms in times.items() if time_ms < timing.time_ms}
    return MergeCost(operators=operators, wide_ms=gaining, **timing._asdict())


def check_widths(widths: Sequence[int], platform: Platform) -> None:
    """Refuse numbers of devices that an operator cannot take.

    Raises:
        PlatformError: devices are not cores; a number is less than 2 or more than there are devices, or given twice.
    """
    devices = platform.devices or 1
    if widths and not platforms.find(platform.name).GROUPS_CORES:
        raise PlatformError(
            f"platform {platform.name}: found --widths; allowed: without it, as operators take several devices at once "
            "on platform cpu only"
        )
    for width in widths:
        if not 2 <= width <= devices:
            allowed = f"2 to {devices}, the devices" if devices > 1 else "none, with one device"
            raise PlatformError(f"widths: found {width}; allowed: {allowed}")
    if len(set(widths)) < len(widths):
        raise PlatformError(f"widths: found {', '.join(map(str, widths))}; allowed: each number once")


def _corun(devices: int, measured: Measured, quiet: bool) -> CorunFactor:
    """The co-run factor of a number of devices: the median ratio, at least 1.

    It counts even where its interval contains 1: a prediction takes the best estimate, while claims of a gain need
    significance. Devices do not speed each other up, so a median below 1 is noise.
    """
    low, high = interval(measured.samples)
    factor = max(1.0, statistics.median(measured.samples))
    beside_other_work = None if quiet or measured.cached else True  # cached entries were measured on an idle machine
    return CorunFactor(devices, factor, (low, high), len(measured.samples), beside_other_work)


def _summary(session: Session, asked: StageRequests, repeats: int, budget_s: float, seconds: float) -> ProfileSummary:
    """How much was measured, how precisely, and how much came from the cache."""
    kinds = (
        session.operators,
        session.wide,
        session.transfers,
        session.stages,
        session.merges,
        session.wide_merges,
        session.corun,
    )
    everything: list[Measured] = [entry for kind in kinds for entry in kind.values()]
    cached = sorted(entry.measured_at for entry in everything if entry.cached)
    open_stages = set(asked.stages.values()) - session.stages.keys()
    open_merges = set(asked.merges.values()) - session.merges.keys()
    return ProfileSummary(
        seconds=round(seconds, 1),
        budget_s=budget_s,
        repeats=repeats,
        precision=PRECISION,
        measured=len(everything) - len(cached),
        imprecise=sum(not is_precise(entry.samples) for entry in everything),
        modelled=len(open_stages) + len(open_merges),
        cached=len(cached),
        cached_from=cached[0] if cached else None,
        cached_until=cached[-1] if cached else None,
        drift=session.drift,
    )
