"""Networks of the sessions images, batches and transformers, measured by nobody."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from hios.core.costs import CostsFile, ProfileSummary
from hios.files import artifacts
from hios.files.base import Platform
from tests.verify.results import write_network

#: Schedules by label, by network of sessions that have networks of their own.
VARIANTS = {
    "images": {
        "inception_v3-512": {
            "ios-1": ("ios", 1),
            "hios-lp-inter-2": ("hios-lp-inter", 2),
            "hios-lp-2": ("hios-lp", 2),
        }
    },
    "batches": {
        "inception_v3-b1": {"ios-1": ("ios", 1), "ios-for-b4": ("ios", 1)},
        "inception_v3-b4": {"ios-1": ("ios", 1), "ios-for-b1": ("ios", 1)},
    },
    "transformers": {"t5": {"opara-1": ("opara", 1), "nimble-1": ("nimble", 1)}},
}


def write_variants(folder: Path) -> dict[str, list[Path]]:
    """Write the networks of all these sessions into a folder of results; the runs by session."""
    return {
        session: [
            write_network(folder / "study" / session / name, seed, {"sequential-1": ("sequential", 1), **labeled})
            / "run.json"
            for seed, (name, labeled) in enumerate(networks.items())
        ]
        for session, networks in VARIANTS.items()
    }


def write_profiles(folder: Path) -> list[Path]:
    """Write a network that was profiled for IOS and for HIOS-LP alone into a folder of results; the schedules."""
    schedules = []
    for algorithm, devices, seconds in (("ios", 1, 90.0), ("hios-lp", 2, 30.0)):
        place = folder / "study" / "profiles" / "inception_v3-299" / algorithm
        write_network(place, 7, {"sequential-1": ("sequential", 1), "own": (algorithm, devices)})
        schedules.append((place / "schedules" / "own.json").rename(place / "schedule.json"))
        shutil.rmtree(place / "schedules")
        (place / "run.json").unlink()
        costs = artifacts.load(place / "costs.json", CostsFile)
        summary = ProfileSummary(seconds, 1e6, 20, 0.02, measured=12, imprecise=0, modelled=0, cached=0)
        measured = msgspec.structs.replace(costs, platform=Platform("cpu", devices=devices), profile=summary)
        artifacts.write(place / "costs.json", "costs", measured)
    return schedules
