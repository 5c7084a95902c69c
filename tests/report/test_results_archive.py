"""An archive holds what its page was made from, and gives the page again; what is not so is refused."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hios.errors import ArtifactError
from hios.formats import archive as archive_format
from hios.formats.archive import unpacked
from hios.report.archive import write_archive
from tests.cli.commands import invoke, refused, succeed
from tests.report.paper_pages import write_results
from tests.verify.results import write_network

pytestmark = pytest.mark.slow  # pages with figures, made again

pytest.importorskip("altair", reason="needs the extra report")
pytest.importorskip("numba", reason="needs the extra opt")


def _run(*words: object) -> str:
    return succeed(*words).output


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose results have networks, figures of the papers, a page and an archive."""
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        results = write_results(Path("results"), ("hios_fig8", "ios_fig6", "ios_tab2"))
        (results / "config.yaml").write_text(
            "models: {squeezenet: {}, inception_v3: {}}\nalgorithms: {sequential: {}}\n"
        )
        (results / "versions.json").write_text('{"python": "3", "kernel": "6", "hios": "1"}\n')
        (results / "squeezenet" / "weights.safetensors").write_bytes(b"large")
        networks = [results / name for name in ("squeezenet", "inception_v3")]
        options = ("--output", results / "report.html", "--tables", results / "tables")
        _run("report", *networks, *options, "--config", results / "config.yaml", "--figures", results / "figures")
        _run("archive", results / "report.html", "--output", results / "archive.zip")
    return folder


