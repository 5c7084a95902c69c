"""Several models on one device: ``hios serve`` answers clients, ``hios load`` measures, ``hios simulate`` predicts.

``hios train`` learns on the models of a scenario: stages (algorithm gpg), or a launcher.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from click.core import ParameterSource

from hios.cli.files import scenario_of
from hios.cli.options import (
    PATH,
    check_outputs,
    output_option,
    serving_options,
    settings_options,
    trust_option,
)
from hios.core.problem import Problem
from hios.errors import HiosError, warn
from hios.files.artifacts import write
from hios.formats.serving_result import ServingRuntime
from hios.formats.settings import Settings, TrainingSettings, TrainingSize
from hios.schedulers.gpg import TRAINING
from hios.serving.scenario import Scenario

if TYPE_CHECKING:
    from hios.schedulers.policy.training import StageTime
    from hios.serving.launcher.launcher_settings import LauncherSettings


runtime_option = click.option(
    "--runtime",
    type=click.Choice(get_args(ServingRuntime)),
    help="Run the programs of the models as a whole in this runtime, without weights: with --policy one-per-lane a "
    "session on every lane, with sequential one on one lane, with threads one on all cores. It may answer inputs that "
    "the model refuses, such as words beyond the vocabulary.",
)


@click.command("load")
@click.argument("path", metavar="SCENARIO", type=PATH)
@click.option(
    "--policy",
    help="Any policy of hios simulate, or auto: the best one in the simulator on other traces. Give --calibration, so "
    "that the simulator predicts this machine. Not needed with --calibrate.",
)
@click.option(
    "--calibrate",
    is_flag=True,
    help="Measure for about a minute what the simulator needs to predict this machine, and write calibration.json, "
    "which `hios simulate`, `hios load --policy auto` and `hios train` take.",
)
@serving_options()
@output_option("result.json")
@click.option("--trace", type=PATH, help="Chrome/Perfetto trace to write: what ran on which lane, and each request.")
@click.option(
    "--metrics",
    type=PATH,
    help="File for counters and latencies in the text format of Prometheus, written at the end and on SIGUSR1.",
)
@settings_options(
    Settings,
    "virtual",
    "tolerance",
    "timeout_s",
    texts={
        "virtual": "Let lanes share cores if there are too few. Only for trying things out, as times then mean little.",
        "tolerance": "Allowed difference of outputs.",
        "timeout_s": "Longest time of one run of a block, in seconds; a lane that takes longer is started again.",
    },
)
@runtime_option
@click.option(
    "--platform",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Run on cores, or on the first GPU, for which the costs have to be.",
)
@trust_option
def load_command(
    path: Path,
    policy: str | None,
    calibrate: bool,
    launcher: str | None,
    load: float,
    weights: Path | None,
    calibration: Path | None,
    output: Path,
    trace: Path | None,
    metrics: Path | None,
    runtime: str | None,
    platform: str,
    trust: bool,
    **measuring: Any,
) -> None:
    """Run the tasks of SCENARIO on this machine's cores, or its GPU, and measure latencies and losses.

    `hios simulate` predicts them without running anything, `hios serve` answers other programs in the same way, and
    `hios train` trains launchers.
    """
    if calibrate and calibration is not None:
        raise click.UsageError("--calibration: found with --calibrate; allowed: one of them.")
    _require_choice(path, policy, launcher, calibration)
    scenario = scenario_of(path, load, weights, calibration)
    check_outputs([path, calibration, *scenario.files], [output, trace, metrics])
    if calibrate:
        on_gpu = platform if platform != "cpu" else None
        beside = {
            "--policy": policy,
            "--trace": trace,
            "--metrics": metrics,
            "--runtime": runtime,
            "--platform": on_gpu,
        }
        _calibrate(scenario, beside, output, virtual=measuring["virtual"], timeout_s=measuring["timeout_s"])
        return
    if policy is None:
        raise click.UsageError("Missing option '--policy'; required unless --calibrate is given.")
    for model in scenario.models:
        if model.program is None:
            warn(
                f"{scenario.source}: models.{model.label}.program: missing; outputs are only compared with those of a "
                "single inference by hios itself"
            )
    from hios.serving.load import load as run
    from hios.serving.tables import result_table

    gpu = None
    if platform == "cuda":
        from hios.serving.gpu_lane import first_gpu

        gpu = first_gpu()
    with _shown(metrics) as show:
        loaded = run(
            scenario,
            policy,
            launcher=launcher,
            trusted=trust,
            show=show,
            trace=trace,
            tell=_tell,
            runtime=runtime,
            gpu=gpu,
            **measuring,
        )
        # Inside, so that metrics that cannot be written at the end do not take the result with them.
        write(output, "result", loaded.result)
        click.echo(result_table(loaded.result))
        click.echo(
            f"control (launcher, dispatch, results): {loaded.result.control_share or 0:.1%} of the time that lanes "
            f"were busy; load generator: {loaded.generator_share:.1%}; values between blocks: {loaded.memory_mb:.1f} MB"
        )
        if loaded.wrong:
            click.echo(f"first failure: {loaded.wrong}", err=True)
        if loaded.unwritten:
            raise HiosError(loaded.unwritten)


def _require_choice(path: Path, policy: str | None, launcher: str | None, calibration: Path | None) -> None:
    """Refuse a calibration where there is nothing to choose."""
    if calibration is None or policy is None:
        return
    if "auto" not in (policy, launcher or Scenario.read(path).file.launcher):
        raise click.UsageError(
            f"--calibration: found with --policy {policy}; allowed: with --policy auto or --launcher auto, which it "
            "helps to choose."
        )


@contextlib.contextmanager
def _shown(metrics: Path | None) -> Iterator[Callable[..., None]]:
    """What shows a server: the table on the terminal, after the file of metrics, which is written at the end too."""
    from hios.serving.metrics import LiveTable, MetricsFile

    table = LiveTable()
    if metrics is None:
        yield table.show
        return
    written = MetricsFile(metrics)
    written.listen()

    def show(*served: Any) -> None:
        written.show(*served)
        table.show(*served)

    try:
        yield show
    finally:
        written.write()


def _calibrate(
    scenario: Scenario, beside: Mapping[str, object], output: Path, *, virtual: bool, timeout_s: float
) -> None:
    for name, value in beside.items():
        if value is not None:
            raise click.UsageError(f"{name}: found with --calibrate; allowed: one of them.")
    from hios.serving.calibrate import calibrate
    from hios.serving.tables import calibration_table

    measured = calibrate(
        scenario, virtual=virtual, timeout_s=timeout_s, show=lambda text: click.echo(f"measuring {text}", err=True)
    )
    write(output, "calibration", measured)
    click.echo(calibration_table(measured))


@click.command("serve")
@click.argument("path", metavar="SCENARIO", type=PATH)
@click.option(
    "--policy",
    default="auto",
    show_default=True,
    help="Any policy of hios simulate, or auto: the best one in the simulator on tasks that arrive as SCENARIO says. "
    "Give --calibration, so that the simulator predicts this machine.",
)
@serving_options()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; see SECURITY.md.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port to listen on; 0: a free one."
)
@settings_options(
    Settings,
    "virtual",
    "timeout_s",
    texts={
        "virtual": "Let lanes share cores if there are too few. Only for trying things out.",
        "timeout_s": "Longest time of one run of a block, in seconds; a lane that takes longer is started again.",
    },
)
@runtime_option
@trust_option
def serve_command(
    path: Path,
    policy: str,
    launcher: str | None,
    load: float,
    weights: Path | None,
    calibration: Path | None,
    host: str,
    port: int,
    virtual: bool,
    timeout_s: float,
    runtime: str | None,
    trust: bool,
) -> None:
    """Serve the models of SCENARIO over HTTP, by the Open Inference Protocol, until SIGTERM or Ctrl-C.

    Clients send the tasks; rates and arrivals of SCENARIO only help --policy auto to choose. Requests under way are
    answered before the server ends. `hios load` measures such a server on tasks of its own, and `hios simulate`
    predicts it without running anything.
    """
    _require_choice(path, policy, launcher, calibration)
    from hios.serving.http_server import HttpServer
    from hios.serving.load import in_runtime
    from hios.serving.server import Server

    scenario = scenario_of(path, load, weights, calibration)
    whole = None if runtime is None else in_runtime(scenario, policy, runtime, trust)
    with Server(scenario, policy, launcher=launcher, virtual=virtual, timeout_s=timeout_s, whole=whole) as server:
        front = HttpServer(server, host, port)
        click.echo(f"{front.address} serves {', '.join(scenario.number)} by {server.policy}")
        front.run()
        server.close(drain=False)  # what is still under way has been answered with 503, or its client has gone


@click.command("simulate")
@click.argument("path", metavar="SCENARIO", type=PATH)
@click.option(
    "--policy",
    required=True,
    help="sequential, one-per-lane, threads, ios, nimble, opara, hios-lp, the POS-like pos-strict, "
    "pos-relaxed, pos-strict-per-lane and pos-relaxed-per-lane, top, top-open, shortest-first; with --weights also "
    "learned and learned-static; auto: the best of them on other traces, but no strict one; all: each of them.",
)
@serving_options("all")
@output_option("result.json")
def simulate_command(
    path: Path,
    policy: str,
    launcher: str | None,
    load: float,
    weights: Path | None,
    calibration: Path | None,
    output: Path,
) -> None:
    """Simulate the tasks of SCENARIO under a policy: nothing runs, and times are those of costs.json.

    `hios load` runs the same tasks on this machine, `hios serve` runs those that other programs ask for, and `hios
    train` trains the launchers that --weights names.

    With --policy all or --launcher all, the terminal shows a table of all policies and launchers, and --output is a
    folder, with a file POLICY-LAUNCHER.json for each.
    """
    from hios.serving.simulate import ALL, simulate, simulate_grid
    from hios.serving.tables import grid_table, result_table

    several = ALL in (policy, launcher)
    if several and output.exists() and not output.is_dir():
        raise HiosError(f"--output: found the file {output}; required with all: a folder, with a file for each result")
    scenario = scenario_of(path, load, weights, calibration)
    inputs = [path, calibration, *scenario.files]
    check_outputs(inputs, [output / "result.json" if several else output])
    for model in scenario.models:
        if model.problem.disturbed:
            warn(f"{model.costs.source}: {model.problem.disturbed}; profile again on an idle machine")
    if several:
        grid = simulate_grid(scenario, policy, launcher, tell=_tell)
        files = {output / f"{name}-{used}.json": result for (name, used), result in grid.results.items()}
        check_outputs(inputs, files)
        for file, result in files.items():
            write(file, "result", result)
        click.echo(grid_table(grid))
        return
    result = simulate(scenario, policy, launcher=launcher, tell=_tell)
    write(output, "result", result)
    click.echo(result_table(result))


def _tell(text: str) -> None:
    click.echo(text, err=True)


#: Options that only the training of one kind takes.
_OF_STAGES = ("most", "r", "s", "reward")
_OF_LAUNCHERS = ("size", "changes", "as_printed", "load", "calibration")


@click.command("train", epilog="Deviations from TOP:\n\n" + "\n\n".join(TRAINING))
@click.argument("files", metavar="SCENARIO | GRAPH COSTS [GRAPH COSTS]...", type=PATH, nargs=-1, required=True)
@output_option("policy.safetensors")
@click.option(
    "--learn",
    type=click.Choice(["stages", "launcher"]),
    default="stages",
    show_default=True,
    help="Stages of blocks, for the algorithm gpg; or a launcher of tasks with combined blocks, for a scenario served.",
)
@click.option(
    "--steps", type=click.IntRange(1), help="Training steps; default: 6000 for stages, by --size for a launcher."
)
@click.option(
    "--size",
    type=click.Choice(get_args(TrainingSize)),
    default="default",
    show_default=True,
    help="Amount of training of a launcher.",
)
@click.option("--set", "changes", metavar="NAME=VALUE", multiple=True, help="Another setting of a launcher's training.")
@click.option("--as-printed", is_flag=True, help="Train a launcher by Algorithm 1 of TOP as it is printed.")
@click.option("--load", type=float, default=1.0, show_default=True, help="Factor for the rates of a scenario.")
@click.option(
    "--calibration",
    type=PATH,
    help="calibration.json that `hios load --calibrate` wrote: trains a launcher for this machine.",
)
@settings_options(TrainingSettings, "most", "r", "s", "reward", "seed", spelled={"most": "--sub-blocks"}, ranges=True)
@click.pass_context
def train_command(
    context: click.Context,
    /,
    files: tuple[Path, ...],
    output: Path,
    learn: str,
    steps: int | None,
    size: str,
    changes: tuple[str, ...],
    as_printed: bool,
    load: float,
    calibration: Path | None,
    **learning: Any,
) -> None:
    """Train a policy for the algorithm gpg on random combinations of the blocks of some models, or a launcher.

    The models are those of SCENARIO, a scenario.yaml; or each is given by its GRAPH and its COSTS. `hios schedule
    --algorithm gpg --weights policy.safetensors` uses the policy, for these models and others.

    With `--learn launcher`, agents learn in the simulator how fast tasks of SCENARIO leave their queues, and which
    blocks run together. `hios simulate SCENARIO --policy learned --weights policy.safetensors` uses what they learned.
    """
    # The matrices are small: several threads gain little, and lose much where other programs use the cores. And with
    # one thread, sums are added up in the same order on every number of cores.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    others = _OF_STAGES if learn == "launcher" else _OF_LAUNCHERS
    for option in context.command.params:
        if option.name in others and context.get_parameter_source(option.name) is not ParameterSource.DEFAULT:
            other = "stages" if learn == "launcher" else "launcher"
            raise click.UsageError(f"{option.opts[0]}: found with --learn {learn}; allowed: with --learn {other}")
    if learn == "launcher":
        from hios.serving.launcher.launcher_settings import AS_PRINTED, settings_of

        if len(files) > 1:
            raise click.UsageError(f"found {len(files)} files; allowed: with --learn launcher, a scenario alone")
        scenario = scenario_of(files[0], load, calibration=calibration)
        own = scenario.folder / scenario.file.top.weights  # training again replaces it
        check_outputs([*files, calibration, *(file for file in scenario.files if file != own)], [output])
        printed = AS_PRINTED if as_printed else {}
        launcher_settings = settings_of(size, _changes(changes), **printed, steps=steps, seed=learning["seed"])
        _train_launcher(scenario, output, launcher_settings)
        return
    from hios.schedulers.policy.network import write_policy
    from hios.schedulers.policy.training import train

    if len(files) > 1 and len(files) % 2:
        raise click.UsageError(
            f"found {len(files)} files; allowed: a scenario alone, or a graph and its costs for each model, in turns"
        )
    problems, stage_time, read = _problems(files)
    check_outputs(read, [output])
    settings = TrainingSettings(**learning) if steps is None else TrainingSettings(steps=steps, **learning)
    count = settings.steps

    def progress(step: int, share: float | None) -> None:
        if share is not None:
            click.echo(f"step {step} of {count}: {share:.4f} of the sequential latency", err=True)

    trained = train(problems, settings, progress, stage_time)
    write_policy(output, trained.weights, trained.facts)
    step, share = min(trained.curve, key=lambda point: point[1])
    click.echo(
        f"{output}: {share:.4f} of the sequential latency in the mean of random combinations, after {step} of {count} "
        "steps"
    )


def _changes(texts: Sequence[str]) -> dict[str, str]:
    """Values by name, of texts NAME=VALUE."""
    changes = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"--set: found {text}; allowed: NAME=VALUE")
        changes[name] = value
    return changes


def _train_launcher(scenario: Scenario, output: Path, settings: LauncherSettings) -> None:
    """Train a launcher on a scenario, and say what it is good for."""
    from msgspec import convert

    from hios.formats.serving_result import ComparedPolicy
    from hios.serving.launcher.training import train_launcher
    from hios.serving.tables import candidates_table

    def progress(step: int, goodput: float | None) -> None:
        if goodput is not None:
            click.echo(f"step {step} of {settings.steps}: goodput {goodput:.4g} tasks/s", err=True)

    launcher = train_launcher(scenario, settings, progress)
    launcher.write(output)
    click.echo("\n".join(candidates_table([convert(entry, ComparedPolicy) for entry in launcher.facts["candidates"]])))
    click.echo(f"{output}: on held-out traces the best policy is {launcher.facts['deployed']}")


def _problems(files: Sequence[Path]) -> tuple[dict[str, Problem], StageTime | None, list[Path]]:
    """The models of a scenario by label, with times of stages on its lanes; or of graphs and costs in turns by name.

    The last are all files that they come from.
    """
    if len(files) == 1:
        from hios.serving.top_pipeline import stages_to_learn

        scenario = Scenario.read(files[0])
        own = scenario.folder / scenario.file.top.stage_policy  # training again replaces it
        return *stages_to_learn(scenario), [*files, *(file for file in scenario.files if file != own)]
    problems: dict[str, Problem] = {}
    for graph, costs in zip(files[::2], files[1::2], strict=True):
        problem = Problem.read(graph, costs)
        name = problem.graph.name or str(graph)
        if name in problems:
            raise HiosError(f"{graph}: name: found {name}, as in another graph; allowed: each model once")
        problems[name] = problem
    return problems, None, list(files)
