"""The papers' part of a report's page: every published statement beside what was found here, and the figures."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree

from hios.errors import ArtifactError, first_line
from hios.files import artifacts, read_limits
from hios.formats.study import ComparedNumber, FigureFile
from hios.study import registry
from hios.study.figure_data import located
from hios.study.figure_files import ENDINGS, HIDDEN, compared
from hios.study.published import PREDICTED, Verdict
from hios.study.registry import Figure
from hios.study.rows import Row
from hios.study.simulated_rows import HIOS, RELEASED

_AGREE = (Verdict.AGREES.value, Verdict.CONSTRUCTED.value)
_SECONDS_PER_MINUTE = 60
_SVG = "{http://www.w3.org/2000/svg}"
#: Elements of drawings.
_ELEMENTS = frozenset({"svg", "g", "line", "path", "rect", "circle", "text", "tspan", "title"}) | frozenset(
    {"defs", "clipPath", "linearGradient", "radialGradient", "stop"}
)
#: Names of file types, as links show them.
_NAMES = {"csv": "CSV", "tex": "LaTeX", "svg": "SVG", "pdf": "PDF", "json": "JSON"}


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure or table that was drawn, and its files and those of its data as addresses relative to the page."""

    record: FigureFile
    svg: str
    files: Mapping[str, str]
    data: Sequence[str]


def drawn_in(folder: Path) -> list[str]:
    """The ids of the figures that a folder holds."""
    return [name for name in registry.ids() if (folder / f"{name}.json").is_file()]


def papers_part(folder: Path, page: Path, *, shown: Iterable[str] | None = None, root: Path | None = None) -> Row:
    """What a page shows of the papers, as its template takes it; of figures that the folder lacks, what they need.

    Args:
        folder: with ID.json and ID.svg of every figure that was drawn, as `hios figures` writes them.
        page: file that is to show them; addresses of files are relative to its folder.
        shown: ids of those to show; all of the folder if None.
        root: folder of results that the files of their data are in now; they are where the figures say if None.

    Raises:
        ArtifactError: the folder holds no figure, or a file is missing or damaged.
    """
    place = Path(page).absolute().parent
    figures = {name: _read(folder, name, place, root) for name in (drawn_in(folder) if shown is None else shown)}
    if not figures:
        raise ArtifactError(f"{folder}: found no figure; required: ID.json of one at least, by `snakemake ID`")
    return {"papers": _papers(figures), "verdicts": _verdict_sentences(figures)}


def _require_drawing(svg: str, path: Path) -> None:
    """Check that a file of others is nothing but a drawing, as the page takes it in as it is.

    HTML and XML read comments, sections and instructions differently, so that these could hide anything.
    """
    try:
        if "<!" in svg or "<?" in svg:
            raise ElementTree.ParseError("a comment, section or instruction")
        for element in ElementTree.fromstring(svg).iter():  # noqa: S314 - entities have to be declared, by "<!"
            name = element.tag.removeprefix(_SVG)
            if name not in _ELEMENTS:
                raise ElementTree.ParseError(f"the element {name}")
            for attribute, value in element.attrib.items():
                written = value.lower().replace("url(#", "")
                escaped = "\\" in value and not attribute.startswith(("data-", "aria-"))
                if attribute.lower().startswith(("on", "href", "{", "style")) or "url(" in written or escaped:
                    raise ElementTree.ParseError(f"the attribute {attribute} of {name}")
    except ElementTree.ParseError as error:
        raise ArtifactError(
            f"{path}: found {first_line(error)}; allowed: a drawing of `hios figures`, without scripts; draw it again"
        ) from None


def _read(folder: Path, name: str, place: Path, root: Path | None) -> Drawn:
    record = artifacts.load(folder / f"{name}.json", FigureFile)
    drawing = folder / f"{name}.svg"
    try:
        svg = read_limits.read_text(drawing)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "it is not UTF-8")
        raise ArtifactError(f"{drawing}: cannot be read: {why}; draw the figure again") from None
    _require_drawing(svg, drawing)
    files = {_NAMES[ending]: _address(folder / f"{name}.{ending}", place) for ending in ENDINGS}
    data = [Path(file) if root is None else located(file, root) for file in record.data]
    return Drawn(record, svg, files, [_address(file, place) for file in data])


def _address(file: Path, place: Path) -> str:
    return Path(os.path.relpath(Path(file).absolute(), place)).as_posix()


def _papers(figures: Mapping[str, Drawn]) -> list[Row]:
    """What the page shows of every paper: figures and tables with their statements, in the order of the registry."""
    views = [_view(registry.figure(name), figures.get(name)) for name in registry.ids()]
    return [_of_paper(paper, list(own)) for paper, own in groupby(views, key=lambda view: view["paper"])]


