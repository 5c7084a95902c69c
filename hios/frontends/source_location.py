"""The location in a model that an operator comes from."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import fx

#: A line of a stack trace that names a file and a line.
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


@dataclass(frozen=True, slots=True)
class Origin:
    """The location in the model that a call comes from.

    ``module`` is the path of the submodule that computes it ("" for the model itself), ``place`` the location in words,
    ``node`` the node of the model as the frontend has it.
    """

    module: str
    place: str
    node: Any = field(default=None, compare=False, repr=False)


def of_node(node: fx.Node) -> Origin:
    """Module and line of a node of an exported program, if the program states them."""
    stack = node.meta.get("nn_module_stack") or {}
    module = [path for path, _ in stack.values()][-1] if stack else ""
    frames = list(_FRAME.finditer(node.meta.get("stack_trace") or ""))
    line = f" ({Path(frames[-1]['file']).name}:{frames[-1]['line']})" if frames else ""
    return Origin(module, f"{node.target}{f' in {module}' if module else ''}{line}", node)
