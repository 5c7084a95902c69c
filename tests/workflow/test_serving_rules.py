"""Scenarios that also run, with a learned policy, through Snakemake: from the calibration to the report."""

from __future__ import annotations

import re

import pytest
import yaml

from hios.files import artifacts
from hios.formats.serving_result import ResultFile
from hios.verify import verify
from tests.workflow.conftest import Checkout

pytestmark = pytest.mark.slow  # a whole pipeline


def test_a_scenario_that_runs_is_calibrated_first(real_checkout: Checkout) -> None:
    """Predictions and the choice of auto rest on the calibration; auto compares what was learned."""
    real_checkout.take_models("squeezenet")
    module = real_checkout.path / "hios" / "serving" / "calibrate.py"
    module.write_text(re.sub(r"^BUDGET_S = .*$", "BUDGET_S = 3.0", module.read_text(), flags=re.MULTILINE))
    config = {
        "models": {"squeezenet": {"image_size": 64}},
        "virtual": True,
        "algorithms": {"sequential": {}},
        "profile": {"repeats": 3, "budget": 10, "cache": False},
        "execute": {"runs": 3, "warmup": 1},
        "serving": {
            "policies": ["learned", "auto"],
            "loads": [0.1],
            "measure": True,
            "training": "small",
            "duration_s": 2,
        },
        "study": {"sessions": []},
    }
    (real_checkout.path / "config.yaml").write_text(yaml.safe_dump(config))
    real_checkout.succeed()
    results = real_checkout.path / "results"
    served = {
        (kind, policy): artifacts.load(results / "serving" / "networks" / kind / f"{policy}-0.1.json", ResultFile)
        for kind in ("simulated", "measured")
        for policy in ("learned", "auto")
    }
    for (kind, _), result in served.items():
        assert (result.simulated, result.calibrated) == (kind == "simulated",) * 2
        assert result.total.completed > 0
    for kind in ("simulated", "measured"):
        compared = {entry.policy for entry in served[kind, "auto"].candidates if entry.left_out is None}
        assert {"learned", "learned-static", "top", "one-per-lane"} <= compared
    # Both choose by the same simulations of other traces.
    assert served["simulated", "auto"].candidates == served["measured", "auto"].candidates
    page = (results / "report.html").read_text(encoding="utf-8")
    assert "Predictions are calibrated" in page
    assert [entry for entry in verify(results) if entry.problems] == []
    assert real_checkout.planned() == {}
