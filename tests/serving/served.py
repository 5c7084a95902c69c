"""Small networks with costs, as scenarios for real servers."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor, nn

from hios.core.graph import Graph
from hios.serving.load_generator import Repeat
from hios.serving.scenario import Scenario
from hios.serving.server import Server
from tests.frontends.small_networks import Network, extracted_once
from tests.runtime.small import branches
from tests.workers.processes import eventually

#: Blocks of both models in one combined block, two of one model, and some alone.
COMBINED = [{"branches": [0], "blocks": [0, 2]}, {"branches": [1], "blocks": [1]}]


class Blocks(nn.Module):
    """Blocks with branches, whose values skip a block too: the last one reads what the first one made."""

    hios_blocks = ("stem", "one", "two", "three")

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.one, self.two, self.three = _Block(), _Block(), _Block()
        self.end = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Three blocks, of which the last reads the first."""
        first = self.stem(x).relu()
        second = self.one(first)
        third = self.two(second) + first
        return self.end(self.three(third).mean((2, 3)))


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Conv2d(6, 6, 3, padding=1), nn.Conv2d(6, 6, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Two branches, joined."""
        joined: Tensor = torch.tanh(self.left(x)) + self.right(x).relu()
        return joined


@functools.cache
def blocks() -> Network:
    """The network with its graph."""
    torch.manual_seed(1)
    return extracted_once("blocks", Blocks(), (torch.randn(1, 3, 12, 12),))


def networks() -> dict[str, Network]:
    """The networks by label."""
    return {"branches": branches(), "blocks": blocks()}


@functools.cache
def _files() -> dict[str, dict[str, str]]:
    """Files of both networks by label."""
    return {label: write_files(label, network) for label, network in networks().items()}


def write_files(label: str, network: Network) -> dict[str, str]:
    """Files of a network, as settings of a model; every operator takes 0.2 ms, every transfer 0.01."""
    from safetensors.torch import save_file

    folder = Path(os.environ["HIOS_CACHE"], "served")
    folder.mkdir(exist_ok=True)
    files = {
        key: folder / f"{label}.{name}"
        for key, name in (("graph", "graph.json"), ("costs", "costs.json"), ("weights", "safetensors"))
    }
    network.graph.write(files["graph"])
    write_costs(files["costs"], network.graph, 0.2, 0.01)
    save_file(network.tensors, files["weights"])
    return {key: str(path) for key, path in files.items()}


def write_costs(path: Path, graph: Graph, operator_ms: float, transfer_ms: float) -> None:
    """Costs in which all operators take the same time, and all transfers."""
    pairs = dict.fromkeys((edge.source, edge.target) for edge in graph.edges)
    costs = {
        "operators": {operator.id: {"time_ms": operator_ms} for operator in graph.operators},
        "transfers": [{"source": source, "target": target, "time_ms": transfer_ms} for source, target in pairs],
    }
    path.write_text(json.dumps(costs), encoding="utf-8")


def scenario_file(path: Path, models: dict[str, dict[str, Any]] | None = None, **settings: Any) -> Path:
    """Write scenario.yaml for both networks; settings of models override what is stated here, None leaves out."""
    entries = {}
    for label, own in (models or {"branches": {}, "blocks": {}}).items():
        stated = {**_files().get(label, {}), "rate": 20.0, **own}
        entries[label] = {key: value for key, value in stated.items() if value is not None}
    path.write_text(
        yaml.safe_dump({"models": entries, "duration_s": 1.0, **settings}, sort_keys=False), encoding="utf-8"
    )
    return path


def scenario(folder: Path, models: dict[str, dict[str, Any]] | None = None, **settings: Any) -> Scenario:
    """A scenario of both networks."""
    return Scenario.read(scenario_file(folder / "scenario.yaml", models, **settings))


def with_widths(folder: Path, *, every: bool = False) -> dict[str, dict[str, str]]:
    """Settings of models with costs of another file, in which an operator has a time on two lanes, or every one."""
    settings = {}
    for model in scenario(folder).models:
        costs = json.loads(Path(model.settings.costs).read_text(encoding="utf-8"))
        for entry in list(costs["operators"].values())[: None if every else 1]:
            entry["wide_ms"] = {"2": 0.1}
        path = folder / f"{model.label}.costs.json"
        path.write_text(json.dumps(costs), encoding="utf-8")
        settings[model.label] = {"costs": str(path)}
    return settings


def inputs(label: str, seed: int, scale: float = 1.0) -> list[Tensor]:
    """Inputs of a network."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(value.shape, generator=generator) * scale for value in networks()[label].inputs]


def expected(label: str, given: Sequence[Tensor]) -> Tensor:
    """What a network makes of inputs."""
    with torch.no_grad():
        made: Tensor = networks()[label].module(*given)
    return made


def require_right(label: str, given: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
    """Outputs are those of the network."""
    (output,) = outputs
    torch.testing.assert_close(output, expected(label, given), rtol=1e-4, atol=1e-4)


def ask_both(server: Server, count: int, first: int = 0) -> None:
    """Ask for both models at once, several times; every answer is right."""
    asked = [(label, inputs(label, number)) for number in range(first, first + count) for label in networks()]
    answers = [server.submit(label, own) for label, own in asked]
    for (label, own), answer in zip(asked, answers, strict=True):
        require_right(label, own, answer.result(60))


def wait_for_answers(patch: pytest.MonkeyPatch) -> None:
    """Have loads go on until all tasks are answered, however late that is, before they are counted."""
    send = Repeat._send

    def sent(repeat: Repeat) -> None:
        send(repeat)
        assert eventually(lambda: not repeat._out)

    patch.setattr(Repeat, "_send", sent)


def require_nothing_held(server: Server) -> None:
    """Once all runs have ended: no instance occupies a slot of the arena, and every request is accounted for."""
    dispatcher = server._dispatcher
    slots = [own for values in dispatcher._values for own in values.slots]
    assert eventually(
        lambda: not dispatcher._runs and all(len(dispatcher._free[own.number]) == len(own.offsets) for own in slots)
    )
    for counts in server.counts.values():
        assert counts.unaccounted == 0
        assert (counts.waiting, counts.in_flight) == (0, 0)
