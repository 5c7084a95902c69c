"""scenario.yaml: several models on one device, with the tasks that arrive for them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from hios import defaults
from hios.formats.base import (
    END,
    MOST_SUB_BLOCKS,
    AboveZero,
    Count,
    DeviceCount,
    NonNegative,
    OrAbsent,
    Positive,
    Record,
    Text,
    doc,
)
from hios.formats.config_file import Label

#: What happens to a task that meets a full queue.
Overflow = Literal["reject", "drop-oldest"]
#: How fast tasks leave the queues.
LauncherKind = Literal["open", "fixed", "water-filling"]


class ModelOfScenario(Record, frozen=True):
    """One model, its tasks and its queue."""

    graph: Annotated[Text, doc("graph.json; paths are relative to the folder of the scenario.")]
    costs: Annotated[Text, doc("costs.json of that graph.")]
    rate: OrAbsent[
        Annotated[
            AboveZero,
            doc("Tasks that arrive in a second on average; required, or share, unless arrivals are a file."),
        ]
    ] = None
    share: OrAbsent[
        Annotated[
            AboveZero,
            doc(
                "In place of rate: the share of the time of all lanes that the operators of its tasks take, one after "
                "another."
            ),
        ]
    ] = None
    weights: OrAbsent[Annotated[Text, doc("weights.safetensors of the graph; needed to run the scenario.")]] = None
    program: OrAbsent[
        Annotated[Text, doc("program.pt2 or program.onnx, the reference for outputs; to run the scenario.")]
    ] = None
    queue: Annotated[Positive, doc("Tasks that may wait in the queue.")] = 256
    overflow: Annotated[
        Overflow, doc("What is dropped where the queue is full: the task that arrives, or the oldest one that waits.")
    ] = "reject"
    deadline_ms: OrAbsent[
        Annotated[
            AboveZero,
            doc("A task that is still in the queue so long after its arrival expires; none does if left out."),
        ]
    ] = None
    slo_ms: OrAbsent[
        Annotated[
            AboveZero,
            doc(
                "Latency from arrival within which a completed task counts as goodput; every completed task does if "
                "left out."
            ),
        ]
    ] = None
    slo_scale: OrAbsent[
        Annotated[
            AboveZero,
            doc("In place of slo_ms: a multiple of the time of the model's operators one after another."),
        ]
    ] = None
    interval_s: OrAbsent[
        Annotated[
            float,
            Meta(gt=0, le=1),
            doc("Seconds between two tasks that leave the queue, with the launcher fixed; 1 / rate if left out."),
        ]
    ] = None

    def __post_init__(self) -> None:
        for key, other in (("rate", "share"), ("slo_ms", "slo_scale")):
            if getattr(self, key) is not None and getattr(self, other) is not None:
                raise ValueError(f"{key}, {other}: found both; allowed: one of them")


class Overheads(Record, frozen=True):
    """What running takes beyond the times of costs.json, in the simulation."""

    task_ms: Annotated[NonNegative, doc("For every task, at its first block; milliseconds.")] = 0.0
    run_ms: Annotated[NonNegative, doc("For every run of a block or combined block; milliseconds.")] = 0.0
    stage_ms: Annotated[NonNegative, doc("For every stage; milliseconds.")] = 0.0
    hand_over_ms: Annotated[
        NonNegative, doc("For every stage that runs on several lanes, as values change lanes there; milliseconds.")
    ] = 0.0


class TopSettings(Record, frozen=True):
    """The pipeline of blocks of the policies top and top-open."""

    combined: Annotated[
        tuple[
            Annotated[
                dict[
                    Label,
                    Annotated[
                        tuple[Annotated[Count, doc("Number of a block, from 0.")], ...],
                        Meta(min_length=1, extra_json_schema={"uniqueItems": True}),
                        doc("Blocks of the model, in the order in which they run."),
                    ],
                ],
                Meta(min_length=1),
                doc("One combined block: blocks of any models, by label."),
            ],
            ...,
        ],
        doc(
            "Combined blocks; every block that none of them holds is a combined block of its own. Without any, "
            "neighboring blocks of a model are combined, as many as most says."
        ),
    ] = ()
    most: OrAbsent[
        Annotated[
            int,
            Meta(ge=1, le=MOST_SUB_BLOCKS),
            doc(
                "Blocks of a combined block where none is stated (H of TOP), 1 to combine nothing; if left out 2 for "
                "top and 1 for top-open."
            ),
        ]
    ] = None
    slots: Annotated[Positive, doc("Instances that may wait before a block.")] = 1
    max_wait_ms: OrAbsent[
        Annotated[
            AboveZero,
            doc(
                "A combined block with an instance that has waited longer goes first; twice the longest combined block "
                "if left out."
            ),
        ]
    ] = None
    weights: Annotated[
        str,
        doc("Launcher that hios train --learn launcher wrote, for the policies learned and learned-static; or none."),
    ] = ""
    stages: Annotated[
        Literal["ios", "gpg"],
        doc(
            "Where the stages of a combined block come from. ios: those of its blocks by IOS side by side, the first "
            "of all, then the second; gpg: GPG chooses them for all its blocks together, as TOP does."
        ),
    ] = "ios"
    stage_policy: Annotated[
        str,
        doc("With stages: gpg, the policy that hios train wrote; without one, nothing was learned. Relative path."),
    ] = ""
    stage_passes: Annotated[
        Positive, doc("With stages: gpg, passes of GPG over a combined block, the best counts; 1: as published.")
    ] = 64
    r: Annotated[Positive, doc("Largest number of operators in a group of a stage.")] = 3
    s: Annotated[Positive, doc("Largest number of groups of a block in a stage.")] = 8

    def __post_init__(self) -> None:
        if self.stage_policy and self.stages != "gpg":
            raise ValueError(
                f"stage_policy: found {self.stage_policy} with stages: {self.stages}; allowed with stages: gpg"
            )
        if any(len(set(blocks)) < len(blocks) for combined in self.combined for blocks in combined.values()):
            raise ValueError("blocks of a combined block differ from each other")


class ScenarioFile(Record, frozen=True):
    """Several models that share one device, and the tasks that arrive for them."""

    models: Annotated[
        dict[Label, ModelOfScenario], Meta(min_length=1), doc("Models by label; at least one. Order means nothing.")
    ]
    arrivals: Annotated[
        str,
        Meta(pattern=rf"^(periodic|poisson|.+\.csv){END}"),
        doc(
            "periodic: a task of each model every 1 / rate seconds, from 0; poisson: at random with these rates; or a "
            "CSV file with the columns time_s,model and a row for each task."
        ),
    ] = "poisson"
    duration_s: Annotated[AboveZero, doc("How long tasks arrive and run; what is left then is counted as such.")] = 60.0
    lanes: Annotated[
        DeviceCount,
        doc("Cores that run operators of any model, each with one worker; 1 where costs are those of a GPU."),
    ] = 2
    seed: Annotated[Count, doc("Seed of the arrivals; the same tasks arrive for every policy.")] = defaults.SEED
    repeats: Annotated[
        Positive, doc("Traces of arrivals, each with a seed of its own; six or more give 95 % intervals.")
    ] = 1
    launcher: Annotated[
        LauncherKind,
        doc(
            "open: tasks leave a queue as soon as there is room; fixed: one every interval_s; water-filling: at rates "
            "that share the device evenly, up to each model's own rate."
        ),
    ] = "open"
    top: TopSettings = field(default_factory=TopSettings)
    overheads: Overheads = field(default_factory=Overheads)
    format_version: Annotated[Literal[1], doc("Version of the format.")] = 1
