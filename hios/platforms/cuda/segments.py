"""Segments of a launch plan: each by its operators, or in the kernels that inductor makes of them, if these are faster.

A segment is what a stream runs between two waits. What inductor makes of it is one launch of the plan, and part of the
schedule's CUDA graph like any other.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hios.errors import HiosError, UnsupportedError, first_line
from hios.files import option_defaults
from hios.formats.run import SegmentResult
from hios.frontends.tolerances import beyond
from hios.kernels.segment_module import exported
from hios.platforms.cuda.compiled_network import Network, as_list
from hios.platforms.cuda.launch import Backend, Segment
from hios.platforms.cuda.plan import Flow, Lane, Value
from hios.platforms.reference import require_compiler

#: By operators, in the kernels of torch and cuDNN, and in those of inductor.
PACKED, INDUCTOR = "packed", "inductor"
#: Seconds after which no further segment of a schedule is compiled.
BUDGET_S = 60.0
#: Longest time of the choice for a schedule, as a compilation that has begun is not stopped.
TIMEOUT_S = BUDGET_S + 600.0
#: Why a segment is not compiled when that time is over.
_LATE = "not compiled within the time for it"
#: Untimed and timed runs of each way.
_WARM_UP, _RUNS = 5, 31


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A segment on a device, with the values that cross its border."""

    device: int
    operators: tuple[str, ...]
    reads: tuple[Value, ...]
    makes: tuple[Value, ...]


