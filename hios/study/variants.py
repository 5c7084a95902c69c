"""Networks that sessions of the study measure in addition to those of the configuration: other sizes, transformers.

Each is a network of the pipeline in a folder of its own, study/SESSION/NAME, with the algorithms that the figures of
the session compare. Names are those of files in ``models/``.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from hios import config
from hios.formats.config_file import AUTO_DEVICES, Config, ModelEntry, Study
from hios.schedulers import find

#: Algorithms by session, as labels of schedules: each with its defaults.
ALGORITHMS = {
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


def image_sizes(study: Study) -> Mapping[str, tuple[int, ...]]:
    """Sizes of images in pixels by network."""
    return study.images.sizes or _IMAGES[study.scale]


def batch_sizes(study: Study) -> Mapping[str, tuple[int, ...]]:
    """Batch sizes by network."""
    return study.batches.sizes or _BATCHES[study.scale]


def networks(study: Study) -> dict[str, ModelEntry]:
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
    return msgspec.structs.replace(settings, models={**settings.models, **networks(settings.study)})


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
        for name in ALGORITHMS[session]
        if find(name).several_devices or not numbers or 1 in numbers
    ]


def retargeted(study: Study, label: str) -> list[str]:
    """The schedules for other batch sizes that run on a network, by the names of their files."""
    if session_of(label) != "batches":
        return []
    name, _, own = label.rpartition("/")[2].rpartition("-b")
    return [f"{RETARGETED}-for-b{size}" for size in batch_sizes(study)[name] if str(size) != own]
