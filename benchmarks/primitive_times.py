"""What oneDNN and ONNX Runtime say about their own time, called in workers by ``one_core.py``."""

from __future__ import annotations

import ctypes
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime
import torch

from hios.platforms.cpu import worker as cpu_worker
from hios.platforms.program import Row
from hios.workers.worker import Worker

#: What an operator of a graph does, by part of the Relax function that it begins with, and a node of ONNX Runtime, by
#: part of its type; the first that fits counts.
_KINDS = {
    "reorder": "layout",
    "conv": "convolution",
    "pool": "pooling",
    "concat": "concatenation",
    "matmul": "matrix product",
    "gemm": "matrix product",
    "add": "addition",
    "sum": "addition",
}


def kind_of(name: str) -> str:
    """What a Relax function, a node of ONNX Runtime or a primitive of oneDNN does."""
    return next((kind for part, kind in _KINDS.items() if part in name.lower()), "other")


def primitive_times(text: str) -> dict[str, float]:
    """Milliseconds of oneDNN's primitives by kind, from what it prints when it is verbose."""
    times: dict[str, float] = defaultdict(float)
    for line in text.splitlines():
        fields = line.split(",")
        if line.startswith("onednn_verbose") and "exec" in fields:
            times[kind_of(fields[fields.index("exec") + 2])] += float(fields[-1])
    return dict(times)


def node_times(events: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Milliseconds of nodes by kind, and ``between`` them, for every inference in a profile of ONNX Runtime."""
    inferences: list[dict[str, float]] = []
    times: dict[str, float] = defaultdict(float)
    # What says how long an inference took ends after its nodes.
    for event in sorted(events, key=lambda event: event["ts"] + event["dur"]):
        if event["name"] == "model_run":
            inferences.append({**times, "between": event["dur"] / 1000 - sum(times.values())})
            times.clear()
        elif event["cat"] == "Node" and event["name"].endswith("_kernel_time"):
            times[kind_of(event["args"]["op_name"])] += event["dur"] / 1000
    return inferences


def time_primitives(worker: Worker, name: str, epoch: int) -> tuple[dict[str, float], list[Row]]:
    """Run a prepared program once; milliseconds of oneDNN's primitives by kind, and the rows of operators."""
    with tempfile.TemporaryFile() as printed:
        before = os.dup(1)
        os.dup2(printed.fileno(), 1)
        try:
            with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
                _, _, rows = cpu_worker.run(worker, name, epoch)
        finally:
            ctypes.CDLL(None).fflush(None)  # oneDNN prints into the buffer of C
            os.dup2(before, 1)
            os.close(before)
        printed.seek(0)
        return primitive_times(printed.read().decode()), rows


def load_onnx(worker: Worker, path: str, values: Sequence[Any]) -> None:
    """Load an ONNX file with one thread.

    Args:
        worker: where it runs.
        path: the file.
        values: arrays for its inputs, in the order of the file.
    """
    session = _session(path, None)
    inputs = {value.name: array for value, array in zip(session.get_inputs(), values, strict=True)}
    worker.state["onnx"] = session, path, inputs


def time_onnx(worker: Worker) -> float:
    """Milliseconds of one inference in ONNX Runtime."""
    session, _, inputs = worker.state["onnx"]
    began = time.perf_counter_ns()
    session.run(None, inputs)
    return (time.perf_counter_ns() - began) / 1e6


def profile_onnx(worker: Worker, runs: int, warmup: int) -> list[dict[str, float]]:
    """What `node_times` says of every run after the warm-up."""
    _, path, inputs = worker.state["onnx"]
    with tempfile.TemporaryDirectory() as folder:
        session = _session(path, str(Path(folder) / "profile"))
        for _ in range(warmup + runs):
            session.run(None, inputs)
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    return node_times(events)[warmup:]


def _session(path: str, profile: str | None) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors
    if profile is not None:
        options.enable_profiling, options.profile_file_prefix = True, profile
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
