"""What schedules gain on one GPU, beside CUDA graphs of the model itself, torch.compile and eager PyTorch.

    python benchmarks/gpu.py prepare FOLDER [NETWORK ...]    where TVM is installed: programs, graphs, weights
    python benchmarks/gpu.py run FOLDER [CSV]                where the GPU is: needs torch, not TVM
    python benchmarks/gpu.py show CSV                        the ratios of an earlier run, anywhere

``prepare`` writes a folder for every network, with weights from seed 0, to be copied to the machine with the GPU. There
``run`` profiles, schedules and executes them, batch 1, and writes a row for everything that ran, with device and
versions. ``show`` prints the ratios beside the goals: the sequential schedule within 3 % of a CUDA graph of the model,
the best schedule over the sequential one and over torch.compile with max-autotune.
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hios
from hios.formats.run import Latency, Run
from hios.platforms.cuda.devices import RUNTIMES

NETWORKS = ("googlenet", "inception_v3", "nasnet_large", "squeezenet")
#: Algorithms for one device; ios measures the stages it tries, which are too many for NASNet.
ALGORITHMS = ("sequential", "greedy", "nimble", "lios", "opara", "ios")
TOO_LARGE = {"nasnet_large": {"ios"}}
CSV = Path(__file__).with_name("gpu.csv")
#: Goals: least ratio of the plain CUDA graph over the sequential schedule; of that over the best schedule; and of
#: torch.compile with max-autotune over it.
PLAIN, GAIN, COMPILED = 0.97, {"googlenet": 1.4, "inception_v3": 1.4, "nasnet_large": 1.4}, 1.0
GRAPH, AUTOTUNED = "cudagraph", "compile-max-autotune"
#: Operators of the graphs by which overheads are measured, and replays.
CHAIN, REPLAYS = 1000, 50


def prepare(folder: Path, networks: Sequence[str]) -> None:
    """Export and extract networks."""
    from hios.cli.files import export, extract

    for name in networks:
        own = folder / name
        own.mkdir(parents=True, exist_ok=True)
        export(name, own / "program.pt2", {})
        graph = extract(own / "program.pt2", own / "graph.json", own / "weights.safetensors", name)
        print(f"{own}: {len(graph.operators)} operators")


def run(folder: Path, output: Path) -> None:
    """Profile, schedule and execute every prepared network, and write the rows."""
    folders = sorted(path.parent for path in folder.glob("*/graph.json"))
    if not folders:
        sys.exit(f"{folder}: found no NETWORK/graph.json; required: what `gpu.py prepare` wrote")
    rows: list[dict[str, Any]] = []
    for own in folders:
        rows += _executed(own)
        _write(output, rows)  # what follows may fail
    rows += [{**_machine(rows), **row} for row in overheads()]
    _write(output, rows)
    show(output)


def _write(output: Path, rows: Sequence[dict[str, Any]]) -> None:
    with output.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _executed(folder: Path) -> Iterator[dict[str, Any]]:
    """Rows of one network."""
    from hios.cli.files import execute, profile
    from hios.formats.settings import Settings

    graph, costs = folder / "graph.json", folder / "costs.json"
    names = [name for name in ALGORITHMS if name not in TOO_LARGE.get(folder.name, ())]
    staged = [name for name in names if name in {"greedy", "ios"}]
    profile(graph, costs, devices=1, repeats=20, stages_of=staged, budget_s=120.0, platform="cuda")
    problem = hios.Problem.read(graph, costs)
    schedules = []
    for name in names:
        schedules.append(folder / f"{name}.json")
        hios.schedule(problem, name).write(schedules[-1])
    baselines = tuple(name for name in RUNTIMES if name != "tensorrt")
    settings = Settings(devices=1, platform="cuda", baselines=baselines, tolerance=1e-3, timeout_s=600.0)
    run = execute(
        graph, folder / "weights.safetensors", schedules, folder / "run.json", settings, program=folder / "program.pt2"
    )
    yield from rows_of(run)


def rows_of(run: Run) -> Iterator[dict[str, Any]]:
    """Rows of a run.json: the schedules, then what else ran the model.

    Args:
        run: what run.json holds.
    """
    platform, versions = run.platform, run.versions
    told = {
        "gpu": " ".join(dict.fromkeys(platform.gpus or (platform.processor or "",))),
        "driver": platform.driver or "",
        "cuda": platform.cuda or "",
        "cudnn": platform.cudnn or "",
        "torch": versions.get("torch", ""),
        "hios": versions.get("hios", ""),
        "measured_at": run.measured_at,
        "network": run.graph,
    }
    for result in run.results:
        predicted = {"predicted_ms": round(result.predicted_ms, 5), "launch": result.launch or ""}
        yield {**told, "kind": "schedule", "name": result.label, **_latency(result.latency_ms), **predicted}
    for reference in run.references:
        unknown = {"predicted_ms": "", "launch": ""}
        yield {**told, "kind": "runtime", "name": reference.kind, **_latency(reference.latency_ms), **unknown}


def _latency(latency: Latency) -> dict[str, float]:
    return {
        "median_ms": round(latency.median, 5),
        "p20_ms": round(latency.p20, 5),
        "p80_ms": round(latency.p80, 5),
    }


def _machine(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A row's columns with what is the same in all rows, and nothing else."""
    shared = {"gpu", "driver", "cuda", "cudnn", "torch", "hios", "measured_at"}
    return {column: value if column in shared else "" for column, value in rows[0].items()}


