"""The figures and tables of IOS."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from hios.charts import marks
from hios.core.blocks import found_blocks
from hios.core.graph import Edge, Graph, Operator
from hios.core.problem import members, reachable
from hios.core.retarget import retarget
from hios.core.schedule import Schedule
from hios.formats.partition import GpuPrediction
from hios.formats.run import ScheduleResult
from hios.schedulers.ios import search_space
from hios.schedulers.nimble import maximum_matching
from hios.study import machine_rows as machines
from hios.study import predicted_rows as predicted
from hios.study import run_rows as runs
from hios.study import stage_rows
from hios.study.figure_data import ExecutedNetwork, FigureData, PredictedNetwork
from hios.study.gpu_predictions import predicted_problem
from hios.study.published import Comparison, comparisons
from hios.study.reference_networks import benchmark
from hios.study.registry import register
from hios.study.rows import Row, Rows, grouped, measured

_MEGA = 1e6
#: Height of the images of NASNet, in pixels.
_NASNET_SIZE = 331


# Figure 1: convolutions become smaller.
def fig1_rows(data: FigureData) -> Rows:
    """A row for every network: its convolutions, and how many operations each has on average.

    An operator may hold several: a separable convolution is two. The graph alone decides, so that networks that did not
    run count too.
    """
    rows: Rows = []
    networks: dict[str, ExecutedNetwork | PredictedNetwork] = {**data.predictions.get("networks", {}), **data.networks}
    for label, network in networks.items():
        holding = [(op.flops or 0, count) for op in network.graph.operators if (count := convolutions_of(op))]
        count = sum(own for _, own in holding)
        mean = sum(flops for flops, _ in holding) / max(count, 1) / _MEGA
        if mean:
            size = runs.image_size(network)
            rows.append({"network": label, "image size": size, "convolutions": count, "MFLOP a convolution": mean})
    return rows


def convolutions_of(operator: Operator) -> int:
    """The convolutions of an operator by its calls; where a graph has none, by its type."""
    if operator.calls:
        return sum(call.function.startswith("relax.nn.conv") for call in operator.calls)
    return int("conv" in operator.type)


def fig1_comparisons(rows: Rows) -> list[Comparison]:
    """Operations of a convolution of NASNet, with images of its own size."""
    sizes = {(row["network"], row["image size"]): row["MFLOP a convolution"] for row in rows}
    found = sizes.get(("nasnet_large", _NASNET_SIZE))
    return comparisons("ios_fig1", {"flops_per_kernel": {} if found is None else {"NASNet": found}})


register(
    "ios_fig1",
    rows=fig1_rows,
    compare=fig1_comparisons,
    finding=runs.listing("Average operations per convolution:", "{MFLOP a convolution:.0f} MFLOP in {network}"),
)

# Figure 2: how much every stage of three schedules computes, and how fast.
register(
    "ios_fig2",
    rows=stage_rows.measured_stages,
    chart=stage_rows.chart,
    compare=stage_rows.sample_comparisons,
    finding=stage_rows.finding,
    beside=predicted.predictions(rows=stage_rows.predicted_stages, chart=stage_rows.chart, words=stage_rows.finding),
)

# Figures 6 and 14: schedules of one device, on this machine and on several.
_ALGORITHMS = ("sequential", "greedy", "ios")
_normalized_bars = runs.bar_chart("schedule", "normalized throughput", "throughput over the best")


def fig6_rows(data: FigureData) -> Rows:
    """A row for every schedule, with its throughput over that of the network's best."""
    modes = {
        (label, result.label): str(result.parameters.get("mode", ""))
        for label, network in data.networks.items()
        for result in network.run.results
    }
    timed = [
        {**row, "mode": modes.get((row["network"], row["schedule"]), "")}
        for row in runs.schedule_rows(data, _ALGORITHMS, devices=1)
    ]
    return runs.with_throughput(timed)