def _of_paper(name: str, figures: Sequence[Row]) -> Row:
    """The figures of a paper: with and without a result, drawn and not."""
    return {
        "name": name,
        "with_results": [view for view in figures if _has_result(view)],
        "without_results": [view for view in figures if not _has_result(view)],
        "drawn": [view for view in figures if view["drawing"]],
        "cards": [view for view in figures if not view["drawing"]],
    }


def _has_result(view: Row) -> bool:
    return bool(view["compared"] or view["finding"] or view["drawing"])


def _view(figure: Figure, drawn: Drawn | None) -> Row:
    record = None if drawn is None else drawn.record
    is_drawn = record is not None and not record.missing
    comparisons = compared(figure, ()) if record is None else record.comparisons
    # Published statements, each with what was found of it: an entry for everyone who did.
    statements = [list(own) for _, own in groupby(comparisons, key=lambda entry: entry.key)]
    return {
        "id": figure.id,
        "paper": figure.paper,
        "number": figure.number,
        "title": figure.title,
        "statements": [rows[0] for rows in statements],
        "compared": [rows for rows in statements if _is_compared(rows)],
        "uncompared": [rows[0] for rows in statements if not _is_compared(rows)],
        "finding": record.finding if record is not None else "",
        "why": _why(figure, record),
        "needs": ", ".join(registry.NEEDS[need] for need in figure.needs),
        "command": f"snakemake --cores all {figure.id}",
        "by_hand": figure.command,
        "varies": figure.varies,
        "drawing": _drawing(figure, drawn) if drawn is not None and is_drawn else None,
    }


def _why(figure: Figure, record: FigureFile | None) -> str:
    if record is not None and not record.missing:
        return record.reason
    missing = record.missing if record is not None else figure.missing
    return (
        f"Not drawn: {missing}." if missing else f"Not drawn in this run; snakemake --cores all {figure.id} draws it."
    )


def _is_compared(rows: Sequence[ComparedNumber]) -> bool:
    return any(entry.found for entry in rows)


def _drawing(figure: Figure, drawn: Drawn) -> Row:
    record = drawn.record
    return {
        "caption": record.caption,
        "svg": drawn.svg if figure.chart is not None else None,
        "columns": [name for name in record.columns if name not in HIDDEN],
        "rows": record.rows,
        "files": drawn.files,
        "data": [
            (
                address if address.endswith(("run.json", "schedule.json", "predicted.json")) else Path(address).name,
                address,
            )
            for address in drawn.data
        ],
        "time": _time(record),
        "code": record.origin.code if record.origin is not None else None,
    }


def _time(record: FigureFile) -> str:
    if record.origin is None:
        return "not recorded"
    drawing = f"{record.origin.drawing_s:.1f} s to draw"
    if not record.data:
        return drawing
    return f"{drawing}; its sessions took {_duration(record.origin.session_s)}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 2 * _SECONDS_PER_MINUTE else f"{seconds / _SECONDS_PER_MINUTE:.0f} min"


def _verdict_sentences(figures: Mapping[str, Drawn]) -> list[str]:
    """How many of the published statements agree with what was found, counted once each."""
    by_key = {
        entry.key: {HIOS: entry.verdict} for name in registry.ids() for entry in compared(registry.figure(name), ())
    }
    for entry in (entry for drawn in figures.values() for entry in drawn.record.comparisons if entry.found):
        by_key[entry.key][entry.by] = entry.verdict
    return list(_counted(by_key))


def _counted(by_key: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    here = Counter(verdicts[HIOS] for verdicts in by_key.values())
    counts = [f"{here[verdict.value]} {_VERBS[verdict]}" for verdict in Verdict]
    yield f"Of {len(by_key)} statements that the papers make in numbers, {', '.join(counts[:-1])}, and {counts[-1]}."
    released = [verdicts[RELEASED] for verdicts in by_key.values() if RELEASED in verdicts]
    if released:
        agree = sum(verdict in _AGREE for verdict in released)
        own = sum(verdicts[HIOS] in _AGREE for verdicts in by_key.values() if RELEASED in verdicts)
        yield (
            f"Of the {len(released)} statements about HIOS's simulation, {own} agree if the paper's equations are "
            f"followed, and {agree} if its authors' released program is."
        )
    predicted = Counter(
        verdict for verdicts in by_key.values() for by, verdict in verdicts.items() if by.startswith(PREDICTED)
    )
    if predicted:
        counts = [f'{count} "{verdict}"' for verdict, count in predicted.items()]
        yield f"Verdicts on predictions for the papers' GPUs: {', '.join(counts)}."


_VERBS = {
    Verdict.AGREES: "agree with what was found here",
    Verdict.CONSTRUCTED: "more by construction",
    Verdict.DIRECTION: "point in the same direction",
    Verdict.DIFFERS: "differ",
    Verdict.ELSEWHERE: "are about hardware, sessions, inputs or settings that are not part of this run",
    Verdict.UNCOMPARED: "are not compared with anything",
}
