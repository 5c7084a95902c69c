"""What config.yaml may say, and what it is told when it says something else."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

import hios
from hios import optimize
from hios.cli import main
from hios.errors import ArtifactError, HiosError
from hios.files import artifacts, option_defaults
from hios.files.yaml_file import read_yaml
from hios.formats.config import TAKEN, SimulationStudy
from hios.formats.settings import Measuring, Settings
from hios.frontends.models import RUNTIMES
from hios.machine import description
from hios.pipeline import config
from hios.platforms import PLATFORMS
from hios.schedulers import ALGORITHMS, Algorithm, Parameter
from hios.schedulers.parallelize import WINDOW
from hios.study.sessions import session_files
from tests.refusals import refused
from tests.workflow.conftest import Checkout

REPOSITORY = Path(__file__).resolve().parents[2]
SMALL: dict[str, Any] = {"models": {"net": {}}, "algorithms": {"sequential": {}}}


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with two networks."""
    folder = tmp_path / "models"
    folder.mkdir()
    for name in ("net.py", "other.py", "__init__.py"):
        (folder / name).touch()
    return folder


def defaults(rule: Mapping[str, Any]) -> dict[str, Any]:
    """What the keys of an object that a schema describes are where they are left out."""
    return {
        key: defaults(part) if "properties" in part else part["default"]
        for key, part in rule["properties"].items()
        if part.keys() & {"properties", "default"}
    }


def test_defaults_are_those_of_the_library() -> None:
    """The schema, the command line and the functions of the library take their defaults from one table."""
    profile = {
        "stages_of": option_defaults.STAGES_OF,
        "repeats": option_defaults.REPEATS,
        "budget": option_defaults.PROFILE_BUDGET_S,
    }
    execute = {"runs": Measuring().runs, "warmup": Measuring().warmup, "tolerance": option_defaults.TOLERANCE}
    measure = {**execute, "seed": option_defaults.SEED, "timeout_s": option_defaults.TIMEOUT_S}
    stated = defaults(artifacts.schema("config"))
    assert stated["seed"] == option_defaults.SEED
    assert stated["execute"].items() >= execute.items()
    assert stated["profile"].items() >= {**profile, "stages_of": list(option_defaults.STAGES_OF)}.items()
    for name, expected in (("execute", measure), ("distribute", measure), ("profile", profile)):
        command = main.get_command(click.Context(main), name)
        assert command is not None
        assert {option.name: option.default for option in command.params}.items() >= expected.items()
    optimized = inspect.signature(optimize).parameters
    assert [optimized[key].default for key in ("tolerance", "budget_s", "timeout_s")] == [
        option_defaults.TOLERANCE,
        option_defaults.OPTIMIZE_BUDGET_S,
        option_defaults.TIMEOUT_S,
    ]


def test_defaults(models: Path) -> None:
    """What is left out takes the schema's defaults, parameters of algorithms included."""
    data = {"models": {"net": None}, "algorithms": {"wide": {"algorithm": "hios-lp"}}, "execute": {"runs": 1}}
    expected = defaults(artifacts.schema("config"))
    assert expected["study"].items() >= {"images": {}, "batches": {}, "transformers": {}, "archives": []}.items()
    assert expected["study"]["top"] == {
        "most": 6,
        "copies": 4,
        "batches": [1, 4, 16, 64, 128],
        "gpus": ["jetson-nano", "jetson-tx2", "jetson-xavier-nx", "a100-pcie-40gb"],
        "steps": 1000,
        "samples": 6,
        "transitions": 100000,
        "loads": [1.0, 4.0, 8.0],
        "launcher_size": "small",
        "launcher_seeds": 1,
    }
    assert config.contents(config.resolve(data, "config.yaml", models=models)) == {
        **expected,
        "models": {"net": {"model": "net", "classifier": False}},
        "algorithms": {"wide": {"algorithm": "hios-lp", "window": 2, "fill_gaps": False}},
        "execute": {**expected["execute"], "runs": 1},
    }


