"""Whether results of serving are consistent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hios import artifacts
from hios.errors import HiosError
from hios.formats.calibration_file import CalibrationFile
from hios.formats.serving_result_file import ResultFile, ServedResult
from hios.validation import schema_errors
from hios.verify.schema_check import FileRule, contents
from hios.yaml_file import plain, read_yaml

#: Relative difference that is rounding in floating point.
_ROUNDING = 1e-9
#: Share by which the mean of drawn jitter may differ from that of its distribution.
_JITTER = 0.01
#: Folders of the pipeline's results, and whether they are simulated.
_KINDS = {"simulated": True, "measured": False}
#: Files of the pipeline, which hold what their name and folder say.
_NAMED = tuple(f"serving/*/{kind}/*.json" for kind in _KINDS)
_CALIBRATION = "calibration.json"
#: States of tasks at the end.
_ENDS = ("completed", "dropped", "expired", "failed", "waiting", "in_flight")


def scenario_problems(path: Path) -> Iterator[str]:
    """Errors in a scenario that the pipeline wrote."""
    try:
        yield from schema_errors(plain(read_yaml(path), path.name, ()), artifacts.schema("scenario"))
    except HiosError as error:
        yield str(error).removeprefix(f"{path}: ").removeprefix(f"{path.name}: ")


def _result_problems(result: ResultFile, path: Path, root: Path) -> Iterator[str]:
    yield from _contradictions(result)
    if any(path.relative_to(root).match(pattern) for pattern in _NAMED):
        yield from _misplaced(result, path)


def _misplaced(result: ResultFile, path: Path) -> Iterator[str]:
    if path.stem != (name := f"{result.policy}-{result.load:g}"):
        yield f"policy, load: found {name}; allowed: {path.stem}, as the file is called"
    if result.simulated != _KINDS[path.parent.name]:
        yield f"simulated: found {str(result.simulated).lower()} in the folder {path.parent.name}"
    if result.calibrated:
        yield from _miscalibrated(result, path.parents[1] / _CALIBRATION)


def _miscalibrated(result: ResultFile, file: Path) -> Iterator[str]:
    """What the calibration of a scenario cannot have been used for; what is wrong with itself is said elsewhere."""
    if not file.exists():
        yield f"calibrated: found true; allowed: false, as there is no {_CALIBRATION} in the scenario's folder"
    elif (calibration := contents(file, CalibrationFile, [])) is not None:
        if calibration.lanes != result.lanes:
            yield f"lanes: found {result.lanes}; allowed: {calibration.lanes}, as in {_CALIBRATION}"
        if unknown := result.models.keys() - calibration.models.keys():
            yield f"models: found {min(unknown)}; allowed: {', '.join(calibration.models)}, as in {_CALIBRATION}"


def _contradictions(result: ResultFile) -> Iterator[str]:
    for label, served in (
        *((f"models.{label}", served) for label, served in result.models.items()),
        ("total", result.total),
    ):
        yield from _miscounted(label, served)
    for key in ("offered", *_ENDS, "goodput"):
        total = sum(getattr(served, key) for served in result.models.values())
        if (stated := getattr(result.total, key)) != total:
            yield f"total.{key}: found {stated}; allowed: {total}, the sum of the models"
    per_second = result.done_per_s
    if result.calibrated and not result.simulated:
        yield "calibrated: found true with simulated false; allowed: false, as nothing was simulated"
    # Real lanes may be faster than costs.json; the bound of a calibrated simulation counts jitter by its mean.
    if result.simulated and per_second > result.bound_per_s * (1 + (_JITTER if result.calibrated else _ROUNDING)):
        yield f"total.completed: found {per_second:.6g} tasks/s; allowed: at most {result.bound_per_s:.6g}, bound_per_s"
    if (result.chosen is not None) != (result.policy == "auto"):
        yield f"chosen: found {result.chosen} with policy {result.policy}; allowed: with policy auto, and only there"


def _miscounted(label: str, served: ServedResult) -> Iterator[str]:
    ends = sum(getattr(served, key) for key in _ENDS)
    if served.offered != ends:
        yield f"{label}.offered: found {served.offered}; allowed: {ends}, the sum of {', '.join(_ENDS)}"
    if served.goodput > served.completed:
        yield f"{label}.goodput: found {served.goodput}; allowed: at most {served.completed}, as completed"
    known = [value for value in (served.p50_ms, served.p90_ms, served.p99_ms) if value is not None]
    if known != sorted(known):
        yield f"{label}: found percentiles {', '.join(f'{value:g}' for value in known)} ms; allowed: ascending"


#: Every task is counted once, the total is the sum of the models, no more is completed than the work bound allows, and
#: a file of the pipeline holds what its name and folder say. A calibrated one needs the calibration of its models in
#: that folder.
SERVING_FILES = (
    FileRule(
        ResultFile,
        ("**/result.json", "**/serving/*.json", *(f"**/{pattern}" for pattern in _NAMED)),
        _result_problems,
        but=_CALIBRATION,
    ),
    FileRule(CalibrationFile, (f"**/{_CALIBRATION}",)),
)
