"""The papers' part of the page: every statement, every figure, and nothing that its data do not say."""

from __future__ import annotations

import html
import json
import re
import shutil
from pathlib import Path

import pytest

from hios.errors import ArtifactError
from hios.files import artifacts
from hios.formats.archive import PageOrigin
from hios.formats.study import FigureFile
from hios.report import write_report
from hios.report.archive import write_archive, write_archived_page
from hios.report.results import Provenance
from hios.study import registry
from hios.study.page_part import papers_part
from tests.cli.commands import refused, succeed
from tests.report.paper_pages import CARD, DRAWN, write_page, write_results
from tests.study.drawn_figures import draw

pytest.importorskip("altair", reason="needs the extra report")
pytest.importorskip("numba", reason="needs the extra opt")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of results with figures and page; tests leave it as they found it."""
    folder = write_results(tmp_path_factory.mktemp("papers") / "results")
    write_page(folder)
    return folder


@pytest.fixture(scope="module")
def page(results: Path) -> str:
    """The page of the papers as text."""
    return (results / "papers.html").read_text(encoding="utf-8")


def _record(results: Path, name: str) -> FigureFile:
    return artifacts.load(results / "figures" / f"{name}.json", FigureFile)


def _part(page: str, name: str) -> str:
    """The article of a figure."""
    return page.split(f'<article class="paper" id="{name}">')[1].split("</article>")[0]


def _said(page: str, name: str) -> str:
    """The rows of a figure in the table of statements, as readers see them."""
    return html.unescape(page.split(f'<tbody id="said-{name}">')[1].split("</tbody>")[0])


def test_every_figure_and_statement_is_there(page: str) -> None:
    """All ids of the registry, drawn ones first, each published number with its hardware, source and tolerance."""
    shown = re.findall(r'<article class="paper" id="(\w+)">', page)
    papers = list(registry.PAPERS)
    assert shown == sorted(registry.ids(), key=lambda name: (papers.index(name.partition("_")[0]), name not in DRAWN))
    for figure in registry.figures():
        rows = _said(page, figure.id)
        for entry in figure.published.values():
            assert f"{entry.what}: <b>{entry.text}</b>" in rows
            assert f"<small>{entry.hardware}; " in rows
            assert f"tolerance {100 * entry.tolerance:g} %" in rows


@pytest.mark.parametrize("name", DRAWN)
def test_what_was_found_stands_beside_what_was_published(results: Path, page: str, name: str) -> None:
    """Numbers, verdicts and reasons are those of the figure's file."""
    record, rows = _record(results, name), _said(page, name)
    verdicts = re.findall(r'<span class="verdict [\w-]+">([\w ]+)</span>', rows)
    elsewhere = [entry for entry in record.comparisons if not entry.found]
    here = [entry.verdict for entry in record.comparisons if entry.found]
    assert verdicts == here + list(dict.fromkeys(entry.verdict for entry in elsewhere))
    for entry in record.comparisons:
        assert not entry.absent or f"<small>without {', '.join(entry.absent)}</small>" in rows
    assert rows.count("<li>") == len(elsewhere)
    for entry in record.comparisons:
        assert not entry.found or f"<td>{entry.found}" in rows
    assert record.reason in rows
    assert record.finding in rows


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_says_what_it_rests_on(results: Path, page: str, name: str) -> None:
    """Drawing, caption, table, command, time, files, data and commit stand under it."""
    record, part = _record(results, name), html.unescape(_part(page, name))
    drawing = (results / "figures" / f"{name}.svg").read_text(encoding="utf-8")
    is_chart = registry.figure(name).chart is not None
    assert (f'<svg class="chart" id="{name}-chart"' in part) == is_chart
    assert (drawing.split(">", 1)[1] in _part(page, name)) == is_chart
    assert record.caption in part
    assert part.count("<tr>") == len(record.rows) + 1
    assert f"<code>snakemake --cores all {name}</code>" in part
    assert record.origin is not None
    assert f"{record.origin.drawing_s:.1f} s to draw" in part
    assert (record.origin.code or "an installed package") in part
    files = re.findall(r'<a href="([^#"]+)">(\w+)</a>', part)[:5]
    assert [text for _, text in files] == ["CSV", "LaTeX", "SVG", "PDF", "JSON"]
    assert all(f'<a href="{Path(path).relative_to(results)}">' in part for path in record.data)


def test_links_lead_to_files_and_places(results: Path, page: str) -> None:
    """Whatever the page links to is in it, or lies beside it; so do the report, and the link there to this page."""
    links = set(re.findall(r'<a [^>]*href="([^"]+)"', page))
    places = set(re.findall(r' id="([^"]+)"', page))
    beside = {link for link in links if not link.startswith(("#", "data:"))}
    assert {link[1:] for link in links if link.startswith("#")} <= places
    assert len(beside) > 5 * len(DRAWN)
    assert all((results / link).is_file() for link in beside)
    assert "report.html" in beside
    assert '<a href="papers.html">The papers</a>' in (results / "report.html").read_text(encoding="utf-8")


