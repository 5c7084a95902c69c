"""The command line: every command for real, and one line for everything that is wrong."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import hios
from hios import ALGORITHMS, Costs, Graph, Schedule
from hios.cli import main
from hios.files import artifacts
from hios.frontends.program import load
from hios.report.algorithm_listing import option
from tests.cli.commands import invoke, refused, succeed
from tests.problems import in_sequence, problem, schedule_of, write_files
from tests.scripts import python

CORES = len(os.sched_getaffinity(0))
DEVICES = min(2, CORES)
#: Costs that need not be certain.
_LITTLE = ("--devices", DEVICES, "--repeats", 2, "--budget", 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which all stages have run, one command each, on SqueezeNet with small images."""
    path = tmp_path_factory.mktemp("cli") / "tiny"
    printed = [
        succeed("export", "squeezenet", "--image-size", 64, "--batch-size", 2, "--output", path / "program.pt2"),
        succeed(
            "extract", path / "program.pt2", "--output", path / "graph.json", "--weights", path / "weights.safetensors"
        ),
        succeed("profile", path / "graph.json", *_LITTLE, "--output", path / "costs.json"),
    ]
    for name, devices in (("sequential", 1), ("greedy", 1), ("hios-lp", DEVICES)):
        succeed(*_schedule(path, name, path / "schedules" / f"{name}.json", devices))
    files = [path / "graph.json", path / "weights.safetensors", *sorted((path / "schedules").iterdir())]
    settings = ["--program", path / "program.pt2", "--runs", 2, "--warmup", 1, "--traces", path / "traces"]
    printed.append(succeed("execute", *files, *settings, "--output", path / "run.json"))
    for result in printed:
        (path / f"{result.stdout.splitlines()[-1].partition(':')[0]}.printed").write_text(result.stdout)
    succeed("report", path, "--output", path / "report.html", "--tables", path / "tables")
    return path


def _schedule(folder: Path, algorithm: str, output: Path, devices: int = 1) -> list[object]:
    files = [folder / "graph.json", folder / "costs.json"]
    return ["schedule", *files, "--algorithm", algorithm, "--devices", devices, "--output", output]


def test_files_of_the_pipeline(folder: Path) -> None:
    """Every stage wrote its file, each valid, named after the folder and made from the stage before."""
    graph = Graph.read(folder / "graph.json")
    assert graph.name == "tiny"
    assert [list(entry.shape) for entry in graph.inputs] == [[2, 3, 64, 64]]
    assert list(Costs.read(folder / "costs.json").time_ms) == list(graph.index)
    run = artifacts.read(folder / "run.json", "run")
    assert [result["label"] for result in run["results"]] == ["greedy", "hios-lp", "sequential"]
    assert run["checked_against"] == "eager"
    assert sorted(path.stem for path in (folder / "traces").iterdir()) == ["greedy", "hios-lp", "sequential"]
    assert "</html>" in (folder / "report.html").read_text(encoding="utf-8")
    assert list((folder / "tables").glob("*.csv"))


def _printed(folder: Path, name: str) -> list[str]:
    """What the command that wrote a file printed on stdout, less the file's name at the start of the last line."""
    *lines, last = (folder / f"{name}.printed").read_text().splitlines()
    assert last.startswith(f"{folder / name}: ")
    return [*lines, last.removeprefix(f"{folder / name}: ")]


def test_export_says_what_it_wrote(folder: Path) -> None:
    """The model, its input and the number of its weights."""
    weights = sum(value.numel() for value in load(folder / "program.pt2").state_dict.values())
    assert _printed(folder, "program.pt2") == [f"squeezenet, input float32 [2, 3, 64, 64], {weights:,} weights"]


def test_profile_says_what_it_measured(folder: Path) -> None:
    """How many operators, stages and transfers, how long it took, and the sum of the operators' times."""
    costs = artifacts.read(folder / "costs.json", "costs")
    *details, line = _printed(folder, "costs.json")
    stages, total = len(costs["stages"]), sum(entry["time_ms"] for entry in costs["operators"].values())
    assert line == (
        f"50 operators, {stages} stages, 0 merges and 65 transfers; all operators one after another take {total:.4g} ms"
    )
    assert re.fullmatch(r"\d+ measurements in \d+ s", details[0])
    assert max(map(len, details)) < 120