def fig6_comparisons(rows: Rows) -> list[Comparison]:
    """Milliseconds of the schedules."""
    numbers = {name: runs.latencies(rows, name) for name in ("sequential", "greedy")}
    for mode in ("both", "merge", "parallel"):
        numbers[mode] = runs.latencies([row for row in rows if row.get("mode", "both") == mode], "ios")
    named = [
        {**row, "algorithm": row.get("mode", "both") if row["algorithm"] == "ios" else row["algorithm"]} for row in rows
    ]
    numbers["best"] = runs.over_fastest(named, "both", ("sequential", "greedy", "merge", "parallel"))
    numbers["geometric_means"] = runs.geometric_means(numbers)
    return runs.measured_comparisons("ios_fig6", rows, numbers)


def fig6_predicted(label: str, network: PredictedNetwork, prediction: GpuPrediction) -> Rows:
    """The rows of a GPU, with the modes of IOS."""
    rows = runs.with_throughput(predicted.latency_rows(label, network, prediction))
    modes = {name: made.parameters.get("mode", "") for name, made in prediction.schedules.items()}
    return [{**row, "mode": modes[row["schedule"]]} for row in rows]


register(
    "ios_fig6",
    rows=fig6_rows,
    chart=_normalized_bars,
    compare=fig6_comparisons,
    finding=runs.speedups,
    explain=runs.on_cores(runs.one_operator_fills_a_core),
    beside=predicted.predictions(rows=fig6_predicted, chart=_normalized_bars),
)


def fig14_predicted(label: str, network: PredictedNetwork, prediction: GpuPrediction) -> Rows:
    """The rows of the machine that is predicted."""
    rows = runs.with_throughput(predicted.latency_rows(label, network, prediction))
    return [{**row, "machine": predicted.hardware(prediction)} for row in rows]


register(
    "ios_fig14",
    rows=lambda data: machines.machine_rows(
        data, lambda own: runs.with_throughput(runs.schedule_rows(own, _ALGORITHMS, devices=1))
    ),
    chart=lambda rows: machines.panels(rows, "normalized throughput", "throughput over the best"),
    compare=lambda rows: machines.comparisons(
        "ios_fig14", "speedup", rows, lambda own: runs.of_benchmark(runs.latencies(own, "ios", "speedup"))
    ),
    finding=machines.findings(runs.speedups),
    explain=machines.hardware,
    beside=predicted.predictions(rows=fig14_predicted, chart=_normalized_bars, target="ios-rtx2080ti"),
)


# Figures 7 and 15: the sequential schedule, IOS and every framework that ran, on this machine and on several.
def fig7_comparisons(rows: Rows) -> list[Comparison]:
    """Milliseconds by TensorRT, and the speedup of IOS over it; of GPUs alone."""
    times = {name: runs.latencies(rows, name) for name in ("tensorrt", "ios")}
    numbers = {
        "tensorrt": times["tensorrt"],
        "geometric_means": runs.geometric_means(times),
        "speedup": runs.of_benchmark(
            {name: ms / times["ios"][name] for name, ms in times["tensorrt"].items() if name in times["ios"]}
        ),
    }
    return runs.measured_comparisons("ios_fig7", rows, numbers)


register(
    "ios_fig7",
    rows=lambda data: runs.rows_beside_references(data, ("sequential", "ios")),
    chart=runs.bar_chart("schedule"),
    compare=fig7_comparisons,
    finding=runs.speedups,
    explain=lambda rows: runs.stand_ins(rows, "TensorFlow, TASO, TVM and TensorRT"),
)
register(
    "ios_fig15",
    rows=lambda data: machines.machine_rows(
        data, lambda own: runs.with_throughput(runs.rows_beside_references(own, ("sequential", "ios")))
    ),
    chart=lambda rows: machines.panels(rows, "normalized throughput", "throughput over the best"),
    finding=machines.findings(runs.speedups),
    explain=machines.hardware,
)

