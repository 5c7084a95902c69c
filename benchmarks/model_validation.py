"""How well the platform ``model`` predicts latencies that papers print: published, predicted, error.

    python benchmarks/model_validation.py            the table, its median errors, and cross-validation of the fit
    python benchmarks/model_validation.py --write    writes what figures state of it (hios/study/predicted_rows.yaml)
    python benchmarks/model_validation.py --fit      fits the four parameters of hios/platforms/model/roofline.py anew
    python benchmarks/model_validation.py --concurrent   speedups of schedules, see benchmarks/concurrent_validation.py

The networks are those of models/ at the papers' sizes; they are exported and extracted first, half a minute each,
unless ``--graphs`` names a folder that holds NETWORK/graph.json already. Nothing is measured, so the output is the
same everywhere. The published numbers of sequential schedules are:

* IOS on a V100 SXM2 (README of its authors; batches above 1 too),
* LIOS on an RTX 3080: latency (table VII) times speedup over the sequential schedule (section VI-A); SqueezeNet's
  sequential latency is printed (section VI-A),
* Opara on an RTX 2080 Super: the sequential CUDA graph (README of its authors),
* a user's runs of Nimble on an RTX 2080 Super (issue 22 of its repository), a CUDA graph with one stream.

The parameters are fitted to the first three, to all of them at once: one set for all GPUs and networks. So the error on
them is a fit, and what a prediction is worth is what cross-validation says: every GPU, and every network, is predicted
with parameters fitted without any row of it. Nimble's rows are never fitted.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hios import Graph
from hios.files.artifacts import replacing
from hios.platforms.model.descriptions import gpu, link
from hios.platforms.model.kernel_work import Kernel, kernels
from hios.platforms.model.roofline import DEFAULT_EFFICIENCY, GRAPH_LAUNCH_US, STREAM_LAUNCH_US, Efficiency, predict
from hios.study import predicted_rows
from hios.study.machine_rows import predicted_convolution
from hios.study.published import number, published

#: The parameters that are fitted.
FITTED = ("start_us", "step_latency_cycles", "memory_share", "streaming_share")
#: Largest and smallest step of the search, as factors, and how the step shrinks.
_FIRST_STEP, _LAST_STEP, _SHRINK = 1.5, 1.02, 0.5
#: Share of the loss that has to remain for a round to count as no gain.
_LEAST_GAIN = 0.99
#: Median error that is the goal.
GOAL = 0.25


@dataclass(frozen=True, slots=True)
class Row:
    """A published latency of a sequential schedule."""

    paper: str
    gpu: str
    network: str
    batch: int
    launch_us: float
    published_ms: float
    fitted: bool = True


def _rows() -> list[Row]:
    ios = published("ios_fig6")["sequential"].cases
    batches = published("ios_fig11")["sequential"].cases
    speedups = published("lios_fig7")["speedup"].cases
    by_lios = published("lios_tab7")["lios"].cases
    lios = {
        network: by_lios[network] * speedups[network]
        if network in speedups
        else number(f"lios_fig7.{network}_sequential")
        for network in ios
    }
    nimble = {1: "failures_text.nimble_issue_22", 8: "failures_text.nimble_issue_22_batch_8"}
    return [
        *(Row("IOS", "v100-sxm2", network, 1, STREAM_LAUNCH_US, ms) for network, ms in ios.items()),
        *(
            Row("IOS", "v100-sxm2", "inception_v3", int(batch), STREAM_LAUNCH_US, ms)
            for batch, ms in batches.items()
            if batch != "1"  # another run of what the first rows have
        ),
        *(Row("LIOS", "rtx3080", network, 1, STREAM_LAUNCH_US, ms) for network, ms in lios.items()),
        Row("Opara", "rtx2080-super", "googlenet", 1, GRAPH_LAUNCH_US, number("opara_fig5.googlenet", "graph")),
        *(
            Row("Nimble", "rtx2080-super", "inception_v3", batch, GRAPH_LAUNCH_US, number(key, "one stream"), False)
            for batch, key in nimble.items()
        ),
    ]


class Predictor:
    """Sequential latencies of networks whose graphs are in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._graphs: dict[tuple[str, int], Graph] = {}
        self._kernels: dict[tuple[str, int], Counter[Kernel]] = {}

    def latency_ms(self, row: Row, efficiency: Efficiency) -> float:
        """All kernels of a network one after another, as ``predicted_costs`` has them."""
        counted = self._counted(row.network, row.batch)
        description = gpu(row.gpu)
        return (
            sum(
                count * (predict(kernel, description, efficiency).us + row.launch_us)
                for kernel, count in counted.items()
            )
            / 1e3
        )

    def graph(self, network: str, batch: int) -> Graph:
        """The graph of a network for a batch size."""
        if (network, batch) not in self._graphs:
            document = json.loads((self._folder / network / "graph.json").read_text(encoding="utf-8"))
            self._graphs[network, batch] = Graph.from_json(_with_batch(document, batch))
        return self._graphs[network, batch]

    def _counted(self, network: str, batch: int) -> Counter[Kernel]:
        if (network, batch) not in self._kernels:
            self._kernels[network, batch] = Counter(
                kernel for launched in kernels(self.graph(network, batch)).values() for kernel in launched
            )
        return self._kernels[network, batch]


