"""The networks of models/: what is extracted from them."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import ExportedProgram

from hios import Graph, HiosError
from hios.cli.files import export, extract
from hios.core.graph import Shapes, TensorSpec
from hios.errors import ArtifactError
from hios.frontends import program as programs
from hios.frontends.export import build_model, initialize
from hios.frontends.models import names
from tests.frontends.small_networks import Files, Model, extracted, network, write_files, write_squeezenet
from tests.refusals import refused


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """SqueezeNet on small images, written."""
    return write_squeezenet(tmp_path_factory.mktemp("squeezenet"))


@pytest.fixture(scope="module")
def program(files: Files) -> Path:
    """Its program.pt2."""
    return files.program


def test_operators_are_described() -> None:
    """Ids say which module an operator comes from; shapes, bytes and edges fit together."""
    graph = network("squeezenet", 64).graph
    assert graph.operators[0].id == "conv1"
    assert "fire2.expand3x3" in graph.index
    first = graph.operators[0]
    assert first.shapes == Shapes(inputs=((1, 3, 64, 64),), outputs=((1, 96, 29, 29),))
    assert first.bytes == 4 * (3 * 64 * 64 + 96 * 29 * 29 + 96 * 3 * 7 * 7 + 96)
    assert [edge.bytes for edge in graph.edges if edge.source == "conv1"] == [4 * 96 * 29 * 29]
    assert graph.inputs == (TensorSpec("x", (1, 3, 64, 64), "float32"),)


def test_extraction_is_deterministic(tmp_path: Path, files: Files) -> None:
    """Exporting and extracting twice gives the same files to the byte."""
    folder = tmp_path / files.graph.parent.name
    first, second = files, write_files(folder, *build_model("squeezenet", {"image_size": 64}, seed=0))
    assert first.program.read_bytes() == second.program.read_bytes()
    assert first.graph.read_bytes() == second.graph.read_bytes()
    assert first.weights.read_bytes() == second.weights.read_bytes()


def test_seed_changes_weights_only() -> None:
    """Another seed gives other weights and the same shapes."""
    one, other = (build_model("squeezenet", {"image_size": 64}, seed)[0] for seed in (0, 1))
    pairs = list(zip(one.parameters(), other.parameters(), strict=True))
    assert all(a.shape == b.shape and not torch.equal(a, b) for a, b in pairs)


def test_program_does_not_embed_inputs(tmp_path: Path) -> None:
    """The example inputs, here 4 MB, are not in program.pt2."""
    path = tmp_path / "program.pt2"
    programs.save(programs.export(Model(lambda _, x: torch.relu(x)), (torch.randn(1024, 1024),)), path)
    assert path.stat().st_size < 100_000
    with zipfile.ZipFile(path) as archive:
        assert [entry.file_size for entry in archive.infolist() if "sample_inputs" in entry.filename] == [0]
    assert programs.load(path).example_inputs is None


def test_program_comes_back(program: Path) -> None:
    """A saved program, loaded again, computes what the module computes."""
    extracted_network = network("squeezenet", 64)
    loaded = programs.load(program)
    assert isinstance(loaded, ExportedProgram)
    with torch.inference_mode():
        torch.testing.assert_close(loaded.module()(*extracted_network.inputs), extracted_network.eager()[0])


def _refused(path: Path, message: str) -> None:
    outputs = path.parent / "outputs"
    with pytest.raises(ArtifactError, match=message) as caught:
        extract(path, outputs / "graph.json", outputs / "weights.safetensors", "test")
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    assert not outputs.exists()


@pytest.mark.parametrize("kept", [0.0, 0.01, 0.5, 0.99])
def test_truncated_program_is_refused(tmp_path: Path, program: Path, kept: float) -> None:
    """A program that was cut off is named, and nothing is written."""
    data = program.read_bytes()
    path = tmp_path / "program.pt2"
    path.write_bytes(data[: int(len(data) * kept)])
    _refused(path, "not a program written by torch.export .* or cut off; export it again")


def test_random_bytes_are_refused(tmp_path: Path) -> None:
    """A file of random bytes is not a program."""
    path = tmp_path / "program.pt2"
    path.write_bytes(bytes(torch.randint(0, 256, (10_000,), generator=torch.Generator().manual_seed(0)).tolist()))
    _refused(path, "not a program written by torch.export")


def test_missing_program_is_refused(tmp_path: Path) -> None:
    """A file that is not there is named."""
    _refused(tmp_path / "nowhere.pt2", "cannot be read: no such file")


def test_other_archive_is_refused(tmp_path: Path) -> None:
    """A zip archive of something else is not a program."""
    path = tmp_path / "program.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme", "hello")
    _refused(path, "not in the present format of torch.export")


@pytest.mark.parametrize("place", [0.2, 0.5, 0.8])
def test_damaged_weights_are_refused(tmp_path: Path, program: Path, place: float) -> None:
    """A few overwritten bytes in the middle of the weights, which torch would load, are found."""
    data = bytearray(program.read_bytes())
    position = int(len(data) * place)
    data[position : position + 16] = bytes(byte ^ 0xFF for byte in data[position : position + 16])
    path = tmp_path / "program.pt2"
    path.write_bytes(data)
    _refused(path, r"damaged at archive/data/weights/weight_\d+; export it again")


@pytest.mark.parametrize("content", [b"", b"{}", b'{"graph'])
def test_damaged_program_text_is_refused(tmp_path: Path, program: Path, content: bytes) -> None:
    """An archive whose description of the network is broken is refused, whatever torch makes of it."""
    path = tmp_path / "program.pt2"
    with zipfile.ZipFile(program) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, content if name.endswith("models/model.json") else old.read(name))
    _refused(path, r"models/model\.json: |damaged, or written by another version of torch")


def test_unwritable_graph_leaves_no_weights(tmp_path: Path, program: Path) -> None:
    """Where the graph cannot be written, its weights are not either."""
    (tmp_path / "file").write_text("")
    with pytest.raises(HiosError, match="cannot be written"):
        extract(program, tmp_path / "file" / "graph.json", tmp_path / "weights.safetensors", "test")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_unknown_model_and_option_are_refused() -> None:
    """A name that models/ does not have, or an option of no build function, lists those there are."""
    with pytest.raises(
        HiosError, match=r"unknown model resnet \(did you mean resnet50\?\); allowed: .*inception_v3.*squeezenet"
    ):
        build_model("resnet", {}, 0)
    with pytest.raises(
        HiosError, match="model squeezenet: unknown option depth; allowed: image_size, batch_size, classifier"
    ):
        build_model("squeezenet", {"depth": 3}, 0)


@pytest.mark.parametrize("name", ["inception_v3", "squeezenet"])
def test_too_small_images_are_refused(name: str) -> None:
    """An image that shrinks to nothing is one line that names the model and the size."""
    with refused(f"model {name}: cannot be run with image_size=4: "):
        build_model(name, {"image_size": 4}, 0)


def test_a_model_file_can_import_those_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``from .name import ...`` finds files of the same folder, each time as they are then."""
    for module in ("hios.frontends.models", "hios.frontends.export"):
        monkeypatch.setattr(f"{module}.resource_directory", lambda name: tmp_path)
    (tmp_path / "net.py").write_text(
        "import torch\n\nfrom ._wide import WIDTH\n\n\n"
        "def build():\n    return torch.nn.Linear(WIDTH, 1), (torch.zeros(1, WIDTH),)\n"
    )
    for width in (3, 4):
        (tmp_path / "_wide.py").write_text(f"WIDTH = {width}" + "\n" * width)
        assert build_model("net", {}, 0)[1][0].shape == (1, width)
    assert names(tmp_path) == ["net"]
    (tmp_path / "_wide.py").unlink()
    with pytest.raises(HiosError, match=r"net\.py:3: cannot be loaded: ModuleNotFoundError: .*_wide"):
        build_model("net", {}, 0)


