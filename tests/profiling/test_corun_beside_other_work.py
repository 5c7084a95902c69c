"""A factor of devices at once that holds other work is marked."""

from __future__ import annotations

import msgspec

from hios.formats.costs_file import CorunFactor, CostsFile
from hios.profiling.measurement_cache import Measured
from hios.profiling.profile import _corun
from hios.report.cost_facts import cost_facts

_SAMPLES = [1.4, 1.5, 1.6, 1.5, 1.4, 1.6, 1.5]


def _said(factor: CorunFactor) -> str:
    costs = msgspec.convert({"operators": {}, "transfers": []}, CostsFile)
    (fact,) = (f for f in cost_facts(msgspec.structs.replace(costs, corun=(factor,))) if f.name == "Devices at once")
    return fact.value


def test_a_factor_beside_other_work_is_marked() -> None:
    """costs.json and the report say so of what was measured then, not of what an idle machine had measured before."""
    found = Measured(_SAMPLES, "2026-01-01T00:00:00Z")
    marked = _corun(2, found, quiet=False)
    assert (marked.factor, marked.beside_other_work) == (1.5, True)
    assert _said(marked).endswith("measured beside other work")
    quiet = [_corun(2, found, quiet=True), _corun(2, Measured(_SAMPLES, "", cached=True), quiet=False)]
    assert [factor.beside_other_work for factor in quiet] == [None, None]
    assert "other work" not in _said(quiet[0])
