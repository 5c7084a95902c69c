"""What has to agree before a release."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

import hios
from tests.scripts import load_script

ROOT = Path(hios.__file__).resolve().parents[1]


def test_versions_agree() -> None:
    """pyproject.toml, hios.__version__, CITATION.cff and CHANGELOG.md agree on version and date."""
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    newest = re.search(r"^## \[(.+)\] - (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert {stated, cited["version"], newest[1]} == {hios.__version__}
    assert newest[2] == str(cited.get("date-released", "unreleased"))


def test_continuous_integration_runs_what_people_run() -> None:
    """The workflow of GitHub runs .ci/run, on the oldest Python that pyproject.toml allows among others."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["ci"]
    assert any(step.get("run", "").split()[-1:] == [".ci/run"] for step in job["steps"])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f">={job['strategy']['matrix']['python'][0]}" == project["requires-python"]


def test_catalog() -> None:
    """The entry for the Snakemake workflow catalog has what the catalog asks for, and config/README.md is there."""
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text(encoding="utf-8"))["usage"]
    assert {"conda", "report"} <= usage["software-stack-deployment"].keys()
    assert "config.yaml" in (ROOT / "config" / "README.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8").lower()
    assert "snakemake" in readme
    assert "workflow" in readme


def test_gallery() -> None:
    """docs/gallery.md has every archive with the command that makes it; together they stay small."""
    generate = load_script("docs/generate_gallery.py")
    archives = {archive.stem: archive for archive in (ROOT / "docs" / "gallery").glob("*.zip")}
    assert sorted(archives) == sorted(generate.NAMES)
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    for name in generate.NAMES:
        assert f"`python docs/generate_gallery.py {name}`" in text
        assert f'"gallery/{name}/report.html"' in text
        assert (ROOT / generate.CONFIGURATIONS / f"{name}.yaml").is_file()
    assert sum(archive.stat().st_size for archive in archives.values()) < 1_500_000
