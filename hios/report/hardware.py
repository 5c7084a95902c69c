"""The hardware of a run in words: its devices, and whether they share hardware."""

from __future__ import annotations

from hios import platforms
from hios.formats.base import Platform

_UNKNOWN = "not recorded"


def hardware(platform: Platform) -> dict[str, str]:
    """Name and text of every fact of a platform; which facts there are depends on its kind.

    Args:
        platform: as artifacts state it.
    """
    busy = platform.busy_share
    known = platform.name in platforms.PLATFORMS
    return {
        "Platform": platform.name,
        "Processor": platform.processor or _UNKNOWN,
        "Devices": f"{platform.devices or _UNKNOWN}{', virtual' if is_virtual(platform) else ''}",
        **(platforms.reporting(platform.name).facts(platform) if known else {}),
        "Other work on the cores before": _UNKNOWN if busy is None else f"{busy:.0%} of their time",
    }


def predicted_hardware(platform: Platform) -> list[tuple[str, str]]:
    """Name and text of every fact of a platform that predicts."""
    known = platform.name in platforms.PLATFORMS
    facts = platforms.reporting(platform.name).facts(platform) if known else {}
    return [("Platform", f"{platform.name}: predicted, nothing was measured or run"), *facts.items()]


def is_virtual(platform: Platform) -> bool:
    """Whether devices share hardware."""
    return bool(platform.virtual)


def virtual_text(platform: Platform) -> str | None:
    """What to say of devices that share hardware; None where they do not."""
    if not is_virtual(platform):
        return None
    known = platform.name in platforms.PLATFORMS
    shared = platforms.reporting(platform.name).shared(platform) if known else "hardware"
    return f"virtual devices: {platform.devices or 'several'} of them share {shared}, so times say little"
