"""A graph with its weights on the devices that need them, and its operators compiled for these."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from hios.core.graph import Graph, Operator
from hios.kernels import compile_operator
from hios.kernels.compiled_operator import externals
from hios.kernels.cudnn import is_packable, packed_filters
from hios.kernels.merged import compile_merged, torch_dtype
from hios.kernels.table import ALLOCATES
from hios.platforms.cuda.plan import Flow, Value

#: Functions that create tensors, by default on the host.
_FROM_NOTHING = frozenset({"relax.full", "relax.zeros", "relax.ones", "relax.arange"})

#: Calls the function of an operator, given by its id, with arguments.
Run = Callable[[str, Callable[..., Any], list[Tensor]], Any]


class Network:
    """The network as the devices of one process run it.

    A device gets those weights that its operators read, once; several devices may be at one place.
    """

    def __init__(self, graph: Graph, weights: Mapping[str, Tensor], places: Sequence[torch.device]) -> None:
        self.graph, self.places = graph, list(places)
        filters = packed_filters(graph)
        self._weights = {place: _Placed(weights, place, filters) for place in self.places}
        self._functions: dict[tuple[torch.device, tuple[str, ...]], Callable[..., Any]] = {}
        self._kernels: dict[str, int] = {}
        self._inputs: dict[torch.device, dict[Value, Tensor]] = {}
        self._given: list[Tensor] = []
        self.reads = {operator.id: externals(operator) for operator in graph.operators}
        self.makes = {
            operator.id: [("operator", operator.id, item) for item in range(len(operator.output_types))]
            for operator in graph.operators
        }

    def write(self, values: Sequence[Tensor]) -> None:
        """Write the inputs of the network, in the order of the graph; returns when they have arrived."""
        self._given = list(values)
        for place, buffers in self._inputs.items():
            for buffer, value in zip(buffers.values(), values, strict=True):
                buffer.copy_(value)
            if place.type == "cuda":  # other streams do not wait for the copying one
                torch.cuda.synchronize(place)

    def inputs(self, device: int) -> dict[Value, Tensor]:
        """The input buffers on a device; their addresses never change."""
        place = self.places[device]
        if place not in self._inputs:
            values: dict[Value, Tensor] = {}
            for number, entry in enumerate(self.graph.inputs):
                buffer = torch.zeros(entry.shape, dtype=torch_dtype(entry.dtype), device=place)
                values["input", entry.name, 0] = buffer.copy_(self._given[number]) if self._given else buffer
            self._inputs[place] = values
        return self._inputs[place]

    def weights(self, device: int) -> Mapping[str, Tensor]:
        """The weights on a device, each copied there on first use."""
        return self._weights[self.places[device]]

    def placed_bytes(self) -> int:
        """Bytes of weights and inputs, on all devices together."""
        weights = (tensor for placed in self._weights.values() for tensor in placed.values())
        inputs = (tensor for placed in self._inputs.values() for tensor in placed.values())
        return sum(tensor.nbytes for tensor in (*weights, *inputs))

    def function(self, device: int, operators: tuple[str, ...]) -> tuple[Callable[..., Any], tuple[Value, ...]]:
        """An operator, or several merged into one, as a function, with the values it takes."""
        place = self.places[device]
        if (place, operators) not in self._functions:
            self._functions[place, operators] = self._compiled(place, operators)
        return self._functions[place, operators], self.reads[operators[0]]

    def _compiled(self, place: torch.device, names: tuple[str, ...]) -> Callable[..., Any]:
        weights, packed = self._weights[place], place.type == "cuda"
        if len(names) > 1:
            return compile_merged(self.graph, names, weights, packed=packed)
        operator = self.graph.operators[self.graph.index[names[0]]]
        compiled = compile_operator(operator, weights, packed=packed)
        self._kernels[compiled.id] = compiled.kernels
        return _at(place, operator, compiled.run)

    def kernels(self, operator: str) -> int:
        """How many functions of the kernel table a compiled operator calls."""
        return self._kernels[operator]

    def flow(self, run: Run) -> Flow:
        """What operators read and produce, and which outputs may lie in the memory of what their operator reads.

        ``run`` calls an operator's function, one after another, on the first device: one that fails, fails here.
        """
        self.run_one_by_one(run, lambda *_: None)
        return Flow(self.reads, self.makes, self._outputs(), self._views())

    def _outputs(self) -> list[Value]:
        values = [reference.external for reference in self.graph.outputs]
        return [value for value in values if value is not None]

    def _views(self) -> dict[Value, Collection[Value]]:
        """Outputs of operators that may return views.

        That an operator made none in a run proves nothing: ``reshape`` copies where strides demand it, and on another
        device they may not.
        """
        return {
            value: tuple(self.reads[operator.id])
            for operator in self.graph.operators
            if operator.calls[-1].function not in ALLOCATES
            for value in self.makes[operator.id]
        }

    def run_one_by_one(self, run: Run, see: Callable[[str, Mapping[Value, Tensor], Sequence[Tensor]], None]) -> None:
        """Run all operators on the first device, and see what each read and made; values stay while needed."""
        values: dict[Value, Tensor] = dict(self.inputs(0))
        readers = {value: sum(value in reads for reads in self.reads.values()) for value in self._made()}
        for number in self.graph.order:
            name = self.graph.operators[number].id
            function, arguments = self.function(0, (name,))
            made = as_list(run(name, function, [values[value] for value in arguments]), len(self.makes[name]))
            values.update(zip(self.makes[name], made, strict=True))
            see(name, {value: values[value] for value in arguments}, made)
            del made
            for value in arguments:
                if value in readers:
                    readers[value] -= 1
                    if not readers[value]:
                        del values[value]

    def _made(self) -> list[Value]:
        return [value for made in self.makes.values() for value in made]


class _Placed(dict[str, Tensor]):
    """Weights on a device, copied there on first use; those named in ``channels_last`` in that order."""

    def __init__(self, weights: Mapping[str, Tensor], place: torch.device, channels_last: Collection[str]) -> None:
        super().__init__()
        self._source, self._place, self._channels_last = weights, place, channels_last

    def __missing__(self, name: str) -> Tensor:
        with torch.inference_mode(False):  # torch.export takes no tensors of that mode
            placed = self._source[name].to(self._place)
            if name in self._channels_last and is_packable(placed):
                placed = placed.contiguous(memory_format=torch.channels_last)
        self[name] = placed
        return placed


def copied(value: Tensor, place: torch.device) -> Tensor:
    """A copy on a device, of the strides that copies between devices have: dense, in the order of dimensions."""
    return torch.empty_like(value, device=place).copy_(value, non_blocking=True)


def as_list(result: Any, count: int) -> list[Tensor]:
    """The results of an operator, one or several, as a list."""
    return [result] if count == 1 else list(result)


def _at(place: torch.device, operator: Operator, run: Callable[..., Any]) -> Callable[..., Any]:
    if not any(call.function in _FROM_NOTHING for call in operator.calls):
        return run

    def there(*values: Any) -> Any:
        with place:
            return run(*values)

    return there
