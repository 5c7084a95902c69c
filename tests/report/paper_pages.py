"""A folder of results with figures of the papers, and its page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hios.report import write_report
from hios.study.page_part import papers_part
from tests.report.test_serving_results import write_serving
from tests.study.drawn_figures import draw, of_sessions
from tests.study.every_session import write_simulations
from tests.verify.results import write_network

#: Figures by the sessions that they are drawn from: a simulated, one with a chart of networks, box plots, tables.
DRAWN = ("hios_fig8", "hios_ablation", "ios_fig6", "lios_fig7", "lios_tab4", "ios_tab2")
#: One that is drawn as a card, as `snakemake figures` does.
CARD = "ios_fig8"


def write_results(folder: Path, figures: Sequence[str] = (*DRAWN, CARD)) -> Path:
    """Write sessions and figures."""
    for seed, name in enumerate(("inception_v3", "squeezenet")):
        write_network(folder / name, seed)
    networks = [folder / name / "run.json" for name in ("inception_v3", "squeezenet")]
    files = {"networks": networks, **write_simulations(folder)}
    for name in figures:
        draw(name, of_sessions(name, files), folder / "figures")
    return folder


def write_page(folder: Path) -> Path:
    """Write the pages of the results beside them; that of the papers."""
    networks = [folder / "inception_v3", folder / "squeezenet"]
    write_serving(folder)
    page = folder / "report.html"
    papers = papers_part(folder / "figures", page)
    write_report(networks, page, folder / "tables", papers=papers, serving=folder / "serving")
    return folder / "papers.html"