def test_execute_prints_a_table(folder: Path) -> None:
    """A line a schedule, reference and ceiling with median and speedup, aligned; then how far outputs were off."""
    run = artifacts.read(folder / "run.json", "run")
    head, *lines = _printed(folder, "run.json")
    if "other work" in lines[-2].lower():  # the machine is busy beside the tests
        del lines[-2]
    *rows, legend, drift, last = lines
    assert legend.startswith("drift: ")
    columns = {re.split(r"  +", row)[0]: re.split(r"  +", row)[1:] for row in rows}
    entries = [*run["results"], *({"label": entry["name"], **entry} for entry in run["references"])]
    ceilings = [f"{entry['devices']} independent copies (ceiling)" for entry in run["ceilings"]]
    assert list(columns) == [*(entry["label"] for entry in entries), *ceilings]
    baseline = run["baseline"]["latency_ms"]["median"]
    for entry in entries:
        median, spread, speedup, *prediction = columns[entry["label"]]
        if "drift" in entry:
            assert [float(cell.rstrip("%")) for cell in prediction] == pytest.approx(
                [entry["predicted_ms"], 100 * (entry["drift"]["value"] - 1), 100 * entry["error_beyond_drift"]],
                abs=0.051,
            )
        assert bool(prediction) == ("predicted_ms" in entry)
        assert float(median) == pytest.approx(entry["latency_ms"]["median"], abs=0.051)
        assert float(spread.split(" to ")[1]) == pytest.approx(entry["latency_ms"]["p80"], abs=0.051)
        assert float(speedup) == pytest.approx(baseline / entry["latency_ms"]["median"], abs=0.0051)
    for column in ("median ms", "p20 to p80"):  # numbers end where their heading ends
        end = head.index(column) + len(column)
        assert all(row[end - 1] != " " and row[end : end + 2] == "  " for row in rows)
    assert re.match(r"The machine was .* when it was profiled\. Predictions are off by [\d.]+% in the median", drift)
    off = max(result["largest_difference"] for result in run["results"])
    assert re.fullmatch(
        rf"medians of 2 runs on {DEVICES} device\(s\) in \d+ s; outputs differ from eager PyTorch by "
        rf"{off:.2g} at most, allowed 0\.0001",
        last,
    )


def test_without_arguments_there_is_help() -> None:
    """A command without arguments prints only its help, with the exit status of wrong usage."""
    result = invoke()
    assert result.exit_code == 2
    assert result.stderr == succeed("--help").stdout


def test_schedule_and_evaluate_agree(folder: Path, tmp_path: Path) -> None:
    """What evaluate prints is the latency that schedule wrote and printed."""
    path = tmp_path / "schedule.json"
    printed = succeed(*_schedule(folder, "hios-lp", path, 4), "--window", 3).stdout
    schedule = Schedule.read(path)
    assert (schedule.devices, schedule.parameters) == (4, {"window": 3, "fill_gaps": False})
    assert printed.startswith(f"{path}: predicted latency {schedule.latency_ms:.4g} ms on 4 device(s), lower bound ")
    assert re.search(r"lower bound \S+ ms, gap \S+ %", printed)
    output = succeed("evaluate", folder / "graph.json", folder / "costs.json", path).output
    assert output == f"{schedule.latency_ms:.6g} ms\n"


def test_flags_of_algorithms(folder: Path, tmp_path: Path) -> None:
    """A parameter that is true or false is a flag."""
    path = tmp_path / "schedule.json"
    assert "\n  --fill-gaps " in succeed("schedule", "--help").output
    succeed(*_schedule(folder, "hios-lp", path, 2), "--fill-gaps")
    assert Schedule.read(path).parameters == {"window": 2, "fill_gaps": True}


