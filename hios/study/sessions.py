"""What the configuration says about the sessions of figures: settings, files, and networks in addition to its own.

Networks of the study - other sizes, transformers - are networks of the pipeline, each in a folder of its own,
study/SESSION/NAME, with the algorithms that the figures of the session compare. Names are those of files in
``models/``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from hios.errors import HiosError
from hios.formats.config import AUTO_DEVICES, SERIES, Config, ModelEntry, SimulationStudy, Study
from hios.formats.study import Setting
from hios.pipeline import config
from hios.schedulers import find
from hios.serving import jobs as serving_jobs
from hios.study import registry
from hios.study.random_graphs import GENERATORS
from hios.study.registry import Figure

#: Default number of instances of every setting; the paper has 30.
INSTANCES = {"quick": 3, "full": 30}
#: Sizes of images of convolutions, in pixels: those of HIOS figure 1, the largest of which take minutes on cores.
CONVOLUTION_SIZES = {"quick": (8, 16, 32, 64, 128, 256), "full": (8, 16, 32, 64, 128, 256, 512, 1024)}
#: Where archives of other machines are kept, within the results.
ARCHIVES = "study/archives"
#: Algorithms by session, as labels of schedules: each with its defaults.
VARIANT_ALGORITHMS = {
    "images": ("sequential", "ios", "hios-mr-inter", "hios-mr", "hios-lp-inter", "hios-lp"),
    "batches": ("sequential", "ios", "opara"),
    "transformers": ("sequential", "nimble", "opara"),
}
#: Algorithms for each of which networks of the session images are also profiled separately (HIOS, figure 14).
ALONE = ("ios", "hios-mr", "hios-lp")
#: The algorithm whose schedules for one batch size run with the others.
RETARGETED = "ios"
#: Default sizes: in pixels (HIOS, figure 12), and in images (IOS, figure 11).
_IMAGES: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "quick": {"inception_v3": (149, 299)},
    "full": {"inception_v3": (299, 512, 1024), "nasnet_large": (331, 512)},
}
#: Those that are also profiled for one algorithm at a time. Everything that IOS asks for on Inception-v3 takes minutes
#: on two cores with 299 px, and three times as long with 512 px.
_ALONE: Mapping[str, Mapping[str, tuple[int, ...]]] = {"quick": {"inception_v3": (149,)}, "full": _IMAGES["full"]}
_BATCHES: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "quick": {"inception_v3": (1, 4)},
    "full": {"inception_v3": (1, 4, 16)},
}
#: Default image size of those, in pixels; None for that of the network's paper.
_BATCH_IMAGE = {"quick": 149, "full": None}
#: Opara's networks; two layers of the transformers where the configuration says quick.
_Options = dict[str, bool | int | float | str]
_SHORT: _Options = {"layers": 2, "sequence_length": 32}
_TRANSFORMERS: Mapping[str, Mapping[str, tuple[str, _Options | None]]] = {
    "quick": {"bert-2-layers": ("bert", _SHORT), "t5-2-layers": ("t5", _SHORT)},
    "full": {name: (name, None) for name in ("bert", "t5", "googlenet", "inception_v3")},
}
#: Sessions that measure, and predictions, which accompany them: without a platform that runs they have no data.
MEASURING = frozenset({"networks", "convolutions", "pruning", "profiles", "predictions", *VARIANT_ALGORITHMS})


def instances(study: Study) -> int:
    """Number of instances of every setting."""
    return study.simulation.instances or INSTANCES[study.scale]


def convolution_sizes(study: Study) -> tuple[int, ...]:
    """Sizes of the images that convolutions are measured on, in pixels."""
    return study.convolutions.sizes or CONVOLUTION_SIZES[study.scale]


def settings(study: SimulationStudy) -> list[Setting]:
    """The settings of all series, each once, in the order of the paper's figures."""
    return list(dict.fromkeys(setting for name in SERIES for setting in series(study, name)))


def settings_by_graphs(study: SimulationStudy) -> dict[str, list[Setting]]:
    """The settings of all series by their graphs: those of a list differ in devices and transfers alone."""
    shared: dict[str, list[Setting]] = {}
    for setting in settings(study):
        shared.setdefault(setting.graphs, []).append(setting)
    return shared


