"""The stages on files: read the inputs, call the stage, write its results. A function imports what its stage needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hios.core.graph import Graph
from hios.errors import ArtifactError, HiosError
from hios.files import artifacts
from hios.files.artifacts import replacing, require_writable, write, write_whole
from hios.formats.config import ModelOptions
from hios.formats.serving_result import CalibrationFile
from hios.serving.scenario import Scenario

if TYPE_CHECKING:
    from hios.core.costs import CostsFile
    from hios.formats.run import Run
    from hios.formats.settings import Settings


def export(
    text: str,
    output: str | Path,
    options: ModelOptions,
    *,
    inputs: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
    trusted: bool = False,
) -> str:
    """Export a model and write it, as .onnx where it is in ONNX, else as .pt2; returns a line that says what it is.

    The arguments are those of `hios.export`, with shapes of inputs that a file .pt2 or .onnx leaves open; the only
    option of an ONNX file is batch_size.

    Raises:
        HiosError: unknown model or option, a model that cannot be exported, or an output that cannot be written.
    """
    from hios.frontends.export import check, described
    from hios.frontends.export import export as run
    from hios.frontends.models import model

    source = model(text)
    if Path(output).suffix.lower() != source.exported:
        raise HiosError(f"{output}: found the ending {Path(output).suffix or 'none'}; allowed: {source.exported}")
    check(source, options, trusted)
    if inputs and source.kind not in {"onnx", "pt2"}:
        raise HiosError(f"{text}: found the option input; allowed: for .onnx and .pt2 files with open dimensions")
    require_writable(output)
    if source.kind == "onnx":
        from hios.frontends import onnx_file

        batch_size = options.get("batch_size")
        if not isinstance(batch_size, int | None):
            raise HiosError(f"{text}: batch_size: found {batch_size}; allowed: a whole number")
        network = onnx_file.load(text, batch_size, inputs)
        write_whole(output, network.SerializeToString(deterministic=True))
        return f"{text}, {onnx_file.described(network)}"
    program = run(text, options, inputs=inputs, seed=seed, trusted=trusted)
    program.write(output)
    return f"{text}, {described(program.exported)}"


def extract(
    program: str | Path,
    output: str | Path,
    weights: str | Path,
    name: str,
    *,
    units: str | None = None,
    below: Mapping[str, int] | None = None,
    trusted: bool = False,
) -> Graph:
    """Extract a program as `hios.extract` does, with its errors, and write graph.json and weights.safetensors."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    from hios.frontends.extract import extract as run

    if Path(output).resolve() == Path(weights).resolve():
        raise HiosError(f"{output}: named for the graph and for the weights; they are two files")
    for path in (output, weights):
        require_writable(path)
    graph, tensors = run(program, name, units=units, below=below, trusted=trusted)
    with replacing(weights) as temporary:
        try:
            save_file(tensors, temporary)
        except SafetensorError as error:  # as where the disk is full
            raise ArtifactError(f"{weights}: cannot be written: {error}") from error
        graph.write(output)  # inside: without a graph there are no weights either
    return graph


def profile(graph: str | Path, output: str | Path, **settings: Any) -> CostsFile:
    """Measure graph.json as `hios.profiling.profile.profile` does, and write costs.json; returns what it holds.

    Raises:
        HiosError: bad graph, unknown algorithm, too many devices, a cache that cannot be written, or a worker failed.
    """
    from hios.profiling.profile import profile as run

    known = Graph.read(graph)
    require_writable(output)
    costs = run(known, **settings)
    write(output, "costs", costs)
    return costs


def execute(
    graph: str | Path,
    weights: str | Path,
    schedules: Sequence[str | Path],
    output: str | Path,
    settings: Settings,
    *,
    program: str | Path | None = None,
    trusted: bool = False,
    traces: str | Path | None = None,
    chosen: str | Path | None = None,
) -> Run:
    """Run schedules as `hios.runtime.session.execute` does, and write run.json; returns what it holds.

    The stems of the schedules' files name them in the report. A Chrome trace of each goes into the folder ``traces``.
    ``chosen`` is the schedule.json to write of the fastest of all, which run.json then names.

    Raises:
        HiosError: bad files, a schedule that does not fit, a wrong output, or a worker that died or hung.
    """
    from hios.runtime.competitors import read_schedules
    from hios.runtime.session import execute as run_session
    from hios.runtime.session import write_trace

    known, labeled = Graph.read(graph), read_schedules(schedules)
    traced = {} if traces is None else {label: Path(traces) / f"{label}.json" for label, _ in labeled}
    for path in [output, *([] if chosen is None else [chosen]), *traced.values()]:
        require_writable(path)
    run, choice = run_session(
        known, weights, labeled, settings, program=program, trusted=trusted, auto=chosen is not None
    )
    if chosen is not None and choice is not None:
        choice.write(chosen)
    where = ", virtual devices: times say little" if run.platform.virtual else ""
    for result in run.results if traced else ():
        write_trace(traced[result.label], f"{known.name} {result.label}{where}", known, result.measured)
    write(output, "run", run)
    return run


def scenario_of(
    path: str | Path, load: float, weights: str | Path | None = None, calibration: str | Path | None = None
) -> Scenario:
    """A scenario with its rates times ``load``, a trained launcher in place of its own, and calibrated."""
    from hios.serving.calibration import calibrated

    scenario = Scenario.read(path, load=load)
    if weights is not None:
        from hios.serving.launcher.online_launcher import launcher_of

        scenario = scenario.with_launcher(Path(weights))
        launcher_of(scenario)  # a file that is named but cannot be used is an error under every policy
    if calibration is not None:
        scenario = calibrated(scenario, artifacts.load(calibration, CalibrationFile), str(calibration))
    return scenario
