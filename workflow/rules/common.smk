# Loads and validates the configuration, and builds what the rules share: paths, constraints, targets.
import os
import re
import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import get_args

# The hios of this checkout, as in the commands of the rules.
sys.path.insert(0, str(workflow.basedir))

import hios
from hios.pipeline import config as configuration
from hios.pipeline import rank_launchers
from hios.pipeline import snakemake_locks
from hios.errors import HiosError
from hios.files.versions import PACKAGES
from hios.formats.config import AUTO_DEVICES
from hios.formats.study import Experiment
from hios.machine.description import processor, usable_cores
from hios.frontends.models import files as model_files_of
from hios.schedulers import find
from hios.serving import jobs as serving_jobs
from hios.platforms.code_hash import code_hash, source_hash
from hios.study import registry
from hios.study.gpu_targets import TARGETS, targets_of
from hios.study.random_graphs import GENERATORS
from hios.study.sessions import (
    RETARGETED,
    VARIANT_ALGORITHMS,
    checked_archives,
    competitors,
    convolution_sizes,
    figure_files,
    instances,
    page_figures,
    report_labels,
    retargeted,
    session_of,
    settings_by_graphs,
    with_variants,
)
from hios.study.sessions import base as base_setting
from hios.study.simulation import ALGORITHMS as SIMULATED
from snakemake.exceptions import WorkflowError
from snakemake.settings.types import DeploymentMethod
from snakemake.utils import update_config


def checked(check, *arguments, **keywords):
    """What a function of hios returns; its error ends Snakemake with that one line."""
    try:
        return check(*arguments, **keywords)
    except HiosError as error:
        sys.exit(f"Error: {error}")


config_files = [
    str(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)
    for file in map(
        Path.absolute, workflow.overwrite_configfiles or [Path("config.yaml")]
    )
]
for file in config_files:
    checked(configuration.check_file, file)


# Snakemake would merge a file given with --configfile into config.yaml, whose models and algorithms would then
# be part of every run; so config.yaml is read only where no other file is given.
if not workflow.overwrite_configfiles:

    configfile: "config.yaml"


# What Snakemake takes for text within lists and mappings of --config.
given = workflow.config_settings.config_args or []
update_config(config, checked(configuration.nested_values, given))
source = " and ".join(config_files + ["--config"] * bool(given))

# The jobs of a cluster see cores of their own; what counts there is the node that they run on. Snakemake knows its
# executor only once it has read the rules (on_cluster, below); what is known here is a limit of jobs beside that of cores.
MAY_SUBMIT = workflow.remote_exec or workflow.resource_settings.nodes is not None

# A run that was killed left its locks, by which Snakemake would refuse the same command; jobs are part of a run.
if workflow.is_main_process:
    snakemake_locks.remove_stale(Path(".snakemake"), submits=MAY_SUBMIT)

settings = checked(
    configuration.resolve,
    config,
    source=source,
    cores=None if MAY_SUBMIT else len(usable_cores()),
)
checked(serving_jobs.checked, settings, source)
checked(rank_launchers.checked, settings, source)

# Some platforms predict and run nothing; their costs depend on descriptions of what is not here.
PREDICTED = configuration.predicts(settings)
DESCRIPTIONS = checked(configuration.description_files, settings, source)

# Algorithm and number of devices, as in the names of schedules and traces.
COMPETITORS = [
    f"{label}-{devices}" for label, devices in configuration.competitors(settings)
]

# The networks of the configuration, and those that sessions of the study have of their own.
EVERYTHING = with_variants(settings)
NETWORKS = EVERYTHING.models
VARIANT_COMPETITORS = {
    name for session in VARIANT_ALGORITHMS for name in competitors(settings, session)
}

# What the report of a network needs: its run, or its schedules where nothing runs.
RESULTS = (
    [f"<results>/{{model}}/schedules/{competitor}.json" for competitor in COMPETITORS]
    if PREDICTED
    else ["<results>/{model}/run.json"]
)

# The fastest of all as measured, where the configuration asks for it.
CHOSEN = (
    {"chosen": "<results>/{model}/auto.json"} if configuration.chooses(settings) else {}
)

# Runs over the ranks of a launcher, where the configuration asks for them.
DISTRIBUTED = (
    ["<results>/{model}/distributed/run.json"] if settings.distribute.algorithms else []
)

