"""Experiments of TOP by hand, for its figures."""

from __future__ import annotations

from pathlib import Path

import msgspec

from hios.files import artifacts
from hios.formats.study import (
    BATCH_THAT_FITS,
    COPIES_THAT_FIT,
    CURVE,
    DP,
    GPG,
    GPG_ONE_PASS,
    GPG_STEP,
    JAIN,
    LAST_ENDING,
    LAUNCHER_STEP,
    OF_MODEL,
    TRAINED,
    VARIANCE,
    Experiment,
    TopPoint,
    TopStudyFile,
)


def _throughput(
    column: str, systems: tuple[str, ...], more: dict[str, float] | None = None, *, saturates: int = 4
) -> list[TopPoint]:
    """Throughput that grows with what is varied and saturates, of a model and of two."""
    return [
        TopPoint(
            scenario,
            models,
            system,
            float(x),
            {column: 100.0 * min(x, saturates) * (1 + place), **(more or {}), **_of_models(10.0 * x + place)},
        )
        for scenario, models in (("alone", 1), ("mix", 2))
        for place, system in enumerate(systems)
        for x in (1, 2, 4, 8, *(() if saturates < 8 else (saturates, 2 * saturates, 4 * saturates)))
    ]


def _of_models(rate: float) -> dict[str, float]:
    return {f"{OF_MODEL}a": rate, f"{OF_MODEL}b": 2 * rate, JAIN: 0.9, VARIANCE: rate}


def _curve(column: str, values: tuple[float, ...]) -> list[TopPoint]:
    return [TopPoint("mix", 2, CURVE, 3000.0 * step, {column: value}) for step, value in enumerate(values)]


def points() -> dict[Experiment, list[TopPoint]]:
    """Points of every experiment."""
    searched = [
        TopPoint("mix", 2, way, float(size), {"latency over sequential": 0.8, "search ms": took * 10.0**size})
        for way, took in ((DP, 5.0), (GPG, 1.0), (GPG_ONE_PASS, 0.1), (LAST_ENDING, 0.05))
        for size in (1, 2)
    ]
    gpg_step = TopPoint("mix", 2, GPG_STEP, 9000.0, {"endings ms": 6.0, "update ms": 2.0})
    launcher_step = {"decision ms": 1.0, "stages ms": 12.0, "execution ms": 3.0, "update ms": 4.0, "inference ms": 0.5}
    ends = [TopPoint("mix", 2, name, 9000.0, {"goodput per s": value}) for name, value in (("ios", 3.0), ("top", 4.0))]
    stages = {"stages of a combined block": 3.0, "groups of a stage": 2.0}
    return {
        "sizes": [
            msgspec.structs.replace(point, values=point.values | {TRAINED: 2.0 * point.x})
            for point in _throughput("tasks per s", ("top",))
        ],
        "copies": [
            point
            for point in _throughput("tasks per s", ("sequential", "top"), {COPIES_THAT_FIT: 300.0})
            if point.models == 1
        ],
        "together": [
            TopPoint("mix", 2, system, 2.0, {"synchronous tasks per s": value, **_of_models(value)})
            for system, value in (("sequential", 10.0), ("ios", 11.0), ("pos-strict", 12.0), ("top", 15.0))
        ],
        "batches": _throughput(
            "inputs per s",
            ("sequential", "ios", "top"),
            {"filled %": 60.0, BATCH_THAT_FITS: 500.0, **stages},
            saturates=64,
        ),
        "stages": [TopPoint("mix", 2, gpu, tflops, stages) for gpu, tflops in (("small", 5.0), ("large", 20.0))],
        "gpg": _curve("latency over sequential", (0.9, 0.8, 0.7, 0.7)) + searched + [gpg_step],
        "launcher": [
            *_curve("goodput per s", (1.0, 3.0, 4.0, 4.0)),
            TopPoint("mix", 2, LAUNCHER_STEP, 9000.0, launcher_step),
            *ends,
        ],
    }


def write_experiments(folder: Path) -> dict[str, list[Path]]:
    """Write every experiment as the pipeline does; the file of each by its session."""
    paths = {}
    for name, made in points().items():
        path = folder / "study" / "top" / f"{name}.json"
        artifacts.write(path, "top-study", TopStudyFile(name, "gpu", tuple(made), 1.0, "a100-pcie-40gb"))
        paths[f"top/{name}"] = [path]
    return paths
