"""pdflatex, where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_PDFLATEX = shutil.which("pdflatex")

needs_pdflatex = pytest.mark.skipif(_PDFLATEX is None, reason="needs pdflatex with booktabs")


def compile_latex(document: Path) -> str:
    """Compile a document in its folder.

    Returns:
        What pdflatex says.

    Raises:
        AssertionError: it fails; the message has the end of what it says.
    """
    assert _PDFLATEX is not None
    command = [_PDFLATEX, "-interaction=nonstopmode", "-halt-on-error", document.name]
    done = subprocess.run(command, cwd=document.parent, capture_output=True, check=False)
    said = done.stdout.decode(errors="replace")
    assert done.returncode == 0, said[-2000:]
    assert document.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
    return said