# With `devices: auto`, devices and their cores are what partition.json states, for each network.
AUTO = configuration.divides(settings)
PARTITION = {"partition": "<results>/{model}/partition.json"} if AUTO else {}
MOST_DEVICES = max(configuration.numbers_of_devices(settings), default=1)


def on_cluster():
    """Whether jobs run on other machines; for functions, which Snakemake calls once it knows its executor."""
    return workflow.non_local_exec or workflow.remote_exec


AUTO_ON_CLUSTER = (
    f"{source}: devices: found auto, for which the machine must be known; allowed on a cluster: numbers of devices; "
    "write those to compare, such as devices: [1, 2, 4]"
)


def all_cores(wildcards):
    """Cores of what measures, all of them so that nothing else runs meanwhile; on a cluster those of its devices."""
    if not on_cluster():
        return workflow.resource_settings.cores
    if AUTO:  # with --no-hooks, by which the Snakefile's onstart does not run
        raise WorkflowError(AUTO_ON_CLUSTER)
    return MOST_DEVICES * (settings.cores_per_device or 1)


# GPUs that a job which measures asks a cluster for; Slurm's plugin and others read the resource `gpu`.
GPUS = MOST_DEVICES if settings.platform == "cuda" and not settings.virtual else 0

# Of runs over ranks.
RANKS = rank_launchers.ranks(settings) if DISTRIBUTED else 0
RANK_GPUS = min(GPUS, RANKS)
RANK_PACKAGES = ["mpi4py"] if rank_launchers.resources(settings) else []


def rank_cores(wildcards):
    """Cores of a task on a cluster, a rank of MPI or torchrun with all its ranks; else all, as nothing else may run."""
    if not on_cluster():
        return all_cores(wildcards)
    one_each = bool(rank_launchers.resources(settings))
    return (settings.cores_per_device or 1) * (1 if one_each else RANKS)


def more(least, megabytes_per_megabyte=0):
    """Memory or minutes of a job: in proportion to the size of its input, and more at every further attempt."""

    def amount(wildcards, input, attempt):
        return attempt * int(least + megabytes_per_megabyte * input.size_mb)

    return amount


# Whether export and extract may take their results from the between-workflow cache ($SNAKEMAKE_OUTPUT_CACHE).
CACHING = workflow.workflow_settings.cache is not None


pathvars:
    results=settings.results,
    logs=f"{settings.results}/logs",
    benchmarks=f"{settings.results}/benchmarks",


def alternatives(values):
    """What a wildcard may be; nothing at all where there are no values."""
    return "|".join(map(re.escape, map(str, values))) or "(?!)"


wildcard_constraints:
    model=alternatives(NETWORKS),
    algorithm=alternatives(
        {
            **dict(configuration.competitors(settings)),
            **dict.fromkeys(
                name for names in VARIANT_ALGORITHMS.values() for name in names
            ),
        }
    ),
    devices=alternatives(
        {devices for _, devices in configuration.competitors(settings)}
        | {name.rpartition("-")[2] for name in VARIANT_COMPETITORS}
    ),


# Rules call the hios of this checkout, by the Python that runs Snakemake or that of their conda environment.
# Algorithms of other distributions may lie on the search path of the former.
search = [str(workflow.basedir)]
environment = ""
if DeploymentMethod.CONDA not in workflow.deployment_settings.deployment_method:
    search += filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    python = shlex.quote(os.path.dirname(sys.executable))
    environment = f'export PATH={python}:"$PATH"; '
environment += f"export PYTHONPATH={shlex.quote(os.pathsep.join(search))}; "
# A command ends with this process, even where that is killed and cannot end it (hios/cli/error_exit.py).
os.environ.setdefault("HIOS_ENDS_WITH", str(os.getpid()))
shell.prefix(f"set -euo pipefail; {environment}")


# Networks that come as ONNX files stay what they are; the others become programs of torch.export.
ONNX = [
    label
    for label in settings.models
    if configuration.model_of(settings, label).kind == "onnx"
]
TORCH = [label for label in NETWORKS if label not in ONNX]


def model_files(wildcards):
    """What a network depends on: its file, or those that define it; relative so that a moved checkout stays up to date."""
    files = model_files_of(configuration.model_of(EVERYTHING, wildcards.model))
    return [os.path.relpath(file) for file in files]


def program(wildcards):
    """The exported network."""
    suffix = "onnx" if wildcards.model in ONNX else "pt2"
    return f"{settings.results}/{wildcards.model}/program.{suffix}"


