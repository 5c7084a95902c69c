"""scenario.yaml: several models on one device, and the tasks that arrive for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, field

from hios.files import option_defaults
from hios.files.base import (
    END,
    MOST_SUB_BLOCKS,
    AboveZero,
    Count,
    DeviceCount,
    EngineKind,
    NonNegative,
    OrAbsent,
    Positive,
    Record,
    Several,
    Text,
    doc,
)
from hios.formats.config import Label

#: What happens to a task that meets a full queue.
Overflow = Literal["reject", "drop-oldest"]
#: What the rates of the models are: tasks per second, or proportions of tasks that together take the whole device.
Rates = Literal["per-second", "of-capacity"]
#: What makes a policy better than another.
Objective = Literal["fair", "throughput", "reward"]
#: No interval of a launcher is shorter: the simulator carries out every tick, also of an empty queue.
LEAST_INTERVAL_S = 1e-4
#: How fast tasks leave the queues.
LauncherKind = Literal["open", "deadline", "fixed", "water-filling", "auto"]


class ModelOfScenario(Record, frozen=True):
    """One model, its tasks and its queue."""

    graph: Text
    """graph.json; paths are relative to the folder of the scenario."""
    costs: Text
    """costs.json of that graph."""
    rate: OrAbsent[AboveZero] = None
    """Mean number of tasks that arrive per second; this or `share` is required, unless arrivals come from a file."""
    share: OrAbsent[AboveZero] = None
    """Instead of `rate`: the share of the time of all lanes that the tasks' operators take, one after another."""
    weights: OrAbsent[Text] = None
    """weights.safetensors of the graph; needed to run the scenario."""
    program: OrAbsent[Text] = None
    """program.pt2 or program.onnx, the reference for outputs; to run the scenario."""
    queue: Positive = 256
    """Tasks that may wait in the queue."""
    overflow: Overflow = "reject"
    """What to drop if the queue is full: the task that arrives, or the oldest one in the queue."""
    deadline_ms: OrAbsent[AboveZero] = None
    """A task that is still in the queue this long after its arrival expires; tasks never expire if left out."""
    slo_ms: OrAbsent[AboveZero] = None
    """Latency since arrival up to which a completed task counts as goodput; all completed tasks do if left out."""
    slo_scale: OrAbsent[AboveZero] = None
    """Instead of `slo_ms`: a multiple of the time of the model's operators, one after another."""
    interval_s: OrAbsent[Annotated[float, Meta(ge=LEAST_INTERVAL_S, le=1)]] = None
    """Launcher fixed: seconds between two tasks that leave the queue; 1 / rate if left out."""

    def __post_init__(self) -> None:
        for key, other in (("rate", "share"), ("slo_ms", "slo_scale")):
            if getattr(self, key) is not None and getattr(self, other) is not None:
                raise ValueError(f"{key}, {other}: found both; allowed: one of them")


class Overheads(Record, frozen=True):
    """Overheads of the simulation, beyond the times of costs.json."""

    task_ms: NonNegative = 0.0
    """Per task, at its first block; milliseconds."""
    run_ms: NonNegative = 0.0
    """Per run of a block or combined block; milliseconds."""
    stage_ms: NonNegative = 0.0
    """Per stage; milliseconds."""
    hand_over_ms: NonNegative = 0.0
    """Per stage that runs on several lanes, as values pass from lane to lane; in schedules over the lanes, per value
    that another lane waits for; milliseconds."""
    threads_run_ms: NonNegative = 0.0
    """Per run of a block with a thread on every lane, beyond the others, as its threads wake up; milliseconds."""


