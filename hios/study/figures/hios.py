"""The figures of HIOS, and how much the deviations of the program that its authors released explain of them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import partial

from hios.charts import marks
from hios.formats.partition import GpuPrediction
from hios.platforms.model import descriptions
from hios.schedulers.hios_lp import ValidPaths, map_longest_paths
from hios.study import machine_rows as machines
from hios.study import predicted_rows as predicted
from hios.study import run_rows as runs
from hios.study import simulated_rows as simulated
from hios.study.figure_data import FigureData, PredictedNetwork, ProfiledAlone
from hios.study.published import Comparison, comparisons, number, published_input
from hios.study.reference_networks import worked_example
from hios.study.registry import register
from hios.study.released_program import Deviations
from hios.study.rows import Row, Rows, grouped

# Figure 1: two convolutions beside each other over one after the other.
_AT_ONCE_RATIO = "at once over one after the other"


def fig1_rows(data: FigureData) -> Rows:
    """A row for every image size: two convolutions at once, on a core each, and one after the other on both cores."""
    return machines.size_rows(
        data,
        lambda size: {
            "at once ms": size.at_once_ms,
            "one after the other ms": 2 * size.both_cores_ms,
            _AT_ONCE_RATIO: size.at_once_ms / (2 * size.both_cores_ms),
        },
    )


def fig1_finding(rows: Rows) -> str:
    """The quotient by image size."""
    faster = ", ".join(str(row["image size"]) for row in rows if row[_AT_ONCE_RATIO] < 1) or "none"
    return (
        "Two convolutions at once, on a core each, over one after the other on both cores: "
        f"{machines.listed(rows, _AT_ONCE_RATIO)}; at once is faster at these sizes: {faster}."
    )


register(
    "hios_fig1",
    rows=fig1_rows,
    chart=machines.chart_over_sizes(_AT_ONCE_RATIO, _AT_ONCE_RATIO, "two convolutions"),
    finding=fig1_finding,
)

# Figure 2: transfers over convolutions.
_HAND_OVER_RATIO = "hand-over over convolution"
_HERE = "shared memory"
#: The paper's GPUs and links.
_PREDICTED_LINKS = (("a40", "nvlink"), ("a5500", "nvlink"), ("v100s-pcie", "pcie"))


def fig2_rows(data: FigureData) -> Rows:
    """A row for every image size: a convolution on one core, and handing its output over to another.

    And one for the same size and every pair of GPUs of the paper, predicted.
    """
    measured = machines.size_rows(
        data,
        lambda size: {
            "convolution ms": size.alone_ms,
            "hand-over ms": size.hand_over_ms,
            "output bytes": size.output_bytes,
            _HAND_OVER_RATIO: size.hand_over_ms / size.alone_ms,
            "link": _HERE,
        },
    )
    return measured + [_predicted_transfer(row, *gpus) for gpus in _PREDICTED_LINKS for row in measured]


def _predicted_transfer(row: Row, gpu: str, link: str) -> Row:
    known = descriptions.gpu(gpu)
    between = descriptions.link(link, known)
    convolution = machines.predicted_convolution(row["image size"], row["channels"], known, between)
    return {
        "image size": row["image size"],
        "channels": row["channels"],
        "platform": "model",
        "mark": marks.PREDICTED.name,
        "convolution ms": convolution.alone_ms,
        "hand-over ms": convolution.transfer_ms,
        "output bytes": convolution.output_bytes,
        _HAND_OVER_RATIO: convolution.transfer_ms / convolution.alone_ms,
        "link": f"{known.name}, {between.name}",
    }


def fig2_finding(rows: Rows) -> str:
    """The quotient by image size."""
    texts = {link: machines.listed(own, _HAND_OVER_RATIO) for link, own in grouped(rows, "link").items()}
    here = f"Time to hand over the output of a convolution, relative to the time of the convolution: {texts[_HERE]}."
    return " ".join([here, *(f"Predicted for {link}: {text}." for link, text in texts.items() if link != _HERE)])


def fig2_why(rows: Rows) -> str:
    """What links are here, and what the others rest on."""
    links = dict.fromkeys(row["link"] for row in rows if row["link"] != _HERE)
    errors = " ".join(
        dict.fromkeys(predicted.error_in_words(gpu, descriptions.gpu(gpu).name) for gpu, _ in _PREDICTED_LINKS)
    )
    return (
        f"Here the link is shared memory between two processes; {'; '.join(links)} are predicted from data sheets, "
        f"which no published transfer time validates. {errors}"
    )


register(
    "hios_fig2",
    rows=fig2_rows,
    chart=machines.chart_over_sizes(_HAND_OVER_RATIO, _HAND_OVER_RATIO, "link"),
    finding=fig2_finding,
    explain=fig2_why,
)

# Figure 4: the worked example of Algorithm 1. Its edges are e1 to e9; its times are not in our text of the paper,
# these are ours.
_EDGES = "v1 v2, v1 v3, v2 v4, v3 v5, v4 v6, v5 v6, v5 v7, v6 v8, v7 v8"
_TIMES = {"v1": 2, "v2": 3, "v3": 2, "v4": 3, "v5": 2, "v6": 3, "v7": 2, "v8": 3}
_TRANSFER_MS = 1


def fig4_rows(data: FigureData) -> Rows:
    """A row for every longest valid path: its operators, and the GPU that they are mapped to."""
    problem = worked_example("figure 4", _EDGES, _TIMES, _TRANSFER_MS).on(2)
    plan = map_longest_paths(problem, 2)
    home = {operator: gpu for gpu, row in enumerate(plan.devices, 1) for ((operator,),) in row}
    valid = ValidPaths(problem)
    paths: Rows = []
    while path := valid.longest():
        valid.remove(path)
        names = " ".join(problem.ids[operator] for operator in path)
        paths.append({"path": f"P{len(paths) + 1}", "operators": names, "GPU": home[path[0]]})
    return paths


register(
    "hios_fig4",
    rows=fig4_rows,
    finding=runs.listing("Paths are mapped as follows:", "{path} ({operators}) to GPU {GPU}"),
)

# Figures 7 to 11: the simulation, over one parameter each.


def fig8_numbers(rows: Rows, varied: str, program: str) -> dict[str, dict[str, float]]:
    """Speedups, and what grouping cuts, by the number of operators, by name of the statement."""
    speedups = simulated.speedups(rows, varied, program)
    numbers = {name: speedups[name] for name in ("lp_over_sequential", "lp_over_ios")}
    numbers["lp_over_mr"] = simulated.quotients(rows, varied, "hios-mr", "hios-lp", program)
    numbers["lp_over_inter"] = simulated.quotients(rows, varied, "hios-lp-inter", "hios-lp", program)
    for name, algorithm in (("groups_cut_lp", "hios-lp"), ("groups_cut_mr", "hios-mr")):
        left = simulated.quotients(rows, varied, algorithm, f"{algorithm}-inter", program)
        numbers[name] = {value: 100 * (1 - share) for value, share in left.items()}
    return numbers


def fig10_numbers(rows: Rows, varied: str, program: str) -> dict[str, dict[str, float]]:
    """Latencies by the number of layers, by name of the statement."""
    algorithms = {"sequential": "sequential", "ios": "ios", "mr": "hios-mr", "lp": "hios-lp"}
    return {
        name: simulated.values_of(rows, varied, algorithm, "mean ms", program) for name, algorithm in algorithms.items()
    }


for _figure, _varied, _title, _numbers in (
    ("hios_fig7", "devices", "GPUs", simulated.speedups),
    ("hios_fig8", "operators", "operators", fig8_numbers),
    ("hios_fig9", "edges", "edges", simulated.speedups),
    ("hios_fig10", "layers", "layers", fig10_numbers),
    ("hios_fig11", "p", "transfer time over operator time, p", simulated.speedups),
):
    register(_figure, **simulated.drawing(_figure, _varied, _title, _numbers))

# The ablation: figure 9 with each deviation of the released program alone, and with all but it.
_CASE = "400"
_PUBLISHED_LP, _PUBLISHED_MR = (number(f"hios_fig9.{name}_over_sequential", _CASE) for name in ("lp", "mr"))
_ABLATED = ("hios-lp-inter", "hios-lp", "hios-mr-inter", "hios-mr")


def ablation_rows(data: FigureData) -> Rows:
    """A row for every generator of graphs and set of deviations: speedups over sequential, quotients of means."""
    return [
        {
            "graphs": file.generator.replace("_", " "),
            "deviations": _in_words(variant.deviations),
            "mark": marks.PREDICTED.name,
            "instances": len(file.sequential_ms),
            **{
                name: statistics.mean(file.sequential_ms) / statistics.mean(variant.latency_ms[name])
                for name in _ABLATED
            },
        }
        for file in data.ablations
        for variant in file.variants
    ]


def _in_words(deviations: tuple[str, ...]) -> str:
    """A set of deviations in words."""
    names = Deviations.names()
    if not deviations:
        return "none (the paper)"
    if len(deviations) == len(names):
        return "all (the released program)"
    if len(deviations) == 1:
        return f"only {deviations[0].replace('_', ' ')}"
    return "all but " + ", ".join(name.replace("_", " ") for name in names if name not in deviations)


def ablation_comparisons(rows: Rows) -> list[Comparison]:
    """The paper's equations and the whole released program beside figure 9 at this setting."""
    stated = {"lp_over_sequential": "hios-lp", "mr_over_sequential": "hios-mr"}
    ends = [row for row in rows if row["deviations"] in (_in_words(()), _in_words(tuple(Deviations.names())))]
    return [
        comparison
        for row in ends
        for comparison in comparisons(
            "hios_fig9",
            {name: {_CASE: row[algorithm]} for name, algorithm in stated.items()},
            f"{row['deviations']}, {row['graphs']}",
        )
    ] or comparisons("hios_fig9", dict.fromkeys(stated))


