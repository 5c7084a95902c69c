"""Functions compiled by numba, and which of them are kept on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit


def _sources() -> str:
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(f"{file.name}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


#: A field without contents, named after the sources of this folder. What numba keeps on disk of a function is compiled
#: anew when the file of the function changes, or the types of its arguments, but not when another file does whose
#: functions it calls. So a function that is kept and calls those of other files takes a record with this field.
SOURCES = (f"sources_{_sources()}", np.bool_)


_OPTIONS: dict[str, Any] = {"nogil": True, "_nrt": False}


def compiled(function: Callable[..., Any]) -> Any:
    """Compile without holding the interpreter lock; for functions that compiled ones call.

    They make no arrays, so references are not counted (``_nrt``): arrays in a tuple would be at every use, which would
    take a quarter of the time.
    """
    return njit(**_OPTIONS)(function)


def kept(function: Callable[..., Any]) -> Any:
    """Compile likewise, and keep the result on disk where there is a place for it; for functions that Python calls.

    It calls compiled functions of its own file only, or takes a record with the field ``SOURCES``.
    """
    try:
        return njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # neither this folder nor a cache folder of the user can be written
        return compiled(function)
