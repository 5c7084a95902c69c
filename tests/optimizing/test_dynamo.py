"""torch.compile(model, backend="hios"): the parts of a model, what is left alone, and what is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hios import HiosWarning
from hios.optimizing import autotune, dynamo
from hios.optimizing.module import OptimizedModule
from tests.optimizing.optimized_models import DEVICES, Broken, Unsupported, image, pretend_busy, require_equal
from tests.refusals import refused
from tests.runtime.small import Branches
from tests.scripts import printed
from tests.workers.processes import children, eventually


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[OptimizedModule]]:
    """Modules that the backend made in a test, closed after it."""
    instances: list[OptimizedModule] = []
    accelerated = dynamo.accelerated  # type: ignore[attr-defined] # what the module imported

    def noted(*arguments: Any) -> OptimizedModule:
        instances.append(accelerated(*arguments))
        return instances[-1]

    monkeypatch.setattr(dynamo, "accelerated", noted)
    pretend_busy(monkeypatch)
    torch._dynamo.reset()
    yield instances
    for module in instances:
        module.close()
    torch._dynamo.reset()


@pytest.fixture
def compiled(cache: Path) -> Callable[..., Any]:
    """torch.compile with hios, in which the engine runs even the smallest parts."""

    def compile_(model: nn.Module, **options: Any) -> Any:
        chosen = {"devices": DEVICES, "algorithm": "hios-lp", "budget_s": 0.1, "cache": cache, **options}
        return torch.compile(model.eval(), backend="hios", options=chosen)

    return compile_


def test_the_backend_is_registered() -> None:
    """Torch lists the backend without hios being imported."""
    code = "import sys, torch._dynamo; print('hios' in torch._dynamo.list_backends(), 'hios' in sys.modules)"
    assert printed("-c", code).split() == ["True", "False"]


@torch.no_grad()
def test_outputs_are_those_of_the_model(compiled: Callable[..., Any], made: list[OptimizedModule]) -> None:
    """Five random inputs give what the model gives, by the engine, without a warning.

    After weights were changed in place, outputs are those of the model as it is then, with a warning. Once Dynamo
    forgets the parts, their workers are gone.
    """
    model, before = Branches(), set(children())
    fast = compiled(model)
    with warnings.catch_warnings(action="error", category=HiosWarning):
        for seed in range(5):
            require_equal(fast, model, image(seed))
    assert [module.report.chosen.partition(",")[0] for module in made] == ["hios-lp"]
    assert not made[0].report.cached
    assert set(children()) - before
    model.stem.weight.mul_(2)
    with pytest.warns(HiosWarning, match="since it was optimized"):
        require_equal(fast, model, image(1))
    made.clear()
    torch._dynamo.reset()
    assert eventually(lambda: set(children()) <= before)


@pytest.mark.slow
@torch.no_grad()
def test_graph_breaks_make_parts(compiled: Callable[..., Any], made: list[OptimizedModule]) -> None:
    """A model with a graph break has its parts optimized one by one."""
    model = Broken()
    fast = compiled(model, devices=1)
    for seed in range(5):
        require_equal(fast, model, image(seed))
    assert len(made) == 2
    assert all(module.report.chosen.startswith("hios-lp") for module in made)


@torch.no_grad()
def test_small_parts_are_left_alone(
    compiled: Callable[..., Any], made: list[OptimizedModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With auto, parts that take less than least_ms start no workers."""
    monkeypatch.setattr(autotune.Autotune, "raced", None)
    model, before = Broken(), set(children())
    require_equal(compiled(model, algorithm="auto", least_ms=1e6), model, image(0))
    assert ["least_ms" in module.report.reason for module in made] == [True, True]
    assert set(children()) <= before


@pytest.mark.slow
def test_gradients_and_dynamic_shapes_are_left_alone(compiled: Callable[..., Any], made: list[OptimizedModule]) -> None:
    """With gradients, a model with parameters is differentiated as usual, with a warning that says what to do.

    Once Dynamo makes a shape dynamic, the part runs as it is, with a warning, and is right.
    """
    model = Branches()
    fast = compiled(model)
    with pytest.warns(HiosWarning, match=r"torch\.inference_mode"):
        fast(image(0)).sum().backward()
    assert model.stem.weight.grad is not None
    assert made == []
    with torch.inference_mode():
        require_equal(fast, model, image(1))
        assert len(made) == 1
        with pytest.warns(HiosWarning, match="its shapes are dynamic"):
            require_equal(fast, model, image(0, batch=2))
        for batch in (1, 3, 4):
            require_equal(fast, model, image(batch, batch))
    assert len(made) == 1


@pytest.mark.slow
@torch.no_grad()
def test_another_module_of_the_same_code_has_its_own_weights(compiled: Callable[..., Any]) -> None:
    """Dynamo may use for one module what was compiled for another: outputs are those of the module that is called."""
    first, second = Branches(), Branches()
    for model in (first, second):
        fast = compiled(model)
        with warnings.catch_warnings(action="ignore", category=HiosWarning):
            for seed in range(2):
                require_equal(fast, model, image(seed))


@torch.no_grad()
def test_what_cannot_be_taken_runs_as_it_is(compiled: Callable[..., Any]) -> None:
    """An operator that the graph cannot have leaves its part as it is, with a warning that names it."""
    model = Unsupported()
    with pytest.warns(HiosWarning, match="is left as it is: .*segment_reduce"):
        require_equal(compiled(model), model, image(0))


@pytest.mark.parametrize(
    ("options", "mode", "message"),
    [
        ({"device": 2}, None, "options: found device; allowed: algorithm, "),
        ({"devices": 0}, None, "devices: found 0"),
        (None, "fastest", "mode: found fastest; allowed: default, lite, reduce-overhead, max-autotune"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any] | None, mode: str | None, message: str) -> None:
    """Options of torch.compile that hios does not know are refused in one line."""
    part = torch.fx.symbolic_trace(nn.ReLU())
    with refused("", message):
        dynamo.hios(part, [torch.zeros(1)], mode=mode, options=options)


@torch.no_grad()
@pytest.mark.parametrize("mode", sorted({"default", *torch._inductor.list_mode_options()}))
def test_modes_of_another_backend_are_ignored(mode: str) -> None:
    """Who changes the backend by one word keeps the mode, which one line says is ignored."""
    torch._dynamo.reset()
    model = nn.Linear(4, 4).eval()
    fast = torch.compile(model, backend="hios", mode=mode)
    with warnings.catch_warnings(record=True, action="always", category=HiosWarning) as caught:
        require_equal(fast, model, torch.ones(2, 4))
    said = [str(warning.message) for warning in caught if warning.category is HiosWarning]
    line = f"torch.compile, backend hios: mode {mode} is ignored: hios measures which way is the fastest"
    assert said == ([] if mode == "default" else [line])
