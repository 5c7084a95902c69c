"""Devices that are cores or groups of cores, with one worker process per device.

cpu_platform      what a device is, and how many devices are allowed
cpu_environment   measurement environment: processor, clock rates, software and code versions
cpu_measuring     a worker process on each device that measures operators, stages and transfers
cpu_timing        functions inside a worker that time operators, stages, merges and transfers, also on several devices
cpu_executing     the workers of a session, and the runtimes that run the model itself
cpu_distributing  a core as the device of one rank
cpu_reporting     the cores in words, for the report
cpu_worker        functions inside a worker that run the program of its device
values            the tensors of a program, and operators that read and write them
staged_runner     runs steps in order: stages with concurrent groups, or operators, some on several devices at once
thread_team       threads of a worker on the cores of several devices
stream_runner     runs streams concurrently; an operator waits for the values it reads
progress_marker   which operator a device is running, for error messages
engine            workers that keep a network loaded and run it on request
"""