def test_schedule_says_where_the_search_was_cut(folder: Path, tmp_path: Path) -> None:
    """A graph without blocks that is searched in pieces has a worse schedule at times: it is said, in the file too."""
    path, wide = tmp_path / "schedule.json", tmp_path / "graph.json"
    names = [f"v{number}" for number in range(6)]
    wide.write_text(json.dumps({"operators": [{"id": name, "type": "t"} for name in names], "edges": [], "name": "w"}))
    costs = {"operators": {name: {"time_ms": 1.0} for name in names}, "transfers": [], "contention": {"kind": "none"}}
    (tmp_path / "costs.json").write_text(json.dumps(costs))
    arguments = ["schedule", wide, tmp_path / "costs.json", "--algorithm", "ios", "--output", path]
    assert "; cuts: 1; the best schedule with no stage across a cut" in succeed(*arguments, "--states", 8).output
    assert json.loads(path.read_text())["cuts"] == 1
    assert "cuts             1; the best schedule" in succeed("show", path).output
    assert "cuts" not in succeed(*arguments).output
    assert "cuts" not in json.loads(path.read_text())


def test_extract_names_the_graph(folder: Path, tmp_path: Path) -> None:
    """A name may be given; the counts are printed."""
    graph = tmp_path / "graph.json"
    result = succeed(
        "extract", folder / "program.pt2", "--output", graph, "--weights", tmp_path / "weights", "--name", "other"
    )
    assert result.output == f"{graph}: 50 operators, 65 edges, 12 blocks, units conv-relu\n"
    assert Graph.read(graph).name == "other"


def test_classifier_and_seed_are_passed_on(folder: Path, tmp_path: Path) -> None:
    """The classifier adds operators; another seed gives another program."""
    one, other = tmp_path / "one.pt2", tmp_path / "other.pt2"
    succeed("export", "squeezenet", "--image-size", 64, "--classifier", "--output", one)
    succeed("export", "squeezenet", "--image-size", 64, "--classifier", "--seed", 5, "--output", other)
    assert one.read_bytes() != other.read_bytes()
    printed = succeed("extract", one, "--output", tmp_path / "graph.json", "--weights", tmp_path / "weights").output
    assert printed.endswith("52 operators, 67 edges, 12 blocks, units conv-relu\n")


def test_algorithms_lists_the_registry() -> None:
    """The list has every algorithm with summary, paper and parameter defaults; by name, all details are printed."""
    listed = " ".join(succeed("algorithms").output.split())
    for name, algorithm in ALGORITHMS.items():
        assert f"{name} {algorithm.summary} {algorithm.paper}; " in listed
        told = succeed("algorithms", name).output
        assert told.startswith(f"{name}: ")
        for parameter in algorithm.parameters:
            assert f"{option(parameter)} {parameter.default_text}" in listed
            assert f"{option(parameter)}, {parameter.name}: {parameter.default_text}\n" in told
    assert refused("algorithms", "magic").startswith("unknown algorithm magic; allowed: ")


def test_versions(tmp_path: Path) -> None:
    """The versions of the software that results depend on are written as JSON."""
    succeed("versions", "--output", tmp_path / "versions.json")
    assert json.loads((tmp_path / "versions.json").read_text())["hios"] == hios.__version__
    assert succeed("--version").output == f"hios, version {hios.__version__}\n"


@pytest.mark.parametrize("command", [None, *main.commands])
def test_every_command_has_help(command: str | None) -> None:
    """Help works for every command and says what each option means."""
    output = succeed(*([command] if command else []), "--help").output
    assert output.startswith("Usage: ")
    for line in output.splitlines():
        assert not line.strip().startswith("--") or "  " in line.strip() or len(line.strip()) > 25


def test_every_parameter_is_an_option() -> None:
    """Each parameter of each algorithm can be given to hios schedule by its paper's name."""
    output = succeed("schedule", "--help").output
    for algorithm in ALGORITHMS.values():
        for parameter in algorithm.parameters:
            assert f"  {option(parameter)} " in output


