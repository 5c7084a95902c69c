"""hios: where and when each operator of a neural network should run.

The package is layered; a module imports only from layers above its own:

    errors artifacts machine             what every layer uses
    graph blocks merging costs problem schedule
    evaluate bound check                 the problem and its solution (no torch, no TVM)
    schedulers models config sources     one algorithm a file, one registry; what MODEL may be; config.yaml; code hashes
    kernels frontends                    Relax operator -> torch call; torch.export -> Relax -> graph
    platforms profiling runtime          devices, measuring, executing
    report cli                           what people see

``import hios`` is light: neither torch nor TVM is loaded.
"""

from hios.bound import lower_bound_ms
from hios.check import violations
from hios.costs import Costs
from hios.errors import HiosError
from hios.evaluate import evaluate
from hios.graph import Edge, Graph, Operator
from hios.problem import Problem
from hios.schedule import Placement, Schedule
from hios.schedulers import ALGORITHMS, schedule

__version__ = "0.1.0"

__all__ = [
    "ALGORITHMS",
    "Costs",
    "Edge",
    "Graph",
    "HiosError",
    "Operator",
    "Placement",
    "Problem",
    "Schedule",
    "__version__",
    "evaluate",
    "lower_bound_ms",
    "schedule",
    "violations",
]
