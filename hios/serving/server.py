"""Several models served on the lanes of this machine: requests from any thread, answers as futures.

``HttpServer`` speaks to clients over a network.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from safetensors.torch import save
from torch import Tensor

from hios.errors import HiosError, PlatformError
from hios.files import option_defaults
from hios.kernels.executable import require_executable
from hios.kernels.merged import torch_dtype
from hios.platforms.cpu.devices import all_cores, device_cores
from hios.serving.admission import Admission, Counts, LiveTask
from hios.serving.dispatcher import Dispatcher, Watch
from hios.serving.lane import ENDING_S, FLAGS, LaneEvent, LaneProcess
from hios.serving.lane_worker import Whole
from hios.serving.launcher.live_launcher import LiveLauncher
from hios.serving.launcher.online_launcher import OnlineLauncher, launcher_of
from hios.serving.pipeline import Pipeline, QueueRules
from hios.serving.policies import LEARNED, launched, pipeline_of
from hios.serving.run_programs import RunPrograms
from hios.serving.scenario import Scenario, ServedModel
from hios.serving.simulate import choose
from hios.workers.arena import Arena, Layout, memory_file
from hios.workers.ring import Bell

if TYPE_CHECKING:
    from hios.serving.gpu_lane import GpuLane

#: Policies whose runs are whole tasks, each in one worker.
WHOLE_ON_A_LANE = ("sequential", "one-per-lane", "threads")


class Server:
    """Serves the models of a scenario by a policy.

    Workers, one a lane, hold all models. They end with ``close``, and with the process, whatever ends that.

    Args:
        scenario: models with graphs, costs, weights, queues and lanes.
        policy: one of the policies by name; ``learned`` changes the combined blocks as it goes; ``auto`` is what
            the simulator finds best for the scenario.
        launcher: when tasks leave the queues: open, deadline, fixed, water-filling, or ``auto`` for what the simulator
            finds best; that of the scenario if None.
        weights: tensors by name, by label of the model; those that are not here are read from the scenario's files.
        virtual: whether lanes may share cores where there are fewer.
        timeout_s: longest time of one run; a lane that takes longer is ended, and started again.
        watch: called from the server's own thread.
        whole: in place of hios's operators, what runs the program of every model, where the policy runs whole tasks in
            one worker (`WHOLE_ON_A_LANE`); a function that can be pickled, from the file and the graph.
        gpu: runs everything in place of lanes, in a thread of this process; for costs of a GPU. Of no other server
            at the same time.

    Raises:
        HiosError: a model cannot be run, the policy is unknown or cannot serve the scenario, there are fewer cores than
            lanes, or a worker did not start.

    Examples:
        Several requests at once; the answers are those of the models alone::

            with Server(Scenario.read("scenario.yaml"), "top-open") as server:
                answers = [server.submit("squeezenet", [image]) for image in images]
                outputs = [answer.result() for answer in answers]
    """

    def __init__(
        self,
        scenario: Scenario,
        policy: str = "one-per-lane",
        *,
        launcher: str | None = None,
        weights: Mapping[str, Mapping[str, Tensor]] = MappingProxyType({}),
        virtual: bool = False,
        timeout_s: float = option_defaults.TIMEOUT_S,
        watch: Watch | None = None,
        whole: Whole | None = None,
        gpu: GpuLane | None = None,
    ) -> None:
        if scenario.gpu and gpu is None:
            raise HiosError(
                f"{scenario.source}: found costs of a GPU; allowed to run for real on cores: costs of platform cpu; "
                "hios simulate predicts it, and hios load --platform cuda runs it"
            )
        if gpu is not None and not scenario.gpu:
            raise HiosError(
                f"{scenario.source}: found costs of cores; allowed to run for real on a GPU: costs of platform cuda "
                "or model"
            )
        self._gpu = gpu
        choice = choose(scenario, policy, launcher)
        # What runs is planned without the constants of a calibration, as they are those of plans made so.
        scenario, policy = scenario.plain, choice.policy
        self.scenario, self.policy = scenario, policy
        for model in scenario.models:
            require_executable(model.problem.graph)
            if whole is None and model.label not in weights and model.weights is None:
                raise HiosError(f"{scenario.source}: models.{model.label}.weights: missing; required to run it")
        made, self.cores = _lanes_of(scenario, policy, virtual)
        pipeline, rules = launched(scenario, made, choice.launcher)
        self.pipeline = pipeline
        self._queues = [Admission(model.label, own) for model, own in zip(scenario.models, rules, strict=True)]
        self._numbers = itertools.count(1)
        self._closing = contextlib.ExitStack()
        self._up = threading.Event()
        self._why = ""
        self._launcher: LiveLauncher | None = None
        try:
            online = OnlineLauncher(scenario, launcher_of(scenario)) if policy == LEARNED else None
            later = 0 if online is None else online.most
            self._connect(weights, timeout_s, watch, later, whole)
            self._start()
            if online is not None:
                self._launcher = LiveLauncher(online, self._queues, self._dispatcher.instances, self._change)
                self._launcher.start()
        except BaseException:
            self.close(drain=False)
            raise

    def _connect(
        self,
        weights: Mapping[str, Mapping[str, Tensor]],
        timeout_s: float,
        watch: Watch | None,
        later: int,
        whole: Whole | None,
    ) -> None:
        """Lay out the arena, and make lanes and dispatcher."""
        layout = Layout()
        # Combined blocks that follow may have such runs though the first ones have none.
        threads = bool(self.pipeline.threaded) if later else self.pipeline.has_threads
        workers = [*self.cores, all_cores(self.cores)] if threads else self.cores
        self._waiting_for = set(range(len(workers)))
        self._lanes: list[LaneProcess | GpuLane]
        first_flag = 1 + FLAGS * len(workers)
        programs = RunPrograms(self.scenario, self.pipeline, layout, first_flag, later=later)
        self._programs = programs
        if self._gpu is not None:
            self._lanes = [self._gpu]
        else:
            self._lanes = [
                LaneProcess(number, own, layout, 1 + FLAGS * number, programs.words, shared=number == len(self.cores))
                for number, own in enumerate(workers)
            ]
        arena = Arena(programs.flags, layout.size)
        self.memory_bytes = layout.size
        bell = Bell()
        models = [
            (
                self._closing.enter_context(memory_file(model.problem.graph.to_bytes())),
                str(model.weights or "")
                if model.label not in weights
                else self._closing.enter_context(memory_file(save(dict(weights[model.label])))),
                str(model.program or ""),
            )
            for model in self.scenario.models
        ]
        describe = functools.partial(_mark_text, self.scenario, whole is not None)
        segments = whole is None and self.scenario.file.engine == "segments"
        for lane in self._lanes:
            lane.connect(
                arena,
                bell,
                models,
                programs.of_lane(lane.number),
                programs.slots,
                timeout_s=timeout_s,
                describe=describe,
                whole=whole,
                segments=segments,
            )
        self._dispatcher = Dispatcher(
            self.pipeline,
            programs,
            self._queues,
            self._lanes,
            arena,
            bell,
            timeout_s,
            watch,
            self._event,
        )

    def _start(self) -> None:
        """Start all lanes, and wait until they are ready."""
        self._dispatcher.start()
        for lane in self._lanes:
            lane.start(self._dispatcher.event)
        self._up.wait()
        if self._why:
            raise PlatformError(self._why)

    def _event(self, event: LaneEvent) -> None:
        """Take note of a lane that is used from now on, or not any more; called from the dispatcher's thread."""
        if event.kind == "ready":
            self._waiting_for.discard(event.lane)
        if event.kind == "lost":
            self._why = self._why or event.why
        if self._why or not self._waiting_for:
            self._up.set()

    def _change(self, pipeline: Pipeline, queues: Sequence[QueueRules]) -> None:
        """Go on with other combined blocks and intervals; called from the launcher's thread."""
        first = self._programs.extend(pipeline)
        for lane in self._lanes:
            lane.extend(self._programs.of_lane(lane.number, first))
        self.pipeline = pipeline
        self._dispatcher.change(pipeline, queues)

    def submit(self, model: str, inputs: Sequence[Tensor], *, arrived_s: float | None = None) -> Future[list[Tensor]]:
        """Ask for one inference; returns at once, from any thread.

        Args:
            model: label of the model.
            inputs: a tensor for every input of its graph, in order, of its shape and dtype. They are read when the task
                leaves its queue, and are not to be changed before the answer.
            arrived_s: when the request arrived, by ``time.perf_counter``, from which its deadline counts; now if None.

        Returns:
            The outputs, in the order of the graph. Cancelling it gives the request up, as long as it waits. Its
            exception is `QueueFullError` where the queue was full, `DeadlineError` where the deadline passed, and
            `TaskFailedError` where an operator raised or a lane ended.

        Raises:
            HiosError: an unknown model, other inputs, or a server that is closed.
        """
        if model not in self.scenario.number:
            raise HiosError(f"model: found {model}; allowed: {', '.join(self.scenario.number)}")
        number = self.scenario.number[model]
        _check(self.scenario.models[number], inputs)
        answer: Future[list[Tensor]] = Future()
        now = time.perf_counter()
        arrived = now if arrived_s is None else arrived_s
        self._queues[number].put(LiveTask(number, inputs, answer, arrived, number=next(self._numbers)))
        self._dispatcher.bell.ring()
        return answer

    def infer(self, model: str, inputs: Sequence[Tensor], *, timeout_s: float | None = None) -> list[Tensor]:
        """One inference, waited for; given up after ``timeout_s`` seconds with ``TimeoutError``."""
        answer = self.submit(model, inputs)
        try:
            return answer.result(timeout_s)
        except TimeoutError:
            answer.cancel()
            raise

    @contextlib.contextmanager
    def without_deadlines(self) -> Iterator[None]:
        """Requests that are sent and answered meanwhile do not expire, however long a launcher has them wait."""
        for queue in self._queues:
            queue.patient = True
        try:
            yield
        finally:
            for queue in self._queues:
                queue.patient = False

    @property
    def counts(self) -> dict[str, Counts]:
        """What became of the requests so far, by label."""
        return {queue.label: queue.counts for queue in self._queues}

    @property
    def queued_s(self) -> dict[str, float]:
        """Integral over time of the number of requests in the queue, by label; seconds."""
        return {queue.label: queue.queued_s for queue in self._queues}

    @property
    def busy_s(self) -> float:
        """Time that lanes were busy so far, all together, seconds."""
        # To the dispatcher, the one worker of threads is a lane; it has the cores of all of them.
        lanes = self.scenario.lanes if self.policy == "threads" else 1
        return lanes * self._dispatcher.busy_s

    @property
    def control_s(self) -> float:
        """Processor time of launching, dispatch and results so far, decisions of a launcher included, seconds."""
        return self._dispatcher.control_s + (0.0 if self._launcher is None else self._launcher.used_s)

    @property
    def decisions(self) -> int:
        """Decisions of a learned launcher so far, the first one included; 0 without one."""
        return 0 if self._launcher is None else self._launcher.made

    @property
    def promoted(self) -> int:
        """Runs so far that went first as an instance had waited too long."""
        return self._dispatcher.instances.promoted

    @property
    def block_runs(self) -> int:
        """Blocks that ran so far, an instance each."""
        return self._dispatcher.instances.block_runs

    @property
    def lost(self) -> str:
        """Why nothing can be run any more, or nothing be decided; empty while it can."""
        return self._dispatcher.lost or ("" if self._launcher is None else self._launcher.lost)

    @property
    def process_ids(self) -> list[int]:
        """Process number of the worker of every lane, and of the one for all lanes; 0 while it is started again."""
        return [lane.pid for lane in self._lanes]

    @property
    def streamed(self) -> dict[str, str]:
        """Why runs of a GPU are no CUDA graphs so far, by their models."""
        return {} if self._gpu is None else dict(self._gpu.streamed)

    @property
    def lanes_up(self) -> int:
        """Lanes whose worker is ready."""
        return self._dispatcher.up

    def close(self, *, drain: bool = True) -> None:
        """End the workers.

        Args:
            drain: whether to answer what was asked first; else that fails.
        """
        if self._launcher is not None:
            self._launcher.stop()
        if hasattr(self, "_dispatcher"):
            self._dispatcher.stop(drain=drain)
            for lane in self._lanes:
                lane.stop()
            until = time.monotonic() + ENDING_S
            for lane in self._lanes:
                lane.join(max(0.0, until - time.monotonic()))
        self._closing.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        self.close(drain=kind is None)


