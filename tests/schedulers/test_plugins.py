"""Algorithms of other distributions, by entry point."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import hios
from tests import plugin
from tests.problems import problem, write_files
from tests.scripts import ROOT, python


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of the module search path of `_hios`, without distributions."""
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """graph.json and costs.json of a diamond whose branches differ."""
    edges = {("a", "b"): 0.5, ("a", "c"): 0.5, ("b", "d"): 0.5, ("c", "d"): 0.5}
    write_files(problem({"a": 1.0, "b": 4.0, "c": 3.0, "d": 1.0}, edges), tmp_path)
    return [str(tmp_path / "graph.json"), str(tmp_path / "costs.json")]


def _python(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return python(*words, folder=site, PYTHONPATH=os.pathsep.join((str(site), str(ROOT))))


def _hios(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return _python(site, "-m", "hios", *words)


def _scheduled(site: Path, files: list[str], algorithm: str, *options: str) -> Any:
    output = site / "schedule.json"
    done = _hios(site, "schedule", *files, "--algorithm", algorithm, "--output", str(output), *options)
    assert done.returncode == 0, done.stderr
    return json.loads(output.read_text())


def _refused(site: Path, files: list[str], algorithm: str, *options: str) -> str:
    """The one line that a schedule with an algorithm ends with."""
    done = _hios(site, "schedule", *files, "--algorithm", algorithm, "--output", str(site / "out.json"), *options)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    return line


def test_schedule_with_an_outside_algorithm(site: Path, files: list[str]) -> None:
    """Its schedule is evaluated like any other, and its parameters are options."""
    plugin.install(site)
    scheduled = _scheduled(site, files, "backwards")
    assert [row["operator"] for row in scheduled["placements"]] == ["a", "c", "b", "d"]
    assert (scheduled["latency_ms"], scheduled["parameters"]) == (9.0, {"backwards_from": 0})
    scheduled = _scheduled(site, files, "backwards", "--backwards-from", "3")
    assert [row["operator"] for row in scheduled["placements"]] == ["a", "b", "c", "d"]
    assert scheduled["parameters"] == {"backwards_from": 3}
    checked = _hios(site, "evaluate", *files, str(site / "schedule.json"))
    assert (checked.returncode, checked.stderr) == (0, "")


def test_parameters_of_outside_algorithms_are_checked(site: Path, files: list[str]) -> None:
    """A value below the minimum is refused, and another algorithm does not take the option."""
    plugin.install(site)
    line = _refused(site, files, "backwards", "--backwards-from", "-1")
    assert "parameter backwards_from: found -1; allowed: a whole number of at least 0" in line
    words = ("schedule", *files, "--output", str(site / "out.json"), "--backwards-from", "-1")
    other = _hios(site, *words, "--algorithm=sequential")
    assert (other.returncode, other.stderr.count("\n")) == (2, 1)
    assert "No such option" in other.stderr


def test_parameters_that_are_true_by_default(site: Path, files: list[str]) -> None:
    """They can be set to false, on the command line and in config.yaml, from which the pipeline makes the command."""
    code = plugin.BACKWARDS.replace("backwards_from=0", "backwards_from=True").replace(
        '"backwards_from", 0, "first operators that stay where they are", minimum=0', '"backwards_from", True, "one"'
    )
    plugin.install(site, backwards=code, order=plugin.ORDER)
    for options, expected in (((), True), (("--backwards-from",), True), (("--no-backwards-from",), False)):
        assert _scheduled(site, files, "backwards", *options)["parameters"] == {"backwards_from": expected}
    made = _python(
        site,
        "-c",
        "from hios.pipeline.config import schedule_options\n"
        "for value in (True, False):\n"
        "    print(schedule_options({'algorithm': 'backwards', 'backwards_from': value}))\n",
    )
    assert (made.stdout, made.stderr) == ("--backwards-from\n--no-backwards-from\n", "")


def test_words_about_outside_algorithms(site: Path) -> None:
    """The list, the explanation and the help of schedule know it, and say where it comes from."""
    plugin.install(site)
    listing = " ".join(_hios(site, "algorithms").stdout.split())
    assert "backwards the last operator that can run, again and again nowhere; one device;" in listing
    assert "--backwards-from 0; from outside 1.2" in listing
    explained = _hios(site, "algorithms", "backwards").stdout
    assert "Code     outside.backwards\nFrom     outside 1.2\n" in explained
    assert "\norder:\n  A topological order, the last of the ready operators first.\n" in explained
    assert "--backwards-from INTEGER" in _hios(site, "schedule", "--help").stdout


def test_outside_algorithms_in_a_configuration(site: Path) -> None:
    """config.yaml takes it under any label, with its parameters; what is wrong is said with the place."""
    plugin.install(site)
    code = (
        "from hios.pipeline.config import resolve, competitors\n"
        "settings = resolve({'models': {'squeezenet': {}}, 'devices': [1], 'algorithms': {\n"
        "    'backwards': {}, 'b2': {'algorithm': 'backwards', 'backwards_from': 2}}}, 'config.yaml')\n"
        "print(settings.algorithms, competitors(settings))\n"
        "resolve({'models': {'squeezenet': {}}, 'algorithms': {'backwards': {'from': 2}}}, 'config.yaml')\n"
    )
    done = _python(site, "-c", code)
    first = {"backwards": {"algorithm": "backwards", "backwards_from": 0}}
    second = {"b2": {"algorithm": "backwards", "backwards_from": 2}}
    assert done.stdout == f"{first | second} [('backwards', 1), ('b2', 1)]\n"
    assert done.stderr.splitlines()[-1] == (
        "hios.errors.HiosError: config.yaml: algorithms.backwards: algorithm backwards: unknown parameter from; "
        "allowed: backwards_from"
    )


def test_unknown_names_list_outside_algorithms(site: Path, files: list[str]) -> None:
    """The message about an unknown name lists those of entry points beside those of hios."""
    plugin.install(site)
    line = _refused(site, files, "forwards")
    assert line.startswith("Error: unknown algorithm forwards; allowed: backwards, gpg, greedy, heft, ")


def test_only_what_is_named_is_imported(site: Path, files: list[str]) -> None:
    """A distribution whose import has side effects is not imported if another algorithm is named."""
    plugin.install(site, entries="loud = outside.loud:loud", loud="raise SystemExit('imported')\n")
    assert _scheduled(site, files, "sequential")["latency_ms"] == 9.0
    assert "imported" in _refused(site, files, "loud")


#: Algorithms that do not work: the code of their module, and what is said of them.
BROKEN = {
    "absent": ("import nowhere_at_all", "cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all'"),
    "unfinished": ("def unfinished(", "cannot be imported: SyntaxError: "),
    "raising": ("raise RuntimeError('first line\\nsecond')", "cannot be imported: RuntimeError: first line"),
    "other": ("another = 1", "cannot be imported: AttributeError: "),
    "bare": ("def bare(problem, devices): ...", 'is no function under @hios.register("bare", ...); an entry point has'),
    "taken": (
        "import hios\n"
        "@hios.register('heft', paper='', summary='', several_devices=True)\n"
        "def taken(problem, devices): ...\n",
        "cannot be imported: ValueError: an algorithm named heft is registered already, hios.schedulers.heft.heft",
    ),
    "reserved": (
        "import hios\n"
        "@hios.register('reserved', paper='', summary='', several_devices=True,\n"
        "    parameters=(hios.Parameter('devices', 1, ''),))\n"
        "def reserved(problem, _, *, devices=1): ...\n",
        "ValueError: algorithm reserved: parameter devices: found this name; allowed: one not in use",
    ),
}


def test_broken_algorithms_are_one_line_each(site: Path, files: list[str]) -> None:
    """Each is named with its distribution, entry point and error, and every other algorithm still works."""
    entries = "\n".join(f"{name} = faulty.{name}:{name}" for name in BROKEN)
    plugin.install(site, "faulty", "0.3", entries, **{name: code for name, (code, _) in BROKEN.items()})
    plugin.install(site)
    listed = _hios(site, "algorithms")
    assert (listed.returncode, listed.stderr) == (0, "")
    words = " ".join(listed.stdout.split())
    assert "backwards the last operator" in words
    for name, (_, reason) in BROKEN.items():
        start = f"algorithm {name}: faulty 0.3 (entry point {name} = faulty.{name}:{name}) "
        assert f"Not available: {start}" in words
        line = _refused(site, files, name)
        assert line.startswith(f"Error: {start}")
        assert reason in line
    assert _scheduled(site, files, "backwards")["latency_ms"] == 9.0
    assert _scheduled(site, files, "heft")["latency_ms"] == 9.0


def test_a_name_of_hios_is_refused(site: Path, files: list[str]) -> None:
    """An outside algorithm cannot take the place of one of hios, nor hide behind it."""
    plugin.install(site, entries="heft = outside.backwards:backwards")
    line = _refused(site, files, "heft")
    assert line == (
        "Error: algorithm heft: hios (hios.schedulers.heft.heft) and outside 1.2 (entry point heft = "
        "outside.backwards:backwards) have this name; allowed: one; rename or uninstall the others"
    )
    assert _scheduled(site, files, "sequential")["latency_ms"] == 9.0


def test_a_name_of_two_distributions_is_refused(site: Path, files: list[str]) -> None:
    """Both are named, as nothing says which one is meant."""
    for name in ("first", "second"):
        plugin.install(site, name)
    line = _refused(site, files, "backwards")
    origins = ["first 1.2 (entry point backwards = first.b", "second 1.2 (entry point backwards = second.b"]
    assert all(origin in line for origin in origins)
    assert _scheduled(site, files, "sequential")["latency_ms"] == 9.0


def test_an_imported_distribution_is_the_same(site: Path) -> None:
    """A program that imports the module itself may name the algorithm too; its own of that name is refused."""
    plugin.install(site)
    code = "import hios, outside.backwards\nfrom hios.schedulers import find\n"
    done = _python(site, "-c", f"{code}print(find('backwards').distribution, hios.ALGORITHMS['backwards'].origin)")
    assert done.stdout == "outside 1.2 outside.backwards.backwards\n"
    own = (
        "import hios\nfrom hios.schedulers import find\n"
        "@hios.register('backwards', paper='', summary='', several_devices=False)\n"
        "def mine(problem, devices): ...\n"
        "find('backwards')\n"
    )
    last = _python(site, "-c", own).stderr.splitlines()[-1]
    assert "an algorithm named backwards is registered already, __main__.mine" in last


def test_edits_change_the_hash(site: Path) -> None:
    """The module of an algorithm and what it imports from its package count; words and other stages do not."""
    files = plugin.install(site)
    (site / "outside" / "unused.py").write_text("A = 1\n")
    code = (
        "from hios.platforms.code_hash import source_hash\n"
        "print(source_hash('schedule', ['backwards']), source_hash('profile', ['backwards']), source_hash('execute'),\n"
        "      source_hash('schedule', ['heft']))"
    )

    def hashes() -> list[str]:
        done = _python(site, "-c", code)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    before = hashes()
    assert len(set(before)) == 4
    (site / "outside" / "unused.py").write_text("A = 2\n")
    for file in files.values():
        file.write_text(file.read_text().replace('"""', '"""Edited. ', 1) + "\n# edited\n")
    assert hashes() == before
    for file in files.values():
        file.write_text(f"{file.read_text()}\nEDITED = True\n")
        after = hashes()
        assert [one == other for one, other in zip(before, after, strict=True)] == [False, False, True, True]
        before = after


def test_import_hios_looks_for_no_distributions(site: Path) -> None:
    """Entry points are read, and outside algorithms imported, only once an algorithm is asked for by name."""
    plugin.install(site)
    code = (
        "import hios, sys; print('outside' in sys.modules, 'importlib.metadata' in sys.modules, len(hios.ALGORITHMS))"
    )
    assert _python(site, "-c", code).stdout == f"False False {len(hios.ALGORITHMS)}\n"


#: What `module:function` may name, and fail to.
FUNCTIONS = """import hios


@hios.register("mine", paper="none", summary="in topological order", several_devices=False)
def mine(problem, devices):
    return hios.StreamPlan(((tuple(problem.order),),), tuple(problem.order))


def unregistered(problem, devices):
    return mine(problem, devices)
"""


def test_schedule_with_a_function(site: Path, files: list[str]) -> None:
    """A registered function of the working folder is an algorithm without being installed."""
    (site / "own_algorithm.py").write_text(FUNCTIONS)
    scheduled = _scheduled(site, files, "own_algorithm:mine")
    assert scheduled["algorithm"] == "mine"
    assert [row["operator"] for row in scheduled["placements"]] == list("abcd")
    assert "mine: in topological order" in _hios(site, "algorithms", "own_algorithm:mine").stdout


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("own:mine", "", "algorithm own:mine: own has no mine"),
        ("absent:mine", "", "algorithm absent:mine: no module absent in the working folder, "),
        ("own:unregistered", FUNCTIONS, "algorithm own:unregistered: unregistered is not registered; put "),
        ("own:mine", "import absent", "algorithm own:mine: own cannot be imported: ModuleNotFoundError: No module "),
        ("own:mine", "1 / 0", "algorithm own:mine: own cannot be imported: ZeroDivisionError: division by zero"),
        ("own.py:mine", FUNCTIONS, "algorithm own.py:mine: no module own.py in the working folder, "),
        ("../own:mine", "1 / 0", "algorithm ../own:mine: found this name; allowed: package.module:function"),
        (
            "own:mine",
            FUNCTIONS.replace('"mine"', '"ios"'),
            "algorithm own:mine: own cannot be imported: ValueError: an",
        ),
    ],
)
def test_functions_that_are_no_algorithms(site: Path, files: list[str], name: str, code: str, message: str) -> None:
    """What is wrong is said in one line."""
    (site / "own.py").write_text(code)
    line = _refused(site, files, name)
    assert line.startswith(f"Error: {message}")


def test_long_unknown_names_are_cut(site: Path, files: list[str]) -> None:
    """A message does not repeat a name without end."""
    assert len(_refused(site, files, "x" * 10_000)) < 400
