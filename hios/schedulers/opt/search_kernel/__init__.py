"""Simulated annealing, compiled by numba. Imported only where it runs: numba is not light.

compiling           compiled functions, and which of them are kept on disk
shared_moves        what both searches have in common: random numbers, chosen operators and devices, places in a list
annealing_kernel    the search over lists of stages
staged_records      ... its arrays
staged_durations    ... t(S) of a stage
staged_moves        ... changes of a candidate, and taking them back
staged_updates      ... times of a changed candidate
wide_kernel         the search over lists of operators that may take several devices at once
wide_records        ... its arrays
wide_devices        ... sets of devices
wide_moves          ... changes of a candidate, and taking them back
wide_updates        ... times of a changed candidate
"""
