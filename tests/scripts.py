"""Scripts of the project that are in no package, and Python in processes of its own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]


def load_script(name: str) -> ModuleType:
    """A script as a module, by its path in the project, such as ``docs/generate_reference.py``."""
    spec = importlib.util.spec_from_file_location(Path(name).stem, ROOT / name)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # where its annotations are looked up
    spec.loader.exec_module(module)
    return module


def python(*arguments: object, folder: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """What Python did with this hios, in a process of its own in a folder."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


def printed(*arguments: object, folder: Path = ROOT, **environment: str) -> str:
    """What it printed, if it has to succeed."""
    done = python(*arguments, folder=folder, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
