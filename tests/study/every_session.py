"""Files of every session that figures are drawn from, measured by nobody."""

from __future__ import annotations

import html
from pathlib import Path

import msgspec

from hios.files import artifacts
from hios.formats.archive import PageOrigin
from hios.formats.config import SERIES, SimulationStudy
from hios.report.archive import write_archive
from hios.report.results import ORIGIN
from hios.study.random_graphs import GENERATORS
from hios.study.sessions import base
from hios.study.simulation import ablate, simulate
from tests.serving.study_scenarios import write_scenarios
from tests.study.test_convolutions import MADE
from tests.study.test_simulation import SMALL
from tests.study.top_points import write_experiments
from tests.study.variant_networks import write_profiles, write_variants
from tests.verify.results import write_network, write_pruning


def write_sessions(folder: Path, other: Path) -> dict[str, list[Path]]:
    """Write every session as the pipeline does; its files by session.

    Args:
        folder: of results.
        other: for the results of another machine and their archive.
    """
    write_network(folder / "inception_v3", seed=1)
    write_network(folder / "squeezenet", seed=2)
    alone = folder / "study" / "convolutions.json"
    artifacts.write(alone, "convolutions", MADE)
    write_network(
        other / "results" / "inception_v3",
        4,
        {f"{name}-1": (name, 1) for name in ("sequential", "ios", "nimble", "opara")},
    )
    return {
        **write_variants(folder),
        **write_experiments(folder),
        "archives": [pack(other / "results", other / "other.zip")],
        "profiles": write_profiles(folder),
        "networks": [folder / "inception_v3" / "run.json", folder / "squeezenet" / "run.json"],
        "convolutions": [alone],
        "pruning": [write_pruning(folder, "inception_v3", seed=3)],
        "serving": write_scenarios(folder),
        **write_simulations(folder),
    }


def pack(results: Path, output: Path) -> Path:
    """An archive of the networks in a folder, whose page is no more than what says how it was made."""
    networks = sorted(run.parent for run in results.glob("*/run.json"))
    origin = html.escape(msgspec.json.encode(PageOrigin("hios report", tuple(map(str, networks)))).decode())
    page = results / "report.html"
    page.write_text(f'<html><head><meta name="{ORIGIN}" content="{origin}"></head></html>')
    output.parent.mkdir(parents=True, exist_ok=True)
    write_archive(page, output)
    return output


def write_simulations(folder: Path) -> dict[str, list[Path]]:
    """Write one setting of each series of the simulation, and the ablation; their files by session.

    They say that they are of HIOS's settings, those of published numbers, but are of a smaller one.
    """
    setting = base(SimulationStudy())
    (made,) = simulate([SMALL], range(2), window=2, alpha=0.5, moves=200)
    series: dict[str, list[Path]] = {}
    for name in SERIES:
        published = {"devices": 2, "layers": 6}.get(name, getattr(setting, name))
        own = msgspec.structs.replace(made, setting=msgspec.structs.replace(setting, **{name: published}))
        path = folder / "study" / "simulation" / f"{own.setting.name}.json"
        artifacts.write(path, "simulation", own)
        series[f"simulation/{name}"] = [path]
    ablations = [folder / "study" / "ablation" / f"{generator}.json" for generator in GENERATORS]
    for path in ablations:
        ablation = ablate(SMALL, path.stem, range(2), alpha=0.5)
        artifacts.write(path, "ablation", msgspec.structs.replace(ablation, setting=setting))
    return {"ablation": ablations, **series}
