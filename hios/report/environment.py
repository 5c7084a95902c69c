"""The environment of the results: hardware, load, versions, configuration, commit and command, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from hios import platforms
from hios.errors import ArtifactError
from hios.formats.base import Platform
from hios.formats.run_file import Run
from hios.graph import Graph
from hios.models import RUNTIMES
from hios.report.model_results import ModelResults
from hios.versions import checkout

_UNKNOWN = "not recorded"
#: The longest fact, which is shown last, on a line of its own.
_LAST = "Software"
#: Name of the metadata of a page that says how it was made.
ORIGIN = "hios-origin"
#: Batch, channels, height, width.
_IMAGE_DIMENSIONS = 4


@dataclass(frozen=True, slots=True)
class Provenance:
    """How a page was made, apart from its results; empty where that is not known.

    Attributes:
        command: that wrote the page, as for a shell.
        configuration: of the pipeline, resolved, as YAML.
        origin: how the page was made, as JSON, which it carries along; see `hios.formats.archive_file.PageOrigin`.
    """

    command: str = ""
    configuration: str = ""
    origin: str = ""


#: For pages that were made without the pipeline.
NOT_RECORDED = Provenance()


def read_configuration(path: Path) -> str:
    """The text of a configuration.

    Raises:
        ArtifactError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ArtifactError(f"{path}: cannot be read: found bytes that are not UTF-8; required: YAML") from None


def origin(provenance: Provenance) -> list[tuple[str, str]]:
    """Name and text of every fact on the code and the command that wrote the page."""
    return [
        ("Code", checkout() or "an installed package, no checkout"),
        *([("Command", provenance.command)] if provenance.command else []),
    ]


def facts(models: Sequence[ModelResults]) -> list[tuple[str, str]]:
    """Name and text of every fact; where models differ, the text says which model has which."""
    described = {model.name: _described(model) for model in models}
    named = dict.fromkeys(fact for texts in described.values() for fact in texts)
    return [(fact, _merged(fact, described)) for fact in sorted(named, key=_LAST.__eq__)]


def _described(model: ModelResults) -> dict[str, str]:
    run = model.run
    measured_at = run.measured_at and f"{datetime.fromisoformat(run.measured_at):%Y-%m-%d %H:%M} UTC"
    return {
        "Measured": measured_at or _UNKNOWN,
        "Input": input_text(model.graph),
        **hardware(run.platform),
        "Runs of every competitor": f"{run.runs} measured, after {run.warmup} to warm up",
        "Seed": str(run.seed),
        "Outputs compared with": _check(run),
        _LAST: ", ".join(f"{name} {version}" for name, version in sorted(run.versions.items())) or _UNKNOWN,
    }


def input_text(graph: Graph) -> str:
    """What the network takes; batch and image size for images."""
    inputs = graph.inputs
    if len(inputs) == 1 and len(inputs[0].shape) == _IMAGE_DIMENSIONS:
        batch, channels, height, width = inputs[0].shape
        return f"batch {batch}, {height} x {width} pixels, {channels} channels, {inputs[0].dtype}"
    return ", ".join(f"{entry.dtype} {list(entry.shape)}" for entry in inputs) or _UNKNOWN


def _check(run: Run) -> str:
    checked = RUNTIMES.get(run.checked_against or "", "the sequential schedule")
    allowed = f"allowed {run.tolerance:g} absolute plus relative"
    if run.rounding is not None:
        allowed += f", and {run.rounding:.2g}, which rounding explains"
    if not run.results:
        return f"{checked}; {allowed}"
    largest = max(result.largest_difference for result in run.results)
    return f"{checked}; largest difference {largest:.2g}, {allowed}"


def _merged(fact: str, described: Mapping[str, Mapping[str, str]]) -> str:
    holders: dict[str, list[str]] = {}
    for name, texts in described.items():
        if fact in texts:
            holders.setdefault(texts[fact], []).append(name)
    text, names = next(iter(holders.items()))
    if len(names) == len(described):
        return text
    return "; ".join(f"{text} ({', '.join(names)})" for text, names in holders.items())


def hardware(platform: Platform) -> dict[str, str]:
    """Name and text of every fact of a platform; which facts there are depends on its kind."""
    busy = platform.busy_share
    known = platform.name in platforms.PLATFORMS
    return {
        "Platform": platform.name,
        "Processor": platform.processor or _UNKNOWN,
        "Devices": f"{platform.devices or _UNKNOWN}{', virtual' if is_virtual(platform) else ''}",
        **(platforms.reporting(platform.name).facts(platform) if known else {}),
        **({} if platform.governor is None else {"Frequency governor": platform.governor}),
        "Other work on the cores before": _UNKNOWN if busy is None else f"{busy:.0%} of their time",
        "Load average before": _UNKNOWN if platform.load_average is None else f"{platform.load_average:.2f}",
    }


def predicted_hardware(platform: Platform) -> list[tuple[str, str]]:
    """Name and text of every fact of a platform that predicts."""
    known = platform.name in platforms.PLATFORMS
    facts = platforms.reporting(platform.name).facts(platform) if known else {}
    return [("Platform", f"{platform.name}: predicted, nothing was measured or run"), *facts.items()]


def is_virtual(platform: Platform) -> bool:
    """Whether devices share hardware."""
    return bool(platform.virtual)


def virtual_text(platform: Platform) -> str | None:
    """What to say of devices that share hardware; None where they do not."""
    if not is_virtual(platform):
        return None
    known = platform.name in platforms.PLATFORMS
    shared = platforms.reporting(platform.name).shared(platform) if known else "hardware"
    return f"virtual devices: {platform.devices or 'several'} of them share {shared}, so times say little"
