"""What Snakemake plans to run, and runs again, with a stand-in for `hios`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests import plugin
from tests.workflow.conftest import Checkout, drawn_from, jobs

ALWAYS = {"report": 1, "provenance": 1}


def test_default_configuration(unrun: Checkout) -> None:
    """The config.yaml of the repository plans every stage for both networks, HIOS's simulation, and what these feed."""
    planned = unrun.planned()
    simulated = {rule: planned.pop(rule) for rule in list(planned) if rule.startswith("simulation_")}
    assert (len(simulated), set(simulated.values())) == (15, {1})
    assert planned == {
        "export": 2,
        "extract": 2,
        "profile": 2,
        "schedule": 12,
        "execute": 2,
        "predict": 2,
        "figure": drawn_from("networks", "simulation"),
        **ALWAYS,
    }


def test_tiny_configuration(unrun: Checkout) -> None:
    """A file given with --configfile replaces config.yaml: its models do not come along."""
    planned = unrun.planned("--configfile", Path(__file__).with_name("tiny.yaml"))
    figures = {"simulation_n30_e50_l6": 1, "figure": drawn_from("networks", "simulation", "batches")}
    batches = {"schedule": 7 + 2 * 3, "retarget": 2}
    drawn = {**figures, **batches, "predict": 1 + 2, "scenario": 1, "serve": 3}
    assert planned == {"export": 3, "extract": 3, "profile": 3, "execute": 3, **drawn, **ALWAYS}


@pytest.mark.slow
def test_serving(unrun: Checkout) -> None:
    """Every scenario under every policy and load: simulated, and run alone on the machine where that is asked for.

    What also runs is calibrated first; learned policies have a launcher trained for each load.
    """
    served = {"policies": ["sequential", "learned", "auto"], "loads": [0.5, 0.8], "training": "small"}
    config = unrun.config(models={"beta": None}, virtual=True, serving={**served, "measure": True})
    printed = unrun.succeed("-n", "-p", "--configfile", config)
    assert {rule: count for rule, count in jobs(printed).items() if rule.startswith(("scenario", "serve"))} == {
        "scenario": 1,
        "serve_calibrate": 1,
        "serve_train": 2,
        "serve": 6,
        "serve_measured": 6,
    }
    folder = "results/serving/networks"
    calibration, launcher = f"--calibration {folder}/calibration.json", f"--weights {folder}/launcher-0.5.safetensors"
    for command in (
        f"load {folder}/scenario.yaml --calibrate --virtual --output {folder}/calibration.json",
        f"train {folder}/scenario.yaml --learn launcher --load 0.5 --size small --seed 0 {calibration} --output "
        f"{folder}/launcher-0.5.safetensors",
        f"simulate {folder}/scenario.yaml --policy sequential --load 0.8 {calibration} --output",
        f"simulate {folder}/scenario.yaml --policy auto --load 0.5 {calibration} {launcher} --output",
        f"load {folder}/scenario.yaml --policy sequential --load 0.8 --virtual --output",
        f"load {folder}/scenario.yaml --policy learned --load 0.5 --virtual {launcher} --output",
        f"load {folder}/scenario.yaml --policy auto --load 0.5 --virtual {calibration} {launcher} --output",
    ):
        assert f"hios {command}" in " ".join(printed.split())
    assert "--serving results/serving" in printed
    simulated = unrun.planned("--configfile", unrun.config(models={"beta": None}, serving=served))
    assert {rule: count for rule, count in simulated.items() if rule.startswith("serve")} == {
        "serve_train": 2,
        "serve": 6,
    }
    assert not {"scenario", "serve"} & unrun.planned("--configfile", unrun.config()).keys()


def test_distributed_schedules(unrun: Checkout) -> None:
    """Schedules over ranks are one run for each network, by the launcher that the configuration names."""
    config = unrun.config(distribute={"algorithms": ["hios-lp"], "launcher": "srun", "mpi": "pmix"})
    printed = unrun.succeed("-n", "-p", "--configfile", config)
    assert jobs(printed)["distribute"] == 2
    assert (
        "srun --mpi=pmix --ntasks=2 --cpus-per-task=1 --cpu-bind=cores python -m hios distribute "
        "results/alpha/graph.json results/alpha/weights.safetensors results/alpha/schedules/hios-lp-2.json "
        "--platform cpu --transport mpi --program results/alpha/program.pt2 --runs 36 --warmup 3 --tolerance 0.0001 "
        "--engine operators --seed 0 --output results/alpha/distributed/run.json"
    ) in " ".join(printed.split())
    refused = unrun.refusal("--configfile", unrun.config(distribute={"algorithms": ["sequential"]}))
    assert "Error: other.yaml: distribute.algorithms[0]: found sequential; allowed: labels of algo" in refused


