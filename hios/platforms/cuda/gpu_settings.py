"""Settings of GPUs, as nvidia-smi reports them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence

from hios.errors import warn
from hios.platforms.cuda import devices

#: Fields to query from nvidia-smi: settings that affect a GPU's clock rates and its usable share, and the driver, which
#: a description does not have everywhere.
_CLOCKS = (
    "driver_version",
    "persistence_mode",
    "power.limit",
    "clocks.applications.graphics",
    "clocks.applications.memory",
    "ecc.mode.current",
    "mig.mode.current",
    "compute_mode",
)
#: What nvidia-smi prints instead of values where it does not have a field, as of an older or newer driver.
_NO_FIELD = re.compile(r'Field "([^"]+)" is not a valid field')
#: Seconds that nvidia-smi may take.
_ANSWER_S = 30.0


def warn_if_exclusive(index: int) -> None:
    """Warn, before several processes are started on a GPU of torch here, if its compute mode does not allow that."""
    modes = sorted({row["compute_mode"] for row in clocks(*asked(devices.uuids([index])))})
    if exclusive := [mode for mode in modes if mode.lower().startswith("exclusive")]:
        warn(
            f"platform cuda: nvidia-smi reports compute mode {exclusive[0]}: only one process at a time can use such a "
            "GPU without NVIDIA's MPS, and hios starts several, so all but the first may fail; `nvidia-smi "
            "--compute-mode=0`, as root, allows more"
        )


def clocks(text: str, fields: Sequence[str] = _CLOCKS) -> list[dict[str, str]]:
    """Clock-related settings of GPUs, each combination once.

    ``text`` is the output of ``nvidia-smi --query-gpu=FIELDS --format=csv,noheader``, one line per GPU; missing values
    are ``[N/A]``, those of `_CLOCKS` that are not among the fields ``unknown``. Lines with other numbers of values are
    ignored.
    """
    rows = {tuple(value.strip() for value in line.split(",")) for line in text.splitlines()}
    unknown = dict.fromkeys(_CLOCKS, "unknown")
    return [{**unknown, **dict(zip(fields, row, strict=True))} for row in sorted(rows) if len(row) == len(fields)]


def asked(uuids: Sequence[str]) -> tuple[str, list[str]]:
    """The output of nvidia-smi for some GPUs, and the fields that it has; no text if it is missing or fails.

    Where it does not know one of them, as parts of GPUs (MIG) have UUIDs of another form, it is that for all GPUs.
    """
    program, fields = shutil.which("nvidia-smi"), list(_CLOCKS)
    only = [f"--id={','.join(f'GPU-{uuid}' for uuid in uuids)}"]
    while program is not None and fields:
        command = [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader", *only]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_S, check=False)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired):
            break
        if done.returncode == 0:
            return done.stdout, fields
        refused = _NO_FIELD.search(done.stdout)
        if refused is not None and refused[1] in fields:
            fields.remove(refused[1])
        elif only:
            only = []
        else:
            break
    return "", fields
