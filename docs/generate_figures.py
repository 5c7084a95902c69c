"""Writes the parts of docs/reproducing.md that come from the registry of figures, published.yaml and verdicts.yaml.

    python docs/generate_figures.py                     # the page
    python docs/generate_figures.py --record results    # verdicts.yaml from that folder, then the page

They stand between markers; everything else is written by hand and stays. docs/verdicts.yaml holds what a run of
`snakemake figures` found for published numbers, and on which machine, and what it predicted for the papers' GPUs; the
verdicts on it are computed here. What figures compute from the code alone is the same everywhere: it is computed here
and not recorded.
tests/study/test_reproducing.py fails while the page is not what this makes of all that.
"""

from __future__ import annotations

import argparse
import functools
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
import yaml

from hios.charts.marks import explanation
from hios.errors import HiosError
from hios.files import artifacts
from hios.files.yaml_file import plain, read_yaml
from hios.formats.run import Run
from hios.formats.study import ComparedNumber, ConvolutionsFile, FigureFile
from hios.study.figure_data import SESSION_TIMES, FigureData, located
from hios.study.figure_files import compared
from hios.study.figure_listing import source_text
from hios.study.published import Comparison, Found, all_published
from hios.study.registry import NEEDS, PAPERS, Figure, figure, figures, ids

RECORD = Path(__file__).with_name("verdicts.yaml")
PAGE = Path(__file__).with_name("reproducing.md")

#: The verdict on figures that depend on sessions, as long as no run is recorded.
_NOT_RECORDED = "not recorded"

_BEGIN, _END = "<!-- generated: {} -->", "<!-- end -->"


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was found for a published number.

    Attributes:
        key: in published.yaml.
        found: one number, the least and the most, or numbers by case.
        by: what found it, such as hios or the released program.
    """

    key: str
    found: float | tuple[float, float] | dict[str, float]
    by: str = "hios"


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a run of `snakemake figures` found: docs/verdicts.yaml.

    Attributes:
        hardware: processor or GPUs of what was measured; empty where nothing was.
        cores: number of cores that the measured devices were; 0 for GPUs.
        measured: first and last day of measuring, as ISO 8601; empty where nothing was measured or no file says when.
        scale: quick or full.
        code: commit of the checkout that drew the figures.
        recorded: day on which this was written down, as ISO 8601.
        figures: what was found, by figure; a figure that nothing was found for is empty.
    """

    hardware: str
    cores: int
    measured: tuple[str, ...]
    scale: str
    code: str
    recorded: str
    figures: dict[str, tuple[Claim, ...]]


def recorded(path: Path = RECORD) -> Record | None:
    """What verdicts.yaml holds; None as long as nothing is recorded.

    Raises:
        HiosError: the file is not YAML.
        msgspec.ValidationError: it does not hold a record.
    """
    contents = plain(read_yaml(path), str(path), ())
    return None if contents is None else msgspec.convert(contents, Record)


def record_results(results: Path, path: Path = RECORD) -> Record:
    """Write verdicts.yaml from a folder of results; figures that it lacks keep what was recorded with the same scale.

    Args:
        results: with figures/ID.json and what these were drawn from, and the resolved config.yaml.
        path: the file to write.

    Returns:
        What the file holds. Figures that are computed from the code alone are left out.

    Raises:
        HiosError: there is no figure, one is not in the registry, or a file is missing or damaged.
    """
    files = [artifacts.load(file, FigureFile) for file in sorted((results / "figures").glob("*.json"))]
    if not files:
        raise HiosError(f"{results}: found no figures/ID.json; required: results of snakemake figures")
    depending = {file.id: file for file in files if figure(file.id).sessions or figure(file.id).optional}
    measured = [artifact for name in _data(depending.values(), results) if (artifact := _measured(name))]
    platforms = [artifact.platform for artifact in measured]
    hardware, scale = _joined(platform.hardware for platform in platforms), _scale(results)
    before = recorded(path) if path.is_file() else None
    if before is not None and (
        before.scale != scale
        or hardware not in {"", before.hardware}  # verdicts are those of one machine
        or before.figures.keys() <= depending.keys()
    ):
        before = None
    days = [artifact.measured_at[:10] for artifact in measured if artifact.measured_at]
    days = sorted([*days, *(before.measured if before else ())])
    claims = {name: tuple(_found(figure(name), file)) for name, file in depending.items()}
    claims = {**(before.figures if before else {}), **claims}
    record = Record(
        hardware=hardware or (before.hardware if before else ""),
        cores=len({core for platform in platforms for device in platform.cores or () for core in device})
        or (before.cores if before else 0),
        measured=tuple(dict.fromkeys([days[0], days[-1]])) if days else (),
        scale=scale,
        code=_joined(
            [*(file.origin.code for file in files if file.origin), *(before.code.split(_AND) if before else ())]
        ),
        recorded=f"{datetime.now(UTC):%Y-%m-%d}",
        figures={name: claims[name] for name in ids() if name in claims},
    )
    with artifacts.replacing(path) as temporary:
        temporary.write_text(_HEAD + _as_yaml(record), encoding="utf-8")
    return record


