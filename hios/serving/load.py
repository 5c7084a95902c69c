"""A scenario under real load: a server receives its traces, outputs are checked, and result.json is written."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hios.errors import HiosError, PlatformError, warn
from hios.files import option_defaults
from hios.files.base import Platform
from hios.files.versions import versions
from hios.formats.serving_result import LateSends, ResultFile
from hios.frontends import program as programs
from hios.frontends.example_inputs import example_inputs
from hios.frontends.extraction_check import flat, rounding_errors
from hios.frontends.program_interface import flat_module
from hios.frontends.tolerances import allows_rounding, compared, explained
from hios.platforms import reference
from hios.platforms.cpu.devices import describe
from hios.runtime.competitors import other_hardware
from hios.serving.lane_trace import LaneTrace
from hios.serving.lane_worker import Whole
from hios.serving.load_generator import LATE_S, Progress, ReferenceSample, Repeat
from hios.serving.measures import RepeatOutcome, result
from hios.serving.policies import AUTO
from hios.serving.scenario import Scenario, ServedModel, draw
from hios.serving.server import WHOLE_ON_A_LANE, Server
from hios.serving.simulate import Tell, choose, no_one

if TYPE_CHECKING:
    from hios.serving.gpu_lane import GpuLane

#: Inputs of every model that its tasks have in turn, and inferences of each before anything is measured.
_INPUTS, _WARMUP = 4, 3


@dataclass(frozen=True)
class LoadReport:
    """Result of loading a server.

    Attributes:
        result: what result.json holds.
        generator_share: processor time of the load generator, checks of outputs included, over the time that lanes were
            busy.
        wrong: the first task that failed, in words; empty where none did.
        memory_mb: memory that lanes share for values between blocks, inputs and outputs.
        unwritten: why ``show`` failed or the trace could not be written; empty where all went well.
    """

    result: ResultFile
    generator_share: float
    wrong: str
    memory_mb: float
    unwritten: str


def load(
    scenario: Scenario,
    policy: str,
    *,
    launcher: str | None = None,
    virtual: bool = False,
    tolerance: float = option_defaults.TOLERANCE,
    timeout_s: float = option_defaults.TIMEOUT_S,
    trusted: bool = False,
    show: Callable[[Server, Progress], None] | None = None,
    trace: str | Path | None = None,
    tell: Tell = no_one,
    runtime: str | None = None,
    gpu: GpuLane | None = None,
) -> LoadReport:
    """Run all repeats of a scenario under a policy.

    Args:
        scenario: models with weights, arrivals, lanes; if it is calibrated, the simulator chooses for this machine.
        policy: its name; ``auto`` is what the simulator finds best on other traces.
        launcher: open, deadline, fixed, water-filling, or ``auto`` for what the simulator finds best; that of the
            scenario if None.
        virtual: whether lanes may share cores where there are fewer.
        tolerance: allowed difference of outputs, absolute plus relative.
        timeout_s: longest time of one run of a block.
        trusted: whether program files may run code when they are loaded.
        show: called about twice a second, and at the end of every repeat.
        trace: Chrome trace to write of what ran on which lane in the first repeat, and of its requests. The report
            says if it could not be written.
        tell: is told of every policy and launcher that ``auto`` compares.
        runtime: in place of hios's operators, what runs the program of every model as a whole: eager, compile,
            onnxruntime or openvino. For policies that run whole tasks in one worker.
        gpu: runs everything in place of lanes; for costs of a GPU.

    Raises:
        HiosError: a file is missing or does not fit, the policy is unknown, or a lane could not be kept going.
    """
    if gpu is not None:
        for option, found in (("runtime", runtime), ("virtual", virtual or None)):
            if found is not None:
                raise HiosError(f"{option}: found {found} on a GPU; allowed: on cores")
    whole = None if runtime is None else in_runtime(scenario, policy, runtime, trusted)
    choice = choose(scenario, policy, launcher, tell=tell)
    scenario = scenario.plain
    platform = describe(scenario.lanes, virtual=virtual) if gpu is None else gpu.platform
    _warn_of_other_hardware(scenario, platform)
    rows = None if trace is None else LaneTrace(scenario)
    outcomes: list[RepeatOutcome] = []
    late: list[float] = []
    wrong = unshown = ""
    with Server(
        scenario,
        choice.policy,
        launcher=choice.launcher,
        virtual=virtual,
        timeout_s=timeout_s,
        watch=None if rows is None else rows.add,
        whole=whole,
        gpu=gpu,
    ) as server:
        samples = reference_samples(server, tolerance, trusted)
        began, used, control, busy = datetime.now(UTC), time.process_time(), server.control_s, server.busy_s
        for number in range(scenario.file.repeats):
            if rows is not None:
                rows.begin(recording=number == 0)
            watch = None if show is None else functools.partial(show, server)
            repeat = Repeat(server, draw(scenario, number), scenario.duration_s, samples, tolerance, watch)
            outcomes.append(repeat.run())
            if rows is not None:
                for unserved in repeat.unserved():
                    rows.add_unserved(*unserved)
            late += repeat.late_s
            wrong, unshown = wrong or repeat.wrong, unshown or repeat.unshown
            if server.lost:
                raise PlatformError(server.lost)
        control, busy = server.control_s - control, max(server.busy_s - busy, 1e-9)
        generator = time.process_time() - used - control
        memory_mb = server.memory_bytes / 1e6
        for models, why in server.streamed.items():
            warn(f"{scenario.source}: {models}: launched on streams, not as a CUDA graph: {why}")
    untraced = ""
    if rows is not None and trace is not None:
        untraced = _written(rows, trace, f"{choice.policy}, launcher {choice.launcher}")
    outcome = result(
        scenario,
        policy,
        choice.launcher,
        outcomes,
        simulated=False,
        control_share=control / busy,
        late=LateSends(sum(s > LATE_S for s in late) / max(1, len(late)), max(late, default=0.0) * 1e3),
        compared_with={m.label: "single inference" if m.program is None else "program" for m in scenario.models},
        measured_at=f"{began:%Y-%m-%dT%H:%M:%SZ}",
        platform=platform,
        versions=versions(),
        runtime=runtime,
        engine="segments" if scenario.file.engine == "segments" else None,
        chosen=choice.policy if policy == AUTO else None,
        candidates=choice.candidates,
    )
    return LoadReport(outcome, generator / busy, wrong, memory_mb, "; ".join(filter(None, (unshown, untraced))))


def _written(rows: LaneTrace, trace: str | Path, title: str) -> str:
    """Write the trace; returns why that failed, empty if it did not: what was measured is not lost with it."""
    try:
        rows.write(trace, title)
    except (HiosError, OSError) as error:
        return str(error)
    if rows.cut:
        warn(f"{trace}: {rows.cut}")
    return ""


def _warn_of_other_hardware(scenario: Scenario, platform: Platform) -> None:
    """Say so where costs were not measured here."""
    found = other_hardware([model.costs for model in scenario.models], platform, forced=True)
    if found is not None:
        warn(
            f"{scenario.source}: costs were measured on {found}, this is {platform.hardware or 'other hardware'}: what "
            "is chosen and counted by them may not fit; run hios profile here"
        )


def in_runtime(scenario: Scenario, policy: str, runtime: str, trusted: bool = False) -> Whole:
    """What runs the programs of a scenario as a whole, for `Server`.

    Raises:
        HiosError: the policy runs less than whole models, or a model has no program for the runtime.
    """
    if policy not in WHOLE_ON_A_LANE:
        raise HiosError(
            f"policy: found {policy}; allowed with runtime {runtime}: {', '.join(WHOLE_ON_A_LANE)}, which run a model "
            "as a whole"
        )
    if scenario.file.engine == "segments":
        raise HiosError(f"{scenario.source}: engine: found segments; allowed with runtime {runtime}: operators")
    reference.require_runtime(runtime)
    for model in scenario.models:
        place = f"{scenario.source}: models.{model.label}.program"
        if model.program is None:
            raise HiosError(f"{place}: missing; required with runtime {runtime}, which runs it")
        if reference.runtime(model.program) == "onnxruntime" != runtime:
            raise HiosError(f"{place}: found {model.program}; allowed with runtime {runtime}: program.pt2")
    return functools.partial(reference.in_runtime, kind=runtime, trusted=trusted)


def reference_samples(server: Server, tolerance: float, trusted: bool) -> dict[str, list[ReferenceSample]]:
    """By model, inputs with the outputs of a single inference, checked against the model; this also warms up the lanes.

    Raises:
        PlatformError: the outputs are not those of the program.
    """
    models, seed = server.scenario.models, server.scenario.file.seed
    samples: dict[str, list[ReferenceSample]] = {model.label: [] for model in models}
    for number in range(_INPUTS):
        inputs = {model.label: _drawn(model, seed + number) for model in models}
        alone = _outputs_alone(server, inputs)
        for label, own in samples.items():
            own.append(ReferenceSample(inputs[label], alone[label], alone[label]))
    return {model.label: _checked(model, samples[model.label], tolerance, trusted) for model in models}


def warm_up(server: Server) -> None:
    """Run every model of a server a few times, with inputs drawn at random."""
    _outputs_alone(server, {model.label: _drawn(model, 0) for model in server.scenario.models})


def _drawn(model: ServedModel, seed: int) -> list[Tensor]:
    return list(example_inputs(model.problem.graph.inputs, seed))


def _outputs_alone(server: Server, inputs: Mapping[str, list[Tensor]]) -> dict[str, list[Tensor]]:
    """Outputs of each model after inferences that warm it up: one at a time, but in strict rounds, which need all."""
    with server.without_deadlines():
        for _ in range(_WARMUP):
            if server.pipeline.strict:
                answers = {label: server.submit(label, own) for label, own in inputs.items()}
                alone = {label: answer.result() for label, answer in answers.items()}
            else:
                alone = {label: server.infer(label, own) for label, own in inputs.items()}
    return alone


def _checked(
    model: ServedModel, samples: list[ReferenceSample], tolerance: float, trusted: bool
) -> list[ReferenceSample]:
    """The samples with what outputs are compared with: those of the program, where the scenario names it."""
    if model.program is None:
        return samples
    module = _module(model.program, trusted)
    with torch.inference_mode():
        expected = [list(flat(module(*sample.inputs))) for sample in samples]
    return [
        ReferenceSample(sample.inputs, sample.alone, own, _explained(model, sample, own, tolerance, trusted))
        for sample, own in zip(samples, expected, strict=True)
    ]


def _explained(
    model: ServedModel, sample: ReferenceSample, expected: Sequence[Tensor], tolerance: float, trusted: bool
) -> list[float]:
    """By output, the difference from the program that rounding explains; empty if all are within the tolerance.

    Raises:
        HiosError: there are other outputs.
        PlatformError: an output differs by more than the tolerance and than rounding explains.
    """
    if [value.shape for value in sample.alone] != [value.shape for value in expected]:
        raise HiosError(f"model {model.label}: graph and program have other outputs; extract again from this program")
    differences = [compared(ours, theirs, tolerance) for ours, theirs in zip(sample.alone, expected, strict=True)]
    if all(within for _, within in differences):
        return []
    errors = None
    if model.program is not None and allows_rounding(tolerance) and reference.runtime(model.program) == "eager":
        errors = rounding_errors(programs.load(model.program, trusted=trusted), sample.inputs)
    allowed = explained(errors or [0.0] * len(expected), expected)
    for number, (off, within) in enumerate(differences):
        if not within and not off <= allowed[number]:
            raise PlatformError(
                f"model {model.label}: output {number} differs from the program by up to {off:.3g}; allowed: "
                f"{tolerance:g} absolute plus relative; graph, weights and program are not of one extraction, or a "
                "kernel is wrong"
            )
    return allowed


def _module(program: Path, trusted: bool) -> Callable[..., Any]:
    """A program in eager PyTorch, or in ONNX Runtime where it is an ONNX file."""
    if reference.runtime(program) == "eager":
        return flat_module(programs.load(program, trusted=trusted))
    reference.require_onnx()
    from hios.formats.onnx_session import OnnxSession  # its package is an extra of its own

    return OnnxSession(str(program), threads=1)
