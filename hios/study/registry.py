"""The registry of the papers' figures and tables: one file each in hios/study/figures, named like the figure."""

from __future__ import annotations

import importlib
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hios.errors import HiosError, suggestion
from hios.study.figure_data import AVAILABLE, FigureData
from hios.study.published import Published, published
from hios.study.verdicts import Comparison

if TYPE_CHECKING:
    import altair as alt

#: A row of a tidy table, by column. Rows of a chart name their mark in the column ``mark``.
Row = dict[str, Any]
Rows = list[Row]

#: Whether hios draws a figure; otherwise the reason.
State = Literal["drawn", "needs a GPU", "not drawn"]

#: What a figure may need, and what that means.
NEEDS = {
    "cpu": "any machine",
    "2 devices": "two cores or two GPUs",
    "cuda": "a GPU",
    "2 GPUs": "two GPUs",
    "GPU counters": "a GPU and permission to read its performance counters",
    "several machines": "results of several machines",
}
_GPU = frozenset({"cuda", "2 GPUs", "GPU counters"})

#: The papers by the first part of a figure's id.
PAPERS = {
    "hios": "HIOS (Kundu and Shu)",
    "ios": "IOS (MLSys 2021)",
    "lios": "LIOS (Ping et al., IEEE TSC 2024)",
    "opara": "Opara (Chen et al., arXiv:2312.10351)",
    "top": "TOP (Lin et al.)",
}

#: Sections by paper, each with its figures and tables.
_SECTIONS: Mapping[str, Mapping[str, str]] = {
    "hios": {
        "II. Background and Motivation": "fig1 fig2",
        "IV. Algorithm Design": "fig4 fig5",
        "V. Simulation": "fig7 fig8 fig9 fig10 fig11 ablation",
        "VI. Experiments": "fig12 fig13 fig14",
    },
    "ios": {
        "1. Introduction": "fig1 fig2",
        "4. Methods": "tab1",
        "5. Implementation Setup": "tab2",
        "6. Experiments": "fig6 fig7 fig8",
        "7. Ablation Study": "fig9 fig10 fig11 fig12 tab3",
        "Appendix": "fig13 fig14 fig15 fig16",
    },
    "lios": {
        "III. Motivation": "fig4 tab2",
        "IV. Method": "tab3",
        "V. Experimental Setup": "tab4",
        "VI. Experimental Results": "fig7 fig8 fig9 tab5 tab6 tab7",
    },
    "opara": {
        "2. Background and Motivation": "fig1 fig2 fig3",
        "5. Performance Evaluation": "fig5 fig6 fig7 fig8 fig9 tab1",
    },
    "top": {"VI. Evaluation": "fig13 fig14 fig15 fig16 fig17 fig18 fig20 fig21 fig22 fig23 fig24 fig26 fig27"},
}
_SECTION_OF = {
    f"{paper}_{place}": section
    for paper, sections in _SECTIONS.items()
    for section, places in sections.items()
    for place in places.split()
}

#: The one table that no paper has: it explains figures of a paper.
_ABLATION = "ablation"

_FOLDER = Path(__file__).with_name("figures")
_PACKAGE = "hios.study.figures"


def _nothing(data: FigureData) -> Rows:
    return []


def _no_words(rows: Rows) -> str:
    return ""


def reason(text: str) -> Callable[[Rows], str]:
    """A reason without numbers."""
    return lambda rows: text