_AND = " and "


def _joined(texts: Iterable[str | None]) -> str:
    return _AND.join(sorted(set(filter(None, texts))))


#: First line of verdicts.yaml.
_HEAD = "# Found for published numbers, by `python docs/generate_figures.py --record RESULTS`: see Record there.\n"


def _as_yaml(record: Record) -> str:
    return yaml.safe_dump(msgspec.to_builtins(record), sort_keys=False, allow_unicode=True, width=120)


def _data(files: Iterable[FigureFile], results: Path) -> list[Path]:
    """The files that figures were drawn from, each once."""
    return [located(name, results) for name in dict.fromkeys(name for file in files for name in file.data)]


def _measured(path: Path) -> Run | ConvolutionsFile | None:
    """A file of a session that measured on this machine; None for others."""
    if path.name == "run.json":
        return artifacts.load(path, Run)
    return artifacts.load(path, ConvolutionsFile) if path.name == "convolutions.json" else None


def _scale(results: Path) -> str:
    path = results / "config.yaml"
    if not path.is_file():
        raise HiosError(f"{path}: missing; required for the scale: snakemake {path} writes it")
    contents = plain(read_yaml(path), str(path), ())
    try:
        return msgspec.convert(contents["study"], _Scaled).scale
    except (KeyError, TypeError, msgspec.ValidationError):
        raise HiosError(f"{path}: study.scale is missing; required: the resolved configuration of the run") from None


class _Scaled(msgspec.Struct):
    """What counts here of `study:` in a configuration."""

    scale: Literal["quick", "full"]


def _found(entry: Figure, file: FigureFile) -> Iterator[Claim]:
    """What a figure found for published numbers; of one that needs no session, what it predicted alone."""
    exact = [] if entry.sessions else _exact(entry.id)
    for comparison in entry.compare([] if file.missing else list(file.rows)):
        if comparison.found is not None and comparison not in exact:
            yield Claim(comparison.published.key, _rounded(comparison.found), comparison.by)


def _rounded(found: Found) -> float | tuple[float, float] | dict[str, float]:
    """Numbers with six digits, which are enough for every verdict."""
    if isinstance(found, Mapping):
        return {case: float(f"{number:.6g}") for case, number in found.items()}
    if isinstance(found, tuple):
        return float(f"{found[0]:.6g}"), float(f"{found[1]:.6g}")
    return float(f"{found:.6g}")


def generated(text: str, record: Record | None) -> str:
    """The page with its generated parts made anew.

    Args:
        text: the page as it is.
        record: what was found; None as long as nothing is recorded.

    Raises:
        ValueError: a part is missing, or not closed.
    """
    parts = {
        "marks": _wrapped(explanation()),
        "machine": _wrapped(_machine(record)),
        "figures": _figures(record),
        "published": _published(record),
    }
    for name, part in parts.items():
        begin = re.escape(_BEGIN.format(name))
        text, count = re.subn(f"{begin}\n.*?{re.escape(_END)}", _filled(name, part), text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"{PAGE.name}: generated part {name}: found {count}; allowed: 1")
    return text


def _filled(name: str, part: str) -> str:
    return f"{_BEGIN.format(name)}\n{part}\n{_END}".replace("\\", "\\\\")


def _machine(record: Record | None) -> str:
    """Where the verdicts of the page are from."""
    exact = "Figures that are computed from the code alone have the same verdicts on every machine."
    if record is None:
        return f"{exact} No verdict of a figure that depends on sessions is recorded: the page says so for each."
    days = " to ".join(record.measured)
    where = f"measured on {record.hardware}" if record.hardware else "computed; nothing was measured"
    cores = f", {record.cores} cores" if record.cores else ""
    return (
        f"{exact} Others are from a run with `scale: {record.scale}`, {where}{cores}{f', {days}' if days else ''}; the "
        f"figures were drawn by {record.code or 'an installed hios, outside of a checkout'}, and the verdicts recorded "
        f"on {record.recorded}." + " Each of these commits drew some of the figures." * (_AND in record.code)
    )


