"""A slow network between hosts: packets arrive after a delay, and every host sends at a limited rate.

``python relay.py SECONDS BITS_A_SECOND HOST...`` forwards the packets of the TAP devices ``eth0`` of network
namespaces until it is ended; `tests.runtime.hosts` starts it. Kernels with netem need no such program.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque
from pathlib import Path

_CLONE_NEWNET, _TUNSETIFF, _TAP_WITHOUT_HEADERS = 0x40000000, 0x400454CA, 0x1002
_MOST_BYTES = 1 << 16


def _tap(host: str) -> int:
    """The device of a host, whose namespace this process enters; the next call leaves it."""
    with Path("/run/netns", host).open("rb") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the network of {host}")
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH14x", b"eth0", _TAP_WITHOUT_HEADERS))
    return tap


def relay(delay_s: float, rate: float, hosts: list[str]) -> None:
    """Forward packets to the host that has their destination, or to all others while it is not known."""
    taps = [_tap(host) for host in hosts]
    os.nice(-20)
    Path("/proc/self/timerslack_ns").write_text("1", encoding="ascii")
    waiting = {tap: deque[tuple[float, bytes]]() for tap in taps}
    sent = dict.fromkeys(taps, 0.0)
    homes: dict[bytes, int] = {}
    sys.stdout.write("forwarding\n")
    sys.stdout.flush()
    while True:
        due = min((queue[0][0] for queue in waiting.values() if queue), default=None)
        left = None if due is None else max(0.0, due - time.monotonic())
        for tap in select.select(taps, [], [], left)[0]:
            packet = os.read(tap, _MOST_BYTES)
            homes[packet[6:12]] = tap
            sent[tap] = max(sent[tap], time.monotonic()) + 8 * len(packet) / rate
            waiting[tap].append((sent[tap] + delay_s, packet))
        for tap, queue in waiting.items():
            while queue and queue[0][0] <= time.monotonic():
                packet = queue.popleft()[1]
                home = homes.get(packet[:6])
                for other in taps if home is None else [home]:
                    if other != tap:
                        os.write(other, packet)


if __name__ == "__main__":
    relay(float(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])