def test_process_ends_with_status_and_one_line(tmp_path: Path) -> None:
    """As a process too an error is one line on stderr, nothing on stdout, exit status 1 and no traceback."""
    done = python("-m", "hios", "evaluate", "no.json", "no.json", "no.json", folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Error: no.json: cannot be read: No such file or directory\n"


def _export(model: str, output: Path, *options: object) -> list[object]:
    return ["export", model, *options, "--output", output]


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("resnet", [], "unknown model resnet (did you mean resnet50?); allowed: "),
        ("../models/squeezenet", [], "unknown model ../models/squeezenet; allowed: "),
        ("squeezenet", ["--image-size", 0], "--image-size: found 0; allowed: at least 1"),
        ("squeezenet", ["--batch-size", -3], "--batch-size: found -3; allowed: at least 1"),
        ("squeezenet", ["--image-size", 3], "model squeezenet: cannot be run with image_size=3: "),
    ],
)
def test_bad_exports(tmp_path: Path, model: str, options: list[object], message: str) -> None:
    """Unknown models and impossible sizes are refused; no file appears."""
    assert refused(*_export(model, tmp_path / "program.pt2", *options)).startswith(message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        ("schedule", "--algorithm magic", "unknown algorithm magic; allowed: "),
        ("schedule", "--algorithm hios-lp --devices 0", "--devices: found 0; allowed: "),
        ("schedule", "--algorithm greedy --devices 2", "algorithm greedy schedules a single device; found devices = 2"),
        ("schedule", "--algorithm hios-lp --window 1", "algorithm hios-lp: parameter window: found 1; allowed: "),
        ("schedule", "--algorithm greedy --window 2", "algorithm greedy: unknown parameter window; allowed: none"),
        ("profile", "--devices 0", f"platform cpu: --devices: found 0; allowed: 1 to {CORES}"),
        ("profile", f"--devices {CORES + 1}", f"platform cpu: --devices: found {CORES + 1}; allowed: 1 to {CORES}"),
        ("profile", "--repeats 0", "--repeats: found 0; allowed: at least 1"),
        ("profile", "--budget -1", "--budget: found -1; allowed: at least 0, finite"),
        ("profile", "--budget inf", "--budget: found inf; allowed: at least 0, finite"),
        ("profile", "--no-cache --cache kept", "--no-cache: found with --cache kept; allowed: one of them"),
        ("profile", "--cache /dev/null", "/dev/null/entry.json: cannot be written: /dev/null is not a folder"),
        ("profile", "--stages-of magic", "unknown algorithm magic; allowed: "),
        ("execute", f"--devices {CORES + 1}", f"platform cpu: --devices: found {CORES + 1}; allowed: 1 to {CORES}"),
        ("execute", "--runs 0", "--runs: found 0; allowed: at least 1"),
        ("execute", "--warmup -1", "--warmup: found -1; allowed: at least 0"),
        ("execute", "--tolerance 0", "--tolerance: found 0.0; allowed: "),
        ("execute", "--tolerance nan", "--tolerance: found nan; allowed: "),
        ("execute", "--auto auto.json --runs 11", "--runs: found 11; allowed with --auto: at least 12, as every other"),
        ("execute", "--baselines compile", "--baselines: found compile; allowed with --program only"),
    ],
)
def test_bad_options(folder: Path, tmp_path: Path, command: str, options: str, message: str) -> None:
    """Unknown algorithms, wrong numbers and parameters are refused before anything runs; no file appears."""
    files = {
        "schedule": [folder / "graph.json", folder / "costs.json"],
        "profile": [folder / "graph.json"],
        "execute": [folder / "graph.json", folder / "weights.safetensors", folder / "schedules" / "greedy.json"],
    }
    assert refused(command, *files[command], *options.split(), "--output", tmp_path / "new.json").startswith(message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_wrong_weights(folder: Path, tmp_path: Path) -> None:
    """A weights file that is none is one line that begins with its name, also though a worker finds it."""
    files = [folder / "graph.json", folder / "graph.json", folder / "schedules" / "greedy.json"]
    message = refused("execute", *files, "--output", tmp_path / "run.json", workers=True)
    assert message.startswith(f"{folder / 'graph.json'}: damaged or not a safetensors file")
    assert list(tmp_path.iterdir()) == []


def test_damaged_program(folder: Path, tmp_path: Path) -> None:
    """A program that was cut off is one line, with no word from torch or TVM around it."""
    path = tmp_path / "program.pt2"
    path.write_bytes((folder / "program.pt2").read_bytes()[:100_000])
    message = refused("extract", path, "--output", tmp_path / "graph.json", "--weights", tmp_path / "weights")
    assert message.startswith(f"{path}: not a program written by torch.export")
    assert list(tmp_path.iterdir()) == [path]


def _copy(folder: Path, tmp_path: Path) -> Path:
    """A folder with the graph, costs and a schedule, to be damaged."""
    for name in ("graph.json", "costs.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "schedule.json").write_bytes((folder / "schedules" / "greedy.json").read_bytes())
    return tmp_path


def _refusal(copied: Path) -> str:
    """Why the schedule in such a folder is refused."""
    return refused("evaluate", *(copied / name for name in ("graph.json", "costs.json", "schedule.json")))


def _edited(path: Path, edit: Callable[[Any], None]) -> None:
    data = json.loads(path.read_text())
    edit(data)
    path.write_text(json.dumps(data))


def _cycle(data: Any) -> None:
    data["edges"].append({"source": data["operators"][-1]["id"], "target": data["operators"][0]["id"]})


def _set(*place: Any, value: Any = None) -> Callable[[Any], None]:
    """A change of one entry, which is taken out without a value."""

    def edit(data: Any) -> None:
        for part in place[:-1]:
            data = data[part]
        if value is None:
            del data[place[-1]]
        else:
            data[place[-1]] = value

    return edit


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        ("graph.json", _cycle, "graph.json: edges: found the cycle "),
        ("costs.json", _set("operators", "conv1"), "costs.json: operators: no entry for operator conv1"),
        ("costs.json", _set("format_version", value="1"), 'costs.json: format_version: found "1"; this hios reads'),
    ],
)
def test_bad_problems(folder: Path, tmp_path: Path, name: str, edit: Callable[[Any], None], message: str) -> None:
    """What breaks the format of a file, and costs that are missing, name file and place, in every command."""
    copied = _copy(folder, tmp_path)
    _edited(copied / name, edit)
    files = [copied / "graph.json", copied / "costs.json"]
    assert message in _refusal(copied)
    assert message in refused("schedule", *files, "--algorithm", "hios-lp", "--output", copied / "new.json")
    assert not (copied / "new.json").exists()


