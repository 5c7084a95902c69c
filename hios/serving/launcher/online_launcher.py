"""Algorithm 1 online: a learned launcher decides, and decides again when the queues require it."""

from __future__ import annotations

import functools
import math
import random
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from hios.errors import HiosError
from hios.serving.admission import Admission
from hios.serving.instances import Instances
from hios.serving.launcher.actions import Launcher, LauncherDecision, Watched, sampled, state_size
from hios.serving.launcher.environment import Decisions
from hios.serving.measures import RepeatOutcome, variance
from hios.serving.pipeline import Pipeline, QueueRules
from hios.serving.scenario import Scenario, Trace, draw
from hios.serving.simulator import Simulation


def launcher_of(scenario: Scenario) -> Launcher:
    """The launcher that a scenario names; HiosError if there is none, or it was trained for another scenario."""
    if not scenario.file.top.weights:
        raise HiosError(
            f"{scenario.source}: policy learned: needs a launcher that hios train --learn launcher wrote; name it as "
            "top.weights or with --weights"
        )
    path = scenario.folder / scenario.file.top.weights
    launcher = _read(str(path), path.stat().st_mtime_ns if path.exists() else 0)
    launcher.require(scenario, path)
    return launcher


@functools.lru_cache(maxsize=4)
def _read(path: str, changed_ns: int) -> Launcher:
    return Launcher.read(path)


class OnlineLauncher:
    """A learned launcher on a scenario, simulated or real.

    It decides at the beginning, and looks at the queues after every step of the length that it was trained with. Where
    their variance is above T, or tasks have waited too long, it decides anew from samples of this step. A superblock
    changes nothing. ``decisions`` are made before, for the same scenario; others if None.
    """

    def __init__(self, scenario: Scenario, launcher: Launcher, decisions: Decisions | None = None) -> None:
        self._scenario, self._launcher, self._settings = scenario, launcher, launcher.settings
        self._decisions = decisions or Decisions(scenario, launcher.settings)
        #: Decisions that were made in the last run, the first one included.
        self.made = 0

    @property
    def most(self) -> int:
        """Sub-blocks that a combined block has at most, whatever is decided."""
        return max(self._settings.most, self._launcher.static.largest)

    def first(self) -> LauncherDecision:
        """The decision for an empty device; the static one if that is a superblock."""
        blocks = [len(model.blocks) for model in self._scenario.models]
        decision = self._launcher.decide(np.zeros(state_size(blocks, self._settings.samples), np.float32))
        return decision if decision.largest <= self._settings.most else self._launcher.static

    def run(self, trace: Trace) -> Simulation:
        """One repeat, at its end."""
        duration_s, first = self._scenario.duration_s, self.first()
        steps = self._decisions.begin(first, trace, duration_s)
        self.follow(steps, first, duration_s)
        return steps

    def follow(self, steps: Watched, first: LauncherDecision, until_s: float = math.inf) -> None:
        """Decide for a device up to a moment, or until it is over: it is looked at after every step.

        ``steps`` is a simulation or a server at its beginning, where the decision ``first`` holds.
        """
        decision, length_s = first, self._settings.step_s
        self.made = 1
        chance = random.Random(f"{self._scenario.file.seed}/online")
        while (now := steps.now) < until_s:
            state = sampled(steps, min(until_s, now + length_s), self._settings.samples, chance)
            if not self._due(steps):
                continue
            after = self._launcher.decide(state)
            self.made += 1
            if after != decision and after.largest <= self._settings.most:
                decision = after
                self._decisions.change(steps, decision)

    def outcomes(self, repeats: Sequence[int]) -> list[RepeatOutcome]:
        """Several repeats."""
        return [self.run(draw(self._scenario, repeat)).outcome() for repeat in repeats]

    def _due(self, steps: Watched) -> bool:
        """Whether the queues ask for another decision (line 30 of Algorithm 1)."""
        if variance(steps.lengths()) > self._settings.variance:
            return True
        return self._settings.wait_ms > 0 and 1e3 * steps.waits_s() > self._settings.wait_ms


class LiveLauncher:
    """Thread in which a launcher decides for a server until it is stopped.

    It is what the launcher looks at (`actions.Watched`); time passes by itself.
    """

    def __init__(
        self,
        online: OnlineLauncher,
        queues: Sequence[Admission],
        instances: Instances,
        change: Callable[[Pipeline, Sequence[QueueRules]], None],
    ) -> None:
        self._online, self._queues, self._instances, self._change = online, queues, instances, change
        self._over = threading.Event()
        self._began_s = time.perf_counter()
        self._thread = threading.Thread(target=self._decide, name="hios launcher", daemon=True)
        #: Processor time of the thread so far, seconds.
        self.used_s = 0.0
        #: Why it no longer decides; empty while it does.
        self.lost = ""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. This may be called repeatedly, and before the thread was started."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def made(self) -> int:
        """Decisions so far, the first one included."""
        return self._online.made

    @property
    def now(self) -> float:
        """Seconds since the beginning; infinite once it is over."""
        return math.inf if self._over.is_set() else time.perf_counter() - self._began_s

    def run_to(self, until_s: float) -> None:
        """Wait for a moment, or until it is over."""
        self.used_s = time.thread_time()
        self._over.wait(max(0.0, self._began_s + until_s - time.perf_counter()))

    def lengths(self) -> list[int]:
        """Requests in every queue."""
        return list(map(len, self._queues))

    def progress(self) -> list[bool]:
        """Of every block of all models, whether it holds an instance."""
        return self._instances.progress()

    def waits_s(self) -> float:
        """Mean time since the arrival of the requests that wait; 0 without any."""
        now = time.perf_counter()
        waits = [queue.waits_s(now) for queue in self._queues]
        return sum(total for total, _ in waits) / max(1, sum(count for _, count in waits))

    def change(self, pipeline: Pipeline, queues: Sequence[QueueRules]) -> None:
        """Switch the server to other combined blocks and intervals, unless the load has ended."""
        if not self._over.is_set():
            self._change(pipeline, queues)

    def _decide(self) -> None:
        try:
            self._online.follow(self, self._online.first())
        except Exception as error:  # whatever it is, the server tells it (`Server.lost`)
            self.lost = f"the launcher failed: {error or type(error).__name__}"
