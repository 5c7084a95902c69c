"""Executing schedules on GPUs, all of them in one process.

plan      a schedule as launches on streams: their order, who waits for whom, when memory may be used again (no torch)
network   a graph with weights on the GPUs that need them, and its operators compiled for these
program   launches bound to operators, launched on a backend
backend   streams, events, copies and CUDA graphs of torch
executor  programs that are prepared once, captured where possible, and run again and again
marks     what the process is at, for messages
precision full float32 where outputs are compared, TF32 where torch has it by default
device    the executor inside a worker
workers   the worker as a session sees it
"""