@pytest.mark.parametrize("name", ["graph.json", "costs.json", "schedule.json"])
def test_truncated_and_missing_artifacts(folder: Path, tmp_path: Path, name: str) -> None:
    """A file that was cut off is named with the place where it ends; one that is not there is named."""
    copied = _copy(folder, tmp_path)
    (copied / name).write_bytes((copied / name).read_bytes()[:1000])
    message = _refusal(copied)
    assert message.startswith(f"{copied / name}: line ")
    assert "the file is damaged or cut off" in message
    (copied / name).unlink()
    assert _refusal(copied) == f"{copied / name}: cannot be read: No such file or directory"


def _later(data: Any) -> None:
    """Everything starts a millisecond later: the schedule is still valid, but longer than its plan takes."""
    data["latency_ms"] += 1
    for row in data["placements"]:
        row["start_ms"] += 1
        row["finish_ms"] += 1


def _swap_first(data: Any) -> None:
    """The first operator after all that read its output."""
    data["placements"].append(data["placements"].pop(0))


def _faster(data: Any) -> None:
    data["latency_ms"] /= 2


def _early(data: Any) -> None:
    data["placements"][-1]["start_ms"] = 0.0


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (_faster, "schedule.json: invalid: latency_ms is "),
        (_later, "schedule.json: latency_ms: found "),
        (_early, "schedule.json: invalid: "),
        (_swap_first, "schedule.json: invalid: operator conv1 of stage 0 is launched after stage "),
        (_set("placements", 3), "schedule.json: placements: operator "),
        (_set("placements", 0, "device", value=3), r"placements[0].device: found 3; allowed: 0 to 0"),
        (_set("placements", 0, "stage", value=49), "the schedule deadlocks: "),
        (_set("placements", 0, "operator", value="stem"), "found stem, which is not an operator of graph tiny"),
        (_set("placements", 0, "color", value="red"), "unknown key color; allowed: device, "),
        (_set("latency_ms", value=float("inf")), "latency_ms: found inf; allowed: a finite number"),
    ],
)
def test_tampered_schedules(folder: Path, tmp_path: Path, edit: Callable[[Any], None], message: str) -> None:
    """A schedule that was tampered with is refused, with what is wrong."""
    copied = _copy(folder, tmp_path)
    _edited(copied / "schedule.json", edit)
    assert message in _refusal(copied)


