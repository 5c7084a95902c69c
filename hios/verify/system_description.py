"""Whether measurements state what they were measured on: numbers without machine and software are worthless."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from hios import artifacts
from hios.errors import HiosError
from hios.formats.base import Platform
from hios.formats.costs_file import CostsFile
from hios.formats.run_file import Run, RunPlatform

#: Fields of the platform that a measurement has to state, each in words; by platform if only some have it.
_ALWAYS = {
    "processor": "model name of the processor",
    "devices": "number of devices",
    "load_average": "load average when the measurement began",
}
_BY_PLATFORM = {
    "cpu": {"cores": "cores of each device"},
    "cuda": {"gpus": "name of the GPU of each device"},
}
#: Ranks of a launcher do not record other work on their cores.
_ONE_NODE = {"cpu": {"busy_share": "share of the cores' time that other work took"}}
#: Software that every measurement depends on.
_SOFTWARE = ("python", "kernel", "hios", "torch")
#: Packages that versions.json names in any installation.
_INSTALLED = ("python", "kernel", "hios")


def run_description_problems(run: Run) -> Iterator[str]:
    """What a run fails to state about where and when it was measured."""
    yield from _platform_problems(run.platform)
    yield from _version_problems(run.versions, _SOFTWARE, "versions.")
    if run.measured_at is None:
        yield _missing("measured_at", "date and time at which the session began")
    if run.checked_against is None:
        yield _missing("checked_against", "what outputs were compared with")


def costs_description_problems(costs: CostsFile) -> Iterator[str]:
    """What a profile fails to state about where it was measured; handwritten and predicted costs need no machine."""
    if costs.profile is None or (costs.platform is not None and costs.platform.predicted):
        return
    if costs.platform is None:
        yield _missing("platform", "where the costs were measured")
    else:
        yield from _platform_problems(costs.platform)
    yield from _version_problems(costs.versions or {}, _SOFTWARE, "versions.")


def versions_problems(path: Path) -> Iterator[str]:
    """Errors in the software versions that the pipeline recorded."""
    try:
        versions = artifacts.read_json(path)
    except HiosError as error:
        yield str(error).removeprefix(f"{path}: ")
        return
    if not isinstance(versions, dict):
        yield f"found {type(versions).__name__}; allowed: an object with a version for each package"
        return
    yield from _version_problems(versions, _INSTALLED, "")
    yield from (
        f"{name}: found {version!r}; allowed: a version in quotes"
        for name, version in versions.items()
        if not isinstance(version, str)
    )


def _platform_problems(platform: Platform) -> Iterator[str]:
    several_nodes = isinstance(platform, RunPlatform) and platform.transport is not None
    required = {
        **_ALWAYS,
        **_BY_PLATFORM.get(platform.name, {}),
        **({} if several_nodes else _ONE_NODE.get(platform.name, {})),
    }
    for field, meaning in required.items():
        if getattr(platform, field) in (None, ()):
            yield _missing(f"platform.{field}", meaning)


def _version_problems(versions: Mapping[str, object], required: tuple[str, ...], field: str) -> Iterator[str]:
    for name in required:
        if not versions.get(name):
            yield _missing(f"{field}{name}", "its version" if name != "kernel" else "version of the system's kernel")


def _missing(field: str, meaning: str) -> str:
    return f"{field}: missing; a measurement has to state it ({meaning})"
