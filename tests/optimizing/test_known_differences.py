"""Runtimes stay out of graphs with operators for which they are known, or shown, to answer differently."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import hios
from hios import HiosWarning
from hios.frontends.known_differences import KINDS, known, read
from hios.optimizing.candidates import in_runtime
from hios.optimizing.options import Options
from hios.optimizing.preparation import Preparation, Subject
from hios.optimizing.report import Budget
from hios.optimizing.tracing import export
from tests.frontends.small_networks import Model
from tests.optimizing.optimized_models import image
from tests.runtime.small import Branches

WHOLE, BYTES, REAL = torch.arange(1, 25).reshape(4, 6), torch.arange(24, dtype=torch.uint8), image(0)[0, 0]
ATTENDED = (image(0), torch.ones(16, 16, dtype=torch.bool))
MASKED = "of their size for inputs with (nothing but zeros|empty rows in masks)"
LIMITS = "of their size for inputs with whole numbers at their limits"
SPECIAL = "known to give other outputs: {}|of their size for inputs with (NaN|infinities)"


def _of(function: Callable[..., Any]) -> Model:
    return Model(lambda _, *inputs: function(*inputs))


def _attention(x: Tensor, mask: Tensor) -> Tensor:
    """Attention in which a row that is fully masked gives zeros."""
    return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)


@pytest.mark.parametrize(
    ("way", "function", "inputs", "why"),
    [
        ("openvino", lambda x: x // 2, WHOLE, "known to give other outputs: floor_divide of int64"),
        ("openvino", lambda x: x + 7, BYTES, "known to give other outputs: add.Tensor of uint8"),
        ("openvino", lambda x: x % 7, WHOLE, LIMITS),
        ("openvino", lambda x: x.sum(1), WHOLE, LIMITS),
        ("openvino", torch.square, WHOLE, LIMITS),
        ("onnxruntime", torch.sign, WHOLE, LIMITS),
        ("onnxruntime", torch.maximum, (WHOLE.repeat(4, 1), WHOLE.repeat(4, 1)), LIMITS),
        ("openvino", lambda x: x > 5, WHOLE, LIMITS),
        ("openvino", lambda x: x.to(torch.bool), WHOLE.int(), LIMITS),
        ("openvino", lambda x: x.clamp(0, 2**40), WHOLE, LIMITS),
        ("openvino", lambda x: torch.where(x != 3, x, 2), WHOLE, LIMITS),
        ("openvino", lambda x: x.argmax(1), WHOLE, LIMITS),
        ("openvino", lambda x: x[(x * 3).long() % 16 + (x.abs() > 99)], REAL, "in place of its error"),
        ("openvino", _attention, ATTENDED, MASKED),
        ("onnxruntime", _attention, ATTENDED, MASKED),
        ("openvino", lambda x: x.sort(1), REAL, "known to give other outputs: sort of float32"),
        ("onnxruntime", lambda x: x.sort(1), REAL, "known to give other outputs: sort of float32"),
        ("onnxruntime", F.logsigmoid, REAL, "known to give other outputs: log_sigmoid of float32"),
        ("onnxruntime", lambda x: torch.logaddexp(x, -x), REAL, "known to give other outputs: logaddexp of float32"),
    ],
)
def test_wrong_runtimes_are_refused(way: str, function: Callable[..., Any], inputs: Any, why: str) -> None:
    """Each answers the example like the model, and other values differently."""
    pytest.importorskip(way)
    if (way, function) == ("onnxruntime", _attention) and metadata.version(way).startswith("1.22."):
        pytest.skip("ONNX Runtime 1.22 gives what the model gives for empty rows in masks")
    with pytest.warns(HiosWarning, match=why):
        fast = hios.optimize(_of(function), inputs, way=way, least_ms=0.0, cache=False, budget_s=600.0)
    assert fast.report.chosen == "the model itself"


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x: x.to(torch.int32).cumsum(0) * 2**20, WHOLE),
        (lambda x: (x - 20).to(torch.int8).cumsum(1), WHOLE),
        (lambda x: x.to(torch.int32).prod(1), WHOLE),
        (lambda x, i: x[i, i - 1], (REAL, torch.arange(4))),
        (lambda x, i: x[:, i - 3, i[:, None] - 4], (image(0)[0], torch.arange(4))),
    ],
)
def test_openvino_gets_what_it_computes_rightly(function: Callable[..., Any], inputs: Any) -> None:
    """Sums of narrow whole numbers are in 64 bits, and indices of several dimensions may count from the end."""
    pytest.importorskip("openvino")
    from hios.frontends import openvino

    model, given = _of(function), inputs if isinstance(inputs, tuple) else (inputs,)
    session = openvino.OpenVinoSession(openvino.converted(torch.export.export(model, given), "it"), threads=1)
    (made,) = session(*given)
    assert torch.equal(made, function(*given))
    assert made.dtype == function(*given).dtype


@torch.no_grad()
def test_segments_of_schedules_know_masks() -> None:
    """A schedule with attention comes through, as no runtime that differs on empty rows runs a segment of it."""
    x, mask = ATTENDED
    fast = hios.optimize(_of(_attention), ATTENDED, way="schedule", least_ms=0.0, cache=False, budget_s=600.0)
    assert fast.runner is not None
    empty = torch.zeros_like(mask)
    torch.testing.assert_close(fast(x, empty), _attention(x, empty))


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        (torch.relu, "relu of float32"),
        (lambda x: x.clamp(-1, 1), "clamp of float32"),
        (lambda x: x.amax(1), "amax of float32"),
        (lambda x: F.max_pool1d(x, 2), "max_pool1d of float32"),
    ],
)
def test_nan_is_swallowed_unless_it_is_strict(function: Callable[..., Any], operator: str) -> None:
    """OpenVINO stays with the report naming what it does with NaN; with strict=True it is refused."""
    pytest.importorskip("openvino")
    keywords = {"way": "openvino", "least_ms": 0.0, "cache": False, "budget_s": 600.0}
    fast = hios.optimize(_of(function), REAL, **keywords)  # type: ignore[arg-type]
    assert fast.report.chosen.startswith("OpenVINO")
    assert "NaN and infinities give other outputs, which strict=True refuses, in OpenVINO" in str(fast.report)
    with pytest.warns(HiosWarning, match=SPECIAL.format(operator)):
        strict = hios.optimize(_of(function), REAL, strict=True, **keywords)  # type: ignore[arg-type]
    assert strict.report.chosen == "the model itself"


def _prepared(model: nn.Module, example: Tensor, folder: Path) -> Preparation:
    """A model that is exported and not yet converted."""
    subject = Subject(model, (example,), {}, Options(cache=False), [[[0]]])
    preparation = Preparation(subject, Budget(600.0, "Net", 2, None), folder, 1.0)
    preparation.exported = export(model, (example,), {})
    return preparation


@pytest.mark.parametrize(
    ("function", "divides"),
    [
        (lambda x: x // -1, True),
        (lambda x: (x + 1).remainder_(-1), True),
        (lambda x: torch.gcd(x, x + 1), True),
        (lambda x: x / 2, False),
        (lambda x: x.to(torch.bool), False),
    ],
)
def test_the_least_number_is_kept_from_what_divides(
    function: Callable[[Tensor], Tensor], divides: bool, tmp_path: Path
) -> None:
    """PyTorch ends the process where it divides the least whole number by -1, which no other operator does."""
    assert _prepared(_of(function), WHOLE, tmp_path).divides() is divides


def test_openvino_from_onnx_may_differ_as_either_does(tmp_path: Path) -> None:
    """Its file is that of ONNX Runtime, whose GELU differs on NaN."""
    preparation = _prepared(nn.Sequential(nn.GELU(), nn.ReLU()).eval(), REAL, tmp_path)
    names = [preparation.known_of(in_runtime("openvino", 1, from_onnx=own), "special") for own in (False, True)]
    assert names == [["relu of float32"], ["relu of float32", "gelu of float32"]]


def test_a_runtime_that_is_kept_out_has_a_row() -> None:
    """Among several ways it is left out without being converted, and the report says for which operator."""
    pytest.importorskip("openvino")
    fast = hios.optimize(_of(lambda x: x // 2), WHOLE, way=["openvino"], least_ms=0.0, cache=False, budget_s=600.0)
    (row,) = [way for way in fast.report.ways if way.kind == "openvino"]
    assert (row.outcome, row.equal) == ("different", False)
    assert row.why == "it is known to give other outputs: floor_divide of int64"


class _Encoder(nn.Module):
    """A small transformer with the integer arithmetic of masks and positions that such models have."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places, self.head = nn.Embedding(20, 16), nn.Embedding(12, 16), nn.Linear(16, 3)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu")

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        """Logits of the mean of all words that the mask keeps."""
        x = self.words(words) + self.places(mask.cumsum(1) * mask)
        scores = (1.0 - mask.to(x.dtype)[:, None, None, :]) * torch.finfo(x.dtype).min
        x = self.layer.norm1(x)[:, None]
        x = F.scaled_dot_product_attention(x, x, x, attn_mask=scores)[:, 0]
        kept = mask.unsqueeze(-1).to(x.dtype)
        return self.head((x * kept).sum(1) / kept.sum(1).clamp(min=1e-9)).softmax(-1)


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (Branches(), (image(0),)),
        (_Encoder(), (torch.randint(0, 20, (2, 8)), torch.ones(2, 8, dtype=torch.int64))),
        (nn.LSTM(8, 16, batch_first=True), (torch.randn(1, 3, 8),)),
        (
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Hardswish(), nn.MaxPool2d(2), nn.Sigmoid()),
            (image(0),),
        ),
    ],
)
def test_ordinary_networks_are_not_kept_from_runtimes(model: nn.Module, inputs: Any) -> None:
    """No difference that cannot occur in them counts."""
    graph = torch.export.export(model.eval(), inputs).graph
    assert [known(graph, runtime, "finite") for runtime in ("openvino", "onnxruntime", "compile")] == [[], [], []]


