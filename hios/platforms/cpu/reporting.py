"""Cores in words."""

from __future__ import annotations

from hios.files.base import Platform


def facts(description: Platform) -> dict[str, str]:
    """The cores of every device."""
    texts = [
        f"device {device} on core{'' if len(own) == 1 else 's'} {', '.join(map(str, own))}"
        for device, own in enumerate(description.cores or ())
    ]
    return {"Cores": "; ".join(texts) or "not recorded"}


def shared(description: Platform) -> str:
    """How many cores virtual devices share."""
    cores = {core for own in description.cores or () for core in own}
    if not cores:
        return "fewer cores"
    return f"{len(cores)} core{'' if len(cores) == 1 else 's'}"
