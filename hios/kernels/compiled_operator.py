"""An operator of graph.json as one Python function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from torch import Tensor

from hios.core.graph import Call, Operator, Value
from hios.errors import ArtifactError
from hios.kernels import cudnn, onednn
from hios.kernels.onednn import PRODUCT, is_packable, packed_product
from hios.kernels.table import ALLOCATES, IN_PLACE, Kernel, build

#: What an operator reads from outside: ("operator", id, item) or ("input", name, 0).
External = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class CompiledOperator:
    """A scheduling unit, ready to run.

    ``run`` takes the tensors named by ``externals``, in that order, and returns the output tensor, or a tuple of
    them for an operator with several ``outputs``; ``kernels`` are the functions of the kernel table that it calls.
    """

    id: str
    externals: tuple[External, ...]
    outputs: tuple[External, ...]
    run: Callable[..., Any]
    kernels: int = 1

    def run_on(self, values: dict[External, Any]) -> None:
        """Run it on values by name, and add its outputs."""
        made = self.run(*[values[value] for value in self.externals])
        count = len(self.outputs)
        values.update(zip(self.outputs, [made] if count == 1 else parts(made, count), strict=True))


def parts(made: Any, count: int) -> Sequence[Tensor]:
    """The outputs of an operator that has several, as ``run`` made them.

    Raises:
        ArtifactError: they are more or fewer.
    """
    number = len(made) if isinstance(made, tuple | list) else 1
    if number != count or number == 1:
        raise ArtifactError(f"makes {number} output(s), of which the graph states {count}; extract the graph again")
    return made


def externals(operator: Operator) -> tuple[External, ...]:
    """The values that an operator reads from other operators and graph inputs, each once, by first use."""
    values: dict[External, None] = {}
    for call in operator.calls:
        for argument in call.arguments:
            if (value := argument.external) is not None:
                values[value] = None
    return tuple(values)


def outputs(operator: Operator) -> tuple[External, ...]:
    """The values that an operator makes; one if the graph does not state their shapes."""
    return tuple(("operator", operator.id, item) for item in range(len(operator.output_types) or 1))


def weights_of(operators: Sequence[Operator]) -> list[str]:
    """The names of the weights that operators read, each once, by first use."""
    arguments = (argument for operator in operators for call in operator.calls for argument in call.arguments)
    return list(dict.fromkeys(argument.weight for argument in arguments if argument.weight is not None))


def compile_operator(operator: Operator, weights: Mapping[str, Tensor], *, packed: bool = False) -> CompiledOperator:
    """Turn an operator with its calls into a function of its outside values.

    Weights are bound, not copied, unless convolutions and matrix products are packed for the CPU
    (``hios.kernels.onednn``), or convolutions for a GPU (``hios.kernels.cudnn``): faster, and results of four
    dimensions are in channels-last order.

    Raises:
        UnsupportedError: the kernel table lacks an operator.
    """
    return _Compiler(operator, weights, packed).compiled()


class _Compiler:
    """Compiles one operator.

    Values have slots: the outside values come first, then weights and numbers, then the result of each step.
    """

    def __init__(self, operator: Operator, weights: Mapping[str, Tensor], packed: bool) -> None:
        self._operator = operator
        self._weights = weights
        self._packed = packed
        self._calls = operator.calls
        #: How often the result of each call is read.
        self._readers = Counter(argument.call for call in self._calls for argument in call.arguments)
        self._outside = externals(operator)
        self._fixed: list[Any] = []
        #: A step's kernel with its arguments, each as its kind and its index within that kind.
        self._steps: list[tuple[Kernel, list[tuple[str, int]]]] = []
        self._step_of: dict[int, int] = {}

    def compiled(self) -> CompiledOperator:
        """Compile all calls."""
        for position in range(len(self._calls)):
            if position not in self._step_of:
                self._compile(position)
        base = {"outside": 0, "fixed": len(self._outside), "step": len(self._outside) + len(self._fixed)}
        steps = [(kernel, [base[kept] + place for kept, place in arguments]) for kernel, arguments in self._steps]
        run = _function(len(self._outside), tuple(self._fixed), steps)
        return CompiledOperator(self._operator.id, self._outside, outputs(self._operator), run, len(steps))

    def _compile(self, position: int) -> None:
        call = self._calls[position]
        self._step_of[position] = len(self._steps)
        library = next((own for own in (onednn, cudnn) if self._packed and own.can_pack(call, self._weights)), None)
        if library is not None:
            self._steps.append((self._packed_kernel(position, library), [self._kept(call.arguments[0])]))
        else:
            kernel = _chosen_kernel(self._operator.id, call, self._calls, self._readers)
            self._steps.append((kernel, [self._kept(argument) for argument in call.arguments]))

    def _packed_kernel(self, position: int, library: ModuleType) -> Kernel:
        """A convolution or product as a function of its first argument, with bias and activation behind it."""
        call = self._calls[position]
        weight, *others = [self._weights[tensor.weight or ""] for tensor in call.arguments[1:]]
        bias, last = (others[0] if others else None), position
        if call.function == PRODUCT and (sum_ := self._bias(position, weight.shape[1])) is not None:
            last, bias = sum_
        activation = self._only_reader(last)
        if activation is not None and not library.can_fuse(self._calls[activation]):
            activation = None
        for covered in {last, last if activation is None else activation}:
            self._step_of[covered] = len(self._steps)
        name = None if activation is None else self._calls[activation].function
        if call.function == PRODUCT:
            return packed_product(weight, bias, name)
        return library.packed_convolution(call.attributes, weight, bias, name)

    def _bias(self, position: int, columns: int) -> tuple[int, Tensor] | None:
        """The call that adds a constant vector to a product, if it is the only one that reads the product."""
        reader = self._only_reader(position)
        if reader is None or self._calls[reader].function != "relax.add":
            return None
        for argument in self._calls[reader].arguments:
            vector = self._weights[argument.weight] if argument.weight is not None else None
            if vector is not None and vector.shape == (columns,) and is_packable(vector):
                return reader, vector
        return None

    def _only_reader(self, position: int) -> int | None:
        """The only call that reads the result of another, and reads it once."""
        if self._readers[position] != 1:
            return None
        result = Value(call=position)
        return next((other for other, call in enumerate(self._calls) if result in call.arguments), None)

    def _kept(self, argument: Value) -> tuple[str, int]:
        value = argument.external
        if value is not None:
            return "outside", self._outside.index(value)
        if argument.call is not None:
            return "step", self._step_of[argument.call]
        self._fixed.append(argument.number if argument.weight is None else self._weights[argument.weight])
        return "fixed", len(self._fixed) - 1


def _chosen_kernel(place: str, call: Call, calls: Sequence[Call], readers: Mapping[int | None, int]) -> Kernel:
    function, attributes = call.function, call.attributes
    if function in IN_PLACE:
        producer = call.arguments[0].call
        if producer is not None and readers[producer] == 1 and calls[producer].function in ALLOCATES:
            return IN_PLACE[function](attributes)
    return build(function, attributes, place)


def _function(
    outside: int, fixed: tuple[Any, ...], steps: Sequence[tuple[Kernel, Sequence[int]]]
) -> Callable[..., Any]:
    if len(steps) == 1:
        kernel, arguments = steps[0]
        if list(arguments) == list(range(outside + len(fixed))):
            return (lambda *values: kernel(*values, *fixed)) if fixed else kernel

    def run(*values: Any) -> Any:
        slots = [*values, *fixed]
        for kernel, arguments in steps:
            slots.append(kernel(*[slots[argument] for argument in arguments]))
        return slots[-1]

    return run
