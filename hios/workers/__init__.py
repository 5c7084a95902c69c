"""Worker processes that stand for devices, and calls to functions inside them.

pool            starts the processes, one a device, pinned to its cores, and calls functions inside them
worker          the main function of a worker process
messages        what goes between a worker and its pool, in parts
parent          processes that end with the one that started them
arena           memory that the workers share: flags to signal with and buffers to hand tensors over in
ring            messages through that memory, and bells that wake who waits for them
stream_threads  threads of a device that run groups or streams beside each other
malloc          memory of a device, kept between operators
"""
