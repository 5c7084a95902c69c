"""What the report says about the costs behind predictions."""

from __future__ import annotations

import html
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from hios.core.costs import CostsFile
from hios.files import artifacts
from hios.report.statements import CostEntry, cost_summary
from tests.report.browser import needs_chromium, opened
from tests.report.test_report import edited, make_results, page_of, read_csv
from tests.workers.processes import eventually

OPERATORS = {"operators": {"a": {"time_ms": 1.25}, "b": {"time_ms": 2.0}}, "transfers": []}
#: What the profiler adds to costs that would be valid without.
MEASURED: dict[str, Any] = {
    "link": {
        "latency_ms": 0.0062,
        "bandwidth_gbps": 20.0,
        "error": {"median": 0.04, "largest": 0.21, "sizes": 9},
    },
    "contention": {"kind": "blend", "alpha": 0.93, "error": {"median": 0.021, "p90": 0.06, "stages": 14}},
    "corun": [
        {"devices": 2, "factor": 1.031, "interval": [1.012, 1.052], "repeats": 20},
        {"devices": 3, "factor": 1.2},
    ],
    "stages": [{"groups": [["a"], ["b"]], "time_ms": 3.0}],
    "probe": {
        "version": "cpu-1",
        "speed": {
            "compute_ms": {"value": 1.25, "low": 1.2, "high": 1.3},
            "copy_ms": {"value": 1.0, "low": 1.0, "high": 1.0},
        },
        "copy_share": 0.25,
        "samples": [],
    },
    "profile": {
        "seconds": 64.2,
        "budget_s": 120,
        "repeats": 20,
        "precision": 0.02,
        "measured": 180,
        "imprecise": 3,
        "modelled": 12,
        "cached": 20,
        "cached_from": "2026-11-20T08:00:00Z",
        "cached_until": "2026-11-21T08:00:00Z",
        "kept": False,
        "drift": 1.012,
    },
}


def _facts(costs: dict[str, Any]) -> list[CostEntry]:
    return cost_summary(msgspec.convert(costs, CostsFile))


def _values(costs: dict[str, Any]) -> dict[str, str]:
    facts = _facts(costs)
    assert all(fact.meaning for fact in facts)
    values = {fact.name: fact.value for fact in facts}
    assert len(values) == len(facts)
    return values


def test_all_that_a_profile_measured() -> None:
    """Every number of costs.json that predictions rest on stands there, with its unit and its error."""
    assert _values(OPERATORS | MEASURED) == {
        "Operators": "2, 3.25 ms one after another",
        "Probe": "convolutions 1.25 ms, copies 1 ms",
        "Repeats": "20 at least; 3 not certain within 2%",
        "Measuring took": "64 s, budget 120 s",
        "Measurements": "180 in this profile, 20 (10%) from the cache, made 2026-11-20 to 2026-11-21; not kept, as "
        "other work kept the cores busy",
        "Drift": "1.012 times the time in the cache",
        "Stages": "1 stage measured; 12 left to models",
        "Contention": "alpha 0.93; off by 2.1% (median; p90 6.0%) on 14 stages held out",
        "Devices at once": "2 devices 1.031 times as long (95 % 1.012 to 1.052); 3 devices 1.200 times as long",
        "Link between devices": "6.2 µs and 20 Gbit/s; off by 4% (median; largest 21%) over 9 sizes",
    }
    assert _facts(OPERATORS | MEASURED)[-1].meaning == "handing a value over: one of 1 MB takes 0.406 ms"


def test_nothing_is_invented() -> None:
    """Of costs by hand only what they state is said; what was certain, from no cache and of one device, too."""
    assert list(_values(OPERATORS)) == ["Operators"]
    by_link = {"transfers": {"latency_ms": 0.01, "bandwidth_gbps": 100}, "contention": {"kind": "none"}}
    assert _values(OPERATORS | by_link)["Link between devices"] == "10 µs and 100 Gbit/s"
    plain = {key: MEASURED["profile"][key] for key in ("seconds", "budget_s", "repeats", "precision", "measured")}
    values = _values(OPERATORS | {"profile": plain | {"imprecise": 0, "modelled": 0, "cached": 0}})
    assert values["Repeats"] == "20 at least; all certain within 2%"
    assert values["Measurements"] == "180 in this profile, none from the cache"
    assert "Stages" not in values
    assert _values(OPERATORS | {"contention": {"kind": "blend"}})["Contention"] == (
        "alpha 0.5; not checked against stages"
    )
    shared = {"contention": {"kind": "resources"}, "overheads": {"sync_ms": 0.0086, "stage_ms": 0.013}}
    values = _values(OPERATORS | shared)
    assert values["Contention"] == "operators share slots, arithmetic and memory bandwidth"
    assert values["Overheads"] == "0 µs a launch, 8.6 µs a synchronization, 13 µs a further group of a stage"


