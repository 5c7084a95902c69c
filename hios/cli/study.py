"""``hios study``: the sessions that figures of the papers are drawn from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

from hios.cli.options import PATH, check_outputs, output_option, settings_options
from hios.core.graph import Graph
from hios.errors import HiosError
from hios.files.artifacts import write
from hios.formats.config import ConvolutionStudy, SimulationDefaults, SimulationStudy, TopStudy
from hios.formats.study import Experiment, Setting
from hios.serving.scenario import Scenario
from hios.study.gpu_targets import TARGETS
from hios.study.random_graphs import GENERATORS
from hios.study.sessions import CONVOLUTION_SIZES


def _setting_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options of a setting of HIOS's simulation, as the configuration has them."""
    unexplained = dict.fromkeys(("devices", "operators", "edges", "layers"), "")
    texts = {"seed": "Seed of the first graph.", "alpha": "Share of serialization of the contention model."}
    for option in (
        settings_options(SimulationStudy, "seed", "alpha", texts=texts, ranges=True),
        click.option("--instances", type=click.IntRange(1), default=3, show_default=True, help="Random graphs."),
        settings_options(SimulationDefaults, texts=unexplained, ranges=True),
    ):
        function = option(function)
    return function


@click.group("study", short_help="Run a session that figures of the papers are drawn from.")
def study_command() -> None:
    """Run a session that figures of the papers are drawn from; `hios figures` lists these."""


def _settings(usual: Mapping[str, Any], texts: Iterable[str]) -> list[Setting]:
    """What ``--setting`` says, with the values of the other options where it says nothing; these alone without it."""
    settings = [_changed(usual, text) for text in texts] or [dict(usual)]
    try:
        return [msgspec.convert(setting, Setting) for setting in settings]
    except msgspec.ValidationError as error:
        raise HiosError(f"--setting: {error}") from None


def _changed(usual: Mapping[str, Any], text: str) -> dict[str, Any]:
    changed = dict(usual)
    for part in text.split(","):
        key, _, value = part.partition("=")
        if key not in usual:
            raise HiosError(f"--setting: found {part}; allowed: {', '.join(f'{name}=NUMBER' for name in usual)}")
        try:
            changed[key] = float(value) if key == "p" else int(value)
        except ValueError:
            raise HiosError(f"--setting: {key}: found {value!r}; allowed: a number") from None
    return changed


@study_command.command("simulation")
@output_option("simulation.json")
@_setting_options
@click.option(
    "--setting",
    "settings",
    multiple=True,
    metavar="NAME=VALUE,...",
    help="Values in place of those of the options above, such as devices=4,p=0.8. May be given more than once; "
    "settings of the same graphs share what does not differ. --output is then a folder, with a file for each.",
)
@settings_options(
    SimulationStudy,
    "window",
    "moves",
    texts={
        "window": "Window of hios-lp and hios-mr.",
        "moves": "Moves of each search chain of hios-opt, in place of a time limit.",
    },
    ranges=True,
)
def simulation(
    output: Path,
    instances: int,
    seed: int,
    alpha: float,
    window: int,
    moves: int,
    settings: tuple[str, ...],
    **usual: Any,
) -> None:
    """Run every algorithm on random graphs of settings of HIOS's simulation (section V)."""
    from hios.study.simulation import simulate

    chosen = _settings(usual, settings)
    files = [output / f"{setting.name}.json" if settings else output for setting in chosen]
    check_outputs([], dict.fromkeys(files))
    seeds = range(seed, seed + instances)
    for file, result in zip(files, simulate(chosen, seeds, window=window, alpha=alpha, moves=moves), strict=True):
        write(file, "simulation", result)
        click.echo(f"{file}: {instances} instance(s) of {result.setting.name}, {result.cpu_s:.1f} s of processor time")


@study_command.command("ablation")
@output_option("ablation.json")
@_setting_options
@click.option("--generator", required=True, help="Function of hios.study.random_graphs that draws the graphs.")
def ablation(output: Path, instances: int, seed: int, alpha: float, generator: str, **setting: Any) -> None:
    """Find how much each deviation of the program released by HIOS's authors changes its numbers."""
    from hios.study.simulation import ablate

    if generator not in GENERATORS:
        raise HiosError(f"--generator: found {generator}; allowed: {', '.join(GENERATORS)}")
    check_outputs([], [output])
    result = ablate(Setting(**setting), generator, range(seed, seed + instances), alpha=alpha)
    write(output, "ablation", result)
    click.echo(f"{output}: {instances} instance(s), {result.cpu_s:.1f} s of processor time")


