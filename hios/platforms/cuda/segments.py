"""Segments of a launch plan: each by its operators, or in the kernels that inductor makes of them, if these are faster.

A segment is what a stream runs between two waits. What inductor makes of it is one launch of the plan, and part of the
schedule's CUDA graph like any other.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import torch
from torch import Tensor

from hios.errors import HiosError, UnsupportedError
from hios.files import option_defaults
from hios.formats.run import SegmentResult, SegmentRuntime
from hios.frontends.tolerances import beyond
from hios.kernels.segment_module import exported, strided_copy
from hios.platforms.cuda.compiled_network import Network, as_list, copied
from hios.platforms.cuda.graph_pool import cause, is_out_of_memory
from hios.platforms.cuda.launch import Backend, CompiledSegment
from hios.platforms.cuda.plan import Flow, Lane, Value
from hios.platforms.reference import require_compiler

#: By operators, in the kernels of torch and cuDNN, and in those of inductor.
PACKED: SegmentRuntime = "packed"
INDUCTOR: SegmentRuntime = "inductor"
#: Seconds after which no further segment of a schedule is compiled.
BUDGET_S = 60.0
#: Longest time of the choice for a schedule, as a compilation that has begun is not stopped.
TIMEOUT_S = BUDGET_S + 600.0
#: Why a segment is not compiled when that time is over.
_LATE = "not compiled within the time for it"
#: Untimed and timed runs of each way.
_WARM_UP, _RUNS = 5, 31


@dataclass(frozen=True, slots=True)
class _SegmentCandidate:
    """A segment on a device, with the values that cross its border."""

    device: int
    operators: tuple[str, ...]
    reads: tuple[Value, ...]
    makes: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class _Choice:
    """What is known of a segment: milliseconds by way, why others were not compared, and what inductor made if faster.

    The reason ``may_pass`` if there was no time, or no memory.
    """

    known_ms: dict[str, float]
    why: dict[str, str]
    function: Callable[..., Any] | None
    may_pass: bool = False


class Chooser:
    """Chooses what runs the segments of plans; those that several plans have in common are compiled once."""

    def __init__(self, network: Network, flow: Flow, backend: Backend) -> None:
        self._network, self._flow, self._backend = network, flow, backend
        self._readers: dict[Value, list[str]] = {}
        for name, values in flow.reads.items():
            for value in values:
                self._readers.setdefault(value, []).append(name)
        #: By place, as devices may share one, and what crosses the border, with its strides.
        self._known: dict[tuple[Any, ...], _Choice] = {}

    def chosen(
        self,
        runs: Sequence[tuple[int, tuple[str, ...]]],
        taken_ms: Mapping[str, float],
        arriving: Mapping[str, Collection[Value]],
    ) -> tuple[list[CompiledSegment], list[SegmentResult]]:
        """Segments that inductor runs, and what became of each.

        Args:
            runs: device and operators of every segment.
            taken_ms: milliseconds of operators: the longest segments come first.
            arriving: by operator, the values that it reads as copies of what another device made.
        """
        deadline = time.monotonic() + BUDGET_S
        candidates = {self._candidate(*run): 0.0 for run in runs}
        for each in candidates:
            candidates[each] = sum(taken_ms[name] for name in each.operators)
        examples = self._examples({value for each in candidates for value in each.reads}, arriving)
        keys = {each: self._key(each, examples, arriving) for each in candidates}
        unknown = [each for each in candidates if not self._is_known(keys[each])]
        needed = {value for each in unknown for value in each.reads}
        examples = {value: tensor for value, tensor in examples.items() if value in needed}
        for each in sorted(unknown, key=lambda each: -candidates[each]):
            if not self._is_known(keys[each]):  # as another device at this place has it too
                inputs = self._inputs(each, examples, arriving)
                self._known[keys[each]] = self._compared(each, inputs, deadline)
        segments, results = [], []
        for each in candidates:
            choice = self._known[keys[each]]
            runtime = PACKED if choice.function is None else INDUCTOR
            results.append(SegmentResult(each.device, each.operators, runtime, choice.known_ms, choice.why))
            if choice.function is not None:
                shares = tuple(taken_ms[name] for name in each.operators)
                segments.append(
                    CompiledSegment(each.device, each.operators, each.reads, each.makes, choice.function, shares)
                )
        return segments, results

    def _key(
        self, candidate: _SegmentCandidate, examples: Mapping[Value, Tensor], arriving: Mapping[str, Collection[Value]]
    ) -> tuple[Any, ...]:
        place, away = self._network.places[candidate.device], _away(candidate, arriving)
        read = [
            torch.empty_like(examples[value], device="meta") if value in away else examples[value]
            for value in candidate.reads
        ]
        return place, candidate.operators, candidate.makes, tuple(map(_layout, read))

    def _is_known(self, key: tuple[Any, ...]) -> bool:
        known = self._known.get(key)
        return known is not None and not known.may_pass

    def _candidate(self, device: int, operators: tuple[str, ...]) -> _SegmentCandidate:
        own = set(operators)
        made = [value for name in operators for value in self._flow.makes[name]]
        reads = dict.fromkeys(value for name in operators for value in self._flow.reads[name])
        outside = set(self._flow.outputs)
        return _SegmentCandidate(
            device,
            operators,
            tuple(value for value in reads if value[0] == "input" or value[1] not in own),
            tuple(value for value in made if value in outside or not own.issuperset(self._readers.get(value, ()))),
        )

    def _examples(self, wanted: set[Value], arriving: Mapping[str, Collection[Value]]) -> dict[Value, Tensor]:
        """Values of a run on the first device, with the strides that they have where they are made."""
        examples = {value: tensor for value, tensor in self._network.inputs(0).items() if value in wanted}

        def run(name: str, function: Callable[..., Any], arguments: list[Tensor]) -> Any:
            given = zip(self._flow.reads[name], arguments, strict=True)
            away = arriving.get(name, ())
            return function(*[copied(own, own.device) if value in away else own for value, own in given])

        def see(name: str, _: Mapping[Value, Tensor], made: Sequence[Tensor]) -> None:
            own = zip(self._flow.makes[name], made, strict=True)
            examples.update({value: tensor for value, tensor in own if value in wanted})

        self._network.run_one_by_one(run, see)
        self._backend.synchronize(0)  # the streams of devices do not wait for this one
        return examples

    def _inputs(
        self, candidate: _SegmentCandidate, examples: Mapping[Value, Tensor], arriving: Mapping[str, Collection[Value]]
    ) -> list[Tensor]:
        """What a segment reads, where it runs, with the strides that it has there."""
        place, away = self._network.places[candidate.device], _away(candidate, arriving)
        return [
            copied(examples[value], place) if value in away else _placed(examples[value], place)
            for value in candidate.reads
        ]

    def _compared(self, candidate: _SegmentCandidate, inputs: Sequence[Tensor], deadline: float) -> _Choice:
        """Compare both ways, and time them."""
        self._backend.synchronize(candidate.device)
        packed = self._by_operators(candidate)
        try:
            compiled = self._compiled(candidate, inputs, deadline)
            self._require_equal(candidate, packed, compiled, inputs)
            known_ms = self._timed(candidate, {PACKED: packed, INDUCTOR: compiled}, inputs)
            return _Choice(known_ms, {}, compiled if known_ms[INDUCTOR] < known_ms[PACKED] else None)
        except Exception as error:  # inductor and CUDA raise many types
            why, may_pass = self._reason(error)
        # Without the error, which holds what it was raised beside: memory that may be needed here.
        return _Choice(self._timed(candidate, {PACKED: packed}, inputs), {INDUCTOR: why}, None, may_pass)

    def _reason(self, error: Exception) -> tuple[str, bool]:
        """An error in a line, and whether it may pass."""
        first = cause(error)
        why = str(first) if isinstance(first, HiosError) else self._backend.why(first)
        return why, why == _LATE or is_out_of_memory(error)

    def _by_operators(self, candidate: _SegmentCandidate) -> Callable[..., Any]:
        functions = [(name, *self._network.function(candidate.device, (name,))) for name in candidate.operators]

        def run(*inputs: Tensor) -> Any:
            values = dict(zip(candidate.reads, inputs, strict=True))
            for name, function, arguments in functions:
                made = as_list(function(*[values[value] for value in arguments]), len(self._flow.makes[name]))
                values.update(zip(self._flow.makes[name], made, strict=True))
            return _result([values[value] for value in candidate.makes])

        return run

    def _compiled(self, candidate: _SegmentCandidate, inputs: Sequence[Tensor], deadline: float) -> Callable[..., Any]:
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
            program = exported(
                operators, values, candidate.makes, weights, packed=place.type == "cuda", keep_strides=True
            )
        with torch.inference_mode(False), torch.no_grad():
            module = program.module(check_guards=False)
            compiled: Any = torch._inductor.compile(module, [strided_copy(value, place) for value in inputs])
        return lambda *values: _result(compiled(*values))

    def _require_equal(
        self,
        candidate: _SegmentCandidate,
        packed: Callable[..., Any],
        compiled: Callable[..., Any],
        inputs: Sequence[Tensor],
    ) -> None:
        """Compare outputs in full float32, their strides and memory; an `UnsupportedError` if one differs."""
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
            if (found := _layout(own)) != (allowed := _layout(expected)):
                raise UnsupportedError(f"its output of operator {operator} is {found}; allowed: {allowed}")
            where = {tensor.untyped_storage().data_ptr() for tensor in (own, expected)}
            if len(where) > 1 and where & read:
                raise UnsupportedError(
                    f"its output of operator {operator} is not in the memory in which the operator returns it"
                )

    def _timed(
        self, candidate: _SegmentCandidate, ways: Mapping[str, Callable[..., Any]], inputs: Sequence[Tensor]
    ) -> dict[str, float]:
        """Milliseconds by way, in turns: medians from the launch of a CUDA graph of it to its end.

        Operators that cannot be captured, nor can the schedule be then, are launched, and so is the other way.
        """
        lane, count = Lane(candidate.device), len(candidate.makes)
        launches = {name: partial(self._backend.run, lane, way, list(inputs), count) for name, way in ways.items()}
        replays: dict[str, Callable[[], object]] = {}
        for name, launch in launches.items():
            launch()
            self._backend.synchronize(candidate.device)
            try:
                replays[name], _ = self._backend.capture((lane,), launch)
            except Exception as error:
                if name == INDUCTOR or is_out_of_memory(error):
                    raise
                replays |= launches
                break
        samples: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(_WARM_UP + _RUNS):
            for name, replay in replays.items():
                began = time.perf_counter_ns()
                replay()
                self._backend.synchronize(candidate.device)
                if number >= _WARM_UP:
                    samples[name].append((time.perf_counter_ns() - began) / 1e6)
        return {name: statistics.median(own) for name, own in samples.items()}


def by_operators(result: SegmentResult, why: str) -> SegmentResult:
    """A segment that runs by its operators although inductor was faster."""
    known_ms = {PACKED: result.latency_ms[PACKED]}
    return msgspec.structs.replace(result, runtime=PACKED, latency_ms=known_ms, refused={INDUCTOR: why})


def _away(candidate: _SegmentCandidate, arriving: Mapping[str, Collection[Value]]) -> set[Value]:
    """The values that a segment reads as copies."""
    return {value for name in candidate.operators for value in arriving.get(name, ())}


def _placed(value: Tensor, place: torch.device) -> Tensor:
    return value if value.device == place else strided_copy(value, place)


def _layout(tensor: Tensor) -> str:
    """Type, shape and strides, without those of single elements."""
    strides = [stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]
    return f"{tensor.dtype} of {list(tensor.shape)} with strides {strides}"


def _result(values: Sequence[Tensor]) -> Any:
    """What the function of an operator returns: one tensor, or several."""
    return values[0] if len(values) == 1 else tuple(values)