def test_scenarios_of_the_user(unrun: Checkout) -> None:
    """A scenario that names files of the pipeline waits for them; one that is missing is named in one line."""
    models = {"alpha": {"graph": "results/alpha/graph.json", "costs": "results/alpha/costs.json", "rate": 5}}
    (unrun.path / "mine.yaml").write_text(json.dumps({"models": models}))
    config = unrun.config(serving={"policies": ["ios"], "scenarios": {"mine": "mine.yaml"}})
    planned = unrun.planned("--configfile", config, "--", "results/serving/mine/simulated/ios-0.8.json")
    assert planned == {"export": 1, "extract": 1, "profile": 1, "serve": 1}
    (unrun.path / "mine.yaml").unlink()
    assert "Error: other.yaml: serving.scenarios.mine: mine.yaml: cannot be read" in unrun.refusal(
        "--configfile", config
    )


@pytest.mark.slow
def test_platform_model_executes_nothing(checkout: Checkout) -> None:
    """Platform model plans predictions, schedules and the report of them, and nothing that runs."""
    config = checkout.config(platform="model", gpu="a40", link="nvlink")
    planned = checkout.planned("--configfile", config)
    assert planned == {"export": 2, "extract": 2, "profile": 2, "schedule": 6, **ALWAYS}
    checkout.succeed("--cores", "1", "--configfile", config)
    calls = [call["words"] for call in checkout.calls()]
    (report,) = [words for words in calls if words[0] == "report"]
    assert [report[place + 1] for place, word in enumerate(report) if word == "--schedule"] == [
        "sequential-1",
        "hios-lp-1",
        "hios-lp-2",
    ]
    profile = next(words for words in calls if words[0] == "profile")
    assert profile[-6:-2] == ["--gpu", "a40", "--link", "nvlink"]


def test_second_run(finished: Checkout) -> None:
    """A second run does nothing and says so."""
    answer = finished.snakemake("--cores", "2")
    assert answer.returncode == 0
    assert "Nothing to be done (all requested files are present and up to date)." in answer.stdout


def test_other_number_of_cores(finished: Checkout) -> None:
    """Results stay valid when Snakemake is given another number of cores."""
    assert finished.planned("--cores", "1") == {}


_SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("algorithms: {greedy: {}}", {"schedule": 2, "execute": 2}, marks=_SLOW),
        pytest.param("algorithms: {w4: {algorithm: hios-lp, window: 4}}", {"schedule": 4, "execute": 2}, marks=_SLOW),
        ("models: {gamma: {}}", {"export": 1, "extract": 1, "profile": 1, "schedule": 3, "execute": 1}),
        ("algorithms: {hios-lp: {window: 3}}", {"schedule": 4, "execute": 2}),
        pytest.param("algorithms: {auto: {}}", {"execute": 2}, marks=_SLOW),
        pytest.param("algorithms: {hios-lp: }", {"execute": 2}, marks=_SLOW),
        pytest.param("models: {alpha: }", {}, marks=_SLOW),
        ("execute: {runs: 50}", {"execute": 2}),
        pytest.param("profile: {stages_of: [greedy]}", {"profile": 2, "schedule": 6, "execute": 2}, marks=_SLOW),
        pytest.param(
            "models: {alpha: {image_size: 32}}",
            {"export": 1, "extract": 1, "profile": 1, "schedule": 3, "execute": 1},
            marks=_SLOW,
        ),
        ("seed: 7", {"export": 2, "extract": 2, "profile": 2, "schedule": 6, "execute": 2}),
    ],
)
def test_change(finished: Checkout, text: str, expected: dict[str, int]) -> None:
    """A change of the configuration runs again what depends on it, and nothing else; what has no value is taken out."""
    planned = finished.planned("--configfile", finished.config(**yaml.safe_load(f"{{{text}}}")))
    assert planned == {**expected, **ALWAYS}


@pytest.fixture
def own(checkout: Checkout) -> Checkout:
    """A checkout with a function and files of the user's in the current folder."""
    (checkout.path / "nets").mkdir()
    sources = {"own.py": "from nets.parts import branch", "nets/parts.py": "", "given.pt2": "", "given.onnx": ""}
    for name, text in sources.items():
        (checkout.path / name).write_text(f"{text}\nraise SystemExit\n")  # nothing of it may run
    models = {
        "alpha": None,
        "beta": None,
        "function": {"model": "own:build", "options": {"depth": 2, "kind": "a b"}, "units": "operator"},
        "program": {"model": "given.pt2", "trusted": True},
        "exchange": {"model": "given.onnx", "batch_size": 2},
    }
    serving = {"policies": ["auto"], "measure": True}
    checkout.config("config.yaml", models=models, serving=serving)
    return checkout