def test_what_has_no_result_is_apart(page: str) -> None:
    """Statements without a result stand below those with one, in a part that names their figures; so do cards."""
    said = page.split('<section id="papers"')[1].split("</section>")[0]
    drawn = page.split('<section id="figures"')[1].split("</section>")[0]
    for part, anchor, head in (
        (said, '<tbody id="said-{}">', "Published, no result in this run"),
        (drawn, '<article class="paper" id="{}">', "Not drawn in this run"),
    ):
        of_hios = part.split("<h3>HIOS ")[1].split("<h3>")[0]
        above, below = of_hios.split('<details class="folded" open>\n  <summary><b>' + head)
        numbers = below.split("</summary>")[0]
        for figure in registry.figures():
            if figure.paper.startswith("HIOS "):
                place = anchor.format(figure.id)
                assert (place in above, place in below) == (figure.id in DRAWN, figure.id not in DRAWN)
                assert (figure.number in re.findall(r"Fig\. \d+", numbers)) == (figure.id not in DRAWN)


def test_what_is_not_drawn_is_a_card(page: str) -> None:
    """It says why, what it needs, the command, and the numbers as published; nothing is drawn like a measurement."""
    for name in (CARD, "opara_fig5", "hios_fig12"):
        figure, part = registry.figure(name), html.unescape(_part(page, name))
        assert "<svg" not in part
        assert (f"Not drawn: {figure.missing}." if figure.missing else "Not drawn in this run; snakemake") in part
        assert (figure.command or f"snakemake --cores all {name}") in part
        assert all(entry.text in part for entry in figure.published.values())
        assert set(re.findall(r'<span class="verdict [\w-]+">([\w ]+)</span>', _said(page, name))) <= {
            "not on this machine",
            "not compared",
        }


def test_verdicts_are_counted(results: Path, page: str) -> None:
    """The summary counts every statement once, by the papers' equations, and those about the simulation twice."""
    sentences = papers_part(results / "figures", results / "report.html")["verdicts"]
    report = html.unescape((results / "report.html").read_text(encoding="utf-8"))
    assert all(sentence in part for part in (html.unescape(page), report) for sentence in sentences)
    total, *counts = map(int, re.findall(r"\d+", sentences[0]))
    assert total == sum(counts) == len({key for figure in registry.figures() for key in figure.published})
    entries = [entry for name in DRAWN for entry in _record(results, name).comparisons if entry.by == "hios"]
    assert counts[0] == sum(entry.verdict == "agrees" for entry in entries)
    assert f"Of the {len(_record(results, 'hios_fig8').comparisons) // 2} statements about HIOS's simul" in sentences[1]


def test_changed_data_change_the_page(results: Path, tmp_path: Path) -> None:
    """Sequential latencies of the simulation that are 10 % longer change what is said of them, and no other figure."""
    other = tmp_path / "results"
    shutil.copytree(results, other)
    (path,) = (other / "study" / "simulation").glob("m4-n200-e400-l14-*.json")  # HIOS's setting, of figure 8 too
    document = json.loads(path.read_text())
    for instance in document["instances"]:
        instance["latency_ms"]["sequential"] *= 1.1
    path.write_text(json.dumps(document))
    draw("hios_fig8", [path], other / "figures")
    before, after = ((folder / "papers.html").read_text() for folder in (results, write_page(other).parent))
    changed = {name for name in registry.ids() if _said(before, name) != _said(after, name)}
    assert changed == {"hios_fig8"}
    (one, new) = (_record(folder, "hios_fig8") for folder in (results, other))
    assert {entry.found for entry in one.comparisons}.isdisjoint(
        entry.found for entry in new.comparisons if entry.by == "hios" and "sequential" in entry.key
    )


def test_page_of_all_figures_by_command(results: Path, tmp_path: Path) -> None:
    """`hios figures --page` writes what `hios report` would, of all figures that the folder has, and says where."""
    folder = tmp_path / "results"
    shutil.copytree(results / "figures", folder / "figures")
    (folder / "papers.html").write_text("of fewer figures")
    said = succeed("figures", "--page", "--results", folder).output
    assert said == f"The page of the figures is {folder / 'papers.html'}\n"
    text = (folder / "papers.html").read_text(encoding="utf-8")
    assert all(_said(text, name) == _said((results / "papers.html").read_text("utf-8"), name) for name in DRAWN)
    assert '<a href="report.html">The report</a>' in text
    message = refused("figures", "--page", "--results", tmp_path)
    assert message.startswith(f"{tmp_path / 'figures'}: found no figure; required: ")


