"""The notebooks in examples/: they run, and their outputs are in the repository."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
#: What makes the notebooks quick: small images, few runs, a small network, little measuring.
QUICK = {
    "HIOS_EXAMPLE_IMAGE_SIZE": "64",
    "HIOS_EXAMPLE_RUNS": "6",
    "HIOS_EXAMPLE_BUDGET_S": "0",
    "HIOS_EXAMPLE_GRAPHS": "3",
    "HIOS_EXAMPLE_NETWORK": "squeezenet",
}

nbformat = pytest.importorskip("nbformat", reason="needs the extra examples")
Config = pytest.importorskip("traitlets.config", reason="needs the extra examples").Config
nbclient = pytest.importorskip("nbclient", reason="needs the extra examples")
pytest.importorskip("altair", reason="needs the extra examples")


def _read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def _code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _kinds(cells: list[Any]) -> list[set[str]]:
    """MIME types of the outputs of every cell, with ``stdout`` and ``stderr`` for what it printed."""
    return [
        {kind for output in cell.outputs for kind in ([output.name] if "name" in output else output.get("data", {}))}
        for cell in cells
    ]


def test_there_are_two() -> None:
    """The notebooks that the README names, and no other."""
    assert [path.name for path in NOTEBOOKS] == ["model_to_schedule.ipynb", "own_algorithm.ipynb"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"examples/{path.name}" in readme for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_in_the_repository(path: Path) -> None:
    """Every cell was run once, from the first to the last, without an error or a warning."""
    cells = _code(_read(path))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert {output.output_type for cell in cells for output in cell.outputs} <= {
        "stream",
        "display_data",
        "execute_result",
    }
    assert "stderr" not in set().union(*_kinds(cells))
    assert sum("image/png" in kinds for kinds in _kinds(cells)) >= 3
    assert path.stat().st_size < 500_000
    assert "site-packages" not in path.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run again with small sizes, a notebook has outputs of the same kinds and writes no file."""
    for name, value in {**QUICK, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}.items():
        monkeypatch.setenv(name, value)
    notebook, before = _read(path), _kinds(_code(_read(path)))
    with tempfile.TemporaryDirectory() as sockets:  # another process could take a port before the kernel does
        client = nbclient.NotebookClient(
            notebook,
            timeout=1800,
            startup_timeout=600,
            resources={"metadata": {"path": str(tmp_path)}},
            config=Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}}),
        )
        client.execute()
    # On a machine that does other work too, hios warns that times are not to be compared.
    assert [kinds - {"stderr"} for kinds in _kinds(_code(notebook))] == before
    assert list(tmp_path.iterdir()) == []
