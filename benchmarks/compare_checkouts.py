"""Compare what two checkouts of hios print and write, byte by byte, on a fixed set of graphs, costs and scenarios.

    python benchmarks/compare_checkouts.py OLD NEW [--keep FOLDER] [--quick]

A rebuild of hios changes no output. Each checkout runs the same commands in a process of its own: help, listings and
refusals; schedules of all algorithms for random graphs and for networks with predicted costs; simulations of all
policies and launchers; training; the simulations that figures are drawn from; figures, report and tables. Times of
computation, version numbers of software and dates are left out. What differs is printed, and the exit status is 1.
Nothing is measured, so results do not depend on the machine's load. It takes some minutes on two cores.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Keys of artifacts that differ from run to run, or say which software and machine wrote them.
_CHANGING = {"scheduling_time_s", "versions", "software", "created", "cpu_s", "allocation_time_s"}
_CHANGING_TEXT = re.compile(r"(?<=scheduling time  )[\d.]+ \w+|[\d.]+ s(?= of processor time)|(?<=commit )[^<]+")
_NETWORKS = {"squeezenet": "v100-sxm2", "googlenet": "a40", "inception_v3": "a100-pcie-40gb"}
_ALGORITHM_OPTIONS = {"hios-opt": ["--moves", "2000", "--time-limit", "60"]}


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def _random_problem(folder: Path, seed: int, contention: dict[str, Any], width: bool) -> None:
    """Write graph.json and costs.json: 40 operators with two blocks, transfers, and wide times if asked for."""
    draw = random.Random(seed)
    ids = [f"v{number}" for number in range(40)]
    edges = sorted({tuple(sorted(draw.sample(range(40), 2))) for _ in range(70)})
    times = [draw.uniform(0.1, 4.0) for _ in ids]
    costs: dict[str, Any] = {
        "operators": {
            name: {"time_ms": time, "utilization": draw.uniform(0.2, 1.0)}
            | ({"wide_ms": {"2": time * draw.uniform(0.55, 1.1)}} if width and draw.random() < 0.5 else {})
            for name, time in zip(ids, times, strict=True)
        },
        "transfers": [{"source": ids[a], "target": ids[b], "time_ms": max(0.1, 0.5 * times[a])} for a, b in edges],
        "contention": contention,
    }
    graph = {
        "name": folder.name,
        "operators": [{"id": name, "type": "task"} for name in ids],
        "edges": [{"source": ids[a], "target": ids[b]} for a, b in edges],
    }
    _write(folder / "graph.json", graph)
    _write(folder / "costs.json", costs)


class Recorder:
    """Runs commands of hios in this process and writes what each printed to a file."""

    def __init__(self) -> None:
        self.names: Counter[str] = Counter()

    def __call__(self, *arguments: str) -> str:
        """Run one command; its output, its exit status and its last line of a traceback go to ``printed/``."""
        from hios.__main__ import main

        printed = io.StringIO()
        status: Any = 0
        sys.argv = ["hios", *arguments]
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                main()
            except SystemExit as end:
                status = end.code
            except BaseException as error:  # a traceback is an output like any other
                status = f"{type(error).__name__}: {error}"
        text = f"$ hios {' '.join(arguments)}\n{printed.getvalue()}\nexit {status}\n"
        folder = Path("printed")
        folder.mkdir(exist_ok=True)
        name = re.sub(r"[^\w.-]+", "_", " ".join(arguments))[:90]
        self.names[name] += 1
        (folder / f"{name} {self.names[name]}.txt").write_text(text, encoding="utf-8")
        return text


def _listings(hios: Recorder) -> None:
    from hios.cli import main as group

    hios("--help")
    for name, command in sorted(group.commands.items()):
        hios(name, "--help")
        for below in sorted(getattr(command, "commands", {})):
            hios(name, below, "--help")
    hios("algorithms")
    hios("figures")


def _refusals(hios: Recorder) -> None:
    graph, costs = "random/graph.json", "random/costs.json"
    schedule = ["schedule", graph, costs, "--output", "refused.json"]
    for line in (
        "",
        "--algorithm nothing",
        "--algorithm hios-lp --devices 0",
        "--algorithm hios-lp --window 1",
        "--algorithm ios --mode all",
        "--algorithm lios --r 3",
        "--algorithm hios-opt --time-limit -1",
    ):
        hios(*schedule, *line.split())
    _write(Path("bad/graph.json"), {"name": "bad", "operators": [{"id": "a", "type": "t", "kind": 1}], "edges": []})
    _write(Path("bad/cycle.json"), {
        "name": "cycle", "operators": [{"id": "a", "type": "t"}, {"id": "b", "type": "t"}],
        "edges": [{"source": "a", "target": "b"}, {"source": "b", "target": "a"}],
    })  # fmt: skip
    _write(Path("bad/costs.json"), {"operators": {"a": {"time_ms": -1}}, "transfers": []})
    _write(Path("bad/schedule.json"), {"algorithm": "x", "placements": []})
    for file in ("graph", "cycle", "missing"):
        hios("schedule", f"bad/{file}.json", costs, "--algorithm", "ios", "--output", "refused.json")
    hios("schedule", graph, "bad/costs.json", "--algorithm", "ios", "--output", "refused.json")
    hios("schedule", graph, "networks/squeezenet/costs.json", "--algorithm", "ios", "--output", "refused.json")
    hios("evaluate", graph, costs, "bad/schedule.json")
    hios("execute", graph, "none.safetensors", "bad/schedule.json", "--platform", "cpu", "--output", "refused.json")
    hios("execute", graph, "none.safetensors", "bad/schedule.json", "--runs", "0", "--output", "refused.json")
    hios("profile", graph, "--platform", "model", "--gpu", "nothing", "--output", "refused.json")
    hios("profile", graph, "--platform", "cpu", "--devices", "-1", "--output", "refused.json")
    hios("profile", graph, "--platform", "model", "--gpu", "a40", "--repeats", "3", "--output", "refused.json")
    hios("export", "nothing", "--output", "refused.pt2")
    hios("export", "squeezenet", "--image-size", "0", "--output", "refused.pt2")
    hios("simulate", "scenario.yaml", "--policy", "nothing", "--output", "refused.json")
    hios("simulate", "scenario.yaml", "--policy", "learned", "--output", "refused.json")
    hios("simulate", "scenario.yaml", "--policy", "top", "--load", "-1", "--output", "refused.json")
    hios("verify", "bad")
    hios("figures", "nothing")
    hios("report", "bad", "--output", "refused.html", "--tables", "refused")


def _schedules(hios: Recorder, folder: Path, algorithms: list[str]) -> None:
    graph, costs = str(folder / "graph.json"), str(folder / "costs.json")
    hios("draw", graph, "--output", str(folder / "graph.svg"))
    for name in algorithms:
        for devices in (1, 2, 3):
            output = str(folder / "schedules" / f"{name}-{devices}.json")
            options = _ALGORITHM_OPTIONS.get(name, [])
            hios("schedule", graph, costs, "--algorithm", name, "--devices", str(devices), "--output", output, *options)
            if Path(output).is_file():
                hios("evaluate", graph, costs, output)
    hios("show", str(folder / "schedules" / "greedy-1.json"), "--width", "100", "--ascii")


def _networks(hios: Recorder) -> None:
    for name, gpu in _NETWORKS.items():
        folder = Path("networks", name)
        folder.mkdir(parents=True)
        program, graph = str(folder / "program.pt2"), str(folder / "graph.json")
        hios("export", name, "--output", program)
        hios("extract", program, "--output", graph, "--weights", str(folder / "weights.safetensors"))
        platform = ("--platform", "model", "--gpu", gpu, "--devices", "3")
        hios("profile", graph, *platform, "--output", str(folder / "costs.json"))
        Path(program).unlink()  # a zip file with dates


def _serving(hios: Recorder, quick: bool) -> None:
    for name in _NETWORKS:
        costs = json.loads(Path("networks", name, "costs.json").read_text(encoding="utf-8"))
        _write(Path("cores", f"{name}.json"), {key: costs[key] for key in ("operators", "transfers", "contention")})
    models = {
        name: {
            "graph": f"networks/{name}/graph.json",
            "costs": f"cores/{name}.json",
            "rate": rate,
            "queue": 16,
            "slo_ms": 20,
            "deadline_ms": 40,
        }
        for name, rate in zip(_NETWORKS, (400, 200, 100), strict=False)
    }
    on_gpu = {name: {**model, "costs": f"networks/{name}/costs.json"} for name, model in models.items()}
    shared = {"duration_s": 3, "arrivals": "poisson", "seed": 7}
    _write(Path("scenario.yaml"), {"lanes": 3, **shared, "models": models})
    _write(Path("gpu.yaml"), {"lanes": 1, **shared, "models": on_gpu})
    hios("simulate", "scenario.yaml", "--policy", "all", "--launcher", "all", "--output", "simulated")
    hios("simulate", "gpu.yaml", "--policy", "all", "--output", "simulated-gpu")
    hios("simulate", "scenario.yaml", "--policy", "auto", "--load", "2", "--output", "auto.json")
    if not quick:
        hios("train", "scenario.yaml", "--learn", "launcher", "--size", "small", "--output", "launcher.safetensors")
        for policy in ("learned", "learned-static"):
            weights = ("--weights", "launcher.safetensors")
            hios("simulate", "scenario.yaml", "--policy", policy, *weights, "--output", f"{policy}.json")
        graph = [f"networks/squeezenet/{file}.json" for file in ("graph", "costs")]
        hios("train", *graph, "--steps", "50", "--output", "policy.safetensors")


def _studies(hios: Recorder) -> None:
    small = "--operators 30 --edges 60 --layers 6 --instances 2"
    hios("study", "simulation", *small.split(), "--output", "study/simulation.json")
    hios("study", "ablation", "--help")
    folders = [f"networks/{name}" for name in _NETWORKS]
    for path in sorted(Path("networks").glob("*/schedules/*.json")):
        schedule = json.loads(path.read_text(encoding="utf-8"))
        _write(path, schedule | {"scheduling_time_s": 0.001})  # the page and its tables show it
    hios("verify", "networks")
    hios("report", *folders, "--output", "report.html", "--tables", "tables")


def produce(folder: Path, quick: bool) -> None:
    """Run everything in this process, with the hios that it finds, and write into a folder.

    Args:
        folder: an empty folder; becomes the working directory.
        quick: leave out training and the networks beyond the first.
    """
    os.chdir(folder)
    from hios import ALGORITHMS

    hios = Recorder()
    for name in list(_NETWORKS)[1:] if quick else []:
        del _NETWORKS[name]
    _listings(hios)
    _networks(hios)
    _random_problem(Path("random"), 1, {"kind": "blend", "alpha": 0.5}, width=False)
    _random_problem(Path("alone"), 2, {"kind": "none"}, width=False)
    _random_problem(Path("wide"), 3, {"kind": "blend", "alpha": 0.5}, width=True)
    for path in (Path("random"), Path("alone"), Path("wide"), *(Path("networks", name) for name in _NETWORKS)):
        _schedules(hios, path, sorted(ALGORITHMS))
    _serving(hios, quick)
    _studies(hios)
    _refusals(hios)


def _stable(value: Any) -> Any:
    """A JSON value without what changes from run to run."""
    if isinstance(value, dict):
        return {key: _stable(item) for key, item in value.items() if key not in _CHANGING}
    return [_stable(item) for item in value] if isinstance(value, list) else value


def _without_new(new: Any, old: Any) -> Any:
    """A JSON value without the keys that objects of the old one do not have: formats may be extended."""
    if isinstance(new, dict) and isinstance(old, dict):
        return {key: _without_new(value, old[key]) for key, value in new.items() if key in old}
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        return [_without_new(*pair) for pair in zip(new, old, strict=True)]
    return new


def _content(path: Path, checkout: Path, folder: Path) -> str | bytes:
    if path.suffix not in {".json", ".txt", ".csv", ".html", ".svg", ".tex", ".yaml"}:
        return path.read_bytes()
    text = path.read_text(encoding="utf-8").replace(str(checkout), "CHECKOUT").replace(str(folder), "FOLDER")
    if path.suffix == ".json":
        return json.dumps(_stable(json.loads(text)), indent=1)
    return re.sub(r"\d{4}-\d\d-\d\d[ T][\d:]+", "DATE", _CHANGING_TEXT.sub("TIME ", text))


def _files(folder: Path) -> Iterator[Path]:
    return (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())


def differences(checkouts: list[Path], folders: list[Path]) -> list[str]:
    """What differs between two folders, a text of some lines for each file."""
    differing = []
    for name in sorted({*_files(folders[0]), *_files(folders[1])}):
        paths = [folder / name for folder in folders]
        missing = [checkout for checkout, path in zip(checkouts, paths, strict=True) if not path.is_file()]
        if missing:
            differing.append(f"{name}: missing from {missing[0]}")
            continue
        old, new = (
            _content(path, *place) for path, place in zip(paths, zip(checkouts, folders, strict=True), strict=True)
        )
        if old != new and isinstance(old, str) and isinstance(new, str):
            lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "old", "new", n=1, lineterm="")
            differing.append("\n    ".join([f"{name}:", *(line[:200] for line in list(lines)[2:14])]))
            if name.suffix == ".json" and _without_new(json.loads(new), json.loads(old)) == json.loads(old):
                differing[-1] = f"{name}: nothing but new keys"
        elif old != new:
            differing.append(f"{name}: bytes differ")
    return differing


def main() -> None:
    """Compare two checkouts, or, with one only, write its outputs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="+", type=Path, metavar="CHECKOUT")
    parser.add_argument("--keep", type=Path, help="folder to keep the outputs in")
    parser.add_argument("--quick", action="store_true", help="one network, no training")
    parser.add_argument("--produce", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.produce:
        produce(given.checkouts[0], given.quick)
        return
    with tempfile.TemporaryDirectory() as temporary:
        checkouts = [path.resolve() for path in given.checkouts]
        folders = [(given.keep or Path(temporary)).resolve() / side / "outputs" for side in ("old", "new")]
        running = []
        for checkout, folder in zip(checkouts, folders, strict=True):
            folder.mkdir(parents=True)
            own = {"PYTHONPATH": str(checkout), "HIOS_CACHE": str(folder.parent / "cache"), "COLUMNS": "100"}
            command = [sys.executable, __file__, "--produce", str(folder), *(["--quick"] if given.quick else [])]
            running.append(subprocess.Popen(command, env={**os.environ, **own}, cwd=folder))
        if any(process.wait() for process in running):
            raise SystemExit("a checkout could not be run to the end")
        differing = differences(checkouts, folders)
        count = len({*_files(folders[0]), *_files(folders[1])})
    print("\n".join([*differing, f"{count} files compared, {len(differing)} differ"]))
    raise SystemExit(bool(differing))


if __name__ == "__main__":
    main()
