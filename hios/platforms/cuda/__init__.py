"""Devices that are GPUs: one worker process holds all of them.

platform      what the devices are
environment   what measurements depend on beside what is measured: GPUs, clocks, software, code
measuring     the bench: one worker for all GPUs
timing        timing operators, stages, merges and transfers inside it
timed_graphs  a GPU with CUDA graphs of chains of operators
chains        how long these chains are, and what their times say
resources     what kernels ask of a GPU, from a trace of torch.profiler
plan          a schedule as launches on streams, without torch
steps         what these are made of: streams, values, launches
order         what finishes before what begins, and who has to wait for whom
memory        when the memory of values may be used again
network       a graph with weights on the GPUs that need them, and its operators compiled for these
program       launches bound to operators, launched on a backend
backend       streams, events, copies and CUDA graphs of torch
executor      programs that are prepared once, captured where possible, and run again and again
marks         what the process is at, for messages
precision     full float32 where outputs are compared, TF32 where torch has it by default
reference     the model itself on a GPU
running       the executor inside the worker
executing     the worker as a session sees it, and what else runs the model itself
distributing  a GPU as the device of a rank
reporting     the GPUs in words
"""