def series(study: SimulationStudy, name: str) -> list[Setting]:
    """The settings in which one of ``SERIES`` varies and the others keep their default; edges vary with operators."""
    usual = msgspec.structs.asdict(study.base)
    settings = []
    for value in getattr(study, name):
        changed = {**usual, name: value}
        if name == "operators":
            changed["edges"] = round(value * study.base.edges / study.base.operators)
        settings.append(Setting(**changed))
    return settings


def base(study: SimulationStudy) -> Setting:
    """The setting in which nothing varies."""
    return Setting(**msgspec.structs.asdict(study.base))


def archives(settings: Config) -> dict[str, str]:
    """The archives of other machines by the names of the machines."""
    return {Path(path).stem: path for path in settings.study.archives}


def checked_archives(settings: Config, source: str) -> dict[str, str]:
    """The archives of other machines by name, if they are there and are not the copies in the folder of results.

    Raises:
        HiosError: one line with file, field, what was found and what is allowed.
    """
    copies = Path(settings.results, ARCHIVES).resolve()
    for place, path in enumerate(settings.study.archives):
        where = f"{source}: study.archives[{place}]: found {path}"
        if not Path(path).is_file():
            raise HiosError(f"{where}, which is no file; allowed: archives, as `snakemake archive` writes them")
        if Path(path).resolve().parent == copies:
            raise HiosError(f"{where}; allowed: files outside of {settings.results}/{ARCHIVES}, where copies are kept")
    return archives(settings)


def session_files(settings: Config, session: str) -> list[str]:
    """The files of one of `hios.study.figure_data.AVAILABLE` in the folder of results."""
    if session == "networks":
        return [f"{settings.results}/{label}/run.json" for label in settings.models]
    if session == "convolutions":
        return [f"{settings.results}/study/convolutions.json"]
    if session == "pruning":
        labels = settings.study.pruning.models or settings.models
        return [f"{settings.results}/study/pruning/{label}/run.json" for label in labels]
    if session == "archives":
        return [f"{settings.results}/{ARCHIVES}/{name}.zip" for name in archives(settings)]
    if session == "serving":
        return serving_jobs.result_files(settings)
    if session.startswith("top/"):
        return [f"{settings.results}/study/{session}.json"] if _has_experiment(settings, session) else []
    if (kind := session.partition("/"))[0] == "predictions":
        return [str(Path(file).with_name("predicted.json")) for file in session_files(settings, kind[2])]
    if session in VARIANT_ALGORITHMS:
        own = [label for label in variant_networks(settings.study) if session_of(label) == session]
        return [f"{settings.results}/{label}/run.json" for label in own]
    if session == "profiles":
        folders = profiled_alone(settings.study)
        return [f"{settings.results}/{folder}/schedule.json" for folder in folders]
    if session == "ablation":
        return [f"{settings.results}/study/ablation/{generator}.json" for generator in GENERATORS]
    varied = series(settings.study.simulation, session.partition("/")[2])
    return [f"{settings.results}/study/simulation/{setting.name}.json" for setting in varied]


def _has_experiment(settings: Config, session: str) -> bool:
    """Whether there are scenarios for an experiment of TOP; two of them take costs of described GPUs."""
    gpu_alone = session in ("top/batches", "top/stages")
    return bool(serving_jobs.labels(settings)) and (settings.platform == "model" or not gpu_alone)


def figure_files(settings: Config, figure: Figure, *, measures: bool = True) -> list[str]:
    """The files that a figure is drawn from; those of networks only where these are executed."""
    more = [session for session in figure.optional if _is_configured(session, figure, settings.study)]
    sessions = [name for name in (*figure.sessions, *more) if measures or name.partition("/")[0] not in MEASURING]
    return [file for session in sessions for file in session_files(settings, session)]


def _is_configured(session: str, figure: Figure, study: Study) -> bool:
    """Whether the configuration names an optional session.

    Of predictions for networks of a session, both; networks are optional only beside those of other machines.
    """
    if session in ("archives", "networks"):
        return bool(study.archives) and "networks" in study.sessions
    kind, _, of = session.partition("/")
    return kind in study.sessions and (not of or of in figure.sessions or of in study.sessions)


