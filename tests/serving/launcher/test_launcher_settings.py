"""Settings of a launcher's training: what is refused, and what the paper's are."""

from __future__ import annotations

import dataclasses

import pytest

from hios.errors import HiosError
from hios.serving.launcher.launcher_settings import AS_PRINTED, SIZES, LauncherSettings, differences, settings_of

_FLOATS = [field.name for field in dataclasses.fields(LauncherSettings) if isinstance(field.default, float)]
_WHOLE = [field.name for field in dataclasses.fields(LauncherSettings) if type(field.default) is int]


@pytest.mark.parametrize("name", _FLOATS)
@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e300", "-0.5"])
def test_numbers_without_limit_are_refused(name: str, text: str) -> None:
    """For every setting that is a number: not infinite, not NaN, not below 0."""
    with pytest.raises(HiosError, match=rf"^{name}: found \S+; allowed: \S+ to \S+$"):
        settings_of("default", {name: text})


@pytest.mark.parametrize("name", _WHOLE)
@pytest.mark.parametrize("text", ["-1", "1" + 400 * "0"])
def test_whole_numbers_without_limit_are_refused(name: str, text: str) -> None:
    """For every setting that is a whole number: none below 0, and none that no memory or patience would do for."""
    with pytest.raises(HiosError, match=rf"^{name}: found \S+; allowed: \S+ to \S+$"):
        settings_of("default", {name: text})


@pytest.mark.parametrize("size", SIZES)
def test_sizes_are_allowed(size: str) -> None:
    """All sizes, and Algorithm 1 as printed, are settings; the defaults have the paper's other constants."""
    settings = settings_of(size, {}, **AS_PRINTED)
    assert differences(settings).items() >= AS_PRINTED.items()
    assert (settings.batch, settings.gamma, settings.rate, settings.samples) == (100, 0.95, 0.001, 10)


def test_as_printed() -> None:
    """Nothing but (3) and (4) on z-scores without limit, and target networks as by default."""
    settings = settings_of("paper", {}, **AS_PRINTED)
    assert (settings.pull, settings.clip, settings.alone, settings.update) == (0.0, 0.0, 0, "printed")
    assert settings.follow == LauncherSettings().follow < 1
