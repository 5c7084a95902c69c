"""Executing schedules on GPUs, all of them in one process.

plan      a schedule as launches on streams, without torch
steps     what these are made of: streams, values, launches
order     what finishes before what begins, and who has to wait for whom
memory    when the memory of values may be used again
network   a graph with weights on the GPUs that need them, and its operators compiled for these
program   launches bound to operators, launched on a backend
backend   streams, events, copies and CUDA graphs of torch
executor  programs that are prepared once, captured where possible, and run again and again
marks     what the process is at, for messages
precision full float32 where outputs are compared, TF32 where torch has it by default
device    the executor inside a worker
workers   the worker as a session sees it
"""
