"""A schedule over two ranks of torchrun, as a rule of the pipeline."""

from __future__ import annotations

import os

import pytest

from hios.files import artifacts
from hios.formats.run import Run
from hios.verify import verify
from tests.workflow.conftest import Checkout
from tests.workflow.networks import OWN_NETWORK


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks need two cores")
def test_distributed_run(real_checkout: Checkout) -> None:
    """A small network, from the model to a run over ranks that hios verify finds right; then there is nothing to do."""
    checkout = real_checkout
    checkout.add_own_network()
    config = checkout.config(
        models={"alpha": None, "beta": None, **OWN_NETWORK},
        profile={"repeats": 2, "budget": 0, "cache": False, "stages_of": ["greedy"]},
        execute={"runs": 3, "warmup": 1},
        distribute={"algorithms": ["hios-lp"]},
    )
    arguments = ("--cores", "2", "--configfile", config, "--", "results/net/distributed/run.json")
    checkout.succeed(*arguments)
    folder = checkout.path / "results" / "net"
    run = artifacts.load(folder / "distributed" / "run.json", Run)
    assert [result.label for result in run.results] == ["hios-lp-2"]
    assert (run.platform.transport, run.platform.devices, run.runs) == ("gloo", 2, 3)
    checked = {file.path: file.problems for file in verify(checkout.path / "results")}
    assert checked["net/distributed/run.json"] == ()
    assert checkout.planned(*arguments) == {}
