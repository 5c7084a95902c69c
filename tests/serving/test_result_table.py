"""A result in the terminal."""

from __future__ import annotations

import msgspec
import pytest

from hios.formats.serving_result import LateSends
from hios.serving.simulate import simulate
from hios.serving.tables import result_table
from tests.serving.scenarios import scenario, served


@pytest.mark.parametrize(("share", "told"), [(0.01, False), (0.4, True)])
def test_a_busy_machine_is_told(share: float, told: bool) -> None:
    """Where many tasks were sent late, the numbers are not of the server alone."""
    simulated = simulate(scenario(served("one", [[1.0]], 10.0), duration_s=1.0), "sequential")
    measured = msgspec.structs.replace(simulated, simulated=False, late=LateSends(share=share, most_ms=17.7))
    note = "40% of the tasks were sent late, by up to 17.7 ms: the machine was busy with something else"
    assert (note in result_table(measured)) == told
    assert "by the costs no policy can do more than" in result_table(measured)
