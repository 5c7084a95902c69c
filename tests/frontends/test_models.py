"""What MODEL may be, what it declares, and which files it depends on; nothing of the user's is imported for that."""

from __future__ import annotations

import ast
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import ExportedProgram

from hios.errors import ArtifactError, HiosError
from hios.frontends import program as programs
from hios.frontends.model_declarations import Declarations
from hios.frontends.models import files, imported_names, model, names, parsed, reached
from tests.refusals import refused


@pytest.mark.parametrize(
    ("text", "kind", "exported"),
    [
        ("squeezenet", "registered", ".pt2"),
        ("my_net:build", "function", ".pt2"),
        ("package.module:make_2", "function", ".pt2"),
        ("nets/mine.pt2", "pt2", ".pt2"),
        ("C:mine.PT2", "pt2", ".pt2"),
        ("../a b.onnx", "onnx", ".onnx"),
    ],
)
def test_kinds(text: str, kind: str, exported: str) -> None:
    """A name, a function and files are told apart by how they are written."""
    source = model(text)
    assert (source.text, source.kind, source.exported) == (text, kind, exported)
    assert source.is_file is (kind in {"pt2", "onnx"})


@pytest.mark.parametrize("text", ["", "SqueezeNet", "models/squeezenet", "my_net.py", "a:b:c", ":build", "a.:b", "1:b"])
def test_what_names_no_model(text: str) -> None:
    """What is none of them is refused in one line with all that is allowed."""
    similar = " (did you mean squeezenet?)" if text in {"SqueezeNet", "models/squeezenet"} else ""
    allowed = (", squeezenet", "package.module:function, or a file that ends in .pt2 or .onnx")
    with refused(f"unknown model {text}{similar}; allowed: ", *allowed):
        model(text)


def test_names(tmp_path: Path) -> None:
    """The registered networks are the files of the folder, except those whose names begin with an underscore."""
    for name in ("b.py", "a.py", "__init__.py", "_shared.py", "c.txt"):
        (tmp_path / name).touch()
    assert names(tmp_path) == ["a", "b"]


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with modules that import each other, and that fail when they are imported."""
    sources = {
        "net.py": "import os, helper\nfrom nets.parts import branch",
        "helper.py": "import net",  # a circle
        "unused.py": "",
        "nets/__init__.py": "from . import shared",
        "nets/shared.py": "",
        "nets/parts.py": "def build():\n    from .deep.down import block\n    import not_installed",
        "nets/deep/down.py": "from ..shared import a",
        "nets/other.py": "from .parts import b",
        "broken.py": "import helper\ndef (",
    }
    for name, text in sources.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(f"{text}\nraise SystemExit\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "net:build",
            ["helper.py", "net.py", "nets/__init__.py", "nets/deep/down.py", "nets/parts.py", "nets/shared.py"],
        ),
        (
            "nets.other:build",
            ["nets/__init__.py", "nets/deep/down.py", "nets/other.py", "nets/parts.py", "nets/shared.py"],
        ),
        ("helper:build", None),
        ("unused:build", ["unused.py"]),
        ("broken:build", ["broken.py"]),
    ],
)
def test_files_of_a_function(code: Path, text: str, expected: list[str] | None) -> None:
    """They are those of its module and of what that imports in the current folder, packages around it included."""
    relative = [str(file.relative_to(code)) for file in files(model(text))]
    if expected is None:  # in a circle everybody has the same files
        expected = [str(file.relative_to(code)) for file in files(model("net:build"))]
    assert relative == expected


def test_files_of_an_installed_function() -> None:
    """Of an installed package it is the module's own file; the package is not imported."""
    (path,) = files(model("yaml.loader:build"))
    assert path.parts[-2:] == ("yaml", "loader.py")


def test_files_of_a_registered_network(tmp_path: Path) -> None:
    """They are its own and those beside it that it imports."""
    for name, text in {"wide.py": "from .narrow import Net", "narrow.py": "import torch", "other.py": ""}.items():
        (tmp_path / name).write_text(text)
    assert files(model("wide", tmp_path), tmp_path) == [tmp_path / "narrow.py", tmp_path / "wide.py"]


def test_files_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file depends on itself; its path is relative to the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.onnx").touch()
    assert files(model("a.onnx")) == [Path("a.onnx")]
    with pytest.raises(HiosError, match=r"^b\.pt2: no such file; a path is relative to the folder that hios runs in, "):
        files(model("b.pt2"))


@pytest.mark.parametrize("location", ["a.data", "weights/" + 150 * "x"])
def test_files_of_an_onnx_file_with_weights_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    """They are its own and those that hold its weights, as far as they are there."""
    onnx = pytest.importorskip("onnx")
    numpy = pytest.importorskip("numpy")
    monkeypatch.chdir(tmp_path)
    Path("weights").mkdir()
    value = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [300])
    weights = onnx.numpy_helper.from_array(numpy.ones(300, "float32"), "w")
    node = onnx.helper.make_node("Identity", ["w"], ["y"])
    made = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], [value], [weights]))
    onnx.save(made, "a.onnx", save_as_external_data=True, location=location, size_threshold=0)
    assert files(model("a.onnx")) == [Path("a.onnx"), Path(location)]
    Path(location).unlink()
    assert files(model("a.onnx")) == [Path("a.onnx")]


