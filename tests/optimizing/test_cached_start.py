"""What is kept of a model: nothing prepared for other weights is used, and a start from the cache prepares nothing."""

from __future__ import annotations

import errno
import functools
import importlib.util
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hios
from hios import HiosWarning
from hios.files import folder_cache
from hios.files.folder_cache import FolderCache
from hios.optimizing import autotune, choice_cache, race
from hios.optimizing.choice_cache import model_key, state_digest
from hios.optimizing.module import OptimizedModule
from hios.optimizing.options import Options
from hios.optimizing.preparation import Subject
from tests.openvino_marker import OPENVINO, needs_openvino
from tests.optimizing.optimized_models import image, require_equal, scheduled
from tests.runtime.small import Branches
from tests.scripts import printed


def _model() -> Branches:
    torch.manual_seed(0)
    return Branches().eval()


def _forbid(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Have functions of autotune fail."""

    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError("this is not to be called")

    for name in names:
        monkeypatch.setattr(autotune, name, forbidden)


def _require_equal(fast: OptimizedModule, model: nn.Module) -> None:
    require_equal(fast, model, image(1))
    fast.close()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["schedule", OPENVINO])
def test_a_second_start_exports_nothing(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same model is loaded from the cache; with other weights it is prepared once, for these weights."""
    keywords: dict[str, Any] = {"cache": tmp_path, "way": way, "devices": 1, "least_ms": 0.0, "budget_s": 0.1}
    fast = hios.optimize(_model(), image(0), **keywords)
    assert {row.kind for row in fast.report.ways if row.label == fast.report.chosen} == {way}
    _require_equal(fast, _model())
    with monkeypatch.context() as patch:
        _forbid(patch, "export", "extract", "Race", "Preparation")
        again = hios.optimize(_model(), image(3), **keywords)
        assert again.report.cached
        assert again.report.candidates == fast.report.candidates
        assert "kept from an earlier call" in repr(again.report)
        _require_equal(again, _model())
    other = _model()
    with torch.no_grad():
        other.stem.weight.mul_(2)
    with monkeypatch.context() as patch:
        _forbid(patch, "Race", "Preparation")
        changed = hios.optimize(other, image(0), **keywords)
        assert changed.report.cached
        _require_equal(changed, other)
    assert len(list((tmp_path / "models").iterdir())) == 2


@pytest.mark.slow
@needs_openvino
def test_the_model_itself_starts_without_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the model itself was chosen, the next start neither exports nor runs it."""
    monkeypatch.setattr(race.Race, "_timed", lambda _, candidate: 1.0)
    keywords: dict[str, Any] = {"cache": tmp_path, "way": ("eager", "openvino"), "devices": 1, "least_ms": 0.0}
    first = hios.optimize(_model(), image(0), **keywords)
    assert first.report.chosen.startswith("the model itself")
    model = _model()
    calls: list[int] = []

    def counting(self: Branches, x: Tensor) -> Tensor:
        calls.append(1)
        return forward(self, x)

    forward: Callable[..., Tensor] = Branches.forward
    monkeypatch.setattr(Branches, "forward", counting)
    _forbid(monkeypatch, "export", "extract", "Race", "Preparation")
    second = hios.optimize(model, image(0), **keywords)
    assert second.report.cached
    assert calls == []


def test_every_change_of_state_changes_the_digest() -> None:
    """Parameters, buffers, plain tensors, their names and types are part of the state; a copy has the same."""
    model = _model()
    first = state_digest(model)
    assert state_digest(_model()) == first
    digests = {first}
    with torch.no_grad():
        model.stem.weight.view(-1)[0] += 1e-6
        digests.add(state_digest(model))
        model.left[1].running_mean.add_(1)
        digests.add(state_digest(model))
    model.plain = torch.ones(2)
    digests.add(state_digest(model))
    digests.add(state_digest(_model().to(torch.bfloat16)))
    digests.add(state_digest(_model().to(memory_format=torch.channels_last)))
    assert len(digests) == 6


@dataclass(slots=True)
class _Slotted:
    most: float


def _clamped(most: float) -> Callable[[Any], Any]:
    return lambda value: value.clamp(max=most)


def test_what_attributes_hold_is_part_of_a_choice() -> None:
    """Arguments of partial functions, arrays and enclosed values change the key, tensors in containers the weights."""
    made: tuple[Callable[[float], Any], ...] = (
        _clamped,
        lambda most: functools.partial(torch.clamp, max=most),
        np.float32,
        lambda most: np.full(3, most),
        lambda most: {"stages": [{"blocks": [{"clip": [most]}]}]},
        lambda most: (lambda value: value.clamp(max=1.0)) if most == 1 else lambda value: value.clamp(max=6.0),
        lambda most: _Slotted(most),
        lambda most: range(int(most)),
    )
    for make in made:
        keys = []
        for most in (1.0, 6.0, 1.0):
            model = _model()
            model.held = [make(most)]
            keys.append(model_key(model, [image(0)]))
        assert keys[0] == keys[2] != keys[1]
    digests = set()
    for most in (1.0, 6.0):
        model = _model()
        model.held = {"tables": [torch.full((3,), most)]}
        digests.add(state_digest(model))
        model.held = SimpleNamespace(table=torch.full((3,), most))
        digests.add(state_digest(model))
        hidden = nn.Linear(2, 2)
        nn.init.constant_(hidden.weight, most)
        nn.init.zeros_(hidden.bias)
        model.held = [hidden]
        digests.add(state_digest(model))
        model.held = functools.partial(torch.mul, torch.full((3,), most))
        digests.add(state_digest(model))
    assert len(digests) == 8


def test_attributes_are_part_of_a_choice() -> None:
    """An attribute that changes what a model computes changes the key, without an export."""
    model = _model()
    first = model_key(model, [image(0)])
    model.left[1].eps = 1e-3
    assert model_key(model, [image(0)]) != first
    assert model_key(_model(), [image(0)]) == first


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept models take so much room at most; damaged ones count as absent."""
    monkeypatch.setattr(folder_cache, "_MOST_BYTES", 250)
    store = FolderCache(tmp_path)
    for number in range(3):
        with store.workspace() as workspace:
            (workspace / "file").write_bytes(bytes(100))
            store.keep({"model": number}, "state", workspace)
            assert not workspace.exists()
        path = store.find({"model": number}, "state")
        assert path is not None
        os.utime(path, (number, number))
    assert [store.find({"model": number}, "state") is not None for number in range(3)] == [False, True, True]
    other = FolderCache(tmp_path / "others")
    with store.workspace() as workspace:
        (workspace / "file").write_bytes(bytes(200))
        other.keep({"model": 3}, "state", workspace)
    made = other.find({"model": 3}, "state")
    assert made is not None
    store.keep({"model": 3}, "state", made)
    assert [store.find({"model": number}, "state") is not None for number in range(4)] == [False, False, False, True]
    with pytest.raises(hios.HiosError):
        choice_cache.read_graph(tmp_path)
    assert FolderCache(None).find({}, "") is None


def test_workspaces_of_killed_processes_go(tmp_path: Path) -> None:
    """One that is a day old goes with the next; younger ones, and folders that are kept, stay."""
    day, now = 24 * 3600, tmp_path.stat().st_mtime
    store = FolderCache(tmp_path)
    for name, age in (("partial-old", day + 60), ("partial-young", day / 2), ("kept", 2 * day)):
        (tmp_path / name / "inside").mkdir(parents=True)
        os.utime(tmp_path / name, (0, now - age))
    (tmp_path / "partial-gone").symlink_to("nowhere")  # as one that another process removes meanwhile
    with store.workspace() as workspace:
        names = {path.name for path in tmp_path.iterdir()}
    assert names == {"partial-young", "partial-gone", "kept", workspace.name}


def test_nothing_is_kept_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where files cannot be linked and a copy has no room, the choice is kept and what runs it is not."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "hardlink_to", full)
    monkeypatch.setattr(choice_cache, "shutil", SimpleNamespace(copyfile=full))
    model = Branches().eval()
    fast = scheduled(model, image(0), tmp_path)
    _require_equal(fast, model)
    assert fast.report.chosen != "the model itself"
    assert list((tmp_path / "models").iterdir()) == []


#: Optimizes the same model with what the cache holds; prints what was imported, and whether nothing was prepared.
_START = """
import sys, torch, hios
from tests.runtime.small import Branches
torch.manual_seed(0)
fast = hios.optimize(Branches(), torch.randn(1, 3, 16, 16), cache=sys.argv[1], way="onnxruntime", least_ms=0.0)
print(fast.report.cached, sorted({"tvm", "onnx", "onnxscript", "pandas"} & set(sys.modules)))
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("onnxscript") is None, reason="needs the extra onnx")
def test_a_start_from_the_cache_imports_little(tmp_path: Path) -> None:
    """Nothing is imported that only converts or extracts."""
    _require_equal(hios.optimize(_model(), image(0), cache=tmp_path, way="onnxruntime", least_ms=0.0), _model())
    assert printed("-c", _START, tmp_path).splitlines()[-1] == "True []"


@torch.no_grad()
@needs_openvino
def test_a_choice_for_other_numbers_is_made_again(tmp_path: Path) -> None:
    """A kept choice that does not take the numbers of the example is no choice for it."""

    class Sum(nn.Module):
        """A lookup by the sum of two inputs, so that each has the largest number of the example as its limit."""

        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(50, 4)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            """Rows of the table."""
            return self.table(a + b)

    def optimized(largest: int) -> OptimizedModule:
        torch.manual_seed(0)
        inputs = torch.tensor([[0, 1, largest] * 20]), torch.tensor([[2, 3, largest] * 20])
        fast = hios.optimize(Sum(), inputs, cache=tmp_path, way="openvino", devices=1, least_ms=0.0, budget_s=0.1)
        with warnings.catch_warnings(action="error", category=HiosWarning):  # as there is if the model itself runs
            fast(*inputs)
        fast.close()
        return fast

    assert optimized(8).report.limits == ((0, 8), (0, 8))
    assert optimized(5).report.cached
    larger = optimized(20).report
    assert (larger.limits, larger.cached) == (((0, 20), (0, 20)), False)
    assert optimized(20).report.cached


def test_flags_have_a_choice_of_their_own(tmp_path: Path) -> None:
    """An input that has both 0 and 1 in the example is a mask, for which another choice is made than for numbers.

    So is one for inputs of other shapes.
    """
    keys = [
        autotune.Autotune(Subject(nn.Identity(), (example,), {}, Options(cache=tmp_path), [[[0]]]))._choice_key()
        for example in map(torch.tensor, ([0, 1], [1, 0], [0, 0], [3, 4], [[0, 1], [1, 0]]))
    ]
    assert keys[0] == keys[1] != keys[2] == keys[3]
    assert keys[4] not in keys[:4]