def ablation_why(rows: Rows) -> str:
    """How far one deviation alone leads from the paper's equations, on the program's graphs."""
    speedups = {row["deviations"]: row["hios-lp"] for row in rows if row["graphs"] == "even layers"}
    paper, clock, every = (speedups[_in_words(names)] for names in ((), ("device_clock",), tuple(Deviations.names())))
    return (
        f"On graphs with even layers HIOS-LP is {paper:.2f} times as fast as sequential scheduling by the paper's "
        f"equations, {clock:.2f} times with the clock of a device alone and {every:.2f} times with all deviations; "
        f"published are {_PUBLISHED_LP:g}, and {_PUBLISHED_MR:g} of HIOS-MR."
    )


register("hios_ablation", rows=ablation_rows, compare=ablation_comparisons, explain=ablation_why)

# Figures 12 and 13: measured networks, over the size of their images.
_FIG12_ALGORITHMS = ("sequential", "ios", "hios-lp", "hios-mr")
_FIG13_ALGORITHMS = ("sequential", "ios", "hios-mr-inter", "hios-mr", "hios-lp-inter", "hios-lp")
#: Networks as the statements of figure 12 and the cases of figure 13 name them.
_FIG12_NETWORKS = {"inception": "inception_v3", "nasnet": "nasnet_large"}
_FIG13_NETWORKS = {"inception_v3": "Inception-v3", "nasnet_large": "NASNet"}
#: Height of the images, in pixels, that NASNet has by itself.
_OWN_SIZE = 331


