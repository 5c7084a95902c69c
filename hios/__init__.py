"""hios: where and when each operator of a neural network should run.

The package is layered; a module imports only from layers above its own:

    errors artifacts machine statistics progress versions   what every layer uses
    graph blocks merging costs problem schedule
    evaluate bound check                 the problem and its solution (no torch, no TVM)
    schedulers models sources            one algorithm a file, one registry; what MODEL may be; code hashes
    kernels frontends                    Relax operator -> torch call; torch.export -> Relax -> graph
    workers                              processes, shared memory, calls
    platforms config                     a folder a platform: devices, measuring, executing; config.yaml
    profiling runtime                    what measuring, and executing, on any platform have in common
    optimizing dynamo                    a model of torch in, the fastest way to run it out
    report cli                           what people see

``import hios`` is light: neither torch nor TVM is loaded; ``hios.optimize`` loads them when it is first used.
"""

from typing import TYPE_CHECKING, Any

from hios.bound import lower_bound_ms
from hios.check import violations
from hios.costs import Costs
from hios.errors import HiosError, HiosWarning
from hios.evaluate import evaluate
from hios.graph import Edge, Graph, Operator
from hios.problem import Problem
from hios.schedule import Placement, Schedule
from hios.schedulers import ALGORITHMS, schedule

if TYPE_CHECKING:
    from hios.optimizing.optimize import optimize

__version__ = "0.1.0"

__all__ = [
    "ALGORITHMS",
    "Costs",
    "Edge",
    "Graph",
    "HiosError",
    "HiosWarning",
    "Operator",
    "Placement",
    "Problem",
    "Schedule",
    "__version__",
    "evaluate",
    "lower_bound_ms",
    "optimize",
    "schedule",
    "violations",
]


def __getattr__(name: str) -> Any:
    if name != "optimize":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hios.optimizing.optimize import optimize

    globals()[name] = optimize
    return optimize
