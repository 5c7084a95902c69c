"""Platforms: where costs are measured or predicted and schedules run, one folder per platform.

protocol        what a platform is: the modules in its folder, and what they offer
cpu             devices are cores or groups of cores
cuda            devices are GPUs
model           GPUs that are not here: predicts costs, and runs nothing
timer           what a platform measures
occupancy       the thread blocks of a kernel that a GPU holds at once
probe_schedule  when the probe of the machine's speed is timed
workloads       what profiling times: operators with random weights and inputs; buffers of shared memory as tensors,
                and values copied into them; weights.safetensors, checked against the graph
segments        what a device runs between two hand-overs, for runtimes to run as one
program         a schedule as what each device does
competitor      a program that runs in a session, with its measurements
batch_job       the node, the cores and the batch job that this process has
code_hash       hashes of the code that a stage of the pipeline uses
reference       the model itself inside a worker: eager PyTorch, torch.compile, ONNX Runtime

A platform is a folder of that name with the parts that `hios.platforms.protocol` describes, and an entry in
`PLATFORMS` that names the module of each. This module is light: those modules are imported when the platform is used.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from hios.errors import PlatformError, suggestion
from hios.platforms.batch_job import allocation

if TYPE_CHECKING:
    from hios.files.base import Platform as Description
    from hios.platforms.protocol import (
        DistributingPart,
        ExecutingPart,
        MeasuringPart,
        PlatformPart,
        PredictingPart,
        ReportingPart,
    )


@dataclass(frozen=True, slots=True)
class Option:
    """An option of ``hios profile`` for one platform: ``--NAME`` there and ``NAME`` in config.yaml.

    ``required`` has the allowed values in words if the option is required.
    """

    name: str
    help: str
    required: str = ""


@dataclass(frozen=True, slots=True)
class KnownPlatform:
    """What is known of a platform without importing it.

    ``summary`` says what its devices are, in a few words; ``modules`` names the module in its folder for each of its
    parts (`hios.platforms.protocol`): several parts may be one module, which is then code of all stages that use one of
    them.
    """

    summary: str
    modules: Mapping[str, str]
    options: tuple[Option, ...] = ()

    @property
    def executes(self) -> bool:
        """Whether schedules run on it. If not, its costs are predicted (`PredictingPart`) instead of measured."""
        return "executing" in self.modules


#: How operators slow each other, and by which costs: of the platforms that know the resources of a device.
BLEND, RESOURCES = "blend", "resources"
_CONTENTION = Option(
    "contention",
    "how operators slow each other: blend, by the share of the device that they keep busy; or resources, as they share "
    "room on the device, arithmetic and memory bandwidth, with overheads; blend if left out.",
)

#: Every platform, by the name of its folder. `hios.platforms.code_hash` reads the modules from this text, so they are
#: literals.
PLATFORMS = {
    "cpu": KnownPlatform(
        "devices are cores or groups of cores",
        {
            "platform": "devices",
            "measuring": "measuring",
            "executing": "executing",
            "distributing": "distributing",
            "reporting": "reporting",
        },
        (_CONTENTION,),
    ),
    "cuda": KnownPlatform(
        "devices are GPUs",
        {
            "platform": "devices",
            "measuring": "measuring",
            "executing": "executing",
            "distributing": "distributing",
            "reporting": "reporting",
        },
        (_CONTENTION,),
    ),
    "model": KnownPlatform(
        "devices are GPUs that are not here, whose costs are predicted",
        {"platform": "devices", "predicting": "devices", "reporting": "reporting"},
        (
            Option(
                "gpu",
                "GPU to predict for: a name, such as a40 (docs/gpus.md lists them), or a .yaml file that describes it.",
                "the name of a GPU, such as a40, or a .yaml file",
            ),
            Option(
                "link",
                "link between two GPUs: a name from the GPU's description, such as nvlink or pcie, or a .yaml file; "
                "the first link of the description if left out.",
            ),
            _CONTENTION,
            Option(
                "launches",
                "how kernels are launched, which decides the pause before each: graph, replayed in one CUDA graph; or "
                "streams, by the host one after another; graph if left out.",
            ),
        ),
    ),
}


def with_option(name: str) -> list[str]:
    """The platforms that have an option."""
    return [platform for platform, known in PLATFORMS.items() if any(own.name == name for own in known.options)]


def entry(name: str) -> KnownPlatform:
    """What is known of a platform without importing it; a `PlatformError` if there is none of that name."""
    if name not in PLATFORMS:
        raise PlatformError(f"unknown platform {name}{suggestion(name, PLATFORMS)}; allowed: {', '.join(PLATFORMS)}")
    return PLATFORMS[name]


def executable() -> list[str]:
    """Names of the platforms on which schedules can run."""
    return [name for name, known in PLATFORMS.items() if known.executes]


def find(name: str) -> PlatformPart:
    """The module of a platform that describes its devices; a `PlatformError` if there is none of that name."""
    return cast("PlatformPart", _module(name, "platform"))


def describe(
    name: str,
    devices: int,
    *,
    virtual: bool = False,
    cores_per_device: int | None = None,
    options: Mapping[str, str] | None = None,
) -> Description:
    """The devices of a platform, as artifacts state them.

    Devices may share hardware if ``virtual``. Devices that are groups of cores have the platform's default number of
    cores if ``cores_per_device`` is None.

    Raises:
        PlatformError: unknown platform, too few devices, or an option that the platform does not have, that is not text
            or that has a value that is not allowed.
    """
    platform, given = find(name), dict(options or {})
    require_options(name, given, virtual=virtual, cores_per_device=cores_per_device)
    contention = given.pop(_CONTENTION.name, BLEND)
    if contention not in (BLEND, RESOURCES):
        raise PlatformError(f"--{_CONTENTION.name}: found {contention}; allowed: {BLEND}, {RESOURCES}")
    grouped = {} if cores_per_device is None else {"cores_per_device": cores_per_device}
    described = platform.describe(devices, virtual=virtual, **grouped, **given)
    described = described if contention == BLEND else replace(described, contention=contention)
    return replace(described, allocation=allocation()) if entry(name).executes else described


def require_options(
    name: str, options: Mapping[str, str], *, virtual: bool = False, cores_per_device: int | None = None
) -> None:
    """Refuse options that a platform does not have.

    Raises:
        PlatformError: unknown platform, an option that it does not have or that is not text, virtual devices where
            devices share nothing, or groups of cores if devices are not cores.
    """
    allowed = [option.name for option in entry(name).options]
    if cores_per_device is not None and not find(name).GROUPS_CORES:
        grouping = ", ".join(other for other in PLATFORMS if find(other).GROUPS_CORES)
        raise PlatformError(
            f"platform {name}: found --cores-per-device; allowed: without it, as only devices of platform {grouping} "
            "are groups of cores"
        )
    if virtual and not find(name).VIRTUAL:
        raise PlatformError(f"platform {name}: found --virtual; allowed: without it, as its devices share nothing")
    for option, value in options.items():
        if option not in allowed:
            others = f"with the options {', '.join(f'--{known}' for known in allowed)}" if allowed else "without it"
            raise PlatformError(f"platform {name}: found --{option}; allowed: {others}")
        if not isinstance(value, str):
            raise PlatformError(
                f"platform {name}: option {option}: found {type(value).__name__}; required: text, a name or a path"
            )


def measuring(name: str) -> MeasuringPart:
    """The module of a platform that measures."""
    return cast("MeasuringPart", _module(name, "measuring"))


def predicting(name: str) -> PredictingPart:
    """The module of a platform that predicts costs."""
    return cast("PredictingPart", _module(name, "predicting"))


def executing(name: str) -> ExecutingPart:
    """The module of a platform that runs schedules; a `PlatformError` if none run there, or there is no such one."""
    if not entry(name).executes:
        raise PlatformError(
            f"platform {name}: found a schedule to run; allowed: predicting costs, as nothing runs there; schedules "
            f"run on {', '.join(executable())}"
        )
    return cast("ExecutingPart", _module(name, "executing"))


def distributing(name: str) -> DistributingPart:
    """The module of a platform that runs schedules with one process per device."""
    return cast("DistributingPart", _module(name, "distributing"))


def reporting(name: str) -> ReportingPart:
    """The module of a platform that describes its devices for the report."""
    return cast("ReportingPart", _module(name, "reporting"))


def _module(name: str, part: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}.{entry(name).modules[part]}")
