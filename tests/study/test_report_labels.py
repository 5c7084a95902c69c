"""Figures in the report of Snakemake."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from hios.formats.config import Study
from hios.study import registry
from hios.study.registry import Figure
from hios.study.sessions import report_labels


def _switches(figures: Sequence[Figure]) -> list[str]:
    """The labels that the report makes switches of (getData in its template): the only one that halves the results."""
    labeled = [report_labels(figure, Study(), "some processor") for figure in figures]
    halving = []
    for name in list(labeled[0])[1:]:
        values = [labels[name] for labels in labeled]
        if len(set(values)) == 2 and values.count(values[0]) * 2 == len(values):
            halving.append(name)
    return halving if len(halving) == 1 else []


@pytest.mark.parametrize("paper", list(registry.PAPERS.values()))
def test_no_label_becomes_a_switch(paper: str) -> None:
    """The report fails where a result is not there with both values of a switch, whichever figures were drawn."""
    chance = random.Random(0)
    figures = [figure for figure in registry.figures() if figure.paper == paper]
    for count in range(1, len(figures) + 1):
        for _ in range(20):
            assert _switches(chance.sample(figures, count)) == []


def test_labels_tell_what_a_figure_is() -> None:
    """Title, number, target, and on what it was measured, if it was."""
    assert report_labels(registry.figure("hios_fig12"), Study(), "some processor") == {
        "what": "Inference latency of the benchmarks by image size",
        "figure": "Fig. 12",
        "target": "hios_fig12",
        "hardware": "some processor",
        "measured": "yes",
        "scale": "quick",
    }
    simulated = report_labels(registry.figure("hios_fig9"), Study(scale="full"), "some processor")
    assert (simulated["hardware"], simulated["measured"], simulated["scale"]) == ("any", "no", "full")


def test_sections() -> None:
    """Every figure and table is in a section of its paper, the subcategory of Snakemake's report."""
    assert "Other" not in {figure.section for figure in registry.figures()}
    assert [registry.figure(name).section for name in ("ios_fig16", "lios_tab3", "hios_ablation")] == [
        "Appendix",
        "IV. Method",
        "V. Simulation",
    ]
