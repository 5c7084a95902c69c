"""The options of ``hios.optimize``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from hios import platforms
from hios.core.graph import UNITS
from hios.errors import ArtifactError, HiosError, PlatformError
from hios.files import artifacts, option_defaults
from hios.machine import topology
from hios.optimizing.candidates import SCHEDULE, WAYS
from hios.optimizing.module import warn
from hios.optimizing.report import Report
from hios.platforms.cpu import devices as cpu
from hios.platforms.cpu.segment_runtimes import Choosing
from hios.profiling.cache import default_folder
from hios.schedulers import find

#: What ``way`` may be apart from one or several of ``WAYS``.
AUTO = "auto"
#: Maximum number of devices by default: networks seldom have more branches of similar size.
_DEVICES = 8


@dataclass(frozen=True, slots=True)
class Options:
    """The options of ``optimize``; see its arguments. A `HiosError` refuses those that are not allowed."""

    devices: int | None = None
    algorithm: str = "auto"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    platform: str = "cpu"
    units: str | None = None
    cache: str | Path | bool | None = None
    tolerance: float = option_defaults.TOLERANCE
    least_ms: float = option_defaults.OPTIMIZE_LEAST_MS
    budget_s: float = option_defaults.OPTIMIZE_BUDGET_S
    timeout_s: float = option_defaults.TIMEOUT_S
    way: str | Sequence[str] = AUTO
    strict: bool = False
    wait: bool = True
    #: Called with what is the fastest so far, once that is cached, while other ways are still to come.
    told: Callable[[Report], object] | None = None

    def __post_init__(self) -> None:
        allowed = [name for name in platforms.executable() if platforms.find(name).OPTIMIZES]
        if self.platform not in allowed:
            raise PlatformError(
                f"optimize: platform: found {self.platform!r}; allowed: {', '.join(map(repr, allowed))}"
            )
        if self.units not in (None, *UNITS):
            raise HiosError(f"optimize: units: found {self.units!r}; allowed: {', '.join(UNITS)}, or None")
        if self.cache is True:
            raise HiosError("optimize: cache: found True; allowed: a folder, None for the user's own, False for none")
        if isinstance(self.devices, bool) or not isinstance(self.devices, int | None):
            raise HiosError(f"optimize: devices: found {self.devices!r}; allowed: a whole number, or None")
        for name in ("strict", "wait"):
            if not isinstance(value := getattr(self, name), bool):
                raise HiosError(f"optimize: {name}: found {value!r}; allowed: True or False")
        for name in ("tolerance", "budget_s", "timeout_s"):
            if not (_is_number(value := getattr(self, name)) and value > 0):
                raise HiosError(f"optimize: {name}: found {value!r}; allowed: more than 0")
        if not (_is_number(self.least_ms) and self.least_ms >= 0):
            raise HiosError(f"optimize: least_ms: found {self.least_ms!r}; allowed: at least 0")
        if self.algorithm != "auto":
            find(self.algorithm).resolved(self.parameters)
        elif self.parameters:
            raise HiosError("optimize: parameters: found some for algorithm auto; allowed: those of a named algorithm")
        self._check_way()

    def _check_way(self) -> None:
        names = [self.way] if isinstance(self.way, str) else list(self.way)
        allowed = [AUTO, *WAYS] if isinstance(self.way, str) else list(WAYS)
        for name in names or [""]:
            if name not in allowed:
                raise HiosError(
                    f"optimize: way: found {name!r}; allowed: {', '.join(map(repr, (AUTO, *WAYS)))}, or several of the "
                    "latter"
                )
        if self.algorithm != "auto" and self.way not in (AUTO, SCHEDULE):
            raise HiosError(
                f"optimize: way: found {self.way!r} with algorithm {self.algorithm}; allowed: {SCHEDULE!r}, as an "
                "algorithm makes schedules"
            )

    @property
    def ways(self) -> tuple[str, ...]:
        """The candidates that take part; the model as it runs today always does."""
        if self.algorithm != "auto":
            return (SCHEDULE,)
        if isinstance(self.way, str):
            return WAYS if self.way == AUTO else (self.way,)
        return tuple(name for name in WAYS if name in self.way)

    @property
    def is_auto(self) -> bool:
        """Whether the fastest candidate is chosen, rather than one by name."""
        return self.algorithm == "auto" and self.way not in WAYS

    def asks_for(self, kind: str) -> bool:
        """Whether the user chose this kind of candidate, whatever is measured."""
        return not self.is_auto and kind in self.ways

    def divisions(self) -> list[list[list[int]]]:
        """Cores of every device, for each considered division of the machine.

        A single division, with one core per device, if the user sets the number of devices; a `PlatformError` if there
        are fewer cores.
        """
        usable = topology.read()
        if self.devices is None:
            return topology.divisions(usable, _DEVICES)
        if not 1 <= self.devices <= len(usable):
            raise PlatformError(
                f"optimize: devices: found {self.devices}; allowed: 1 to {len(usable)}, the cores that this process "
                "may run on, or None"
            )
        return [cpu.device_cores(self.devices)]

    def folder(self) -> Path | None:
        """Folder of the cache; None, with a warning, if it is not writable."""
        if self.cache is False:
            return None
        folder = Path(self.cache) if isinstance(self.cache, str | Path) else default_folder().parent
        try:
            artifacts.require_writable(folder / "choices" / "choice.json")
        except ArtifactError as error:
            warn(f"what hios.optimize measures is not kept: {error}")
            return None
        return folder

    @property
    def different(self) -> tuple[str, ...]:
        """The values for which a runtime must not be known to differ from PyTorch."""
        return ("finite", "special") if self.strict else ("finite",)

    def choosing(self, example: Sequence[Tensor], seconds: float) -> Choosing:
        """How schedules choose what runs their segments."""
        folder = self.folder()
        # A whole way that differs on masks is left out; a segment has another runtime instead.
        return Choosing(example, folder and folder / "segments", seconds, (*self.different, "masked"))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