@pytest.mark.parametrize("text", ["nothing:build", "nets:build", "nets.nothing:build", "net.inside:build"])
def test_missing_modules(code: Path, text: str) -> None:
    """A module that is not there is named before anything runs."""
    if text == "nets:build":
        (code / "nets" / "__init__.py").unlink()  # a folder alone holds no function
    with pytest.raises(HiosError, match=rf"^{text}: no module {text.partition(':')[0]} in the current folder, "):
        files(model(text))


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import a, b.c as d", {"a", "b.c"}),
        ("from a import b", {"a.b", "a"}),
        ("from . import b", {"top.inner.b", "top.inner"}),
        ("from .a import b", {"top.inner.a.b", "top.inner.a"}),
        ("from ..a import b", {"top.a.b", "top.a"}),
        ("def f():\n    import a", {"a"}),
        ("a = 1", set()),
    ],
)
def test_imported_names(code: str, names: set[str]) -> None:
    """Names are absolute, and imports inside functions count."""
    assert set(imported_names(ast.parse(code), "top.inner")) == names
    if "top" not in str(names):  # absolute names are the same for a module in no package
        assert set(imported_names(ast.parse(code), "")) == names


def test_what_is_not_python_has_no_tree(tmp_path: Path) -> None:
    """A file that cannot be parsed has no tree; one that can has one."""
    file = tmp_path / "module.py"
    for wrong in (b"def", b"\0", b"# coding: unknown\n"):
        file.write_bytes(wrong)
        assert parsed(file.read_bytes()) is None
    file.write_bytes(b"import a\n")
    assert isinstance(parsed(file.read_bytes()), ast.Module)


def test_every_module_is_asked_once() -> None:
    """Modules that import each other are reached, and their imports are read once."""
    imports = {"a": ["b", "c"], "b": ["a"], "c": ["b", "d"], "d": [], "e": ["a"]}
    asked: list[str] = []

    def imported(name: str) -> list[str]:
        asked.append(name)
        return imports[name]

    assert reached(["a"], imported) == {"a", "b", "c", "d"}
    assert sorted(asked) == ["a", "b", "c", "d"]


def _module(**declared: Any) -> nn.Module:
    module = nn.Sequential(nn.Sequential(nn.ReLU()), nn.ReLU())
    for name, value in declared.items():
        setattr(module, f"hios_{name}", value)
    return module


def test_declarations_of_a_module() -> None:
    """Units and paths of submodules are taken from plain attributes; without them there are none."""
    assert Declarations.of(_module()) == Declarations(None, ())
    assert Declarations.of(_module(units="operator", blocks=("0.0", "1"))) == Declarations("operator", ("0.0", "1"))
    assert Declarations.of(_module(blocks=["0"])).blocks == ("0",)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"units": "conv"}, "hios_units: found conv; allowed: conv-relu, relu-sepconv, operator"),
        ({"blocks": "0"}, "hios_blocks: found 0; allowed: paths of submodules, as a tuple of text"),
        ({"blocks": (0,)}, "hios_blocks: found [0]; allowed: paths of submodules, as a tuple of text"),
        ({"blocks": ("0", "0")}, "hios_blocks: found 0 twice; allowed: once"),
        ({"blocks": ("2",)}, "hios_blocks: found 2, which is not a submodule of Sequential; allowed: paths of its "),
        ({"blocks": ("",)}, "hios_blocks: found ['']; allowed: paths of submodules, as a tuple of text"),
    ],
)
def test_bad_declarations(declared: dict[str, Any], message: str) -> None:
    """Unknown units, and blocks that are no submodules, are refused."""
    with refused(message):
        Declarations.of(_module(**declared))


def test_json() -> None:
    """What is written is what is read."""
    for declared in (Declarations(), Declarations("operator", ("a", "b.c"), (None, 5))):
        assert Declarations.from_json(declared.json()) == declared


@pytest.fixture(scope="module")
def program() -> ExportedProgram:
    """A program of somebody else."""
    return torch.export.export(nn.ReLU(), (torch.ones(1),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "found list; allowed: units, blocks"),
        ('{"kind": 1}', "found kind; allowed: units, blocks"),
        ('{"units": ["operator"]}', "units: found ['operator']; allowed: conv-relu"),
        ('{"blocks": [1]}', "blocks: found [1]; allowed: "),
        ('{"below": [0]}', "below: found [0]; allowed: "),
    ],
)
def test_damaged_declarations(tmp_path: Path, program: ExportedProgram, text: str, message: str) -> None:
    """Damaged declarations in a program are refused in one line that names the file."""
    path = tmp_path / "program.pt2"
    torch.export.save(program, path, extra_files={"hios.json": text})
    with refused(f"{path}: hios.json: {message}", kind=ArtifactError):
        programs.declarations(path)


def test_program_without_declarations(tmp_path: Path, program: ExportedProgram) -> None:
    """A program that hios did not write declares nothing."""
    path = tmp_path / "program.pt2"
    torch.export.save(program, path)
    assert programs.declarations(path) == Declarations()
    with zipfile.ZipFile(path) as archive:
        assert not [name for name in archive.namelist() if "hios.json" in name]
