"""The competitors of a session: schedules, the sequential baseline, independent copies, and the model itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hios import platforms
from hios.core.costs import Costs
from hios.core.evaluate import evaluate
from hios.core.graph import Graph
from hios.core.problem import Problem
from hios.core.schedule import Plan, Schedule, StagedPlan, StreamPlan
from hios.errors import PlatformError, ScheduleError, shown, warn
from hios.files.base import Platform
from hios.frontends.models import RUNTIMES
from hios.platforms.competitor import Competitor
from hios.platforms.program import ArenaPlan

#: Streams of a device: each is a thread that keeps one to two MB. NASNet has 159 by Opara's released rule.
MOST_STREAMS = 512
BASELINE = "sequential on one device"


@dataclass
class ScheduleEntry:
    """A schedule that takes part; ``competitor`` is the name of the program that runs for it."""

    label: str
    schedule: Schedule
    plan: Plan
    competitor: str = ""

    @classmethod
    def of(
        cls, label: str, schedule: Schedule, graph: Graph, devices: int, cores_per_device: int | None = 1
    ) -> ScheduleEntry:
        """Check that a schedule can run; ``cores_per_device`` is None if devices are not cores.

        Raises:
            ScheduleError: it is for another graph, for more or other devices, has too many streams, deadlocks, or has
                wide operators or merges on streams although devices are not cores.
        """
        if schedule.devices > devices:
            raise ScheduleError(
                f"{schedule.source}: devices: found {schedule.devices}; allowed: at most {devices}, the devices of "
                "this run"
            )
        if cores_per_device is not None and schedule.cores_per_device not in (None, cores_per_device):
            raise ScheduleError(
                f"{schedule.source}: cores_per_device: found {schedule.cores_per_device}, the cores of a device in its "
                f"costs; allowed: {cores_per_device}, those of this run; run it with --cores-per-device "
                f"{schedule.cores_per_device}, or schedule with costs of such devices"
            )
        plan = schedule.plan(graph)
        if cores_per_device is None:
            refuse_wide(schedule, "where devices are no cores")
        if isinstance(plan, StreamPlan):
            _check_streams(schedule.source, plan)
        widths = {row.operator: len(row.devices) for row in schedule.placements if row.devices}
        free = Costs(
            dict.fromkeys(graph.index, 0.0),
            {(edge.source, edge.target): 0.0 for edge in graph.edges},
            wide_ms={name: {width: 0.0} for name, width in widths.items()},
            merge_wide_ms={
                frozenset(merge): {widths[merge[0]]: 0.0} for merge in schedule.merges if merge[0] in widths
            },
        )
        try:
            evaluate(Problem(graph, free), plan)  # whether it can run does not depend on times
        except ScheduleError as error:
            raise ScheduleError(f"{schedule.source}: {error}") from None
        return cls(label, schedule, plan)


def refuse_wide(schedule: Schedule, where: str) -> None:
    """Refuse operators that use several devices at once, and operators merged on streams, where a schedule is to run.

    Raises:
        ScheduleError: an operator takes several devices, or a stream schedule has merges.
    """
    if schedule.merges and schedule.placements[0].stage is None:
        raise ScheduleError(
            f"{schedule.source}: merges: found {len(schedule.merges)} in a stream schedule; allowed {where}: none; "
            "schedule with costs without wide_ms"
        )
    for position, row in enumerate(schedule.placements):
        if row.devices:
            raise ScheduleError(
                f"{schedule.source}: placements[{position}].devices: found {len(row.devices)} devices; allowed "
                f"{where}: one; schedule with costs without wide_ms"
            )


def _check_streams(source: str, plan: StreamPlan) -> None:
    for device, streams in enumerate(plan.devices):
        if len(streams) > MOST_STREAMS:
            raise ScheduleError(
                f"{source}: placements: found {len(streams)} streams on device {device}; allowed: at most "
                f"{MOST_STREAMS}, as each is a thread; schedule for fewer"
            )


def read_schedules(paths: Iterable[str | Path]) -> list[tuple[str, Schedule]]:
    """Schedules under the names of their files."""
    return [(Path(path).stem, Schedule.read(path)) for path in paths]


def other_hardware(schedules: Iterable[Schedule | Costs], platform: Platform, *, forced: bool) -> str | None:
    """The hardware on which costs, or those of schedules, were measured, if it differs from this one; None if not.

    Those that do not state it are not checked.

    Raises:
        PlatformError: costs were measured on other hardware, and that is not allowed.
    """
    here = platform.hardware
    others = [schedule for schedule in schedules if schedule.hardware is not None and schedule.hardware != here]
    if others and not forced:
        raise PlatformError(
            f"{others[0].source}: hardware: found costs of {shown(others[0].hardware, quoted=False)}; allowed: {here}, "
            "the hardware here, as times differ on other hardware and another schedule may be the fastest; profile and "
            "schedule here, or run it anyway with --other-hardware (config.yaml: execute: {other_hardware: true})"
        )
    return others[0].hardware if others else None


def entries_of(
    schedules: Iterable[tuple[str, Schedule]], graph: Graph, devices: int, cores_per_device: int | None = 1
) -> list[ScheduleEntry]:
    """All schedules of a session, identified by their labels; ``cores_per_device`` is None if devices are not cores.

    Raises:
        ScheduleError: one cannot run, or two have the same label.
    """
    entries: list[ScheduleEntry] = []
    taken = {BASELINE, *map(copies_name, range(2, devices + 1))}
    taken |= {cores_name(count) for count in range(2, devices * (cores_per_device or 1) + 1)}
    for label, schedule in schedules:
        entry = ScheduleEntry.of(label, schedule, graph, devices, cores_per_device)
        if label in taken:
            raise ScheduleError(
                f"{schedule.source}: a schedule named {label} already takes part; schedules must differ in their "
                "labels, or in the names of their files"
            )
        taken.add(entry.label)
        entries.append(entry)
    return entries


def competitors(
    graph: Graph,
    arena: ArenaPlan,
    entries: Sequence[ScheduleEntry],
    devices: int,
    cores: int | None = None,
    cores_per_device: int = 1,
) -> dict[str, Competitor]:
    """All programs by name: the baseline, also with all cores, copies for each device count, and the schedules.

    Where the devices together have more cores than one of them, the sequential schedule also runs on one device that
    has them all, with as many threads inside each operator; its worker comes after those of the devices. A schedule
    that is the baseline does not run a second time. Each entry is told which competitor runs for it. ``cores`` are
    those of all devices together; if None, no two devices share one.
    """
    each = cores_per_device
    cores = devices * each if cores is None else cores
    sequential = StagedPlan((tuple(((operator,),) for operator in graph.order),))
    taking_part = {BASELINE: Competitor(arena.program(sequential), sequential, cores=each)}
    if cores > each:
        taking_part[cores_name(cores)] = Competitor(arena.program(sequential), sequential, worker=devices, cores=cores)
    for count in sorted({devices, *(entry.schedule.devices for entry in entries)} - {1}):
        taking_part[copies_name(count)] = Competitor(
            arena.copies(sequential, count), sequential, copies=True, cores=each
        )
    for entry in entries:
        entry.competitor = BASELINE if entry.plan == sequential else entry.label
        if entry.competitor not in taking_part:
            taking_part[entry.competitor] = Competitor(arena.program(entry.plan), entry.plan, cores=each)
    return taking_part


def use_engine(engine: str, graph: Graph, taking_part: Iterable[Competitor]) -> None:
    """Have all devices run operators, or segments, as the engine says."""
    if engine == "segments":
        for competitor in taking_part:
            competitor.use_segments(graph)


def copies_name(devices: int) -> str:
    """Name of the competitor that runs independent copies."""
    return f"{devices} independent copies"


def cores_name(cores: int) -> str:
    """Name of the competitor that runs the sequential schedule on one device of several cores."""
    return f"sequential, {cores} cores"


#: Baselines that are left out with a warning if their package is missing; other missing packages are errors.
_LEFT_OUT = ("openvino",)


def require(baselines: Collection[str], runtime: str | None, platform: str = "cpu") -> tuple[str, ...]:
    """The baselines that take part: without OpenVINO, and with a warning, if it is not installed.

    ``runtime`` is that of the program; None if there is no program.

    Raises:
        PlatformError: one is for another platform, no program, no C++ compiler, or a package is missing.
    """
    allowed = platforms.find(platform).RUNTIMES
    if wrong := [name for name in baselines if name not in allowed]:
        others = [other for other in platforms.PLATFORMS if wrong[0] in platforms.find(other).RUNTIMES]
        raise PlatformError(
            f"--baselines: found {wrong[0]}, which is for platform {' or '.join(others)}; allowed on platform "
            f"{platform}: {', '.join(name for name in RUNTIMES if name in allowed)}"
        )
    more = [name for name in baselines if name != "eager"]
    if more and runtime is None:
        raise PlatformError(
            f"--baselines: found {more[0]}; allowed with --program only: a baseline runs the model itself"
        )
    missing = set()
    for name in RUNTIMES if runtime == "eager" else ():
        if name in baselines:
            try:
                platforms.executing(platform).require_runtime(name)
            except PlatformError as error:
                if name not in _LEFT_OUT:
                    raise
                warn(f"{error}; it is left out")
                missing.add(name)
    return tuple(name for name in baselines if name not in missing)
