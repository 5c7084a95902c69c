"""Snakemake in processes that are forked from one that has imported it: its imports take longer than a dry run.

`run` does what ``python -m snakemake`` does in a new process, and `start` does not wait for its end. hios and whatever
else the pipeline imports from its own folder is imported anew each time, from there.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

#: Longest request, bytes.
_LONGEST = 1 << 20


def run(arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run Snakemake in a folder; stdout and stderr come back together."""
    with tempfile.TemporaryFile() as printed:
        start(arguments, folder, environment, printed)
        status = wait()
        printed.seek(0)
        return subprocess.CompletedProcess(list(arguments), status, printed.read().decode(), None)


def start(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    printed: IO[bytes],
    *,
    own_group: bool = False,
) -> int:
    """Start Snakemake, perhaps with a process group of its own; returns its process ID. One runs at a time."""
    given = {"arguments": list(arguments), "folder": str(folder), "environment": dict(environment)}
    line = _server()
    socket.send_fds(line, [json.dumps({**given, "own_group": own_group}).encode()], [printed.fileno()])
    return int(line.recv(_LONGEST))


def wait() -> int:
    """The exit status of what was started, as of `subprocess.Popen.wait`."""
    return int(_server().recv(_LONGEST))


@functools.cache
def _server() -> socket.socket:
    """The connection to the server of this process; the server ends when it is closed, with this process at last."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.Popen([sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], env=environment)
    theirs.close()
    return ours


def _serve(line: socket.socket) -> None:
    while True:
        text, files, _, _ = socket.recv_fds(line, _LONGEST, 1)
        if not text:
            return
        child = os.fork()
        if child == 0:
            line.close()
            _become_snakemake(**json.loads(text), output=files[0])
        os.close(files[0])
        line.send(str(child).encode())
        _, status = os.waitpid(child, 0)
        line.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become_snakemake(
    arguments: list[str], folder: str, environment: dict[str, str], own_group: bool, output: int
) -> None:
    """What ``python -m snakemake`` does from here on."""
    if own_group:
        os.setsid()
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[0] = folder
    sys.path[1:1] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = ["snakemake", *arguments]
    status = 0
    try:
        runpy.run_module("snakemake", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)  # noqa: T201
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    for printed in (sys.stdout, sys.stderr):
        printed.flush()
    os._exit(status)


if __name__ == "__main__":
    import msgspec  # noqa: F401 - imported for all that are forked
    import snakemake.cli
    import snakemake.profiles
    import snakemake.report.html_reporter
    import snakemake.storage  # noqa: F401
    from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

    # Slurm's plugin asks after 1 s, 11 s, 21 s, ..., for jobs that take some seconds here.
    RemoteExecutor.sleep = lambda _: asyncio.sleep(0.5)

    _serve(socket.socket(fileno=int(sys.argv[1])))