def image_rows(data: FigureData, algorithms: tuple[str, ...], *, engine: bool) -> Rows:
    """A row for every schedule, and for all devices as one engine if that counts, with the size of the images."""
    networks = {**data.networks, **data.variants.get("images", {})}
    own = FigureData(networks=networks)
    latencies = runs.schedule_rows(own, algorithms) + (runs.reference_rows(own, ("engine",)) if engine else [])
    return [
        {"network": row["network"], "image size": runs.image_size(networks[row["network"]]), **row} for row in latencies
    ]


def predicted_image_rows(
    label: str, network: PredictedNetwork, prediction: GpuPrediction, algorithms: tuple[str, ...] = _FIG13_ALGORITHMS
) -> Rows:
    """A row for every schedule of some algorithms that is predicted for the paper's GPUs."""
    return [
        {"network": label, "image size": runs.image_size(network), **row}
        for row in predicted.latency_rows(label, network, prediction)
        if row["algorithm"] in algorithms
    ]


def fig12_comparisons(rows: Rows) -> list[Comparison]:
    """How far HIOS-LP is below the others, in per cent."""
    lp = runs.latencies(rows, "hios-lp")
    numbers: dict[str, dict[str, float]] = {}
    for name, algorithm in (("sequential", "sequential"), ("ios", "ios"), ("mr", "hios-mr")):
        other = runs.latencies(rows, algorithm)
        for short, network in _FIG12_NETWORKS.items():
            labels = [label for label in lp if label in other and label.partition("-")[0] == network]
            numbers[f"{short}_below_{name}"] = {label: 100 * (1 - lp[label] / other[label]) for label in labels}
    return runs.measured_comparisons("hios_fig12", rows, numbers)


