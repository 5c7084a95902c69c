"""Devices: what there is, and the worker processes that stand for them.

cpu      cores as devices, what they are, how many may be asked for
pool     worker processes, one a device, pinned to its cores, and calls to them
worker   the main function of a worker process
memory   memory of a device, kept between operators
arena    memory that the workers share: flags to signal with and buffers to hand tensors over in
streams  threads of a device that run groups or streams beside each other
"""
