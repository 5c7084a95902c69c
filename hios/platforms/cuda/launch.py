"""The launches of a plan bound to operators, issued through a backend.

What the process that drives the GPUs is doing stands as a marker in shared memory, which survives that process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Protocol, TypeVar

from torch import Tensor

from hios.core.graph import Graph
from hios.core.schedule import Plan
from hios.errors import PlatformError
from hios.platforms.cuda.plan import Flow, Lane, Launch, Value, joined, launch_plan, runs

# Of a 64-bit flag, from the lowest: operator plus one, stage plus one or number of a competitor, stream, device. No
# operator means that the host waits for a device.
_OPERATOR, _STAGE, _STREAM, _DEVICE = 22, 20, 12, 9
_STAGE_AT, _STREAM_AT, _DEVICE_AT = _OPERATOR, _OPERATOR + _STAGE, _OPERATOR + _STAGE + _STREAM


def launching(device: int, operator: int, stage: int | None, stream: int) -> int:
    """The marker of an operator, by its index in the graph, that is about to be launched; above 0."""
    return operator + 1 | (0 if stage is None else stage + 1) << _STAGE_AT | stream << _STREAM_AT | _device(device)


def waiting(device: int, competitor: int) -> int:
    """The marker of a device that has all launches of a competitor, by its index, while the host waits; above 0."""
    return competitor + 1 << _STAGE_AT | _device(device)


def text(graph: Graph, names: Sequence[str], marker: int) -> str:
    """A marker in words, given the names of the competitors; empty for 0."""
    if not marker:
        return ""
    operator, stage = marker % (1 << _OPERATOR) - 1, (marker >> _STAGE_AT) % (1 << _STAGE) - 1
    device, stream = marker >> _DEVICE_AT, (marker >> _STREAM_AT) % (1 << _STREAM)
    if operator < 0:
        return everything(device, names[stage])
    return place(device, graph.operators[operator].id, None if stage < 0 else stage, stream)


def place(device: int, operators: str, stage: int | None, stream: int) -> str:
    """The position of operators, in words."""
    return f"device {device}, operator {operators}, {f'stream {stream}' if stage is None else f'stage {stage}'}"


def everything(device: int, name: str) -> str:
    """A device that has all launches of a competitor, in words."""
    return f"device {device}, which runs all of {name}"


def _device(device: int) -> int:
    return min(device, (1 << _DEVICE) - 1) << _DEVICE_AT


#: Operators of a launch that an error names all.
_NAMED = 8
_T = TypeVar("_T")
#: Operator, device, stream, stage, start and finish in milliseconds since the run began.
LaunchRow = tuple[str, int, int, int | None, float, float]


class Backend(Protocol):
    """Streams of devices: each runs its launches in order, asynchronously to the host.

    Values are handles: their contents may not have been computed yet.
    """

    def run(self, lane: Lane, function: Callable[..., Any], arguments: list[Any], outputs: int) -> list[Any]:
        """Launch a function of values on a stream; returns its outputs."""

    def copy(self, lane: Lane, value: Any) -> Any:
        """Launch a copy of a value to the device of a stream, and return the copy."""

    def record(self, lane: Lane, event: Any = None, *, timed: bool = False) -> Any:
        """An event after everything launched on a stream so far; a given event is reused."""

    def wait(self, lane: Lane, event: Any) -> None:
        """Let everything launched on a stream from now on wait for an event."""

    def forget(self, lane: Lane, values: list[Any]) -> None:
        """Release values: their memory may be reused by anything that follows the launches on a stream so far."""

    def elapsed_ms(self, event: Any, later: Any) -> float:
        """Milliseconds between two timed events of one device."""

    def capture(self, lanes: tuple[Lane, ...], launch: Callable[[], _T]) -> tuple[Callable[[], None], _T]:
        """Capture what a function launches on streams, without running it.

        Returns a function that runs everything, and what ``launch`` returned: values that each such run recomputes.
        """

    def exactly(self) -> AbstractContextManager[None]:
        """A context of full float32 precision for launches."""

    def synchronize(self, device: int) -> None:
        """Wait until a device has finished everything launched on it."""

    def why(self, error: Exception) -> str:
        """The cause of an error, in one line."""


class Launchable(Protocol):
    """Operators that are ready to be launched; `Network` is one."""

    @property
    def graph(self) -> Graph:
        """The operators and what depends on what."""

    @property
    def makes(self) -> Mapping[str, Sequence[Value]]:
        """The outputs of every operator."""

    def inputs(self, device: int) -> dict[Value, Tensor]:
        """The input buffers on a device; their addresses never change."""

    def function(self, device: int, operators: tuple[str, ...]) -> tuple[Callable[..., Any], tuple[Value, ...]]:
        """An operator, or several merged into one, as a function, with the values it takes."""


@dataclass
class Launched:
    """The result of a run: outputs of the network and, of timed runs, events before and after each launch."""

    outputs: list[Any]
    began: dict[int, Any] = field(default_factory=dict)
    spans: dict[int, tuple[Any, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompiledSegment:
    """Operators of one stream as one function.

    Attributes:
        device: the device.
        operators: ids, in order.
        reads: values that it takes.
        makes: values that it returns: those of its operators that are used outside it.
        function: of tensors; returns one or a tuple of them.
        shares: of its time that each operator counts for, of any sum.
    """

    device: int
    operators: tuple[str, ...]
    reads: tuple[Value, ...]
    makes: tuple[Value, ...]
    function: Callable[..., Any]
    shares: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class _BoundLaunch:
    launch: Launch
    #: None for a copy.
    function: Callable[..., Any] | None
    arguments: tuple[Value, ...]
    makes: tuple[Value, ...]
    mark: int
    #: Of every operator, when it begins and ends, as a share of the time.
    spans: tuple[tuple[float, float], ...]


class LaunchProgram:
    """A plan whose operators are compiled for their devices.

    ``mark`` records a number that the controller reads if this process dies or hangs. Of ``segments``, those that are
    `runs` of the plan are launched in place of their operators.
    """

    def __init__(
        self,
        network: Launchable,
        flow: Flow,
        plan: Plan,
        mark: Callable[[int], None],
        segments: Sequence[CompiledSegment] = (),
    ) -> None:
        planned = launch_plan(network.graph, flow, plan)
        operators = [launch for launch in planned.launches if launch.copied is None]
        self._stages = {name: launch.stage for launch in operators for name in launch.operators}
        #: Device and operators of what can be one launch.
        self.runs = {run: _of_run(planned.launches, run) for run in runs(planned)}
        copies = {(launch.lane.device, launch.copied) for launch in planned.launches if launch.copied is not None}
        #: By operator, the values that it reads as copies of what another device made.
        self.arriving = {
            name: {value for value in flow.reads[name] if (launch.lane.device, value) in copies}
            for launch in operators
            for name in launch.operators
        }
        known = {(own.device, own.operators): own for own in segments}
        planned = joined(planned, [run for run, own in self.runs.items() if own in known])
        self.lanes, self._outputs, self._mark = planned.lanes, planned.outputs, mark
        self.devices = sorted({lane.device for lane in planned.lanes})
        self._inputs = {device: network.inputs(device) for device in self.devices}
        self._steps = [
            _bound(network, launch, known.get((launch.lane.device, launch.operators))) for launch in planned.launches
        ]
        self._events: dict[int, Any] = {}

    def launch(self, backend: Backend, *, timed: bool = False, again: bool = False, alone: bool = False) -> Launched:
        """Launch everything once.

        If ``timed``, when every operator begins and ends is recorded. If ``again``, the events of the last such launch,
        which has finished, are reused. If ``alone``, each launch is waited for before the next one is made.

        Raises:
            PlatformError: an operator failed; with device, operator, and stage or stream.
        """
        values = {(device, value): tensor for device, own in self._inputs.items() for value, tensor in own.items()}
        events = self._events if again else {}
        launched = Launched([])
        if timed:
            firsts = {lane.device: lane for lane in reversed(self.lanes) if lane.source is None}
            launched.began = {device: backend.record(lane, timed=True) for device, lane in firsts.items()}
        for place, step in enumerate(self._steps):
            launch, lane = step.launch, step.launch.lane
            for other in launch.waits:
                backend.wait(lane, events[other])
            gone = [values.pop((lane.device, value), None) for value in launch.lets_go]
            backend.forget(lane, [value for value in gone if value is not None])
            del gone
            self._mark(step.mark)
            start = backend.record(lane, timed=True) if timed and launch.copied is None else None
            self._run(backend, step, values, alone)
            if start is not None:
                launched.spans[place] = start, backend.record(lane, timed=True)
            if launch.awaited:
                events[place] = backend.record(lane, events.get(place))
        launched.outputs = [values[place] for place in self._outputs]
        return launched

    def _run(self, backend: Backend, step: _BoundLaunch, values: dict[tuple[int, Value], Any], alone: bool) -> None:
        launch, lane = step.launch, step.launch.lane
        source = lane.device if lane.source is None else lane.source
        arguments = [values[source, value] for value in step.arguments]
        try:
            if step.function is not None:
                results = backend.run(lane, step.function, arguments, len(step.makes))
            else:
                results = [backend.copy(lane, *arguments)]
            if alone:
                backend.synchronize(lane.device)
        except Exception as error:  # kernels raise many types of errors
            raise PlatformError(f"{_where(launch)}: {backend.why(error)}") from error
        values.update(zip([(lane.device, value) for value in step.makes], results, strict=True))

    def rows(self, backend: Backend, launched: Launched) -> list[LaunchRow]:
        """The times of every operator, from the events of a finished timed run."""
        timed: list[LaunchRow] = []
        for place, (start, end) in launched.spans.items():
            step, launch = self._steps[place], self._steps[place].launch
            began = launched.began[launch.lane.device]
            first, last = (max(0.0, backend.elapsed_ms(began, event)) for event in (start, end))
            timed += [
                (
                    operator,
                    launch.lane.device,
                    stream,
                    self._stages[operator],
                    first + begin * (last - first),
                    first + finish * (last - first),
                )
                for operator, stream, (begin, finish) in zip(launch.operators, launch.streams, step.spans, strict=True)
            ]
        return sorted(timed, key=lambda row: (row[4], row[1]))


def _of_run(launches: Sequence[Launch], run: tuple[int, ...]) -> tuple[int, tuple[str, ...]]:
    return launches[run[0]].lane.device, tuple(launches[place].operators[0] for place in run)


def _bound(network: Launchable, launch: Launch, segment: CompiledSegment | None) -> _BoundLaunch:
    number = network.graph.index[launch.operators[0]]
    mark = launching(launch.lane.device, number, launch.stage, launch.streams[0])
    if launch.copied is not None:
        return _BoundLaunch(launch, None, (launch.copied,), (launch.copied,), mark, ((0.0, 1.0),))
    if segment is not None:
        shares = segment.shares if any(segment.shares) else (1.0,) * len(segment.shares)
        total = sum(shares)
        spans = tuple(pairwise(share / total for share in accumulate(shares, initial=0.0)))
        return _BoundLaunch(launch, segment.function, segment.reads, segment.makes, mark, spans)
    function, arguments = network.function(launch.lane.device, launch.operators)
    makes = tuple(value for operator in launch.operators for value in network.makes[operator])
    return _BoundLaunch(launch, function, arguments, makes, mark, ((0.0, 1.0),) * len(launch.operators))


def _where(launch: Launch) -> str:
    first, *others = launch.operators
    operators = ", ".join(launch.operators) if len(others) < _NAMED else f"{first} and the {len(others)} after it"
    if launch.copied is not None:
        return f"device {launch.lane.device}, copy of the output of operator {operators}"
    return place(launch.lane.device, operators, launch.stage, launch.streams[0])
