"""Executing schedules on any platform (`hios.platforms`).

competitors   what takes part in a session: schedules, the sequential baseline, independent copies, other runtimes
rounds        a session: the competitors take turns, in worker processes or in ranks; run.json
session       sessions in the workers of a pool, the schedule that ``auto`` chooses among those
              measured, and a run as a Chrome trace, for Perfetto
distributed   sessions in ranks started by torchrun or mpirun
predictions   predicted against measured latencies
run_table     the results of a session as a table in text
"""
