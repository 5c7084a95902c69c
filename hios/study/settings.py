"""What the configuration says about the sessions of figures: settings of the simulation, and the files of sessions."""

from __future__ import annotations

from pathlib import Path

import msgspec

from hios.errors import HiosError
from hios.formats.config_file import SERIES, Config, SimulationStudy, Study
from hios.formats.simulation_file import Setting
from hios.serving import jobs as serving_jobs
from hios.study import registry, variants
from hios.study.random_graphs import GENERATORS
from hios.study.registry import Figure

#: Default number of instances of every setting; the paper has 30.
INSTANCES = {"quick": 3, "full": 30}
#: Sizes of images of convolutions, in pixels: those of HIOS figure 1, the largest of which take minutes on cores.
SIZES = {"quick": (8, 16, 32, 64, 128, 256), "full": (8, 16, 32, 64, 128, 256, 512, 1024)}
#: Where archives of other machines are kept, within the results.
ARCHIVES = "study/archives"
#: Sessions that measure, and predictions, which accompany them: without a platform that runs they have no data.
MEASURING = frozenset({"networks", "convolutions", "pruning", "profiles", "predictions", *variants.ALGORITHMS})


def instances(study: Study) -> int:
    """Number of instances of every setting."""
    return study.simulation.instances or INSTANCES[study.scale]


def image_sizes(study: Study) -> tuple[int, ...]:
    """Sizes of the images that convolutions are measured on, in pixels."""
    return study.convolutions.sizes or SIZES[study.scale]


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
    """The settings in which one parameter varies and the others keep their default.

    Args:
        study: the configuration.
        name: one of ``SERIES``. With the operators the edges vary too.
    """
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
    """The files of a session in the folder of results.

    Args:
        settings: of the pipeline.
        session: one of `hios.study.figure_data.AVAILABLE`.
    """
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
    if session in variants.ALGORITHMS:
        own = [label for label in variants.networks(settings.study) if variants.session_of(label) == session]
        return [f"{settings.results}/{label}/run.json" for label in own]
    if session == "profiles":
        folders = variants.profiled_alone(settings.study)
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
    """The files that a figure is drawn from, in the folder of results.

    Args:
        settings: of the pipeline.
        figure: of the registry; its optional sessions count if the configuration names them.
        measures: whether networks are executed.
    """
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
    """The ids of the figures that the page of the report shows: those that the configured sessions feed.

    Args:
        settings: of the pipeline.
        measures: whether networks are executed.
    """
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

    Args:
        figure: of the registry.
        study: of the configuration.
        hardware: of the machine, for what is measured.
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
