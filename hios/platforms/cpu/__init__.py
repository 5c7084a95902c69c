"""Devices that are cores or groups of cores, with one worker process per device.

devices       what a device is, and how many devices are allowed
environment   measurement environment: processor, clock rates, software and code versions
measuring     a worker process on each device that measures operators, stages and transfers
timing        functions inside a worker that time operators, stages, merges and transfers, also on several devices
executing     the workers of a session, and the runtimes that run the model itself
distributing  a core as the device of one rank
reporting     the cores in words, for the report
worker        functions inside a worker that run the program of its device
runners       the tensors of a program, and operators that read and write them; runs steps in order: stages with
              concurrent groups, or operators, some on several devices at once, for which the other devices step aside;
              runs streams concurrently; an operator waits for the values it reads
thread_team   threads of a worker on the cores of several devices; which operator a device is running, for error
              messages
segment_runtimes  segments in ONNX Runtime, OpenVINO or hios's kernels, whichever is fastest
core_probe    the probe of the machine's speed on a core
engine        workers that keep a network loaded and run it on request
"""
