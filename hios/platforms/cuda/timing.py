"""Timing on GPUs, and resources of kernels, inside the one worker that drives them.

The functions are called through the worker pool.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any

import torch

from hios.core.costs import BlockResources
from hios.core.graph import Graph
from hios.platforms.cuda.timed_graphs import (
    Copy,
    ReplayChain,
    Run,
    TimedGpu,
    between,
    bytes_for_copies,
    marks_of,
    run_all,
)
from hios.platforms.occupancy import RESERVED_BYTES, SmRoom
from hios.platforms.timer import Quantity, Stage, Times
from hios.platforms.workloads import Merged, Workload
from hios.workers.worker import Worker

#: Inferences that are timed while devices run them at once.
_INFERENCES = 3
#: Begins the names of the annotations around operators.
ANNOTATION = "hios operator "


def open_gpus(worker: Worker, graph: str, indices: Sequence[int], operators: int) -> list[str]:
    """Prepare the devices; returns the UUID of the GPU of each.

    Virtual devices share a GPU; ``operators`` is how many are measured.
    """
    torch.backends.cudnn.benchmark = True  # as in runs: cuDNN tries its algorithms and takes the fastest
    known = Graph.read(graph)
    free = {index: torch.cuda.mem_get_info(index)[0] for index in set(indices)}
    worker.state["gpus"] = [
        TimedGpu(known, index, bytes_for_copies(free[index], indices.count(index), operators)) for index in indices
    ]
    worker.state["hops"], worker.state["networks"] = {}, {}
    return [str(torch.cuda.get_device_properties(index).uuid) for index in indices]


def load(worker: Worker, operators: Mapping[str, int]) -> None:
    """Prepare copies of operators on every device."""
    for gpu in _gpus(worker):
        for operator, count in operators.items():
            _mark(worker, gpu, operator)
            gpu.load(operator, count)


def load_merges(worker: Worker, merges: Sequence[Sequence[str]]) -> None:
    """Prepare merges of operators on every device, replacing earlier ones."""
    for gpu in _gpus(worker):
        gpu.pairs.clear()
        gpu.merges = [(operators, []) for operators in merges]


def time_rounds(worker: Worker, device: int, quantities: Sequence[Quantity], rounds: int, warmup: int) -> list[Times]:
    """Milliseconds of operators, stages and merges, in every round after the warm-up.

    Chains of operators stay; those of stages and merges last until a call that does not time them.
    """
    gpu = _gpus(worker)[device]
    gpu.pairs = {quantity: gpu.pairs[quantity] for quantity in quantities if quantity in gpu.pairs}
    timed = []
    for quantity in quantities:
        _mark(worker, gpu, _first_operator(gpu, quantity))
        timed.append(_chains(gpu, quantity))
    samples: list[Times] = [[] for _ in quantities]
    for number in range(warmup + rounds):
        for quantity, chains, times in zip(quantities, timed, samples, strict=True):
            _mark(worker, gpu, _first_operator(gpu, quantity))
            elapsed = gpu.times_ms(*chains)
            if number >= warmup:
                times.append(tuple(elapsed))
    return samples


def _first_operator(gpu: TimedGpu, quantity: Quantity) -> str:
    if isinstance(quantity, str):
        return quantity
    return gpu.merges[quantity][0][0] if isinstance(quantity, int) else quantity[0][0]


def _chains(gpu: TimedGpu, quantity: Quantity) -> tuple[ReplayChain, ...]:
    """The chain of an operator; of a stage or merge that of all together and that of its operators in turn."""
    if isinstance(quantity, str):
        if quantity not in gpu.operators:
            nbytes = gpu.load(quantity, 1)[0].nbytes
            make = partial(_runs_of_operator, gpu, quantity)
            gpu.operators[quantity] = gpu.chain(f"operator {quantity}", make, nbytes=nbytes)
        return (gpu.operators[quantity],)
    if quantity not in gpu.pairs:
        if isinstance(quantity, int):
            what = f"a merge of operators {', '.join(gpu.merges[quantity][0])}"
            nbytes = gpu.load_merge(quantity, 1)[0].nbytes
            apart = partial(_runs_of_merge, gpu, quantity, Merged.run_apart)
            together = partial(_runs_of_merge, gpu, quantity, Merged.run_together)
        else:
            what = f"a stage of operators {', '.join(chain(*quantity))}"
            nbytes = sum(gpu.load(operator, 1)[0].nbytes for operator in chain(*quantity))
            apart, together = partial(_runs_apart, gpu, quantity), partial(_runs_beside, gpu, quantity)
        alone = gpu.chain(what, apart, nbytes=nbytes)
        gpu.pairs[quantity] = gpu.chain(what, together, alone.count), alone
    return gpu.pairs[quantity]


def _runs_of_operator(gpu: TimedGpu, operator: str, count: int) -> Run:
    return partial(run_all, _taken(gpu.load(operator, 1, count), count))


def _copies_of_stage(gpu: TimedGpu, stage: Stage, count: int) -> list[list[list[Workload]]]:
    """The groups of a stage for every run of a chain, each with the next copies of its operators."""
    members = list(chain(*stage))
    numbers = {operator: members.count(operator) for operator in members}
    held = {operator: cycle(gpu.load(operator, number, count * number)) for operator, number in numbers.items()}
    return [[[next(held[operator]) for operator in group] for group in stage] for _ in range(count)]


def _runs_beside(gpu: TimedGpu, stage: Stage, count: int) -> Run:
    copies = _copies_of_stage(gpu, stage, count)

    def run() -> None:
        for groups in copies:
            gpu.run_beside(groups)

    return run


def _runs_apart(gpu: TimedGpu, stage: Stage, count: int) -> Run:
    return partial(run_all, [own for groups in _copies_of_stage(gpu, stage, count) for own in chain(*groups)])


def _runs_of_merge(gpu: TimedGpu, number: int, how: Callable[[Merged], None], count: int) -> Run:
    copies = _taken(gpu.load_merge(number, count), count)

    def run() -> None:
        for merged in copies:
            how(merged)

    return run


def time_transfers(worker: Worker, sizes: Sequence[int], rounds: int) -> dict[int, list[float]]:
    """Milliseconds of transfers by size: copies back and forth between the first two devices, in sequence.

    So every copy waits for an event of the other device, like the receiver of a value in a schedule. Virtual devices,
    and a single device, copy within their GPU.
    """
    first, *others = _gpus(worker)[:2]
    second = others[0] if others else first
    hops: dict[int, ReplayChain] = worker.state["hops"]
    for size in sizes:
        if size not in hops:
            what = f"a copy of {size} bytes from {first.device} to {second.device}"
            ends = [torch.ones(size, dtype=torch.uint8, device=gpu.device) for gpu in (first, second)]
            hops[size] = first.chain(what, partial(_hops, first, second, ends))
    samples: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(rounds):
        for size, own in samples.items():
            own.extend(first.times_ms(hops[size]))
    return samples


def _hops(first: TimedGpu, second: TimedGpu, ends: Sequence[torch.Tensor], count: int) -> Run:
    def run() -> None:
        # torch copies on the stream of the source, and has that of the target wait before and after.
        if first.device != second.device:
            second.stream.wait_stream(first.stream)
        with torch.cuda.stream(second.stream), torch.cuda.stream(first.stream):
            for number in range(count):
                ends[(number + 1) % 2].copy_(ends[number % 2], non_blocking=True)
        if first.device != second.device:
            first.stream.wait_stream(second.stream)

    return run


def corun(worker: Worker, device: int, devices: int, network: Sequence[str]) -> float:
    """How many times as long a network takes on a device while the first ``devices`` devices all run it."""
    gpus = _gpus(worker)[:devices]
    networks: dict[int, Run] = worker.state["networks"]
    for number, gpu in enumerate(gpus):
        if number not in networks:
            held = {operator: cycle(gpu.load(operator, network.count(operator))) for operator in network}
            run = partial(run_all, [next(held[operator]) for operator in network])
            networks[number] = gpu.replayed("the network", run)
    (alone,) = _inferences([(gpus[device], networks[device])])
    together = _inferences([(gpu, networks[number]) for number, gpu in enumerate(gpus)])[device]
    return statistics.median(together) / statistics.median(alone)


def _inferences(devices: Sequence[tuple[TimedGpu, Run]]) -> list[list[float]]:
    """Milliseconds of inferences on devices that run at once, with others on each before and after them."""
    marks = [marks_of(_INFERENCES + 1) for _ in devices]
    for step in range(_INFERENCES + 2):
        for (gpu, replay), own in zip(devices, marks, strict=True):
            with gpu.current():
                # The first ones keep a device busy while all others are started.
                for _ in range(len(devices) if step == 0 else 1):
                    replay()
                if step <= _INFERENCES:
                    own[step].record()
    for gpu, _ in devices:
        gpu.stream.synchronize()
    return [between(own) for own in marks]


#: How often each small benchmark of overheads is repeated.
_BENCHMARKS = 30


class _Touch:
    """A kernel that does next to nothing."""

    def __init__(self, gpu: TimedGpu) -> None:
        self._value = torch.ones(1, dtype=torch.uint8, device=gpu.device)

    def run(self) -> None:
        """Launch it."""
        self._value.add_(1)


def overheads(worker: Worker) -> tuple[float, float]:
    """Milliseconds of a synchronization between streams and of a further group of a stage, without the work.

    Chains of a kernel that does next to nothing, alone, on two streams in turn and beside another one, take turns; each
    counts with its median. They are captured in CUDA graphs, as schedules are, and launched on streams if they cannot.
    """
    gpu = _gpus(worker)[0]
    one, other = _Touch(gpu), _Touch(gpu)

    def in_turn() -> None:
        gpu.run_beside([[], [other]])  # the second stream waits for the first one, and the first one for the second
        one.run()

    ways = {"a kernel": one.run, "two streams": in_turn, "a stage": lambda: gpu.run_beside([[one], [other]])}
    chains = [gpu.chain(what, partial(_repeated, run)) for what, run in ways.items()]
    samples = [gpu.times_ms(*chains) for _ in range(_BENCHMARKS)]
    kernel, turns, stage = map(statistics.median, zip(*samples, strict=True))
    return max(0.0, turns / 2 - kernel), max(0.0, stage - kernel)


def _repeated(run: Run, count: int) -> Run:
    def repeat() -> None:
        for _ in range(count):
            run()

    return repeat


#: Registers of an SM since compute capability 5.0, which torch does not state; and the most thread blocks on an SM, by
#: compute capability where it is not 32 (CUDA C++ Programming Guide, technical specifications).
_REGISTERS, _BLOCKS = 64 * 1024, 32
_MOST_BLOCKS = {(7, 5): 16, (8, 6): 16, (8, 7): 16, (8, 9): 24, (12, 0): 24, (12, 1): 24}


def room(worker: Worker) -> tuple[int, SmRoom]:
    """The SMs of a GPU, and what each has for thread blocks."""
    known = torch.cuda.get_device_properties(_gpus(worker)[0].device)
    blocks = _MOST_BLOCKS.get((known.major, known.minor), _BLOCKS)
    threads, shared_bytes = known.max_threads_per_multi_processor, known.shared_memory_per_multiprocessor
    reserved_bytes = RESERVED_BYTES if known.major >= 8 else 0
    return known.multi_processor_count, SmRoom(blocks, threads, _REGISTERS, shared_bytes, reserved_bytes)


def resources(worker: Worker, operators: Sequence[str]) -> dict[str, BlockResources]:
    """Resources of operators on a GPU, from one run of each under torch.profiler."""
    gpu = _gpus(worker)[0]
    workloads = {operator: gpu.load(operator, 1)[0] for operator in operators}
    with gpu.current():
        run_all(workloads.values())  # kernel selection by libraries is not measured
        torch.cuda.synchronize(gpu.device)
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profiler:
            for operator, workload in workloads.items():
                _mark(worker, gpu, operator)
                with torch.profiler.record_function(ANNOTATION + operator):
                    workload.run()
            torch.cuda.synchronize(gpu.device)
    with tempfile.TemporaryDirectory(prefix="hios-") as folder:
        file = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(file))
        return resources_of(json.loads(file.read_text(encoding="utf-8")))


def uncaptured(worker: Worker) -> dict[str, str]:
    """What could not be captured in a CUDA graph so far, and why."""
    return {what: why for gpu in _gpus(worker) for what, why in gpu.uncaptured.items()}


def _taken(held: Sequence[Copy], count: int) -> list[Copy]:
    """The next copies in turn."""
    return list(islice(cycle(held), count))


def _gpus(worker: Worker) -> list[TimedGpu]:
    return worker.state["gpus"]


def _mark(worker: Worker, gpu: TimedGpu, operator: str) -> None:
    """Record the operator for the controller, in case this worker dies or hangs: its index in the graph plus 1."""
    worker.mark(gpu.graph.index[operator] + 1)


def resources_of(trace: Mapping[str, Any]) -> dict[str, BlockResources]:
    """Resources of every annotated operator, as costs.json states them.

    If an operator launches several kernels, the one counts whose blocks take the largest share of what a block can have
    (``BlockResources.share``); ties go to the first. Kernels by which cuDNN changes the order of channels around a
    convolution do not count beside it. An operator that launches no kernel, such as a view, needs none.

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
    kernels = {_correlation(event): event for event in events if event.get("cat") == "kernel"}
    if not kernels:
        return {}
    calls = [event for event in events if event.get("cat") in {"cuda_runtime", "cuda_driver"}]
    demands = {}
    for event in events:
        if event.get("cat") == "user_annotation" and event["name"].startswith(ANNOTATION):
            own = [_correlation(call) for call in calls if _is_within(call, event)]
            name = event["name"].removeprefix(ANNOTATION)
            demands[name] = _most_demanding([kernels[number] for number in own if number in kernels])
    return demands