def test_weights_keep_the_size_of_activations() -> None:
    """Layers give variance 1 on the example inputs, biases included, whatever size comes in; constants stay."""
    deep = nn.Sequential(*[layer for _ in range(40) for layer in (nn.Linear(16, 16), nn.Tanh())], nn.Linear(16, 64))
    net = nn.Sequential(nn.Conv2d(2, 16, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), deep)
    inputs = (1e6 * torch.randn(4, 2, 8, 8, generator=torch.Generator().manual_seed(0)),)
    initialize(net, inputs, seed=0)
    with torch.inference_mode():
        torch.testing.assert_close(net(*inputs).std(correction=0), torch.tensor(1.0))
    lone = nn.Linear(4, 1)
    initialize(lone, (torch.ones(1, 4),), seed=0)
    assert torch.isfinite(lone.weight).all()


#: Runs, but cannot be exported.
_UNTRACEABLE = """import torch


class Net(torch.nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x


def build():
    return Net(), (torch.ones(1),)
"""


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("def build(:\n", 1, "cannot be loaded: SyntaxError: invalid syntax"),
        ("import math\nmath.nothing\n", 2, "cannot be loaded: AttributeError: module 'math' has no attribute"),
        ("def build():\n    sizes = {}\n    return sizes['wide']\n", 3, "KeyError: 'wide'"),
        (
            "import torch\n\n\ndef build():\n    return torch.nn.Linear(-1, 1), (torch.zeros(1),)\n",
            5,
            "RuntimeError: Trying to create tensor with negative dimension -1",
        ),
        (_UNTRACEABLE, 6, "Could not guard on data-dependent expression"),
    ],
)
def test_errors_in_a_model_file_name_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, line: int, message: str
) -> None:
    """Whatever is wrong in a user's file, the message leads to its line there, also where torch raised the error."""
    for module in ("hios.frontends.models", "hios.frontends.export"):
        monkeypatch.setattr(f"{module}.resource_directory", lambda name: tmp_path)
    (tmp_path / "wrong.py").write_text(text)
    with refused("", f"{tmp_path / 'wrong.py'}:{line}: {message}"):
        export("wrong", tmp_path / "program.pt2", {}, seed=0)


def test_fingerprints_tell_sizes_apart(files: Files) -> None:
    """Other image and batch sizes give other fingerprints, other weights the same, and so does the file."""
    small, *others = (network("ios_sample", *sizes).graph.fingerprint for sizes in ((9,), (12,), (9, 2)))
    assert len({small, *others}) == 3
    assert extracted(*build_model("ios_sample", {"image_size": 9}, seed=1)).graph.fingerprint == small
    assert Graph.read(files.graph).fingerprint == network("squeezenet", 64).graph.fingerprint