@pytest.mark.parametrize(
    ("function", "given", "runtime", "operator"),
    [
        (lambda x: x.floor_divide_(2), WHOLE, "openvino", "floor_divide of int64"),
        (lambda x: x.sub_(200), BYTES, "openvino", "sub.Tensor of uint8"),
        (lambda x: x.__ilshift__(1), BYTES, "onnxruntime", "__lshift__.Scalar of uint8"),
    ],
)
def test_operators_that_write_into_a_tensor_count(
    function: Callable[[Tensor], Tensor], given: Tensor, runtime: str, operator: str
) -> None:
    """They compute what those do that do not write."""
    graph = torch.export.export(_of(lambda x: function(x + 0)), (given,)).graph
    assert operator in known(graph, runtime, "finite")


def test_torch_compile_is_kept_out_too() -> None:
    """Its `any` of unsigned 8 bits is not what eager mode gives."""
    graph = torch.export.export(_of(lambda x: x.reshape(4, 6).any(1)), (BYTES,)).graph
    assert known(graph, "compile", "finite") == ["any.dim of uint8"]


def test_the_table_names_operators_of_torch() -> None:
    """Every operator is one of ATen, every kind one that is known."""
    for by_kind in read()["differences"].values():
        assert tuple(by_kind) == KINDS
        for operators in by_kind.values():
            for operator, dtypes in operators.items():
                name, _, overload = operator.partition(" with ")[0].partition(".")
                assert hasattr(getattr(torch.ops.aten, name), overload or "default")
                assert all(hasattr(torch, dtype.partition(" to ")[0]) for dtype in dtypes)
