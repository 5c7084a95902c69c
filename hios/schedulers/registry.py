"""The registry of algorithms: one signature, named parameters, unique names."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, SupportsIndex, TypeVar

from hios.core.problem import Problem
from hios.core.schedule import Plan, Solution
from hios.errors import HiosError, suggestion

#: The function of an algorithm; the decorator returns it unchanged.
Run = TypeVar("Run", bound=Callable[..., Plan | Solution])


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an algorithm, named as in its paper; ``default`` also determines its type.

    Examples:
        >>> import hios
        >>> hios.Parameter("window", 2, "largest number of operators in a stage", minimum=2).allowed
        'a whole number of at least 2'
    """

    name: str
    default: bool | int | float | str
    help: str
    minimum: float | None = None
    choices: tuple[str, ...] = ()

    @property
    def default_text(self) -> str:
        """The default as written in config.yaml."""
        if self.default == "":
            return '""'
        return str(self.default).lower() if isinstance(self.default, bool) else str(self.default)

    @property
    def allowed(self) -> str:
        """The allowed values, in words."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        kind = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[type(self.default)]
        return kind if self.minimum is None else f"{kind} of at least {self.minimum:g}"

    def checked(self, algorithm: str, value: Any) -> Any:
        """The value, after checking that it is allowed.

        Raises:
            HiosError: wrong type, not finite, below the minimum, or not one of the choices.
        """
        kind = type(self.default)
        number = kind is float and isinstance(value, int) and not isinstance(value, bool)
        fits = number or (isinstance(value, kind) and isinstance(value, bool) == (kind is bool))
        if (
            not fits
            or (kind is float and not math.isfinite(value))
            or (self.minimum is not None and value < self.minimum)
            or (self.choices and value not in self.choices)
        ):
            raise HiosError(f"algorithm {algorithm}: parameter {self.name}: found {value!r}; allowed: {self.allowed}")
        return value


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A registered algorithm: ``run(problem, devices, **parameters)`` returns a plan, or a solution around one."""

    name: str
    paper: str
    summary: str
    several_devices: bool
    parameters: tuple[Parameter, ...]
    run: Callable[..., Plan | Solution]
    #: Number of cores that it uses; the pipeline reserves them.
    threads: int = 1
    #: Name and version of the distribution whose entry point it is; empty for those of hios and of this process.
    distribution: str = ""
    #: What it knows of what operators take of a device, for ``hios algorithms``; empty if nothing.
    demand: str = ""

    @property
    def is_own(self) -> bool:
        """Whether it is one of hios, which every process knows."""
        return self.run.__module__.startswith("hios.")

    @property
    def origin(self) -> str:
        """Module and name of its function, for messages."""
        return f"{self.run.__module__}.{self.run.__qualname__}"

    def resolved(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All parameters with their values, including defaults.

        Raises:
            HiosError: an unknown parameter or a value that is not allowed.
        """
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in given:
            if name not in known:
                allowed = ", ".join(known) or "none, it has no parameters"
                raise HiosError(
                    f"algorithm {self.name}: unknown parameter {name}{suggestion(name, known)}; allowed: {allowed}"
                )
        return {
            name: parameter.checked(self.name, given.get(name, parameter.default)) for name, parameter in known.items()
        }

    def solve(self, problem: Problem, devices: int, parameters: Mapping[str, Any] | None = None) -> Solution:
        """Run with parameters as `resolved` gives them, or with the defaults, on the times of ``Problem.on``."""
        result = self.run(problem.on(devices), devices, **(self.resolved({}) if parameters is None else parameters))
        return result if isinstance(result, Solution) else Solution(result)


#: Not an algorithm: the fastest of all schedules by measurement, which only an execution can determine.
AUTO = "auto"
#: More than any machine has, so that a typo does not allocate gigabytes.
MOST_DEVICES = 1024

#: Names are labels of config.yaml and parts of file names.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
#: Names with another meaning in `hios schedule` and config.yaml.
_RESERVED = frozenset({"algorithm", "costs", "devices", "graph", "help", "output"})

#: The algorithms that are registered so far, by name: those of hios, those that this process registers itself, and
#: those of other distributions that were requested (`hios.schedulers.plugins`).
ALGORITHMS: dict[str, Algorithm] = {}


def register(
    name: str,
    *,
    paper: str,
    summary: str,
    several_devices: bool,
    parameters: tuple[Parameter, ...] = (),
    threads: int = 1,
    demand: str = "",
) -> Callable[[Run], Run]:
    """Register a function ``(problem, devices, **parameters) -> Plan | Solution`` under a name.

    A function of ``__main__`` may be registered again, as happens when a cell of a notebook runs twice.

    Args:
        name: the name on the command line and in config.yaml: letters, digits, - and _.
        paper: where the algorithm comes from.
        summary: one line for ``hios algorithms``.
        several_devices: whether it can use more than one device.
        parameters: its parameters, with the names and defaults of the function's keyword arguments.
        threads: cores that it uses.
        demand: what it knows of what operators take of a device, for ``hios algorithms``; empty if nothing.

    Raises:
        ValueError: the name is taken or not allowed, parameters and function disagree, the name of a parameter is also
            that of another option, or another algorithm has a parameter of that name and another type.

    Examples:
        >>> import hios
        >>> @hios.register("reversed", paper="none", summary="any topological order", several_devices=False)
        ... def one_after_another(problem, devices):
        ...     return hios.StreamPlan(((tuple(problem.order),),), tuple(problem.order))
        >>> graph = hios.Graph("pair", (hios.Operator("a", "conv"), hios.Operator("b", "conv")), (hios.Edge("a", "b"),))
        >>> costs = hios.Costs(time_ms={"a": 1.0, "b": 2.0}, transfers={("a", "b"): 0.5})
        >>> hios.schedule(hios.Problem(graph, costs), "reversed").latency_ms
        3.0
    """
    if not _NAME.fullmatch(name) or name == AUTO:
        raise ValueError(f"algorithm {name}: found this name; allowed: letters, digits, - and _, but not {AUTO}")

    def decorate(run: Run) -> Run:
        algorithm = Algorithm(name, paper, summary, several_devices, parameters, run, threads, demand=demand)
        known = ALGORITHMS.get(name)
        if known is not None and not (run.__module__ == "__main__" and known.origin == algorithm.origin):
            raise ValueError(f"an algorithm named {name} is registered already, {known.origin}")
        keywords = {p.name: p.default for p in inspect.signature(run).parameters.values() if p.kind is p.KEYWORD_ONLY}
        if keywords != {parameter.name: parameter.default for parameter in parameters}:
            raise ValueError(f"algorithm {name}: its parameters and the keywords of {run.__name__} disagree")
        for parameter in parameters:
            _check_parameter(name, parameter)
        ALGORITHMS[name] = algorithm
        return run

    return decorate


def _check_parameter(name: str, parameter: Parameter) -> None:
    """Refuse a parameter that cannot become a command-line option."""
    if parameter.name in _RESERVED:
        raise ValueError(f"algorithm {name}: parameter {parameter.name}: found this name; allowed: one not in use")
    if type(parameter.default) not in (bool, int, float, str):
        kind = type(parameter.default).__name__
        raise ValueError(
            f"algorithm {name}: parameter {parameter.name}: found {kind}; allowed: bool, int, float or str"
        )
    for other in ALGORITHMS.values():
        kinds = {type(known.default) for known in other.parameters if known.name == parameter.name}
        if other.name != name and kinds - {type(parameter.default)}:  # both become the same command-line option
            raise ValueError(f"algorithm {name}: {parameter.name} has another type than in {other.name}")


def checked_devices(algorithm: Algorithm, devices: object) -> int:
    """The number of devices, also if it is NumPy's, after checking that an algorithm can use it.

    Raises:
        HiosError: no whole number, none or too many, or several for a single-device algorithm.
    """
    number = 0 if isinstance(devices, bool) or not isinstance(devices, SupportsIndex) else devices.__index__()
    if not 1 <= number <= MOST_DEVICES:
        raise HiosError(f"devices: found {devices}; allowed: whole numbers from 1 to {MOST_DEVICES}")
    if number > 1 and not algorithm.several_devices:
        raise HiosError(
            f"algorithm {algorithm.name} schedules a single device; found devices = {devices}; allowed: 1 "
            f"(for several devices: {', '.join(sorted(a.name for a in ALGORITHMS.values() if a.several_devices))})"
        )
    return number
