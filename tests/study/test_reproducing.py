"""docs/reproducing.md is what registry, published numbers and recorded verdicts make of it; other documents agree."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from hios.errors import HiosError
from hios.study import registry
from hios.study.published import Published, number, published
from tests.scripts import ROOT, load_script
from tests.study.drawn_figures import draw, of_sessions
from tests.study.every_session import write_sessions


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    """The script that generates the page."""
    return load_script("docs/generate_figures.py")


def _page(generate: ModuleType, record: object) -> str:
    """The page with what is recorded."""
    page: str = generate.generated(generate.PAGE.read_text(encoding="utf-8"), record)
    return page


def _of_figure(page: str, name: str) -> str:
    """The part of the page on the numbers of a figure."""
    return page.split(f"#### {name}\n")[1].split("####")[0]


def test_page_is_generated(generate: ModuleType) -> None:
    """The page has every figure, every published number and every recorded verdict as they are now."""
    text = generate.PAGE.read_text(encoding="utf-8")
    assert text == generate.generated(text, generate.recorded()), "out of date: run python docs/generate_figures.py"
    assert all(f"`snakemake {name}`" in text for name in registry.ids())


def test_parts_are_looked_for(generate: ModuleType) -> None:
    """A page without a part is refused, and one whose part is damaged is repaired."""
    text, record = generate.PAGE.read_text(encoding="utf-8"), generate.recorded()
    with pytest.raises(ValueError, match="generated part marks: found 0; allowed: 1"):
        generate.generated(text.replace("<!-- generated: marks -->", ""), record)
    assert generate.generated(text.replace("`snakemake hios_fig9`", "`snakemake hios_fig0`"), record) == text


def _line(text: str, start: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith(start)]
    return line


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some figures of every kind, drawn from sessions that nobody measured, and the configuration."""
    pytest.importorskip("altair", reason="needs the extra report")
    folder = tmp_path_factory.mktemp("recorded") / "results"
    files = write_sessions(folder, tmp_path_factory.mktemp("other"))
    for name in ("hios_fig1", "hios_fig10", "ios_fig6", "ios_tab2", "ios_fig8"):
        draw(name, of_sessions(name, files), folder / "figures")
    (folder / "config.yaml").write_text("study:\n  scale: quick\n")
    return folder


def test_verdicts_are_recorded(generate: ModuleType, results: Path, tmp_path: Path) -> None:
    """The file has the machine and what its figures found; the page shows both, and which figures are not recorded."""
    file = tmp_path / "verdicts.yaml"
    record = generate.record_results(results, file)
    assert generate.recorded(file) == record
    assert list(record.figures) == ["hios_fig1", "hios_fig10", "ios_fig6"], "what sessions decide, and nothing else"
    assert record.figures["hios_fig1"] == record.figures["ios_fig6"] == ()
    assert (record.hardware, record.cores, record.measured, record.scale) == ("none", 2, ("2026-01-01",), "quick")
    page = _page(generate, record)
    machine = page.split("<!-- generated: machine -->")[1].split("<!-- end -->")[0].replace("\n", " ")
    assert "with `scale: quick`, measured on none, 2 cores, 2026-01-01" in machine
    drawn = json.loads((results / "figures" / "hios_fig10.json").read_text())
    cell = _line(page, "| `snakemake hios_fig10` |").split(" | ")[-1]
    for (verdict, by), count in Counter((entry["verdict"], entry["by"]) for entry in drawn["comparisons"]).items():
        assert f"{verdict}{'' if by == 'hios' else f' ({by})'}: {count}" in cell
    assert _line(page, "| `snakemake hios_fig9` |").endswith("| not recorded |")
    assert _line(page, "| `snakemake ios_tab2` |").endswith("| agrees: 1, differs: 1 |")
    (entry,) = [row for row in drawn["comparisons"] if row["key"] == "hios_fig10.lp" and row["by"] == "hios"]
    row = _line(_of_figure(page, "hios_fig10"), f"| {entry['what']}")
    assert entry["found"] in _cell(row, 7)
    assert _cell(row, 8).startswith(entry["verdict"])


def test_what_a_folder_lacks_is_kept(generate: ModuleType, results: Path, tmp_path: Path) -> None:
    """Another folder of the same scale adds its figures to those recorded; one of another scale replaces them."""
    file, copy = tmp_path / "verdicts.yaml", tmp_path / "results"
    first = generate.record_results(results, file)
    shutil.copytree(results, copy)
    (copy / "figures" / "hios_fig10.json").unlink()
    assert generate.record_results(copy, file) == first
    (copy / "config.yaml").write_text("study:\n  scale: full\n")
    assert list(generate.record_results(copy, file).figures) == ["hios_fig1", "ios_fig6"]


