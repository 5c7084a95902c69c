"""Worker processes that stand for devices, and calls of functions inside them.

pool              starts one process per device, pinned to its cores, and calls functions inside them
fork_server       what they are forked from: a process that has imported torch
worker            the main function of a worker process
channel           messages between a worker and its pool, short ones through shared memory
pipe_messages     longer ones through a pipe, sent in parts
process_settings  the name of a process; ending with its parent; keeping freed memory
arena             shared memory: flags for signaling and how to wait for one, buffers for tensors, and files in memory
deadline          time-outs of waits
ring              messages through shared memory, with a bell that wakes the receiver
stream_threads    threads of a device that run groups or streams concurrently
"""
