"""How much memory reading a file may take: bounded before it is allocated, whatever the file says of itself.

Readers of text, zip files and tensors ask here, and nowhere else.
"""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from hios.errors import ArtifactError, first_line

#: Bytes of Python objects that a byte of JSON becomes at most: ``{"":0},`` becomes 24, keys and duplicates included.
JSON_GROWTH = 30
#: Bytes of a YAML file, of which PyYAML makes up to 350 bytes each; no file of the project has a twentieth of it.
MOST_BYTES_OF_YAML = 1_000_000
#: Values of a YAML file when every alias is replaced by what it stands for.
MOST_VALUES_OF_YAML = 100_000
#: Problems of a file that are collected, sorted and listed.
MOST_PROBLEMS = 1000
#: A zip file may unpack to this many bytes whatever its own size is.
_SMALL = 64_000_000
#: How many times its size a library may take to read a valid file.
_COPIES = 6
#: Held while the limit of this process is lowered.
_LIMITED = threading.RLock()
_READ_AT_ONCE = 1 << 20
_PAGE = os.sysconf("SC_PAGE_SIZE")
_OWN = Path("/proc/self/statm")
_CGROUPS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def memory_bytes() -> int:
    """What this process may take: the memory of the machine or of its container, or what ``ulimit -v`` leaves it."""
    limits = [_PAGE * os.sysconf("SC_PHYS_PAGES")]
    if (soft := resource.getrlimit(resource.RLIMIT_AS)[0]) != resource.RLIM_INFINITY:
        limits.append(max(0, soft - _taken()))
    for file in _CGROUPS:
        with contextlib.suppress(OSError, ValueError):  # the other version of cgroups, or "max"
            limits.append(int(file.read_text(encoding="utf-8")))
    return min(limits)


def _taken() -> int:
    """The address space of this process."""
    return _PAGE * int(_OWN.read_text(encoding="utf-8").split()[0])


@contextlib.contextmanager
def limited(source: Path) -> Iterator[int]:
    """A context in which a library that allocates what a file asks for gets so many bytes at most.

    That is half of the memory, or what copies of a larger file take, up to all of it. The limit is one of the whole
    process, so files are read one after another.

    Raises:
        ArtifactError: it asked for more.
    """
    with _LIMITED:
        limits, memory = resource.getrlimit(resource.RLIMIT_AS), memory_bytes()
        size = source.stat().st_size if source.is_file() else 0
        most = min(memory, max(memory // 2, _COPIES * size))
        resource.setrlimit(resource.RLIMIT_AS, (_taken() + most, limits[1]))
        try:
            yield most
        except MemoryError as error:
            raise ArtifactError(
                f"{source}: reading it takes more than {most / 1e9:.1f} GB; the memory here is {memory / 1e9:.1f} GB"
            ) from error
        finally:
            resource.setrlimit(resource.RLIMIT_AS, limits)


def require_memory(source: str | Path, what: str, needed: int) -> None:
    """Refuse what does not fit into memory, by an `ArtifactError`."""
    if needed > (most := memory_bytes()):
        raise ArtifactError(
            f"{source}: {what}: found {needed / 1e9:,.1f} GB; allowed: at most {most / 1e9:.1f} GB, the memory here"
        )


def read_text(path: Path, most: int | None = None) -> str:
    """The text of a file of at most so many bytes, which may be no regular file, such as a pipe or device.

    If ``most`` is None, it may have as many as JSON whose contents fit into memory.

    Raises:
        ArtifactError: it has more.
        OSError: it cannot be read.
        UnicodeDecodeError: it is not UTF-8.
    """
    most = memory_bytes() // JSON_GROWTH if most is None else most
    data = bytearray()
    with path.open("rb") as stream:
        while part := stream.read(_READ_AT_ONCE):
            data += part
            if len(data) > most:
                raise ArtifactError(f"{path}: found more than {most / 1e6:,.0f} MB of text; allowed: at most that")
    return data.decode()


@contextlib.contextmanager
def opened_zip(file: Path | IO[bytes], source: Path, growth: int, required: str) -> Iterator[zipfile.ZipFile]:
    """A zip file whose entries may be read: they say how long they are, and Python's reader stops there.

    Args:
        file: the file, or its contents.
        source: its path, for messages.
        growth: how many times its own size it may unpack to, if that is more than a few megabytes.
        required: what it should have been, and what to do, for messages.

    Raises:
        ArtifactError: it is damaged, no zip file, or unpacks to more.
    """
    try:
        with zipfile.ZipFile(file) as opened:
            for info in opened.infolist():
                if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise zipfile.BadZipFile(f"{info.filename} compressed by method {info.compress_type}")
            assert opened.fp is not None  # noqa: S101 - it is open
            size, total = opened.fp.seek(0, os.SEEK_END), sum(info.file_size for info in opened.infolist())
            if total > (most := max(growth * size, _SMALL)):
                raise zipfile.BadZipFile(
                    f"{size / 1e6:,.1f} MB that unpack to {total / 1e6:,.1f} MB, more than {most / 1e6:,.1f} MB"
                )
            yield opened
    except OSError as error:
        if error.filename != str(source):
            raise
        raise ArtifactError(f"{source}: cannot be read: {error.strerror}; required: {required}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise ArtifactError(f"{source}: found {first_line(error)}; required: {required}") from error