def _with_batch(document: Any, batch: int) -> Any:
    """A graph of images, extracted for one of them, for a batch: the first size of every value."""
    for operator in document["operators"]:
        for shape in (*operator["shapes"]["inputs"], *operator["shapes"]["outputs"]):
            shape[0] *= batch
    for entry in document["inputs"]:
        entry["shape"][0] *= batch
    return document


def errors(predictor: Predictor, rows: Iterable[Row], efficiency: Efficiency) -> list[float]:
    """Predicted over published, less 1."""
    return [predictor.latency_ms(row, efficiency) / row.published_ms - 1 for row in rows]


def fit(predictor: Predictor, rows: Sequence[Row], start: Efficiency = DEFAULT_EFFICIENCY) -> Efficiency:
    """Least squares of the logarithms of predicted over published, by coordinate descent with shrinking steps."""

    def loss(candidate: Efficiency) -> float:
        return sum(math.log1p(error) ** 2 for error in errors(predictor, rows, candidate))

    best, least, step = start, loss(start), _FIRST_STEP
    while step > _LAST_STEP:
        before = least
        for name in FITTED:
            for factor in (step, 1 / step):
                candidate = replace(best, **{name: getattr(best, name) * factor})
                if candidate.memory_share <= 1 and (its_loss := loss(candidate)) < least:
                    best, least = candidate, its_loss
        if least > before * _LEAST_GAIN:
            step = 1 + (step - 1) * _SHRINK
    return best


def held_out(predictor: Predictor, rows: Sequence[Row], key: Callable[[Row], str]) -> dict[Row, float]:
    """Error of every row with parameters fitted to the rows of other keys."""
    error_of: dict[Row, float] = {}
    for group in dict.fromkeys(map(key, rows)):
        own = [row for row in rows if key(row) == group]
        fitted = fit(predictor, [row for row in rows if key(row) != group])
        error_of.update(zip(own, errors(predictor, own, fitted), strict=True))
    return error_of


def extracted(networks: Iterable[str], folder: Path) -> None:
    """Export and extract networks, or NETWORK-PIXELS, that a folder lacks, each into a folder of its own."""
    for network in networks:
        place = folder / network
        if (place / "graph.json").is_file():
            continue
        print(f"extracting {network}", file=sys.stderr)
        place.mkdir(parents=True, exist_ok=True)
        program, weights = place / "program.pt2", place / "weights.safetensors"
        hios = [sys.executable, "-m", "hios"]
        name, _, pixels = network.partition("-")
        size = ["--image-size", pixels] if pixels else []
        for command in (
            [*hios, "export", name, *size, "--output", str(program)],
            [*hios, "extract", str(program), "--output", str(place / "graph.json"), "--weights", str(weights)],
        ):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        program.unlink()
        weights.unlink()


def print_table(predictor: Predictor, rows: Sequence[Row]) -> None:
    """Published, predicted and error, with the errors of cross-validation."""
    fitted = [row for row in rows if row.fitted]
    shipped = dict(zip(rows, errors(predictor, rows, DEFAULT_EFFICIENCY), strict=True))
    without: Mapping[str, Mapping[Row, float]] = {
        "GPU": held_out(predictor, fitted, lambda row: row.gpu),
        "network": held_out(predictor, fitted, lambda row: row.network),
    }
    head = f"{'paper':<7} {'GPU':<14} {'network':<13} {'batch':>5} {'published':>10} {'predicted':>10} {'error':>6}"
    print(f"{head} {'GPU held out':>13} {'network held out':>17}")
    for row in rows:
        predicted = row.published_ms * (1 + shipped[row])
        line = f"{row.paper:<7} {row.gpu:<14} {row.network:<13} {row.batch:>5} {row.published_ms:>7.2f} ms"
        line += f" {predicted:>7.2f} ms {shipped[row]:>+6.0%}"
        if row.fitted:
            line += f" {without['GPU'][row]:>+13.0%} {without['network'][row]:>+17.0%}"
        print(line + ("" if row.fitted else "  never fitted"))
    print()
    named = {
        "all rows": shipped,
        "rows of batch 1": {row: error for row, error in shipped.items() if row.batch == 1},
        "fitted rows": {row: shipped[row] for row in fitted},
        **{f"fitted rows, {what} held out": by_row for what, by_row in without.items()},
    }
    for what, by_row in named.items():
        sizes = [abs(error) for error in by_row.values()]
        verdict = "within" if statistics.median(sizes) <= GOAL else "beyond"
        print(
            f"{what}: median error {statistics.median(sizes):.0%} ({verdict} the goal of {GOAL:.0%}), "
            f"largest {max(sizes):.0%}, {len(sizes)} rows"
        )


