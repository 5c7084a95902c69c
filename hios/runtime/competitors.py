"""Who takes part in a session: schedules, the baselines of the engine, independent copies, the model itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hios.costs import Costs
from hios.errors import ScheduleError
from hios.evaluate import evaluate
from hios.graph import Graph
from hios.platforms.competitor import Competitor
from hios.platforms.device_program import ArenaPlan
from hios.problem import Problem
from hios.schedule import Plan, Schedule, StagedPlan, StreamPlan

#: Streams of a device: each is a thread that keeps one to two MB. NASNet has 159 by Opara's released rule.
MOST_STREAMS = 512
BASELINE = "sequential on one device"


@dataclass
class Entry:
    """A schedule that takes part; ``competitor`` names what runs for it."""

    label: str
    schedule: Schedule
    plan: Plan
    competitor: str = ""

    @classmethod
    def of(cls, label: str, schedule: Schedule, graph: Graph, devices: int) -> Entry:
        """Check that a schedule can run.

        Raises:
            ScheduleError: it is for another graph, for more devices, has operators on several devices at once, too
                many streams, or deadlocks.
        """
        if schedule.devices > devices:
            raise ScheduleError(
                f"{schedule.source}: devices: found {schedule.devices}; allowed: at most {devices}, the devices of "
                "this run"
            )
        plan = schedule.plan(graph)
        _refuse_wide(schedule)
        if isinstance(plan, StreamPlan):
            _check_streams(schedule.source, plan)
        free = Costs(dict.fromkeys(graph.index, 0.0), {(edge.source, edge.target): 0.0 for edge in graph.edges})
        try:
            evaluate(Problem(graph, free), plan)  # whether it can run does not depend on times
        except ScheduleError as error:
            raise ScheduleError(f"{schedule.source}: {error}") from None
        return cls(label, schedule, plan)


def _refuse_wide(schedule: Schedule) -> None:
    for position, row in enumerate(schedule.placements):
        if row.devices:
            raise ScheduleError(
                f"{schedule.source}: placements[{position}].devices: found {len(row.devices)} devices; allowed: one, "
                "as operators on several devices at once cannot be executed yet; schedule with costs without wide_ms"
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


def entries_of(schedules: Iterable[tuple[str, Schedule]], graph: Graph, devices: int) -> list[Entry]:
    """All schedules of a session, told apart by their labels.

    Raises:
        ScheduleError: one cannot run, or two have the same label.
    """
    entries: list[Entry] = []
    taken = {BASELINE, *(name(count) for count in range(2, devices + 1) for name in (copies_name, cores_name))}
    for label, schedule in schedules:
        entry = Entry.of(label, schedule, graph, devices)
        if label in taken:
            raise ScheduleError(
                f"{schedule.source}: a schedule named {label} takes part already; schedules are told apart by their "
                "labels, or the names of their files"
            )
        taken.add(entry.label)
        entries.append(entry)
    return entries


def competitors(
    graph: Graph, arena: ArenaPlan, entries: Sequence[Entry], devices: int, cores: int | None = None
) -> dict[str, Competitor]:
    """What runs, by name: the baseline, also with all cores, copies for every number of devices, and the schedules.

    Where the devices have several cores, the sequential schedule also runs on one device that has them all, with as
    many threads inside each operator; its worker comes after those of the devices. A schedule that is the baseline
    does not run a second time.

    Args:
        graph: with calls and shapes.
        arena: where values lie.
        entries: schedules that take part; each is told which competitor runs for it.
        devices: of the session.
        cores: of all devices together; one each if None.
    """
    cores = devices if cores is None else cores
    sequential = StagedPlan((tuple(((operator,),) for operator in graph.order),))
    found = {BASELINE: Competitor(arena.program(sequential), sequential)}
    if cores > 1:
        found[cores_name(cores)] = Competitor(arena.program(sequential), sequential, worker=devices, cores=cores)
    for count in sorted({devices, *(entry.schedule.devices for entry in entries)} - {1}):
        found[copies_name(count)] = Competitor(arena.copies(sequential, count), sequential, copies=True)
    for entry in entries:
        entry.competitor = BASELINE if entry.plan == sequential else entry.label
        if entry.competitor not in found:
            found[entry.competitor] = Competitor(arena.program(entry.plan), entry.plan)
    return found


def copies_name(devices: int) -> str:
    """Name of the competitor that runs independent copies."""
    return f"{devices} independent copies"


def cores_name(cores: int) -> str:
    """Name of the competitor that runs the sequential schedule on one device of several cores."""
    return f"sequential, {cores} cores"
