"""hios: where and when each operator of a neural network should run.

The package is layered; a module imports only from layers above its own, and in its layer from the left:

    errors machine charts files workers    what all use: messages, the machine, charts, files, processes
    core                             the problem and its solution: graph, costs, schedule, evaluator, checker, bounds
    formats schedulers               one class per file of the layers below; one algorithm per file, one registry
    kernels frontends                Relax operator -> torch call; torch.export and ONNX -> Relax -> graph
    platforms                        one folder per platform: devices, measuring, executing
    pipeline profiling runtime       config.yaml for the Snakefile; measuring and executing on any platform
    optimizing serving               from a torch model to the fastest way to run it; several models on one device
    report study                     pages and tables of results; figures and tables of the papers, which pages may show
    verify cli                       consistency of results, commands

This module has the stages of the pipeline as functions: objects in, objects out; no file is written. ``import hios``
is light: neither torch, TVM nor pandas is loaded; functions load what they need when they are called.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hios.machine.interrupts  # noqa: F401 before all that takes time
from hios.core.bounds import lower_bound_ms
from hios.core.check import violations
from hios.core.costs import Costs, CostsFile, predicted_for
from hios.core.evaluate import evaluate
from hios.core.graph import Edge, Graph, Operator
from hios.core.problem import Problem
from hios.core.schedule import Placement, Schedule, Solution, StagedPlan, StreamPlan
from hios.errors import HiosError, HiosWarning, naming_extras
from hios.files import option_defaults
from hios.formats.run import Run
from hios.platforms import entry, require_options
from hios.report import Report, report_of, report_of_predictions
from hios.report.results import ModelPredictions, ModelResults, model_predictions, model_results, told_apart
from hios.schedulers import ALGORITHMS, Parameter, register, schedule

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.export import ExportedProgram

    from hios.frontends.program import Program
    from hios.optimizing.optimize import optimize
    from hios.report.dataframes import Results, load_results

# isort: split


__version__ = "0.4.0"

__all__ = [
    "ALGORITHMS",
    "Costs",
    "CostsFile",
    "Edge",
    "Graph",
    "HiosError",
    "HiosWarning",
    "Operator",
    "Parameter",
    "Placement",
    "Problem",
    "Results",
    "Run",
    "Schedule",
    "Solution",
    "StagedPlan",
    "StreamPlan",
    "__version__",
    "evaluate",
    "execute",
    "export",
    "extract",
    "load_results",
    "lower_bound_ms",
    "optimize",
    "profile",
    "register",
    "report",
    "schedule",
    "violations",
]


#: Names imported on first use, as their modules load torch or pandas.
_LAZY = {
    "Results": "hios.report.dataframes",
    "load_results": "hios.report.dataframes",
    "optimize": "hios.optimizing.optimize",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with naming_extras(f"hios.{name}"):
        attribute = globals()[name] = getattr(importlib.import_module(_LAZY[name]), name)
    return attribute


def __dir__() -> list[str]:
    return [*globals(), *_LAZY]


@naming_extras("hios.export")
def export(
    model: str | nn.Module,
    inputs: Tensor | Sequence[Tensor] | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    trusted: bool = False,
) -> Program:
    """Export a model with torch.export.

    Parameters
    ----------
    model
        A module; or as text the name of a network of ``models/``, ``"package.module:function"``, or a ``.pt2`` file.
    inputs
        Example inputs of a module, or its only one; None for other models, which have their own.
    options
        Keyword arguments of the function that builds a network, such as ``{"image_size": 224}``.
    seed
        Of the random weights of a network of ``models/``.
    trusted
        Whether you trust who made a ``.pt2`` file, which then may run code when it is loaded.

    Returns
    -------
    Program
        ``exported`` is the ``torch.export.ExportedProgram``; ``write(path)`` saves it as ``program.pt2``.

    Raises
    ------
    HiosError
        An unknown model or option, or a model that cannot be exported.

    Examples
    --------
    >>> import torch, hios
    >>> program = hios.export(torch.nn.ReLU(), (torch.ones(3),))
    >>> type(program.exported).__name__
    'ExportedProgram'
    """
    from torch import Tensor

    from hios.frontends.export import export as run
    from hios.frontends.export import export_module

    if isinstance(model, str):
        if inputs is not None:
            raise HiosError(f"export: inputs: found with the model {model}; allowed: with a module only")
        return run(model, options or {}, seed=seed, trusted=trusted)
    if inputs is None or options:
        raise HiosError("export: found a module without inputs, or with options; required: a module and example inputs")
    return export_module(model, (inputs,) if isinstance(inputs, Tensor) else tuple(inputs))


@naming_extras("hios.extract")
def extract(
    program: Program | ExportedProgram | str | Path,
    *,
    name: str = "",
    units: str | None = None,
    below: Mapping[str, int] | None = None,
    trusted: bool = False,
) -> tuple[Graph, dict[str, Tensor]]:
    """Extract the optimized operator graph of a program through TVM Relax.

    Parameters
    ----------
    program
        What `export` returned, a program of torch.export, which is not changed, or a file ``.pt2`` or ``.onnx``.
    name
        Of the graph; that of the program, or of the file, if empty.
    units
        What counts as one operator: ``conv-relu``, ``relu-sepconv`` or ``operator``; if None, what the model declares.
    below
        Upper limits of integer inputs, such as tokens, by name: their values are smaller. If absent, what the model
        declares, or 2.
    trusted
        Whether you trust who made a ``.pt2`` file, which then may run code when it is loaded.

    Returns
    -------
    graph : Graph
        Operators with their calls, and edges with their bytes.
    weights : dict
        Tensors by name.

    Raises
    ------
    HiosError
        The program cannot be read, imported or run by the kernel table.

    Notes
    -----
    The graph is run once and compared with the program; one that computes something else is refused.

    Examples
    --------
    >>> import torch, hios
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU())
    >>> graph, weights = hios.extract(hios.export(model, (torch.ones(1, 3, 8, 8),)), name="small")
    >>> [operator.type for operator in graph.operators], sorted(weights)
    (['conv2d-relu'], ['0.bias', '0.weight'])
    """
    from hios.frontends.extract import extract as run
    from hios.frontends.program import Program

    if isinstance(program, str | Path):
        return run(program, name or Path(program).stem, units=units, below=below, trusted=trusted)
    if not isinstance(program, Program):
        from hios.frontends.export import of_torch

        program = of_torch(program)
    return run(program, name or program.name or "network", units=units, below=below)


@naming_extras("hios.profile")
def profile(
    graph: Graph,
    *,
    devices: int = 1,
    platform: str = "cpu",
    stages_of: Sequence[str] = option_defaults.STAGES_OF,
    repeats: int = option_defaults.REPEATS,
    budget_s: float = option_defaults.PROFILE_BUDGET_S,
    cache: bool | str | Path = True,
    virtual: bool = False,
    cores_per_device: int | None = None,
    widths: Sequence[int] = (),
    options: Mapping[str, str] | None = None,
) -> CostsFile:
    """Measure what the operators, stages and transfers of a graph cost, or predict it for GPUs that are not here.

    Parameters
    ----------
    graph
        With calls and shapes, as `extract` returns it.
    devices
        Number of devices.
    platform
        Where to measure: devices are cores (``cpu``) or GPUs (``cuda``). On ``model`` nothing is measured: costs are
        predicted from the description of a GPU.
    stages_of
        Algorithms whose stages are measured; times of other stages are estimated by the contention model.
    repeats
        Minimum number of measurements of each operator and stage.
    budget_s
        Seconds for repeating measurements until medians are known to within 2 %, and for measuring stages.
    cache
        Whether to reuse and save measurements across calls and networks; or the folder to cache them in.
    virtual
        Whether several devices may share a core or GPU if there are too few; times then mean little. Refused
        on ``model``.
    cores_per_device
        Cores of each device on ``cpu``, with a thread on each inside every operator; 1 if None. Groups follow the
        topology of the machine: separate physical cores that share a cache first.
    widths
        On ``cpu``: also measure operators on these numbers of devices at once. The costs then contain t(v, k) of the
        operators that gain.
    options
        Of the platform: for ``model`` the name of a GPU and of the link, or the path of a ``.yaml`` file, such as
        ``{"gpu": "a40", "link": "nvlink"}``; other settings than ``devices`` have no effect there. For every
        platform also ``{"contention": "resources"}``.

    Returns
    -------
    CostsFile
        What costs.json holds: times in milliseconds with their percentiles. ``Problem(graph, costs)`` takes it.

    Raises
    ------
    HiosError
        The graph cannot run, an algorithm is unknown, the platform does not have an option, there are too few devices,
        or a worker failed.

    Examples
    --------
    >>> import hios
    >>> graph, weights = hios.extract(hios.export("squeezenet", options={"image_size": 64}))  # doctest: +SKIP
    >>> costs = hios.profile(graph, devices=2)  # doctest: +SKIP
    >>> hios.schedule(hios.Problem(graph, costs), "hios-lp", devices=2).latency_ms  # doctest: +SKIP
    """
    from hios.formats.settings import ProfileEffort, checked

    effort = checked("profile", ProfileEffort, {"repeats": repeats, "budget_s": budget_s})
    require_options(platform, options or {}, virtual=virtual, cores_per_device=cores_per_device)
    if not entry(platform).executes:
        from hios.profiling.predict import predict

        return predict(graph, platform, devices, options or {})
    from hios.machine.terminal import on_terminals_only
    from hios.profiling.cache import chosen_folder
    from hios.profiling.profile import profile as run

    with on_terminals_only():
        return run(
            graph,
            devices=devices,
            repeats=effort.repeats,
            stages_of=stages_of,
            budget_s=effort.budget_s,
            cache=chosen_folder(cache),
            platform=platform,
            virtual=virtual,
            cores_per_device=cores_per_device,
            widths=widths,
            options=options,
        )


@naming_extras("hios.execute")
def execute(
    graph: Graph,
    weights: Mapping[str, Tensor] | str | Path,
    schedules: Schedule | Iterable[Schedule] | Mapping[str, Schedule],
    *,
    program: Program | ExportedProgram | str | Path | None = None,
    trusted: bool = False,
    auto: bool = False,
    devices: int | None = None,
    **settings: Any,
) -> Run:
    """Run schedules on real devices, interleaved in one session, and time them.

    Parameters
    ----------
    graph, weights
        What `extract` returned; weights may also be a ``weights.safetensors``.
    schedules
        One, several, or several by label. Without labels they are called ``ALGORITHM-DEVICES``.
    program
        The reference for outputs and times, as `extract` takes it; the sequential schedule where absent.
    trusted
        Whether you trust who made a ``.pt2`` file, which then may run code when it is loaded.
    auto
        Whether to choose the fastest schedule: every other run chooses, and the remaining runs measure it
        (``run.chosen``).
    devices
        Number of devices of the session; if None, the most that any schedule uses.
    **settings
        ``runs`` (36) measured and ``warmup`` (3) other runs of each, ``tolerance`` (1e-4) of outputs, ``seed`` (0),
        ``timeout_s`` (120) of a run, ``baselines`` (``("eager",)``), ``platform`` (``"cpu"``), ``virtual`` (False),
        ``cores_per_device`` (as in the costs of the schedules), ``engine`` (``"operators"``, or ``"segments"``: what
        a device runs between two hand-overs is one call of the fastest runtime), ``other_hardware`` (False: schedules
        whose costs were measured on other hardware are refused); see `hios.formats.settings.Settings`.

    Returns
    -------
    Run
        What run.json holds: ``results`` has an entry for each schedule, with latencies in milliseconds.

    Raises
    ------
    HiosError
        Inconsistent arguments, a schedule that cannot run, a wrong output, or a worker that failed.

    Examples
    --------
    >>> import hios
    >>> program = hios.export("squeezenet", options={"image_size": 64})  # doctest: +SKIP
    >>> graph, weights = hios.extract(program)  # doctest: +SKIP
    >>> problem = hios.Problem(graph, hios.profile(graph, devices=2))  # doctest: +SKIP
    >>> schedules = [hios.schedule(problem, name, devices=2) for name in ("heft", "hios-lp")]  # doctest: +SKIP
    >>> run = hios.execute(graph, weights, schedules, program=program)  # doctest: +SKIP
    >>> {result.label: result.speedup for result in run.results}  # doctest: +SKIP
    """
    from hios.formats.settings import Settings, checked
    from hios.frontends.program import Program
    from hios.machine.terminal import on_terminals_only
    from hios.runtime.session import execute as run

    labeled = _labeled("execute", schedules)
    if program is not None and not isinstance(program, str | Path | Program):
        from hios.frontends.export import of_torch

        program = of_torch(program)
    used = max(schedule.devices for _, schedule in labeled)
    asked = checked("execute", Settings, {"devices": used if devices is None else devices, **settings})
    with on_terminals_only():
        return run(graph, weights, labeled, asked, program=program, trusted=trusted, auto=auto).run


def _labeled(
    stage: str, schedules: Schedule | Iterable[Schedule] | Mapping[str, Schedule]
) -> list[tuple[str, Schedule]]:
    """Schedules with their labels; ``stage`` is the function that was called, for messages."""
    if isinstance(schedules, Mapping):
        labeled = list(schedules.items())
    else:
        given = [schedules] if isinstance(schedules, Schedule) else list(schedules)
        labeled = [(f"{schedule.algorithm}-{schedule.devices}", schedule) for schedule in given]
    if not labeled:
        raise HiosError(f"{stage}: schedules: found none; required: at least one")
    label, times = Counter(label for label, _ in labeled).most_common(1)[0]
    if times > 1:
        raise HiosError(f"{stage}: schedules: found {times} named {label}; allowed: one, or give them labels in a dict")
    return labeled


@naming_extras("hios.report")
def report(*networks: tuple[Graph, CostsFile, Run | Schedule | Iterable[Schedule] | Mapping[str, Schedule]]) -> Report:
    """Make the report of one or several networks that were executed, or whose costs are predicted.

    Parameters
    ----------
    *networks
        Graph, costs and run of each; or, where costs are predicted, graph, costs and schedules of each. Schedules are
        given as in `execute`: one, several, or several by label.

    Returns
    -------
    Report
        ``html`` is the page, which ``write(path)`` writes; ``latencies`` and ``operators`` are its tables.

    Raises
    ------
    HiosError
        No network is given, runs are mixed with predictions, or graph, costs and the rest belong to different networks.

    Examples
    --------
    >>> import hios
    >>> hios.report((graph, costs, run)).write("report.html")  # doctest: +SKIP
    >>> hios.report((graph, predicted_costs, schedules)).write("report.html")  # doctest: +SKIP
    """
    if not networks:
        raise HiosError("report: found no network; required: at least one, as (graph, costs, run)")
    executed: list[ModelResults] = []
    predicted: list[ModelPredictions] = []
    for graph, costs, results in networks:
        if isinstance(results, Run):
            executed.append(model_results(graph, costs, results))
        else:
            predicted.append(_predictions(graph, costs, results))
    if executed and predicted:
        raise HiosError("report: found runs and predictions; allowed: only runs, or only predictions")
    told = told_apart(predicted or executed, range(1, len(networks) + 1))
    return report_of_predictions(told) if predicted else report_of(told)


def _predictions(
    graph: Graph, costs: CostsFile, schedules: Schedule | Iterable[Schedule] | Mapping[str, Schedule]
) -> ModelPredictions:
    if predicted_for(costs.platform) is None:
        raise HiosError(
            f"report: {graph.name}: found schedules with measured costs; required: the run of the schedules, which "
            "hios.execute returns"
        )
    return model_predictions(graph, costs, dict(_labeled("report", schedules)))