def algorithm_of(wildcards):
    """A scheduling algorithm with its parameters: by its label in the configuration, by its name in other sessions."""
    if session_of(wildcards.model) is None:
        return settings.algorithms[wildcards.algorithm]
    return {"algorithm": wildcards.algorithm}


def schedules_of(wildcards):
    """The schedules that are executed in the session of a network."""
    folder = f"{settings.results}/{wildcards.model}"
    session = session_of(wildcards.model)
    if session is None:
        return [f"{folder}/schedules/{name}.json" for name in COMPETITORS]
    own = [f"{folder}/schedules/{name}.json" for name in competitors(settings, session)]
    others = retargeted(settings.study, wildcards.model)
    return own + [f"{folder}/retargeted/{name}.json" for name in others]


def onnx_packages(label):
    """The packages that a network needs besides torch."""
    return ["onnx", "onnxruntime"] if label in ONNX else []


def runtime_packages(label):
    """The packages that run a network, and those of the baselines; a segment runs in whichever is fastest."""
    baselines = settings.execute.baselines
    if settings.execute.engine == "segments":
        baselines = [*baselines, "onnxruntime", "openvino"]
    exported = "onnxruntime" in baselines
    more = ["onnx", "onnxruntime", "onnxscript"] if exported else onnx_packages(label)
    return [
        "torch",
        *more,
        *(["openvino"] if "openvino" in baselines else []),
        *(["torch_tensorrt"] if "tensorrt" in baselines else []),
    ]


def version(package):
    """The installed version; None where it is in a conda environment, which Snakemake itself compares."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def versions(*packages):
    """Versions of hios and packages; as a parameter, other versions run a step again and miss the cache."""
    return {"hios": hios.__version__} | {
        package: version(package) for package in packages
    }


# Figures and tables of the papers: the settings of the simulation that some of them are drawn from.
SIMULATION = settings.study.simulation
SETTINGS_BY_GRAPHS = settings_by_graphs(SIMULATION)
BASE_SETTING = base_setting(SIMULATION)


def instance_options():
    """What all settings of the simulation have in common, as options of `hios study`."""
    return {
        "instances": instances(settings.study),
        "seed": SIMULATION.seed,
        "alpha": SIMULATION.alpha,
    }


def setting_options(setting):
    """A setting of the simulation as options of `hios study`."""
    given = {key: getattr(setting, key) for key in setting.__struct_fields__}
    return configuration.options({**given, **instance_options()})


def several_settings(several):
    """Settings of the simulation as options of `hios study simulation`."""
    texts = [
        ",".join(f"{key}={getattr(setting, key)}" for key in setting.__struct_fields__)
        for setting in several
    ]
    search = {"window": SIMULATION.window, "moves": SIMULATION.moves}
    return configuration.options({"setting": texts, **instance_options(), **search})


def figure_data(wildcards):
    """The files that a figure is drawn from; none of networks where nothing runs."""
    figure = registry.figure(wildcards.figure)
    return figure_files(settings, figure, measures=not PREDICTED)


def figure_labels(wildcards):
    """What Snakemake's report says of a figure in addition to its caption."""
    figure = registry.figure(wildcards.figure)
    hardware = f"platform {settings.platform}" if on_cluster() else processor()
    return report_labels(figure, settings.study, hardware or "unknown")


# Algorithms of the schedules that are predicted for the papers' GPUs.
PREDICTED_ALGORITHMS = sorted(
    {name for target in TARGETS.values() for name in target.algorithms}
)

# Archives of other machines, by the machine's name.
ARCHIVES = checked(checked_archives, settings, source)

# Those on the page of the report.
PAGE_FIGURES = page_figures(settings, measures=not PREDICTED)


# Several models on one device: results of every scenario under every policy and load.
SERVED = serving_jobs.result_files(settings)


# A scenario and the files that it names, for the input of a rule.
SCENARIO = {
    "scenario": lambda w: serving_jobs.scenario_file(settings, w.scenario),
    "files": lambda w: serving_jobs.files_of(settings, w.scenario),
}


def served_with(options, wildcards):
    """Files that a command takes besides a scenario, by option, under the policy and load of a job."""
    w = wildcards
    return options(settings, w.scenario, w.policy, w.load)


wildcard_constraints:
    scenario=alternatives(serving_jobs.labels(settings)),
    policy=alternatives(settings.serving.policies),
    load=alternatives(f"{load:g}" for load in settings.serving.loads),
    generator=alternatives(GENERATORS),
    machine=alternatives(ARCHIVES),
    figure=alternatives(registry.ids()),
