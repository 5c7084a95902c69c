"""Where OpenVINO, ONNX Runtime and torch.compile, as hios.optimize sets them up, answer differently from PyTorch.

    python benchmarks/runtime_faithfulness.py           writes hios/frontends/known_differences.json
    python benchmarks/runtime_faithfulness.py --check   fails if the file says something else
    python benchmarks/runtime_faithfulness.py --through RUNTIME   what of it hios.optimize lets through

Operators run on values on which runtimes are known to stumble, in five groups; each one that differs in the first runs
again by itself, as do those of the last:

finite   ordinary values: small whole numbers of both signs, the whole range of 8-bit ones, real numbers up to 1000,
         ties
masked   masks with empty rows
wide     whole numbers at the limits of 32 and 64 bits
special  NaN, infinities, real numbers at the limits of their dtype, and values from which PyTorch makes such
outside  indices outside of what they index, for which PyTorch raises: a runtime that answers, or crashes, differs

`python docs/generate_reference.py` puts the result into docs/how-it-decides.md.

``--through`` has `hios.optimize` take a runtime for each function whose operator the file names, with ordinary values
as the example, and calls the module that it makes with all values. Runs that the file names only for special values
take ``strict=True``.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import math
import multiprocessing
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import hios
from hios.errors import HiosError
from hios.files.versions import versions
from hios.frontends import known_differences
from hios.frontends.known_differences import KINDS, signature
from hios.optimizing import runtimes

RUNTIMES = ("openvino", "onnxruntime", "compile")
#: Beyond 1 + the magnitude of the right value: far above rounding, far below a wrong answer.
TOLERANCE = 1e-3
REALS = (torch.float32, torch.float64, torch.float16)
WHOLE = (torch.int64, torch.int32, torch.uint8, torch.int8)
ORDINARY = (0.0, -0.0, 0.25, -0.25, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.0, -2.0, 2.5, 3.0, -3.0, 7.0, -7.0, 10.0, -10.0,
            21.0, -21.0, 50.0, -50.0, 100.0, -100.0, 1000.0, -1000.0)  # fmt: skip
SMALL = (0, 1, -1, 2, -2, 3, -3, 5, -5, 7, -7, 10, -10, 100, -100, 1000, -1000)
BYTES = (0, 1, 2, 3, 5, 7, 10, 100, 127, 128, 200, 254, 255)

Function = Callable[..., Any]
Inputs = Callable[[torch.dtype, str], tuple[Tensor, ...] | None]


class Family(NamedTuple):
    """Operators that run on the same inputs."""

    dtypes: Sequence[torch.dtype]
    inputs: Inputs
    functions: Sequence[Function]


def values(dtype: torch.dtype, kind: str) -> list[Any] | None:
    """Values of a dtype, as many for each group; None where a group has none."""
    if kind == "masked" or (kind == "wide" and dtype.is_floating_point):
        return None
    if dtype is torch.bool:
        return [True, False] * 2 if kind == "finite" else None
    if dtype.is_floating_point:
        most = torch.finfo(dtype).max
        special = [math.nan, math.inf, -math.inf, most, -most, most / 2, 0.0, 1.0, -1.0]
        return list(itertools.islice(itertools.cycle(ORDINARY if kind == "finite" else special), len(ORDINARY)))
    if dtype.itemsize == 1:
        return None if kind != "finite" else [v if v < 128 or dtype is torch.uint8 else v - 256 for v in BYTES]
    limits = torch.iinfo(dtype)
    wide = [limits.min, limits.max, limits.min + 1, limits.max - 1, limits.max // 2 + 7, 2**31 + 5, -(2**31) - 5, 2**32,
            2**32 + 3, -(2**33) - 1, 0, 1, -1, 3, -3, 10**10, 7]  # fmt: skip
    inside = [v if limits.min <= v <= limits.max else limits.max - 2 for v in wide]
    return list(SMALL) if kind == "finite" else inside if kind == "wide" else None


def one(dtype: torch.dtype, kind: str) -> tuple[Tensor, ...] | None:
    """All values."""
    return None if (own := values(dtype, kind)) is None else (torch.tensor(own, dtype=dtype),)


def two(dtype: torch.dtype, kind: str) -> tuple[Tensor, ...] | None:
    """All pairs of values."""
    if (own := values(dtype, kind)) is None:
        return None
    pairs = torch.cartesian_prod(torch.tensor(own, dtype=dtype), torch.tensor(own, dtype=dtype))
    return pairs[:, 0].clone(), pairs[:, 1].clone()


def nonzero(dtype: torch.dtype, kind: str) -> tuple[Tensor, ...] | None:
    """All pairs, the second of which is not 0, nor -1 with the least number."""
    if (pairs := two(dtype, kind)) is None:
        return None
    divisor = torch.where(pairs[1] == 0, torch.ones_like(pairs[1]), pairs[1])
    if not dtype.is_floating_point:
        bad = (divisor == -1) & (pairs[0] == torch.iinfo(dtype).min)
        divisor = torch.where(bad, torch.ones_like(divisor), divisor)
    return pairs[0], divisor


def rows(dtype: torch.dtype, kind: str) -> tuple[Tensor, ...] | None:
    """Rows of 8 values, with ties."""
    if (own := values(dtype, kind)) is None:
        return None
    cycled = itertools.cycle(own)
    made = [[next(cycled) for _ in range(8)] for _ in range(len(own))]
    made += [[own[1]] * 8, [own[1], own[0]] * 4, [own[0], own[1], own[1], own[0]] * 2]
    return (torch.tensor(made, dtype=dtype),)


def long_rows(dtype: torch.dtype, kind: str) -> tuple[Tensor, ...] | None:
    """Rows of 64 values with many ties, as unstable sorting leaves short ones in order."""
    if kind != "finite":
        return None if (short := rows(dtype, kind)) is None else (short[0][:3].repeat(1, 8),)
    return (torch.tensor([[(7 * n * n + row) % 5 for n in range(64)] for row in range(3)]).to(dtype),)


def image(dtype: torch.dtype, kind: str) -> tuple[Tensor, ...] | None:
    """An image of two channels; special values are in one place each."""
    plain = (torch.arange(2 * 8 * 8).reshape(1, 2, 8, 8) * 37 % 41 - 20).to(dtype) / 4
    if kind in {"wide", "masked"}:
        return None
    if kind == "special":
        plain[0, 0, 1, 2], plain[0, 0, 5, 5], plain[0, 1, 3, 3] = math.nan, math.inf, -math.inf
    return (plain,)


def attention(dtype: torch.dtype, kind: str) -> tuple[Tensor, ...] | None:
    """Queries, and a mask, of which a row is empty."""
    if kind != "masked":
        return None
    x = (torch.arange(2 * 4 * 8).reshape(1, 2, 4, 8) * 37 % 41 - 20).to(dtype) / 20
    return x, torch.tensor([[1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)


def places(dtype: torch.dtype, kind: str) -> tuple[Tensor, ...] | None:
    """A table, and two lists of indices."""
    if kind != "finite":
        return None
    return torch.arange(4 * 5 * 6).reshape(4, 5, 6).to(dtype), torch.tensor([0, 3, 2]), torch.tensor([1, 4, 0])


def places_from_the_end(dtype: torch.dtype, kind: str) -> tuple[Tensor, ...] | None:
    """A table, and two lists of indices, some of them negative."""
    return None if kind != "finite" else (places(dtype, kind)[0], torch.tensor([-1, 0, 2]), torch.tensor([1, -5, -2]))  # type: ignore[index]


def chosen(dtype: torch.dtype, kind: str) -> tuple[Tensor, ...] | None:
    """A condition, and pairs of values."""
    return None if (own := two(dtype, kind)) is None else (torch.arange(own[0].numel()) % 3 == 0, *own)


_ACTIVATIONS: list[Function] = [
    torch.relu, F.relu6, F.leaky_relu, F.elu, F.selu, F.celu, F.gelu, lambda x: F.gelu(x, approximate="tanh"), F.silu,
    F.mish, F.softplus, F.softsign, F.hardswish, F.hardsigmoid, F.hardtanh, F.logsigmoid, F.tanhshrink, F.hardshrink,
    F.softshrink, lambda x: F.threshold(x, 0.5, 2.0), torch.sigmoid, torch.tanh,
]  # fmt: skip
_REAL: list[Function] = [
    torch.abs, torch.neg, torch.sign, torch.exp, torch.exp2, torch.expm1, torch.log, torch.log2, torch.log10,
    torch.log1p, torch.sqrt, torch.rsqrt, torch.reciprocal, torch.square, torch.sin, torch.cos, torch.tan, torch.asin,
    torch.acos, torch.atan, torch.sinh, torch.cosh, torch.asinh, torch.acosh, torch.atanh, torch.erf, torch.floor,
    torch.ceil, torch.round, torch.trunc, torch.frac, torch.isnan, torch.isinf, torch.isfinite, torch.nan_to_num,
    lambda x: x.clamp(-1, 2), lambda x: x.clamp(min=0.5), lambda x: x.clamp(max=0.5), lambda x: x**2, lambda x: x**0.5,
    lambda x: x // 2, lambda x: x % 3, lambda x: torch.div(x, 2, rounding_mode="trunc"), lambda x: x > 1,
    lambda x: x == 1, lambda x: x + 1, lambda x: x * 3, lambda x: x / 3, lambda x: x.masked_fill(x > 1, 5.0),
    lambda x: x.logical_not(), lambda x: x.to(torch.bool), lambda x: torch.where(x > 1, x, 0.0),
]  # fmt: skip
_WHOLE: list[Function] = [
    torch.abs, torch.neg, torch.sign, torch.square, torch.bitwise_not, lambda x: x + 100, lambda x: x * 3,
    lambda x: x - 200, lambda x: x // 2, lambda x: x // -3, lambda x: x % 3, lambda x: x % -3,
    lambda x: torch.div(x, 2, rounding_mode="floor"), lambda x: torch.div(x, 2, rounding_mode="trunc"), lambda x: x / 4,
    lambda x: torch.fmod(x, 3), lambda x: x > 2, lambda x: x == 2, lambda x: x != 2, lambda x: x.clamp(1, 100),
    lambda x: x.to(torch.float32), lambda x: x.to(torch.bool), lambda x: x << 1, lambda x: x >> 1,
    lambda x: x.masked_fill(x > 1, 5), lambda x: x.to(torch.int32), lambda x: x.to(torch.int64), lambda x: x**2,
    lambda x: x.logical_not(), lambda x: x.to(torch.uint8),
]  # fmt: skip
_PAIRS: list[Function] = [
    torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum, torch.eq, torch.ne, torch.lt, torch.le, torch.gt,
    torch.ge, torch.logical_and, torch.logical_or, torch.logical_xor,
]  # fmt: skip
_REAL_PAIRS: list[Function] = [*_PAIRS, torch.div, torch.atan2, torch.logaddexp, torch.hypot, torch.fmax, torch.fmin]
_REDUCTIONS: list[Function] = [
    lambda x: x.sum(1), lambda x: x.cumsum(1), lambda x: x.amax(1), lambda x: x.amin(1), lambda x: x.argmax(1),
    lambda x: x.argmin(1), lambda x: x.max(1)[0], lambda x: x.max(1)[1], lambda x: x.min(1)[1],
    lambda x: x.max(), lambda x: x.any(1), lambda x: x.all(1), lambda x: x.prod(1),
]  # fmt: skip
_REAL_REDUCTIONS: list[Function] = [
    *_REDUCTIONS, lambda x: x.mean(1), lambda x: x.var(1), lambda x: x.std(1), lambda x: x.softmax(1),
    lambda x: x.log_softmax(1), lambda x: x.logsumexp(1), lambda x: x.norm(dim=1), lambda x: F.normalize(x, dim=1),
    lambda x: F.layer_norm(x, (8,)), lambda x: F.rms_norm(x, (8,)), lambda x: F.glu(x, 1),
]  # fmt: skip
_SORTS: list[Function] = [
    lambda x: x.sort(1), lambda x: torch.sort(x, dim=1, stable=True), lambda x: x.argsort(1), lambda x: x.topk(5, 1),
    lambda x: x.sort(1, descending=True), lambda x: x.argmax(1),
]  # fmt: skip
_WEIGHT = (torch.arange(3 * 2 * 3 * 3).reshape(3, 2, 3, 3) % 7 - 3) / 8
_IMAGES: list[Function] = [
    lambda x: F.max_pool2d(x, 2), lambda x: F.avg_pool2d(x, 2), lambda x: F.adaptive_avg_pool2d(x, 1),
    lambda x: F.adaptive_max_pool2d(x, 2), lambda x: F.max_pool2d(x, 3, 2, 1), lambda x: F.avg_pool2d(x, 3, 2, 1),
    lambda x: F.interpolate(x, (13, 5)), lambda x: F.interpolate(x, (13, 5), mode="bilinear"),
    lambda x: F.interpolate(x, (13, 5), mode="bilinear", align_corners=True),
    lambda x: F.interpolate(x, (13, 5), mode="bicubic"),
    lambda x: F.interpolate(x, (13, 5), mode="bicubic", align_corners=True), lambda x: F.pad(x, (1, 1, 1, 1)),
    lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"),
    lambda x: F.pixel_shuffle(x.repeat(1, 2, 1, 1), 2), lambda x: F.instance_norm(x), lambda x: F.group_norm(x, 2),
    lambda x: x.flip(2), lambda x: x.roll(1, 3), lambda x: x.tril(), lambda x: x.triu(),
    lambda x: F.conv2d(x, _WEIGHT.to(x.dtype)),
]  # fmt: skip
_INDEXING: list[Function] = [
    lambda t, i, j: t[i], lambda t, i, j: t[i, j], lambda t, i, j: t[:, i.abs(), j.abs()], lambda t, i, j: t[i, :, j],
    lambda t, i, j: t.index_select(0, i.abs()),
    lambda t, i, j: torch.gather(t, 0, i.abs().reshape(3, 1, 1).expand(3, 5, 6)),
    lambda t, i, j: F.embedding(i.abs(), t[:, :, 0]), lambda t, i, j: t.take_along_dim(i.abs().reshape(3, 1, 1), 0),
]  # fmt: skip
#: The same without `abs`, by which indices stay outside on both sides.
_LOOKUPS: list[Function] = [
    lambda t, i, j: t[i], lambda t, i, j: t[i, j], lambda t, i, j: t.index_select(0, i),
    lambda t, i, j: torch.gather(t, 0, i.reshape(3, 1, 1).expand(3, 5, 6)), lambda t, i, j: F.embedding(i, t[:, :, 0]),
]  # fmt: skip
_OUTSIDE = ((0, 9, 2), (0, -1, 2), (0, -9, 2))


FAMILIES = (
    Family(REALS, one, [*_ACTIVATIONS, *_REAL]),
    Family(WHOLE, one, _WHOLE),
    Family((torch.bool,), two, [torch.logical_and, torch.logical_or, torch.logical_xor, torch.eq, torch.bitwise_and]),
    Family(REALS, two, _REAL_PAIRS),
    Family(WHOLE, two, [*_PAIRS, torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor]),
    Family((*REALS, *WHOLE), nonzero, [
        torch.floor_divide, torch.remainder, torch.fmod, torch.true_divide,
        lambda x, y: torch.div(x, y, rounding_mode="floor"), lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    ]),
    Family((*REALS, *WHOLE), chosen, [
        torch.where, lambda c, x, y: x.clamp(min=y), lambda c, x, y: x.masked_fill(c, 1), lambda c, x, y: x * c,
    ]),
    Family(REALS[:2], rows, _REAL_REDUCTIONS),
    Family(WHOLE, rows, _REDUCTIONS),
    Family((*REALS[:2], *WHOLE), long_rows, _SORTS),
    Family(REALS[:1], image, _IMAGES),
    Family((*REALS[:1], torch.int64), places, _INDEXING),
    Family((*REALS[:1], torch.int64), places_from_the_end, _INDEXING[:4]),
    Family(REALS[:1], attention, [
        lambda x, m: F.scaled_dot_product_attention(x, x, x, attn_mask=m),
        lambda x, m: F.scaled_dot_product_attention(x, x, x),
    ]),
)  # fmt: skip


class Together(nn.Module):
    """Functions of the same inputs as one model, whose outputs are those of all of them."""

    def __init__(self, functions: Sequence[Function]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        """All outputs, one after another; copies, as an output must not be an input."""
        return [leaf.clone() for function in self.functions for leaf in pytree.tree_leaves(function(*inputs))]


class Single(nn.Module):
    """A function as a model."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        """What the function computes."""
        return self.function(*inputs)


def key(function: Function, inputs: tuple[Tensor, ...]) -> tuple[str, str] | None:
    """Operator and dtypes of the last operator that a function is exported to; None if it cannot run."""
    try:
        with torch.no_grad():
            function(*inputs)
            graph = torch.export.export(Single(function), inputs).graph
    except Exception:  # a function that PyTorch lacks for this dtype
        return None
    signatures = [own for node in graph.nodes if (own := signature(node)) is not None]
    return signatures[-1] if signatures else None


def outputs_of(
    runtime: str, functions: Sequence[Function], inputs: dict[str, tuple[Tensor, ...]]
) -> Iterator[tuple[Function, dict[str, list[Tensor]] | str]]:
    """Outputs of every function by group of values, or why there are none; they are converted together if possible."""
    example = next(iter(inputs.values()))
    try:
        with torch.no_grad(), tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.export(Together(functions), example)
            path = runtimes.file(runtime, Path(folder), 1)
            runtimes.convert(runtime, program, path, 1)
            run = runtimes.load(runtime, path, 1, [value.stride() for value in example])
            made = {kind: run(list(tensors)) for kind, tensors in inputs.items()}
            counts = [len(pytree.tree_leaves(function(*example))) for function in functions]
    except Exception as error:  # exporters and runtimes raise many types
        if len(functions) == 1:
            yield functions[0], str(error).strip().splitlines()[0][:100] if str(error).strip() else "failed"
            return
        half = len(functions) // 2
        yield from outputs_of(runtime, functions[:half], inputs)
        yield from outputs_of(runtime, functions[half:], inputs)
        return
    for number, function in enumerate(functions):
        start = sum(counts[:number])
        yield function, {kind: own[start : start + counts[number]] for kind, own in made.items()}


def differing(ours: Sequence[Tensor], theirs: Sequence[Tensor], kind: str) -> Iterator[str]:
    """The groups of values for which outputs differ.

    What PyTorch itself makes infinite of finite numbers is special; what it makes larger than 31 bits is wide.
    """
    for own, right in zip(ours, theirs, strict=True):
        if (own.shape, own.dtype) != (right.shape, right.dtype):
            yield "finite"
            continue
        same = (own == right) | (own.isnan() & right.isnan())
        if right.is_floating_point():
            same |= ((own.double() - right.double()).abs() <= TOLERANCE * (1 + right.double().abs())) & right.isfinite()
        wrong = ~same
        if kind == "finite" and right.dtype is torch.int64:
            large = right.abs() > torch.iinfo(torch.int32).max
            if bool((wrong & large).any()):
                yield "wide"
            wrong &= ~large
        if kind == "finite" and bool((wrong & ~right.isfinite()).any()):
            yield "special"
        if bool((wrong & right.isfinite()).any()) or (kind != "finite" and bool(wrong.any())):
            yield kind


def measured() -> dict[str, Any]:
    """The number of runs; operators that differ, with dtypes, by runtime and group of values."""
    found: dict[str, dict[str, dict[str, list[str]]]] = {runtime: {kind: {} for kind in KINDS} for runtime in RUNTIMES}
    runs = 0
    for family in FAMILIES:
        for dtype in family.dtypes:
            inputs = {
                kind: made for kind in KINDS if kind != "outside" if (made := family.inputs(dtype, kind)) is not None
            }
            example = next(iter(inputs.values()))
            keys = {function: own for function in family.functions if (own := key(function, example)) is not None}
            runs += len(keys) * len(RUNTIMES)
            for runtime in RUNTIMES if keys else ():
                for function, differs in _differing(runtime, list(keys), inputs):
                    operator, dtypes = keys[function]
                    for kind in differs:
                        known = found[runtime][kind].setdefault(operator, [])
                        if dtypes not in known:
                            known.append(dtypes)
            sys.stderr.write(f"{family.inputs.__name__} {dtype}: {runs} runs\n")
    for runtime, dtype, number in itertools.product(RUNTIMES, (torch.float32, torch.int64), range(len(_LOOKUPS))):
        runs += 1
        if _answers(runtime, dtype, number):
            operator, dtypes = cast(tuple[str, str], key(_LOOKUPS[number], cast(Any, places(dtype, "finite"))))
            found[runtime]["outside"].setdefault(operator, []).append(dtypes)
    differences = {
        runtime: {kind: {op: sorted(own) for op, own in sorted(operators.items())} for kind, operators in by.items()}
        for runtime, by in found.items()
    }
    return {"runs": runs, "differences": differences}


def _answers(runtime: str, dtype: torch.dtype, number: int) -> bool:
    """Whether a runtime does not raise for indices for which PyTorch does; in processes of their own, as some crash."""
    spawn = multiprocessing.get_context("spawn")
    for first in _OUTSIDE:
        process = spawn.Process(target=_look_up, args=(runtime, dtype, number, first))
        process.start()
        process.join()
        if process.exitcode == 1:  # it has printed why
            raise HiosError(f"{runtime}: found an error in a lookup; allowed: answers and refusals")
        if process.exitcode:
            return True
    return False


def _look_up(runtime: str, dtype: torch.dtype, number: int, first: tuple[int, ...]) -> None:
    """End this process with 2 if a runtime answers."""
    function, example = _LOOKUPS[number], cast(tuple[Tensor, ...], places(dtype, "finite"))
    bad = example[0], torch.tensor(first), example[2]
    with contextlib.suppress(IndexError, RuntimeError):
        function(*bad)
        sys.exit(0)  # from the end, as PyTorch counts here
    ((_, outputs),) = outputs_of(runtime, [function], {"finite": example, "outside": bad})
    sys.exit(0 if isinstance(outputs, str) else 2)  # text: it raised, or could not be converted


def _differing(
    runtime: str, functions: Sequence[Function], inputs: dict[str, tuple[Tensor, ...]]
) -> Iterator[tuple[Function, set[str]]]:
    """Functions of which outputs differ, and in which groups of values; those on finite values by themselves too."""
    for function, outputs in outputs_of(runtime, functions, inputs):
        if isinstance(outputs, str):  # it cannot be converted
            continue
        with torch.no_grad():
            right = {kind: pytree.tree_leaves(function(*own)) for kind, own in inputs.items()}
        differs = {own for kind in inputs for own in differing(outputs[kind], right[kind], kind)}
        if "finite" in differs and len(functions) > 1:
            yield from _differing(runtime, [function], inputs)
        elif differs:
            yield function, differs


KEPT_OUT, RIGHT = "kept out", "right"


def through(runtime: str) -> bool:
    """Print what `hios.optimize` makes of the runs that the file names; whether it lets a difference through."""
    table = known_differences.read()["differences"][runtime]
    counts: dict[bool, collections.Counter[str]] = {strict: collections.Counter() for strict in (False, True)}
    for family, dtype in [(own, dtype) for own in FAMILIES for dtype in own.dtypes]:
        inputs = [(kind, made) for kind in KINDS[:-1] if (made := family.inputs(dtype, kind)) is not None]
        for function in [*family.functions, *(_LOOKUPS if family.inputs is places else ())]:
            operator, dtypes = key(function, inputs[0][1]) or ("", "")
            kinds = {kind for kind in KINDS if dtypes in table[kind].get(operator, ())}
            if not kinds or (kinds == {"outside"} and function not in _LOOKUPS):
                continue
            what = _made_of(runtime, function, inputs, strict=kinds == {"special"})
            counts[kinds == {"special"}][what] += 1
            if what not in (KEPT_OUT, RIGHT):
                print(f"{operator} ({dtypes}): {what}", flush=True)
    differ = {strict: own.total() - own[KEPT_OUT] - own[RIGHT] for strict, own in counts.items()}
    for strict, own in counts.items():
        which = "on special values only, with strict=True" if strict else "on others than special values"
        print(
            f"{runtime}: of {own.total()} runs that differ {which} {own[KEPT_OUT]} keep it out, {own[RIGHT]} are right "
            f"in what hios.optimize makes, and {differ[strict]} are wrong"
        )
    return any(differ.values())


def _made_of(
    runtime: str, function: Function, inputs: Sequence[tuple[str, tuple[Tensor, ...]]], *, strict: bool
) -> str:
    """Whether a function keeps a runtime out, or its module is right; otherwise the values that it is wrong for."""
    kind, example = inputs[0]
    if kind == "masked":
        example = tuple(torch.ones_like(own) if own.dtype is torch.bool else own for own in example)
    firsts = _OUTSIDE if function in _LOOKUPS else ()
    groups = [*inputs, *(("outside", (example[0], torch.tensor(first), example[2])) for first in firsts)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of calls that run the model itself, too
        fast = hios.optimize(
            Single(function), example, way=runtime, least_ms=0.0, cache=False, budget_s=600.0, strict=strict
        )
        with contextlib.closing(fast):
            if fast.report.chosen == "the model itself":
                return KEPT_OUT
            wrong = set()
            for kind, own in groups:
                ours, right = _answers_of(fast, own), _answers_of(function, own)
                wrong |= {*differing(ours, right, kind)} if len(ours) == len(right) else {kind}
    return ", ".join(sorted(wrong if strict else wrong - {"special"})) or RIGHT


def _answers_of(function: Function, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """Outputs of a function; none if it raises."""
    with torch.no_grad(), contextlib.suppress(IndexError, RuntimeError):
        return [leaf.clone() for leaf in pytree.tree_leaves(function(*inputs))]
    return []


def main() -> None:
    """Write the table, or compare it."""
    parser = argparse.ArgumentParser(description="Where other runtimes answer differently from PyTorch.")
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    parser.add_argument("--through", choices=RUNTIMES, help="what of the file hios.optimize lets through")
    given = parser.parse_args()
    if given.through is not None:
        sys.exit(through(given.through))
    check = given.check
    own = versions()
    table = {
        "versions": {name: own.get(name) for name in ("torch", "openvino", "onnxruntime", "onnxscript")},
        **measured(),
    }
    if check and known_differences.read() != table:
        raise HiosError(f"{known_differences.FILE}: found other differences; write it anew")
    if not check:
        known_differences.write(table)


if __name__ == "__main__":
    main()
