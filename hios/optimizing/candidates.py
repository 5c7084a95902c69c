"""Candidates for running a model: the model itself, another runtime, or a schedule of its graph on workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from hios.core.graph import Graph
from hios.core.schedule import Schedule, StagedPlan
from hios.errors import ArtifactError, HiosError
from hios.files import artifacts
from hios.frontends.models import RUNTIMES
from hios.platforms.cpu.engine import Task

#: Ways to run a model, by the names that ``way`` takes: runtimes of the whole model, and schedules of its operators.
EAGER, SCHEDULE = "eager", "schedule"
#: Runtimes other than PyTorch itself, those that are quick to prepare first.
OTHERS = ("openvino", "onnxruntime", "compile")
WAYS = (EAGER, SCHEDULE, *OTHERS)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run a model.

    ``kind`` is one of ``WAYS``. A runtime has ``threads`` inside operators and no schedule, a schedule has 0 threads;
    of a ``wide`` one the one device has all cores, with a thread on each inside every operator. OpenVINO may read the
    ONNX file that was made for ONNX Runtime (``from_onnx``).
    """

    label: str
    kind: str = EAGER
    threads: int = 0
    schedule: Schedule | None = None
    wide: bool = False
    from_onnx: bool = False

    @property
    def converted_for(self) -> str:
        """The runtime for which the model was converted."""
        return "onnxruntime" if self.from_onnx else self.kind

    @property
    def compared_as(self) -> str:
        """The same for candidates with the same outputs: a runtime computes the same with any number of threads."""
        return self.label if self.kind == SCHEDULE else f"{self.kind} by {self.converted_for}"

    def cores(self, divisions: Sequence[Sequence[list[int]]], everything: list[int]) -> list[list[int]]:
        """Cores of each device of the schedule, by the ways in which the machine was divided into devices.

        A device that has all cores has those of ``everything``.
        """
        assert self.schedule is not None  # noqa: S101 - runtimes choose their cores themselves
        if self.wide:
            return [everything]
        devices, size = self.schedule.devices, self.schedule.cores_per_device or 1
        for division in (*divisions, [[core] for core in everything]):
            if len(division) >= devices and len(division[0]) == size:
                return list(division[:devices])
        raise HiosError(f"{self.label}: found {devices} devices of {size} cores; allowed: those of the machine")

    def alone(
        self, graph: Graph, divisions: Sequence[Sequence[list[int]]], everything: list[int]
    ) -> tuple[Task, list[list[int]]]:
        """The task of an engine that runs only this schedule, and the cores of its workers: devices with work only."""
        assert self.schedule is not None  # noqa: S101 - engines run schedules
        plan, cores = self.schedule.plan(graph), self.cores(divisions, everything)
        used = [device for device, row in enumerate(plan.devices) if row]
        workers = tuple(used.index(device) if device in used else 0 for device in range(len(plan.devices)))
        return Task(plan, workers), [list(cores[device]) for device in used]

    @property
    def busy_cores(self) -> bool:
        """Whether idle intra-operator threads keep spinning for a while after a run."""
        size = 1 if self.schedule is None else self.schedule.cores_per_device or 1
        return self.wide or self.threads > 1 or size > 1

    def to_json(self) -> dict[str, object]:
        """The entry for the cache."""
        schedule = self.schedule and {"format_version": artifacts.FORMAT_VERSION, **self.schedule.to_json()}
        return {**msgspec.to_builtins(replace(self, schedule=None)), "schedule": schedule}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Candidate:
        """The candidate of a cache entry.

        Raises:
            HiosError, KeyError, TypeError or msgspec.ValidationError: it is not what ``to_json`` gave.
        """
        schedule = None if data["schedule"] is None else Schedule.from_json(data["schedule"], data["label"])
        candidate = replace(msgspec.convert({**data, "schedule": None}, cls), schedule=schedule)
        scheduled = candidate.kind == SCHEDULE
        unknown = candidate.kind not in WAYS or (schedule is not None) != scheduled
        if unknown or (candidate.threads > 0) == scheduled:
            raise ArtifactError(f"a way to run a model is a runtime with threads, or a schedule, of {WAYS}")
        if candidate.wide and (schedule is None or schedule.devices != 1):
            raise ArtifactError(f"{candidate.label}: only a schedule of one device has all cores")
        return candidate


def itself(threads: int) -> Candidate:
    """The model itself, as PyTorch runs it."""
    return Candidate(f"the model itself, {_threads(threads)}", EAGER, threads)


def in_runtime(kind: str, threads: int, *, from_onnx: bool = False) -> Candidate:
    """The whole model in another runtime, one of ``OTHERS``."""
    name = f"{RUNTIMES[kind]} from ONNX" if from_onnx else RUNTIMES[kind]
    return Candidate(f"{name}, {_threads(threads)}", kind, threads, from_onnx=from_onnx)


def scheduled(label: str, schedule: Schedule, *, wide: bool = False) -> Candidate:
    """A schedule of the model, run by the engine."""
    return Candidate(label, SCHEDULE, schedule=schedule, wide=wide)


def distinct(candidates: Sequence[Candidate], graph: Graph) -> list[Candidate]:
    """The candidates without schedules whose plan occurs before."""
    kept: list[Candidate] = []
    seen: list[Any] = []
    for candidate in candidates:
        what: Any = (candidate.kind, candidate.threads)
        if candidate.schedule is not None:
            plan = candidate.schedule.plan(graph)
            # Idle devices after the last one with work make no difference.
            rows = plan.devices[: 1 + max(number for number, row in enumerate(plan.devices) if row)]
            cores = "all" if candidate.wide else candidate.schedule.cores_per_device or 1
            launch = () if isinstance(plan, StagedPlan) else plan.launch
            what = (type(plan), rows, plan.merges, launch, cores)
        if what not in seen:
            seen.append(what)
            kept.append(candidate)
    return kept


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"
