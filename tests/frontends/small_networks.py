"""Networks and their extracted graphs for tests, each made once."""

from __future__ import annotations

import fcntl
import functools
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from benchmarks.weight_recipes import weights_of
from hios import Graph
from hios.cli.files import extract
from hios.files import artifacts
from hios.frontends.export import build_model
from hios.frontends.extraction_check import run_graph
from hios.frontends.model_declarations import Declarations
from hios.frontends.program import export, save

#: Variable that names a folder which processes of one run of the tests share (tests/conftest.py).
SHARED_FOLDER = "HIOS_TESTS_SHARED"
#: Graphs of some networks, and recipes of their weights, as machines with GPUs may lack TVM; written by
#: `python -m tests.platforms.cuda.prepare`.
PREPARED = Path(__file__).with_name("prepared")


#: Image sizes beside those of the papers, small ones of which no layer makes nothing.
SMALL = {
    "ios_sample": 9,
    **dict.fromkeys(("squeezenet", "googlenet", "resnet50", "nasnet_mobile"), 64),
    **{"inception_v3": 107, "randwire": 33, "squeezenet": 97},
}


@dataclass(frozen=True)
class Network:
    """A module with inputs, and what was extracted from it."""

    module: nn.Module
    inputs: tuple[Tensor, ...]
    graph: Graph
    tensors: dict[str, Tensor]

    def eager(self) -> list[Tensor]:
        """What the module itself returns."""
        with torch.inference_mode():
            output = self.module(*self.inputs)
        return list(output) if isinstance(output, tuple) else [output]

    def run(self) -> list[Tensor]:
        """What the extracted graph returns."""
        return run_graph(self.graph, self.tensors, self.inputs)


@dataclass(frozen=True)
class Files:
    """The files of a network on disk."""

    program: Path
    graph: Path
    weights: Path


def network(name: str, image_size: int, batch_size: int = 1, classifier: bool = False) -> Network:
    """A network of models/, extracted."""
    return _network(name, image_size, batch_size, classifier)


@functools.lru_cache(4)
def _network(name: str, image_size: int, batch_size: int, classifier: bool) -> Network:
    sizes: dict[str, Any] = {"image_size": image_size, "batch_size": batch_size}
    built = build_model(name, sizes | ({"classifier": True} if classifier else {}), seed=0)
    return extracted_once(f"{name}-{image_size}-{batch_size}{'-classifier' * classifier}", *built)


def extracted_once(name: str, module: nn.Module, inputs: tuple[Tensor, ...]) -> Network:
    """`extracted` once for all processes of tests, by a name of its own; others read what the first one made.

    Without TVM it is what was prepared under that name.
    """
    if importlib.util.find_spec("tvm") is None:
        return prepared(name, module, inputs)

    def write(folder: Path) -> None:
        made = extracted(module, inputs)
        save_file(made.tensors, folder / "weights.safetensors")
        made.graph.write(folder / "graph.json")

    folder = _once(name, write)
    return Network(module.eval(), inputs, Graph.read(folder / "graph.json"), load_file(folder / "weights.safetensors"))


def prepared(name: str, module: nn.Module, inputs: tuple[Tensor, ...]) -> Network:
    """A module with the graph that is in `PREPARED`."""
    if not (PREPARED / name).exists():
        pytest.skip("needs the extra tvm")
    recipe = json.loads((PREPARED / name / "recipe.json").read_text(encoding="utf-8"))
    graph = Graph.read(PREPARED / name / "graph.json")
    return Network(module.eval(), inputs, graph, weights_of(recipe, module))


def _once(name: str, write: Callable[[Path], object]) -> Path:
    """A folder that the first of all processes of tests to ask for it writes."""
    folder = Path(os.environ[SHARED_FOLDER], name)
    with folder.with_name(f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            made = Path(tempfile.mkdtemp(dir=folder.parent))
            write(made)
            made.rename(folder)
    return folder


def extracted(module: nn.Module, inputs: tuple[Tensor, ...]) -> Network:
    """A module with its extracted graph, in the units and blocks that it declares."""
    from hios.frontends.extract import extract_program  # loads TVM

    program, declared = export(module.eval(), inputs), Declarations.of(module)
    graph, tensors = extract_program(program, "test", declared)
    return Network(module, inputs, graph, tensors)


def write_files(folder: Path, module: nn.Module, inputs: tuple[Tensor, ...]) -> Files:
    """Export a module and extract its graph into a folder."""
    files = Files(folder / "program.pt2", folder / "graph.json", folder / "weights.safetensors")
    save(export(module.eval(), inputs), files.program, Declarations.of(module))
    extract(files.program, files.graph, files.weights, folder.name)
    return files


def write_network(folder: Path, network: Network) -> Files:
    """Write a network that was extracted, with its program, into a folder."""
    files = Files(folder / "program.pt2", folder / "graph.json", folder / "weights.safetensors")
    save(export(network.module.eval(), network.inputs), files.program, Declarations.of(network.module))
    save_file(network.tensors, files.weights)
    network.graph.write(files.graph)
    return files


def read_files(files: Files, module: nn.Module, inputs: tuple[Tensor, ...]) -> Network:
    """A module with its extracted graph from the files."""
    return Network(module, inputs, Graph.read(files.graph), load_file(files.weights))


def write_squeezenet(folder: Path, image_size: int = 64) -> Files:
    """SqueezeNet on small images, extracted once for all processes of tests; the graph is named as the folder."""
    made = _squeezenet(image_size)
    files = Files(*(folder / path.name for path in (made.program, made.graph, made.weights)))
    shutil.copy(made.program, files.program)
    shutil.copy(made.weights, files.weights)
    artifacts.write(files.graph, "graph", {**artifacts.read(made.graph, "graph"), "name": folder.name})
    return files


@functools.cache
def _squeezenet(image_size: int) -> Files:
    folder = _once(f"squeezenet-{image_size}", lambda made: write_network(made, network("squeezenet", image_size)))
    return Files(folder / "program.pt2", folder / "graph.json", folder / "weights.safetensors")


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Program, graph and weights of SqueezeNet, for a ``conftest.py`` to import, as what follows."""
    return write_squeezenet(tmp_path_factory.mktemp("squeezenet"))


@pytest.fixture(scope="session")
def graph_file(files: Files) -> Path:
    """graph.json."""
    return files.graph


@pytest.fixture(scope="session")
def graph(files: Files) -> Graph:
    """The graph."""
    return Graph.read(files.graph)


class Model(nn.Module):
    """A module from a function of itself and its inputs, with parts: modules, parameters or buffers."""

    def __init__(self, function: Callable[..., Any], **parts: nn.Module | Tensor) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, *inputs: Tensor) -> Any:
        """Call the function."""
        return self.function(self, *inputs)


def batch_norm(channels: int) -> nn.BatchNorm2d:
    """A batch norm whose folding shows: statistics far from 0 and 1."""
    norm = nn.BatchNorm2d(channels, eps=0.01)
    generator = torch.Generator().manual_seed(0)
    for tensor in (norm.weight, norm.bias, norm.running_mean):
        assert tensor is not None
        nn.init.uniform_(tensor, -1.0, 1.0, generator=generator)
    assert norm.running_var is not None
    nn.init.uniform_(norm.running_var, 0.3, 3.0, generator=generator)
    return norm
