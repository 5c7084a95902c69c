"""What a model declares about itself: how to group its operators, its blocks, and the range of its inputs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from hios.core.graph import UNITS
from hios.errors import HiosError


@dataclass(frozen=True, slots=True)
class Declarations:
    """The declarations of a model.

    Attributes:
        units: one of ``hios.core.graph.UNITS``; None if the model declares none.
        blocks: paths of the submodules, each of which is a block; empty if the model declares none.
        below: for each integer input the upper limit of its values, such as the size of a vocabulary, as the example
            inputs show it; None for other inputs. Empty if nothing is known.
    """

    units: str | None = None
    blocks: tuple[str, ...] = ()
    below: tuple[int | None, ...] = ()

    @classmethod
    def of(cls, module: nn.Module) -> Declarations:
        """Read the attributes ``hios_units`` and ``hios_blocks`` of a module.

        Raises:
            HiosError: unknown units, a block that is no submodule, or one that is named twice.
        """
        units, blocks = getattr(module, "hios_units", None), getattr(module, "hios_blocks", ())
        declared = _checked(units, list(blocks) if isinstance(blocks, tuple) else blocks, ("hios_units", "hios_blocks"))
        known = {name for name, _ in module.named_modules() if name}
        for path in declared.blocks:
            if path not in known:
                near = ", ".join(sorted(name for name in known if "." not in name))
                raise HiosError(
                    f"hios_blocks: found {path}, which is not a submodule of {type(module).__name__}; allowed: paths "
                    f"of its submodules, such as those of {near}"
                )
        return declared

    def for_inputs(self, inputs: Iterable[Any]) -> Declarations:
        """The declarations with the ranges of integer inputs, as the example inputs show them."""
        return replace(self, below=tuple(_below(value) for value in inputs if isinstance(value, Tensor)))

    @classmethod
    def from_json(cls, text: str) -> Declarations:
        """Parse the output of `json`; a `HiosError` if it is not that."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise HiosError(f"not valid JSON ({error})") from error
        if not isinstance(data, dict) or (unknown := set(data) - {"units", "blocks", "below"}):
            wrong = ", ".join(sorted(unknown)) if isinstance(data, dict) else type(data).__name__
            raise HiosError(f"found {wrong}; allowed: units, blocks, below")
        below = data.get("below", [])
        if not isinstance(below, list) or not all(limit is None or _is_limit(limit) for limit in below):
            raise HiosError(f"below: found {below}; allowed: a list of whole numbers above 0, null where there is none")
        checked = _checked(data.get("units"), data.get("blocks", []), ("units", "blocks"))
        return replace(checked, below=tuple(below))

    def json(self) -> str:
        """The contents of hios.json within program.pt2."""
        return json.dumps({"units": self.units, "blocks": list(self.blocks), "below": list(self.below)})


def _is_limit(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _below(value: Tensor) -> int | None:
    if value.dtype.is_floating_point or value.dtype.is_complex or value.dtype is torch.bool or value.numel() == 0:
        return None
    return max(int(value.numpy(force=True).max()) + 1, 1)  # torch has no max of most unsigned integers


def _checked(units: Any, blocks: Any, names: tuple[str, str]) -> Declarations:
    if units is not None and units not in UNITS:
        raise HiosError(f"{names[0]}: found {units}; allowed: {', '.join(UNITS)}")
    if not isinstance(blocks, list) or not all(isinstance(path, str) and path for path in blocks):
        raise HiosError(f"{names[1]}: found {blocks}; allowed: paths of submodules, as a tuple of text")
    for path in blocks:
        if blocks.count(path) > 1:
            raise HiosError(f"{names[1]}: found {path} twice; allowed: once")
    return Declarations(units, tuple(blocks))
