"""Values of a program on its device: tensors by slot, and compiled operators that read and write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from hios.kernels import CompiledOperator
from hios.kernels.compiled_operator import External, parts
from hios.kernels.tensors import torch_dtype
from hios.platforms.buffers import arena_tensor, deliver
from hios.platforms.cpu.progress_marker import marker
from hios.platforms.device_program import Buffer, Handover
from hios.workers.arena import Arena
from hios.workers.worker import Worker


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """An operator bound to slots: its function, the slots of its arguments and outputs, and its marker."""

    operator: str
    function: Callable[..., Any]
    arguments: tuple[int, ...]
    outputs: tuple[int, ...]
    marker: int


#: Slot of a value, the buffer it is copied to, and the function that sets its flag.
Departure = tuple[int, Tensor, Callable[[int], None]]
#: Slot of an output of the network, and its buffer.
Result = tuple[int, Tensor]


class Values:
    """Tensors by slot; a slot is None while its value does not exist.

    Args:
        worker: where the program runs, loaded.
    """

    def __init__(self, worker: Worker) -> None:
        self.arena = worker.arena
        #: Tells the controller which operator has begun.
        self.mark = worker.mark
        self.tensors: list[Any] = []
        self._slots: dict[External, int] = {}
        self._operators: dict[str, CompiledOperator] = worker.state["operators"]
        self._outputs: dict[str, list[External]] = worker.state["outputs"]
        self._places: dict[str, int] = worker.state["graph"].index
        for value, tensor in worker.state["inputs"].items():
            self.slot(value, tensor)

    def slot(self, value: External, tensor: Tensor | None = None) -> int:
        """The slot of a value, created on first use."""
        if value not in self._slots:
            self._slots[value] = len(self.tensors)
            self.tensors.append(tensor)
        return self._slots[value]

    def call(self, operator: str, stage: int | None, stream: int) -> OperatorCall:
        """An operator bound to slots, at its position in the schedule."""
        compiled = self._operators[operator]
        return OperatorCall(
            operator,
            compiled.run,
            tuple(self.slot(value) for value in compiled.externals),
            tuple(self.slot(value) for value in self._outputs[operator]),
            marker(self._places[operator], stage, stream),
        )

    def arrive(self, handover: Handover) -> int:
        """Bind a value that another device produces to its buffer; returns its slot."""
        return self.slot(handover.value, _handed_over(self.arena, handover.buffer))

    def departure(self, handover: Handover) -> Departure:
        """A value to send to other devices."""
        buffer = _handed_over(self.arena, handover.buffer)
        return self.slot(handover.value), buffer, self.arena.setter(handover.flag)

    def result(self, value: External, buffer: Buffer) -> Result:
        """A value that is an output of the network."""
        return self.slot(value), arena_tensor(self.arena, buffer)

    def run(self, call: OperatorCall) -> None:
        """Run an operator on the values in its slots."""
        self.mark(call.marker)
        tensors = self.tensors
        result = call.function(*[tensors[argument] for argument in call.arguments])
        if len(call.outputs) == 1:
            tensors[call.outputs[0]] = result
        else:
            for output, part in zip(call.outputs, parts(result, len(call.outputs)), strict=True):
                tensors[output] = part

    def run_merged(self, function: Callable[[Any], tuple[Tensor, ...]], calls: Sequence[OperatorCall]) -> None:
        """Run operators that read the same value as one function, which gives the output of each."""
        self.mark(calls[0].marker)
        results = function(self.tensors[calls[0].arguments[0]])
        for call, part in zip(calls, results, strict=True):
            self.tensors[call.outputs[0]] = part

    def hand_over(self, departures: tuple[Departure, ...], results: tuple[Result, ...], epoch: int) -> None:
        """Copy values to the buffers that other devices and the controller read."""
        for slot, buffer, signal in departures:
            deliver(self.tensors[slot], buffer)
            signal(epoch)
        for slot, buffer in results:
            deliver(self.tensors[slot], buffer)


def _handed_over(arena: Arena, buffer: Buffer) -> Tensor:
    """The same value in the memory format that operators produce, as converting costs several times a copy."""
    dtype = torch_dtype(buffer.dtype)
    return arena.tensor(buffer.offset, buffer.shape, dtype, channels_last=arena.channels_last)
