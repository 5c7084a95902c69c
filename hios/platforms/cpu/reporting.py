"""Cores in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def facts(description: Mapping[str, Any]) -> dict[str, str]:
    """The cores of every device."""
    texts = [
        f"device {device} on core{'' if len(own) == 1 else 's'} {', '.join(map(str, own))}"
        for device, own in enumerate(description.get("cores", ()))
    ]
    return {"Cores": "; ".join(texts) or "not recorded"}


def shared(description: Mapping[str, Any]) -> str:
    """How many cores virtual devices share."""
    cores = {core for own in description.get("cores", ()) for core in own}
    if not cores:
        return "fewer cores"
    return f"{len(cores)} core{'' if len(cores) == 1 else 's'}"