def _figures(record: Record | None) -> str:
    rows = [_row("command", "figure", "what it shows", "needs", "drawn from", "time", "verdict"), _row(*["---"] * 7)]
    for entry in figures():
        time = f"{entry.seconds:g} s" if not entry.missing else ""
        source = ", ".join(entry.sessions) if not entry.missing else _why(entry)
        needs = ", ".join(entry.needs)
        place = (f"`snakemake {entry.id}`", entry.number, entry.title, needs)
        rows.append(_row(*place, source or _without_session(entry), time, _verdicts(_compared(entry, record))))
    needs = "; ".join(f"{name}: {meaning}" for name, meaning in NEEDS.items())
    times = "; ".join(f"{session}: {time}" for session, time in SESSION_TIMES.items())
    drawing = "Time is that of drawing, once the data are there. Sessions take on two idle cores"
    verdicts = (
        "The last column counts the verdicts on the published numbers of a figure, apart for the released program; "
        "[below](#all-published-numbers) is each number with its own."
    )
    parts = [f"Needs are {needs}.", f"{drawing}: {times}.", verdicts]
    return "\n".join([*rows, *(line for part in parts for line in ("", _wrapped(part)))])


def _without_session(entry: Figure) -> str:
    """What a figure is drawn from that needs no session: predictions if it has nothing without them."""
    return ", ".join(entry.optional) if entry.optional and not entry.rows(FigureData()) else "the code"


def _compared(entry: Figure, record: Record | None) -> list[ComparedNumber] | None:
    """The published numbers of a figure and what was found; None if it depends on sessions and is not recorded."""
    claims = record.figures.get(entry.id) if record is not None else None
    if claims is None and entry.sessions and entry.published and entry.compare([]):
        return None
    found = [
        Comparison(entry.published[own.key], own.found, own.by) for own in claims or () if own.key in entry.published
    ]
    return compared(entry, found if entry.sessions else [*_exact(entry.id), *found])


@functools.cache
def _exact(name: str) -> list[Comparison]:
    """What is found for the published numbers of a figure that no session feeds."""
    entry = figure(name)
    return list(entry.compare(entry.rows(FigureData())))


def _verdicts(numbers: Iterable[ComparedNumber] | None) -> str:
    if numbers is None:
        return _NOT_RECORDED
    counts = Counter(_by(number, number.verdict) for number in numbers)
    return ", ".join(f"{verdict}: {count}" for verdict, count in counts.items()) or "nothing to compare"


def _verdict(number: ComparedNumber) -> str:
    """The verdict on a published number, and the cases that it leaves out."""
    return f"{number.verdict} without {', '.join(number.absent)}" if number.absent else number.verdict


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _why(figure: Figure) -> str:
    command = f" (`{figure.command}`)" if figure.command else ""
    return f"not drawn: {figure.missing}{command}"


def _published(record: Record | None) -> str:
    lines, outcomes = [], _outcomes(record)
    for group, entries in all_published().items():
        if not entries:
            continue
        paper = PAPERS.get(group.partition("_")[0], "Threads of users")
        lines += [f"#### {group}", "", f"{paper}.", ""]
        lines += [
            _row("published", "value", "unit", "on", "source", "tolerance", "found here", "verdict"),
            _row(*["---"] * 8),
        ]
        lines += [
            _row(
                entry.what + (f" ({entry.note})" if entry.note else ""),
                entry.text,
                entry.unit,
                entry.hardware,
                source_text(entry),
                f"{entry.tolerance:.0%}",
                *outcomes[entry.key],
            )
            for entry in entries.values()
        ]
        lines.append("")
    return "\n".join(lines).rstrip()


def _outcomes(record: Record | None) -> Mapping[str, tuple[str, str]]:
    """What was found for every published number, and the verdict, by key."""
    outcomes = {entry.key: ("", "in no figure") for entries in all_published().values() for entry in entries.values()}
    for entry in figures():
        keys, numbers = [key for key in entry.published if key not in entry.also], _compared(entry, record)
        outcomes |= dict.fromkeys(keys, ("", _NOT_RECORDED)) if numbers is None else _outcomes_of(keys, numbers)
    return outcomes


def _outcomes_of(keys: Iterable[str], numbers: Iterable[ComparedNumber]) -> dict[str, tuple[str, str]]:
    """What was found, and the verdict, by key; the released program beside hios."""
    by_key: dict[str, list[ComparedNumber]] = {key: [] for key in keys}
    for number in numbers:
        by_key.get(number.key, []).append(number)
    return {
        key: (
            "; ".join(_by(number, number.found) for number in own if number.found),
            "; ".join(dict.fromkeys(_by(number, _verdict(number)) for number in own)),
        )
        for key, own in by_key.items()
    }


def _by(number: ComparedNumber, text: str) -> str:
    return text if number.by in ("", "hios") else f"{text} ({number.by})"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def main() -> None:
    """Record verdicts if asked to, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, metavar="RESULTS", help="folder of results to record verdicts from")
    given = parser.parse_args()
    try:
        record = record_results(given.record) if given.record else recorded()
    except HiosError as error:
        parser.error(str(error))
    PAGE.write_text(generated(PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")


if __name__ == "__main__":
    main()
