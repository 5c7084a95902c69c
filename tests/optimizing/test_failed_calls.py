"""Calls that fail, and inputs that the model refuses: each such call is the model's own, and the next one is fast."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import hios
from hios import HiosWarning
from hios.errors import FailedCallError, PlatformError
from hios.optimizing.module import OptimizedModule
from tests.openvino_marker import OPENVINO
from tests.optimizing.optimized_models import as_optimized


def _with_a_way() -> tuple[OptimizedModule, list[str]]:
    """A model with a way that refuses zeros, and has come to its end with numbers above 100; and what has run."""
    model, ran = nn.Linear(2, 2).eval(), list[str]()

    def way(tensors: list[Tensor]) -> list[Tensor]:
        ran.append("way")
        if not tensors[0].any():
            raise FailedCallError("ONNX Runtime: zeros")
        if tensors[0].max() > 100:
            raise PlatformError("worker 0 died")
        return [model(tensors[0]).detach()]

    return as_optimized(model, (torch.ones(1, 2),), way), ran


@torch.no_grad()
def test_a_failed_call_fails_alone() -> None:
    """A call that the way refuses and the model does not is the model's, said once; what has ended is given up."""
    fast, ran = _with_a_way()
    zeros, ones = torch.zeros(1, 2), torch.ones(1, 2)
    with pytest.warns(
        HiosWarning, match=r"^Linear runs as it was .*: a call failed: ONNX Runtime: zeros; this concerns only"
    ):
        assert torch.equal(fast(zeros), fast.original(zeros))
    with warnings.catch_warnings(action="error", category=HiosWarning):
        fast(ones)
        assert torch.equal(fast(zeros), fast.original(zeros))
        fast(ones)
    assert len(ran) == 4
    with pytest.warns(HiosWarning, match="^Linear runs as it was before hios.optimize: worker 0 died"):
        fast(ones * 200)
    fast(ones)
    assert len(ran) == 5


@torch.no_grad()
def test_a_call_that_was_overtaken_runs_in_what_was_settled_on() -> None:
    """Another thread may settle on a final choice, and close what ran before, while a call waits for that."""
    fast, ran = _with_a_way()
    final, ran_finally = _with_a_way()
    runner, ones = fast.runner, torch.ones(1, 2)
    assert runner is not None

    def overtaken(tensors: list[Tensor]) -> list[Tensor]:
        fast.settle(final)
        raise PlatformError("this engine has no task first any more")

    fast.runner = replace(runner, run=overtaken)
    with warnings.catch_warnings(action="error", category=HiosWarning):
        assert torch.equal(fast(ones), final.original(ones))
    assert (fast.runner, ran, ran_finally) == (final.runner, [], ["way"])


@torch.no_grad()
def test_traced_by_torch_jit_it_is_the_model() -> None:
    """Otherwise the trace would give the outputs of the call that was traced."""
    fast, ran = _with_a_way()
    with pytest.warns(HiosWarning, match=r"torch\.jit\.trace would keep this call's outputs"):
        traced = torch.jit.trace(fast, torch.ones(1, 2), check_trace=False)
    assert torch.equal(traced(torch.zeros(1, 2)), fast.original(torch.zeros(1, 2)))
    assert ran == []


