"""Descriptions of GPUs and of the links between them: YAML files, every number with its source."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from hios.errors import ArtifactError, PlatformError
from hios.files import artifacts
from hios.files.yaml_file import plain, read_yaml
from hios.formats.descriptions import GpuFile, LinkFile, Number, ShareNumber, WholeNumber

_File = TypeVar("_File", GpuFile, LinkFile)

_FOLDER = Path(__file__).resolve().parent
#: Suffixes that distinguish a file from the name of a description that comes with hios.
_ENDINGS = (".yaml", ".yml")
#: Ratio above which tensor cores count as faster than FP32 cores, as data sheets round their rates.
_FASTER = 1.1


@dataclass(frozen=True, slots=True)
class Link:
    """The link between two GPUs.

    Attributes:
        path: file of the description.
        label: word of the GPU's description, or the path of the file.
        name: in words.
        bandwidth_gbs: gigabytes a second in one direction, as the vendor states it.
        share: the part of the bandwidth that copies reach.
        latency_us: microseconds of an empty copy.
    """

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
    """A GPU as its vendor describes it.

    Attributes:
        path: file of the description.
        label: name of the description, or the path of the file.
        name: in words.
        compute_capability: such as ``8.6``.
        sms: streaming multiprocessors.
        clock_mhz: boost clock.
        fp32_lanes: FP32 multiply-adds of an SM in a cycle.
        memory_bandwidth_gbs: gigabytes a second.
        threads_per_sm: maximum number of threads on an SM.
        blocks_per_sm: maximum number of blocks on an SM.
        registers_per_sm: of 32 bits.
        shared_bytes_per_sm: shared memory of an SM.
        tf32_tflops: 10^12 operations a second of tensor cores in TF32, without sparsity; 0 if they have none.
        fp16_tflops: the same in FP16 with sums in FP32.
        links: the links possible between two of them: name or file of a link's description, by the word for ``--link``.
        memory_gb: memory in 10^9 bytes; infinite if the description does not state it.
    """

    path: Path
    label: str
    name: str
    compute_capability: str
    sms: int
    clock_mhz: float
    fp32_lanes: int
    memory_bandwidth_gbs: float
    threads_per_sm: int
    blocks_per_sm: int
    registers_per_sm: int
    shared_bytes_per_sm: int
    tf32_tflops: float
    fp16_tflops: float
    links: Mapping[str, str]
    memory_gb: float = math.inf

    @property
    def fp32_tflops(self) -> float:
        """10^12 FP32 operations per second; a multiply-add counts two."""
        return 2 * self.sms * self.fp32_lanes * self.clock_mhz / 1e6

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
        rates |= dict.fromkeys(("float16", "bfloat16"), self.fp16_tflops)
        return rates.get(dtype, 0.0) * 1e6 / (2 * self.sms * self.clock_mhz)


def gpu_names() -> list[str]:
    """Names of the GPUs whose descriptions come with hios."""
    return sorted(path.stem for path in (_FOLDER / "gpus").glob("*.yaml"))


def gpu(text: str) -> Gpu:
    """The GPU with a name (`gpu_names`) or described in a YAML file.

    Raises:
        PlatformError: no such name or file.
        ArtifactError: the file breaks its schema, or names a source that it does not list.
        HiosError: the file contains values that JSON cannot represent, such as a date.
    """
    if not text.endswith(_ENDINGS) and text not in gpu_names():
        raise PlatformError(f"gpu: found {text}; allowed: {', '.join(gpu_names())}, or the path of a .yaml file")
    path = Path(text) if text.endswith(_ENDINGS) else _FOLDER / "gpus" / f"{text}.yaml"
    file = _read(path, GpuFile)
    links = {
        word: str(path.parent / entry) if entry.endswith(_ENDINGS) else entry for word, entry in file.links.items()
    }
    return Gpu(
        path=path,
        label=text,
        name=file.name,
        compute_capability=file.compute_capability,
        sms=file.sms.value,
        clock_mhz=file.clock_mhz.value,
        fp32_lanes=file.fp32_lanes_per_sm.value,
        memory_bandwidth_gbs=file.memory_bandwidth_gbs.value,
        threads_per_sm=file.threads_per_sm.value,
        blocks_per_sm=file.blocks_per_sm.value,
        registers_per_sm=file.registers_per_sm.value,
        shared_bytes_per_sm=1024 * file.shared_memory_per_sm_kb.value,
        tf32_tflops=0.0 if file.tf32_tflops is None else file.tf32_tflops.value,
        fp16_tflops=0.0 if file.fp16_tflops is None else file.fp16_tflops.value,
        memory_gb=math.inf if file.memory_gb is None else file.memory_gb.value,
        links=links,
    )


def link(text: str | None, between: Gpu) -> Link:
    """The link between two GPUs: a name in the GPU's description, or a YAML file; the first listed if None.

    Raises:
        PlatformError: the GPU has no such link.
        ArtifactError: a file breaks its schema, or names a source that it does not list.
        HiosError: a file contains values that JSON cannot represent, such as a date.
    """
    word = next(iter(between.links)) if text is None else text
    if not word.endswith(_ENDINGS) and word not in between.links:
        raise PlatformError(
            f"link: found {word}; allowed with gpu {between.label}: {', '.join(between.links)}, "
            "or the path of a .yaml file"
        )
    entry = between.links.get(word, word)
    path = Path(entry) if entry.endswith(_ENDINGS) else _FOLDER / "links" / f"{entry}.yaml"
    if path.parent == _FOLDER / "links" and not path.is_file():
        known = ", ".join(sorted(file.stem for file in path.parent.glob("*.yaml")))
        raise PlatformError(
            f"{between.label}: links.{word}: found {entry}; allowed: {known}, or the path of a .yaml file"
        )
    file = _read(path, LinkFile)
    return Link(path, word, file.name, file.bandwidth_gbs.value, file.share.value, file.latency_us.value)


def _read(path: Path, cls: type[_File]) -> _File:
    """A description, after checking that every source is listed."""
    file = artifacts.parsed(plain(read_yaml(path), str(path), ()), cls, str(path))
    for field in file.__struct_fields__:
        number = getattr(file, field)
        if isinstance(number, Number | WholeNumber | ShareNumber) and number.source not in file.sources:
            raise ArtifactError(
                f"{path}: {field}.source: found {number.source}; allowed: {', '.join(file.sources)}, "
                "the names under sources"
            )
    return file