def test_resolving_again(models: Path) -> None:
    """Resolved settings resolve to themselves, from their YAML too."""
    settings = config.resolve(SMALL, "config.yaml", models=models)
    assert config.resolve(yaml.safe_load(config.as_yaml(settings)), "", models=models) == settings


def test_input_stays(models: Path) -> None:
    """What was read is not changed, and neither are the defaults in the schema."""
    data = {**SMALL, "devices": [1]}
    before = json.dumps(data)
    config.contents(config.resolve(data, "config.yaml", models=models))["profile"]["stages_of"].append("sequential")
    assert json.dumps(data) == before
    assert config.resolve(data, "", models=models).profile.stages_of == ("greedy", "hios-lp")


def test_default_configuration_shows_the_defaults() -> None:
    """config.yaml promises that what is left out takes the value shown there; one platform alone takes other keys."""
    shown, known = yaml.safe_load((REPOSITORY / "config.yaml").read_text()), defaults(artifacts.schema("config"))
    for key in ("archives", "images", "batches", "transformers", "top"):
        del known["study"][key]
    assert {key: value for key, value in shown.items() if key not in ("models", "algorithms")} == known
    for label, parameters in shown["algorithms"].items():
        assert ALGORITHMS[label].resolved(parameters) == ALGORITHMS[label].resolved({})
    assert SimulationStudy().window == WINDOW.default


def test_docstring_of_execute_states_the_defaults() -> None:
    """Every setting with its default, where that does not depend on the schedules."""
    stated = re.findall(r"``(\w+)`` \((?:``(.+?)``|([\w.-]+))[,:)]", inspect.getdoc(hios.execute) or "")
    settings = {name: ast.literal_eval(quoted or plain) for name, quoted, plain in stated}
    assert settings == {name: getattr(Settings(devices=1), name) for name in settings}
    assert settings.keys() == set(Settings.__struct_fields__) - {"devices", "cores_per_device"}


def test_lists_of_the_schema() -> None:
    """Platforms and baselines are those that the command line takes."""
    known = artifacts.schema("config")["properties"]
    assert known["platform"]["enum"] == list(PLATFORMS)
    assert known["execute"]["properties"]["baselines"]["items"]["enum"] == list(RUNTIMES)


PREDICTED = {**SMALL, "platform": "model", "gpu": "a40"}


def test_predicting(models: Path) -> None:
    """Platform model takes a GPU and a link, any number of devices, and no option of measuring."""
    settings = config.resolve({**PREDICTED, "link": "nvlink", "devices": [1, 8]}, "", cores=1, models=models)
    assert config.predicts(settings)
    assert config.profile_options(settings) == "--gpu a40 --link nvlink"
    assert config.resolve(yaml.safe_load(config.as_yaml(settings)), "", cores=1, models=models) == settings
    assert not config.predicts(config.resolve(SMALL, "", models=models))


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"devices": [1, 2], "cores_per_device": 4}, "--cores-per-device 4"),
        ({"devices": [1, 9], "virtual": True}, "--virtual"),
    ],
)
def test_devices_that_are_no_cores(models: Path, changes: dict[str, Any], option: str) -> None:
    """As many as groups of cores, or more than cores where they are virtual; profile and execute are told."""
    settings, plain = (config.resolve(data, "", cores=8, models=models) for data in ({**SMALL, **changes}, SMALL))
    for options in (config.profile_options, lambda given: config.execute_options(given, "net")):
        assert f"{option} " in f"{options(settings)} "
        assert not re.search("--cores|--virtual", options(plain))
    assert config.resolve(config.contents(settings), "", models=models) == settings


def test_widths(models: Path) -> None:
    """Widths reach the profile; they are devices that there are, on platform cpu."""
    data = {**SMALL, "devices": [1, 2], "profile": {"widths": [2]}}
    assert "--widths 2" in config.profile_options(config.resolve(data, "", models=models))