def test_own_models(own: Checkout) -> None:
    """A function and a .pt2 file become program.pt2, an ONNX file program.onnx, and the commands take what there is."""
    printed = own.succeed("-n", "-p")
    commands = [line.split("-m hios ")[1] for line in printed.splitlines() if "python -m hios " in line]
    for expected in (
        "export own:build --output results/function/program.pt2 --option depth=2 --option 'kind=\"a b\"' --seed 0",
        "export given.pt2 --output results/program/program.pt2 --trust --seed 0",
        "export given.onnx --output results/exchange/program.onnx --batch-size 2 --seed 0",
        "extract results/function/program.pt2 ",
        "extract results/exchange/program.onnx ",
    ):
        assert any(command.startswith(expected) for command in commands), expected
    extracted = {command.split()[1]: command for command in commands if command.startswith("extract ")}
    assert " --units operator" in extracted["results/function/program.pt2"]
    assert {name for name, command in extracted.items() if "--trust" in command} == {"results/program/program.pt2"}
    executed = [command for command in commands if command.startswith("execute ")]
    assert sorted("--trust" in command for command in executed) == [False, False, True]
    loads = [command for command in commands if command.startswith("load ")]
    assert [("--calibrate" in command, "--trust" in command) for command in loads] == [(True, False), (False, True)]
    assert any("--program results/exchange/program.onnx" in command for command in executed)


@pytest.mark.slow  # runs the pipeline
def test_edited_own_models(own: Checkout) -> None:
    """Editing a file that a model of the user's depends on runs that model again, and no other."""
    targets = [f"results/{label}/graph.json" for label in ("function", "program", "exchange")]
    own.succeed("--", *targets)
    assert own.planned("--", *targets) == {}
    for file in ("own.py", "nets/parts.py", "given.pt2", "given.onnx"):
        with own.edited(file):
            planned = own.planned("--", *targets)
        assert planned == {"export_onnx" if file == "given.onnx" else "export": 1, "extract": 1}, file


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("models/alpha.py", {"export": 1, "extract": 1, "profile": 1, "schedule": 3, "execute": 1, "report": 1}),
        ("hios/report/page.py", {"report": 1}),
        pytest.param("hios/report/templates/style.css", {"report": 1}, marks=_SLOW),
        pytest.param("hios/runtime/session.py", {"execute": 2, "report": 1}, marks=_SLOW),
        ("hios/schedulers/sequential.py", {"schedule": 2, "execute": 2, "report": 1}),
        pytest.param("hios/schedulers/heft.py", {}, marks=_SLOW),  # which the configuration does not name
        pytest.param(
            "hios/platforms/cpu/timing.py", {"profile": 2, "schedule": 6, "execute": 2, "report": 1}, marks=_SLOW
        ),
        ("hios/frontends/torch_lowering.py", {"extract": 2, "profile": 2, "schedule": 6, "execute": 2, "report": 1}),
    ],
)
def test_edited_code(finished: Checkout, file: str, expected: dict[str, int]) -> None:
    """Editing a network runs it again, editing hios the stages that use it; what depends on them too, nothing else."""
    with finished.edited(file, "\np { margin: 0; }\n" if file.endswith(".css") else "\nEDITED = True\n"):
        assert finished.planned() == expected


@pytest.mark.slow  # runs the pipeline
def test_outside_algorithms(checkout: Checkout) -> None:
    """An algorithm of another distribution runs by its name and parameters; an edit of its code runs it again."""
    files = plugin.install(checkout.path / "site")
    environment = {"PYTHONPATH": str(checkout.path / "site")}
    changes = {"hios-lp": None, "backwards": {}, "other": {"algorithm": "backwards", "backwards_from": 2}}
    checkout.config("config.yaml", algorithms=changes, models={"beta": None})
    checkout.succeed(**environment)
    words = checkout.called("schedule")
    asked = {tuple(call[3 : call.index("--output")]) for call in words}
    assert asked == {
        ("--algorithm", "sequential", "--devices", "1"),
        ("--algorithm", "backwards", "--devices", "1", "--backwards-from", "0"),
        ("--algorithm", "backwards", "--devices", "1", "--backwards-from", "2"),
    }
    assert checkout.planned(**environment) == {}
    for file in files.values():
        with checkout.edited(file.relative_to(checkout.path)):
            assert checkout.planned(**environment) == {"schedule": 2, "execute": 1, "report": 1}
    missing = checkout.refusal()
    assert "Error: config.yaml: algorithms.backwards: unknown algorithm backwards; allowed: gpg, greedy, " in missing


