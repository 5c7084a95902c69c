"""Executing schedules over the ranks of a launcher: loaded, interleaved, checked, timed."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import torch

from hios import platforms
from hios.core.graph import Graph
from hios.core.schedule import Placement, StagedPlan
from hios.errors import HiosError, PlatformError, ScheduleError, first_line
from hios.files import artifacts
from hios.files.base import Platform
from hios.files.versions import versions
from hios.formats.run import Run, RunPlatform, SegmentResult
from hios.formats.settings import Settings
from hios.frontends.models import RUNTIMES
from hios.frontends.tolerances import ReducedPrecision, allows_rounding, explained
from hios.kernels.executable import require_executable
from hios.machine import description, topology
from hios.platforms.batch_job import allocation
from hios.platforms.program import ArenaPlan
from hios.platforms.reference import Reference
from hios.platforms.reference import rounding as reference_rounding
from hios.platforms.reference import run as run_reference
from hios.platforms.reference import runtime as runtime_of
from hios.runtime.competitors import (
    BASELINE,
    ScheduleEntry,
    competitors,
    entries_of,
    other_hardware,
    read_schedules,
    refuse_wide,
    use_engine,
)
from hios.runtime.distributed.control_channel import (
    FAILED,
    LATE,
    LOST,
    ControlChannel,
    ProgressState,
    RankPlace,
    local_rank,
    pin,
    shared,
    who,
)
from hios.runtime.distributed.monitor import RankMonitor
from hios.runtime.distributed.rank_runner import RESERVED, Peers, Tags, Turns, joined
from hios.runtime.distributed.transports import Transport, connect, difference, rank_inputs
from hios.runtime.rounds import Competition, TurnOutcome, run_file
from hios.workers.process_settings import end_with_parent
from hios.workers.stream_threads import Streams
from hios.workers.worker import Worker

#: Settings that ranks do not use; all others must be the same on all ranks.
_UNUSED = ("baselines", "devices", "virtual")
#: Seconds of the longest wait that sockets and Gloo take, some weeks.
_LONGEST_WAIT_S = 2e6
#: Words in the command lines of launchers.
_LAUNCHERS = (b"torch", b"mpi", b"srun", b"slurm", b"python")


@dataclass(frozen=True, slots=True)
class Job:
    """What to run and how to measure; the same on every rank.

    Stems of schedule files name them; rank 0 writes run.json, the output. Every rank is a device, however many
    ``devices`` the settings state; ``timeout_s`` limits loading too; ``baselines`` and ``virtual`` are not used. The
    program is the reference for outputs, the sequential schedule where it is absent; ``trusted`` says that the user
    trusts one that can run code when it is loaded.
    """

    graph: Path
    weights: Path
    schedules: tuple[Path, ...]
    output: Path
    transport: str
    settings: Settings
    program: Path | None = None
    trusted: bool = False


def distribute(job: Job) -> Run | None:
    """Run schedules with one rank per device; called by all processes that the launcher started.

    Competitors take turns in random order, the same on all ranks: every schedule, the sequential schedule on rank 0,
    independent copies of it on several ranks, and, with a program, the model itself on rank 0. A rank that fails, dies
    or hangs ends this process and all others. Returns what run.json holds on rank 0, None elsewhere.

    Raises:
        PlatformError: the ranks cannot connect.
    """
    # While ranks connect, they wait in libraries, where Python handles no signals, and a launcher that is stopped while
    # it starts ranks may leave some of them behind.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    end_with_parent(number=signal.SIGTERM)
    if _is_orphan():
        os._exit(1)
    timeout_s = min(job.settings.timeout_s, _LONGEST_WAIT_S)
    job = replace(job, settings=msgspec.structs.replace(job.settings, timeout_s=timeout_s))
    transport = connect(job.transport, job.settings.platform, timeout_s)
    state = ProgressState()
    places: list[RankPlace] = transport.gather(RankPlace.here())
    monitor = RankMonitor(places) if transport.rank == 0 else None
    address, key = transport.gather(None if monitor is None else (monitor.address, monitor.key))[0]
    control = ControlChannel(transport.rank, places, state, address, key, timeout_s)
    runner = RankRunner(job, transport, state, places, monitor, control)
    this = who(places, transport.rank)
    try:
        with torch.inference_mode():
            data = runner.execute()
        control.finish(timeout_s)
    except TimeoutError:
        control.fail(LATE, f"{this} did not go on within the time-out: {state.text()}")
    except ConnectionError as error:
        control.fail(LOST, f"{this}: {state.text()}: the connection broke ({first_line(error)})")
    except HiosError as error:
        control.fail(FAILED, runner.blame(this, error))
    except Exception as error:  # a bug in hios: the other ranks are stopped nevertheless
        traceback.print_exc()
        control.fail(FAILED, f"{this}: {state.text()}: {type(error).__name__}: {first_line(error)}")
    transport.close()
    return data


def _is_orphan() -> bool:
    """Whether init adopted this process; in containers the launcher itself may be process 1."""
    init = Path("/proc/1/cmdline")
    return os.getppid() == 1 and init.exists() and not any(word in init.read_bytes() for word in _LAUNCHERS)


@dataclass
class RankRunner:
    """One rank's part in a session: it runs the same as the others, in the same order; rank 0 has the monitor."""

    job: Job
    transport: Transport
    state: ProgressState
    places: Sequence[RankPlace]
    monitor: RankMonitor | None
    control: ControlChannel

    def __post_init__(self) -> None:
        self.settings = self.job.settings
        self._step = 0
        self._rows: list[Placement] = []
        self._uncertainty_ns = 0
        self._prepared = False
        #: The precision of timed runs where that of any rank is reduced, as values pass between ranks.
        self._reduced: ReducedPrecision | None = None
        #: What rounding explains of each output; None until a difference is beyond the tolerance (rank 0).
        self._rounding: list[float] | None = None
        self._cores_each = self.settings.cores_per_device or 1

    def blame(self, this: str, error: HiosError) -> str:
        """The message for an error; only rank 0 reports errors in files that all ranks read."""
        if not self._prepared:
            return str(error) if self.monitor is not None else f"{this}: {error}"
        return f"{this}: {self.state.doing}: {error}"

    def execute(self) -> Run | None:
        """Load, run all rounds, and return run.json on rank 0."""
        began = datetime.now(UTC)
        self._given = allocation()  # before this rank is pinned to fewer cores
        cores = pin(self.places, self.transport.rank, self._cores_each)
        torch.set_num_threads(self._cores_each)
        if self.monitor is not None:
            artifacts.require_writable(self.job.output)
        self._load()
        ranks = self._agree(cores)
        profiled_on = self._other_hardware(ranks)
        self._prepared = True
        self._choose_segments()
        self._expect()
        session = Competition(self._graph, self._competitors, self._references, self._entries, self, self.settings)
        session.measure(shown=False)
        for name in self._competitors if self._hardware.apart else ():
            if self.run(name, recording=True) is not None:
                self.take_rows(name)
        if self.monitor is None:
            return None
        job = self.job
        self.state.enter("writing run.json")
        run = run_file(
            session,
            self._platform(ranks),
            {**versions(), **self.transport.versions()},
            began,
            None if job.program is None else runtime_of(job.program),
            profiled_on,
            rounding=None if self._rounding is None else max(self._rounding),
        )
        artifacts.write(job.output, "run", run)
        return run

    def _load(self) -> None:
        """Read and compile everything, first on rank 0, so that errors in files are reported once."""
        job, transport = self.job, self.transport
        distributing = platforms.distributing(self.settings.platform)
        self._hardware = distributing.device(local_rank(self.places, transport.rank))
        self.state.enter("meeting the devices of other ranks")
        self._reduced = next(filter(None, transport.gather(self._hardware.reduced)), None)
        channel = transport.channel(time.monotonic() + self.settings.timeout_s)
        if transport.rank != 0:
            self._let_load()
        self.state.enter("loading")
        self._graph = Graph.read(job.graph)
        require_executable(self._graph)
        self._entries = entries_of(read_schedules(job.schedules), self._graph, transport.size, self._grouped())
        for path, entry in zip(job.schedules, self._entries, strict=True):
            refuse_wide(entry.schedule, "where devices are ranks")
            entry.plan = _staged(path, entry)
        plan = ArenaPlan(self._graph, transport.size)
        taking_part = competitors(self._graph, plan, self._entries, transport.size, cores_per_device=self._cores_each)
        self._competitors = {name: competitor for name, competitor in taking_part.items() if competitor.worker is None}
        refuse_segments(self.settings.engine, self.settings.platform)
        use_engine(self.settings.engine, self._graph, self._competitors.values())
        boot = self.places[0].boot
        elsewhere = [number for number, place in enumerate(self.places) if place.boot != boot]
        self._turns = Turns(
            self._graph,
            plan,
            self._competitors,
            transport,
            channel,
            self._hardware,
            self._reduced,
            self.state,
            elsewhere,
            self.settings,
        )
        self._turns.load(str(job.graph), str(job.weights))
        self._references = []
        if job.program is not None:
            kind = runtime_of(job.program)
            threads = f"{self._cores_each} thread{'s' if self._cores_each > 1 else ''}"
            self._references.append(Reference(f"{RUNTIMES[kind]}, {threads}", 1, [0], self._cores_each, kind))
        self._reference = Worker(0, self._turns.memory, Streams())
        if job.program is not None and transport.rank == 0:
            inputs, outputs = list(plan.inputs.values()), plan.outputs
            self._hardware.load_reference(self._reference, str(job.program), inputs, outputs, job.trusted)
        if transport.rank == 0:
            self._let_load()

    def _grouped(self) -> int | None:
        """Cores of each rank; None if ranks have GPUs."""
        return self._cores_each if platforms.find(self.settings.platform).GROUPS_CORES else None

    def _let_load(self) -> None:
        deadline = time.monotonic() + self.settings.timeout_s
        Peers(self.transport, Tags(RESERVED, self.transport.tags), self.state).barrier(0, deadline)

    def _agree(self, cores: list[int]) -> list[Mapping[str, Any]]:
        """Check that all ranks have the same options and files; returns the hardware of all ranks on rank 0.

        Raises:
            PlatformError: a rank has another file, or was given another option.
        """
        job = self.job
        files = [job.graph, job.weights, *job.schedules]
        options = {name: getattr(self.settings, name) for name in Settings.__struct_fields__ if name not in _UNUSED}
        options |= {"program": job.program is not None, "number of schedules": len(job.schedules)}
        mine = rank_inputs(options, files)
        hardware = {"cores": cores, "processor": description.processor(), **self._hardware.describe()}
        everything = {"given": mine, "hardware": hardware}
        self.control.report(self._step, everything)
        if self.monitor is None:
            return []
        deadline = time.monotonic() + self.settings.timeout_s
        hardware_of = self.monitor.collect(self._step, range(self.transport.size), self.state, deadline)
        for rank, theirs in hardware_of.items():
            if other := difference(mine, theirs["given"]):
                raise PlatformError(
                    f"{who(self.places, rank)} and {who(self.places, 0)} differ in {other}; all ranks need the same"
                )
        return [theirs["hardware"] for theirs in hardware_of.values()]

    def _other_hardware(self, ranks: Sequence[Mapping[str, Any]]) -> str | None:
        """The hardware that the costs of schedules were measured on, if it differs from that of the ranks (rank 0).

        Raises:
            PlatformError: it differs, and that was not allowed.
        """
        if self.monitor is None:
            return None
        described, _ = platforms.distributing(self.settings.platform).joined(ranks)
        here = Platform(self.settings.platform, processor=_processors(ranks), gpus=described.get("gpus"))
        schedules = (entry.schedule for entry in self._entries)
        return other_hardware(schedules, here, forced=self.settings.other_hardware)

    def _choose_segments(self) -> None:
        """With engine segments, choose what runs each; rank 0 learns it of all ranks."""
        cut = {name: competitor for name, competitor in self._competitors.items() if competitor.segments is not None}
        if not cut:
            return
        self._step += 1
        self.control.report(self._step, msgspec.to_builtins(self._turns.choose(list(cut), str(self.job.weights))))
        if self.monitor is None:
            return
        deadline = time.monotonic() + self.settings.timeout_s
        reports = self.monitor.collect(self._step, range(self.transport.size), self.state, deadline).values()
        for name, competitor in cut.items():
            rows = [row for report in reports for row in report.get(name, ())]
            competitor.segments = msgspec.convert(rows, tuple[SegmentResult, ...])

    def _expect(self) -> None:
        """Compute the expected outputs, and check that the sequential schedule produces them.

        If timed runs have reduced precision, so does every schedule once in full precision.
        """
        if self._references:
            self.run_reference(self._references[0], exact=True)
        else:
            self.run(BASELINE, exact=True)
        self._turns.expect()
        for name in self._competitors if self._reduced else [BASELINE]:  # before any schedule takes its turn
            outcome = self.run(name, exact=True)
            if outcome is not None and outcome.difference is not None:
                self._competitors[name].difference = outcome.difference

    def run_reference(self, reference: Reference, *, exact: bool = False) -> TurnOutcome | None:
        """Run the model itself on rank 0 while the others wait."""
        if self.monitor is None:
            return None
        self.state.enter("the program itself")
        return TurnOutcome(run_reference(self._reference, exact) / 1e6, None)

    def run(self, name: str, *, exact: bool = False, recording: bool = False) -> TurnOutcome | None:
        """Run a competitor on all ranks, in full float32 if ``exact``; rank 0 receives the measurements.

        Times of operators are among them if ``recording``, or if that slows nothing down.
        """
        self._step += 1
        deadline = time.monotonic() + self.settings.timeout_s
        self.state.enter(name)
        self.control.beat()  # now, so that messages do not lengthen the run
        turn = self._turns.run(name, exact=exact, recording=recording or not self._hardware.apart)
        if turn is not None:
            self.control.report(self._step, asdict(turn))
        if self.monitor is None:
            return None
        competitor = self._competitors[name]
        ranks = [program.device for program in competitor.programs]
        reports = self.monitor.collect(self._step, ranks, self.state, deadline)
        for rank, report in reports.items():
            for number, off in report["beyond"]:
                if not off <= self._explained(number):
                    wrong = self._turns.wrong(number, off, exact=exact)
                    self.control.fail(FAILED, f"{who(self.places, rank)}: {name}: {wrong}")
        latency, self._rows = joined(reports, self._turns.offsets, competitor.copies)
        # If timed runs have reduced precision, the difference was computed in full precision.
        known = exact or self._reduced is None
        return TurnOutcome(latency, max(report["difference"] for report in reports.values()) if known else None)

    def _explained(self, number: int) -> float:
        """The difference of an output that rounding to float32 explains; 0 if the program is not there to tell."""
        if self._rounding is None:
            self.state.enter("finding what rounding explains")
            eager = self._references and self._references[0].kind == "eager"
            known = eager and allows_rounding(self.settings.tolerance)
            errors = reference_rounding(self._reference) if known else None
            expected = self._turns.expected
            self._rounding = explained(errors or [0.0] * len(expected), expected)
        return self._rounding[number]

    def take_rows(self, name: str) -> None:
        """Keep the rows of the last run, if it has any, with the possible clock error."""
        if self._rows:
            self._competitors[name].timelines.append(self._rows)
        self._uncertainty_ns = max(self._uncertainty_ns, *(off for _, off in self._turns.offsets.values()), 0)

    def _platform(self, ranks: Sequence[Mapping[str, Any]]) -> RunPlatform:
        """The platform as run.json states it."""
        apart = len({place.boot for place in self.places}) > 1
        described, used = platforms.distributing(self.settings.platform).joined(ranks)
        platform = {
            "name": self.settings.platform,
            "devices": len(ranks),
            **described,
            **({} if (each := self._grouped()) is None else {"cores_per_device": each}),
            "processor": _processors(ranks),
            **({} if (governor := description.governor(topology.usable_cpus())) is None else {"governor": governor}),
            "allocation": self._given,
            "load_average": round(os.getloadavg()[0], 2),
            "transport": self.transport.name,
            "hosts": [place.host for place in self.places],
            "virtual": shared(self.places, used),
            "clocks": "compared" if apart else "shared",
            **({"clock_uncertainty_ms": self._uncertainty_ns / 1e6} if apart else {}),
        }
        return msgspec.convert(platform, RunPlatform)


def refuse_segments(engine: str, platform: str) -> None:
    """Refuse segments where ranks have GPUs, by a `PlatformError`."""
    if engine == "segments" and not platforms.find(platform).GROUPS_CORES:
        raise PlatformError(f"--engine: found segments; allowed where ranks are on platform {platform}: operators")


def _processors(ranks: Sequence[Mapping[str, Any]]) -> str:
    """The processors of all hosts, each named once."""
    return ", ".join(dict.fromkeys(rank["processor"] for rank in ranks))


def _staged(path: Path, entry: ScheduleEntry) -> StagedPlan:
    """The plan by stages; a plan with one stream per device is the same as one with one operator per stage.

    Raises:
        ScheduleError: a device has several streams.
    """
    plan = entry.plan
    if isinstance(plan, StagedPlan):
        return plan
    for number, streams in enumerate(plan.devices):
        if len(streams) > 1:
            raise ScheduleError(
                f"{path}: placements: found {len(streams)} streams on device {number}; allowed over ranks: one "
                "stream per device, or stages; hios execute runs streams on one node"
            )
    return StagedPlan(
        tuple(tuple(((operator,),) for stream in streams for operator in stream) for streams in plan.devices)
    )
