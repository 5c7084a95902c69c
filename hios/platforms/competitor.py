"""A program that takes part in a session, with its measurements."""

from __future__ import annotations

from dataclasses import dataclass, field

from hios.core.graph import Graph
from hios.core.schedule import Placement, Plan, StreamPlan
from hios.formats.run import Launch, SegmentResult
from hios.machine.statistics import spread
from hios.platforms.program import DeviceProgram
from hios.platforms.segments import segmented


@dataclass
class Competitor:
    """A program on one or more devices, with its measurements.

    Attributes:
        programs: one for each device that takes part.
        plan: what the programs do together; for copies, what each of them does.
        copies: whether the devices run independent copies of the model.
        worker: the worker of the only program, if that is not the worker of its device.
        cores: cores of a device: threads inside each operator.
        latencies_ms: of every measured run; for copies the harmonic mean over the devices.
        timelines: rows of every measured run, or of one separate run if timing operators slows them down.
        difference: largest difference of any output from the expected one.
        launch: on GPUs, how it is launched: as one CUDA ``graph`` on each run, or operator by operator on ``streams``;
            None on cores.
        no_graph: why it could not be captured in a graph.
        peak_memory_bytes: of one run; None where it is not known.
        segments: what runs each segment of its programs; None if devices run operator by operator.
    """

    programs: list[DeviceProgram]
    plan: Plan
    copies: bool = False
    worker: int | None = None
    cores: int = 1
    latencies_ms: list[float] = field(default_factory=list)
    timelines: list[list[Placement]] = field(default_factory=list)
    difference: float = 0.0
    launch: Launch | None = None
    no_graph: str = ""
    peak_memory_bytes: int | None = None
    segments: tuple[SegmentResult, ...] | None = None

    @property
    def parts(self) -> dict[int, DeviceProgram]:
        """The programs by the worker that runs each."""
        return {part.device if self.worker is None else self.worker: part for part in self.programs}

    def use_segments(self, graph: Graph) -> None:
        """Have its devices run segments in place of operators."""
        self.programs, self.segments = segmented(self.programs, graph, concurrent=self.cores > 1), ()

    def wide(self, graph: Graph) -> dict[str, tuple[int, ...]]:
        """The devices of each operator that uses several at once, by id."""
        plan = self.plan
        if not isinstance(plan, StreamPlan):
            return {}
        return {graph.operators[operator].id: devices for operator, devices in plan.wide.items()}

    def typical(self) -> list[Placement]:
        """The rows of the run whose latency is nearest to the median, or of the only recorded run; none without one."""
        if len(self.timelines) <= 1:
            return self.timelines[0] if self.timelines else []
        median = spread(self.latencies_ms)[0]
        nearest = min(range(len(self.latencies_ms)), key=lambda run: abs(self.latencies_ms[run] - median))
        return self.timelines[nearest]
