"""Recurrent layers and encoder layers of PyTorch, whose code changes caches of its own or is fused in eval mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

import hios
from hios.errors import ExampleInputsError, UnsupportedError
from hios.optimizing import dynamo
from hios.optimizing.module import without_fast_paths
from hios.optimizing.purity import require_pure
from tests.frontends.small_networks import Model
from tests.refusals import refused


def _encoder(**more: Any) -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, **more)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_only_compute(kind: Any) -> None:
    """What they derive from their parameters is no change of state, and is as before afterwards."""
    layer, x = kind(8, 16, batch_first=True), torch.randn(1, 3, 8)
    model = Model(lambda model, x: model.layer(x)[0], layer=layer).eval()
    expected, weights = model(x), list(layer._flat_weights)
    require_pure(model, (x,), {})
    assert all(ours is theirs for ours, theirs in zip(layer._flat_weights, weights, strict=True))
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize("more", [{}, {"norm_first": True}, {"activation": "gelu"}])
@torch.no_grad()
def test_encoder_layers_are_written_out(more: dict[str, Any]) -> None:
    """A part with PyTorch's fused layer computes the same without it."""
    both: list[tuple[Any, Any]] = []

    def comparing(part: fx.GraphModule, inputs: Any) -> Any:
        written = without_fast_paths(part)
        fused = [
            [node for node in one.graph.nodes if node.target is torch._transformer_encoder_layer_fwd]
            for one in (part, written)
        ]
        assert (len(fused[0]), len(fused[1])) == (2, 0)

        def run(*given: Tensor) -> Any:
            both.append((part(*given), written(*given)))
            return both[-1][0]

        return run

    torch._dynamo.reset()
    torch.compile(_encoder(**more), backend=comparing)(torch.randn(1, 3, 16))
    ((expected, output),) = both
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)
    plain = fx.symbolic_trace(nn.ReLU())
    assert without_fast_paths(plain) is plain


@pytest.mark.slow
@torch.no_grad()
def test_encoders_are_taken_by_both(tmp_path: Path) -> None:
    """hios.optimize and the backend of torch.compile schedule nn.TransformerEncoder, and the backend has a report."""
    model, x = _encoder(), torch.randn(1, 3, 16)
    expected = model(x)
    fast = hios.optimize(model, x, cache=tmp_path, way="schedule", budget_s=0.1)
    torch.testing.assert_close(fast(x), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(fast(src=x), expected, rtol=1e-4, atol=1e-4)
    fast.close()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="hios", options={"cache": tmp_path, "way": "schedule", "budget_s": 0.1})
    torch.testing.assert_close(compiled(x), expected, rtol=1e-4, atol=1e-4)
    report = dynamo.reports()[-1]
    assert {way.kind for way in report.ways if way.label == report.chosen} == {"schedule"}
    torch._dynamo.reset()


@torch.library.custom_op("hios_tests::sized", mutates_args=())
def _sized(x: Tensor, size: int) -> Tensor:
    """An operator that refuses other sizes."""
    if x.shape[-1] != size:
        raise RuntimeError(f"sized: found {x.shape[-1]}; allowed: {size}")
    return x.clone()


@_sized.register_fake
def _sized_without_values(x: Tensor, size: int) -> Tensor:
    """Refuses all sizes but 4 without values."""
    if x.shape[-1] != 4:
        raise RuntimeError(f"sized: found {x.shape[-1]}; allowed: 4")
    return torch.empty_like(x)


def _checked(size: int) -> Model:
    return Model(lambda _, x: _sized(x, size))


def test_operators_that_fail_without_values_alone_are_no_refusal() -> None:
    """Whatever raises without values, the example inputs are wrong only if the operator refuses them with values."""
    require_pure(_checked(4), (torch.ones(4),), {})
    with pytest.raises(ExampleInputsError, match=r"^example inputs: Model cannot run on them: RuntimeError: sized"):
        require_pure(_checked(4), (torch.ones(5),), {})
    with pytest.raises(UnsupportedError, match="cannot run on tensors without values: sized: found 5; allowed: 4"):
        require_pure(_checked(5), (torch.ones(5),), {})


def test_wrong_example_inputs_are_plain_errors() -> None:
    """Shapes that an operator refuses are an error of ours, in one line, not a warning and not a traceback."""
    for model, x in ((nn.Linear(4, 2), torch.ones(3)), (_encoder(), torch.ones(1, 3, 5))):
        with refused("example inputs: ", " cannot run on them: ", kind=ExampleInputsError):
            hios.optimize(model, x, cache=False, least_ms=0.0)
