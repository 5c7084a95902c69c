"""A study of 200 networks x 15 algorithms x 4 numbers of devices: what the tools around it take.

    python benchmarks/load.py [dag] [report] [verify] [scheduling] [--models N] [--keep FOLDER] [--without-numba]
    python benchmarks/load.py --page results/report.html [--page OTHER.html]

dag         Snakemake's plan of all jobs: time and peak memory, limits 60 s and 1 GB
report      the report: size of the page and time until Chromium shows it, limits 20 MB and 3 s
verify      hios verify on the folder, limit 60 s
scheduling  50,000 operators: hios-lp on 8 devices, nimble and ios, limits 5 minutes and 4 GB; hios-lp meets the former
            with numba (extra `opt`), which --without-numba leaves aside
--page      pages that are there, such as those of `snakemake` and of a run with all figures, and nothing else: size and
            time until Chromium shows them, limits 10 MB and 3 s; median and slowest of 5 openings

Without a name the first four run. Nothing is measured on devices: networks are random graphs of HIOS's simulation with
40 operators, schedules are made once and written for all networks, and latencies of their runs are drawn from a seed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from comparison_problems import hios_simulation, problem
from drawn_runs import drawn_run

from hios import ALGORITHMS, Graph, schedule
from hios.files import artifacts

REPOSITORY = Path(__file__).resolve().parents[1]
CHROMIUM = "/usr/bin/chromium"
MODELS = 200
DEVICES = (1, 2, 4, 8)
RUNS = 36
OPENINGS = 5
#: hios-wide repeats HEFT where no operator was measured on several devices.
LEFT_OUT = ("hios-wide",)


def configuration(models: int, results: Path) -> dict[str, Any]:
    """What config.yaml of the study holds."""
    return {
        "models": {f"net{number:03}": {"model": "squeezenet", "image_size": 64 + number} for number in range(models)},
        "algorithms": {name: _parameters(name) for name in ALGORITHMS if name not in LEFT_OUT},
        "devices": list(DEVICES),
        "virtual": True,
        "results": str(results),
    }


def _parameters(algorithm: str) -> dict[str, Any]:
    return {"time_limit": 1.0} if algorithm == "hios-opt" else {}


def measured(command: list[str], folder: Path) -> tuple[float, float]:
    """Seconds and peak memory in megabytes of a command and its children."""
    with (folder / "log").open("w") as log:
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)} failed:\n{(folder / 'log').read_text()[-3000:]}")
    return time.perf_counter() - began, usage.ru_maxrss / 1000


def dag(models: int, folder: Path) -> None:
    """Plan all jobs."""
    config = folder / "study.yaml"
    config.write_text(json.dumps(configuration(models, folder / "planned")))
    snakemake = [sys.executable, "-m", "snakemake", "--snakefile", str(REPOSITORY / "Snakefile")]
    options = ["--directory", str(folder), "--configfile", str(config), "--cores", "8", "--quiet", "--dry-run"]
    seconds, megabytes = measured(snakemake + options, folder)
    _say("DAG of jobs", [(seconds, 60, "s"), (megabytes, 1000, "MB")])


def write_results(models: int, results: Path) -> None:
    """The results folder of the study."""
    drawn = hios_simulation(operators=40, edges=80, layers=8)
    instance = problem(drawn)
    made = {
        f"{name}-{devices}": schedule(instance, name, devices, _parameters(name))
        for name, algorithm in ALGORITHMS.items()
        for devices in DEVICES
        if name not in LEFT_OUT and (devices == 1 or algorithm.several_devices)
    }
    for number in range(models):
        graph = Graph(f"net{number:03}", drawn[0].operators, drawn[0].edges)
        folder = results / graph.name
        graph.write(folder / "graph.json")
        artifacts.write(folder / "costs.json", "costs", {**drawn[1], "graph": graph.name})
        own = {
            label: replace(plan, graph=graph.name, graph_fingerprint=graph.fingerprint) for label, plan in made.items()
        }
        for label, plan in own.items():
            plan.write(folder / "schedules" / f"{label}.json")
        run = drawn_run(graph, own, random.Random(number), runs=RUNS, devices=DEVICES[1:])
        artifacts.write(folder / "run.json", "run", run)


def report(results: Path, folder: Path) -> None:
    """Write the report and open it."""
    page, tables = results / "report.html", results / "tables"
    networks = sorted(str(path.parent) for path in results.glob("*/run.json"))
    command = [sys.executable, "-m", "hios", "report", *networks, "--output", str(page), "--tables", str(tables)]
    seconds, megabytes = measured(command, folder)
    _say("hios report", [(seconds, None, "s"), (megabytes, None, "MB")])
    _say("report.html", [(page.stat().st_size / 1e6, 20, "MB"), (opened(page), 3, "s until shown")])


def opened(page: Path) -> float:
    """Seconds until Chromium has loaded and laid out a page."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page()
        began = time.perf_counter()
        tab.goto(page.as_uri(), timeout=600_000)
        tab.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        seconds = time.perf_counter() - began
        browser.close()
    return seconds


