"""Executing schedules on devices.

program   a schedule as what each device does, step by step
device    running such a program inside a worker
weights   weights.safetensors, checked against the graph
eager     eager PyTorch inside a worker, as reference
competitors  who takes part: schedules, the baseline, independent copies, eager PyTorch
session   all of them interleaved in one session, outputs checked
results   what run.json says of it
table     the same in text
trace     a run as a Chrome/Perfetto trace
"""
