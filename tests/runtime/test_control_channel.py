"""The connection of a rank to rank 0: what it sends when, and who is to blame at the end."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from types import SimpleNamespace

import pytest

from hios.runtime.distributed import control_channel
from hios.runtime.distributed.control_channel import ControlChannel, ProgressState, RankPlace
from tests.scripts import ROOT, python

#: Seconds after which a message is given up.
_TIMEOUT_S = 300.0


@contextmanager
def _heard(places: list[RankPlace]) -> Iterator[tuple[Connection, list[str]]]:
    """The line of rank 1 as rank 0 has it, and what arrives on it until the session is over, which is at the end."""
    key, rest = b"key", list[str]()
    with socket.create_server(("127.0.0.1", 0)) as server:
        ControlChannel(1, places, ProgressState(), server.getsockname()[:2], key, _TIMEOUT_S)
        accepted, _ = server.accept()
    accepted.recv(len(key) + 4, socket.MSG_WAITALL)
    with Connection(accepted.detach()) as line:
        try:
            yield line, rest
        finally:  # otherwise the rank, which is this process, would end
            _tell(line, {"is": "over"})
            try:
                while True:
                    rest.append(json.loads(line.recv_bytes())["is"])
            except EOFError:
                pass


def _tell(line: Connection, message: dict[str, str]) -> None:
    line.send_bytes(json.dumps(message).encode())


def test_ranks_rest_between_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 answers each beat, and that is no reason for the next one, which has a time of its own."""
    now_s = [100.0]
    signals, end = os.pipe()
    monkeypatch.setattr(control_channel, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(control_channel, "_signals", lambda: signals)
    with _heard([RankPlace(f"node{rank}", "boot", (rank,)) for rank in range(2)]) as (line, rest):
        for number in range(4):
            now_s[0] += control_channel._BEAT_S if number else 0.0
            assert line.poll(_TIMEOUT_S)
            assert json.loads(line.recv_bytes())["is"] == "beat"
            for _ in range(20):
                _tell(line, {"is": "state", "at": "random"})
    assert rest == []
    os.close(signals)
    os.close(end)


#: Rank 1 has come to its end, and rank 0 does not; both are in this process, which the monitor ends.
_ENDING = """
import math, threading
from hios.runtime.distributed import control_channel, monitor
from hios.runtime.distributed.control_channel import ControlChannel, ProgressState, RankPlace
from tests.workers.processes import eventually

control_channel.end = lambda line: threading.Event().wait()
monitor._SILENT_S = math.inf
places = [RankPlace(f"node{rank}", "boot", (rank,)) for rank in range(2)]
ranks, states = monitor.RankMonitor(places), [ProgressState(), ProgressState()]
channels = [
    ControlChannel(rank, places, states[rank], ranks.address, ranks.key, 300.0) for rank in range(2)
]
states[0].enter("writing run.json")
channels[0].beat()
assert eventually(lambda: ranks._at.get(0) == ("writing run.json", None))
channels[1].finish(0.01)
"""


def test_who_has_ended_waits_for_rank_0() -> None:
    """Where rank 0 hangs at the end, the ranks that wait for it are not to blame."""
    done = python("-c", _ENDING)
    assert done.returncode == 1
    line = "Error: rank 0 on node0 did not go on within the time-out: writing run.json"
    assert done.stderr.splitlines()[-1] == line


def test_ranks_end_where_nobody_reads_why() -> None:
    """The launcher may have gone, and with it the other end of the pipe that the line is for."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run([sys.executable, "-c", _ENDING], stderr=writing, cwd=ROOT, check=False, timeout=600)
    finally:
        os.close(writing)
    assert done.returncode == 1
