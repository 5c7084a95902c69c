"""Devices as threads or as processes: what two of them give, and what a hand-over between them takes.

    python benchmarks/threads_or_processes.py [ROUNDS]

A device runs one operator again and again on a core of its own: convolutions as the engine compiles them, and a ReLU
that takes no time worth mentioning. Then it runs a session of ONNX Runtime in the same way, bound to its tensors as a
segment's: networks of many_branches.py, one branch and all of them. Throughput is that of two devices at once over one
alone, 2 at most; both ways and the runs alone take turns. Hand-overs are those of the engine (shared memory and a flag)
between processes, and a queue between threads, which copies nothing. Medians.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

import torch
from many_branches import NETWORKS, Branches
from torch import Tensor, nn

from hios.formats.onnx_session import OnnxSession
from hios.frontends.onnx_export import to_onnx
from hios.kernels.onednn import packed_convolution
from hios.machine.description import busy_share, usable_cores
from hios.platforms.cpu.timing import hand_over
from hios.workers.arena import Arena
from hios.workers.pool import WorkerPool

ROUNDS = 15
#: Channels and pixels a side of the convolutions' image (3 x 3 filters), from milliseconds to microseconds; the ReLU
#: has one pixel.
SIZES = ((192, 35), (128, 17), (64, 14), (32, 8), (8, 4), (8, 1))
#: Networks of many_branches.py that run in sessions.
SESSIONS = ("convolutions-7", "grus", "mlps-32")
#: Seconds that a device works in a round, and from the order to the beginning.
SPAN_S, LEAD_S = 0.1, 0.01
#: Bytes of hand-overs, and how many of each.
BYTES = (1_000, 100_000, 1_000_000, 10_000_000)
HAND_OVERS = 100
#: ONNX files and shapes of their inputs, by name.
Files = Mapping[str, tuple[bytes, tuple[int, ...]]]
#: What runs on a value, and the value.
Work = tuple[Callable[[Tensor], object], Tensor]
_ATTRIBUTES = {"strides": [1, 1], "dilation": [1, 1], "padding": [1, 1, 1, 1], "groups": 1}


class Device:
    """Operators and sessions ready to run on the calling thread and one core."""

    def __init__(self, core: int, files: Files) -> None:
        os.sched_setaffinity(0, {core})  # of this thread alone
        torch.set_num_threads(1)
        self._works: dict[tuple[int, int] | str, Work] = {size: _operator(*size) for size in SIZES}
        self._works |= {name: _session(*file) for name, file in files.items()}

    def rate(self, work: tuple[int, int] | str, begin: float) -> float:
        """How often an operator or session runs in a second, counted from a moment on."""
        run, value = self._works[work]
        with torch.inference_mode():
            while time.perf_counter() < begin:
                run(value)
            began = now = time.perf_counter()
            done = 0
            while now < began + SPAN_S:
                for _ in range(8):
                    run(value)
                done += 8
                now = time.perf_counter()
        return done / (now - began)


def _operator(channels: int, side: int) -> Work:
    if side == 1:
        return torch.relu, torch.randn(1, channels, side, side)
    weight = torch.randn(channels, channels, 3, 3) / (3 * channels**0.5)
    image = torch.randn(1, channels, side, side).to(memory_format=torch.channels_last)
    return packed_convolution(_ATTRIBUTES, weight, None), image


def _session(content: bytes, shape: tuple[int, ...]) -> Work:
    session, value = OnnxSession("a network", content), torch.randn(shape)
    compute = session.bound([value], session(value))
    return lambda _: compute(), value


def _files() -> Files:
    """Networks of many_branches.py: one branch, and all."""
    made = {}
    for name in SESSIONS:
        layers, shape = NETWORKS[name]
        for part, module in (("one branch", nn.Sequential(*layers())), ("all", Branches(layers))):
            made[f"{name}, {part}"] = to_onnx(torch.export.export(module.eval(), (torch.randn(shape),))), shape
    return made


def as_process(core: int, files: Files, pipe: Connection) -> None:
    """A device that is a process."""
    device = Device(core, files)
    with contextlib.suppress(EOFError):  # the other end is gone
        pipe.send(0.0)
        while True:
            pipe.send(device.rate(*pipe.recv()))


def as_thread(core: int, files: Files, orders: SimpleQueue[Any], answers: SimpleQueue[float]) -> None:
    """A device that is a thread."""
    device = Device(core, files)
    answers.put(0.0)
    while True:
        answers.put(device.rate(*orders.get()))


class Devices:
    """Two devices of one kind: each takes an order and gives an answer."""

    def __init__(self, kind: str, cores: list[int], files: Files) -> None:
        self._send: list[Callable[[Any], None]] = []
        self._receive: list[Callable[[], float]] = []
        for core in cores:
            if kind == "processes":
                ours, theirs = multiprocessing.Pipe()
                context = multiprocessing.get_context("spawn")
                context.Process(target=as_process, args=(core, files, theirs), daemon=True).start()
                self._send.append(ours.send)
                self._receive.append(ours.recv)
            else:
                orders: SimpleQueue[Any] = SimpleQueue()
                answers: SimpleQueue[float] = SimpleQueue()
                threading.Thread(target=as_thread, args=(core, files, orders, answers), daemon=True).start()
                self._send.append(orders.put)
                self._receive.append(answers.get)
        for receive in self._receive:
            receive()

    def rates(self, work: tuple[int, int] | str, which: list[int]) -> list[float]:
        """How often something runs in a second on each of the devices that work at once."""
        begin = time.perf_counter() + LEAD_S
        for device in which:
            self._send[device]((work, begin))
        return [self._receive[device]() for device in which]


def compare_throughput(rounds: int, cores: list[int]) -> None:
    """Print a row for each operator and session: microseconds of it alone, and what two devices give over one."""
    files = _files()
    kinds = {kind: Devices(kind, cores, files) for kind in ("threads", "processes")}
    print("            alone    two threads over one    two processes over one")
    works: list[tuple[int, int] | str] = [*SIZES, *files]
    for work in works:
        ratios: dict[str, list[float]] = {kind: [] for kind in kinds}
        alone_us: list[float] = []
        for number in range(rounds):
            for kind, devices in kinds.items():
                (alone,) = devices.rates(work, [number % 2])
                ratios[kind].append(sum(devices.rates(work, [0, 1])) / alone)
                alone_us.append(1e6 / alone)
        row = [statistics.median(ratios[kind]) for kind in ("threads", "processes")]
        label = f"ONNX Runtime, {work}" if isinstance(work, str) else f"{work[0]} channels, {work[1]} px"
        print(f"{statistics.median(alone_us):>14.1f} us {row[0]:>20.2f} {row[1]:>25.2f}    {label}")


def compare_hand_overs(cores: list[int]) -> None:
    """Print the microseconds of one-way hand-overs."""
    with WorkerPool([[core] for core in cores], Arena(8, max(BYTES)), 120.0) as pool:
        both = {"sizes": list(BYTES), "rounds": HAND_OVERS, "epoch": 0}
        times = pool.call_each(hand_over, {0: {"part": "send", **both}, 1: {"part": "receive", **both}})
    taken = {
        size: statistics.median(
            (seen - began) / 1e3 for began, seen in zip(times[0][size], times[1][size], strict=True)
        )
        for size in BYTES
    }
    print("hand-over, processes:", ", ".join(f"{size:,} bytes {us:.1f} us" for size, us in taken.items()))
    print(f"hand-over, threads:   any size {_queue_us(cores):.1f} us")


def _queue_us(cores: list[int]) -> float:
    """Microseconds from putting into a queue to having it on a thread on another core."""
    there: SimpleQueue[int] = SimpleQueue()
    back: SimpleQueue[int] = SimpleQueue()

    def receive() -> None:
        os.sched_setaffinity(0, {cores[1]})
        while True:
            began = there.get()
            back.put(time.perf_counter_ns() - began)

    threading.Thread(target=receive, daemon=True).start()
    taken = []
    for _ in range(HAND_OVERS * 10):
        there.put(time.perf_counter_ns())
        taken.append(back.get())
    return statistics.median(taken) / 1e3


def main() -> None:
    """Print both comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rounds", nargs="?", type=int, default=ROUNDS, metavar="ROUNDS")
    rounds = parser.parse_args().rounds
    cores = usable_cores()[:2]
    if len(cores) < 2:
        sys.exit("threads_or_processes: found one core; required: two")
    print(f"cores {cores}, {busy_share(cores):.0%} busy with other work before; {rounds} rounds")
    compare_throughput(rounds, cores)
    compare_hand_overs(cores)


if __name__ == "__main__":
    main()