# Figure 9: pruning of the search. Statements of latency by the label of the network that they are about.
_PRUNED = {"inception_ms": "inception_v3", "nasnet_ms": "nasnet_large"}


def _pruned_rows(label: str, network: ExecutedNetwork) -> Rows:
    """A row for every r and s, measured and predicted, with what the search went through."""
    graph = Graph.of(network.graph)
    results = {result.label: result for result in network.run.results}
    pruned: Rows = []
    for row in runs.schedule_rows(FigureData(networks={label: network}), ("ios",), devices=1):
        result = results[row["schedule"]]
        r, s = (int(result.parameters[name]) for name in ("r", "s"))
        space = search_space(graph, r=r, s=s)
        more: Row = {"r": r, "s": s, "transitions": space.transitions, "search s": result.scheduling_time_s}
        pruned.append({**row, **more, "pruning": f"r{r} s{s}"})
    return pruned


def fig9_comparisons(rows: Rows) -> list[Comparison]:
    """Milliseconds by r and s, and the speedup with r 1 and s 8; of GPUs alone."""
    by_network = grouped(measured(rows), "network")
    numbers = {
        name: {row["pruning"]: row["ms"] for row in by_network.get(label, [])} for name, label in _PRUNED.items()
    }
    quick = {row["network"]: row["speedup"] for row in measured(rows) if row["pruning"] == "r1 s8"}
    return runs.measured_comparisons("ios_fig9", rows, {**numbers, "r1_s8_over_sequential": quick})


def fig9_finding(rows: Rows) -> str:
    """Latency, search and transitions of the tightest and of the widest pruning."""
    texts = []
    for network, own in grouped(measured(rows), "network").items():
        ends = (min(own, key=lambda row: row["transitions"]), max(own, key=lambda row: row["transitions"]))
        parts = [
            f"{row['ms']:.3g} ms ({row['pruning']}: {row['search s']:.2g} s, {row['transitions']:,} transitions)"
            for row in ends
        ]
        texts.append(f"{network} {' and '.join(parts)}")
    return f"With the tightest and the widest pruning: {'; '.join(texts)}."


def fig9_why(rows: Rows) -> str:
    """What the seconds of the search are, and why latencies differ little on cores."""
    seconds = "The search takes its times from costs.json; IOS measures stages in it, so the seconds are not compared."
    return " ".join(filter(None, [seconds, runs.on_cores(runs.one_operator_fills_a_core)(rows)]))


def fig9_predicted(label: str, network: PredictedNetwork, prediction: GpuPrediction) -> Rows:
    """A row for every r and s."""
    given = {name: made.parameters for name, made in prediction.schedules.items()}
    return [
        {
            **row,
            "r": (r := given[row["schedule"]]["r"]),
            "s": (s := given[row["schedule"]]["s"]),
            "pruning": f"r{r} s{s}",
        }
        for row in predicted.latencies_of("ios")(label, network, prediction)
    ]


register(
    "ios_fig9",
    rows=lambda data: [row for label, network in data.pruning.items() for row in _pruned_rows(label, network)],
    chart=runs.bar_chart("pruning"),
    compare=fig9_comparisons,
    finding=fig9_finding,
    explain=fig9_why,
    beside=predicted.predictions(rows=fig9_predicted, chart=runs.bar_chart("pruning"), target="ios-pruning"),
)

# Figure 10: schedules of Inception-v3's last block for the batch sizes that the paper compares.
_BATCHES = (1, 32)


def fig10_rows(data: FigureData) -> Rows:
    """A row for every batch size and every schedule by IOS that ran with it: stages and time of the last block."""
    return [
        _last_block_row(label, network, result, block)
        for label, network in data.variants.get("batches", {}).items()
        if (block := last_block(network))
        for result in network.run.results
        if result.algorithm == "ios"
    ]