def fig12_why(rows: Rows) -> str:
    """The sizes of images that ran, where the paper has several."""
    sizes = dict.fromkeys(f"{row['network']} at {row['image size']} px" for row in rows)
    return f"Only the sizes of the configuration ran: {', '.join(sizes)}."


register(
    "hios_fig12",
    rows=lambda data: image_rows(data, _FIG12_ALGORITHMS, engine=True),
    chart=runs.bar_chart("schedule"),
    compare=fig12_comparisons,
    finding=runs.speedups,
    explain=fig12_why,
    beside=predicted.predictions(rows=partial(predicted_image_rows, algorithms=_FIG12_ALGORITHMS)),
)


def fig13_comparisons(rows: Rows) -> list[Comparison]:
    """What HIOS-LP cuts, over what IOS cuts, and the share of its inter-GPU part; of GPUs alone."""
    times = {name: runs.latencies(rows, name) for name in ("sequential", "ios", "hios-lp-inter", "hios-lp")}
    numbers: dict[str, dict[str, float]] = {
        name: {} for name in ("cut_over_ios", "nasnet_331_over_ios", "inter_part", "nasnet_inter_part")
    }
    for network, in_words in _FIG13_NETWORKS.items():
        for label, size, case in _by_size(rows, network):
            own = {name: latencies[label] for name, latencies in times.items() if label in latencies}
            cut = {name: own["sequential"] - time for name, time in own.items()} if "sequential" in own else {}
            if case and cut.get("ios", 0) > 0 and "hios-lp" in cut:
                numbers["cut_over_ios"][f"{in_words}, {case}"] = cut["hios-lp"] / cut["ios"]
            if cut.get("hios-lp", 0) > 0 and "hios-lp-inter" in cut:
                share = 100 * cut["hios-lp-inter"] / cut["hios-lp"]
                if network == "nasnet_large":
                    numbers["nasnet_inter_part"][label] = share
                elif case:
                    numbers["inter_part"][case] = share
            if (network, size) == ("nasnet_large", _OWN_SIZE) and "hios-lp" in own and own.get("ios"):
                numbers["nasnet_331_over_ios"][label] = 100 * (own["hios-lp"] / own["ios"] - 1)
    return runs.measured_comparisons("hios_fig13", rows, numbers)


def _by_size(rows: Rows, network: str) -> list[tuple[str, int, str]]:
    """Labels of a network by the size of the images; of several, its own and the largest are the paper's cases."""
    sizes: Mapping[str, int] = {
        row["network"]: row["image size"]
        for row in rows
        if row["network"].partition("-")[0] == network and row["image size"]
    }
    ends = {published_input(network)[1]: "small images", max(sizes.values()): "large images"} if sizes else {}
    several = len(set(sizes.values())) > 1
    return [(label, size, ends.get(size, "") if several else "") for label, size in sizes.items()]


register(
    "hios_fig13",
    rows=lambda data: image_rows(data, _FIG13_ALGORITHMS, engine=False),
    chart=runs.bar_chart("schedule"),
    compare=fig13_comparisons,
    finding=runs.speedups,
    explain=lambda rows: runs.gain_of_groups(rows, "hios-lp"),
    beside=predicted.predictions(rows=predicted_image_rows),
)

