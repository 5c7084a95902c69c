"""Sentences on measured networks say what their rows bear, and no more."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hios import Operator
from hios.charts import marks
from hios.core.graph import GraphFile, TensorSpec
from hios.study import run_rows
from hios.study.figure_data import ExecutedNetwork


def _row(schedule: str, ms: float, platform: str = "cpu", devices: int = 1) -> dict[str, object]:
    return {
        "network": "net",
        "schedule": schedule,
        "algorithm": schedule,
        "devices": devices,
        "platform": platform,
        "mark": marks.MEASURED.name,
        "ms": ms,
        "speedup": 10 / ms,
    }


@pytest.mark.parametrize(("slowest", "said"), [(10.2, "one operator fills a core"), (17.7, "is not explained")])
def test_a_cause_is_named_only_where_the_data_bear_it(slowest: float, said: str) -> None:
    """Schedules whose times vary widely, as on a busy machine, are not reported as gaining next to nothing."""
    text = run_rows.one_operator_fills_a_core([_row("greedy", 10.0), _row("sequential", slowest)])
    assert f"above the fastest by {10 * slowest - 100:.1f} % on net" in text
    assert said in text
    assert ("next to nothing" in text) == (slowest < 10.5)


def test_sentences_about_cores_are_of_cores() -> None:
    """The findings do not mention cores if GPUs were measured, and do not compare a single schedule."""
    said = run_rows.on_cores(run_rows.one_operator_fills_a_core)
    assert said([_row("greedy", 10.0), _row("ios", 10.1)])
    assert said([_row("greedy", 10.0, "cuda"), _row("ios", 10.1, "cuda")]) == said([_row("ios", 10.0)]) == ""


def test_gain_of_groups() -> None:
    """Of the algorithm over its inter-GPU part with as many devices, by network."""
    rows = [_row("hios-lp-inter", 8.0, devices=2), _row("hios-lp", 6.0, devices=2)]
    assert run_rows.gain_of_groups(rows, "hios-lp") == (
        "Groups change the latency of hios-lp by -25.0 % on net with 2 devices."
    )


@pytest.mark.parametrize(("shape", "size"), [((1, 3, 75, 80), 80), ((1, 128), None), ((), None)])
def test_images_alone_have_a_size(shape: tuple[int, ...], size: int | None) -> None:
    """Tokens and numbers are no images."""
    graph = GraphFile("net", operators=(Operator("a", "task"),), edges=(), inputs=(TensorSpec("x", shape, "float32"),))
    costs, run = SimpleNamespace(), SimpleNamespace()
    assert run_rows.image_size(ExecutedNetwork(graph, costs, run)) == size  # type: ignore[arg-type]