def last_block(network: ExecutedNetwork) -> frozenset[str]:
    """The last block of several operators: behind it there may be a pool. Empty where there is none."""
    blocks = network.graph.blocks or found_blocks(Graph.of(network.graph))
    return next((frozenset(block) for block in reversed(blocks) if len(block) > 1), frozenset())


def _last_block_row(label: str, network: ExecutedNetwork, result: ScheduleResult, block: frozenset[str]) -> Row:
    name, batch, made_for = runs.batches_of(label, result.label)
    # The paper draws the concatenation, which follows all branches, outside of the stages.
    joins = {operator.id for operator in network.graph.operators if operator.type == "concat"}
    return {
        "network": name,
        "batch": batch,
        "made for batch": made_for,
        "schedule": f"batch {batch}, schedule for {made_for}",
        "platform": network.run.platform.name,
        "mark": marks.MEASURED.name,
        "operators": len(block),
        "stages": len({row.stage for row in result.predicted if row.operator in block - joins}),
        "block ms": runs.span(result.measured, block),
    }


def _longer(rows: Rows) -> dict[tuple[str, int, int], float]:
    """By how much the block takes longer with the schedule for another batch size than with the own one, in per cent.

    By network, batch size, and the one that the schedule is for.
    """
    times = {(row["network"], row["batch"], row["made for batch"]): row["block ms"] for row in rows}
    return {
        (network, batch, other): 100 * (time / times[network, batch, batch] - 1)
        for (network, batch, other), time in times.items()
        if batch != other and times.get((network, batch, batch))
    }


def fig10_comparisons(rows: Rows) -> list[Comparison]:
    """Stages of the own schedule, and how much faster it is than the other; of GPUs alone, whose times decide both."""
    longer = _longer(rows)
    stages = {
        f"batch {row['batch']}": float(row["stages"])
        for row in rows
        if row["network"] == "inception_v3" and row["batch"] == row["made for batch"] and row["batch"] in _BATCHES
    }
    faster = {
        f"batch {batch}": longer["inception_v3", batch, other]
        for batch, other in (_BATCHES, _BATCHES[::-1])
        if ("inception_v3", batch, other) in longer
    }
    return runs.measured_comparisons("ios_fig10", rows, {"stages": stages, "faster": faster})


def fig10_finding(rows: Rows) -> str:
    """The stages of every network and batch size, and what the schedules for others take longer."""
    own = [row for row in rows if row["batch"] == row["made for batch"]]
    stages = [f"{row['stages']} of {row['network']} with batch {row['batch']}" for row in own]
    changes = [
        f"{change:+.1f} % for {network} with batch {batch} by the schedule for {other}"
        for (network, batch, other), change in _longer(rows).items()
    ]
    compared = (
        f" Its time relative to the schedule made for the same batch size: {', '.join(changes)}." if changes else ""
    )
    return f"Stages of the last block: {', '.join(stages)}.{compared}"


register(
    "ios_fig10",
    rows=fig10_rows,
    chart=runs.bar_chart("schedule", "block ms", "time of the last block, ms"),
    compare=fig10_comparisons,
    finding=fig10_finding,
)

# Figure 11: throughput over batch sizes.
_FIG11_ALGORITHMS = ("sequential", "ios")


def fig11_comparisons(rows: Rows) -> list[Comparison]:
    """Milliseconds by batch size; of GPUs alone."""
    names = (*_FIG11_ALGORITHMS, "tensorrt")
    return runs.measured_comparisons("ios_fig11", rows, {name: runs.by_batch(rows, name) for name in names})


def predicted_batches(label: str, network: PredictedNetwork, prediction: GpuPrediction) -> Rows:
    """A row for every batch size of the sequential schedule and IOS on the GPU of a prediction."""
    return list(map(runs.with_batch, predicted.latencies_of(*_FIG11_ALGORITHMS)(label, network, prediction)))


