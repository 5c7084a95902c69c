"""Executing schedules, on whatever platform (`hios.platforms`).

baselines    what may run the model itself beside the schedules
competitors  who else takes part: schedules, the sequential one on one device, independent copies
rounds       a session: all of them take turns, whoever runs them
session      sessions whose competitors run in the workers of a pool
results      what run.json says of it
choosing     the fastest of several, or among those tied with it the one whose runs vary least
auto         the fastest of all, chosen by measurement
table        the same in text
distributed  sessions whose competitors run on ranks of torchrun or mpirun
trace        a run as a Chrome/Perfetto trace
"""
