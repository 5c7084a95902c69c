"""GPU resources of the kernels of operators, from a trace of torch.profiler."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from hios.costs import Resources
from hios.formats.costs_file import BlockResources

#: Begins the names of the annotations around operators.
ANNOTATION = "hios operator "


def resources_of(trace: Mapping[str, Any]) -> dict[str, BlockResources]:
    """Resources of every annotated operator, as costs.json states them.

    If an operator launches several kernels, the one counts whose blocks take the largest share of what a block can have
    (``Resources.share``); ties go to the first. An operator that launches no kernel, such as a view, needs nothing.

    Args:
        trace: what ``torch.profiler.profile.export_chrome_trace`` writes. An operator is an annotation
            (``torch.profiler.record_function``) named `ANNOTATION` and its id; its kernels are those of the calls to
            CUDA within; nothing else may call CUDA meanwhile. Keys of kernels are those of Kineto, on which
            torch.profiler rests (libkineto/src/CuptiActivity.cpp, ``metadataJson`` of kernels;
            torch/autograd/profiler_util.py of torch 2.13, ``_EVENT_METADATA_KEYS``, reads the same).

    Returns:
        Nothing if no kernel was recorded at all, because CUPTI, NVIDIA's tracing library, may not be used.
    """
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    kernels = {_correlation(event): event["args"] for event in events if event.get("cat") == "kernel"}
    if not kernels:
        return {}
    calls = [event for event in events if event.get("cat") in {"cuda_runtime", "cuda_driver"}]
    demands = {}
    for event in events:
        if event.get("cat") == "user_annotation" and event["name"].startswith(ANNOTATION):
            own = [_correlation(call) for call in calls if _is_within(call, event)]
            name = event["name"].removeprefix(ANNOTATION)
            demands[name] = _most_demanding(kernels[number] for number in own if number in kernels)
    return demands


def _correlation(event: Mapping[str, Any]) -> int:
    return int(event["args"].get("correlation", 0))


def _is_within(call: Mapping[str, Any], annotation: Mapping[str, Any]) -> bool:
    return bool(annotation["ts"] <= call["ts"] <= annotation["ts"] + annotation["dur"])


def _most_demanding(kernels: Iterable[Mapping[str, Any]]) -> BlockResources:
    """The kernel with the highest demand, with its resources."""
    asked = [(_asked(kernel), kernel) for kernel in kernels]
    if not asked:
        return BlockResources(0, 0, 1)
    resources, kernel = max(asked, key=lambda pair: pair[0].share)
    occupancy = kernel.get("est. achieved occupancy %")
    return BlockResources(
        resources.shared_memory_bytes,
        resources.registers,
        resources.threads,
        blocks=math.prod(kernel["grid"]),
        occupancy=None if occupancy is None else min(occupancy / 100, 1.0),
    )


def _asked(kernel: Mapping[str, Any]) -> Resources:
    """Resources of a block: Kineto has registers per thread, and shared memory per block, static and dynamic."""
    threads = math.prod(kernel["block"])
    return Resources(kernel["shared memory"], kernel["registers per thread"] * threads, threads)