def page_figures(settings: Config, *, measures: bool = True) -> list[str]:
    """The ids of the figures that the page of the report shows: those that the configured sessions feed."""
    wanted: set[str] = {*settings.study.sessions}
    if not measures:
        wanted -= MEASURING
    if wanted and settings.study.archives:
        wanted.add("archives")
    return [
        figure.id
        for figure in registry.figures()
        if wanted and figure.state == "drawn" and {session.partition("/")[0] for session in figure.sessions} <= wanted
    ]


def report_labels(figure: Figure, study: Study, hardware: str) -> dict[str, str]:
    """What Snakemake's report says of a figure in addition to its caption.

    The report makes a switch of a label behind the first if half of the results have one value and half another, and if
    no other label is such; it fails where a result is not there with both values. So labels that tell results apart
    come in pairs: figure and target, hardware and measured.
    The hardware of the machine counts for what is measured.
    """
    measured = not MEASURING.isdisjoint(session.partition("/")[0] for session in figure.sessions)
    return {
        "what": figure.title,
        "figure": figure.number,
        "target": figure.id,
        "hardware": hardware if measured else "any",
        "measured": "yes" if measured else "no",
        "scale": study.scale,
    }


def image_sizes(study: Study) -> Mapping[str, tuple[int, ...]]:
    """Sizes of images in pixels by network."""
    return study.images.sizes or _IMAGES[study.scale]


def batch_sizes(study: Study) -> Mapping[str, tuple[int, ...]]:
    """Batch sizes by network."""
    return study.batches.sizes or _BATCHES[study.scale]


def variant_networks(study: Study) -> dict[str, ModelEntry]:
    """The networks of all sessions by their folder within the results."""
    images = {
        f"study/images/{name}-{size}": ModelEntry(model=name, image_size=size)
        for name, sizes in image_sizes(study).items()
        for size in sizes
    }
    batch_image = study.batches.image_size or _BATCH_IMAGE[study.scale]
    batches = {
        f"study/batches/{name}-b{size}": ModelEntry(model=name, batch_size=size, image_size=batch_image)
        for name, sizes in batch_sizes(study).items()
        for size in sizes
    }
    transformers = {
        f"study/transformers/{label}": ModelEntry(model=name, units="operator", options=options)
        for label, (name, options) in _transformers(study).items()
    }
    return {**images, **batches, **transformers}


def _transformers(study: Study) -> Mapping[str, tuple[str, _Options | None]]:
    """Network and options of its builder by label."""
    if study.transformers.models:
        return {name: (name, None) for name in study.transformers.models}
    return _TRANSFORMERS[study.scale]


def with_variants(settings: Config) -> Config:
    """The settings with the networks of all sessions among the models."""
    return msgspec.structs.replace(settings, models={**settings.models, **variant_networks(settings.study)})


def profiled_alone(study: Study) -> list[str]:
    """The folders of networks that are profiled for one algorithm alone, within the results."""
    sizes = study.images.sizes or _ALONE[study.scale]
    return [
        f"study/profiles/{name}-{size}/{algorithm}"
        for name, own in sizes.items()
        for size in own
        for algorithm in ALONE
    ]


def session_of(label: str) -> str | None:
    """The session that a network belongs to; None for those of the configuration."""
    parts = label.split("/")
    return parts[1] if len(parts) > 1 else None


def competitors(settings: Config, session: str) -> list[str]:
    """The schedules of a network of a session: algorithm and number of devices."""
    numbers = config.numbers_of_devices(settings)
    most = AUTO_DEVICES if config.divides(settings) else max(numbers)
    return [
        f"{name}-{most if find(name).several_devices else 1}"
        for name in VARIANT_ALGORITHMS[session]
        if find(name).several_devices or not numbers or 1 in numbers
    ]


def retargeted(study: Study, label: str) -> list[str]:
    """The schedules for other batch sizes that run on a network, by the names of their files."""
    if session_of(label) != "batches":
        return []
    name, _, own = label.rpartition("/")[2].rpartition("-b")
    return [f"{RETARGETED}-for-b{size}" for size in batch_sizes(study)[name] if str(size) != own]
