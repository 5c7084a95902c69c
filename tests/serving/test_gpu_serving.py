"""Serving on a real GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from hios.files import artifacts
from hios.serving.gpu_lane import first_gpu
from hios.serving.load import load
from hios.serving.server import Server
from tests.gpu_marker import requires_gpu
from tests.serving.served import COMBINED, ask_both, require_nothing_held, scenario
from tests.serving.test_gpu_lane import predicted


@requires_gpu
@pytest.mark.parametrize("policy", ["top", "ios", "nimble", "pos-relaxed"])
def test_every_output_is_that_of_the_model_alone(policy: str, tmp_path: Path) -> None:
    """All runs are replays of CUDA graphs, and requests beside each other get their own answers."""
    given = scenario(tmp_path, predicted(tmp_path), lanes=1, top={"combined": COMBINED})
    with Server(given, policy, gpu=first_gpu()) as server:
        for number in range(3):
            ask_both(server, 6, 10 * number)
        assert sum(counts.completed for counts in server.counts.values()) == 36
        assert server.streamed == {}
        assert server.busy_s > 0
        require_nothing_held(server)


@requires_gpu
def test_a_load_is_served(tmp_path: Path) -> None:
    """Tasks of both models are answered, rightly, and the result says on which GPU."""
    models = predicted(tmp_path)
    for settings in models.values():
        settings["rate"] = 50.0
    given = scenario(tmp_path, models, lanes=1, top={"combined": COMBINED})
    loaded = load(given, "top", gpu=first_gpu())
    result = artifacts.plain(loaded.result)
    assert loaded.wrong == ""
    assert result["total"]["failed"] == 0
    assert result["total"]["completed"] > 0