def test_numbers_as_people_write_them(models: Path) -> None:
    """YAML reads 1e-4 as text and 2.0 as a float; both mean what they look like."""
    data = yaml.safe_load("{models: {net: }, algorithms: {sequential: }, execute: {tolerance: 1e-4, runs: 2.0}}")
    settings = config.resolve(data, "config.yaml", models=models)
    assert settings.execute.tolerance == 0.0001
    assert (
        config.options(config.contents(settings)["execute"])
        == "--runs 2 --warmup 3 --tolerance 0.0001 --baselines eager --engine operators"
    )


def test_competitors(models: Path) -> None:
    """Single-device algorithms are scheduled for one device only."""
    data = {**SMALL, "algorithms": {"sequential": {}, "lp": {"algorithm": "hios-lp"}}, "devices": [1, 4]}
    settings = config.resolve(data, "config.yaml", models=models)
    assert config.competitors(settings) == [("sequential", 1), ("lp", 1), ("lp", 4)]


def test_devices_that_are_found_by_measurement(models: Path) -> None:
    """`devices: auto` leaves numbers open for algorithms of several devices; the others schedule one device."""
    data = {**SMALL, "algorithms": {"sequential": {}, "lp": {"algorithm": "hios-lp"}}, "devices": "auto"}
    settings = config.resolve(data, "", cores=1, models=models)
    assert config.competitors(settings) == [("sequential", 1), ("lp", "auto")]
    assert config.resolve(config.contents(settings), "", models=models) == settings
    measured = {"profile": {"repeats": 7, "budget": 1.5, "cache": False}, "execute": {"runs": 5, "warmup": 2}}
    words = shlex.split(config.partition_options(config.resolve({**data, **measured}, "", models=models)))
    assert words == shlex.split("--repeats 7 --budget 1.5 --no-cache --runs 5 --warmup 2 --tolerance 0.0001 --seed 0")


def test_auto(models: Path) -> None:
    """Auto is not scheduled: it is chosen among what the other algorithms schedule."""
    data = {**SMALL, "algorithms": {"sequential": {}, "auto": {}, "hios-lp": {}}, "devices": [2, 1]}
    settings = config.resolve(data, "config.yaml", models=models)
    assert settings.algorithms["auto"] == {"algorithm": "auto"}
    assert config.resolve(config.contents(settings), "", models=models) == settings
    assert config.competitors(settings) == [("sequential", 1), ("hios-lp", 2), ("hios-lp", 1)]
    assert config.chooses(settings)
    assert not config.chooses(config.resolve(SMALL, "config.yaml", models=models))
    config.resolve({**data, "algorithms": {"auto": {}, "hios-lp": {}}, "devices": [2]}, "config.yaml", models=models)