def _lanes_of(scenario: Scenario, policy: str, virtual: bool) -> tuple[Pipeline, list[list[int]]]:
    """What a policy makes of a scenario here, and the cores of every lane."""
    if scenario.gpu:
        return pipeline_of(scenario, policy), [[]]
    if policy == "threads":  # one lane that has all cores, and a thread on each inside every operator
        return pipeline_of(scenario, "sequential"), [all_cores(device_cores(scenario.lanes, virtual=virtual))]
    pipeline = pipeline_of(scenario, policy)
    return pipeline, device_cores(pipeline.lanes, virtual=virtual)


def _check(model: ServedModel, inputs: Sequence[Tensor]) -> None:
    for value in inputs:
        if not isinstance(value, Tensor):
            raise HiosError(f"model {model.label}: inputs: found {type(value).__name__}; allowed: tensors of torch")
    given = [(tuple(value.shape), value.dtype, value.device.type) for value in inputs]
    required = [(tuple(entry.shape), torch_dtype(entry.dtype), "cpu") for entry in model.problem.graph.inputs]
    if given != required:
        told = ", ".join(f"{str(dtype).removeprefix('torch.')} {list(shape)}" for shape, dtype, _ in given) or "none"
        allowed = ", ".join(f"{entry.dtype} {list(entry.shape)}" for entry in model.problem.graph.inputs)
        raise HiosError(f"model {model.label}: inputs: found {told}; allowed: {allowed}, on the CPU")


def _mark_text(scenario: Scenario, whole: bool, mark: int) -> str:
    """A mark of a lane in words: the operator that it was at, or the model where that runs as a whole."""
    if not mark:
        return ""
    place = mark - 1
    for model in scenario.models:
        operators = model.problem.graph.operators
        if place < len(operators):
            return f"model {model.label}" if whole else f"operator {operators[place].id} of model {model.label}"
        place -= len(operators)
    return ""
