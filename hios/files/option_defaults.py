"""Defaults shared by command line, config.yaml and library; each is defined only here.

Defaults of algorithm parameters are in the registry (`hios.schedulers`). Limits that users cannot set, such as how long
a worker process may take to start, are in the module that uses them.
"""

from __future__ import annotations

#: Allowed difference of outputs, absolute plus relative (`hios.frontends.tolerances.compared`).
TOLERANCE = 1e-4
#: Longest time of one run, in seconds.
TIMEOUT_S = 120.0
#: Seed of weights, inputs, and the order of competitors.
SEED = 0
#: Minimum number of measurements of each operator and stage.
REPEATS = 20
#: Seconds for repeating measurements until medians are certain.
PROFILE_BUDGET_S: float = 120
#: Algorithms whose stages are measured.
STAGES_OF = ("greedy", "hios-lp")
#: Seconds that `hios.optimize` may take in all.
OPTIMIZE_BUDGET_S = 60.0
#: Milliseconds below which `hios.optimize` leaves a model as it is.
OPTIMIZE_LEAST_MS = 2.0