def test_pages_under_other_names_have_papers_of_their_own(results: Path, tmp_path: Path) -> None:
    """Beside report.html, by hand and from an archive, which has the page's own; those of report.html stay."""
    folder = tmp_path / "results"
    shutil.copytree(results, folder)
    (folder / "papers.html").write_text("of report.html")
    networks, figures, page = [folder / "squeezenet"], folder / "figures", folder / "again.html"
    made = Provenance(PageOrigin("hios report", (str(networks[0]),), figures=str(figures), shown=tuple(DRAWN)))
    write_report(networks, page, folder / "tables", provenance=made, papers=papers_part(figures, page, shown=DRAWN))
    manifest = write_archive(page, tmp_path / "archive.zip")
    assert {name for name in manifest.files if name.endswith(".html")} == {"again.html", "again-papers.html"}
    write_archived_page(tmp_path / "archive.zip", folder / "third.html", folder / "tables", papers_part)
    for name in ("again", "third"):
        assert f'<a href="{name}-papers.html">' in (folder / f"{name}.html").read_text()
        assert f'<a href="{name}.html">' in (folder / f"{name}-papers.html").read_text()
    assert (folder / "papers.html").read_text() == "of report.html"


@pytest.mark.parametrize(
    ("drawing", "found"),
    [
        ("<svg {0}></svg><script>alert(1)</script>", "junk after document element"),
        ("<svg {0}><script>alert(1)</script></svg>", "the element script"),
        ("<svg {0}><foreignObject/></svg>", "the element foreignObject"),
        ('<svg {0} onload="alert(1)"/>', "the attribute onload of svg"),
        ('<svg {0}><g ONCLICK="alert(1)"/></svg>', "the attribute ONCLICK of g"),
        ('<svg {0} xmlns:x="http://www.w3.org/1999/xlink"><g x:href="http://a"/></svg>', "the attribute {{http"),
        ('<svg {0}><g style="background: url(http://a)"/></svg>', "the attribute style of g"),
        ('<svg {0}><g fill="url(http://a)"/></svg>', "the attribute fill of g"),
        ('<svg {0}><g fill="URL(http://a)"/></svg>', "the attribute fill of g"),
        ('<svg {0}><g fill="u\\72l(http://a)"/></svg>', "the attribute fill of g"),
        ("<svg {0}><!-- --><g/></svg>", "a comment, section or instruction"),
        ("<svg {0}><?x ><script>alert(1)</script>?></svg>", "a comment, section or instruction"),
        ("<svg {0}><![CDATA[<script>]]></svg>", "a comment, section or instruction"),
        ("<p>text</p>", "the element p"),
    ],
)
def test_drawings_of_others_can_run_no_code(drawing: str, found: str, results: Path, tmp_path: Path) -> None:
    """A drawing, which may be from an archive of others, is nothing but one, or it is refused."""
    shutil.copytree(results / "figures", tmp_path / "figures")
    papers_part(tmp_path / "figures", tmp_path / "report.html")
    picture = tmp_path / "figures" / f"{DRAWN[0]}.svg"
    picture.write_text(drawing.format('xmlns="http://www.w3.org/2000/svg"'), encoding="utf-8")
    with pytest.raises(ArtifactError, match=re.escape(f"{picture}: found {found.format()}")):
        papers_part(tmp_path / "figures", tmp_path / "report.html")


def test_without_figures_the_page_says_nothing_of_papers(results: Path, tmp_path: Path) -> None:
    """No page, no link to one, no sentence."""
    write_report([results / "squeezenet"], tmp_path / "report.html", tmp_path / "tables")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not any(word in text for word in ("papers.html", 'id="figures"', "statements that the papers"))
    assert not (tmp_path / "papers.html").exists()


def test_folders_without_figures_are_refused(results: Path, tmp_path: Path) -> None:
    """In one line, by the command too; so is a figure without its drawing. Nothing is written."""
    with pytest.raises(ArtifactError, match=r"found no figure; required: ID\.json of one at least, by `snakemake ID`"):
        papers_part(tmp_path, tmp_path / "report.html")
    shutil.copy(results / "figures" / "ios_tab2.json", tmp_path)
    arguments = ["report", str(results / "squeezenet"), "--output", str(tmp_path / "page.html")]
    for why in ("No such file or directory", "it is not UTF-8"):
        message = refused(*arguments, "--tables", tmp_path / "t", "--figures", tmp_path)
        assert message == f"{tmp_path}/ios_tab2.svg: cannot be read: {why}; draw the figure again"
        (tmp_path / "ios_tab2.svg").write_bytes(b"\xff")
    assert not (tmp_path / "page.html").exists()