class _Positive(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        """Twice the numbers, none of which may be negative."""
        if x.min() < 0:
            raise ValueError("negative")
        return x * 2


@torch.no_grad()
def test_a_way_that_fails_again_and_again_is_given_up() -> None:
    """Three calls in a row that only the model computes end it, with one warning; a success in between prevents it."""
    ran: list[Tensor] = []

    def way(tensors: list[Tensor]) -> list[Tensor]:
        ran.append(tensors[0])
        if tensors[0].max() <= 0:
            raise FailedCallError("ONNX Runtime: nothing positive")
        return [tensors[0] * 2]

    zeros, ones = torch.zeros(2), torch.ones(2)
    fast = as_optimized(_Positive(), (ones,), way)
    with pytest.warns(HiosWarning, match="this concerns only such calls"):
        fast(zeros)
    with warnings.catch_warnings(action="error", category=HiosWarning):
        for x in (zeros, ones, zeros, zeros):
            assert torch.equal(fast(x), x * 2)
        for _ in range(4):
            with pytest.raises(ValueError, match="negative"):  # the model's own refusal does not count
                fast(-ones)
    with pytest.warns(HiosWarning, match="3 calls in a row failed, so no more are tried: ONNX Runtime: nothing posit"):
        assert not fast(zeros).any()
    with warnings.catch_warnings(action="error", category=HiosWarning):
        assert torch.equal(fast(ones), ones * 2)
    assert (fast.runner, len(ran)) == (None, 10)


class Looked(nn.Module):
    """A lookup in tables: of words, of their kinds, which the example leaves 0, and of some of the results."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.kinds = nn.Embedding(50, 8), nn.Embedding(3, 8)

    def forward(self, ids: Tensor, kinds: Tensor, mask: Tensor, last: Tensor) -> Tensor:
        """Masked embeddings, in their sum, of some places."""
        embedded = (self.words(ids) + self.kinds(kinds)) * mask[..., None]
        return embedded.gather(1, last[:, None, None].expand(-1, 1, 8)) + embedded.sum(1, keepdim=True)


def _sentences() -> tuple[Tensor, ...]:
    return (
        torch.tensor([[3, 7, 5, 2], [1, 4, 0, 6]]),
        *torch.tensor([[[0] * 4] * 2, [[1] * 4] * 2]),
        torch.tensor([3, 2]),
    )


@torch.no_grad()
@pytest.mark.parametrize("way", [OPENVINO, "onnxruntime", "schedule"])
def test_ids_outside_of_a_table(way: str) -> None:
    """Indices beyond a table, or beyond what the model computes, raise its own error, and the next call is fast again.

    All others that the model takes do not even run it.
    """
    model, inputs = Looked().eval(), _sentences()
    fast = hios.optimize(model, inputs, way=way, cache=False, budget_s=0.1, least_ms=0.0)
    runner = fast.runner
    assert runner is not None
    assert fast.report.limits == ((0, 49), (0, 2), (0, 32767), (0, 3))
    assert "input 0: whole numbers from 0 to 49; others run the model itself" in str(fast.report)
    for place, numbers in enumerate([(50, -1), (3, -1), (), (4, -1)]):
        for number in numbers:
            wrong = [value.clone() for value in inputs]
            wrong[place].view(-1)[-1] = number
            with (
                warnings.catch_warnings(action="error", category=HiosWarning),
                pytest.raises((IndexError, RuntimeError), match=r"out of range|out of bounds"),
            ):
                fast(*wrong)
        most = [value.clone() for value in inputs]
        most[place].view(-1)[-1] = (49, 2, 0, 3)[place]
        with warnings.catch_warnings(action="error", category=HiosWarning):  # as there is if the model itself runs
            torch.testing.assert_close(fast(*most), model(*most), rtol=1e-4, atol=1e-4)
    flags = inputs[2] * (1 << 40)
    with pytest.warns(
        HiosWarning, match=f"input 2 has whole numbers from {1 << 40} to {1 << 40}, the example allows 0 to 32767"
    ):
        assert torch.equal(fast(*inputs[:2], flags, inputs[3]), model(*inputs[:2], flags, inputs[3]))
    assert fast.runner is runner
    fast.close()


@torch.no_grad()
def test_numbers_that_were_not_looked_for() -> None:
    """Whole numbers beyond the limits that the model does take are its own calls, said once."""
    model, ids = nn.Embedding(50, 2).eval(), torch.tensor([3, 7])
    fast = as_optimized(model, (ids,), lambda tensors: [model(tensors[0]) * 0], limits=((0, 31),))
    assert not fast(ids).any()
    with pytest.warns(
        HiosWarning, match=r"Embedding runs as .*: input 0 has whole numbers from 7 to 40, the example allows"
    ):
        assert torch.equal(fast(ids + torch.tensor([4, 33])), model(torch.tensor([7, 40])))
    assert not fast(ids).any()
