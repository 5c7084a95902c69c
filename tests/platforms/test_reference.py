"""The model itself as what outputs are compared with."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import fx, nn
from torch._inductor import config
from torch._inductor.utils import run_and_get_code

from hios.frontends.extraction_check import rounding_errors
from hios.frontends.program import export
from hios.frontends.program_interface import flat_module
from hios.platforms import reference
from hios.workers.worker import Worker
from tests.frontends.small_networks import Model
from tests.runtime.small import Branches


class _Counting(reference.Place):
    """A host that is asked for full precision, and notes whether it gives it."""

    exact = False

    @contextlib.contextmanager
    def exactly(self) -> Iterator[None]:
        """Full precision."""
        self.exact = True
        yield
        self.exact = False


def test_rounding_is_judged_in_full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """What rounding explains is the error of float32, and not that of TF32, which is a thousand times as large."""
    place, inputs, exact = _Counting(), (torch.randn(1, 3, 8, 8),), list[bool]()

    def judged(*given: Any) -> list[float] | None:
        exact.append(place.exact)
        return rounding_errors(*given)

    monkeypatch.setattr(reference, "rounding_errors", judged)
    state = {"place": place, "program": export(Branches().eval(), inputs), "inputs": list(inputs)}
    errors = reference.rounding(cast("Worker", SimpleNamespace(state=state)))
    assert errors is not None
    assert 0 < errors[0] < 1e-5
    assert (exact, place.exact) == ([True], False)


class _Recording(reference.Place):
    """A host on which torch.compile keeps the graphs that it should compile, and runs them as they are."""

    def __init__(self) -> None:
        self.graphs: list[fx.GraphModule] = []
        self.compilers = {"compile": {"backend": self._kept}}

    def _kept(self, graph: fx.GraphModule, inputs: Any) -> fx.GraphModule:
        self.graphs.append(graph)
        return graph


@pytest.fixture
def settings() -> Iterator[None]:
    """Settings that a baseline changes are as before after a test."""
    caches = torch.compiler.config.patch(force_disable_caches=True)  # type: ignore[attr-defined]
    with caches, config.patch(compile_threads=1):
        yield


@pytest.mark.usefixtures("settings")
def test_torch_compile_leaves_recurrent_layers_whole() -> None:
    """Of an exported program only what is around them is compiled, as of a module; every step would take minutes."""
    model, place, x = (
        Model(lambda model, x: 2 * model.gru(x)[0], gru=nn.GRU(5, 4)).eval(),
        _Recording(),
        torch.randn(3, 2, 5),
    )
    compute, _ = reference._compiled("net", flat_module(export(model, (x,))), [x], "compile", place)
    torch.testing.assert_close(compute(x), model(x))
    called = {str(node.target) for graph in place.graphs for node in graph.graph.nodes}
    assert "hios.gru.default" in called


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++")
@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("layer", [nn.GRU, nn.LSTM])
def test_compiled_code_calls_recurrent_layers(layer: type[nn.GRU] | type[nn.LSTM]) -> None:
    """What Inductor makes of an exported program has one call of the layer, and its outputs are those of PyTorch."""
    model, x = Model(lambda model, x: 2 * model.layer(x)[0], layer=layer(5, 4)).eval(), torch.randn(3, 2, 5)
    module = flat_module(export(model, (x,)))
    with torch.inference_mode():  # as in a worker
        (compute, _), code = run_and_get_code(reference._compiled, "net", module, [x], "compile", reference.Place())
        torch.testing.assert_close(compute(x), model(x))
    assert "".join(code).count(f"torch.ops.hios.{layer.__name__.lower()}.default(") == 1
