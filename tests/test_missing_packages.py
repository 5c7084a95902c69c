"""Without the packages of an extra, functions say in one line which extra to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

_CODE = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
import hios
try:
    {call}
except hios.HiosError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("package", "call", "message"),
    [
        ("torch", "hios.optimize(None, None)", "hios.optimize needs torch, which is not installed: pip install "),
        ("torch", "hios.export('squeezenet')", "hios.export needs torch, which is not installed: pip install "),
        ("pandas", "hios.load_results('results')", "hios.load_results needs pandas, which is not installed: pip "),
    ],
)
def test_missing_packages_are_named(package: str, call: str, message: str) -> None:
    """The error is one of ours, in one line, with the extra of the package."""
    code = _CODE.format(package=package, call=call)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(message)
    assert done.stdout.count("\n") == 1
    assert "hios[" in done.stdout
