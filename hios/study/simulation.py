"""HIOS's simulation (section V): every algorithm on the random graphs of settings."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import msgspec

from hios.core.check import violations
from hios.core.problem import Problem
from hios.core.schedule import Schedule
from hios.core.sums import add_up
from hios.errors import ScheduleError
from hios.files.artifacts import Json
from hios.formats.study import AblationFile, Instance, Setting, SimulationFile, Variant
from hios.schedulers import find, schedule
from hios.schedulers.ios import searching_once
from hios.study import released_program
from hios.study.random_graphs import GENERATORS, charged_by_destination, even_layers, random_layers
from hios.study.released_program import Deviations

#: What the paper compares, then what it does not.
ALGORITHMS = ("sequential", "ios", "hios-mr-inter", "hios-mr", "hios-lp-inter", "hios-lp", "heft", "hios-opt")
#: Those that group operators by a window.
_GROUPING = ("hios-mr", "hios-lp")
#: Those for one device, which the released program evaluates as the paper does.
_ONE_DEVICE = ("sequential", "ios")
#: Longer than any search by moves takes, so that results do not depend on a clock.
_NO_LIMIT = 1e6


def simulate(
    settings: Sequence[Setting], seeds: Iterable[int], *, window: int, alpha: float, moves: int
) -> list[SimulationFile]:
    """Every algorithm on the random graphs of settings, in their order; the same everywhere but for the time it took.

    IOS looks at neither transfers nor devices: it searches the graphs of settings that differ in these alone once.

    Every seed is an instance of a setting. ``moves`` are those of each chain of hios-opt, whose result then does not
    depend on the machine's speed, and which proves the bound.

    Raises:
        ScheduleError: an algorithm's schedule breaks a rule.
    """
    rows: list[list[Instance]] = [[] for _ in settings]
    spent_s = [0.0] * len(settings)
    for seed in seeds:
        with searching_once():
            for place, setting in enumerate(settings):
                began = time.process_time()
                rows[place].append(_instance(setting, seed, window, alpha, moves))
                spent_s[place] += time.process_time() - began
    return [
        SimulationFile(setting, window, alpha, moves, tuple(instances), spent)
        for setting, instances, spent in zip(settings, rows, spent_s, strict=True)
    ]


def _instance(setting: Setting, seed: int, window: int, alpha: float, moves: int) -> Instance:
    problem = random_layers(**drawn(setting), alpha=alpha, seed=seed).problem()
    schedules = {
        name: solved(problem, name, setting.devices, **_parameters(name, window, moves)) for name in ALGORITHMS
    }
    even = even_layers(**drawn(setting), alpha=alpha, seed=seed)
    of_one = {name: solved(even.problem(), name, setting.devices).latency_ms for name in _ONE_DEVICE}
    released = charged_by_destination(even, setting.p).problem().on(setting.devices)
    return Instance(
        seed=seed,
        latency_ms={name: schedule.latency_ms for name, schedule in schedules.items()},
        bound_ms=schedules["hios-opt"].lower_bound_ms,
        even_layers_ms=of_one,
        released_ms=released_program.latencies_ms(released, setting.devices, released_program.RELEASED),
    )


def ablate(setting: Setting, generator: str, seeds: Iterable[int], *, alpha: float) -> AblationFile:
    """Latencies without deviations, with each alone, with all but each, and with all of the released program.

    Instances are drawn by one of ``GENERATORS``, a seed each.
    """
    began = time.process_time()
    graphs = [GENERATORS[generator](**drawn(setting), alpha=alpha, seed=seed) for seed in seeds]
    problems = [graph.problem().on(setting.devices) for graph in graphs]
    charged = [charged_by_destination(graph, setting.p).problem().on(setting.devices) for graph in graphs]
    names = Deviations.names()
    variants = []
    for deviations in (
        released_program.PAPER,
        *(Deviations.only(name) for name in names),
        *(Deviations.without(name) for name in names),
        released_program.RELEASED,
    ):
        subjects = charged if deviations.destination_transfers else problems
        latencies = [released_program.latencies_ms(subject, setting.devices, deviations) for subject in subjects]
        in_force = tuple(name for name in names if getattr(deviations, name))
        variants.append(Variant(in_force, {name: tuple(row[name] for row in latencies) for name in latencies[0]}))
    sequential = tuple(add_up(problem.time) for problem in problems)
    return AblationFile(setting, generator, sequential, tuple(variants), time.process_time() - began, alpha)


def drawn(setting: Setting) -> Json:
    """The parameters of a generator of graphs."""
    parameters: Json = msgspec.structs.asdict(setting)
    del parameters["devices"]
    return parameters


def solved(problem: Problem, name: str, devices: int, **parameters: float) -> Schedule:
    """The schedule of an algorithm, on one device where it uses no more; a `ScheduleError` if it is not valid."""
    made = schedule(problem, name, devices if find(name).several_devices else 1, parameters)
    if wrong := violations(problem, made):
        raise ScheduleError(f"{name}: invalid schedule: {wrong[0]}")
    return made


def _parameters(name: str, window: int, moves: int) -> dict[str, float]:
    if name == "hios-opt":
        return {"moves": moves, "time_limit": _NO_LIMIT}
    return {"window": window} if name in _GROUPING else {}
