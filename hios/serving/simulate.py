"""A scenario under a policy, simulated: the contents of result.json."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence

from hios.formats.serving_result_file import Candidate, ResultFile
from hios.serving import choosing
from hios.serving.arrivals import Trace, draw
from hios.serving.calibration import with_interference
from hios.serving.measures import Outcome, result
from hios.serving.pipeline import Pipeline, QueueRules, queue_rules
from hios.serving.policies import AUTO, launcher_intervals_s, policy
from hios.serving.scenario import Scenario
from hios.serving.simulator import Record, Simulation, outcome

#: From so many block runs on, the compiled simulator is used where numba is installed; loading it takes a while.
_MANY_RUNS = 50_000

#: Carries out one repeat.
Engine = Callable[[Pipeline, Sequence[QueueRules], Trace, float], Record]


def simulate(scenario: Scenario, name: str, *, launcher: str | None = None, engine: Engine | None = None) -> ResultFile:
    """Simulate all repeats of a scenario under a policy.

    Args:
        scenario: models, arrivals, lanes.
        name: of a policy, or ``auto``.
        launcher: open, fixed or water-filling; that of the scenario if None.
        engine: what carries out a repeat; the compiled simulator where there is much to do and numba is installed,
            else the reference. Both give the same.

    Raises:
        HiosError: no such policy, or one that has no times for the scenario's device.
    """
    launcher = launcher or scenario.file.launcher
    candidates: tuple[Candidate, ...] = ()
    if name == AUTO:
        compared = choosing.compare(
            scenario, lambda other, repeats: _outcomes(scenario, other, launcher, repeats, engine)
        )
        candidates = tuple(compared)
    chosen = candidates[0].policy if candidates else None
    outcomes = _outcomes(scenario, chosen or name, launcher, range(scenario.file.repeats), engine)
    return result(scenario, name, launcher, outcomes, simulated=True, chosen=chosen, candidates=candidates)


def _outcomes(
    scenario: Scenario, name: str, launcher: str, repeats: Sequence[int], engine: Engine | None
) -> list[Outcome]:
    pipeline = with_interference(policy(name).make(scenario), scenario)
    rules = queue_rules(scenario, launcher_intervals_s(scenario, launcher))
    expected = sum(model.rate * count for model, count in zip(scenario.models, pipeline.blocks, strict=True))
    run = engine or _engine(expected * scenario.duration_s * len(repeats))
    outcomes = []
    for repeat in repeats:
        trace = draw(scenario, repeat)
        record = run(pipeline, rules, trace, scenario.duration_s)
        outcomes.append(outcome(record, pipeline, trace, scenario.duration_s))
    return outcomes


def reference(pipeline: Pipeline, queues: Sequence[QueueRules], trace: Trace, duration_s: float) -> Record:
    """One repeat by the reference simulator."""
    return Simulation(pipeline, queues, trace, duration_s).run()


def _engine(block_runs: float) -> Engine:
    if block_runs < _MANY_RUNS or importlib.util.find_spec("numba") is None:
        return reference
    from hios.serving.event_kernel import compiled

    return compiled