@study_command.command("convolutions")
@output_option("convolutions.json")
@click.option(
    "--size",
    "sizes",
    type=click.IntRange(1),
    multiple=True,
    default=CONVOLUTION_SIZES["quick"],
    show_default=True,
    help="Height and width of the images in pixels. May be given more than once.",
)
@settings_options(ConvolutionStudy, "channels", "repeats", texts={"channels": ""}, ranges=True)
def convolutions(output: Path, sizes: tuple[int, ...], channels: int, repeats: int) -> None:
    """Convolutions alone on two cores: at once, one after the other, and handing their outputs over."""
    from hios.study.convolutions import measure

    check_outputs([], [output])
    timings = measure(sorted(set(sizes)), channels=channels, repeats=repeats)
    write(output, "convolutions", timings)
    click.echo(f"{output}: {len(timings.sizes)} image size(s), {timings.seconds:.1f} s")


@study_command.command("top")
@click.argument("experiment", type=click.Choice(get_args(Experiment)))
@click.argument("scenarios", nargs=-1, required=True, type=PATH)
@output_option("top.json")
@click.option(
    "--label", "labels", multiple=True, help="Label of each scenario, in order; the name of its file if left out."
)
@click.option("--gpu", default="", help="GPU that costs of batches and of folders are predicted for.")
@click.option(
    "--train-on",
    multiple=True,
    metavar="MODEL",
    help="Experiment gpg: train on this model, and compare models that are not named as unseen ones. May be given more "
    "than once; default: all.",
)
@settings_options(
    TopStudy,
    texts={**dict.fromkeys(TopStudy.__struct_fields__, ""), "steps": "Training steps of GPG."},
    spelled={"batches": "--batch", "gpus": "--stages-gpu", "loads": "--top-load"},
    ranges=True,
)
def top(
    experiment: Experiment,
    scenarios: tuple[Path, ...],
    output: Path,
    labels: tuple[str, ...],
    gpu: str,
    train_on: tuple[str, ...],
    **varied: Any,
) -> None:
    """Carry out an experiment of TOP on scenarios of several models, in the simulator.

    For gpg, a scenario may also be a folder with the graphs MODEL/graph.json, whose costs are predicted for --gpu.

    Options that are not explained here are those of `study: top:` in config.yaml.
    """
    from hios.study.top_experiments import scenario_of_graphs
    from hios.study.top_learning import run

    names = labels or tuple(path.stem for path in scenarios)
    if len(names) != len(scenarios) or len(set(names)) < len(names):
        raise HiosError(f"--label: found {', '.join(names) or 'none'}; required: a label of its own for each scenario")
    check_outputs(scenarios, [output])
    for path in scenarios:
        if path.is_dir() and experiment != "gpg":
            raise HiosError(f"{path}: found a folder; required for {experiment}: scenario.yaml, as rates matter")
    given = {
        name: scenario_of_graphs(path, gpu) if path.is_dir() else Scenario.read(path)
        for name, path in zip(names, scenarios, strict=True)
    }
    study = run(experiment, given, TopStudy(**varied), gpu, train_on=train_on)
    write(output, "top-study", study)
    click.echo(f"{output}: {len(study.points)} point(s), simulated, {study.cpu_s:.1f} s of processor time")


@study_command.command("predict")
@click.argument("graph", type=PATH)
@output_option("predicted.json")
@click.option(
    "--for",
    "targets",
    type=click.Choice(list(TARGETS)),
    multiple=True,
    default=tuple(TARGETS),
    show_default=True,
    help="Papers whose GPUs to predict for. May be given more than once.",
)
def predict(graph: Path, output: Path, targets: tuple[str, ...]) -> None:
    """Predict the schedules of GRAPH on the GPUs of the papers, from their data sheets; nothing runs."""
    from hios.study.gpu_predictions import predict_targets

    check_outputs([graph], [output])
    made = predict_targets(Graph.read(graph), dict.fromkeys(targets))
    write(output, "predicted", made)
    summary = made.missing or f"predicted for {', '.join(entry.platform.gpu or '' for entry in made.predictions)}"
    click.echo(f"{output}: {summary}, {made.seconds:.1f} s")