def test_impossible_bounds(tmp_path: Path) -> None:
    """A stated lower bound is refuted by a schedule that is faster, though this one is slow enough for it."""
    files = [tmp_path / name for name in ("graph.json", "costs.json", "schedule.json")]
    pair = problem({"a": 2.0, "b": 2.0}, {})
    write_files(pair, tmp_path)
    slow = dataclasses.replace(schedule_of(pair, in_sequence(pair, 2)), lower_bound_ms=2.0)
    slow.write(files[2])
    assert succeed("evaluate", *files).output == "4 ms\n"
    dataclasses.replace(slow, lower_bound_ms=3.0).write(files[2])
    assert refused("evaluate", *files) == (
        f"{files[2]}: lower_bound_ms: found 3 ms; allowed: at most 2 ms, which is possible"
    )


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("file/output.pt2", "/file is not a folder that may be written"),
        ("folder.pt2", "/folder.pt2: cannot be written: it exists and is not a regular file"),
    ],
)
def test_unwritable_output(folder: Path, tmp_path: Path, place: str, message: str) -> None:
    """An output below a file, or one that is a folder, cannot be written: one line, and nothing is left behind."""
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.pt2").mkdir()
    extracted = ["extract", folder / "program.pt2", "--weights", tmp_path / "weights", "--output", tmp_path / place]
    for command in (
        _schedule(folder, "greedy", tmp_path / place),
        ["versions", "--output", tmp_path / place],
        _export("squeezenet", tmp_path / place),
        extracted,
    ):
        assert f"{message} " in f"{refused(*command)} "
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder.pt2"]


@pytest.mark.parametrize(
    ("package", "model", "modules"),
    [
        ("torch", "squeezenet", ["hios.frontends.export", "hios.frontends.program"]),
        ("onnx", "model.onnx", ["hios.frontends.onnx_file"]),
        ("onnxruntime", "model.onnx", ["hios.frontends.onnx_file", "hios.formats.onnx_session"]),
    ],
)
def test_missing_extras_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, package: str, model: str, modules: list[str]
) -> None:
    """A command whose optional package is not installed says how to install it."""
    for module in modules:
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.delattr("hios.frontends.onnx_file", raising=False)
    monkeypatch.setitem(sys.modules, package, None)  # what an import finds where the package is not installed
    message = refused(*_export(model, tmp_path / f"program{Path(model).suffix or '.pt2'}"))
    extra = package.removesuffix("runtime")
    assert message == f"this command needs {package}, which is not installed: pip install 'hios[{extra}]'"


