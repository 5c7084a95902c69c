"""Descriptions of GPUs and of the links between them: YAML files, every number with its source."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

from hios.errors import ArtifactError, PlatformError
from hios.files import artifacts
from hios.files.yaml_file import plain, read_yaml
from hios.formats.descriptions import GpuFile, LinkFile, Number, OverheadNumber, ShareNumber, WholeNumber
from hios.platforms.occupancy import RESERVED_BYTES, SmRoom

_File = TypeVar("_File", GpuFile, LinkFile)

_FOLDER = Path(__file__).resolve().parent
#: Suffixes that distinguish a file from the name of a description that comes with hios.
ENDINGS = (".yaml", ".yml")
#: Ratio above which tensor cores count as faster than FP32 cores, as data sheets round their rates.
_FASTER = 1.1
#: Compute capability from which on tensor cores support bfloat16.
_BFLOAT16 = 8.0
#: Threads of a block of a streaming kernel, each for one element, and 32 registers of each.
BLOCK_THREADS, BLOCK_REGISTERS = 256, 256 * 32


@dataclass(frozen=True, slots=True)
class GpuLink:
    """The link between two GPUs: the numbers of `LinkFile`, its file, and how the user names it (``label``)."""

    path: Path
    label: str
    name: str
    bandwidth_gbs: float
    share: float
    latency_us: float

    def time_ms(self, size: int) -> float:
        """Milliseconds to move ``size`` bytes."""
        return self.latency_us / 1e3 + size / (self.bandwidth_gbs * self.share * 1e6)


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as its vendor describes it: the numbers of `GpuFile`, its file, and how the user names it (``label``).

    TFLOPS of tensor cores are 0 if it has none, and its memory is infinite if the description does not state it.
    ``links`` are the links possible between two of them: name or path of a link's description, by the word for
    ``--link``. ``overheads`` are those that it states, in microseconds.
    """

    path: Path
    label: str
    name: str
    compute_capability: str
    sms: int
    clock_mhz: float
    fp32_lanes_per_sm: int
    memory_bandwidth_gbs: float
    threads_per_sm: int
    blocks_per_sm: int
    registers_per_sm: int
    shared_memory_per_sm_kb: int
    links: Mapping[str, str]
    tf32_tflops: float = 0.0
    fp16_tflops: float = 0.0
    memory_gb: float = math.inf
    overheads: Mapping[str, float] = field(default_factory=dict)

    @property
    def fp32_tflops(self) -> float:
        """10^12 FP32 operations per second; a multiply-add counts two."""
        return 2 * self.sms * self.fp32_lanes_per_sm * self.clock_mhz / 1e6

    @property
    def room(self) -> SmRoom:
        """What an SM has for thread blocks.

        Predictions reserve shared memory on all GPUs, not only from compute capability 8.0 on: their parameters were
        fitted so. Without it, other numbers of blocks fit only in float16 on tensor cores of 7.0 and 7.2.
        """
        shared_bytes = 1024 * self.shared_memory_per_sm_kb
        return SmRoom(self.blocks_per_sm, self.threads_per_sm, self.registers_per_sm, shared_bytes, RESERVED_BYTES)

    @property
    def has_tf32(self) -> bool:
        """Whether float32 convolutions run in TF32: if tensor cores are faster in TF32 than FP32 cores."""
        return self.tf32_tflops > _FASTER * self.fp32_tflops

    def tensor_lanes(self, dtype: str, *, convolution: bool) -> float:
        """Multiply-adds per cycle of the tensor cores of an SM; 0 if they do not support the type.

        Convolutions of float32 may run in TF32, products of matrices may not: torch's defaults. Where tensor cores are
        no faster in TF32 than the FP32 cores, libraries stay with these.
        """
        rates = {"float32": self.tf32_tflops if convolution and self.has_tf32 else 0.0}
        rates["float16"] = self.fp16_tflops
        if float(self.compute_capability) >= _BFLOAT16:
            rates["bfloat16"] = self.fp16_tflops
        return rates.get(dtype, 0.0) * 1e6 / (2 * self.sms * self.clock_mhz)