class TopSettings(Record, frozen=True):
    """The pipeline of blocks of the policies top, top-open and shortest-first."""

    combined: tuple[
        Annotated[
            dict[
                Label,
                Annotated[
                    Several[Annotated[Count, doc("Number of a block, from 0.")]],
                    doc("Blocks of the model, in the order in which they run."),
                ],
            ],
            Meta(min_length=1),
            doc("One combined block: blocks of any models, by label."),
        ],
        ...,
    ] = ()
    """Combined blocks; each block that is in none of them is a combined block of its own. If left out, up to `most`
    neighboring blocks of a model are combined."""
    most: OrAbsent[Annotated[int, Meta(ge=1, le=MOST_SUB_BLOCKS)]] = None
    """Number of blocks of a combined block if `combined` is left out (H of TOP); 1 combines nothing. If left out, 2 for
    top and 1 for top-open and shortest-first."""
    block_ms: NonNegative = 0.0
    """Shortest block of the pipeline, in milliseconds of its operators one after another: shorter blocks are joined
    with their neighbors, as every run of a block has overheads. 0: blocks are those of graph.json."""
    threads: bool = True
    """Whether runs of top-open and shortest-first on all lanes have a thread on every lane inside their operators,
    unless groups of operators beside each other are noticeably faster. The costs need `wide_ms` for that; a worker of
    its own runs them, with weights of its own. false: groups only."""
    slots: Annotated[int, Meta(ge=1, le=1024)] = 1
    """Number of instances that may wait for a block."""
    max_wait_ms: OrAbsent[AboveZero] = None
    """A combined block with an instance that has waited longer than this goes first; twice the time of the longest
    combined block if left out, with shortest-first twice the time of the longest model."""
    weights: str = ""
    """Launcher that `hios train --learn launcher` wrote, for the policies learned and learned-static."""
    stages: Literal["ios", "gpg"] = "ios"
    """How the stages of a combined block are found. ios: IOS finds the stages of each block alone; the first stages of
    all blocks run side by side, then the second ones. gpg: GPG chooses the stages of all its blocks together, as TOP
    does."""
    stage_policy: str = ""
    """With `stages: gpg`: policy that `hios train` wrote, a relative path; an untrained policy if left out."""
    stage_passes: Positive = 64
    """With `stages: gpg`: number of passes of GPG over a combined block, of which the best counts; 1 as published."""
    r: Positive = 3
    """Largest number of operators in a group of a stage."""
    s: Positive = 8
    """Largest number of groups in a stage."""

    def __post_init__(self) -> None:
        if self.stage_policy and self.stages != "gpg":
            raise ValueError(
                f"stage_policy: found {self.stage_policy} with stages: {self.stages}; allowed with stages: gpg"
            )
        if any(len(set(blocks)) < len(blocks) for combined in self.combined for blocks in combined.values()):
            raise ValueError("blocks of a combined block differ from each other")


class ScenarioFile(Record, frozen=True):
    """Several models that share one device, and the tasks that arrive for them."""

    models: Annotated[dict[Label, ModelOfScenario], Meta(min_length=1)]
    """Models by label; at least one. Their order has no meaning."""
    arrivals: Annotated[str, Meta(pattern=rf"^(periodic|poisson|.+\.csv){END}")] = "poisson"
    """periodic: a task of each model every 1 / rate seconds, from 0; poisson: at random with these rates; or a CSV file
    with the columns time_s,model and a row for each task."""
    rates: Rates = "per-second"
    """What `rate` of the models means. per-second: tasks per second. of-capacity: only their proportions count, such as
    30, 60 and 120, and together the tasks' operators, one after another, take all time of all lanes, or of the GPU, by
    the costs; with --load 0.8 they take 80 % of it."""
    duration_s: AboveZero = 60.0
    """Seconds for which tasks arrive and run; tasks that are unfinished at the end are counted as waiting or in flight.
    """
    lanes: DeviceCount = 2
    """Number of cores that run operators of any model, each with one worker; 1 if the costs are those of a GPU."""
    seed: Count = option_defaults.SEED
    """Seed of the arrivals; the same tasks arrive under each policy."""
    repeats: Positive = 1
    """Number of traces of arrivals, each with its own seed; six or more give 95 % intervals."""
    launcher: LauncherKind = "open"
    """When tasks leave the queues. open: as soon as there is room before the first block; deadline: as soon as a run
    can take them, the one that is due first (deadline_ms, or else slo_ms) before others; fixed: one every interval_s;
    water-filling: at rates that share the device evenly, up to each model's own rate; auto: whichever of them is best
    on other traces, simulated."""
    objective: Objective = "fair"
    """What `auto` looks for, and what a training keeps. fair: first the worst-served model, by its goodput over the
    smaller of what it offered and its fair share of the device's time, then the next ones, then total goodput weighted
    by work; throughput: tasks within their SLO; reward: utilisation, latency and variance of the queues, as the reward
    (2) of TOP weighs them. Of equals the one with the lowest 99th percentile."""
    engine: EngineKind = "operators"
    """What a lane runs as one call: an operator, or all of a block between two hand-overs in the fastest runtime, as
    measured when the lane starts; to run the scenario on cores. Simulations are by operators."""
    top: TopSettings = field(default_factory=TopSettings)
    overheads: Overheads = field(default_factory=Overheads)
    format_version: Literal[1] = 1
    """Version of the format."""

    @property
    def files(self) -> Iterator[str]:
        """All files that it names, as it names them."""
        if self.arrivals.endswith(".csv"):
            yield self.arrivals
        yield from filter(None, (self.top.weights, self.top.stage_policy))
        for model in self.models.values():
            yield from filter(None, (model.graph, model.costs, model.weights, model.program))

    def __post_init__(self) -> None:
        if self.rates == "per-second":
            return
        if self.arrivals not in ("periodic", "poisson"):
            raise ValueError(f"rates: found {self.rates} with arrivals {self.arrivals}; allowed with periodic, poisson")
        if missing := [label for label, model in self.models.items() if model.rate is None]:
            raise ValueError(f"models.{missing[0]}.rate: missing; required with rates: {self.rates}")