def test_verdicts_follow_from_what_is_recorded(generate: ModuleType) -> None:
    """The file has numbers alone: a bound that is broken differs, and figure 9 is not that of the ablation."""
    record = generate.recorded()
    claim = next(own for own in record.figures["hios_fig7"] if own.key == "hios_fig7.mr_over_sequential")
    for found, verdict in ((1.4, "agrees"), (3.6, "differs")):
        changed = {**record.figures, "hios_fig7": (msgspec.structs.replace(claim, found=found),)}
        page = _page(generate, msgspec.structs.replace(record, figures=changed))
        assert _cell(_line(_of_figure(page, "hios_fig7"), "| speedup of HIOS-MR over seq"), 8) == verdict
        assert "random layers" not in _of_figure(page, "hios_fig9")
    assert "agrees without randwire" in page


def test_without_a_record(generate: ModuleType) -> None:
    """Figures that depend on sessions are not recorded, each by name; what the code decides has its verdicts."""
    page = _page(generate, None)
    for own in registry.figures():
        line = _line(page, f"| `snakemake {own.id}` |")
        assert line.endswith("| not recorded |") == bool(own.sessions and own.published and own.compare([]))
    assert "No verdict of a figure that depends on sessions is recorded" in page.replace("\n", " ")


def test_wrong_results_are_not_recorded(generate: ModuleType, results: Path, tmp_path: Path) -> None:
    """A folder without figures, and one whose configuration is missing or does not state the scale."""
    target = tmp_path / "verdicts.yaml"
    with pytest.raises(HiosError, match=r"found no figures/ID.json; required: results of snakemake figures"):
        generate.record_results(tmp_path, target)
    copy = tmp_path / "results"
    shutil.copytree(results, copy)
    (copy / "config.yaml").write_text("study: {}\n")
    with pytest.raises(HiosError, match=r"config.yaml: study.scale is missing"):
        generate.record_results(copy, target)
    (copy / "config.yaml").unlink()
    with pytest.raises(HiosError, match=r"config.yaml: missing; required for the scale"):
        generate.record_results(copy, target)
    assert not target.exists()


def _cell(row: str, place: int) -> str:
    return row.split("|")[place].strip()


def _statement(entry: Published) -> str:
    """A statement as docs/algorithms.md has it: a range, a fall, or one number."""
    if entry.cases:
        first, *_, last = (f"{value:.2f}" for value in entry.cases.values())
        return f"{first} down to {last}" if float(first) > float(last) else f"{float(first):g} to {float(last):g}"
    if entry.value is not None:
        return f"{entry.value:g}"
    return entry.text


#: Rows of the table of HIOS's simulation, by what they say, and the statement that they repeat.
ROWS = {
    "2 to 12 GPUs": {
        "HIOS-LP over sequential": "hios_fig7.lp_over_sequential",
        "HIOS-LP over IOS": "hios_fig7.lp_over_ios",
        "HIOS-MR over sequential": "hios_fig7.mr_over_sequential",
    },
    "400 to 600 edges": {
        "HIOS-LP over sequential": "hios_fig9.lp_over_sequential",
        "HIOS-LP over IOS": "hios_fig9.lp_over_ios",
    },
    "6 to 22 layers": {
        "sequential, ms": "hios_fig10.sequential",
        "IOS, ms": "hios_fig10.ios",
        "HIOS-LP, ms": "hios_fig10.lp",
        "HIOS-MR, ms": "hios_fig10.mr",
    },
    "transfers 0.4 to 1.2 of the time": {
        "HIOS-LP over sequential": "hios_fig11.lp_over_sequential",
        "HIOS-LP over IOS": "hios_fig11.lp_over_ios",
    },
    "100 to 400 operators": {
        "HIOS-LP over sequential": "hios_fig8.lp_over_sequential",
        "HIOS-LP over IOS": "hios_fig8.lp_over_ios",
        "HIOS-LP over HIOS-MR": "hios_fig8.lp_over_mr",
        "HIOS-LP over its inter-GPU part": "hios_fig8.lp_over_inter",
    },
}


def test_simulation_in_the_documents() -> None:
    """The column "paper" of docs/algorithms.md repeats the published numbers."""
    text = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    table = text.split("| what varies | | paper | hios |\n")[1].split("\n\n")[0].splitlines()[1:]
    cells: dict[str, dict[str, str]] = {}
    varied = ""
    for row in table:
        varied = _cell(row, 1) or varied
        cells.setdefault(varied, {})[_cell(row, 2)] = _cell(row, 3)
    cuts = cells["100 to 400 operators"].pop("what groups cut of LP and MR")
    expected = {
        varied: {
            what: _statement(published(key.partition(".")[0])[key.partition(".")[2]]) for what, key in rows.items()
        }
        for varied, rows in ROWS.items()
    }
    assert cells == expected
    lp, mr = (published("hios_fig8")[f"groups_cut_{name}"] for name in ("lp", "mr"))
    assert cuts == f"{lp.text} %, {mr.text} %"


def test_ablation_in_the_documents() -> None:
    """The last row of the ablation repeats figure 9 at 400 edges."""
    text = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    lp, mr = (f"{number(f'hios_fig9.{name}_over_sequential', '400'):.2f}" for name in ("lp", "mr"))
    assert f"| published (figure 9, 400 edges) | {lp} | {mr} | {lp} | {mr} |\n" in text