def fig11_finding(rows: Rows) -> str:
    """What IOS gains with the smallest and with the largest batch."""
    gains = _batch_gains(rows)
    return f"Speedup of IOS over the sequential schedule: {gains}." if gains else ""


def fig11_words(rows: Rows) -> str:
    """The same for every GPU that rows are of."""
    gains = {name: _batch_gains(own) for name, own in grouped(rows, "hardware").items()}
    return " ".join(f"Predicted for {name}: {text}." for name, text in gains.items() if text)


def _batch_gains(rows: Rows) -> str:
    texts = []
    for network, own in grouped(rows, "network").items():
        gains = {row["batch"]: row["speedup"] for row in own if row["algorithm"] == "ios" and row["speedup"]}
        if gains:
            ends = dict.fromkeys((min(gains), max(gains)))
            texts += [f"{network} with batch {batch} {gains[batch]:.2f}" for batch in ends]
    return ", ".join(texts)


register(
    "ios_fig11",
    rows=lambda data: runs.own_batch_rows(data, _FIG11_ALGORITHMS, ("tensorrt",)),
    chart=runs.throughput_chart,
    compare=fig11_comparisons,
    finding=fig11_finding,
    beside=predicted.predictions(
        rows=predicted_batches, chart=runs.throughput_chart, words=fig11_words, target="ios-batches"
    ),
)

# Figure 13: chains reach the bound of the complexity.
_LENGTH = 2


