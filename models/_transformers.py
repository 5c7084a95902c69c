"""The package transformers, which only the transformer networks need."""

from __future__ import annotations

import importlib
from types import ModuleType


def load() -> ModuleType:
    """The package.

    Raises:
        ModuleNotFoundError: it is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module("transformers")
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
        raise ModuleNotFoundError("it needs the package transformers; pip install 'hios[transformers]'") from None