def print_claims() -> None:
    """What HIOS states of A40s without numbers, for its convolution: 5x5, stride 1, 48 channels (figures 1 and 2)."""
    print("\nHIOS, figures 1 and 2: a convolution 5x5 of 48 channels, predicted")
    print(f"{'':6} {'convolution':>11} {'u':>5} {'transfer over convolution':>36}")
    print(f"{'pixels':>6} {'A40, ms':>11} {'':>5} {'A40 in TF32':>11} {'A40 in FP32':>12} {'V100S PCIe 3':>13}")
    a40, v100s = gpu("a40"), gpu("v100s-pcie")
    devices = (("nvlink", a40), ("nvlink", replace(a40, tf32_tflops=0.0)), ("pcie", v100s))
    for pixels in (8, 16, 32, 64, 128, 256, 512, 1024):
        found = [predicted_convolution(pixels, 48, known, link(word, known)) for word, known in devices]
        ratios = [entry.transfer_ms / entry.alone_ms for entry in found]
        print(
            f"{pixels:>6} {found[0].alone_ms:>11.3f} {found[0].utilization:>5.2f} "
            f"{ratios[0]:>11.2f} {ratios[1]:>12.2f} {ratios[2]:>13.2f}"
        )
    print("published: two at once gain up to 64 pixels and lose from 128 on; the ratio is largest on V100S and PCIe 3")


def _written(row: Row, predictor: Predictor) -> predicted_rows.ValidationRow:
    """A row as figures read it."""
    predicted_ms = predictor.latency_ms(row, DEFAULT_EFFICIENCY)
    return predicted_rows.ValidationRow(
        row.paper, row.gpu, row.network, row.batch, row.published_ms, predicted_ms, row.fitted
    )


def _write(rows: Iterable[predicted_rows.ValidationRow]) -> None:
    """Write what figures state."""
    lines = [
        "# Written by `python benchmarks/model_validation.py --write`: sequential latencies, published and predicted.\n"
    ]
    lines += [
        f"- {{paper: {row.paper}, gpu: {row.gpu}, network: {row.network}, batch: {row.batch}, "
        f"published_ms: {row.published_ms:.6g}, predicted_ms: {row.predicted_ms:.6g}, "
        f"fitted: {str(row.fitted).lower()}}}\n"
        for row in rows
    ]
    with replacing(predicted_rows.VALIDATION_FILE) as temporary:
        temporary.write_text("".join(lines), encoding="utf-8")


def main() -> None:
    """Print the table, or the fitted parameters."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--graphs", type=Path, help="folder of NETWORK/graph.json; missing ones are extracted into it")
    parser.add_argument("--fit", action="store_true", help="fit the parameters anew and print them")
    parser.add_argument("--concurrent", action="store_true", help="compare speedups of schedules instead of latencies")
    parser.add_argument("--write", action="store_true", help="write the errors that figures of the papers state")
    arguments = parser.parse_args()
    rows = _rows()
    with tempfile.TemporaryDirectory(prefix="hios-") as temporary:
        folder = arguments.graphs or Path(temporary)
        predictor = Predictor(folder)
        if arguments.concurrent:
            import concurrent_validation  # beside this script

            extracted(dict.fromkeys(row.network for row in concurrent_validation.rows()), folder)
            (concurrent_validation.print_fit if arguments.fit else concurrent_validation.print_concurrent)(predictor)
            return
        extracted(dict.fromkeys(row.network for row in rows), folder)
        if arguments.fit:
            best = fit(predictor, [row for row in rows if row.fitted])
            for name in FITTED:
                print(f"{name} = {getattr(best, name):.3g}, in roofline.py {getattr(DEFAULT_EFFICIENCY, name):g}")
            return
        if arguments.write:
            _write(_written(row, predictor) for row in rows)
            return
        print_table(predictor, rows)
        print_claims()


if __name__ == "__main__":
    main()