def test_seed_of_randomized_algorithms(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An algorithm with a seed takes that of the configuration unless it is given its own."""
    dice = Algorithm("dice", "", "", False, (Parameter("seed", 0, "seed"),), ALGORITHMS["sequential"].run)
    monkeypatch.setitem(ALGORITHMS, "dice", dice)
    data = {**SMALL, "algorithms": {"dice": {}, "own": {"algorithm": "dice", "seed": 1}}, "seed": 7}
    algorithms = config.resolve(data, "config.yaml", models=models).algorithms
    assert [entry["seed"] for entry in algorithms.values()] == [7, 1]


@pytest.mark.slow
def test_seed_reaches_what_is_random(checkout: Checkout) -> None:
    """The configuration's seed is that of export, execute and algorithms with a seed; one of their own goes first."""
    algorithms = {"sequential": {}, "lios-rand": {}, "fixed": {"algorithm": "lios-rand", "seed": 3}}
    path = checkout.path / "seeds.yaml"
    path.write_text(yaml.safe_dump({"models": {"alpha": {}}, "devices": [1], "algorithms": algorithms, "seed": 7}))
    printed = checkout.succeed("-n", "-p", "--configfile", path)
    seeds = {
        line.split("--output results/alpha/")[1].split()[0]: line.split("--seed ")[1].split()[0]
        for line in printed.splitlines()
        if "--output results/alpha/" in line and "--seed " in line
    }
    assert seeds == {
        "program.pt2": "7",
        "run.json": "7",
        "schedules/lios-rand-1.json": "7",
        "schedules/fixed-1.json": "3",
    }


#: What is added to `SMALL`, and why that is refused; a key without a value is left out.
BAD = [
    ("repeats: 3", "(whole file): unknown key repeats; allowed: algorithms, "),
    (
        "models: {net: {size: 3}}",
        "models.net: unknown key size; allowed: batch_size, below, classifier, image_size, inputs, model, options, "
        "trusted, units",
    ),
    (
        "models: {nett: {}}",
        "models.nett: unknown model nett (did you mean net?); allowed: net, other, and for one of your own",
    ),
    ("models: {net: {model: ../net}}", "models.net: unknown model ../net; allowed: net, other"),
    ("models: {net: {trusted: true}}", "models.net: trusted: found true; allowed: for .pt2 files"),
    (
        "models: {net: {options: {image_size: 3}}}",
        "models.net: options: found image_size; allowed: as a key of its own, next to options",
    ),
    (
        "models: {net: {units: conv}}",
        'models.net.units: found "conv"; allowed: one of "conv-relu", "relu-sepconv", "operator"',
    ),
    (
        "models: {net: {model: missing.pt2}}",
        "models.net: missing.pt2: no such file; a path is relative to the folder that hios runs in, ",
    ),
    (
        "models: {net: {model: 'no_such_module:build'}}",
        "models.net: no_such_module:build: no module no_such_module in the current folder, ",
    ),
    ("models: {}", "models: found {}; allowed: at least 1 key(s)"),
    (
        "models: {net: {}, a/b: {model: net}}",
        'models: found the key "a/b"; allowed: text matching ^[A-Za-z0-9][A-Za-z0-9_-]*$ (A label is letters, ',
    ),
    ("algorithms: {-x: {algorithm: greedy}}", 'algorithms: found the key "-x"; allowed: text matching '),
    *(
        (
            f"models: {{{name}: {{model: net}}}}",
            f'models: found the key "{name}"; allowed: anything but "benchmarks", "figures", "logs", "serving", '
            '"study", "tables" (Folders with these',
        )
        for name in TAKEN
    ),
    ("seed: 9223372036854775808", "seed: found 9223372036854775808; allowed: at most 9223372036854775807"),
    (
        "algorithms: {hios: {}}",
        "algorithms.hios: unknown algorithm hios (did you mean ios?); allowed: gpg, greedy, heft, hios-lp, ",
    ),
    (
        "algorithms: {hios-lp: {windw: 2}}",
        "algorithms.hios-lp: algorithm hios-lp: unknown parameter windw (did you mean window?); allowed: window",
    ),
    (
        "algorithms: {hios-lp: {window: 1}}",
        "algorithms.hios-lp: algorithm hios-lp: parameter window: found 1; allowed: a whole number of at least 2",
    ),
    (
        "profile: {stages_of: [greedy, greedi]}",
        "profile.stages_of[1]: unknown algorithm greedi (did you mean greedy?); allowed: gpg, greedy, ",
    ),
    ("profile: {stages_of: []}", "profile.stages_of: found []; allowed: at least 1"),
    ("devices: []", "devices: found []; allowed: at least 1 item(s)"),
    ("devices: [1, 0]", "devices[1]: found 0; allowed: at least 1"),
    ("devices: [1, 1]", "devices: found [1, 1]; allowed: "),
    ("devices: [1, 5]", "devices: found 5; allowed: at most 4, the cores"),
    ("devices: [1, 2], cores_per_device: 3", "devices: found 2; allowed: at most 1, as platform cpu pins "),
    ("platform: cuda, cores_per_device: 4", "cores_per_device: found with platform cuda; allowed: with "),
    ("devices: all", "devices: found "),
    ("devices: auto, platform: cuda", "devices: found auto with platform cuda; allowed: with platform cpu"),
    (
        "devices: auto, cores_per_device: 2",
        "cores_per_device: found with devices: auto; allowed: with numbers of devices",
    ),
    (
        "devices: auto, profile: {widths: [2]}",
        "profile.widths: found with devices: auto; allowed: with numbers of devices",
    ),
    ("profile: {widths: [2]}, platform: cuda", "profile.widths: found with platform cuda; allowed: with platform cpu"),
    ("profile: {widths: [4]}", "profile.widths: found 4; allowed: at most 2, the largest number of devices"),
    ("profile: {widths: [1]}", "profile.widths[0]: found 1; allowed: at least 2"),
    ("profile: {widths: [2, 2]}", "profile.widths: "),
    ("devices: [2]", "devices: found [2]; allowed: numbers with 1 among them, because algorithms.sequential schedules"),
    ("execute: {runs: -1}", "execute.runs: found -1; allowed: at least 1"),
    ("execute:", "execute: found null; allowed: object"),
    ("execute: {tolerance: .nan}", "execute.tolerance: found nan; allowed: a finite"),
    ("results: 'a/{b}'", 'results: found "a/{b}"; allowed: text matching'),
    ("algorithms: {no: {}}", "algorithms: found the key False, which YAML reads as bool"),
    ("results: 2024-01-01", "results: found 2024-01-01, which YAML"),
    ("results: .", "results: found .; allowed: a folder of its own"),
    ("results: a/..", "results: found a/..; allowed: a folder of its own"),
    ("results: ../..", "results: found ../..; allowed: a folder of its own"),
    (
        "execute: {baselines: [eager, cudagraph]}",
        "execute.baselines: found cudagraph; allowed on platform cpu: eager, compile, onnxruntime, openvino",
    ),
    (
        "execute: {baselines: [onnxruntime]}, platform: cuda",
        "execute.baselines: found onnxruntime; allowed on platform cuda: eager, compile, cudagraph, ",
    ),
    ("platform: tpu", 'platform: found "tpu"; allowed: one of "cpu"'),
    ("platform: model", "gpu: missing; required with platform model"),
    ("gpu: a40", "gpu: found with platform cpu; allowed: with platform model"),
    ("platform: cuda, link: pcie", "link: found with platform cuda; allowed"),
    ("platform: model, gpu: a40, virtual: true", "virtual: found true; allowed with platform model: false"),
    (
        "algorithms: {sequential: {}, auto: {}}, platform: model, gpu: a40",
        "algorithms: found auto, which chooses by measurements",
    ),
    ("algorithms: {auto: {}}", "algorithms.auto: found auto alone; allowed: together with other algorithms, "),
    ("algorithms: {auto: {window: 2}, greedy: {}}", "algorithms.auto: found the algorithm auto with"),
    ("algorithms: {a: {algorithm: auto}, greedy: {}}", "algorithms.a: found the algorithm auto with"),
    (
        "algorithms: {auto: {}, greedy: {}}, execute: {runs: 11}",
        "algorithms.auto: execute.runs: found 11; allowed with auto: at least 12, as every other one chooses",
    ),
    ("profile: {stages_of: [auto]}", "profile.stages_of[0]: auto is chosen by measurement: "),
    ("algorithms:", "(whole file): algorithms is missing; required: models, algorithms"),
    (
        "algoritms: {ios: {}}, algorithms:",
        "(whole file): unknown key algoritms (did you mean algorithms?); allowed: algorithms, ",
    ),
]


@pytest.mark.parametrize(("text", "expected"), BAD)
def test_bad_configuration(models: Path, text: str, expected: str) -> None:
    """A bad configuration is refused in one line that names file, field and what is allowed."""
    changes = yaml.safe_load(f"{{{text}}}")
    data = {key: value for key, value in {**SMALL, **changes}.items() if value is not None or key == "execute"}
    with refused(f"my.yaml: {expected}"):
        config.resolve(data, "my.yaml", cores=4, models=models)


@pytest.mark.parametrize(("data", "shown"), [(None, "null"), (["models"], '["models"]')])
def test_a_configuration_that_is_no_mapping(data: Any, shown: str) -> None:
    """Such as an empty file."""
    with refused(f"my.yaml: (whole file): found {shown}; allowed: object (What the pipeline compares, and how)"):
        config.resolve(data, "my.yaml")


@pytest.mark.parametrize("given", ["./out/put", "out//put", "out/./put", "out/x/../put"])
def test_one_name_of_the_results(models: Path, given: str) -> None:
    """However the folder is written, paths in it begin the same: Snakemake compares them as text."""
    settings = config.resolve({**SMALL, "results": given}, "my.yaml", models=models)
    assert settings.results == "out/put"
    assert set(session_files(settings, "networks")) == {f"out/put/{label}/run.json" for label in settings.models}
    predicted = session_files(settings, "predictions/networks")
    assert set(predicted) == {f"out/put/{label}/predicted.json" for label in settings.models}


@pytest.mark.parametrize("below", ["", "/run", "/run/1"])
def test_results_in_place_of_a_file(models: Path, tmp_path: Path, below: str) -> None:
    """A file cannot become the folder of the results, nor a folder above it; an existing folder can."""
    (tmp_path / "taken").touch()
    with pytest.raises(HiosError) as caught:
        config.resolve({**SMALL, "results": f"{tmp_path}/taken{below}"}, "my.yaml", models=models)
    assert str(caught.value) == (
        f"my.yaml: results: found {tmp_path}/taken, which is a file; allowed: a folder, or a name not taken"
    )
    assert config.resolve({**SMALL, "results": str(models)}, "my.yaml", models=models).results == str(models)


@pytest.mark.slow
def test_folders_beside_the_networks_are_no_labels(finished: Checkout) -> None:
    """The labels refused for networks are the folders that runs make beside those of networks, figures drawn too."""
    made = {path.name for path in (finished.path / "results").iterdir() if path.is_dir()} - {"alpha", "beta"}
    assert made | {"figures", "serving", "study"} == set(
        artifacts.schema("config")["properties"]["models"]["propertyNames"]["not"]["enum"]
    )


def test_no_models_yet(tmp_path: Path) -> None:
    """With an empty folder the message says so."""
    with pytest.raises(HiosError, match="unknown model net; allowed: none yet"):
        config.resolve(SMALL, "my.yaml", models=tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seed: 1\nmodels:\n  a: {}\nseed: 2\n", "line 4: key seed is given again; allowed: once (it is on line 1)"),
        ("models:\n  a: {}\n  a: {}\n", "line 3: key a is given again; allowed: once (it is on line 2)"),
        ("- a: 1\n  a: 2\n", "line 2: key a is given again"),
        ("models: [\n", "line 2: not valid YAML"),
        ("a: \x07\n", "not valid YAML"),
        ("- b\n- &a [*a]\n", "line 2: not valid YAML (an anchor is used within its own value)"),
        ("- &a {b: *a}\n", "line 1: not valid YAML (an anchor is used within its own value)"),
        ("- &a {b: [{c: *a}]}\n", "line 1: not valid YAML (an anchor is used within its own value)"),
        ("&a {? [*a] : 1}\n", "line 1: not valid YAML (an anchor is used within its own value)"),
        ("? [a]\n: 1\n", "line 1: not valid YAML (found unhashable key)"),
        ("b: 1\na: !!python/object:os.system x\n", "line 2: not valid YAML (could not determine a constructor for "),
        ("a: 2020-99-99\n", "not valid YAML (a value does not fit its type: "),
        ("a: !!bool maybe\n", "not valid YAML (a value does not fit its type: "),
        ("a: !!timestamp maybe\n", "not valid YAML (a value does not fit its type: "),
        ("[" * 5000, "nested too deeply; allowed: at most 100 levels"),
        ("[" * 2000 + "]" * 2000, "nested too deeply; allowed: at most 100 levels"),
    ],
)
def test_bad_yaml(tmp_path: Path, text: str, expected: str) -> None:
    """Keys given twice, broken YAML and what cannot be read as a value are refused in one line with file and place."""
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with refused(f"{path}: {expected}", kind=ArtifactError):
        read_yaml(path)


