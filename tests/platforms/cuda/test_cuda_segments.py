"""Segments of launches, on streams that are threads of this machine; inductor compiles them for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hios.core.graph import Graph
from hios.core.schedule import StagedPlan
from hios.platforms.cuda.segments import INDUCTOR, PACKED, Chooser
from tests.platforms.cuda.host import HostBackend
from tests.platforms.cuda.test_executor import NETWORKS, check, executor, plans


def _sequential(graph: Graph) -> StagedPlan:
    return StagedPlan((tuple(((place,),) for place in graph.order),))


def _always(monkeypatch: pytest.MonkeyPatch, compiled: Callable[..., Any]) -> None:
    """Have every segment of several calls be faster as ``compiled`` makes it of what its operators compute."""

    def timed(_: Chooser, __: Any, ways: dict[str, Any], ___: Any) -> dict[str, float]:
        return {name: 1.0 if name == INDUCTOR else 2.0 for name in ways}

    monkeypatch.setattr(Chooser, "_timed", timed)
    monkeypatch.setattr(Chooser, "_compiled", compiled)


def _by_operators(chooser: Chooser, candidate: Any, *_: Any) -> Callable[..., Any]:
    return chooser._by_operators(candidate)


@pytest.mark.parametrize("name", NETWORKS)
def test_whatever_the_segments_outputs_are_right(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All segments as one launch each, captured or not: outputs are those of eager PyTorch, rows those of operators."""
    _always(monkeypatch, _by_operators)
    extracted_network = NETWORKS[name]()
    for capturing in (True, False):
        prepared = executor(extracted_network, HostBackend(capturing=capturing))
        for number, plan in enumerate(plans(extracted_network.graph)):
            prepared.prepare(str(number), [plan])
            results = prepared.use_segments(str(number))
            assert {result.runtime for result in results} <= {PACKED, INDUCTOR}
            for _ in range(2):
                prepared.run(str(number))
                check(prepared.outputs(str(number)), extracted_network.eager())
            check(prepared.run_exactly(str(number)), extracted_network.eager())
            rows, _why = prepared.rows(str(number))
            assert sorted(row[0] for row in rows) == sorted(extracted_network.graph.index)
            assert all(start <= finish for *_, start, finish in rows)
