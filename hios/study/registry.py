"""The registry of the papers' figures and tables: figures.yaml says what each is, figures/PAPER.py how it is drawn."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

import msgspec

from hios.errors import HiosError, suggestion
from hios.files.yaml_file import plain, read_yaml
from hios.study import figures as _drawings
from hios.study.figure_data import AVAILABLE, FigureData
from hios.study.published import Comparison, Published, published
from hios.study.rows import Rows

if TYPE_CHECKING:
    import altair as alt

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

#: The one table that no paper has: it explains figures of a paper.
_ABLATION = "ablation"

_FILE = Path(_drawings.__path__[0]).with_suffix(".yaml")


class FigureEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What figures.yaml says of a figure.

    Attributes:
        title: what it shows.
        section: of the paper; "Other" where that is not known.
        varies: what is varied and what is plotted.
        needs: keys of ``NEEDS``.
        sessions: whose data it is drawn from, see `hios.study.figure_data`; empty where it is computed on the spot.
        optional: sessions that it shows too if ``study: sessions:`` of the configuration names them.
        seconds: time on two cores to draw it once its sessions are there.
        also: statements of other figures that it is compared with, by key.
        missing: why hios does not draw it, in words; empty where it does.
        command: what would produce its data, where hios does not.
        reason: why numbers differ, or why there is nothing to compare them with, where that needs no numbers from the
            table.
    """

    title: str
    section: str = "Other"
    varies: str
    needs: tuple[str, ...] = ("cpu",)
    sessions: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    seconds: int | float = 3
    also: tuple[str, ...] = ()
    missing: str = ""
    command: str = ""
    reason: str = ""


class Drawing(TypedDict, total=False):
    """How a figure is drawn; `Figure` says what each function does."""

    rows: Callable[[FigureData], Rows]
    chart: Callable[[Rows], alt.TopLevelMixin]
    compare: Callable[[Rows], Sequence[Comparison]]
    finding: Callable[[Rows], str]
    explain: Callable[[Rows], str]


def _nothing(data: FigureData) -> Rows:
    return []


class Figure(FigureEntry, frozen=True, kw_only=True):
    """A figure or table of a paper.

    Attributes:
        id: paper and number, such as ``hios_fig9``.
        rows: makes its table from the data; an empty one where hios does not draw it.
        chart: makes a chart of the table; None for a table.
        compare: sets numbers of the table beside the published ones; of an empty table it names the statements that
            it compares.
        finding: makes one sentence on the result here, where the comparisons do not state it.
        explain: makes the sentence on why numbers differ from the table, behind ``reason``.
    """

    id: str
    rows: Callable[[FigureData], Rows] = _nothing
    chart: Callable[[Rows], alt.TopLevelMixin] | None = None
    compare: Callable[[Rows], Sequence[Comparison]] = lambda rows: ()
    finding: Callable[[Rows], str] = lambda rows: ""
    explain: Callable[[Rows], str] | None = None

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
    def published(self) -> Mapping[str, Published]:
        """What the paper and its authors state, by key."""
        own = {entry.key: entry for entry in published(self.id).values()}
        return own | {key: published(key.partition(".")[0])[key.partition(".")[2]] for key in self.also}

    @property
    def varied(self) -> list[str]:
        """The parameters of HIOS's simulation that it shows several values of."""
        return [name.removeprefix("simulation/") for name in self.sessions if name.startswith("simulation/")]

    @property
    def state(self) -> State:
        """Whether hios draws it, or what it takes."""
        if _GPU & set(self.needs):
            return "needs a GPU"
        return "not drawn" if self.missing else "drawn"

    def why(self, rows: Rows) -> str:
        """Why numbers differ; empty if there is nothing to explain."""
        return " ".join(filter(None, [self.reason, self.explain(rows) if self.explain else ""]))


#: The figures that are loaded, by id.
_FIGURES: dict[str, Figure] = {}


def register(
    name: str, *, beside: Callable[[Figure], Figure] = lambda figure: figure, **drawing: Unpack[Drawing]
) -> None:
    """Say how a figure of figures.yaml is drawn; `predicted_rows.predictions` adds what stands beside its own rows.

    Raises:
        ValueError: the figure is drawn already, or `checked` refuses it.
    """
    if name in _FIGURES:
        raise ValueError(f"a figure {name} is registered already")
    if name not in _entries():
        raise ValueError(f"figure {name}: found no entry in {_FILE.name}; required: one for each figure that is drawn")
    _FIGURES[name] = beside(_checked_entry(name, drawing))


def checked(figure: Figure) -> Figure:
    """The figure, if it is consistent.

    Raises:
        ValueError: the id is of no known paper, a need or session is unknown, or a figure that is not drawn does not
            say why.
    """
    paper, _, place = figure.id.partition("_")
    if paper not in PAPERS or not (place == _ABLATION or place.startswith(("fig", "tab"))):
        raise ValueError(f"figure {figure.id}: found this id; allowed: PAPER_figN or PAPER_tabN of {', '.join(PAPERS)}")
    if unknown := [need for need in figure.needs if need not in NEEDS]:
        raise ValueError(f"figure {figure.id}: needs: found {unknown[0]}; allowed: {', '.join(NEEDS)}")
    if unknown := [name for name in (*figure.sessions, *figure.optional) if name not in AVAILABLE]:
        raise ValueError(f"figure {figure.id}: sessions: found {unknown[0]}; allowed: {', '.join(AVAILABLE)}")
    if (figure.rows is _nothing) != bool(figure.missing):
        raise ValueError(f"figure {figure.id}: it is drawn or says what is missing")
    return figure


@functools.cache
def _entries() -> Mapping[str, FigureEntry]:
    return msgspec.convert(plain(read_yaml(_FILE), str(_FILE), ()), dict[str, FigureEntry])


def _checked_entry(name: str, drawing: Drawing) -> Figure:
    return checked(Figure(id=name, **msgspec.structs.asdict(_entries()[name]), **drawing))


def ids() -> list[str]:
    """The ids of all figures, by paper in the order of figures.yaml; nothing is imported."""
    places = {paper: place for place, paper in enumerate(PAPERS)}
    return sorted(_entries(), key=lambda name: places.get(name.partition("_")[0], len(places)))


def figure(name: str) -> Figure:
    """The figure of an id; a `HiosError` if there is none."""
    if name not in _entries():
        raise HiosError(f"figure: found {name}{suggestion(name, ids())}; allowed: {', '.join(ids())}")
    importlib.import_module(module_of(name))
    if name not in _FIGURES:
        _FIGURES[name] = _checked_entry(name, {})
    return _FIGURES[name]


def figures() -> list[Figure]:
    """All figures."""
    return [figure(name) for name in ids()]


def module_of(name: str) -> str:
    """The module of a figure's paper, whose code decides whether it is drawn again."""
    return f"{_drawings.__name__}.{name.partition('_')[0]}"