def gpu_names() -> list[str]:
    """Names of the GPUs whose descriptions come with hios."""
    return sorted(path.stem for path in (_FOLDER / "gpus").glob("*.yaml"))


def gpu(text: str) -> Gpu:
    """The GPU with a name (`gpu_names`) or described in a YAML file.

    Raises:
        PlatformError: no such name or file.
        ArtifactError: the file breaks its schema, names a source that it does not list, or an SM holds no thread block.
        HiosError: the file contains values that JSON cannot represent, such as a date.
    """
    if not text.endswith(ENDINGS) and text not in gpu_names():
        fitting = [name for name in gpu_names() if text.lower() in name] or gpu_names()
        raise PlatformError(f"gpu: found {text}; allowed: {', '.join(fitting)}, or the path of a .yaml file")
    path = Path(text) if text.endswith(ENDINGS) else _FOLDER / "gpus" / f"{text}.yaml"
    file = _read(path, GpuFile)
    links = {word: str(path.parent / entry) if entry.endswith(ENDINGS) else entry for word, entry in file.links.items()}
    numbers: dict[str, Any] = {name: number.value for name, number in _numbers(file).items()}
    own = {name.removeprefix(_OVERHEADS): numbers.pop(name) for name in list(numbers) if name.startswith(_OVERHEADS)}
    for name, least in (("threads_per_sm", BLOCK_THREADS), ("registers_per_sm", BLOCK_REGISTERS)):
        if numbers[name] < least:
            raise ArtifactError(
                f"{path}: {name}.value: found {numbers[name]}; required: at least {least}, those of one thread block"
            )
    return Gpu(path, text, file.name, file.compute_capability, links=links, overheads=own, **numbers)


def link(text: str | None, between: Gpu) -> GpuLink:
    """The link between two GPUs: a name in the GPU's description, or a YAML file; the first listed if None.

    Raises:
        PlatformError: the GPU has no such link.
        ArtifactError: a file breaks its schema, or names a source that it does not list.
        HiosError: a file contains values that JSON cannot represent, such as a date.
    """
    word = next(iter(between.links)) if text is None else text
    if not word.endswith(ENDINGS) and word not in between.links:
        raise PlatformError(
            f"link: found {word}; allowed with gpu {between.label}: {', '.join(between.links)}, "
            "or the path of a .yaml file"
        )
    entry = between.links.get(word, word)
    path = Path(entry) if entry.endswith(ENDINGS) else _FOLDER / "links" / f"{entry}.yaml"
    if path.parent == _FOLDER / "links" and not path.is_file():
        known = ", ".join(sorted(file.stem for file in path.parent.glob("*.yaml")))
        raise PlatformError(
            f"{between.label}: links.{word}: found {entry}; allowed: {known}, or the path of a .yaml file"
        )
    file = _read(path, LinkFile)
    return GpuLink(path, word, file.name, **{name: number.value for name, number in _numbers(file).items()})


def _read(path: Path, cls: type[_File]) -> _File:
    """A description, after checking that every source is listed."""
    file = artifacts.parsed(plain(read_yaml(path), str(path), ()), cls, str(path))
    for name, number in _numbers(file).items():
        if number.source not in file.sources:
            raise ArtifactError(
                f"{path}: {name}.source: found {number.source}; allowed: {', '.join(file.sources)}, "
                "the names under sources"
            )
    return file


#: Before the names of overheads, as fields of a description.
_OVERHEADS = "overheads."
_Number = Number | WholeNumber | ShareNumber | OverheadNumber


def _numbers(file: GpuFile | LinkFile) -> dict[str, _Number]:
    """The numbers that a description states, by field."""
    fields = structs.asdict(file)
    if overheads := fields.get("overheads"):
        fields |= {f"{_OVERHEADS}{name}": value for name, value in structs.asdict(overheads).items()}
    return {name: value for name, value in fields.items() if isinstance(value, _Number)}
