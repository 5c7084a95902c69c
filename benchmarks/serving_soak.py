"""A server in overload for long: whether its memory is flat, no task is lost, and a killed lane comes back in time.

    python benchmarks/serving_soak.py SCENARIO [--minutes 10] [--policy top-open] [--calibration FILE] [--virtual]

SCENARIO is as `hios load` takes it, with arrivals at rates, which count as proportions. A load of 1 is what keeps all
lanes busy by the costs, or by calibration.json; the server gets 1.5 times that for so many minutes. Printed are the
memory of the server's process and of every lane over time, and at the end:

- by how much each has grown since the first minute (or the first half of a shorter run); limit: 16 MB;
- tasks offered, and what has become of them; limit: none unaccounted for, none failed;
- control: processor time of launching, dispatch and answers, as a share of the time that lanes were busy; limit: 5 %.

Then the load goes on for half a minute, in which lane 0 is killed (kill -9). Printed are how long it took until the
lane was ready again (limit: 5 s), how many tasks failed, and how many were completed meanwhile. Where a limit is
broken, the exit status is 1. The process of the server sends the tasks and checks all outputs, too. Limits of times
hold on a machine that does nothing else: how much other processes used its cores is printed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from hios.errors import HiosError
from hios.files import artifacts
from hios.files.option_defaults import TOLERANCE
from hios.formats.serving_result import CalibrationFile
from hios.machine.description import OtherWork, private_bytes, usable_cores
from hios.serving.calibration import calibrated
from hios.serving.load import reference_samples
from hios.serving.load_generator import ReferenceSample, Repeat
from hios.serving.measures import Tally
from hios.serving.scenario import Scenario, draw
from hios.serving.server import Server

OVERLOAD = 1.5
#: Limits: growth of a process, share of control, and time until a killed lane is ready again.
GROWTH_MB, CONTROL, BACK_S = 16.0, 0.05, 5.0
#: The load beside which a lane is killed: its duration, when the lane is killed, and how long it may be away.
KILLED_IN_S, KILLED_AT_S, MOST_AWAY_S = 30.0, 3.0, 120.0
#: Time between two looks at the memory in the first minute, and afterwards.
LOOKS_S = (5.0, 30.0)

Samples = Mapping[str, Sequence[ReferenceSample]]


class Memory:
    """Memory of the server's process and of every lane over time, printed as it goes.

    Args:
        server: whose processes they are.
        warm_s: from when on they are not to grow any more.
    """

    def __init__(self, server: Server, warm_s: float) -> None:
        self._server, self._warm_s = server, warm_s
        self._names = ["server", *(f"lane {number}" for number in range(len(server.process_ids)))]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_again, daemon=True)
        self._rows: list[tuple[float, list[float]]] = []

    def start(self) -> None:
        """Begin to look."""
        print("".join(f"{name:>12}" for name in ("seconds", *self._names)) + "  (MB)", flush=True)
        self._began_s = time.perf_counter()
        self._thread.start()

    def stop(self) -> None:
        """Look once more, and stop."""
        self._over.set()
        self._thread.join()
        self._look()

    def growth_mb(self) -> dict[str, float]:
        """By process, how much more memory it has at the end than when it was warm."""
        warm = next(row for passed_s, row in self._rows if passed_s >= self._warm_s)
        return {name: last - first for name, first, last in zip(self._names, warm, self._rows[-1][1], strict=True)}

    def _look_again(self) -> None:
        while not self._over.is_set():
            self._look()
            passed_s = self._rows[-1][0]
            following = passed_s + LOOKS_S[passed_s >= 60.0]
            if passed_s < self._warm_s:
                following = min(following, self._warm_s)
            self._over.wait(following - passed_s)

    def _look(self) -> None:
        passed_s = time.perf_counter() - self._began_s
        sizes = [private_bytes(pid, written=True) / 1e6 for pid in (os.getpid(), *self._server.process_ids)]
        self._rows.append((passed_s, sizes))
        print(f"{passed_s:12.0f}" + "".join(f"{size:12.1f}" for size in sizes), flush=True)


def overloaded(path: Path, duration_s: float, calibration: Path | None) -> Scenario:
    """The scenario with 1.5 times the rates that keep all lanes busy."""
    scenario = Scenario.read(path)
    if calibration is not None:
        scenario = calibrated(scenario, artifacts.load(calibration, CalibrationFile), str(calibration))
    work = sum(
        model.rate * sum(model.problem.time) / 1e3 * scenario.factor(number)
        for number, model in enumerate(scenario.models)
    )
    if not work:
        raise HiosError(f"{path}: found tasks that take no time; required: rates and costs above 0")
    made = Scenario.read(path, load=OVERLOAD * scenario.lanes / work)
    return made.with_settings(duration_s=duration_s, repeats=1)


def judged(what: str, value: str, limit: str, *, kept: bool) -> bool:
    """Print a value beside its limit; whether it is kept."""
    print(f"{what}: {value} (limit: {limit}){'' if kept else ': BROKEN'}", flush=True)
    return kept


def soaked(server: Server, scenario: Scenario, samples: Samples) -> list[bool]:
    """Overload a server, and print what it did; of every limit, whether it was kept."""
    repeat = Repeat(server, draw(scenario), scenario.duration_s, samples, TOLERANCE)
    memory = Memory(server, min(60.0, scenario.duration_s / 2))
    control_s, busy_s = server.control_s, server.busy_s
    memory.start()
    tallies = repeat.run().tallies
    memory.stop()
    share = (server.control_s - control_s) / max(server.busy_s - busy_s, 1e-9)
    kept = [
        judged(f"growth of {name}", f"{grown:+.1f} MB", f"{GROWTH_MB:g} MB", kept=grown <= GROWTH_MB)
        for name, grown in memory.growth_mb().items()
    ]
    for model, tally in zip(scenario.models, tallies, strict=True):
        print(f"{model.label}: {balance(tally)}")
    lost = sum(abs(tally.unaccounted) for tally in tallies)
    lost += sum(abs(counts.unaccounted) for counts in server.counts.values())
    kept.append(judged("tasks unaccounted for", str(lost), "0", kept=lost == 0))
    failed = sum(tally.failed for tally in tallies)
    kept.append(judged("tasks failed", f"{failed} {repeat.wrong}".strip(), "0", kept=failed == 0))
    kept.append(judged("control", f"{share:.1%} of the lanes' time", f"{CONTROL:.0%}", kept=share < CONTROL))
    return kept


def balance(tally: Tally) -> str:
    """What became of the tasks of a model, as an equation."""
    ends = {name: getattr(tally, name) for name in ("completed", "dropped", "expired", "failed", "waiting")}
    parts = " + ".join(f"{count} {name}" for name, count in ends.items())
    return f"{tally.offered} offered = {parts} + {tally.in_flight} in flight"


def killed(server: Server, scenario: Scenario, samples: Samples) -> list[bool]:
    """Kill a lane of an overloaded server, and print when it is back; of every limit, whether it was kept."""
    repeat = Repeat(server, draw(scenario, 1), scenario.duration_s, samples, TOLERANCE)
    away: list[float] = []
    meanwhile: list[int] = []

    def kill() -> None:
        time.sleep(KILLED_AT_S)
        while not (victim := server.process_ids[0]):  # it is being started: there is nothing to kill yet
            time.sleep(0.01)
        before, began = _completed(server), time.perf_counter()
        os.kill(victim, signal.SIGKILL)
        while time.perf_counter() - began < MOST_AWAY_S and not _is_back(server, victim):
            time.sleep(0.01)
        away.append(time.perf_counter() - began)
        meanwhile.append(_completed(server) - before)

    killing = threading.Thread(target=kill, daemon=True)
    killing.start()
    tallies = repeat.run().tallies
    killing.join()
    kept = [judged("lane 0 ready again after kill -9", f"{away[0]:.1f} s", f"{BACK_S:g} s", kept=away[0] <= BACK_S)]
    failed, lost = (sum(getattr(tally, name) for tally in tallies) for name in ("failed", "unaccounted"))
    print(f"tasks failed by that: {failed}; completed while the lane was away: {meanwhile[0]}")
    return [*kept, judged("tasks unaccounted for", str(lost), "0", kept=lost == 0)]


def _completed(server: Server) -> int:
    return sum(counts.completed for counts in server.counts.values())


def _is_back(server: Server, victim: int) -> bool:
    return server.process_ids[0] not in (0, victim) and server.lanes_up == len(server.cores)


def main() -> None:
    """Overload, kill, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", type=Path)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--policy", default="top-open")
    parser.add_argument("--calibration", type=Path)
    parser.add_argument("--virtual", action="store_true", help="let lanes share cores")
    options = parser.parse_args()
    if not 0 < options.minutes < float("inf"):
        sys.exit(f"--minutes: found {options.minutes}; allowed: more than 0, finite")
    try:
        scenario = overloaded(options.scenario, 60 * options.minutes, options.calibration)
        rates = ", ".join(f"{model.label} {model.rate:.3g}/s" for model in scenario.models)
        others = OtherWork(usable_cores())
        with Server(scenario, options.policy, virtual=options.virtual) as server:
            samples = reference_samples(server, TOLERANCE, trusted=False)
            print(f"{server.policy}, {OVERLOAD:g} x capacity for {options.minutes:g} minutes: {rates}", flush=True)
            kept = soaked(server, scenario, samples)
            print(f"other processes used {others.share(server.process_ids):.0%} of the cores", flush=True)
            kept += killed(server, overloaded(options.scenario, KILLED_IN_S, options.calibration), samples)
    except HiosError as error:
        sys.exit(f"Error: {error}")
    sys.exit(0 if all(kept) else 1)


if __name__ == "__main__":
    main()