def _page(folder: Path, run: dict[str, Any], more: dict[str, Any]) -> str:
    """The report of one model whose run and costs have these entries."""
    model = make_results(folder / "net", "net", **run)
    edited(model, "costs", lambda costs: costs.update(more))
    return page_of(folder, model)


def test_page_shows_them(tmp_path: Path) -> None:
    """The page has every fact with its explanation, in the model's section."""
    measured = {key: value for key, value in MEASURED.items() if key != "stages"}
    page = html.unescape(_page(tmp_path, {}, measured))
    section = page.split("Costs behind the predictions")[1].split("</dl>")[0]
    for fact in cost_summary(artifacts.load(tmp_path / "net" / "costs.json", CostsFile)):
        assert f"<dt>{fact.name}</dt><dd>{fact.value}<small>{fact.meaning}</small></dd>" in section


def _is_as_wide(tab: Any, width: int) -> bool:
    found: int = tab.evaluate("document.documentElement.scrollWidth")
    return found == width


@needs_chromium
def test_page_fits_small_screens(tmp_path: Path) -> None:
    """With all facts and marks the page is as wide as the window, also on a telephone."""
    virtual = {"name": "cpu", "devices": 3, "cores": [[0], [1], [0]], "virtual": True}
    _page(tmp_path, {"platform": virtual}, {"platform": virtual} | {"link": MEASURED["link"]})
    with opened(tmp_path / "report.html") as visit:
        for width in (1280, 400):
            visit.tab.set_viewport_size({"width": width, "height": 900})
            assert eventually(partial(_is_as_wide, visit.tab, width))
        visit.expect(visit.tab.locator(".tag.virtual")).to_have_count(2)
        assert visit.errors == []


def test_virtual_devices_are_marked(tmp_path: Path) -> None:
    """Runs, and costs, on devices that share hardware are marked and said to be; others are not."""
    cpu = {"name": "cpu", "devices": 3, "cores": [[0], [1], [0]], "virtual": True}
    page = _page(tmp_path / "both", {"platform": cpu}, {"platform": cpu})
    assert page.count("net was profiled and run on virtual devices: 3 of them share 2 cores, so times say little.") == 1
    assert page.count('class="tag virtual"') == 2
    assert {row["virtual"] for row in read_csv(tmp_path / "both" / "latency.csv")} == {"True"}
    gpu = {"name": "cuda", "devices": 2, "gpus": ["A", "A"], "gpu_indices": [0, 0], "virtual": True}
    page = _page(tmp_path / "costs", {}, {"platform": gpu})
    assert "The costs of net were measured on virtual devices: 2 of them share 1 GPU, so times say little." in page
    assert page.count('class="tag virtual"') == 0
    page = _page(tmp_path / "none", {"platform": cpu | {"virtual": False}}, {})
    assert "virtual devices" not in page


def test_gpus_are_named(tmp_path: Path) -> None:
    """On platform cuda the page names every GPU, driver, CUDA and cuDNN, how GPUs copy, and the precision."""
    platform = {
        "name": "cuda",
        "devices": 2,
        "gpus": ["NVIDIA A", "NVIDIA B"],
        "gpu_indices": [0, 1],
        "compute_capability": ["8.0", "9.0"],
        "memory_gb": [42.4, 85],
        "driver": "550.54",
        "cuda": "12.4",
        "cudnn": "90100",
        "peer_access": False,
        "tf32": True,
    }
    page = _page(tmp_path, {"platform": platform}, {})
    assert (
        "device 0 on GPU 0, NVIDIA A, compute capability 8.0, memory 42.4 GB; device 1 on GPU 1, NVIDIA B, compute "
        "capability 9.0, memory 85 GB" in page
    )
    assert "driver 550.54, CUDA 12.4, cuDNN 90100" in page
    assert "through the memory of the host" in page
    assert "in TF32" in page
    assert "<dt>Cores</dt>" not in page
