"""What a platform offers, and how it is found by its name."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import pytest

from hios import platforms
from hios.errors import PlatformError
from hios.frontends.models import RUNTIMES
from hios.platforms import PLATFORMS, KnownPlatform, Option, protocol
from hios.platforms.cpu import devices as cpu_platform
from hios.platforms.cpu import distributing, executing, measuring, reporting
from hios.platforms.cuda import devices as cuda_platform
from hios.platforms.cuda import distributing as cuda_distributing
from hios.platforms.cuda import executing as cuda_executing
from hios.platforms.cuda import measuring as cuda_measuring
from hios.platforms.cuda import reporting as cuda_reporting
from hios.platforms.model import devices as model_platform
from hios.platforms.model import devices as model_predicting
from hios.platforms.model import reporting as model_reporting

# For type checkers: every module offers what the protocol of its name asks for.
_PLATFORMS: tuple[protocol.PlatformPart, ...] = (cpu_platform, cuda_platform, model_platform)
_MEASURING: tuple[protocol.MeasuringPart, ...] = (measuring, cuda_measuring)
_EXECUTING: tuple[protocol.ExecutingPart, ...] = (executing, cuda_executing)
_DISTRIBUTING: tuple[protocol.DistributingPart, ...] = (distributing, cuda_distributing)
_REPORTING: tuple[protocol.ReportingPart, ...] = (reporting, cuda_reporting, model_reporting)
_PREDICTING: protocol.PredictingPart = model_predicting
_FIND = {
    protocol.PlatformPart: platforms.find,
    protocol.MeasuringPart: platforms.measuring,
    protocol.PredictingPart: platforms.predicting,
    protocol.ExecutingPart: platforms.executing,
    protocol.DistributingPart: platforms.distributing,
    protocol.ReportingPart: platforms.reporting,
}


def _parts(name: str) -> list[Any]:
    """The protocols that a platform has modules for."""
    runs = [protocol.MeasuringPart, protocol.ExecutingPart] if PLATFORMS[name].executes else [protocol.PredictingPart]
    spread = [protocol.DistributingPart] if platforms.find(name).TRANSPORTS else []
    return [protocol.PlatformPart, protocol.ReportingPart, *runs, *spread]


@pytest.mark.parametrize("name", PLATFORMS)
def test_every_platform_offers_what_the_protocol_asks_for(name: str) -> None:
    """Its modules have all functions, with the parameters by name and order, and all constants."""
    for asked in _parts(name):
        module: Any = _FIND[asked](name)
        for constant, _ in inspect.getmembers(asked, lambda member: isinstance(member, property)):
            assert hasattr(module, constant), f"{module.__name__}: {constant}"
        for function, wanted in inspect.getmembers(asked, inspect.isfunction):
            if not function.startswith("_"):
                parameters = [*inspect.signature(wanted).parameters][1:]
                own = [*inspect.signature(getattr(module, function)).parameters]
                assert own[: len(parameters) - ("options" in parameters)] == [
                    parameter for parameter in parameters if parameter != "options"
                ], f"{module.__name__}: {function}"


@pytest.mark.parametrize("name", PLATFORMS)
def test_constants(name: str) -> None:
    """Runtimes are known ones, eager PyTorch among them where anything runs, and no pause is negative."""
    module = platforms.find(name)
    assert set(module.RUNTIMES) <= set(RUNTIMES)
    assert ("eager" in module.RUNTIMES) == PLATFORMS[name].executes
    assert module.SETTLE_S >= 0
    assert not module.OPTIMIZES or PLATFORMS[name].executes


def test_platforms_are_found_by_name() -> None:
    """The modules of a platform by name; unknown names are refused, with a list of the known ones."""
    modules: list[Any] = [platforms.find("cpu"), platforms.measuring("cpu"), platforms.executing("cuda")]
    assert modules == [cpu_platform, measuring, cuda_executing]
    for part in _FIND.values():
        with pytest.raises(PlatformError, match=rf"^unknown platform tpu; allowed: {', '.join(PLATFORMS)}$"):
            part("tpu")


@pytest.fixture
def predicted(monkeypatch: pytest.MonkeyPatch) -> str:
    """A platform that only predicts, shares nothing and has an option."""
    planned = KnownPlatform("devices are plans", {"platform": "planned_platform"}, (Option("gpu", "."),))
    monkeypatch.setitem(PLATFORMS, "planned", planned)
    monkeypatch.setitem(sys.modules, "hios.platforms.planned.planned_platform", cuda_platform)
    monkeypatch.setattr(cuda_platform, "VIRTUAL", False)
    monkeypatch.setattr(cuda_platform, "describe", lambda devices, **options: {"devices": devices, **options})
    return "planned"


def test_options_of_a_platform(predicted: str) -> None:
    """An option reaches the platform that has it, and is refused by others; so are virtual devices."""
    described: Any = platforms.describe(predicted, 2, options={"gpu": "a40"})
    assert described == {"devices": 2, "virtual": False, "gpu": "a40"}
    with pytest.raises(PlatformError, match=r"^platform planned: found --link; allowed: with the options --gpu$"):
        platforms.describe(predicted, 2, options={"link": "nvlink"})
    with pytest.raises(PlatformError, match=r"^platform cpu: found --gpu; allowed: with the options --contention$"):
        platforms.describe("cpu", 1, options={"gpu": "a40"})
    with pytest.raises(PlatformError, match=r"^platform planned: found --virtual; allowed: without it, as "):
        platforms.describe(predicted, 2, virtual=True)


def test_nothing_runs_on_predictions(predicted: str) -> None:
    """A platform that predicts is refused where schedules run, with those on which they do."""
    assert predicted not in platforms.executable()
    message = r"^platform planned: found a schedule to run; allowed: .*; schedules run on cpu, cuda$"
    with pytest.raises(PlatformError, match=message):
        platforms.executing(predicted)