class Chooser:
    """Chooses what runs the segments of plans; those that several plans have in common are compiled once."""

    def __init__(self, network: Network, flow: Flow, backend: Backend) -> None:
        self._network, self._flow, self._backend = network, flow, backend
        self._readers: dict[Value, list[str]] = {}
        for name, values in flow.reads.items():
            for value in values:
                self._readers.setdefault(value, []).append(name)
        self._known: dict[_Candidate, tuple[dict[str, float], dict[str, str], Callable[..., Any] | None]] = {}

    def chosen(
        self,
        runs: Sequence[tuple[int, tuple[str, ...]]],
        taken_ms: Mapping[str, float],
        seconds: float = BUDGET_S,
    ) -> tuple[list[Segment], list[SegmentResult]]:
        """Segments that inductor runs, and what became of each.

        Args:
            runs: device and operators of every segment.
            taken_ms: milliseconds of operators, where known: the longest segments come first.
            seconds: after which none is compiled any more.
        """
        deadline = time.monotonic() + seconds
        candidates = [self._candidate(*run) for run in runs]
        examples = self._examples({value for each in candidates for value in (*each.reads, *each.makes)})
        total = {each: sum(taken_ms.get(name, 0.0) for name in each.operators) for each in candidates}
        for each in sorted(dict.fromkeys(candidates), key=lambda each: -total[each]):
            if each not in self._known or _LATE in self._known[each][1].values():
                self._known[each] = self._compared(each, examples, total[each], deadline)
        segments, results = [], []
        for each in candidates:
            known_ms, why, function = self._known[each]
            runtime = min(known_ms, key=known_ms.__getitem__)
            results.append(SegmentResult(each.device, each.operators, runtime, known_ms, why))  # type: ignore[arg-type]
            if runtime == INDUCTOR and function is not None:
                shares = tuple(taken_ms.get(name, 1.0) for name in each.operators)
                segments.append(Segment(each.device, each.operators, each.reads, each.makes, function, shares))
        return segments, results

    def _candidate(self, device: int, operators: tuple[str, ...]) -> _Candidate:
        own = set(operators)
        made = [value for name in operators for value in self._flow.makes[name]]
        reads = dict.fromkeys(value for name in operators for value in self._flow.reads[name])
        outside = set(self._flow.outputs)
        return _Candidate(
            device,
            operators,
            tuple(value for value in reads if value[0] == "input" or value[1] not in own),
            tuple(value for value in made if value in outside or not own.issuperset(self._readers.get(value, ()))),
        )

    def _examples(self, wanted: set[Value]) -> dict[Value, Tensor]:
        """Values of a run on the first device."""
        examples = {value: tensor for value, tensor in self._network.inputs(0).items() if value in wanted}

        def see(name: str, _: Mapping[Value, Tensor], made: Sequence[Tensor]) -> None:
            own = zip(self._flow.makes[name], made, strict=True)
            examples.update({value: tensor for value, tensor in own if value in wanted})

        self._network.run_one_by_one(lambda _, function, arguments: function(*arguments), see)
        return examples

    def _compared(
        self, candidate: _Candidate, examples: Mapping[Value, Tensor], taken_ms: float, deadline: float
    ) -> tuple[dict[str, float], dict[str, str], Callable[..., Any] | None]:
        """Milliseconds of both ways, why inductor is none of them, and what it made."""
        place = self._network.places[candidate.device]
        inputs = [examples[value].to(place) for value in candidate.reads]
        packed = self._by_operators(candidate)
        try:
            compiled = self._compiled(candidate, inputs, deadline)
            self._require_equal(candidate, packed, compiled, inputs)
            return self._timed(candidate, {PACKED: packed, INDUCTOR: compiled}, inputs), {}, compiled
        except Exception as error:  # inductor and CUDA raise many types
            if isinstance(error, torch.OutOfMemoryError):
                raise
            why = str(error) if isinstance(error, HiosError) else first_line(error)
            return {PACKED: taken_ms}, {INDUCTOR: why}, None

    def _by_operators(self, candidate: _Candidate) -> Callable[..., Any]:
        functions = [(name, *self._network.function(candidate.device, (name,))) for name in candidate.operators]

        def run(*inputs: Tensor) -> Any:
            values = dict(zip(candidate.reads, inputs, strict=True))
            for name, function, arguments in functions:
                made = as_list(function(*[values[value] for value in arguments]), len(self._flow.makes[name]))
                values.update(zip(self._flow.makes[name], made, strict=True))
            return _result([values[value] for value in candidate.makes])

        return run

    def _compiled(self, candidate: _Candidate, inputs: Sequence[Tensor], deadline: float) -> Callable[..., Any]:
        """A segment as inductor compiles it; an `UnsupportedError` if it cannot be."""
        graph = self._network.graph
        operators = [graph.operators[graph.index[name]] for name in candidate.operators]
        if sum(self._network.kernels(name) for name in candidate.operators) == 1:
            raise UnsupportedError("it is a single call")
        if time.monotonic() > deadline:
            raise UnsupportedError(_LATE)
        place = self._network.places[candidate.device]
        if place.type == "cuda" and importlib.util.find_spec("triton") is None:
            raise UnsupportedError("needs triton, which is not installed")
        require_compiler("a segment")
        weights = self._network.weights(candidate.device)
        values = dict(zip(candidate.reads, inputs, strict=True))
        with place:
            program = exported(operators, values, candidate.makes, weights, packed=place.type == "cuda")
        with torch.inference_mode(False), torch.no_grad():
            module = program.module(check_guards=False)
            compiled: Any = torch._inductor.compile(module, [value.clone() for value in inputs])
        return lambda *values: _result(compiled(*values))

    def _require_equal(
        self, candidate: _Candidate, packed: Callable[..., Any], compiled: Callable[..., Any], inputs: Sequence[Tensor]
    ) -> None:
        """Compare both ways in full float32, and where their outputs lie; an `UnsupportedError` if that differs."""
        count = len(candidate.makes)
        with self._backend.exactly():
            right, made = (as_list(way(*inputs), count) for way in (packed, compiled))
        self._backend.synchronize(candidate.device)
        read = {value.untyped_storage().data_ptr() for value in inputs}
        for (_, operator, _), own, expected in zip(candidate.makes, made, right, strict=True):
            if (off := beyond([own.cpu()], [expected.cpu()], option_defaults.TOLERANCE)) is not None:
                raise UnsupportedError(
                    f"its output of operator {operator} differs by {off:.3g} of its largest value; allowed: "
                    f"{option_defaults.TOLERANCE:g}"
                )
            where = own.untyped_storage().data_ptr()
            if where in read and where != expected.untyped_storage().data_ptr():
                raise UnsupportedError(f"its output of operator {operator} lies in the memory of what it reads")

    def _timed(
        self, candidate: _Candidate, ways: Mapping[str, Callable[..., Any]], inputs: Sequence[Tensor]
    ) -> dict[str, float]:
        """Milliseconds by way, in turns: medians from the launch of a CUDA graph of it to its end."""
        lane, count = Lane(candidate.device), len(candidate.makes)
        replays = {}
        for name, way in ways.items():
            launch = partial(self._backend.run, lane, way, list(inputs), count)
            launch()
            self._backend.synchronize(candidate.device)
            replays[name], _ = self._backend.capture((lane,), launch)
        samples: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(_WARM_UP + _RUNS):
            for name, replay in replays.items():
                began = time.perf_counter_ns()
                replay()
                self._backend.synchronize(candidate.device)
                if number >= _WARM_UP:
                    samples[name].append((time.perf_counter_ns() - began) / 1e6)
        return {name: statistics.median(own) for name, own in samples.items()}


def _result(values: Sequence[Tensor]) -> Any:
    """What the function of an operator returns: one tensor, or several."""
    return values[0] if len(values) == 1 else tuple(values)
