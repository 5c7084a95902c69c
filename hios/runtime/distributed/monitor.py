"""Monitoring of all ranks on rank 0: their reports, and which rank is at fault when one fails or dies."""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from queue import Empty, SimpleQueue
from typing import Any, Never

from hios.runtime.distributed.control_channel import (
    ENDED,
    FAILED,
    LATE,
    ProgressState,
    RankPlace,
    died,
    print_last,
    who,
)

_KEY_BYTES = 32
#: Seconds that a new connection may take to say which rank it belongs to.
_HELLO_S = 2.0
#: Seconds for all ranks together to receive that the session is over.
_FAREWELL_S = 10.0
#: Seconds for all other ranks to end after a failure.
_ENDING_S = 2.0
#: Seconds to wait after a rank died or went missing, as a more precise reason may still arrive.
_GRACE_S = 0.4
_LOOK_S = 0.1
#: Seconds without a message after which a rank counts as silent: it sends several a second.
_SILENT_S = 3.0


def longest_silent(heard: Mapping[int, float], now: float) -> int | None:
    """The rank that has been silent for longest, by the times of their last messages; None if none is silent."""
    rank = min(heard, key=lambda rank: heard[rank], default=None)
    return rank if rank is not None and now - heard[rank] > _SILENT_S else None


