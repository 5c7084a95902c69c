"""Devices that are GPUs. One worker process drives all of them.

devices           what a device is
gpu_settings      settings of GPUs, as nvidia-smi reports them
environment       measurement environment: GPUs, clock rates, software and code versions
measuring         the worker process that measures on all GPUs
timing            functions inside it that time operators, stages, merges and transfers; resources of kernels
timed_graphs      CUDA graphs that repeat an operator or stage: how often, and the time of one run
plan              a schedule as launches on streams, when each waits and when memory is freed; without torch
compiled_network  a graph with its weights on the GPUs that need them, and its operators compiled for these
launch            launches bound to operators, issued through a backend; which launch the process is at, for error
                  messages
graph_pool        CUDA graphs that share memory, also after a capture that failed
backend           streams, events, copies and CUDA graphs of torch
segments          what a stream runs between two waits, by its operators or in inductor, whichever is faster
executor          programs that are prepared once, captured if possible, and run repeatedly
gpu_probe         the probe of the machine's speed on a GPU
precision         full float32 for comparing outputs, TF32 where torch has it by default; keeping a GPU busy before
                  a timed run, so that its clock rate is that of one at work
cuda_reference    the model itself on a GPU
worker            functions inside the worker that use the executor
executing         the worker of a session, and the runtimes that run the model itself
distributing      a GPU as the device of one rank
reporting         the GPUs in words, for the report
"""