@pytest.mark.slow
def test_onnx_from_end_to_end(tmp_path: Path) -> None:
    """A model in ONNX goes through all stages; ONNX Runtime is what outputs are compared with, and a competitor."""
    nodes = [
        helper.make_node("Conv", ["x", f"weight{branch}"], [f"made{branch}"], pads=[1, 1, 1, 1]) for branch in (0, 1)
    ]
    nodes.append(helper.make_node("Add", ["made0", "made1"], ["y"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3, 16, 16]) for name in ("x", "y")]
    values = np.random.default_rng(0).normal(size=(2, 3, 3, 3, 3)).astype(np.float32)
    weights = [numpy_helper.from_array(value, f"weight{branch}") for branch, value in enumerate(values)]
    body = helper.make_graph(nodes, "graph", ends[:1], ends[1:], weights)
    given, program = tmp_path / "given.onnx", tmp_path / "net" / "program.onnx"
    opsets = [helper.make_opsetid("", 20)]
    given.write_bytes(helper.make_model(body, opset_imports=opsets, ir_version=10).SerializeToString())
    assert succeed(*_export(str(given), program, "--batch-size", 2)).output == (
        f"{program}: {given}, input float32 [2, 3, 16, 16], 162 weights\n"
    )
    graph, weights_file, costs = (program.parent / name for name in ("graph.json", "weights.safetensors", "costs.json"))
    succeed("extract", program, "--output", graph, "--weights", weights_file)
    succeed("profile", graph, "--devices", 1, "--repeats", 2, "--budget", 2, "--output", costs)
    succeed(*_schedule(program.parent, "greedy", program.parent / "greedy.json"))
    files = [graph, weights_file, program.parent / "greedy.json"]
    output = program.parent / "run.json"
    printed = succeed("execute", *files, "--program", program, "--runs", 2, "--output", output).output
    run = artifacts.read(output, "run")
    assert run["checked_against"] == "onnxruntime"
    assert {entry["name"] for entry in run["references"]} >= {"ONNX Runtime, 1 thread"}
    assert re.search(r"outputs differ from ONNX Runtime by \S+ at most", printed)
    succeed("report", program.parent, "--output", tmp_path / "report.html", "--tables", tmp_path / "tables")
    assert "ONNX Runtime; largest difference" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_options_of_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--option hands values of their own types to a user's function; the message of a wrong one names it."""
    (tmp_path / "own_net_of_cli.py").write_text(
        "import torch\n\n\ndef build(*, size=1, wide=False, kind='a'):\n"
        "    assert (size, wide, kind) == (3, True, '7')\n"
        "    return torch.nn.ReLU(), (torch.ones(size),)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    options = ["--option", "size=3", "--option", "wide=true", "--option", 'kind="7"']
    printed = succeed(*_export("own_net_of_cli:build", tmp_path / "a.pt2", *options)).output
    assert printed == f"{tmp_path / 'a.pt2'}: own_net_of_cli:build, input float32 [3], 0 weights\n"
    wrong = refused(*_export("own_net_of_cli:build", tmp_path / "a.pt2", "--option", "depth=3"))
    assert wrong == "model own_net_of_cli:build: unknown option depth; allowed: size, wide, kind"


def test_inputs_are_not_overwritten(folder: Path, tmp_path: Path) -> None:
    """An output that names an input is refused by every command that reads and writes files, and the input stays."""
    graph, costs = (shutil.copy(folder / name, tmp_path / name) for name in ("graph.json", "costs.json"))
    path = tmp_path / "schedule.json"
    succeed(*_schedule(tmp_path, "hios-lp", path))
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    weights = tmp_path / "weights"
    for command in (
        ("schedule", graph, costs, "--algorithm", "heft", "--output", graph),
        ("show", path, "--html", path),
        ("extract", graph, "--output", graph, "--weights", weights),
        ("profile", graph, "--output", graph),
        ("execute", graph, weights, path, "--output", path),
        ("execute", graph, weights, path, "--output", "run.json", "--auto", path),
        ("execute", graph, weights, path, "--output", tmp_path / "run.json", "--traces", tmp_path),
    ):
        assert refused(*command).endswith("found an input named as output; allowed: another file")
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (_set("latency_ms", value=3.0), "latency_ms: found 3; allowed: "),
        (_set("placements", -1, "device", value=1), "device: found 1; allowed: 0 to 0"),
    ],
)
def test_show_refuses_what_contradicts_itself(
    folder: Path, tmp_path: Path, edit: Callable[[Any], None], message: str
) -> None:
    """A schedule whose rows and head disagree is not drawn."""
    path = Path(shutil.copy(folder / "schedules" / "greedy.json", tmp_path / "schedule.json"))
    _edited(path, edit)
    assert message in refused("show", path)