def open_page(path: Path) -> None:
    """Open a page several times, each in a browser of its own."""
    seconds = [opened(path.resolve()) for _ in range(OPENINGS)]
    times = [(statistics.median(seconds), 3, "s until shown"), (max(seconds), None, "s at most")]
    _say(str(path), [(path.stat().st_size / 1e6, 10, "MB"), *times])


def verify(results: Path, folder: Path) -> None:
    """Check the whole folder."""
    seconds, megabytes = measured([sys.executable, "-m", "hios", "verify", str(results)], folder)
    _say("hios verify", [(seconds, 60, "s"), (megabytes, None, "MB")])


def scheduled(algorithm: str, devices: int, without_numba: bool) -> tuple[float, float]:
    """Seconds and peak memory in megabytes of a schedule of 50,000 operators, evaluated and bounded."""
    import resource

    if without_numba:
        sys.modules["numba"] = None  # type: ignore[assignment]  # as if it were not installed
    instance = problem(hios_simulation(operators=50_000, edges=100_000, layers=500))
    began = time.perf_counter()
    schedule(instance, algorithm, devices)
    return time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def scheduling(*, without_numba: bool) -> None:
    """Schedule 50,000 operators."""
    for algorithm, devices in (("hios-lp", 8), ("nimble", 1), ("ios", 1)):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as child:  # so that memory is this one's alone
            seconds, megabytes = child.submit(scheduled, algorithm, devices, without_numba).result()
        _say(f"{algorithm}, 50,000 operators", [(seconds, 300, "s"), (megabytes, 4000, "MB")])


def _say(what: str, figures: list[tuple[float, float | None, str]]) -> None:
    cells = []
    for value, limit, unit in figures:
        verdict = "" if limit is None else f" (limit {limit:g}: {'met' if value <= limit else 'missed'})"
        cells.append(f"{value:.1f} {unit}{verdict}")
    print(f"{what:<28} {', '.join(cells)}", flush=True)


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("dag", "report", "verify", "scheduling")
    parser.add_argument("parts", nargs="*", choices=(*parts, []), help="default: all")
    parser.add_argument("--page", type=Path, action="append", default=[], help="an HTML page to open, nothing else")
    parser.add_argument("--models", type=int, default=MODELS)
    parser.add_argument("--keep", type=Path, help="folder for the results, which stay there")
    parser.add_argument("--without-numba", action="store_true", help="schedule as if numba were not installed")
    given = parser.parse_args()
    if given.page:
        print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.2f} at the start")
        if missing := [str(path) for path in given.page if not path.is_file()]:
            parser.error(f"--page: found no file {missing[0]}")
        for path in given.page:
            open_page(path)
        return
    asked = given.parts or parts
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.2f} at the start; {given.models} networks")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        results = given.keep or folder / "results"
        if "dag" in asked:
            dag(given.models, folder)
        if {"report", "verify"} & set(asked) and not results.exists():
            write_results(given.models, results)
        if "report" in asked:
            report(results, folder)
        if "verify" in asked:
            verify(results, folder)
    if "scheduling" in asked:
        scheduling(without_numba=given.without_numba)


if __name__ == "__main__":
    main()
