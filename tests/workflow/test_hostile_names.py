"""Names in config.yaml run nothing and lead nowhere: labels that a shell or a path would take for more are refused."""

from __future__ import annotations

from typing import Any

import pytest

from hios.pipeline import config
from tests.refusals import refused
from tests.verify.test_hostile import DOCUMENTS
from tests.workflow.conftest import Checkout

CONFIG: Any = DOCUMENTS["config"]
#: Each would make the file `owned` if a shell saw it unquoted, or in the other kind of quotes.
_COMMANDS = (
    "$(touch owned)",
    "`touch owned`",
    "a;touch owned;",
    "a&touch owned&",
    "a\ntouch owned\n",
    "a|touch owned|",
)
LABELS = (*_COMMANDS, "a b", "a'b", 'a"b', "a\\b", "-x", "..", "../up", "/up", "", "*", "a\0b", "é")
NAMES = {
    "commands": "".join(part for part in _COMMANDS if "\n" not in part),
    "quotes": """it's "$(touch owned)" '$(touch owned)' \\" \\' #%s""",
    "line break": "a\ntouch owned\nb",
}


@pytest.mark.parametrize("place", ["models", "algorithms", "scenarios"])
@pytest.mark.parametrize("label", LABELS)
def test_labels(label: str, place: str) -> None:
    """Labels, which become parts of paths, are letters, digits, - and _, in one line that says so."""
    settings = {**CONFIG}
    if place == "scenarios":
        settings["serving"] = {"scenarios": {label: "scenario.yaml"}}
    else:
        (entry, *_) = settings[place].values()
        settings[place] = {**settings[place], label: entry}
    with refused("my.yaml: ", "found the key ", "A label is letters, digits, - and _"):
        config.without_files(settings, "my.yaml", cores=4)


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_files_and_folders(checkout: Checkout, name: str) -> None:
    """Any names of files and folders reach commands unchanged, and nothing is written elsewhere."""
    (checkout.path / f"{name}.pt2").touch()
    checkout.config(
        "config.yaml",
        models={"beta": None, "alpha": {"model": f"{name}.pt2", "image_size": None}},
        results=f"{name}/results",
        profile={"cache": f"{name}/cache"},
    )
    before = {path.name for path in checkout.path.iterdir()}
    checkout.succeed()
    assert (checkout.path / name / "results" / "report.html").exists()
    made = {path.name for path in checkout.path.iterdir()} - before
    assert made == {name, ".snakemake", "journal", ".cache"}
    words = [call["words"] for call in checkout.calls()]
    assert f"{name}/cache" in next(given for given in words if given[0] == "profile")
    assert f"{name}.pt2" in next(given for given in words if given[0] == "export")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "name", "settings"),
    [
        ("results", "-x", {"results": "-x"}),
        ("models.a.model", "--output=x", {"models": {"a": {"model": "--output=x"}}}),
        ("serving.scenarios.a", "-x.yaml", {"serving": {"scenarios": {"a": "-x.yaml"}}}),
        ("study.archives[0]", "-x/a.zip", {"study": {"archives": ["-x/a.zip"]}}),
    ],
    ids=["results", "model", "scenario", "archive"],
)
def test_leading_dash(field: str, name: str, settings: dict[str, Any]) -> None:
    """A folder or a file that commands would take for an option is refused."""
    with refused("", f'my.yaml: {field}: found "{name}"; allowed: text matching '):
        config.without_files({**CONFIG, **settings}, "my.yaml", cores=4)
