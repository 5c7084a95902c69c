"""What MODEL may be, and which files it depends on; nothing of the user's is imported for that."""

from __future__ import annotations

from pathlib import Path

import pytest

from hios.errors import HiosError
from hios.frontends.models import files, model, names
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


@pytest.mark.parametrize("text", ["nothing:build", "nets:build", "nets.nothing:build", "net.inside:build"])
def test_missing_modules(code: Path, text: str) -> None:
    """A module that is not there is named before anything runs."""
    if text == "nets:build":
        (code / "nets" / "__init__.py").unlink()  # a folder alone holds no function
    with pytest.raises(HiosError, match=rf"^{text}: no module {text.partition(':')[0]} in the current folder, "):
        files(model(text))
