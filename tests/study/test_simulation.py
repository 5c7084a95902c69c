"""A setting of HIOS's simulation, and figures drawn from it: the same bytes in two runs."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from hios.files import artifacts
from hios.formats.config import SERIES, SimulationDefaults, SimulationStudy, Study
from hios.formats.study import Setting, SimulationFile
from hios.study.figure_data import FigureData
from hios.study.sessions import base, instances, series, settings, settings_by_graphs
from hios.study.simulation import ALGORITHMS, ablate, simulate
from tests.study.drawn_figures import draw

pytest.importorskip("numba", reason="needs the extra opt")

SMALL = Setting(devices=2, operators=30, edges=50, layers=6, p=0.8)


def _simulated(setting: Setting = SMALL) -> SimulationFile:
    (file,) = simulate([setting], range(2), window=2, alpha=0.5, moves=500)
    return file


def test_settings_of_the_paper() -> None:
    """28 points in five series are 24 settings, as series share the one in which nothing varies."""
    study = SimulationStudy()
    assert len(settings(study)) == 24
    assert sum(len(series(study, name)) for name in SERIES) == 28
    assert all(base(study) in series(study, name) for name in SERIES)
    assert [setting.edges for setting in series(study, "operators")] == [200, 300, 400, 500, 600, 700, 800]
    assert len({setting.name for setting in settings(study)}) == 24


def test_settings_that_share_graphs() -> None:
    """GPUs and transfers leave the graphs as they are: the settings of figures 7 and 11 have the same."""
    shared = settings_by_graphs(SimulationStudy())
    assert sorted(map(len, shared.values())) == [1] * 14 + [10]
    assert {setting for several in shared.values() for setting in several} == set(settings(SimulationStudy()))
    assert all(setting.graphs == graphs for graphs, several in shared.items() for setting in several)


@pytest.mark.slow
def test_shared_graphs_change_no_result() -> None:
    """Settings of the same graphs give together, byte for byte, what each gives alone; IOS searches once for them."""
    together = [
        SMALL,
        msgspec.structs.replace(SMALL, devices=3),
        msgspec.structs.replace(SMALL, p=0.4),
        msgspec.structs.replace(SMALL, edges=60),
    ]
    shared = simulate(together, range(2), window=2, alpha=0.5, moves=500)
    assert [file.setting for file in shared] == together
    for file in shared:
        alone = _simulated(file.setting)
        assert msgspec.json.encode(msgspec.structs.replace(file, cpu_s=0.0)) == msgspec.json.encode(
            msgspec.structs.replace(alone, cpu_s=0.0)
        )


def test_instances_by_scale() -> None:
    """3 or 30, or what the configuration says."""
    assert [instances(Study(scale=scale)) for scale in ("quick", "full")] == [3, 30]
    assert instances(Study(simulation=SimulationStudy(instances=7))) == 7


def test_defaults_are_one_setting() -> None:
    """What the schema has as the setting where nothing varies is a setting."""
    assert msgspec.structs.asdict(base(SimulationStudy())) == msgspec.structs.asdict(SimulationDefaults())


def test_every_algorithm_on_every_instance() -> None:
    """Latencies of all algorithms, none below the bound, and hios-opt at least as good as any."""
    simulated = _simulated()
    assert [instance.seed for instance in simulated.instances] == [0, 1]
    for instance in simulated.instances:
        assert tuple(instance.latency_ms) == ALGORITHMS
        assert min(instance.latency_ms.values()) >= instance.bound_ms * (1 - 1e-9)
        assert instance.latency_ms["hios-opt"] <= min(instance.latency_ms.values()) * (1 + 1e-9)
        assert set(instance.even_layers_ms) == {"sequential", "ios"}
        assert set(instance.released_ms) == {"hios-lp-inter", "hios-lp", "hios-mr-inter", "hios-mr"}


@pytest.mark.slow
def test_two_runs_give_the_same_csv(tmp_path: Path) -> None:
    """All but the time that it took is the same, and so is every byte of a figure's CSV, LaTeX, SVG and PDF."""
    pytest.importorskip("altair", reason="needs the extra report")
    from hios.study.figure_files import ENDINGS

    written = []
    for name in ("one", "other"):
        data = tuple(_simulated(msgspec.structs.replace(SMALL, edges=edges)) for edges in (50, 60))
        draw("hios_fig9", FigureData(simulations=data), tmp_path / name)
        files = {ending: (tmp_path / name / f"hios_fig9.{ending}").read_bytes() for ending in ENDINGS}
        record = json.loads(files.pop("json"))
        assert record.pop("origin").keys() >= {"drawing_s", "session_s"}
        written.append((files, record))
    assert written[0] == written[1]
    assert written[0][0]["csv"].startswith(b"edges,algorithm,program,mark,instances,mean ms,sd ms,")


def test_ablation() -> None:
    """No deviation, each alone, all but one, and all: 16 sets; with all, schedules take longer than with none."""
    ablation = ablate(SMALL, "even_layers", range(2), alpha=0.5)
    assert len(ablation.variants) == len({variant.deviations for variant in ablation.variants}) == 16
    assert len(ablation.sequential_ms) == 2
    first, last = (sum(ablation.variants[place].latency_ms["hios-lp"]) for place in (0, -1))
    assert last > first


def test_files(tmp_path: Path) -> None:
    """A setting is written, validated against its schema, and read again."""
    simulated = _simulated()
    path = tmp_path / "simulation" / f"{SMALL.name}.json"
    artifacts.write(path, "simulation", simulated)
    assert FigureData.read([path]).simulations == (simulated,)
