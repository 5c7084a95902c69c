"""Which operators of torch come through `hios.extract`, and compute what they do in eager mode.

    pip install expecttest  # which torch's database of operators imports
    python benchmarks/torch_operators.py [--all] [NAME ...]

The list is OpInfo, torch's own database, with the largest of the first sample inputs of each operator, in float32 where
it takes that. Left out are operators without a tensor among inputs or outputs, those that write into inputs, and those
that answer differently when asked twice. An operator is a model of its own, its tensors inputs and everything else
constants. Its graph then runs on the sample, on the sample negated, and on NaN, infinities, zero and large numbers
where the sample has real numbers, and is compared with eager mode: equal, as far as rounding goes; refused, with a
reason; or different. ``--all`` prints all that are not equal, with reasons; otherwise reasons are counted. The exit
status is 1 if one is different or crashes.
"""

from __future__ import annotations

import argparse
import collections
import functools
import itertools
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from hios.errors import HiosError, first_line
from hios.frontends.extraction_check import run_graph
from hios.optimizing.tracing import ModelInputs, ModelOutputs, export, extract

DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)
#: Samples of which the largest is taken, and its most elements.
SAMPLES, MOST = 10, 100_000
#: Of the largest magnitude of an output: far above rounding, far below a wrong answer.
TOLERANCE = 1e-3
#: Each of them once, as the order of equal numbers is nobody's promise.
SPECIAL = (float("nan"), float("inf"), float("-inf"), 1e30, -1e30, 0.0)
EQUAL, REFUSED, DIFFERENT, LEFT_OUT, CRASHED = "equal", "refused", "different", "left out", "crashed"
#: Operators for each process, as what they load and leave adds up.
FOR_A_PROCESS = 100


