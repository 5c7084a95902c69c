"""``hios execute`` and ``hios distribute`` measure schedules on devices and over ranks of a launcher.

``hios evaluate`` states the latency of a schedule under the cost model.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hios.cli import files
from hios.cli.options import (
    PATH,
    check_outputs,
    cores_per_device_option,
    engine_option,
    executing_option,
    measuring_options,
    other_hardware_option,
    output_option,
    refuse_overwriting,
    trust_option,
    virtual_option,
)
from hios.core.check import violations
from hios.core.evaluate import evaluate, latency_ms
from hios.core.problem import Problem
from hios.core.schedule import Schedule
from hios.errors import HiosError, ScheduleError
from hios.formats.settings import Settings
from hios.frontends.models import RUNTIMES
from hios.platforms import require_options
from hios.schedulers import schedule as schedule_by
from hios.workers.process_settings import end_with_parent

if TYPE_CHECKING:
    from hios.formats.run import Run


#: How long the end of a failed rank is hidden from mpirun: longer than rank 0 takes to print the reason.
_HOLD_S = 1.0
#: Processes of Open MPI 5 that start ranks: mpirun is the first, on other hosts there is the second.
_OPEN_MPI = ("prterun", "prted")
#: Seconds in which they end after a rank failed, unless a host is out of reach, and between attempts to end them.
_WAIT_S, _AGAIN_S = 20.0, 2.0


def guard() -> None:
    """Continue in a child process; the parent ends as the child does. Must be called before threads are started.

    mpirun drops all output once one of its processes has ended, and with it the line that says which rank died.
    Therefore, the process that mpirun started only waits for its child, which does the work, and ends a moment later.
    """
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        end_with_parent(parent)
        return

    def forward(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, forward)
    # The child stays a zombie until the parent ends too, so that its process ID is not reused.
    status = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    killed = status is not None and status.si_code != os.CLD_EXITED
    code = 1 if status is None else 128 + status.si_status if killed else status.si_status
    if code:
        _end_launcher()
        time.sleep(_HOLD_S)
    os._exit(code)


def _end_launcher() -> None:
    """Have mpirun of Open MPI end where it has not some time after a rank failed, from a process that it leaves alone.

    It would wait for hosts that are out of reach, also when it is told to end. Told again, it ends at once.
    """
    parent = os.getppid()
    try:
        launcher = os.pidfd_open(parent)
        name = Path(f"/proc/{parent}/comm").read_text(encoding="utf-8").strip()
    except (AttributeError, OSError):  # some builds of Python lack it; or the launcher has ended
        return
    # Daemons of PRRTE that stay for other jobs have the same name, but name the jobs that they start otherwise.
    own = name in _OPEN_MPI and os.environ.get("PMIX_NAMESPACE", "").startswith("prterun-")
    if not own or os.getppid() != parent or os.fork() != 0:
        return
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):  # it waits until what it gave to ranks is closed
        os.dup2(nowhere, stream)
    ended = select.poll()
    ended.register(launcher, select.POLLIN)
    for wait_s, number in ((_WAIT_S, signal.SIGTERM), *[(_AGAIN_S, signal.SIGTERM)] * 2, (_AGAIN_S, signal.SIGKILL)):
        if ended.poll(1000 * wait_s):
            break
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(launcher, number)
    os._exit(0)


@click.command("execute")
@click.argument("graph", type=PATH)
@click.argument("weights", type=PATH)
@click.argument("schedules", type=PATH, nargs=-1, required=True)
@executing_option
@virtual_option
@other_hardware_option
@engine_option
@click.option("--devices", type=int, help="Number of devices; default: the most that any schedule uses.")
@cores_per_device_option
@output_option("run.json")
@click.option(
    "--program",
    type=PATH,
    help="program.pt2 or program.onnx. It runs in eager PyTorch or ONNX Runtime, as the reference for outputs and "
    "latency.",
)
@click.option(
    "--baselines",
    "--baseline",
    multiple=True,
    type=click.Choice(list(RUNTIMES)),
    default=("eager",),
    show_default=True,
    help="Also run the program in this runtime, with the cores of one device and with those of all; may be given more "
    "than once. Eager PyTorch always takes part, as the reference for outputs.",
)
@click.option("--traces", type=PATH, help="Folder for a Chrome/Perfetto trace of every schedule.")
@click.option(
    "--auto",
    type=PATH,
    help="Choose the fastest by measurement, and write its schedule.json: one of the schedules, or the sequential one "
    "with all cores inside operators; the sequential one on one device unless another is faster with 95 % confidence. "
    "Among candidates statistically tied with the fastest, the one with the smallest 80th percentile. Every other run "
    "chooses; run.json states the latency of the choice in the remaining runs. Needs at least 12 runs.",
)
@measuring_options
@trust_option
def execute_command(
    graph: Path,
    weights: Path,
    schedules: tuple[Path, ...],
    devices: int | None,
    output: Path,
    program: Path | None,
    traces: Path | None,
    auto: Path | None,
    trust: bool,
    **settings: Any,
) -> None:
    """Run SCHEDULES of GRAPH on real devices, taking turns in one session, and time them."""
    require_options(settings["platform"], {}, cores_per_device=settings["cores_per_device"])
    named = [] if traces is None else dict.fromkeys(traces / f"{path.stem}.json" for path in schedules)
    check_outputs([graph, weights, program, *schedules], [output, auto, *named])
    if devices is None:
        devices = max(Schedule.read(path).devices for path in schedules)
    from hios.runtime.run_table import latency_table

    began = time.monotonic()
    run = files.execute(
        graph,
        weights,
        schedules,
        output,
        Settings(devices=devices, **settings),
        program=program,
        trusted=trust,
        traces=traces,
        chosen=auto,
    )
    click.echo(latency_table(run))
    click.echo(f"{output}: {measured_line(run, f'{devices} device(s)', time.monotonic() - began)}")


def measured_line(run: Run, where: str, seconds: float) -> str:
    """What was measured where, in how long, and how exact the outputs were."""
    off = max(result.largest_difference for result in run.results)
    reference = RUNTIMES.get(run.checked_against or "", "the sequential schedule")
    return (
        f"medians of {run.runs} runs on {where} in {seconds:.0f} s; outputs differ from {reference} by {off:.2g} at "
        f"most, allowed {run.tolerance:g}"
        + ("" if run.rounding is None else f", and {run.rounding:.2g}, which rounding explains")
    )


@click.command("distribute")
@click.argument("graph", type=PATH)
@click.argument("weights", type=PATH)
@click.argument("schedules", type=PATH, nargs=-1, required=True)
@click.option(
    "--transport",
    type=click.Choice(["gloo", "nccl", "mpi"]),
    required=True,
    help="How values travel. gloo: start with torchrun; nccl: the same, with a GPU for each rank; mpi: start with "
    "mpirun or srun.",
)
@executing_option
@cores_per_device_option
@other_hardware_option
@engine_option
@output_option("run.json")
@click.option(
    "--program",
    type=PATH,
    help="program.pt2 or program.onnx. Rank 0 runs it in eager PyTorch or ONNX Runtime, as the reference for outputs "
    "and latency.",
)
@measuring_options
@trust_option
def distribute_command(
    graph: Path,
    weights: Path,
    schedules: tuple[Path, ...],
    transport: str,
    output: Path,
    program: Path | None,
    trust: bool,
    **settings: Any,
) -> None:
    """Run SCHEDULES of GRAPH over several processes, one for each device, on one node or several.

    A launcher starts this command on every rank with the same arguments, for example: torchrun --nproc-per-node 2 -m
    hios distribute graph.json weights.safetensors schedule.json --transport gloo --output run.json
    """
    require_options(settings["platform"], {}, cores_per_device=settings["cores_per_device"])
    refuse_overwriting([graph, weights, program, *schedules], [output])  # rank 0 alone writes it
    if transport == "mpi":
        guard()
    from hios.runtime.distributed.session import Job, distribute
    from hios.runtime.run_table import latency_table

    began = time.monotonic()
    # The devices are the ranks, whose number is known once they are connected.
    measuring = Settings(devices=0, **settings)
    record = distribute(Job(graph, weights, schedules, output, transport, measuring, program, trust))
    if record is None:
        return  # rank 0 speaks for all
    platform, seconds = record.platform, time.monotonic() - began
    where = f"{platform.devices} rank(s) over {platform.transport}"
    click.echo(latency_table(record))
    click.echo(f"{output}: {measured_line(record, where, seconds)}")


@click.command("evaluate")
@click.argument("graph", type=PATH)
@click.argument("costs", type=PATH)
@click.argument("schedule", type=PATH)
def evaluate_command(graph: Path, costs: Path, schedule: Path) -> None:
    """Print the latency of SCHEDULE under the cost model, or why it is invalid.

    A schedule is also invalid if it states a different latency, or a lower bound above a latency that is possible.
    """
    from hios.core.bound_check import judge_bounds
    from hios.report.terminal import widths_in_words

    problem, given = Problem.read(graph, costs), Schedule.read(schedule)
    try:
        latency = latency_ms(evaluate(problem, given.plan(problem.graph)))
    except ScheduleError as error:
        where = "" if str(error).startswith(str(schedule)) else f"{schedule}: invalid: "
        raise HiosError(f"{where}{error}") from None
    if wrong := violations(problem, given):
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise HiosError(f"{schedule}: invalid: {wrong[0]}{more}")
    if not math.isclose(latency, given.latency_ms, rel_tol=1e-6, abs_tol=1e-9):
        raise HiosError(
            f"{schedule}: latency_ms: found {given.latency_ms:.6g}; allowed: {latency:.6g}, that of its plan under the "
            "cost model; schedule again, as graph, costs or placements were changed"
        )
    bounds = judge_bounds(problem, given)
    if any(bound.verdict == "unconfirmed" for bound in bounds):  # a quick schedule may be faster than it allows
        bounds = judge_bounds(problem, given, [schedule_by(problem, "heft", given.devices)])
    for bound in bounds:
        if bound.verdict == "wrong":
            raise HiosError(f"{schedule}: {bound}")
    predicted = problem.predicted_for
    widths = widths_in_words(given)
    click.echo(
        f"{latency:.6g} ms{f'; several devices: {widths}' if widths else ''}{f'; {predicted}' if predicted else ''}"
    )
