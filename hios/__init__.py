"""hios: where and when each operator of a neural network should run.

The package is layered; a module imports only from layers above its own:

    interrupts errors defaults cpu_topology machine statistics progress csv_tables    used by every layer
    formats validation artifacts json_cache drift versions batch_job snakemake_locks    one class per file
    graph blocks operator_merge costs problem schedule contraction
    evaluate bound schedule_check bound_check retargeting    the problem and its solution (no torch, no TVM)
    schedulers python_imports models yaml_file sources  one algorithm per file, one registry; models; code hashes
    tolerances kernels frontends    Relax operator -> torch call; torch.export -> Relax -> graph
    workers                              processes, shared memory, calls
    platforms config config_options rank_launchers  one folder per platform: devices, measuring; config.yaml
    profiling runtime                    measuring and executing on any platform
    optimizing dynamo                    from a torch model to the fastest way to run it
    serving                              several models on one device: policies, simulation, measures
    charts                               one style for all charts; Altair to SVG and PDF
    study                                figures and tables of the papers
    report verify api cli                report, consistency of results, stages as functions, commands

``import hios`` is light: neither torch, TVM nor pandas is loaded; functions load what they need when they are called.
"""

import importlib
from typing import TYPE_CHECKING, Any

import hios.interrupts  # noqa: F401 before all that takes time

# isort: split
from hios.api import execute, export, extract, profile, report
from hios.bound import lower_bound_ms
from hios.costs import Costs
from hios.errors import HiosError, HiosWarning
from hios.evaluate import evaluate
from hios.formats.costs_file import CostsFile
from hios.formats.run_file import Run
from hios.graph import Edge, Graph, Operator
from hios.problem import Problem
from hios.schedule import Placement, Schedule, Solution, StagedPlan, StreamPlan
from hios.schedule_check import violations
from hios.schedulers import ALGORITHMS, Parameter, register, schedule

if TYPE_CHECKING:
    from hios.optimizing.optimize import optimize
    from hios.report.dataframes import Results, load_results

__version__ = "0.3.0"

__all__ = [
    "ALGORITHMS",
    "Costs",
    "CostsFile",
    "Edge",
    "Graph",
    "HiosError",
    "HiosWarning",
    "Operator",
    "Parameter",
    "Placement",
    "Problem",
    "Results",
    "Run",
    "Schedule",
    "Solution",
    "StagedPlan",
    "StreamPlan",
    "__version__",
    "evaluate",
    "execute",
    "export",
    "extract",
    "load_results",
    "lower_bound_ms",
    "optimize",
    "profile",
    "register",
    "report",
    "schedule",
    "violations",
]


#: Names imported on first use, as their modules load torch or pandas.
_LAZY = {
    "Results": "hios.report.dataframes",
    "load_results": "hios.report.dataframes",
    "optimize": "hios.optimizing.optimize",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        attribute = globals()[name] = getattr(importlib.import_module(_LAZY[name]), name)
    except ModuleNotFoundError as error:
        from hios.errors import missing_extra

        explained = missing_extra(f"hios.{name}", error)
        if explained is None:
            raise
        raise explained from error
    return attribute


def __dir__() -> list[str]:
    return [*globals(), *_LAZY]
