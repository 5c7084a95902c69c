"""Python with few packages, as on a machine that was not set up for hios."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.scripts import ROOT

_NAME = re.compile(r"[\w.-]+")


def with_only(distributions: Iterable[str], folder: Path) -> dict[str, Any]:
    """Variables for Python processes, and all that they start, that find only some distributions and what these need.

    All others are as if they were not installed, hios excepted. ``folder`` is where what hides them is written to.
    """
    kept, asked = {"hios"}, list(distributions)
    while asked:
        name = _plain(asked.pop())
        if name not in kept:
            kept.add(name)
            asked += _required(name)
    hidden = sorted(
        module
        for module, owners in metadata.packages_distributions().items()
        if kept.isdisjoint(map(_plain, owners)) and not (ROOT / module).exists()
    )
    code = f"import sys\nfor name in {hidden}:\n    sys.modules.setdefault(name, None)\n"
    (folder / "sitecustomize.py").write_text(code, encoding="utf-8")
    return {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def _required(name: str) -> list[str]:
    """What a distribution needs, extras apart; one that is not installed, as another system needs it, needs nothing."""
    try:
        required = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []
    return [text for text in required if not re.search(r"\bextra\s*==", text)]


def _plain(requirement: str) -> str:
    """The name of a distribution, however it is spelled, with or without versions."""
    name = _NAME.match(requirement)
    assert name is not None
    return re.sub(r"[-_.]+", "-", name[0]).lower()
