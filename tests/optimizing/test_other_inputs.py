"""Every way to run a model is compared with it on inputs made from the example, not on the example alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hios.errors import HiosError
from hios.optimizing.other_inputs import Difference, InputsComparison, Limits, other_inputs, outside, varied

IMAGE = torch.linspace(-1, 1, 96).reshape(2, 3, 16)


def _made(*example: Tensor, model: Any = lambda tensors: tensors) -> dict[str, list[Tensor]]:
    return {made.kind: made.tensors for made in other_inputs(varied(example, model), model)}


def test_numbers_of_other_signs_and_sizes() -> None:
    """Real numbers are drawn anew, negated, scaled, zero, or made NaN and infinite, in the same way each time."""
    made = _made(IMAGE + 5)
    assert list(made) == [
        "other numbers",
        "the other sign",
        "1000 times larger numbers",
        "1000 times smaller numbers",
        "nothing but zeros",
        "NaN",
        "infinities",
    ]
    assert made["other numbers"][0].mean() == pytest.approx(5, abs=0.5)
    assert made["the other sign"][0].mean() == pytest.approx(-5, abs=0.5)
    assert made["1000 times larger numbers"][0].mean() == pytest.approx(5000, rel=0.1)
    assert made["NaN"][0].isnan().sum() == 2
    assert made["infinities"][0].isinf().sum() == 2
    assert all(value[0].dtype is torch.float32 and value[0].shape == IMAGE.shape for value in made.values())
    again = _made(IMAGE + 5)
    assert all(torch.equal(value[0].nan_to_num(), again[kind][0].nan_to_num()) for kind, value in made.items())


def test_indices_stay_within_their_range() -> None:
    """What the model refuses beyond the largest index of the example stays below it; other whole numbers do not."""
    table, example = torch.randn(9, 4), torch.tensor([[3, 8, 0, 5]])
    indices = _made(example, model=lambda tensors: [F.embedding(tensors[0], table)])
    assert all(int(value[0].min()) >= 0 and int(value[0].max()) <= 8 for value in indices.values())
    assert indices["whole numbers at their limits"][0].max() == 8
    assert "the other sign" not in indices
    numbers = _made(example.repeat(1, 50))
    assert numbers["the other sign"][0].min() < 0
    limits = torch.iinfo(torch.int64)
    assert {limits.min + 1, limits.max} <= set(numbers["whole numbers at their limits"][0].flatten().tolist())


def test_the_least_number_is_not_divided() -> None:
    """PyTorch ends the process where it is divided by -1."""
    example = (torch.arange(1, 5), torch.full((4,), -1))
    inputs = varied(example, lambda tensors: [torch.div(*tensors, rounding_mode="trunc")])
    assert [own.limits for own in inputs] == [None, None]
    for divides in (True, False):
        (own,) = varied(torch.arange(50).split(50), lambda tensors: tensors, divides=divides)
        assert (torch.iinfo(torch.int64).min in own.at_ends().tolist()) is not divides


def _limits(model: Callable[..., Tensor], *example: Tensor, sizes: tuple[int, ...] = ()) -> list[Limits]:
    return [own.limits for own in varied(example, lambda tensors: [model(*tensors)], sizes)]


def test_the_whole_numbers_that_a_model_takes_are_found() -> None:
    """Indices have the size of a table as their limit, or a power of two; what may be added up has all numbers."""
    table, ids, flags = torch.randn(700, 4), torch.tensor([[3, 8, 0]]), torch.zeros(1, 3, dtype=torch.int64)

    def looked(ids: Tensor, *more: Tensor) -> Tensor:
        return F.embedding(ids, table) + sum(more)

    assert _limits(looked, ids, sizes=(4, 64, 700, 9000)) == [(0, 699)]
    assert _limits(looked, ids) == [(0, 511)]
    assert _limits(looked, flags, sizes=(700,)) == [(0, 699)]
    assert _limits(looked, ids[0, :3].int(), ids[0, :1], torch.ones(1), torch.ones(1) > 0, sizes=(700,)) == [
        (0, 699), None, None, None,
    ]  # fmt: skip
    assert _limits(looked, ids, flags[..., None], sizes=(700,)) == [(0, 699), None]
    assert _limits(looked, ids, torch.tensor([[[0], [1], [1]]]), sizes=(700,)) == [(0, 699), (0, 1)]
    assert _limits(lambda a, b: looked(a + b), ids, ids, sizes=(700,)) == [(0, 8), (0, 8)]  # not both at their largest


def test_limits_are_looked_for_only_where_there_are_whole_numbers() -> None:
    """Each run of the model is time until something is chosen."""
    ran: list[Tensor] = []

    def recorded(tensors: list[Tensor]) -> list[Tensor]:
        ran.extend(tensors)
        return tensors

    assert all(own.limits is None for own in varied([IMAGE, IMAGE > 0], recorded))
    assert ran == []


def test_numbers_outside_of_the_limits_are_named() -> None:
    """Inputs with limits are compared with these, empty ones have no numbers."""
    ids = torch.tensor([3, 8])
    assert outside([IMAGE, ids], (None, (0, 8))) == ""
    assert outside([IMAGE, ids[:0]], (None, (0, 7))) == ""
    assert outside([IMAGE, ids], (None, (0, 7))) == "input 1 has whole numbers from 3 to 8, the example allows 0 to 7"
    assert outside([-ids, ids], ((0, 9), None)) == "input 0 has whole numbers from -8 to -3, the example allows 0 to 9"


def test_masks_without_elements() -> None:
    """The mask of an empty past has no rows to empty."""
    made = _made(IMAGE, torch.ones(1, 0, dtype=torch.bool), model=lambda tensors: [tensors[0]])
    assert all(tensors[1].shape == (1, 0) for tensors in made.values())


@pytest.mark.parametrize(
    ("mask", "empty", "full"),
    [
        (torch.ones(2, 1, 4, 4, dtype=torch.bool), 0, 1),
        (torch.ones(2, 4, dtype=torch.int64), 0, 1),
        (torch.tensor([[0.0, -torch.inf, 0.0]]), -torch.inf, 0.0),
        (torch.tensor([[0, 1, 0, 0], [0, 0, 0, 0]]), 0, 1),
    ],
)
def test_masks_have_empty_and_full_rows(mask: Tensor, empty: float, full: float) -> None:
    """Booleans, flags and numbers of two values are masks, some of whose rows are empty, and full."""
    made = _made(IMAGE, mask, model=lambda tensors: [tensors[0], tensors[1] != 0])
    assert (made["empty rows in masks"][1].reshape(-1, mask.shape[-1])[0] == empty).all()
    assert (made["full rows in masks"][1].reshape(-1, mask.shape[-1])[0] == full).all()
    assert all(set(value[1].flatten().tolist()) <= {empty, full, 0} for value in made.values())
    assert "whole numbers at their limits" not in made


def test_what_the_model_refuses_a_way_refuses() -> None:
    """Where the model raises a way has to; where it gives NaN without having been given any nothing is shown."""

    def model(tensors: list[Tensor]) -> list[Tensor]:
        if not tensors[0].any():
            raise ValueError("zeros")
        return [tensors[0].log()]

    assert list(_made(IMAGE.abs() + 5, model=model)) == [
        "other numbers", "1000 times larger numbers", "1000 times smaller numbers", "nothing but zeros", "NaN",
        "infinities",
    ]  # fmt: skip
    comparison = InputsComparison([IMAGE.abs() + 5], model, 1e-4, lambda tensors, expected: 0.0)
    assert comparison.difference("way", model) is None
    differs = comparison.difference("another", lambda tensors: [tensors[0].log()])
    assert str(differs) == "numbers in place of its error for inputs with nothing but zeros"
    ran: list[Tensor] = []

    def recorded(tensors: list[Tensor]) -> list[Tensor]:
        ran.append(tensors[0])
        return model(tensors)

    assert comparison.difference("one that is known to answer", recorded, answers=True) == differs
    assert all(bool(tensor.any()) for tensor in ran)


def test_tables_of_ones_are_flags_unless_the_model_counts_with_them() -> None:
    """A table of ones is a mask where 2 is as good as 1, or more makes no sense; else it holds numbers, up to some."""
    ones = torch.ones(2, 3, dtype=torch.int64)
    assert _limits(lambda x: x != 0, ones) == [(0, 1)]
    assert _limits(lambda x: (1.0 - x) * torch.finfo(torch.float32).min, ones) == [(0, 1)]
    assert _limits(lambda x: x * 1.5, ones) == [(0, 2**15 - 1)]
    assert _limits(lambda x: F.embedding(x, torch.randn(700, 4)), ones, sizes=(700,)) == [(0, 699)]
    made = _made(torch.cat([ones] * 8), model=lambda tensors: [tensors[0] * 1.5])
    assert 2**15 - 1 in made["whole numbers at their limits"][0]


@pytest.mark.parametrize(
    "example", [torch.zeros(1, 3, 4, 4, dtype=torch.uint8), torch.ones(1, 4, dtype=torch.uint8), torch.tensor([1])]
)
def test_numbers_that_are_all_0_or_1_are_no_flags(example: Tensor) -> None:
    """A black image and a first step may be followed by others, on which ways are compared too."""
    assert _limits(lambda x: x * 2, example) == [None]
    made = _made(torch.cat([example] * 8))
    assert {torch.iinfo(example.dtype).max} <= set(made["whole numbers at their limits"][0].flatten().tolist())
    assert "empty rows in masks" not in made


@pytest.mark.parametrize("example", [torch.zeros(2, 9, dtype=torch.int64), torch.tensor([[0, 1] * 9])])
def test_ways_are_compared_at_the_ends_of_a_table(example: Tensor) -> None:
    """Also if the example has only its first rows."""
    table = torch.randn(700, 4)
    inputs = varied([example], lambda tensors: [F.embedding(tensors[0], table)], [700])
    made = {made.kind: made.tensors[0] for made in other_inputs(inputs, lambda tensors: tensors)}
    assert inputs[0].limits == (0, 699)
    assert made["whole numbers at their limits"].max() == 699


def _compared(run: Callable[[Tensor], Tensor], **more: Any) -> tuple[Difference | None, InputsComparison]:
    comparison = InputsComparison([IMAGE], lambda tensors: [tensors[0].relu()], 1e-4, lambda *_: 0.0, **more)
    return comparison.difference("way", lambda tensors: [run(tensors[0])]), comparison


def test_differences_are_named() -> None:
    """A way that is right for the example only differs for one kind of inputs, by so much; one that fails says so."""
    assert _compared(torch.relu)[0] is None
    differs = _compared(lambda x: x.relu().clamp(max=10))[0]
    assert str(differs).endswith(" of their size for inputs with 1000 times larger numbers")
    with pytest.raises(HiosError, match=r"^for inputs with other numbers: no memory$"):
        _compared(lambda x: (_ for _ in ()).throw(ValueError("no memory")))


def test_nan_counts_if_it_is_strict() -> None:
    """Another answer to NaN is reported, and refused only if equality is required there too."""

    def swallowing(x: Tensor) -> Tensor:
        return x.nan_to_num(posinf=torch.inf, neginf=-torch.inf).relu()

    differs, comparison = _compared(swallowing)
    assert differs is None
    assert comparison.with_special == {"way": Difference(torch.inf, "NaN")}
    assert _compared(torch.relu)[1].with_special == {"way": None}
    assert _compared(swallowing, strict=True)[0] == Difference(torch.inf, "NaN")


def test_rounding_is_asked_for_each_kind() -> None:
    """What rounding explains is allowed, by the inputs for which outputs differ."""
    asked: list[float] = []

    def rounding(tensors: Any, expected: Any) -> float:
        asked.append(float(tensors[0].abs().max()))
        return 0.1

    comparison = InputsComparison([IMAGE], lambda tensors: tensors, 1e-4, rounding)
    assert comparison.difference("way", lambda tensors: [tensors[0] * 1.05]) is None
    assert comparison.difference("another", lambda tensors: [tensors[0] * 0.95]) is None
    assert len(asked) == 4  # not for zeros, nor twice for one kind