def _correlation(event: Mapping[str, Any]) -> int:
    return int(event["args"].get("correlation", 0))


def _is_within(call: Mapping[str, Any], annotation: Mapping[str, Any]) -> bool:
    return bool(annotation["ts"] <= call["ts"] <= annotation["ts"] + annotation["dur"])


#: In the names of the kernels by which cuDNN changes the order of channels.
_REORDERING = ("nchwToNhwc", "nhwcToNchw")


def _most_demanding(kernels: Sequence[Mapping[str, Any]]) -> BlockResources:
    """What the kernel with the highest demand asks for."""
    computing = [event for event in kernels if not any(word in event["name"] for word in _REORDERING)]
    asked = [_asked(event["args"]) for event in computing or kernels]
    return max(asked, key=lambda own: own.share, default=BlockResources(0, 0, 1))


def _asked(kernel: Mapping[str, Any]) -> BlockResources:
    """Resources of a block: Kineto has registers per thread, and shared memory per block, static and dynamic."""
    threads = math.prod(kernel["block"])
    occupancy = kernel.get("est. achieved occupancy %")
    return BlockResources(
        kernel["shared memory"],
        kernel["registers per thread"] * threads,
        threads,
        blocks=math.prod(kernel["grid"]),
        occupancy=None if occupancy is None else min(occupancy / 100, 1.0),
    )
