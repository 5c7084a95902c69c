"""Tests of GPUs on a machine that has torch, pytest and little else, as those with GPUs often do."""

from __future__ import annotations

import ast
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.few_packages import with_only
from tests.scripts import ROOT, printed, python

#: What CONTRIBUTING.md asks for.
PACKAGES = ("torch", "numpy", "safetensors", "msgspec", "tqdm", "PyYAML", "click", "pytest", "hypothesis")
#: Some of the others, of which hios can use each.
HIDDEN = ("tvm", "altair", "jsonschema", "ortools", "numba", "onnx", "openvino", "mpi4py")
#: What stands in for GPUs: torch says that there are two, and fails where one is used; a case of every test is enough.
_PRETEND = """
import torch

torch.cuda.device_count = lambda: 2

def pytest_collection_modifyitems(items):
    items[:] = {item.nodeid.partition("[")[0]: item for item in reversed(items)}.values()
"""


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Variables of processes that find `PACKAGES` alone."""
    folder = tmp_path_factory.mktemp("few")
    (folder / "pretended_gpu.py").write_text(_PRETEND, encoding="utf-8")
    options = dict.fromkeys(("PYTEST_ADDOPTS", "PYTEST_PLUGINS"), "")  # those of this run may need what is hidden
    return {**with_only(PACKAGES, folder), **options}


def _gpu_tests() -> set[str]:
    """All tests that are marked, as FILE::NAME, read from their text."""
    marked = set()
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "requires_gpu" in text else ():
            names = {getattr(own, "id", None) for own in getattr(node, "decorator_list", ())}
            if isinstance(node, ast.FunctionDef) and "requires_gpu" in names:
                marked.add(f"{path.relative_to(ROOT)}::{node.name}")
    return marked


def test_packages_are_hidden(few: dict[str, Any]) -> None:
    """What the other tests here rest on: they are as if they were not installed, in processes of processes too."""
    code = f"import importlib.util, torch, hios; print([name for name in {HIDDEN} if importlib.util.find_spec(name)])"
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}], check=True)"
    assert printed("-c", nested, **few) == "[]\n"


def test_all_tests_of_gpus_are_collected(few: dict[str, Any]) -> None:
    """`python -m pytest -m gpu` imports no file that needs what is not there, and leaves out no test."""
    done = python("-m", "pytest", "-m", "gpu", "--collect-only", "-q", "-p", "no:cacheprovider", **few)
    assert done.returncode == 0, done.stdout + done.stderr
    collected = {re.sub(r"\[.*", "", line) for line in done.stdout.splitlines() if "::" in line}
    assert collected == _gpu_tests() != set()


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, which runs them")
def test_tests_of_gpus_need_nothing_but_the_gpu(few: dict[str, Any], tmp_path: Path) -> None:
    """Where torch only says that there are GPUs, a case of each fails for that, and none as it misses a package."""
    results = tmp_path / "results.xml"
    options = ["-m", "gpu", "-p", "no:cacheprovider", "-p", "pretended_gpu", f"--junit-xml={results}"]
    done = python("-m", "pytest", *options, **few)
    cases = {f"{case.get('classname')}.{case.get('name')}": case for case in ET.parse(results).iter("testcase")}  # noqa: S314 - ours
    assert len(cases) >= len(_gpu_tests()), done.stdout + done.stderr
    for name, case in cases.items():
        said = "".join(part.get("message", "") for part in case)
        assert re.search("CUDA|GPU|NVIDIA", said), (name, said)
        assert not re.search("No module named|pip install", said), (name, said)