class Call(nn.Module):
    """An operator with constants; inputs are its tensors."""

    def __init__(self, operator: Any, sample: Any) -> None:
        super().__init__()
        self._leaves, self._spec = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        self._operator = operator
        self.tensors = tuple(leaf.detach() for leaf in self._leaves if isinstance(leaf, Tensor))

    def forward(self, *tensors: Tensor) -> Any:
        """What the operator computes."""
        rest = iter(tensors)
        leaves = [next(rest) if isinstance(leaf, Tensor) else leaf for leaf in self._leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        return self._operator(*args, **kwargs)


def database() -> dict[str, Any]:
    """The operators by name and variant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return {f"{info.name}{info.variant_test_name and '.'}{info.variant_test_name}": info for info in op_db}


def call(info: Any) -> Call | None:
    """The largest of the first samples; None if there is none with a tensor."""
    supported = info.supported_dtypes("cpu")
    dtype = next((dtype for dtype in DTYPES if dtype in supported), next(iter(supported), torch.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=False), SAMPLES)
        calls = [Call(info.op, sample) for sample in samples]
    sizes = {own: sum(tensor.numel() for tensor in own.tensors) for own in calls}
    fitting = [own for own in calls if own.tensors and sizes[own] <= MOST]
    return max(fitting, key=lambda own: sizes[own], default=None)


def others(tensors: Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    """Inputs of the same shapes."""
    yield tuple(-tensor if tensor.is_floating_point() else tensor.clone() for tensor in tensors)
    yield tuple(_special(tensor) if tensor.is_floating_point() else tensor.clone() for tensor in tensors)


def _special(like: Tensor) -> Tensor:
    """Numbers from -99 to 100, special ones among them from the middle on."""
    values, middle = torch.linspace(-99, 100, like.numel()), like.numel() // 2
    rest = torch.tensor(SPECIAL)[: like.numel() - middle]
    values[middle : middle + len(rest)] = rest
    return values.reshape(like.shape).to(like.dtype)


def differs(found: Sequence[Tensor], expected: Sequence[Tensor]) -> str:
    """How outputs differ, in words; empty if they do not, as far as rounding goes."""
    for one, other in zip(found, expected, strict=True):
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return f"{one.dtype} {tuple(one.shape)} instead of {other.dtype} {tuple(other.shape)}"
        if other.is_floating_point() and other.dtype.itemsize == 1:  # of which torch tells nothing
            one, other = one.float(), other.float()
        finite = other[torch.isfinite(other)].abs() if other.is_floating_point() or other.is_complex() else None
        if finite is None:
            same = torch.equal(one, other)
        else:
            size = float(finite.max()) if finite.numel() else 0.0
            same = torch.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE * size, equal_nan=True)
        if not same:
            return "other values"
    return ""


def _quietly() -> None:
    """How a process of `outcomes` begins."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


def outcome(name: str) -> tuple[str, str]:
    """What becomes of an operator, and why."""
    try:
        model = call(database()[name])
        if model is None:
            return LEFT_OUT, "no tensor among its inputs"
        given = model.tensors
        kept = [tensor.clone() for tensor in given]
        made = [pytree.tree_leaves(model(*given)) for _ in range(2)]
    except Exception as error:  # such as samples for other devices
        return LEFT_OUT, f"fails in eager mode: {type(error).__name__}"
    if not all(isinstance(leaf, Tensor) and leaf.layout is torch.strided for leaf in made[0]) or not made[0]:
        return LEFT_OUT, "outputs that are not tensors"
    if not all(leaf.layout is torch.strided for leaf in given):
        return LEFT_OUT, "sparse tensors"
    if differs(given, kept):
        return LEFT_OUT, "writes into its inputs"
    if differs(*made):
        return LEFT_OUT, "random"
    try:
        ModelInputs(given, {})
        outputs = ModelOutputs(model(*given), given)
        if not outputs.tensors:
            raise outputs.refusal("Call")
        exported = export(model, given, {}, outputs)
        graph, weights = extract(exported, name)
    except HiosError as error:
        return REFUSED, first_line(error)
    except Exception as error:
        return CRASHED, f"{type(error).__name__}: {first_line(error)}"
    return _compared(model, functools.partial(run_graph, graph, weights))


def _compared(model: Call, run: Callable[[tuple[Tensor, ...]], Sequence[Tensor]]) -> tuple[str, str]:
    """Whether a graph computes what an operator does."""
    given = model.tensors
    for which, tensors in zip(("the sample", "it negated", "special values"), (given, *others(given)), strict=True):
        try:
            outputs = model(*tensors)
        except Exception:  # it refuses such values
            break
        try:
            expected = ModelOutputs(outputs, tensors).flat(outputs) or pytree.tree_leaves(outputs)  # inputs themselves
            why = differs(run(tensors), expected)
        except Exception as error:
            return CRASHED, f"{type(error).__name__} on {which}: {first_line(error)}"
        if why:
            return DIFFERENT, f"{why} on {which}"
    return EQUAL, ""


def outcomes(outcome: Callable[[str], tuple[str, str]], names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """What becomes of operators, as a function of the module says, in processes of their own."""
    left = list(names)
    while left:
        with ProcessPoolExecutor(1, get_context("spawn"), initializer=_quietly) as pool:
            for name in left[:FOR_A_PROCESS]:
                left = left[1:]
                try:
                    yield (name, *pool.submit(outcome, name).result())
                except BrokenProcessPool:
                    yield name, CRASHED, "the process ended"
                    break
                except Exception as error:  # such as dtypes that nothing can be compared in
                    yield name, CRASHED, f"{type(error).__name__}: {first_line(error)}"


def report(
    arguments: Sequence[str],
    description: str | None,
    names: Callable[[], Iterable[str]],
    outcome: Callable[[str], tuple[str, str]],
    of: str,
) -> int:
    """Print what becomes of operators, those of the arguments or all; the exit status."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args(arguments)
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for name, what, why in outcomes(outcome, options.names or sorted(names())):
        counts[what][re.sub(r"\d+", "N", why.replace(name, "NAME"))] += 1
        if what in (DIFFERENT, CRASHED) or (options.all and what != EQUAL):
            print(f"{name}: {what}: {why}", flush=True)
    for what in (REFUSED, LEFT_OUT):
        for why, count in counts[what].most_common(10):
            print(f"{count:>5} {what}: {why}")
    listed = sum(sum(own.values()) for what, own in counts.items() if what != LEFT_OUT)
    summary = ", ".join(f"{sum(counts[what].values())} {what}" for what in (EQUAL, REFUSED, DIFFERENT, CRASHED))
    print(f"{of}: of {listed} operators {summary}; {sum(counts[LEFT_OUT].values())} left out")
    return bool(counts[DIFFERENT] or counts[CRASHED])


if __name__ == "__main__":
    sys.exit(report(sys.argv[1:], __doc__, database, outcome, f"torch {torch.__version__}"))