def fig13_rows(data: FigureData) -> Rows:
    """A row for 1, 2 and 3 chains: pairs of a state and an ending, the empty ending too, and the bound."""
    bounds = []
    for chains in (1, 2, 3):
        space = search_space(_chains(chains, _LENGTH))
        # search_space leaves out the empty ending, one for each state, which Lemma 3 counts.
        pairs, bound = space.transitions + space.states, ((_LENGTH + 2) * (_LENGTH + 1) // 2) ** chains
        bounds.append({"chains d": chains, "operators c": _LENGTH, "pairs": pairs, "C(c+2, 2)^d": bound})
    return bounds


def _chains(chains: int, length: int) -> Graph:
    names = [[f"v{chain}_{place}" for place in range(length)] for chain in range(chains)]
    edges = [Edge(one, other) for row in names for one, other in pairwise(row)]
    operators = tuple(Operator(name, "task") for row in names for name in row)
    return Graph("chains", operators, tuple(edges), blocks=(tuple(name for row in names for name in row),))


def fig13_comparisons(rows: Rows) -> list[Comparison]:
    """The count beside the formula."""
    pairs = {f"d {row['chains d']}": float(row["pairs"]) for row in rows}
    return comparisons("ios_fig13", {"transitions": pairs})


register("ios_fig13", rows=fig13_rows, compare=fig13_comparisons)


# Figure 16: speedup of every block.
def fig16_rows(data: FigureData) -> Rows:
    """A row for every block of every network that ran by the sequential schedule and IOS, from measured placements."""
    return [
        _block_row(label, number, network.run.platform.name, marks.MEASURED, before, after)
        for label, network in data.networks.items()
        if (sequential := runs.measured_placements(network.run, "sequential"))
        and (of_ios := runs.measured_placements(network.run, "ios"))
        for number, block in enumerate(network.graph.blocks or ())
        for before, after in [(runs.span(sequential, block), runs.span(of_ios, block))]
    ]


def predicted_blocks(label: str, network: PredictedNetwork, prediction: GpuPrediction) -> Rows:
    """A row for every block by the schedules that are predicted for the paper's GPU."""
    sequential, of_ios = (predicted.first_of(prediction, name) for name in ("sequential", "ios"))
    if sequential is None or of_ios is None:
        return []
    return [
        _block_row(label, number, prediction.platform.name, marks.PREDICTED, before, after)
        for number, block in enumerate(network.graph.blocks or ())
        for before, after in [(runs.span(sequential.placements, block), runs.span(of_ios.placements, block))]
        if after
    ]


def _block_row(network: str, number: int, platform: str, mark: marks.Mark, before: float, after: float) -> Row:
    return {
        "network": network,
        "block": number,
        "platform": platform,
        "mark": mark.name,
        "sequential ms": before,
        "ios ms": after,
        "speedup": before / after,
    }


def fig16_finding(rows: Rows) -> str:
    """The largest speedup of a block."""
    best = max(rows, key=lambda row: float(row["speedup"]))
    place = f"block {best['block']} of {best['network']}"
    return f"The largest speedup of a block, measured, is {best['speedup']:.2f}, of {place}."


def fig16_comparisons(rows: Rows) -> list[Comparison]:
    """The largest speedup of a block of Inception-v3, and that of all its blocks; of GPUs alone."""
    blocks = [row for row in rows if row["network"] == "inception_v3"]
    sequential, of_ios = (sum(row[f"{name} ms"] for row in blocks) for name in ("sequential", "ios"))
    numbers = {"block": max(row["speedup"] for row in blocks), "whole": sequential / of_ios} if blocks else {}
    return runs.measured_comparisons(
        "ios_fig16", rows, {name: runs.of_network(name, numbers) for name in ("block", "whole")}
    )


_block_bars = runs.bar_chart("block", "speedup", "sequential over IOS")
register(
    "ios_fig16",
    rows=fig16_rows,
    chart=_block_bars,
    compare=fig16_comparisons,
    finding=fig16_finding,
    beside=predicted.predictions(rows=predicted_blocks, chart=_block_bars),
)


# Table 1: the search space of the largest block.
def _largest_block(graph: Graph) -> Row:
    """The block of a network with the most transitions, without pruning."""
    spaces = [search_space(graph, block) for block in range(len(graph.blocks))]
    largest = max(range(len(spaces)), key=lambda block: spaces[block].transitions)
    operators, wide = len(graph.blocks[largest]), width(graph, graph.blocks[largest])
    return {
        "network": graph.name,
        "operators": operators,
        "width": wide,
        "bound": _binomial(operators / wide + 2) ** wide,
        "transitions": spaces[largest].transitions,
        "schedules": float(spaces[largest].schedules),
    }


def _binomial(number: float) -> float:
    """Number over two; the paper's formula takes fractions too."""
    return number * (number - 1) / 2


def width(graph: Graph, block: tuple[str, ...]) -> int:
    """The most operators of a block that can run beside each other, by Dilworth's theorem."""
    place = {operator: number for number, operator in enumerate(block)}
    successors: list[list[tuple[int, float]]] = [[] for _ in block]
    for edge in graph.edges:
        if edge.source in place and edge.target in place:
            successors[place[edge.source]].append((place[edge.target], 0.0))
    last_first = [place[name] for number in graph.order[::-1] if (name := graph.operators[number].id) in place]
    matched = maximum_matching([members(below) for below in reachable(last_first, successors)], len(block))
    return len(block) - sum(partner >= 0 for partner in matched)


register(
    "ios_tab1",
    rows=lambda data: list(map(_largest_block, benchmark())),
    compare=lambda rows: runs.columns_compared("ios_tab1", rows, ("width", "bound", "transitions", "schedules")),
)

# Table 2: the networks.
register(
    "ios_tab2",
    rows=lambda data: runs.size_rows(benchmark()),
    compare=lambda rows: runs.columns_compared("ios_tab2", rows),
    explain=runs.listing(
        "hios makes a block of every layer that stands alone, so it counts",
        "{blocks} of {network}",
        end="; operators are the same.",
    ),
)


# Table 3: schedules of other batch sizes and other GPUs.
def tab3_rows(data: FigureData) -> Rows:
    """A row for every batch size, batch size that a schedule by IOS was made for, and mark; and those of devices."""
    return runs.batch_rows(data, ("ios",)) + machines.device_rows(data)


def _named(row: Row) -> Row:
    """A predicted row of a batch size, whose schedule names it and the one that it was made for."""
    row = runs.with_batch(row)
    return {**row, "schedule": f"batch {row['batch']}, schedule for {row['made for batch']}"}


def tab3_predicted(label: str, network: PredictedNetwork, prediction: GpuPrediction) -> Rows:
    """A row for the schedule by IOS that was made for the batch size."""
    return list(map(_named, predicted.latencies_of("ios")(label, network, prediction)))


def tab3_retargeted(label: str, networks: Mapping[str, PredictedNetwork], prediction: GpuPrediction) -> Rows:
    """A row for every schedule by IOS that was made for another batch size, under the costs of this one."""
    problem = predicted_problem(Graph.of(networks[label].graph), prediction.target)
    name, own, _ = runs.batches_of(label, "")
    rows = []
    for other_label, other in networks.items():
        other_name, batch, _ = runs.batches_of(other_label, "")
        made = next((entry for entry in other.file.predictions if entry.target == prediction.target), None)
        found = None if made is None else predicted.first_of(made, "ios")
        if found is not None and other_name == name and batch != own:
            moved = retarget(Schedule.of(found, other_label), Graph.of(other.graph), problem)
            row = predicted.prediction_row(label, f"ios-for-b{batch}", "ios", 1)
            rows.append(_named({**row, "ms": moved.latency_ms}))
    return rows


def _of_batches(rows: Rows) -> Rows:
    return [row for row in rows if "made on" not in row]


def _of_devices(rows: Rows) -> Rows:
    return [row for row in rows if "made on" in row]


def tab3_comparisons(rows: Rows) -> list[Comparison]:
    """Milliseconds by what the schedule was made for; of GPUs alone."""
    own = [row for row in measured(_of_batches(rows)) if row["network"] == "inception_v3"]
    numbers = {
        f"batch_{batch}": {f"for {row['made for batch']}": row["ms"] for row in own if row["batch"] == batch}
        for batch in (1, 32, 128)
    }
    return runs.measured_comparisons("ios_tab3", _of_batches(rows), numbers)


def tab3_finding(rows: Rows) -> str:
    """By how much schedules for other batch sizes, and of other machines, are longer than the own one."""
    changes = _changes(measured(_of_batches(rows)))
    of_batches = f"Latency relative to the schedule made for the same batch size: {changes}." if changes else ""
    return " ".join(filter(None, [of_batches, machines.specialization(_of_devices(rows))]))


def tab3_words(rows: Rows) -> str:
    """The same of batch sizes for every GPU that rows are of."""
    changes = {name: _changes(own) for name, own in grouped(rows, "hardware").items()}
    return " ".join(
        f"Predicted for {name}, relative to the schedule made for the same batch size: {text}."
        for name, text in changes.items()
        if text
    )


def _changes(timed: Rows) -> str:
    own = {(row["network"], row["batch"]): row["ms"] for row in timed if row["made for batch"] == row["batch"]}
    texts = [
        f"{row['network']} with batch {row['batch']} by the schedule for {row['made for batch']} {100 * change:+.1f} %"
        for row in timed
        if row["made for batch"] != row["batch"] and (row["network"], row["batch"]) in own
        for change in [row["ms"] / own[row["network"], row["batch"]] - 1]
    ]
    return ", ".join(texts)


def tab3_why(rows: Rows) -> str:
    """How other devices come in."""
    if not _of_devices(rows):
        return "Schedules of other machines are compared where `study: archives:` names archives of their runs."
    return (
        "Schedules of other machines did not run here: their times follow from the costs that were measured on each "
        "machine (hios retarget and hios execute run them)."
    )


register(
    "ios_tab3",
    rows=tab3_rows,
    compare=tab3_comparisons,
    finding=tab3_finding,
    explain=tab3_why,
    beside=predicted.predictions(rows=tab3_predicted, across=tab3_retargeted, words=tab3_words, target="ios-batches"),
)