#: An algorithm in a file beside config.yaml.
OWN_ALGORITHM = """import hios


@hios.register(
    "mine",
    paper="none",
    summary="in topological order",
    several_devices=False,
    parameters=(hios.Parameter("first", 0, "unused", minimum=0),),
)
def mine(problem, devices, *, first=0):
    return hios.StreamPlan(((tuple(problem.order),),), tuple(problem.order))
"""


@pytest.mark.slow
def test_own_algorithms(checkout: Checkout) -> None:
    """A file of the working folder holds an algorithm, as package.module:function; an edit of it runs it again."""
    file = checkout.path / "own_algorithm.py"
    file.write_text(OWN_ALGORITHM)
    changes = {"hios-lp": None, "mine": {"algorithm": "own_algorithm:mine", "first": 2}}
    checkout.config("config.yaml", algorithms=changes, models={"beta": None})
    checkout.succeed()
    words = checkout.called("schedule")
    assert ["--algorithm", "own_algorithm:mine", "--devices", "1", "--first", "2"] in [
        call[3 : call.index("--output")] for call in words
    ]
    assert checkout.planned() == {}
    file.write_text(f"{OWN_ALGORITHM}\nEDITED = True\n")
    assert checkout.planned() == {"schedule": 1, "execute": 1, "report": 1}
    file.unlink()
    missing = checkout.refusal()
    assert "Error: config.yaml: algorithms.mine: algorithm own_algorithm:mine: no module own_algorithm" in missing


def test_nested_values_of_config_option(unrun: Checkout) -> None:
    """Lists and mappings of --config hold numbers, and what is wrong there is not blamed on config.yaml alone."""
    unrun.succeed("-n", "--config", "devices=[1]", "virtual=true", 'execute={"runs": 12}')
    refused = unrun.refusal("--config", "devices=[1, x]")
    assert 'Error: config.yaml and --config: devices[1]: found "x"; allowed: integer' in refused
    broken = unrun.refusal("--config", "devices=[1")
    assert "Error: --config: devices: found [1, which is not YAML" in broken


def test_devices_that_are_found_by_measurement(unrun: Checkout) -> None:
    """`devices: auto` divides the cores for each network first; costs and schedules follow its partition.json."""
    config = unrun.config(devices="auto")
    printed = unrun.succeed("-n", "--printshellcmds", "--configfile", config)
    commands = re.findall(r"-m hios (profile|schedule|execute) (.*)", printed)
    assert {command for command, _ in commands} == {"profile", "schedule", "execute"}
    for command, words in commands:
        if command == "execute":
            assert "--devices" not in words
        elif "-1.json" in words:
            assert "--devices 1" in words
            assert "--partition" not in words
        else:
            assert "--devices" not in words
            assert "/partition.json" in words.partition("--partition ")[2]
    assert jobs(printed)["partition"] == len(yaml.safe_load(config.read_text())["models"])


def test_slurm_profile(unrun: Checkout) -> None:
    """The profile for Slurm fits the rules; the local executor stands in for the plugin."""
    printed = unrun.succeed("-n", "--workflow-profile", "workflow/profiles/slurm", "--executor", "local")
    assert "workflow specific profile workflow/profiles/slurm" in printed


def test_slurm_profile_without_the_plugin(unrun: Checkout, tmp_path: Path) -> None:
    """Without Snakemake's plugin for Slurm people get one line that says what to install, not Snakemake's usage."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util\n"
        "known = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *more: None if name.endswith('plugin_slurm') else known(name, *more)\n"
    )
    answer = subprocess.run(  # not by unrun.snakemake, whose processes have started before sitecustomize is there
        [sys.executable, "-m", "snakemake", "-n", "--workflow-profile", "workflow/profiles/slurm"],
        cwd=unrun.path,
        env=unrun.environment(PYTHONPATH=str(tmp_path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert answer.returncode == 1
    assert answer.stdout.splitlines()[1:] == [  # after the line that says which profile is read
        "Error: Snakemake's plugin for Slurm is not installed: pip install 'hios[slurm]' (see docs/cluster.md)"
    ]