class RankMonitor:
    """Listens to all ranks in a separate thread."""

    def __init__(self, places: Sequence[RankPlace]) -> None:
        self._places = places
        alone = len({(place.boot, place.network) for place in places}) == 1
        # Ranks of other hosts connect over any network; a connection without the key is refused.
        self._server = socket.create_server(("127.0.0.1" if alone else "", 0), backlog=len(places))
        host = "127.0.0.1" if alone else os.environ.get("MASTER_ADDR") or socket.gethostname()
        self.address: tuple[str, int] = (host, self._server.getsockname()[1])
        self.key = secrets.token_bytes(_KEY_BYTES)
        self._lines: dict[int, Connection] = {}
        self._at: dict[int, tuple[str, int | None]] = {}
        self._heard: dict[int, float] = {}
        self._done: set[int] = set()
        self._dead: list[int] = []
        self._reports: SimpleQueue[tuple[int, int, Any]] = SimpleQueue()
        #: The error to report at this time, unless a better reason arrives before.
        self._suspicion: tuple[float, str] | None = None
        threading.Thread(target=self._listen, daemon=True).start()

    def collect(self, step: int, ranks: Collection[int], state: ProgressState, deadline: float) -> dict[int, Any]:
        """The reports of ranks on a step; a `TimeoutError` if some have not arrived before the deadline."""
        reports: dict[int, Any] = {}
        while missing := [rank for rank in ranks if rank not in reports]:
            with state.wait(f"rank {missing[0]} to report", missing[0]):
                try:
                    rank, number, data = self._reports.get(timeout=max(0.0, deadline - time.monotonic()))
                except Empty:
                    raise TimeoutError from None
            if number == step:
                reports[rank] = data
        return {rank: reports[rank] for rank in sorted(reports)}

    def _listen(self) -> None:
        while len(self._done) < len(self._places):
            sources: list[Any] = [self._server, *self._lines.values()]
            for ready in wait(sources, timeout=_LOOK_S):
                if ready is self._server:
                    self._accept()
                else:
                    self._hear(next(rank for rank, line in self._lines.items() if line is ready))
            if self._suspicion is not None and time.monotonic() > self._suspicion[0]:
                self._end(self._reason())
        self._dismiss({"is": "over"}, _FAREWELL_S)
        self._server.close()
        self._send(0, {"is": "over"})

    def _dismiss(self, message: Mapping[str, object], longest_s: float) -> None:
        """Tell all other ranks that this is the end, also those that connect only now, and wait for them.

        They close their connections when they have received it. If this process ended before that, with unread messages
        from them, the system would discard what was sent to them, and they would consider this rank dead.
        """
        told = {0, *self._dead}
        deadline = time.monotonic() + longest_s
        while True:
            for rank in self._lines.keys() - told:
                self._send(rank, message)
                told.add(rank)
            others = {rank: line for rank, line in self._lines.items() if rank != 0}
            sources: list[Any] = [*others.values(), *([self._server] if len(told) < len(self._places) else [])]
            if not sources or not (ready := wait(sources, timeout=max(0.0, deadline - time.monotonic()))):
                return
            for rank in [rank for rank, line in others.items() if line in ready]:
                try:
                    others[rank].recv_bytes()
                except (EOFError, OSError):
                    self._lines.pop(rank).close()
            if self._server in ready:
                self._accept()

    def _accept(self) -> None:
        line, _ = self._server.accept()
        line.settimeout(_HELLO_S)
        with contextlib.suppress(OSError):
            hello = line.recv(_KEY_BYTES + 4, socket.MSG_WAITALL)
            if hmac.compare_digest(hello[:_KEY_BYTES], self.key):
                line.settimeout(None)
                rank = int.from_bytes(hello[_KEY_BYTES:], "big")
                self._lines[rank], self._heard[rank] = Connection(line.detach()), time.monotonic()
                return
        line.close()

    def _hear(self, rank: int) -> None:
        try:
            message = json.loads(self._lines[rank].recv_bytes())
        except (EOFError, OSError):
            self._bury(rank)
            return
        self._heard[rank] = time.monotonic()
        if message["is"] == "beat":
            self._at[rank] = message["at"], message["for"]
            if rank != 0 and 0 in self._at:
                self._send(rank, {"is": "state", "at": self._at[0][0]})
        elif message["is"] == "report":
            self._reports.put((rank, message["step"], message["data"]))
        elif message["is"] == "done":
            self._done.add(rank)
        else:
            self._judge(rank, message["kind"], message["text"])

    def _bury(self, rank: int) -> None:
        """Record that a rank died; reported after a delay, so that others can say what they were waiting for."""
        self._lines.pop(rank).close()
        self._dead.append(rank)
        self._suspicion = time.monotonic() + _GRACE_S, ""

    def _reason(self) -> str:
        """Which rank is silent, the suspected error, or which rank died."""
        text = self._suspicion and self._suspicion[1]
        return (self._silent() or text) if text else self._last_words()

    def _silent(self) -> str | None:
        """Which rank was stopped or is out of reach: what it said last may be long past."""
        heard = {rank: self._heard[rank] for rank, line in self._lines.items() if not line.poll()}
        rank = longest_silent(heard, now := time.monotonic())
        if rank is None:
            return None
        doing = self._at.get(rank, ("starting", None))[0]
        return f"{who(self._places, rank)} has been silent for {now - heard[rank]:.0f} s; last seen: {doing}"

    def _last_words(self) -> str:
        """The message about the rank that died first, and about one that waits for it."""
        dead = self._dead[0]
        line = died(self._places, dead, self._at.get(dead, ("", None))[0])
        missing = [rank for rank in self._lines if self._at.get(rank, ("", None))[1] == dead]
        return line + "".join(f"; {who(self._places, rank)}: {self._at[rank][0]}" for rank in missing[:1])

    def _judge(self, rank: int, kind: str, text: str) -> None:
        """Decide on the message of a failing rank: end all ranks now, or after a delay."""
        if kind == FAILED:
            self._end(text)
        elif kind == LATE:
            self._end(self._silent() or self._slowest(rank) or text)
        elif kind == ENDED:  # the launcher may end this rank before the delay for a dead rank is over
            self._end(text if self._suspicion is None else self._reason())
        elif self._suspicion is None:
            self._suspicion = time.monotonic() + _GRACE_S, text

    def _slowest(self, rank: int) -> str | None:
        """The busy rank that a rank waits for, directly or through others: it did not finish in time."""
        seen: set[int] = set()
        while rank not in seen:
            seen.add(rank)
            doing, waits_for = self._at.get(rank, ("starting", None))
            if waits_for is None:
                return f"{who(self._places, rank)} did not go on within the time-out: {doing}"
            rank = waits_for
        return None

    def _end(self, line: str) -> Never:
        """Print why, and end all ranks, this process last."""
        print_last(f"Error: {line}")
        self._dismiss({"is": "end"}, _ENDING_S)
        os._exit(1)

    def _send(self, rank: int, message: Mapping[str, object]) -> None:
        with contextlib.suppress(OSError):  # its end is detected by the listening side
            self._lines[rank].send_bytes(json.dumps(message).encode())
