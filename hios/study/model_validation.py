"""How far predictions of the platform model are from published latencies, read from model_validation.yaml.

``python benchmarks/model_validation.py --write`` writes the file.
"""

from __future__ import annotations

import functools
import statistics
from pathlib import Path

import msgspec

from hios import artifacts
from hios.yaml_file import plain, read_yaml

FILE = Path(__file__).with_suffix(".yaml")


class ValidationRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published latency of a sequential schedule, and the predicted one.

    Attributes:
        paper: which published it.
        gpu: name of the description.
        network: file in models/.
        batch: images in a batch.
        published_ms: milliseconds.
        predicted_ms: milliseconds.
        fitted: whether the parameters of the model were fitted to it, among others.
    """

    paper: str
    gpu: str
    network: str
    batch: int
    published_ms: float
    predicted_ms: float
    fitted: bool

    @property
    def error(self) -> float:
        """Predicted over published, less 1."""
        return self.predicted_ms / self.published_ms - 1


@functools.cache
def rows() -> tuple[ValidationRow, ...]:
    """All that is published."""
    return tuple(msgspec.convert(plain(read_yaml(FILE), str(FILE), ()), list[ValidationRow]))


def write(rows: list[ValidationRow], file: Path = FILE) -> None:
    """Write the file."""
    head = (
        "# Written by `python benchmarks/model_validation.py --write`: sequential latencies, published and predicted.\n"
    )
    lines = [
        f"- {{paper: {row.paper}, gpu: {row.gpu}, network: {row.network}, batch: {row.batch}, "
        f"published_ms: {row.published_ms:.6g}, predicted_ms: {row.predicted_ms:.6g}, "
        f"fitted: {str(row.fitted).lower()}}}\n"
        for row in rows
    ]
    with artifacts.replacing(file) as temporary:
        temporary.write_text(head + "".join(lines), encoding="utf-8")


def error_in_words(gpu: str, name: str) -> str:
    """How far predicted sequential latencies are from those that were published for a GPU.

    Args:
        gpu: name of its description.
        name: of the GPU in words.
    """
    own = [row for row in rows() if row.gpu == gpu]
    where = f"for the {name}"
    if not own:
        own, where = list(rows()), "for other GPUs, as none are for this one,"
    count = sum(row.fitted for row in own)
    fitted = "all" if count == len(own) else count or "none"
    errors = [100 * abs(row.error) for row in own]
    return (
        f"Sequential latencies that were published {where} differ from predicted ones by "
        f"{statistics.median(errors):.0f} % in the median and {max(errors):.0f} % at most ({len(own)} "
        f"latencies, {fitted} of which the model was fitted to; python benchmarks/model_validation.py)."
    )
