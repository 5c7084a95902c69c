"""Executing a schedule in processes that a launcher starts, on one node or several: every device is a rank.

transports       the interface of what moves tensors: messages, sent and received without blocking; messages by
                 torch.distributed, under torchrun; the same, with values between GPUs sent by NCCL; messages by MPI,
                 under mpirun or srun; connecting to the other ranks, and the options and files that all must agree on
rank_runner      values of a program as messages, and the memory of a rank; barrier, and the clock offsets of other
                 hosts; what a rank does in a turn, and the outputs that it checks
control_channel  the host of every rank, and its cores; what a rank is doing, for error messages; the connection of
                 each rank to rank 0, by which all ranks end together
monitor          rank 0: reports of the ranks, the failure or death of a rank, and which rank caused it
session          a rank's part in a session (`hios.runtime.rounds`), and run.json
"""
