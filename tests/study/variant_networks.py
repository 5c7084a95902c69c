"""Networks of the sessions images, batches and transformers, measured by nobody."""

from __future__ import annotations

from pathlib import Path

from tests.verify.results import write_network

#: Schedules by label, by network of sessions that have networks of their own.
VARIANTS = {
    "images": {"inception_v3-512": {"ios-1": ("ios", 1), "hios-lp-2": ("hios-lp", 2)}},
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
            write_network(folder / "study" / session / name, seed, {"sequential-1": ("sequential", 1), **labelled})
            / "run.json"
            for seed, (name, labelled) in enumerate(networks.items())
        ]
        for session, networks in VARIANTS.items()
    }
