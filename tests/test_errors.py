"""Messages of errors, of packages that are missing too."""

from __future__ import annotations

import pickle

import pytest

from hios.errors import ArtifactError, HiosError, ScheduleError, suggestion
from tests.scripts import printed


@pytest.mark.parametrize("kind", [HiosError, ArtifactError, ScheduleError])
def test_long_messages_lose_their_middle(kind: type[HiosError]) -> None:
    """Whatever a file holds, a message says where and what is allowed in some thousand characters."""
    message = str(kind(f"graph.json: operators[3].id: found {'x' * 100_000}; allowed: another"))
    assert message.startswith("graph.json: operators[3].id: found xxx")
    assert message.endswith("xxx; allowed: another")
    assert " ... " in message
    assert len(message) < 4100
    assert str(kind("short")) == "short"


def test_messages_are_one_line() -> None:
    """Names in files and errors of other libraries may hold line breaks, and what terminals obey."""
    assert str(HiosError("a:\n  b\r\nc\u2028d\n")) == "a: b c d"
    assert str(HiosError("\x1b[2Jé\0\t\x9b")) == r"\x1b[2Jé\x00\t\x9b"


@pytest.mark.parametrize(
    ("name", "similar"),
    [
        ("hios_lp", " (did you mean hios-lp?)"),
        ("HIOS-LP", " (did you mean hios-lp?)"),
        ("sequental", " (did you mean sequential?)"),
        ("magic", ""),
        ("", ""),
        ("x" * 100_000, ""),
    ],
)
def test_similar_names_are_suggested(name: str, similar: str) -> None:
    """The most similar name, if any is similar."""
    assert suggestion(name, ["hios-lp", "hios-mr", "sequential"]) == similar


def test_errors_travel_between_processes() -> None:
    """An error is pickled with its message."""
    error = pickle.loads(pickle.dumps(ScheduleError("x" * 10_000)))  # noqa: S301
    assert type(error) is ScheduleError
    assert len(str(error)) < 4100


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
    said = printed("-c", code)
    assert said.startswith(message)
    assert said.count("\n") == 1
    assert "hios[" in said