def test_unreadable_file(tmp_path: Path) -> None:
    """A missing file and one that is not text are named."""
    with pytest.raises(ArtifactError, match=r"config.yaml: cannot be read: No such file"):
        read_yaml(tmp_path / "config.yaml")
    (tmp_path / "config.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ArtifactError, match="byte 0 is not UTF-8; expected YAML"):
        read_yaml(tmp_path / "config.yaml")


def test_anchors_are_no_repetition(tmp_path: Path) -> None:
    """YAML's anchors and merge keys pass."""
    path = tmp_path / "config.yaml"
    path.write_text("a: &x {b: 1}\nc: {<<: *x, b: 2}\nd: [*x, *x]\n1: 3\n")
    assert read_yaml(path) == {"a": {"b": 1}, "c": {"b": 2}, "d": [{"b": 1}, {"b": 1}], 1: 3}


def test_anchors_that_nest_deeply(tmp_path: Path) -> None:
    """Anchors make a deep value of a flat text; it is refused, too."""
    path = tmp_path / "config.yaml"
    path.write_text("- &a0 [1]\n" + "".join(f"- &a{number + 1} [*a{number}]\n" for number in range(2000)))
    with pytest.raises(HiosError, match=r"100,000 values, those that aliases stand for included"):
        config.resolve(read_yaml(path), "my.yaml")


def test_usable_cores() -> None:
    """There is at least one core to use."""
    assert len(description.usable_cores()) >= 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("repeats: 3", "(whole file): unknown key repeats"),
        ("models: {delta: {}}", "models.delta: unknown model delta"),
        ("algorithms: {hios: {}}", "algorithms.hios: unknown algorithm hios"),
        ("devices: [0]", "devices[0]: found 0"),
        ("devices: [1, 10000]", "devices: found 10000"),
        ("execute: {runs: -1}", "execute.runs: found -1"),
        ("platform: model, gpu: a41", "gpu: found a41; allowed: a100-pcie-40gb, a40, "),
        ("platform: model, gpu: rtx3080, link: nvlink", "link: found nvlink; allowed with gpu rtx3080: pcie"),
    ],
)
def test_snakemake_refuses(unrun: Checkout, text: str, expected: str) -> None:
    """Snakemake ends with the one line, not with a traceback."""
    refusal = unrun.refusal("--configfile", unrun.config("bad.yaml", **yaml.safe_load(f"{{{text}}}")))
    profile, message = refusal.strip().splitlines()
    assert profile.startswith("Using workflow specific profile")
    assert message.startswith(f"Error: bad.yaml: {expected}")
    assert "; allowed" in message


@pytest.mark.parametrize(
    ("text", "message"), [("seed: 1\nseed: 1\n", "line 2: key seed"), ("", "(whole file): found null; allowed: object")]
)
def test_snakemake_refuses_broken_yaml(checkout: Checkout, text: str, message: str) -> None:
    """A key given twice in config.yaml and an empty one end Snakemake with the one line, too."""
    (checkout.path / "config.yaml").write_text(text)
    assert f"Error: config.yaml: {message}" in checkout.refusal()


def test_value_from_the_command_line(unrun: Checkout) -> None:
    """Values of --config are checked like those of the file."""
    refusal = unrun.refusal("--config", "seed=-1")
    assert "Error: config.yaml and --config: seed: found -1; allowed: at least 0" in refusal