def test_the_page_is_made_again(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere, without the results: the same bytes, and the same tables."""
    archive = tmp_path / "moved.zip"
    shutil.copy(project / "results" / "archive.zip", archive)
    monkeypatch.chdir(tmp_path)
    said = _run("report", archive, "--output", "again/report.html", "--tables", "again/tables")
    assert said == f"again/report.html: the page of {archive}\n"
    page = tmp_path / "again" / "report.html"
    assert page.read_bytes() == (project / "results" / "report.html").read_bytes()
    assert (page.parent / "papers.html").read_bytes() == (project / "results" / "papers.html").read_bytes()
    for table in (project / "results" / "tables").iterdir():
        assert (page.parent / "tables" / table.name).read_bytes() == table.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "moved.zip"]


def test_what_an_archive_holds(project: Path, tmp_path: Path) -> None:
    """All that the page rests on with right hashes, and no weights; unpacked, its links lead to files and it passes."""
    with zipfile.ZipFile(project / "results" / "archive.zip") as archive:
        archive.extractall(tmp_path)
    manifest = json.loads((tmp_path / "archive.json").read_text())
    assert manifest["machine"].keys() == {"processor", "cores", "memory_gb", "system", "python"}
    assert {
        "report.html",
        "papers.html",
        "config.yaml",
        "versions.json",
        "squeezenet/run.json",
        "tables/latency.csv",
    } <= {*manifest["files"]}
    assert not any("weights" in name for name in manifest["files"])
    for line in (tmp_path / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == digest
    text = "".join((tmp_path / name).read_text() for name in ("report.html", "papers.html"))
    links = {link for link in re.findall(r'<a [^>]*href="([^"#]+)"', text) if not link.startswith("data:")}
    assert links
    assert all((tmp_path / link).is_file() for link in links)
    assert ", no problems" in _run("verify", tmp_path)


def test_figures_drawn_later_are_not_on_the_page(project: Path, tmp_path: Path) -> None:
    """The page is about the figures that there were; those drawn since are in the archive alone."""
    moved = tmp_path / "project"
    shutil.copytree(project, moved)
    results = moved / "results"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(moved)
        _run("figures", "ios_fig13", "--output", "results/figures")
        _run("archive", "results/report.html", "--output", "results/archive.zip")
        _run("report", "results/archive.zip", "--output", "again/report.html", "--tables", "tables")
    assert (moved / "again" / "report.html").read_bytes() == (results / "report.html").read_bytes()
    with unpacked(results / "archive.zip") as (folder, manifest):
        assert "figures/ios_fig13.json" in manifest.files
        assert (folder / "figures" / "ios_fig13.svg").is_file()


def test_figures_in_a_folder_of_another_name(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page whose figures lie in a folder that is not called figures is made again, too."""
    shutil.copytree(project, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    Path("results/figures").rename("results/drawn [new]")
    networks = ("results/squeezenet", "results/inception_v3")
    page = ("--output", "results/report.html", "--tables", "results/tables")
    _run("report", *networks, *page, "--figures", "results/drawn [new]")
    _run("archive", "results/report.html", "--output", "results/archive.zip")
    _run("report", "results/archive.zip", "--output", "again/report.html", "--tables", "tables")
    assert Path("again/report.html").read_bytes() == Path("results/report.html").read_bytes()


def test_pages_that_cannot_be_archived(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that does not say how it was made, or was made from what is elsewhere."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report.html").write_text("<html><head></head></html>")
    with pytest.raises(ArtifactError, match=r"report\.html: it does not say how it was made; required: a page by"):
        write_archive(tmp_path / "report.html", tmp_path / "x.zip")
    shutil.copy(project / "results" / "report.html", tmp_path)
    with pytest.raises(ArtifactError, match="made from results/squeezenet, which is not there; run hios archive where"):
        write_archive(tmp_path / "report.html", tmp_path / "x.zip")
    network = write_network(tmp_path / "net", 3)
    (tmp_path / "pages").mkdir()
    _run("report", network, "--output", "pages/report.html", "--tables", "pages")
    with pytest.raises(ArtifactError, match="net; allowed in an archive: what lies in folders beside the page"):
        write_archive(tmp_path / "pages" / "report.html", tmp_path / "x.zip")
    page = (tmp_path / "report.html").read_text()
    (tmp_path / "report.html").write_text(page.replace("results/squeezenet&#34;", "results/\\u0000&#34;"))
    with pytest.raises(ArtifactError, match=r"made from results/\\x00, which is not there"):
        write_archive(tmp_path / "report.html", tmp_path / "x.zip")
    assert not (tmp_path / "x.zip").exists()
    answer = invoke("report", "report.html", "--output", "y", "--tables", "t", "--schedule", "z")
    assert (answer.exit_code, "allowed with an archive: --output, --tables" in answer.output) == (2, True)


def _entry(name: str, mode: int = 0) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def _rewritten(old: Path, new: Path, change: Callable[[dict[str, bytes]], None], *more: zipfile.ZipInfo) -> Path:
    """A copy of an archive with other files, and with entries beside them."""
    with zipfile.ZipFile(old) as archive:
        files = {info.filename: archive.read(info) for info in archive.infolist()}
    change(files)
    with zipfile.ZipFile(new, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        for info in more:
            archive.writestr(info, b"/etc/passwd")
    return new


def _refused(archive: Path, message: str) -> None:
    """It is not unpacked, for this reason."""
    with pytest.raises(ArtifactError, match=message), unpacked(archive):
        pass


def _nothing(files: dict[str, bytes]) -> None:
    pass


def _edited(name: str, old: bytes, new: bytes) -> Callable[[dict[str, bytes]], None]:
    def change(files: dict[str, bytes]) -> None:
        assert old in files[name]
        files[name] = files[name].replace(old, new, 1)

    return change


@pytest.mark.parametrize("name", ["../up", "/etc/up", "a/../../up", "a//up", "C:/up", "a/./up", "..\\up"])
def test_paths_that_lead_out_are_refused(project: Path, tmp_path: Path, name: str) -> None:
    """Nothing is unpacked of an archive with one of them."""
    info = _entry("placeholder")
    info.filename = name
    bad = _rewritten(project / "results" / "archive.zip", tmp_path / "bad.zip", _nothing, info)
    _refused(bad, r"bad\.zip: found the path '.*up'; allowed: names of files below")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.zip"]
    assert not (tmp_path.parent / "up").exists()


def test_links_folders_and_doubles_are_refused(project: Path, tmp_path: Path) -> None:
    """So is what is not listed."""
    good, bad = project / "results" / "archive.zip", tmp_path / "bad.zip"
    for info, message in (
        (_entry("link", stat.S_IFLNK | 0o777), "link: found no plain file; allowed: plain files, no links"),
        (_entry("pipe", stat.S_IFIFO | 0o600), "pipe: found no plain file"),
        (_entry("extra"), r"found extra, which archive\.json does not list; the archive was changed or damaged"),
    ):
        _refused(_rewritten(good, bad, _nothing, info), message)
    with pytest.warns(UserWarning, match="Duplicate name"):
        _rewritten(good, bad, _nothing, _entry("config.yaml"))
    _refused(bad, r"found config\.yaml twice; allowed: once")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            _edited("squeezenet/run.json", b'"seed": 0', b'"seed": 1'),
            r"squeezenet/run\.json: its SHA-256 is not that of",
        ),
        (_edited("config.yaml", b"squeezenet", b"squeeze"), r"config\.yaml: found \d+ bytes; archive\.json lists \d+"),
        (_edited("archive.json", b'"cores": ', b'"cores": 9'), r"SHA256SUMS: not the hashes of archive\.json"),
        (_edited("SHA256SUMS", b"  config", b"  confix"), r"SHA256SUMS: not the hashes of archive\.json"),
        (_edited("archive.json", b'"squeezenet/run.json"', b'"../run.json"'), r"archive\.json: files: found the key "),
        (_edited("archive.json", b"{", b"["), r"archive\.json: .*JSON"),
        (lambda files: files.pop("archive.json"), r"found no archive\.json; required: a zip file by `hios archive`"),
        (lambda files: files.pop("squeezenet/run.json"), r"found no squeezenet/run\.json; the archive was changed"),
    ],
)
def test_changed_archives_are_refused(
    project: Path, tmp_path: Path, change: Callable[[dict[str, bytes]], None], message: str
) -> None:
    """In one line by the command, with no page written; hashes do not prove who made an archive, only what it lists."""
    bad = _rewritten(project / "results" / "archive.zip", tmp_path / "bad.zip", change)
    refusal = refused("report", bad, "--output", tmp_path / "x", "--tables", tmp_path)
    assert refusal.startswith(f"{bad}: ")
    assert re.search(message, refusal), refusal
    assert not (tmp_path / "x").exists()


def test_other_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No zip file, one of something else, a damaged one, and one that would fill the disk."""
    path = tmp_path / "x.zip"
    path.write_text("no zip")
    _refused(path, r"x\.zip: found File is not a zip file; required: a")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive.json", b"0" * 1_000_000)
    monkeypatch.setattr(archive_format, "_MOST_BYTES_OF_A_LIST", 999_999)
    _refused(path, r"archive\.json: found 1000000 bytes; allowed: at m")
    monkeypatch.undo()
    monkeypatch.setattr(archive_format, "_MOST_BYTES", 10)
    _refused(path, "found 1000000 bytes in all; allowed: at most 10")
    monkeypatch.setattr(archive_format, "_MOST_FILES", 0)
    _refused(path, "found 1 files; allowed: at most 0")
