"""Schedules over a slow network: what transfers take there, the schedule made for that, predicted and measured.

    python -m tests.runtime.delays gloo

Two hosts of one core each, as in `tests.runtime.hosts`, 0.1, 1 and 10 ms apart with 1 Gbit/s. The network is some
chains of products of matrices between one input and one output. Operators are profiled on one host, transfers between
two of them, by messages of the sizes of the graph's edges. Needs root; takes some minutes.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hios import Graph
from hios.runtime.distributed.transports import connect
from tests.frontends.small_networks import Model, write_files
from tests.runtime.hosts import Hosts, missing

DELAYS_MS = (0.1, 1.0, 10.0)
_REPEATS, _TIMEOUT_S, _WIDTH = 15, 300.0, 1024
#: Operators of each chain.
_CHAINS = (1, 2, 4, 8)


def _chains(model: Any, x: Tensor) -> Tensor:
    return torch.cat([chain(x)[:, :16] for chain in model.chains], 1)


def _network() -> nn.Module:
    layers = [[layer for _ in range(n) for layer in (nn.Linear(_WIDTH, _WIDTH), nn.ReLU())] for n in _CHAINS]
    return Model(_chains, chains=nn.ModuleList(nn.Sequential(*own) for own in layers))


def transfers(transport: str, sizes: Sequence[int]) -> None:
    """As a rank of a launcher: half the median time of messages to the other rank and back; rank 0 prints it in ms."""
    ranks = connect(transport, "cpu", _TIMEOUT_S)
    found = {}
    for size in sizes:
        memory, times = torch.zeros(size, dtype=torch.uint8), list[float]()
        for _ in range(_REPEATS):
            start, deadline = time.perf_counter(), time.monotonic() + _TIMEOUT_S
            for sender in (0, 1):
                start_message = ranks.send if ranks.rank == sender else ranks.receive
                start_message(memory, 1 - ranks.rank, sender).wait(deadline)
            times.append((time.perf_counter() - start) / 2 * 1e3)
        found[size] = statistics.median(times)
    if ranks.rank == 0:
        sys.stdout.write(f"transfers {json.dumps(found)}\n")
    ranks.close()


def _over(hosts: Hosts, transport: str, *words: object) -> str:
    """What rank 0 prints of a program with a rank on every host."""
    launchers = hosts.launch(transport, *words)
    printed = [launcher.communicate(timeout=600)[0] for launcher in launchers]
    if any(launcher.returncode for launcher in launchers):
        raise RuntimeError("\n".join(printed))
    return printed[0]


def _hios(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "hios", *map(str, words)], check=True, capture_output=True)


def compare(transport: str, folder: Path) -> None:
    """Print a row for each delay."""
    torch.manual_seed(0)
    files = write_files(folder, _network(), (torch.randn(64, _WIDTH),))
    graph, costs = Graph.read(files.graph), folder / "costs.json"
    _hios("profile", files.graph, "--platform", "cpu", "--devices", 2, "--output", costs)
    profiled = json.loads(costs.read_text(encoding="utf-8"))
    del profiled["link"]
    sizes = sorted({edge.bytes or 1 for edge in graph.edges})
    row = "{:>9} {:>24} {:>18} {:>12} {:>12} {:>14}\n"
    titles = ("delay, ms", f"{sizes[0]} and {sizes[-1]} bytes, ms", "operators on rank 1", "predicted, ms")
    sys.stdout.write(row.format(*titles, "measured, ms", "one rank, ms"))
    for delay_ms in DELAYS_MS:
        with Hosts(2, delay_s=delay_ms / 1e3) as hosts:
            printed = _over(hosts, transport, "-m", "tests.runtime.delays", "rank", transport, *sizes)
            (line,) = [line for line in printed.splitlines() if "transfers {" in line]
            took = {int(size): ms for size, ms in json.loads(line.partition("transfers ")[2]).items()}
            profiled["transfers"] = [
                {"source": edge.source, "target": edge.target, "time_ms": took[edge.bytes or 1]} for edge in graph.edges
            ]
            costs.write_text(json.dumps(profiled), encoding="utf-8")
            schedule, output = folder / "hios-lp.json", folder / "run.json"
            _hios("schedule", files.graph, costs, "--algorithm", "hios-lp", "--devices", 2, "--output", schedule)
            words = ("-m", "hios", "distribute", files.graph, files.weights, schedule, "--transport", transport)
            _over(hosts, transport, *words, "--output", output)
        run, made = (json.loads(path.read_text(encoding="utf-8")) for path in (output, schedule))
        moved = sum(place["device"] == 1 for place in made["placements"])
        (result,) = run["results"]
        times = made["latency_ms"], result["latency_ms"]["median"], run["baseline"]["latency_ms"]["median"]
        ends = f"{took[sizes[0]]:.2f} and {took[sizes[-1]]:.2f}"
        sys.stdout.write(
            row.format(f"{delay_ms:g}", ends, f"{moved} of {len(graph.operators)}", *(f"{t:.1f}" for t in times))
        )
        sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        transfers(sys.argv[2], [int(size) for size in sys.argv[3:]])
    elif reason := missing(delay_s=0.0):
        sys.exit(reason)
    else:
        with tempfile.TemporaryDirectory() as made:
            compare(sys.argv[1], Path(made))