def _no_comparison(rows: Rows) -> Sequence[Comparison]:
    return ()


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure or table of a paper.

    Attributes:
        id: paper and number, such as ``hios_fig9``; the name of its file.
        title: what it shows.
        varies: what is varied and what is plotted.
        needs: keys of ``NEEDS``.
        sessions: whose data it is drawn from, see `hios.study.figure_data`; empty where it is computed on the spot.
        optional: sessions that it shows too if ``study: sessions:`` of the configuration names them.
        seconds: time on two cores to draw it once its sessions are there.
        rows: makes its table from the data.
        chart: makes a chart of the table; None for a table.
        compare: sets numbers of the table beside the published ones.
        also: other groups of published.yaml that belong to it.
        missing: why hios does not draw it, in words; empty where it does.
        command: what would produce its data, where hios does not.
        reason: makes one sentence on why numbers differ, with its numbers from the table.
        finding: makes one sentence on the result here, where the comparisons do not state it.
    """

    id: str
    title: str
    varies: str
    needs: tuple[str, ...] = ("cpu",)
    sessions: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    seconds: float = 3
    rows: Callable[[FigureData], Rows] = _nothing
    chart: Callable[[Rows], alt.TopLevelMixin] | None = None
    compare: Callable[[Rows], Sequence[Comparison]] = _no_comparison
    also: tuple[str, ...] = ()
    missing: str = ""
    command: str = ""
    reason: Callable[[Rows], str] = _no_words
    finding: Callable[[Rows], str] = _no_words

    @property
    def paper(self) -> str:
        """The paper in words."""
        return PAPERS[self.id.partition("_")[0]]

    @property
    def number(self) -> str:
        """Its number in the paper, such as ``Fig. 9``."""
        place = self.id.partition("_")[2]
        if place == _ABLATION:
            return "ablation of Figs. 7 to 11"
        return f"Fig. {place[3:]}" if place.startswith("fig") else f"Table {place[3:]}"

    @property
    def section(self) -> str:
        """The section of the paper that it is in; "Other" where that is not known."""
        return _SECTION_OF.get(self.id, "Other")

    @property
    def published(self) -> Mapping[str, Published]:
        """What the paper and its authors state, by key."""
        return {entry.key: entry for group in (self.id, *self.also) for entry in published(group).values()}

    @property
    def needs_gpu(self) -> bool:
        """Whether nothing of it can be measured without a GPU."""
        return bool(_GPU & set(self.needs))

    @property
    def state(self) -> State:
        """Whether hios draws it, or what it takes."""
        if self.needs_gpu:
            return "needs a GPU"
        if self.missing:
            return "not drawn"
        return "drawn"


#: The figures that are loaded, by id.
_FIGURES: dict[str, Figure] = {}


def register(figure: Figure) -> Figure:
    """Add a figure.

    Raises:
        ValueError: the id is taken or of no known paper, a need or session is unknown, or a figure that is not drawn
            does not say why.
    """
    if figure.id in _FIGURES:
        raise ValueError(f"a figure {figure.id} is registered already")
    paper, _, place = figure.id.partition("_")
    if paper not in PAPERS or not (place == _ABLATION or place.startswith(("fig", "tab"))):
        raise ValueError(f"figure {figure.id}: found this id; allowed: PAPER_figN or PAPER_tabN of {', '.join(PAPERS)}")
    if unknown := [need for need in figure.needs if need not in NEEDS]:
        raise ValueError(f"figure {figure.id}: needs: found {unknown[0]}; allowed: {', '.join(NEEDS)}")
    if unknown := [name for name in (*figure.sessions, *figure.optional) if name not in AVAILABLE]:
        raise ValueError(f"figure {figure.id}: sessions: found {unknown[0]}; allowed: {', '.join(AVAILABLE)}")
    if (figure.rows is _nothing) != bool(figure.missing):
        raise ValueError(f"figure {figure.id}: it is drawn or says what is missing")
    _FIGURES[figure.id] = figure
    return figure


def ids() -> list[str]:
    """The ids of all figures, in the order of papers and numbers; nothing is imported."""
    papers, kinds = list(PAPERS), ("fig", "tab", _ABLATION)

    def place(name: str) -> tuple[int, int, int]:
        paper, _, rest = name.partition("_")
        number = rest.lstrip(string.ascii_lowercase)
        return papers.index(paper), kinds.index(rest.removesuffix(number)), int(number or 0)

    return sorted((path.stem for path in _FOLDER.glob("*_*.py") if path.stem[0] != "_"), key=place)


def figure(name: str) -> Figure:
    """The figure of an id.

    Raises:
        HiosError: there is none.
    """
    if name not in ids():
        raise HiosError(f"figure: found {name}{suggestion(name, ids())}; allowed: {', '.join(ids())}")
    if name not in _FIGURES:
        importlib.import_module(module_of(name))
    return _FIGURES[name]


def figures() -> list[Figure]:
    """All figures."""
    return [figure(name) for name in ids()]


def module_of(name: str) -> str:
    """The module of a figure, whose code decides whether it is drawn again."""
    return f"{_PACKAGE}.{name}"
