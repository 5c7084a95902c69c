"""Executing schedules on devices.

program   a schedule as what each device does, step by step
device    running such a program inside a worker
weights   weights.safetensors, checked against the graph
eager     eager PyTorch inside a worker, as reference
session   all competitors interleaved in one session, outputs checked, latencies as statistics
trace     a run as a Chrome/Perfetto trace
"""
