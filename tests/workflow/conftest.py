"""A checkout of its own for Snakemake, with a stand-in for `hios` that only writes files."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from hios.study import registry
from tests.workflow import snakemake_server
from tests.workflow.networks import SOURCE

REPOSITORY = Path(__file__).resolve().parents[2]

#: Two networks, two algorithms, one of them for one device only: 3 schedules a network.
CONFIG: dict[str, Any] = {
    "models": {"alpha": {"image_size": 64}, "beta": {"image_size": 64}},
    "devices": [1, 2],
    "algorithms": {"sequential": {}, "hios-lp": {"window": 2}},
    "study": {"sessions": []},
}

#: What `python -m hios` is here: it writes what the options name, keeps a journal, and fails on demand.
STAND_IN = """
import json, os, sys, time
from pathlib import Path

began = time.monotonic()
words = sys.argv[1:]
options = {word: words[place + 1] for place, word in enumerate(words[:-1]) if word.startswith("--")}
step, _, megabytes = os.environ.get("STAND_IN_TAKES", "").partition(" ")
taken = b"x" * (int(megabytes) << 20) if words[0] == step else b""
step, _, file = os.environ.get("STAND_IN_WAITS", "").partition(" ")
if words[0] == step:
    Path(file + ".awaited").touch()
while words[0] == step and not Path(file).exists():
    time.sleep(0.05)
if words[0] == os.environ.get("STAND_IN_FAILS"):
    sys.exit(f"Error: {words[0]} was told to fail")
print("progress of", words[0])
written = [Path(options[option]) for option in ("--output", "--weights", "--auto") if option in options]
if "--tables" in options:
    names = ("latency.csv", "operators.csv", "latency.tex", "operators.tex")
    written += [Path(options["--tables"]) / name for name in names]
if "--traces" in options:
    written += [Path(options["--traces"]) / Path(word).name for word in words if "/schedules/" in word]
if words[0] == "figures":  # the output is a folder
    written = [Path(options["--output"]) / f"{words[1]}.{ending}" for ending in ("csv", "tex", "svg", "pdf", "json")]
if "--setting" in options:  # so it is here, with a file for each setting
    given = [word for place, word in enumerate(words) if words[place - 1] == "--setting"]
    settings = [dict(part.split("=") for part in text.split(",")) for text in given]
    template = "m{devices}-n{operators}-e{edges}-l{layers}-p{p:g}"
    names = [template.format(**{**setting, "p": float(setting["p"])}) for setting in settings]
    written = [Path(options["--output"]) / f"{name}.json" for name in names]
for path in written:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("<p>" + " ".join(words) + "</p>")
with Path(os.environ["STAND_IN_JOURNAL"]).open("a") as journal:
    journal.write(json.dumps({"words": words, "began": began, "ended": time.monotonic()}) + "\\n")