# Figure 14: time of scheduling, profiling counted.
_SECONDS_PER_MINUTE = 60


def fig14_rows(data: FigureData) -> Rows:
    """A row for every network and algorithm that was profiled alone: seconds, and how much was asked for."""
    return [
        _profiled_row(network, algorithm, entry)
        for network, entries in data.profiles.items()
        for algorithm, entry in entries.items()
    ]


def _profiled_row(network: str, algorithm: str, entry: ProfiledAlone) -> Row:
    costs, summary = entry.costs, entry.costs.profile
    name, _, size = network.rpartition("-")
    return {
        "network": name,
        "image size": int(size),
        "algorithm": algorithm,
        "schedule": f"{size} px, {algorithm}",
        "devices": entry.schedule.devices,
        "platform": costs.platform.name if costs.platform is not None else "",
        "mark": marks.MEASURED.name,
        "stages": len(costs.stages),
        "merges": len(costs.merges),
        "measured": None if summary is None else summary.measured,
        "left out": None if summary is None else summary.modelled,
        "repeats": None if summary is None else summary.repeats,
        "profiling s": None if summary is None else summary.seconds,
        "scheduling s": entry.schedule.scheduling_time_s,
        "minutes": entry.seconds / _SECONDS_PER_MINUTE,
    }


def fig14_comparisons(rows: Rows) -> list[Comparison]:
    """Minutes of HIOS-LP, and how far it is below IOS with the largest images; of GPUs alone."""
    minutes = {(row["network"], row["image size"], row["algorithm"]): row["minutes"] for row in rows}
    of_lp = {
        f"{size} px": time
        for (network, size, algorithm), time in minutes.items()
        if (network, algorithm) == ("inception_v3", "hios-lp")
    }
    largest = max((size for network, size, _ in minutes if network == "nasnet_large"), default=0)
    lp, ios = (minutes.get(("nasnet_large", largest, name)) for name in ("hios-lp", "ios"))
    below = {f"{largest} px": 100 * (1 - lp / ios)} if lp is not None and ios else {}
    return runs.measured_comparisons("hios_fig14", rows, {"inception_minutes": of_lp, "nasnet_below_ios": below})


def fig14_finding(rows: Rows) -> str:
    """Seconds and stages of every algorithm."""
    texts = []
    for (network, size), own in grouped(rows, lambda row: (row["network"], row["image size"])).items():
        times = [
            f"{row['algorithm']} {_SECONDS_PER_MINUTE * row['minutes']:.3g} s for {row['stages']:,} stages"
            for row in own
        ]
        texts.append(f"{network} with {size} px {', '.join(times)}")
    return f"Profiling and scheduling take here: {'; '.join(texts)}."


def fig14_why(rows: Rows) -> str:
    """What is counted, and what was measured of it."""
    parts = [
        f"{row['measured']:,} for {row['algorithm']} on {row['network']} with {row['image size']} px"
        for row in rows
        if row["measured"] is not None
    ]
    left_out = sum(row["left out"] or 0 for row in rows)
    repeats = sorted({row["repeats"] for row in rows if row["repeats"] is not None})
    times = ["once" if count == 1 else f"{count} times" for count in repeats]
    often = f" Each is measured at least {' or '.join(times)}." if repeats else ""
    return (
        "Each algorithm is profiled alone, without cache and budget; for several devices, transfers and simultaneous "
        "work are measured too. Stages are those that the algorithm asks for, for every number of devices up to that "
        "of its schedule; to find them, profiling runs the algorithm until it asks for nothing new, and that time "
        f"counts.{often} Stages with equal signatures share a measurement, which leaves fewer of them: "
        f"{', '.join(parts)}. Stages that were estimated by the model instead: {left_out}."
    )


register(
    "hios_fig14",
    rows=fig14_rows,
    chart=runs.bar_chart("schedule", "minutes", "profiling and scheduling, min"),
    compare=fig14_comparisons,
    finding=fig14_finding,
    explain=fig14_why,
)