def overheads() -> Iterator[dict[str, Any]]:
    """Milliseconds an operator of a chain of the smallest operators: launched, in a graph, in a graph on two streams.

    On two streams every operator waits for the event of the one before it on the other stream.
    """
    import torch

    value = torch.zeros(1, device="cuda")
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]

    def one() -> None:
        for _ in range(CHAIN):
            value.add_(1)

    def two() -> None:
        origin = torch.cuda.current_stream()
        event = origin.record_event()
        for number in range(CHAIN):
            stream = streams[number % 2]
            stream.wait_event(event)
            with torch.cuda.stream(stream):
                value.add_(1)
            event = stream.record_event()
        origin.wait_event(event)

    def captured(function: Any) -> Any:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            function()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            function()
        return graph.replay

    ways = {
        "an operator, launched": one,
        "an operator, in a graph": captured(one),
        "an operator and an event, in a graph of two streams": captured(two),
    }
    for name, function in ways.items():
        taken = []
        for _ in range(REPLAYS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            begin.record()
            function()
            end.record()
            torch.cuda.synchronize()
            taken.append(begin.elapsed_time(end) / CHAIN)
        p20, _, _, p80 = statistics.quantiles(taken, n=5, method="inclusive")
        latency = {"median_ms": statistics.median(taken), "p20_ms": p20, "p80_ms": p80}
        yield {"kind": "overhead", "name": name, **{key: round(value, 7) for key, value in latency.items()}}


def show(path: Path) -> None:
    """Print the ratios of a CSV file beside the goals."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    first = rows[0]
    print(f"{first['gpu']}, driver {first['driver']}, CUDA {first['cuda']}, torch {first['torch']}")
    networks: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        if row["kind"] == "overhead":
            print(f"{row['name']}: {float(row['median_ms']) * 1000:.2f} us")
        else:
            networks[row["network"]].append(row)
    for network, own in networks.items():
        print(network)
        for line in compared(network, {(row["kind"], row["name"]): float(row["median_ms"]) for row in own}):
            print(f"  {line}")


def compared(network: str, medians: dict[tuple[str, str], float]) -> Iterator[str]:
    """Lines on a network: all medians, then ratios with their goals.

    Args:
        network: its name.
        medians: milliseconds by kind and name.
    """
    for (kind, name), median in medians.items():
        yield f"{kind} {name:<26}{median:>10.4f} ms"
    schedules = {name: median for (kind, name), median in medians.items() if kind == "schedule"}
    best, sequential = min(schedules, key=schedules.__getitem__), schedules["sequential"]
    for kind, goal in ((GRAPH, PLAIN), (AUTOTUNED, None)):
        if (other := medians.get(("runtime", kind))) is not None:
            yield f"{kind} over sequential: {_ratio(other / sequential, goal)}"
            yield f"{kind} over {best}: {_ratio(other / schedules[best], COMPILED if kind == AUTOTUNED else None)}"
    yield f"sequential over {best}: {_ratio(sequential / schedules[best], GAIN.get(network))}"


def _ratio(ratio: float, goal: float | None) -> str:
    return f"{ratio:.3f}" + ("" if goal is None else f" (goal {goal:g}: {'reached' if ratio >= goal else 'missed'})")


def main(arguments: Sequence[str]) -> None:
    """Do what is asked for."""
    match list(arguments):
        case ["prepare", folder, *networks]:
            prepare(Path(folder), networks or NETWORKS)
        case ["run", folder]:
            run(Path(folder), CSV)
        case ["run", folder, output]:
            run(Path(folder), Path(output))
        case ["show", path]:
            show(Path(path))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
