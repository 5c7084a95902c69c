"""Files in memory, which workers read without a file on disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def memory_file(contents: bytes) -> Iterator[str]:
    """A path at which this process and its workers can read some bytes; valid until the context or process ends.

    Args:
        contents: what the file holds. They are let go once they are in the file, if the caller keeps them nowhere.
    """
    descriptor = os.memfd_create("hios", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(contents)
        del contents
        file.flush()
        yield f"/proc/{os.getpid()}/fd/{descriptor}"
