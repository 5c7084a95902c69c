"""Ways to run a model: itself, with some number of threads, or a schedule of its graph on workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hios import artifacts
from hios.errors import ArtifactError, HiosError
from hios.graph import Graph
from hios.platforms.cpu.engine import Task
from hios.schedule import Schedule, StagedPlan


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run a model.

    Attributes:
        label: what the report calls it.
        threads: torch's threads where the model itself runs; 0 where the engine does.
        schedule: what the engine runs; None where the model itself runs.
        wide: whether the one device of the schedule has all cores, with a thread on each inside every operator.
    """

    label: str
    threads: int = 0
    schedule: Schedule | None = None
    wide: bool = False

    def task(self, graph: Graph, devices: int) -> Task | None:
        """What the engine of a contest runs: workers 0, 1, ... are the devices, the one behind them has all cores."""
        if self.schedule is None:
            return None
        return Task(self.schedule.plan(graph), (devices,) if self.wide else ())

    def alone(
        self, graph: Graph, cores: Sequence[list[int]], everything: list[int]
    ) -> tuple[Task, list[list[int]]] | None:
        """What an engine runs that runs only this, and the cores of its workers: of devices with work alone."""
        if self.schedule is None:
            return None
        plan = self.schedule.plan(graph)
        used = [device for device, row in enumerate(plan.devices) if row]
        workers = tuple(used.index(device) if device in used else 0 for device in range(len(plan.devices)))
        return Task(plan, workers), [everything] if self.wide else [list(cores[device]) for device in used]

    @property
    def busy_cores(self) -> bool:
        """Whether threads inside operators spin on for a while after a run."""
        return self.wide or self.threads > 1

    def to_json(self) -> dict[str, object]:
        """As the cache keeps it."""
        schedule = self.schedule and {"format_version": artifacts.FORMAT_VERSION, **self.schedule.to_json()}
        return {"label": self.label, "threads": self.threads, "schedule": schedule, "wide": self.wide}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], graph: Graph) -> Way:
        """What the cache kept, for this graph.

        Raises:
            HiosError: it is not what ``to_json`` gave, or the schedule is not of this graph.
        """
        try:
            label, threads, schedule, wide = (data[name] for name in ("label", "threads", "schedule", "wide"))
        except (KeyError, TypeError) as error:
            raise ArtifactError(f"a way to run a model lacks {error}") from error
        if not isinstance(label, str) or not isinstance(threads, int) or (schedule is None) != (threads > 0):
            raise ArtifactError("a way to run a model is the model itself with threads, or a schedule")
        if schedule is None:
            return cls(label, threads)
        artifacts.validate(schedule, "schedule", label)
        found = Schedule.from_json(schedule, label)
        if wide and found.devices != 1:
            raise HiosError(f"{label}: found {found.devices} devices with all cores; allowed: one")
        found.plan(graph)
        return cls(label, schedule=found, wide=bool(wide))


def itself(threads: int) -> Way:
    """The model itself."""
    return Way(f"the model itself, {threads} thread{'s' if threads > 1 else ''}", threads)


def distinct(ways: Sequence[Way], graph: Graph) -> list[Way]:
    """Without schedules whose plan another has already."""
    kept: list[Way] = []
    seen: list[Any] = []
    for way in ways:
        what: Any = way.threads
        if way.schedule is not None:
            plan = way.schedule.plan(graph)
            # Devices without work behind the last one with work make no difference.
            rows = plan.devices[: 1 + max(number for number, row in enumerate(plan.devices) if row)]
            what = (type(plan), rows, plan.merges if isinstance(plan, StagedPlan) else plan.launch, way.wide)
        if what not in seen:
            seen.append(what)
            kept.append(way)
    return kept
