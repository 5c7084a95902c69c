"""Devices that are cores or groups of cores: a worker process a device.

platform         what the devices are, and how many may be asked for
environment      what measurements depend on beside what is measured: processor, clocks, software, code
measuring        the bench: a worker a device
timing           timing operators, stages and merges inside a worker
wide_timing      timing operators on several devices at once
transfer_timing  timing transfers between workers
executing        workers of a session, and what else runs the model itself
distributing     a core as the device of a rank
reporting        the cores in words
running          running a device's program inside its worker
values           the tensors of a program, and operators that read and write them
staged_runner    stages one after another, their groups beside each other
wide_runner      operators one after another, some on several devices at once
thread_team      threads of a worker on the cores of several devices
stream_runner    streams beside each other, operators waiting for values where they must
markers          which operator a device is at, for messages
engine           workers that keep a network loaded and run it whenever they are asked to
"""