"""


def merged(value: Any, changes: Any) -> Any:
    """The value with changes merged in; None takes a key out."""
    if not isinstance(value, dict) or not isinstance(changes, dict):
        return changes
    both = {key: merged(value.get(key), changes.get(key, value.get(key))) for key in {**value, **changes}}
    return {key: item for key, item in both.items() if item is not None}


@dataclass(frozen=True)
class Checkout:
    """A copy of the pipeline that tests may run and change."""

    path: Path

    def snakemake(self, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run Snakemake; stdout and stderr come back together."""
        return snakemake_server.run([*map(str, arguments)], self.path, self.environment(**environment))

    def succeed(self, *arguments: str | Path, **environment: str) -> str:
        """What a run of Snakemake printed that has to succeed, on two cores unless arguments say otherwise."""
        cores = () if {"-n", "--cores", "--report"} & {*arguments} else ("--cores", "2")
        answer = self.snakemake(*cores, *arguments, **environment)
        assert answer.returncode == 0, answer.stdout
        return answer.stdout

    def environment(self, **changes: str) -> dict[str, str]:
        """Environment of Snakemake."""
        # Coverage would trace all of Snakemake, and the stand-in, of which it finds no sources.
        left_out = ("SNAKEMAKE_", "COVERAGE_", "COV_CORE_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        own = {"XDG_CACHE_HOME": str(self.path / ".cache"), "STAND_IN_JOURNAL": str(self.journal)}
        return kept | own | changes

    def planned(self, *arguments: str | Path, **environment: str) -> dict[str, int]:
        """How many jobs of each rule a dry run announces."""
        return jobs(self.succeed("-n", *arguments, **environment))

    def refusal(self, *arguments: str | Path, **environment: str) -> str:
        """What a dry run prints that ends with an error, though not with a traceback."""
        answer = self.snakemake("-n", *arguments, **environment)
        assert answer.returncode != 0
        assert "Traceback" not in answer.stdout
        return answer.stdout

    def config(self, name: str = "other.yaml", **changes: Any) -> Path:
        """Write CONFIG with changes merged in; None takes a key out."""
        path = self.path / name
        path.write_text(yaml.safe_dump(merged(CONFIG, changes), sort_keys=False))
        return path

    @property
    def journal(self) -> Path:
        """Where the stand-in notes its calls."""
        return self.path / "journal"

    def calls(self) -> list[dict[str, Any]]:
        """The calls of the stand-in so far."""
        return [json.loads(line) for line in self.journal.read_text().splitlines()]

    def called(self, command: str) -> list[list[str]]:
        """The words of the stand-in's calls of a command so far."""
        return [call["words"] for call in self.calls() if call["words"][0] == command]

    @contextlib.contextmanager
    def edited(self, file: str | Path, more: str = "\nEDITED = True\n") -> Iterator[None]:
        """The checkout while a file has more text at its end."""
        path = self.path / file
        before = path.read_text()
        path.write_text(before + more)
        try:
            yield
        finally:
            path.write_text(before)

    def add_own_network(self) -> None:
        """Write the file of `networks.OWN_NETWORK`."""
        (self.path / "own_network.py").write_text(SOURCE)

    def take_models(self, *names: str) -> None:
        """Copy networks of models/."""
        for name in names:
            shutil.copy(REPOSITORY / "models" / f"{name}.py", self.path / "models")


def jobs(printed: str) -> dict[str, int]:
    """How many jobs of each rule a dry run announces, from what it printed."""
    if "Job stats:" not in printed:
        assert "Nothing to be done" in printed
        return {}
    table = printed.split("Job stats:")[1].split("total")[0]
    counts = {rule: int(count) for rule, count in re.findall(r"^(\w+) +(\d+)$", table, re.MULTILINE)}
    counts.pop("all", None)
    return counts


def drawn_from(*sessions: str) -> int:
    """How many figures can be drawn from some sessions of the study, or from none."""
    drawn = (figure for figure in registry.figures() if figure.state == "drawn")
    return sum({session.partition("/")[0] for session in figure.sessions} <= set(sessions) for figure in drawn)


def make_checkout(path: Path, *, stand_in: bool = True) -> Checkout:
    """Copy the pipeline and the package, with what Python and Numba have compiled, which takes them seconds.

    Args:
        path: the folder to make.
        stand_in: whether models and the command line are stand-ins; else there are no models.
    """
    path.mkdir()
    for name in ("Snakefile", "config.yaml"):
        shutil.copy(REPOSITORY / name, path / name)
    for name in ("workflow", "envs", "schemas", "hios"):
        # What another process of tests is compiling has such names until it is whole.
        shutil.copytree(REPOSITORY / name, path / name, ignore=shutil.ignore_patterns("*.pyc.*", "*.tmp.*"))
    (path / "profiles").symlink_to("workflow/profiles")
    (path / "models").mkdir()
    if stand_in:
        (path / "hios" / "__main__.py").write_text(STAND_IN)
        for name in ("alpha", "beta", "gamma", "squeezenet", "inception_v3", "bert", "t5"):
            (path / "models" / f"{name}.py").write_text(f"# {name}\n")
    return Checkout(path)


@pytest.fixture(scope="session")
def new_checkout() -> Callable[..., Checkout]:
    """Makes a checkout in a folder that is not there yet."""
    return make_checkout


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A fresh checkout."""
    return make_checkout(tmp_path / "checkout")


@pytest.fixture(scope="session")
def unrun(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout in which nothing runs; tests leave its own files as they found them."""
    return make_checkout(tmp_path_factory.mktemp("unrun") / "checkout")


@pytest.fixture
def real_checkout(tmp_path: Path) -> Checkout:
    """A fresh checkout with the real command line, and no models."""
    return make_checkout(tmp_path / "checkout", stand_in=False)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout whose run of CONFIG is complete; tests leave it as they found it."""
    checkout = make_checkout(tmp_path_factory.mktemp("finished") / "checkout")
    checkout.succeed("--configfile", checkout.config("config.yaml"))
    return checkout
