"""Ranges in pyproject.toml, the lock file constraints.txt and the conda environments in envs/ fit together."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.scripts import printed

REPOSITORY = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
LOCKED = {
    str(canonicalize_name(name)): locked
    for name, locked in re.findall(r"^([\w.-]+)==(\S+)$", (REPOSITORY / "constraints.txt").read_text(), re.MULTILINE)
}

#: Versions of Python that pyproject.toml names.
PYTHONS = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))

#: Extras of pyproject.toml that each environment holds beside the dependencies of hios itself.
ENVIRONMENTS = {
    "torch": ["opt", "torch", "onnx", "openvino", "transformers"],
    "tvm": ["torch", "tvm", "onnx"],
    "schedule": ["opt"],
    "report": ["report"],
}


def _requirements(*extras: str) -> list[Requirement]:
    """The dependencies of hios and of these extras; each name once."""
    texts = sum((PROJECT["optional-dependencies"][extra] for extra in extras), PROJECT["dependencies"])
    return list({requirement.name: requirement for requirement in map(Requirement, texts)}.values())


#: Extras that `all` leaves out, and `.ci/oldest` with it.
NOT_IN_ALL = {"all", "dev", "slurm"}
EVERYTHING = _requirements(*(extra for extra in PROJECT["optional-dependencies"] if extra != "all"))


def test_every_environment_is_used() -> None:
    """envs/ holds these environments, and the rules use each of them and no other."""
    rules = "".join(file.read_text() for file in (REPOSITORY / "workflow" / "rules").glob("*.smk"))
    assert {file.stem for file in (REPOSITORY / "envs").iterdir()} == set(ENVIRONMENTS)
    assert set(re.findall(r'"\.\./\.\./envs/(\w+)\.yaml"', rules)) == set(ENVIRONMENTS)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_environment(name: str) -> None:
    """An environment has the locked versions of what its extras need, all of them and no more."""
    environment = yaml.safe_load((REPOSITORY / "envs" / f"{name}.yaml").read_text())
    expected = [
        f"{requirement.name}=={LOCKED[_name(requirement)]}" for requirement in _requirements(*ENVIRONMENTS[name])
    ]
    assert environment["channels"] == ["conda-forge", "nodefaults"]
    assert environment["dependencies"] == [f"python {PROJECT['requires-python']}", "pip", {"pip": expected}]


@pytest.mark.parametrize("requirement", EVERYTHING, ids=lambda requirement: requirement.name)
def test_lock_is_within_the_ranges(requirement: Requirement) -> None:
    """What `make setup` installs is a version that pyproject.toml allows."""
    assert LOCKED[_name(requirement)] in requirement.specifier


def test_all_has_every_extra_for_users() -> None:
    """`pip install 'hios[all]'` installs every extra except the development tools and those for clusters."""
    extras = set(PROJECT["optional-dependencies"]) - NOT_IN_ALL
    assert Requirement(PROJECT["optional-dependencies"]["all"][0]).extras == extras


@pytest.mark.parametrize("python", PYTHONS)
def test_lock_admits_every_python(python: str) -> None:
    """Every version of the lock installs on the Pythons that pyproject.toml names, as it says itself."""
    known = [name for name, locked in LOCKED.items() if _installed(name) == locked]
    described = {name: metadata(name) for name in known}
    wanting = {name: own["Requires-Python"] for name, own in described.items() if "Requires-Python" in own}
    assert {name: pythons for name, pythons in wanting.items() if f"{python}.0" not in SpecifierSet(pythons)} == {}
    assert len(known) > len(EVERYTHING) / 2


@pytest.mark.parametrize("python", PYTHONS)
def test_lock_is_complete(python: str) -> None:
    """The lock has everything that the dependencies bring, and theirs, as far as they are installed."""
    version_of = {"python_version": python, "python_full_version": f"{python}.0"}
    others = [name for name in map(_name, EVERYTHING) if _installed(name) not in (None, LOCKED[name])]
    if others:
        pytest.skip(f"not the environment of `make setup`: other versions of {', '.join(others)}")
    waiting, reached = [(requirement.name, requirement.extras) for requirement in EVERYTHING], set[str]()
    while waiting:
        name, extras = waiting.pop()
        name = canonicalize_name(name)
        needs = map(Requirement, [] if name in reached or not _installed(name) else requires(name) or [])
        reached.update([name] if _installed(name) else [])
        waiting += [
            (need.name, need.extras)
            for need in needs
            if not need.marker or any(need.marker.evaluate({**version_of, "extra": extra}) for extra in ("", *extras))
        ]
    brought_by_cuda = {name for name in reached if re.match(r"nvidia-|cuda-|triton", name)}  # torch pins its own
    assert reached - brought_by_cuda - set(LOCKED) == set()


def _name(requirement: Requirement) -> str:
    return canonicalize_name(requirement.name)


def _installed(name: str) -> str | None:
    """The installed version without the label of a build such as ``+cpu``; None where there is none."""
    try:
        return Version(version(name)).public
    except PackageNotFoundError:
        return None


def test_minimum_versions() -> None:
    """Constraints for the oldest supported versions name every dependency of users, at the lower bound of its range."""
    output = printed(REPOSITORY / ".ci" / "minimum_versions.py")
    oldest = dict(line.split("==") for line in output.splitlines())
    users = _requirements(*(extra for extra in PROJECT["optional-dependencies"] if extra not in NOT_IN_ALL))
    assert set(oldest) == {requirement.name for requirement in users}
    for requirement in users:
        assert oldest[requirement.name] in requirement.specifier
        assert Version(oldest[requirement.name]) <= Version(LOCKED[_name(requirement)])


def _made(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """What `make setup` says in a folder with the Makefile and the lock."""
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, folder)
    base = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    return subprocess.run(
        ["make", f"PYTHON={base}", "setup"],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_setup_names_what_debian_lacks(tmp_path: Path) -> None:
    """The package without which Debian's Python makes no environments, before anything is made."""
    (tmp_path / "as_on_debian").mkdir()
    (tmp_path / "as_on_debian" / "ensurepip.py").write_text("raise ModuleNotFoundError('ensurepip')")
    done = _made(tmp_path, PYTHONPATH=str(tmp_path / "as_on_debian"))
    assert done.returncode != 0
    assert "apt-get install python3-venv" in done.stderr
    assert not (tmp_path / ".venv").exists()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_setup_says_why_pip_failed(tmp_path: Path) -> None:
    """What pip said last is printed, and the next call tries again."""
    done = _made(tmp_path, PYTHONPATH="", PIP_NO_INDEX="1", PIP_FIND_LINKS="")
    assert done.returncode != 0
    assert "No matching distribution found for hatchling" in done.stderr
    assert not (tmp_path / ".venv" / "installed").exists()
